/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The completion queue's thread and its list.
 *
 * The list is the only state that two threads touch. The loop takes tags from it one at a time,
 * because what a tag calls may stop the queue: then the rest of the list is dropped, and whoever
 * stopped it frees what the tags were part of.
 */
#include "lib/grpc_queue.h"

static void on_wake(uv_async_t *handle)
{
	struct grpc_queue *q = container_of(handle, struct grpc_queue, wake);
	struct grpc_tag *tag;

	while (!uv_is_closing((uv_handle_t *)&q->wake)) {
		pthread_mutex_lock(&q->lock);
		tag = q->done;
		if (tag) {
			q->done = tag->next;
			if (!q->done)
				q->done_tail = &q->done;
		}
		pthread_mutex_unlock(&q->lock);
		if (!tag)
			return;
		tag->done(tag);
	}
}

static void wait_for_events(void *arg)
{
	struct grpc_queue *q = arg;
	struct grpc_tag *tag;
	grpc_event event;

	for (;;) {
		event = grpc_completion_queue_next(q->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		if (event.type == GRPC_QUEUE_SHUTDOWN)
			return;
		tag = event.tag;
		pthread_mutex_lock(&q->lock);
		tag->next = NULL;
		tag->ok = event.success;
		*q->done_tail = tag;
		q->done_tail = &tag->next;
		pthread_mutex_unlock(&q->lock);
		uv_async_send(&q->wake);
	}
}

static void on_closed(uv_handle_t *handle)
{
	struct grpc_queue *q = container_of((uv_async_t *)handle, struct grpc_queue, wake);

	pthread_mutex_destroy(&q->lock);
	q->closed(q);
}

int grpc_queue_init(struct grpc_queue *q, uv_loop_t *loop, struct error *err)
{
	int r;

	*q = (struct grpc_queue){0};
	q->done_tail = &q->done;
	q->cq = grpc_completion_queue_create_for_next(NULL);
	if (!q->cq)
		return error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&q->lock, NULL);
	/* The handle comes last: it could not be taken back without the loop. */
	r = uv_thread_create(&q->thread, wait_for_events, q);
	if (r == 0) {
		r = uv_async_init(loop, &q->wake, on_wake);
		if (r == 0) {
			uv_unref((uv_handle_t *)&q->wake);
			return 0;
		}
		grpc_completion_queue_shutdown(q->cq);
		uv_thread_join(&q->thread);
	} else {
		grpc_completion_queue_shutdown(q->cq);
		while (grpc_completion_queue_next(q->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
			   .type != GRPC_QUEUE_SHUTDOWN)
			;
	}
	grpc_completion_queue_destroy(q->cq);
	pthread_mutex_destroy(&q->lock);
	return error_set(err, r, "completion queue: %s", uv_strerror(r));
}

int grpc_queue_add_thread(struct grpc_queue *q, struct error *err)
{
	int r = uv_thread_create(&q->second, wait_for_events, q);

	if (r < 0)
		return error_set(err, r, "completion queue: %s", uv_strerror(r));
	q->has_second = true;
	return 0;
}

void grpc_queue_stop(struct grpc_queue *q)
{
	grpc_completion_queue_shutdown(q->cq);
	uv_thread_join(&q->thread);
	if (q->has_second)
		uv_thread_join(&q->second);
}

void grpc_queue_close(struct grpc_queue *q, void (*closed)(struct grpc_queue *q))
{
	q->closed = closed;
	grpc_completion_queue_destroy(q->cq);
	uv_close((uv_handle_t *)&q->wake, on_closed);
}
