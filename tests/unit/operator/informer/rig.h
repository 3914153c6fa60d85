/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fixture of the informer's tests: an informer, a fake API server that sends the answers that a
 * test gives it, and a store that records each object it is handed. Timers and the clock are fake
 * too: a test moves the time forward itself and never sleeps.
 */
#pragma once

#include "operator/cache/informer.h"
#include "tests/support/test.h"
#include "tests/unit/operator/informer/fake_kube.h"

enum { TIMERS = 2 }; /* of an informer */

struct fake_uv {
	uint64_t now;
	struct fake_timer {
		uv_timer_t *timer;
		uv_timer_cb due; /* NULL: stopped */
		uint64_t due_ms;
		uv_close_cb closed;
	} timers[TIMERS];
};
extern struct fake_uv fake;

struct world {
	struct informer_options options;
	struct informer *informer;
	char seen[4096]; /* what the store was told, in order */
	int put_result;
	bool free_when_synced;
	unsigned int replaced, synced;
	int replaced_result;
	uint32_t generation;
};

extern const struct informer_ops ops; /* the argument is a struct world */

int set_up(void **state);
int tear_down(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

void start(struct world *w);
/* With pages instead of a watch list. */
void start_classic(struct world *w);
/* Frees the informer; W can be started again. */
void end(struct world *w);
/* Starts, and answers until the informer watches. */
void watching(struct world *w);
/* MS go by: timers that are due call back. */
void pass(uint64_t ms);
const struct informer_stats *stats(const struct world *w);

/* Paths of its requests. */
#define BASE "/api/v1/configmaps"
#define WATCH_LIST(rv)                                                                             \
	BASE "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&"                        \
	     "resourceVersionMatch=NotOlderThan&resourceVersion=" rv "&timeoutSeconds=300"
#define WATCH(rv)                                                                                  \
	BASE "?watch=true&allowWatchBookmarks=true&resourceVersion=" rv "&timeoutSeconds=300"
/* Fails the test when the newest call asks for another path. */
void expect_path(const char *want);

/* What the API server says; results as of fake_data(). */
#define ITEM(name)                                                                                 \
	"{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"n\",\"resourceVersion\":\"3\"}}"
int say(const char *text);
int event(const char *type, const char *name, const char *version);
int bookmark(const char *version, bool initial_end);
int error_event(int code, const char *message);
/* Answers a list. TOKEN: of the next page, or "". ITEMS: ITEM()s with commas. */
void list(const char *version, const char *token, const char *items);
