/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listener on loopback for tests of a client. It sends the bytes that the test gives it, and
 * keeps the bytes that it receives, connection by connection. It works while UNTIL() runs, in turns
 * with the client's loop.
 */
#pragma once

#include "lib/base.h"

#include <uv.h>

#include "tests/support/h2_bytes.h"

enum { H2_PEER_CONNECTIONS = 64, H2_PEER_PREFACE = 24, H2_PEER_DEADLINE_MS = 30000 };

struct h2_peer {
	uv_loop_t loop; /* the client's */
	uv_timer_t alarm;
	bool timed_out;
	int fd;
	uint16_t port;
	char endpoint[64];
	bool deaf; /* reads nothing */
	size_t n;
	struct {
		int fd;
		bool over; /* closed by the client */
		uint8_t *in;
		size_t n_in;
	} c[H2_PEER_CONNECTIONS];
};

void h2_peer_start(struct h2_peer *p);
/* Runs the loop until it is empty: the client must have been freed before. */
void h2_peer_stop(struct h2_peer *p);
void h2_peer_hear(struct h2_peer *p);
/* Sends BYTES on connection I. Runs the loop while the socket is full. */
void h2_peer_say(struct h2_peer *p, size_t i, const void *bytes, size_t len);
void h2_peer_frame(struct h2_peer *p, size_t i, int type, int flags, uint32_t id,
		   const void *payload, size_t len);
void h2_peer_close(struct h2_peer *p, size_t i);
/* Shuts down the sending side, and waits until the client's kernel has acknowledged it. */
void h2_peer_finish(struct h2_peer *p, size_t i);
/* h2_count() over the bytes of connection I after the preface. */
unsigned int h2_peer_heard(const struct h2_peer *p, size_t i, int type, int flags,
			   const uint8_t **ret_last);
/* HEADERS with FIELDS: name, value, ..., NULL. */
void h2_peer_headers(struct h2_peer *p, size_t i, int flags, uint32_t id,
		     const char *const *fields);
/* Sends SETTINGS: the client sends its calls only after that. */
void h2_peer_greet(struct h2_peer *p, size_t i);

void h2_peer_begin_waiting(struct h2_peer *p);

#define UNTIL(p, condition)                                                                        \
	do {                                                                                       \
		h2_peer_begin_waiting(p);                                                          \
		while (h2_peer_hear(p), !(condition) && !(p)->timed_out) {                         \
			uv_run(&(p)->loop, UV_RUN_NOWAIT);                                         \
			usleep(100);                                                               \
		}                                                                                  \
		assert_true(condition);                                                            \
	} while (0)
