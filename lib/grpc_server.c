/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life on the C core: its options, its connections, its queue, its end. What the core
 * still has under way when it ends comes back to the queue, which is waited for; the memory goes
 * when the loop has closed the handles.
 *
 * Owned by the loop thread, which lib/grpc_queue.c brings what the core has done back to.
 */
#include "lib/grpc_server_internal.h"

#include <grpc/grpc_posix.h>

#include "lib/grpc_channel.h"

enum {
	SWEEP_MS = 1000,
	KEEPALIVE_TIMEOUT_MS = 20000,
	METADATA_MAX = 16 << 10,
	CONNECTION_STREAMS = 4,
};

static grpc_arg arg_int(const char *key, uint64_t value)
{
	return (grpc_arg){.type = GRPC_ARG_INTEGER,
			  .key = (char *)key,
			  .value = {.integer = (int)MIN(value, (uint64_t)INT32_MAX)}};
}

static grpc_server *create_core(const struct stream_server_options *o)
{
	grpc_arg args[] = {
	    arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, o->max_message),
	    arg_int(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT32_MAX),
	    arg_int(GRPC_ARG_MAX_CONCURRENT_STREAMS, CONNECTION_STREAMS),
	    arg_int(GRPC_ARG_MAX_METADATA_SIZE, METADATA_MAX),
	    arg_int(GRPC_ARG_MAX_CONNECTION_IDLE_MS, o->idle_ms),
	    arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_ms),
	    arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
	    arg_int(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, o->ping_min_ms),
	    arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
	    arg_int(GRPC_ARG_HTTP2_BDP_PROBE, 0),
	    /* A message is sent once it is on its way, not when it is one more in memory. */
	    arg_int(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1),
	    arg_int(GRPC_ARG_ENABLE_CHANNELZ, 0),
	    arg_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
	};
	grpc_channel_args all = {.num_args = ARRAY_SIZE(args), .args = args};

	return grpc_server_create(&all, NULL);
}

void stream_server_add(struct stream_server *server, int fd)
{
	grpc_server_add_channel_from_fd(server->core, fd, server->credentials);
}

/* ---- ending ---------------------------------------------------------------------------------- */

static void memory_free(struct stream_server *server)
{
	free(server);
	grpc_library_unref();
}

static void handle_gone(struct stream_server *server)
{
	if (!--server->open_handles)
		memory_free(server);
}

static void on_queue_closed(struct grpc_queue *q)
{
	handle_gone(container_of(q, struct stream_server, queue));
}

static void on_sweep_closed(uv_handle_t *handle)
{
	handle_gone(container_of((uv_timer_t *)handle, struct stream_server, sweep));
}

static void ignore(struct grpc_tag *tag)
{
}

/* Everything but the memory, which goes with the handles. */
static void close_core(struct stream_server *server)
{
	struct server_stream *s, *next;

	if (server->core) {
		server->shutdown.done = ignore;
		grpc_server_shutdown_and_notify(server->core, server->queue.cq, &server->shutdown);
		grpc_server_cancel_all_calls(server->core);
	}
	grpc_queue_stop(&server->queue);
	for (s = server->streams; s; s = next) {
		next = s->next;
		server_stream_free(s);
	}
	server->streams = NULL;
	stream_server_accept_done(server);
	if (server->core)
		grpc_server_destroy(server->core);
	if (server->credentials)
		grpc_server_credentials_release(server->credentials);
	server->open_handles = 2;
	grpc_queue_close(&server->queue, on_queue_closed);
	uv_close((uv_handle_t *)&server->sweep, on_sweep_closed);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int start_core(struct stream_server *server, const struct stream_server_options *o,
		      struct error *err)
{
	int r = grpc_queue_add_thread(&server->queue, err);

	if (r < 0)
		return r;
	server->core = create_core(o);
	server->credentials = grpc_insecure_server_credentials_create();
	grpc_server_register_completion_queue(server->core, server->queue.cq, NULL);
	grpc_server_start(server->core);
	r = stream_server_accept(server, err);
	if (r < 0)
		return r;
	grpc_queue_hold(&server->queue);
	r = uv_timer_start(&server->sweep, stream_server_sweep, SWEEP_MS, SWEEP_MS);
	uv_unref((uv_handle_t *)&server->sweep);
	return r < 0 ? error_set(err, r, "timer: %s", uv_strerror(r)) : 0;
}

int stream_server_new(const struct stream_server_options *o,
		      const struct stream_server_events *events, uv_loop_t *loop,
		      struct stream_server **ret, struct error *err)
{
	struct stream_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set(err, -ENOMEM, "out of memory");
	server->events = *events;
	server->method = o->method;
	server->max_streams = o->max_streams;
	grpc_library_ref();
	r = grpc_queue_init(&server->queue, loop, err);
	if (r < 0) {
		memory_free(server);
		return r;
	}
	(void)uv_timer_init(loop, &server->sweep);
	r = start_core(server, o, err);
	if (r < 0) {
		close_core(server);
		return r;
	}
	*ret = server;
	return 0;
}

struct stream_server *stream_server_free(struct stream_server *server)
{
	if (server)
		close_core(server);
	return NULL;
}

void stream_server_read(const struct stream_server *server, struct stream_server_counts *ret)
{
	*ret = server->counts;
}
