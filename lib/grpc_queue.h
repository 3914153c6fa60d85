/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct grpc_queue: a completion queue of the gRPC C core whose events arrive on a libuv loop. A
 * thread waits on the queue and does nothing but move finished tags onto a list under a lock and
 * wake the loop. Part of grpc_client, grpc_stream and grpc_server; all functions run on the loop
 * thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <grpc/grpc.h>
#include <pthread.h>
#include <uv.h>

#include "lib/error.h"

/* The tag of one batch, inside whatever started it. */
struct grpc_tag {
	struct grpc_tag *next; /* under the queue's lock */
	bool ok;	       /* what the core says of the batch */
	void (*done)(struct grpc_tag *tag);
};

struct grpc_queue {
	uv_async_t wake; /* keeps the loop alive only between grpc_queue_hold() and _release() */
	uv_thread_t thread, second;
	bool has_second;
	grpc_completion_queue *cq;
	pthread_mutex_t lock;
	struct grpc_tag *done, **done_tail; /* finished, not yet seen by the loop */
	void (*closed)(struct grpc_queue *q);
};

/* Nothing is left behind on failure. */
int grpc_queue_init(struct grpc_queue *q, uv_loop_t *loop, struct error *err) _must_check_;
/* One more thread, for a server: the core's own work is done by those that wait. */
int grpc_queue_add_thread(struct grpc_queue *q, struct error *err) _must_check_;
static inline void grpc_queue_hold(struct grpc_queue *q)
{
	uv_ref((uv_handle_t *)&q->wake);
}
static inline void grpc_queue_release(struct grpc_queue *q)
{
	uv_unref((uv_handle_t *)&q->wake);
}

/*
 * Before a batch is started: what the loop did with its tag comes before what a thread of the queue
 * does. The core's own locks see to that too, but ThreadSanitizer does not see those.
 */
static inline void grpc_queue_hand_over(struct grpc_queue *q)
{
	pthread_mutex_lock(&q->lock);
	pthread_mutex_unlock(&q->lock);
}

/*
 * The core hands out what is pending (cancel calls first, and start nothing after this), the thread
 * ends, no tag is called any more. Then the calls and the channel may be destroyed.
 */
void grpc_queue_stop(struct grpc_queue *q);
/* After grpc_queue_stop(): CLOSED is called when the loop has closed the handle; it may free Q. */
void grpc_queue_close(struct grpc_queue *q, void (*closed)(struct grpc_queue *q));
