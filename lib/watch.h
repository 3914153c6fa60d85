/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct watch: a descriptor on a libuv loop. Unlike a uv_poll_t it may be freed at once, and its
 * owner with it: the handle closes behind their backs. It does not keep the loop alive. Loop
 * thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

struct watch;

/* READY: an error of FD counts as UV_READABLE | UV_WRITABLE, so that using it tells what it is. */
int watch_new(uv_loop_t *loop, int fd, void (*ready)(void *arg, int events), void *arg,
	      struct watch **ret) _must_check_;
/* READY is not called any more. FD stays open, and may be closed or watched anew at once. */
struct watch *watch_free(struct watch *w);
/* EVENTS: bits of enum uv_poll_event; 0: none. -errno: it cannot be watched. */
int watch_for(struct watch *w, int events) _must_check_;
