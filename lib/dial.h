/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct dial: from a name to a connected socket. The name is resolved on a thread of libuv's pool;
 * its addresses, IPv6 and IPv4 in turns, are tried with a head start of 250 ms each (RFC 8305), and
 * the first that takes the connection wins. Loop thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

struct dial;

enum { DIAL_WORDS_MAX = 512, DIAL_ADDRESSES_MAX = 16 };

struct dial_events {
	/* FD does not block and is the callee's. ADDRESS: of the peer, for messages. */
	void (*connected)(void *arg, int fd, const char *address);
	/* No address is left. WORDS: why, address by address. */
	void (*failed)(void *arg, const char *words);
	void *arg;
};

/*
 * Begins. HOST: a name, or an address without brackets; or PATH: of a Unix socket. No callback
 * comes from inside these functions. A name that is being resolved keeps the loop alive until it
 * is, even after dial_free(); nothing else does. -ENOMEM.
 */
int dial_new(uv_loop_t *loop, const char *host, uint16_t port, const char *path,
	     const struct dial_events *events, struct dial **ret) _must_check_;
/* After connected(): that one was of no use, because of WORDS; the others are tried. */
void dial_again(struct dial *d, const char *words);
/* No callback comes any more. */
struct dial *dial_free(struct dial *d);
