/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "lib/watch.h"

struct watch {
	uv_poll_t poll;
	int events;
	void (*ready)(void *arg, int events);
	void *arg;
};

static void on_event(uv_poll_t *poll, int status, int events)
{
	struct watch *w = container_of(poll, struct watch, poll);

	if (status < 0) {
		w->events = 0; /* libuv has stopped it */
		events = UV_READABLE | UV_WRITABLE;
	}
	w->ready(w->arg, events);
}

int watch_new(uv_loop_t *loop, int fd, void (*ready)(void *arg, int events), void *arg,
	      struct watch **ret)
{
	struct watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	r = uv_poll_init(loop, &w->poll, fd);
	if (r < 0) {
		free(w);
		return r;
	}
	uv_unref((uv_handle_t *)&w->poll);
	w->ready = ready;
	w->arg = arg;
	*ret = w;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct watch, poll));
}

struct watch *watch_free(struct watch *w)
{
	if (w)
		uv_close((uv_handle_t *)&w->poll, on_closed);
	return NULL;
}

int watch_for(struct watch *w, int events)
{
	int r;

	if (w->events == events)
		return 0;
	r = events ? uv_poll_start(&w->poll, events, on_event) : uv_poll_stop(&w->poll);
	if (r == 0)
		w->events = events;
	return r;
}
