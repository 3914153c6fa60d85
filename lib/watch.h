/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct watch: polls a descriptor on a libuv loop. Unlike a uv_poll_t it may be freed at once,
 * together with its owner: its handle is closed in the background. It does not keep the loop alive.
 * Loop thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

struct watch;

/* READY: an error of FD is reported as UV_READABLE | UV_WRITABLE, so that using FD returns the
 * error. */
int watch_new(uv_loop_t *loop, int fd, void (*ready)(void *arg, int events), void *arg,
	      struct watch **ret) _must_check_;
/* READY is not called after this. FD stays open, and may be closed or watched again at once. */
struct watch *watch_free(struct watch *w);
/* EVENTS: bits of enum uv_poll_event; 0: none. -errno: it cannot be watched. */
int watch_for(struct watch *w, int events) _must_check_;
