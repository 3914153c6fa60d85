/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct dial: connects to a name. The name is resolved on a thread of libuv's pool. Its addresses,
 * IPv6 and IPv4 in turns, are tried, each with a head start of 250 ms before the next one (RFC
 * 8305); the first connection that succeeds is used. Loop thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

struct dial;

enum { DIAL_WORDS_MAX = 512, DIAL_ADDRESSES_MAX = 16 };

struct dial_events {
	/* FD is non-blocking; the receiver of this callback owns it. ADDRESS: the peer's, for
	 * messages. */
	void (*connected)(void *arg, int fd, const char *address);
	/* No address is left. WORDS: why, address by address. */
	void (*failed)(void *arg, const char *words);
	void *arg;
};

/*
 * Starts to connect to HOST (a name, or an address without brackets) and PORT, or to the Unix
 * socket at PATH. The callbacks never come from inside these functions. While a name is being
 * resolved the loop stays alive, even after dial_free(); otherwise a dial does not keep the loop
 * alive. -ENOMEM.
 */
int dial_new(uv_loop_t *loop, const char *host, uint16_t port, const char *path,
	     const struct dial_events *events, struct dial **ret) _must_check_;
/* After connected(): the peer was unusable because of WORDS; tries the remaining addresses. */
void dial_again(struct dial *d, const char *words);
/* Frees D; no callback comes after this. */
struct dial *dial_free(struct dial *d);
