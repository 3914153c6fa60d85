/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs work on another thread and reports its end on the loop's thread. It replaces
 * uv_queue_work(), which ends with a uv_async_send(): see lib/loop_wake.h. Only for work that ends
 * by itself; work that may hang belongs to agent/discovery.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

enum { WORK_THREADS = 4 }; /* of the process; started when they are needed */

struct work_loop;

/* To be embedded in the caller's struct. */
struct work {
	void (*run)(struct work *w);
	void (*done)(struct work *w);
	struct work_loop *of;
	struct work *next;
};

/*
 * Loop thread. RUN is called once on another thread, then DONE on the loop's, which W keeps alive
 * until then. DONE may free W or submit it again. -errno: neither is called.
 */
int work_submit(uv_loop_t *loop, struct work *w, void (*run)(struct work *w),
		void (*done)(struct work *w)) _must_check_;
