/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes, events, informers and the clock, without a network. Each write is kept until the test
 * answers it; the test puts objects into the informers' stores. Replaces operator/kube and
 * operator/cache/informer.c at link time.
 */
#pragma once

#include "operator/cache/informer.h"
#include "operator/kube/write.h"

enum { FAKE_WRITES_MAX = 512, FAKE_EVENTS_MAX = 2048, FAKE_INFORMERS_MAX = 16 };

struct kube_call {
	const char *verb; /* "apply", "status", "delete" */
	enum kube_kind kind;
	char ns[64], name[128], uid[64];
	cJSON *object; /* NULL: deleted */
	kube_done_fn *done;
	void *arg;
	bool over, cancelled;
};

extern struct fakes {
	uint64_t now_ms;
	struct kube_call writes[FAKE_WRITES_MAX];
	size_t n_writes;
	char events[FAKE_EVENTS_MAX][320]; /* "type reason ns/name: note" */
	size_t n_events;
	int event_result;
	struct {
		enum kube_kind kind;
		struct informer_ops ops;
		void *store;
		struct informer_stats stats;
	} informers[FAKE_INFORMERS_MAX];
	size_t n_informers;
} fakes;

void fakes_reset(void);
struct kube_call *fake_newest(void); /* the newest write, still unanswered */
void fake_done(struct kube_call *call, int status, const char *message);
void fake_found(struct kube_call *call, const char *body); /* answers a "get" with BODY */
/* Adds OBJECT to the informer's store of KIND; fake_gone() removes it. */
void fake_show(enum kube_kind kind, const cJSON *object);
void fake_gone(enum kube_kind kind, const cJSON *object);
