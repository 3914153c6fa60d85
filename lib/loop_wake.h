/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct loop_wake: lets other threads wake a libuv loop. It replaces uv_async_t, whose loop spins
 * until the sender has returned from its system call (libuv 1.44, src/unix/async.c,
 * uv__async_spin()): on busy CPUs the loop may have preempted that sender, and spins for
 * milliseconds.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

struct loop_wake {
	/* uv_ref() and uv_unref() on this handle decide whether it keeps the loop alive; at first
	 * it does. */
	uv_poll_t poll;
	int fd; /* eventfd(2) */
	void (*woken)(struct loop_wake *w);
	void (*closed)(struct loop_wake *w);
};

/* WOKEN is called on the loop's thread, once or more often after one or more calls of
 * loop_wake_send(). -errno. */
int loop_wake_init(uv_loop_t *loop, struct loop_wake *w,
		   void (*woken)(struct loop_wake *w)) _must_check_;
/* Any thread, also a signal handler, until W is closed. */
void loop_wake_send(const struct loop_wake *w);
/* Loop thread. CLOSED, unless NULL, is called when W may be freed. */
void loop_wake_close(struct loop_wake *w, void (*closed)(struct loop_wake *w));
