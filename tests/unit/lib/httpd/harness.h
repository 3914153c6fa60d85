/* SPDX-License-Identifier: Apache-2.0 */
/* A loop with servers on a thread of its own, and a blocking client that speaks raw bytes. */
#pragma once

#include "lib/buf.h"
#include "lib/httpd.h"

struct loop_thread;

/* Makes the loop; INIT runs before the thread starts, STOP on the loop's thread at the end. */
struct loop_thread *loop_thread_new(void (*init)(uv_loop_t *loop, void *user),
				    void (*stop)(void *user), void *user);
/* Runs FN on the loop's thread and waits for it. */
void loop_thread_call(struct loop_thread *t, void (*fn)(void *arg), void *arg);
/* Stops, joins and checks that nothing is left on the loop. */
void loop_thread_free(struct loop_thread *t);

int client_connect(uint16_t port);
void client_send(int fd, const void *data, size_t len);
/* Reads until the server closes; false when it was reset or nothing came for a minute. */
bool client_read(int fd, struct buf *out);

struct reply {
	int status; /* 0: no valid answer */
	struct buf raw;
	const char *body;
	size_t body_len;
};
/* Sends REQUEST (text), reads to the end, parses. */
void client_ask(uint16_t port, const char *request, struct reply *reply);
void client_get(uint16_t port, const char *target, struct reply *reply);
void reply_parse(struct reply *reply);
void reply_done(struct reply *reply);
/* The value of a header, "" when it is missing; copied into OUT. */
const char *reply_header(const struct reply *reply, const char *name, char *out, size_t size);
