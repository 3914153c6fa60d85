/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "lib/loop_wake.h"

#include <sys/eventfd.h>

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct loop_wake *w = container_of(poll, struct loop_wake, poll);
	eventfd_t count;

	(void)status;
	(void)events;
	/* Does not block: this is the descriptor's only reader. */
	(void)eventfd_read(w->fd, &count);
	w->woken(w);
}

int loop_wake_init(uv_loop_t *loop, struct loop_wake *w, void (*woken)(struct loop_wake *w))
{
	int r;

	*w = (struct loop_wake){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), .woken = woken};
	if (w->fd < 0)
		return -errno;
	r = uv_poll_init(loop, &w->poll, w->fd);
	if (r < 0) {
		close(w->fd);
		return r;
	}
	/* Fails only for a handle that is being closed. */
	(void)uv_poll_start(&w->poll, UV_READABLE, on_readable);
	return 0;
}

void loop_wake_send(const struct loop_wake *w)
{
	/* Fails only when 2^64 - 2 wakeups were sent and none was read. */
	(void)eventfd_write(w->fd, 1);
}

static void on_closed(uv_handle_t *handle)
{
	struct loop_wake *w = container_of((uv_poll_t *)handle, struct loop_wake, poll);

	if (w->closed)
		w->closed(w);
}

void loop_wake_close(struct loop_wake *w, void (*closed)(struct loop_wake *w))
{
	w->closed = closed;
	uv_close((uv_handle_t *)&w->poll, on_closed);
	close(w->fd);
}
