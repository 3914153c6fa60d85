/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life. Connections come from any thread and wait in `joining` for the loop. When a
 * stream has work (a message to deliver, a message to send), its connection becomes `due`. An idle
 * handle serves the due connections, so that no callback comes from inside a call of the
 * application, and every connection gets one turn before any gets its second. (Not a timer of 0 ms:
 * libuv before 1.45 runs one that starts itself again before anything else.)
 */
#include "lib/grpc_server_internal.h"

#include <utlist.h>

enum { SWEEP_MS = 1000, JOINING_MAX = 4096, ACKS_MAX = 32, RESETS = 100, RESETS_PER_S = 10 };

/* ---- turns ----------------------------------------------------------------------------------- */

static void on_run(uv_idle_t *idle)
{
	struct stream_server *server = container_of(idle, struct stream_server, run);
	struct server_connection *c = server->due, *next;

	server->due = server->due_last = NULL;
	for (; c; c = next) {
		next = c->due_next;
		c->due = false;
		c->due_next = NULL;
		connection_run(c);
	}
	if (!server->due)
		(void)uv_idle_stop(idle);
}

void stream_server_flush(struct stream_server *server)
{
	on_run(&server->run);
}

void connection_due(struct server_connection *c)
{
	struct stream_server *server = c->server;

	if (c->due)
		return;
	c->due = true;
	if (server->due_last)
		server->due_last->due_next = c;
	else
		server->due = c;
	server->due_last = c;
	(void)uv_idle_start(&server->run, on_run);
}

static void on_sweep(uv_timer_t *timer)
{
	struct stream_server *server = container_of(timer, struct stream_server, sweep);
	struct server_connection *c, *next;
	uint64_t now = uv_now(server->loop);

	DL_FOREACH_SAFE (server->connections, c, next)
		connection_sweep(c, now);
}

/* ---- connections that come ------------------------------------------------------------------- */

static bool grow_joining(struct stream_server *server)
{
	size_t max = MAX((size_t)16, server->joining_max * 2);
	int *more;

	if (server->n_joining < server->joining_max)
		return true;
	more = max <= JOINING_MAX ? realloc(server->joining, max * sizeof(*more)) : NULL;
	if (!more)
		return false;
	server->joining = more;
	server->joining_max = max;
	return true;
}

void stream_server_add(struct stream_server *server, int fd)
{
	bool room;

	pthread_mutex_lock(&server->lock);
	room = grow_joining(server);
	if (room)
		server->joining[server->n_joining++] = fd;
	pthread_mutex_unlock(&server->lock);
	if (room)
		uv_async_send(&server->wake);
	else
		close(fd);
}

static int take_joining(struct stream_server *server)
{
	int fd;

	pthread_mutex_lock(&server->lock);
	fd = server->n_joining ? server->joining[--server->n_joining] : -1;
	pthread_mutex_unlock(&server->lock);
	return fd;
}

static void on_wake(uv_async_t *wake)
{
	struct stream_server *server = container_of(wake, struct stream_server, wake);
	int fd;

	while ((fd = take_joining(server)) >= 0)
		connection_new(server, fd);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void memory_free(struct stream_server *server)
{
	nghttp2_session_callbacks_del(server->callbacks);
	nghttp2_option_del(server->option);
	pthread_mutex_destroy(&server->lock);
	free(server->joining);
	free(server);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct stream_server *server = handle->data;

	if (!--server->open_handles)
		memory_free(server);
}

static void close_handle(struct stream_server *server, uv_handle_t *handle)
{
	handle->data = server;
	server->open_handles++;
	uv_close(handle, on_handle_closed);
}

struct stream_server *stream_server_free(struct stream_server *server)
{
	int fd;

	if (!server)
		return NULL;
	while (server->connections)
		connection_end(server->connections, false);
	while ((fd = take_joining(server)) >= 0)
		close(fd);
	close_handle(server, (uv_handle_t *)&server->sweep);
	close_handle(server, (uv_handle_t *)&server->run);
	close_handle(server, (uv_handle_t *)&server->wake);
	return NULL;
}

/*
 * Limits what a peer can make nghttp2 keep. The stream windows are updated by hand, so that a peer
 * cannot send more messages than were asked for. The response headers are not worth a dynamic HPACK
 * table.
 */
static int create_option(nghttp2_option **ret)
{
	int r = nghttp2_option_new(ret);

	if (r < 0)
		return r;
	nghttp2_option_set_no_auto_window_update(*ret, 1);
	nghttp2_option_set_no_closed_streams(*ret, 1);
	nghttp2_option_set_max_reserved_remote_streams(*ret, 0);
	nghttp2_option_set_max_deflate_dynamic_table_size(*ret, 0);
	nghttp2_option_set_max_outbound_ack(*ret, ACKS_MAX);
	nghttp2_option_set_stream_reset_rate_limit(*ret, RESETS, RESETS_PER_S);
	return 0;
}

int stream_server_new(const struct stream_server_options *o,
		      const struct stream_server_events *events, uv_loop_t *loop,
		      struct stream_server **ret, struct error *err)
{
	struct stream_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set(err, -ENOMEM, "out of memory");
	server->o = *o;
	server->events = *events;
	server->loop = loop;
	pthread_mutex_init(&server->lock, NULL);
	if (create_option(&server->option) < 0 || server_callbacks_new(&server->callbacks) < 0) {
		memory_free(server);
		return error_set(err, -ENOMEM, "out of memory");
	}
	r = uv_async_init(loop, &server->wake, on_wake);
	if (r < 0) {
		memory_free(server);
		return error_set(err, r, "node stream: %s", uv_strerror(r));
	}
	(void)uv_idle_init(loop, &server->run);
	(void)uv_timer_init(loop, &server->sweep);
	(void)uv_timer_start(&server->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
	uv_unref((uv_handle_t *)&server->sweep);
	*ret = server;
	return 0;
}

void stream_server_read(const struct stream_server *server, struct stream_server_counts *ret)
{
	*ret = server->counts;
}
