/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server in fakeapi/, a client and a loop. Calls are made and waited for; struct got has the
 * answer. A test fails when anything takes longer than WAIT_MS.
 */
#pragma once

#include "operator/kube/client.h"
#include "tests/support/test.h"

#include <cjson/cJSON.h>

enum { WAIT_MS = 60000 };

struct fake {
	FILE *in, *out;
	int pid;
	int port, http1_port, garbage_port, proxy_port, plain_port;
	char dir[64];
};
extern struct fake fake;

/* Group set-up: starts the server once for the program. */
int fake_start(void **state);
int fake_stop(void **state);
/* Sends a command to the server; returns its answer as a number, 0 for "ok". */
long fake_tell(const char *format, ...) _printf_(1, 2);
/* The path of the file NAME in the server's directory; valid for a few calls. */
const char *fake_file(const char *name);
void write_file(const char *name, const char *text);

struct world {
	uv_loop_t loop;
	uv_timer_t watchdog;
	struct kube_client *client;
	struct kube_credentials credentials;
	char server[64];
	uint64_t until_ms;
	bool ran_out;
};
/* Credentials for HTTP/2 at 127.0.0.1; change them, then world_connect(). */
void world_init(struct world *w);
void world_connect(struct world *w, const struct kube_client_options *more);
void world_done(struct world *w);
/* Runs the loop until *FLAG is true. */
void world_run_until(struct world *w, const bool *flag);
/* Runs the loop for MS. */
void world_run_for(struct world *w, uint64_t ms);

struct got {
	bool done;
	int status, calls;
	char message[1024], reason[64], type[128];
	char *body; /* NULL: streamed */
	size_t len;
	uint64_t retry_after_ms;
	bool connection_reset;
	char *stream; /* bytes that data() got */
	size_t stream_len, pieces;
};
void got_done(struct got *g);
/* Callbacks whose arg is a struct got. */
void on_answer(void *arg, const struct kube_answer *answer);
int on_data(void *arg, const char *content_type, const void *bytes, size_t len);

/* GET; waits until *GOT has the answer. */
void get(struct world *w, const char *path, struct got *got);
/* The same with a data() callback. */
void get_stream(struct world *w, const char *path, uint64_t idle_ms, struct got *got);
/* Makes REQUEST, with path, done and arg filled in, and waits. */
void ask(struct world *w, struct kube_request request, struct got *got);

/* The JSON that the echoing paths answer with, and a member of it. */
cJSON *echoed(const struct got *got);
const char *member_text(const cJSON *object, const char *key);
const char *header_text(const cJSON *echo, const char *key);
