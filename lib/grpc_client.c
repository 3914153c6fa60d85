/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary gRPC calls from a libuv loop.
 *
 * One channel and one completion queue (lib/grpc_queue.c) a client. A call is one batch of all six
 * operations, so one tag and one event.
 *
 * Messages come compressed by the caller: the byte buffer is marked so, and the core's own
 * compression filter leaves it alone. The core knows no algorithm that receivers like better than
 * gzip (no zstd).
 *
 * Keepalive pings are five minutes apart, which the default enforcement of Go and C servers allows.
 */
#include "lib/grpc_client.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>

#include "lib/grpc_channel.h"
#include "lib/grpc_queue.h"

enum {
	KEEPALIVE_TIME_MS = 300000,
	UNARY_OPS = 6,
	BODY_MAX = 4 << 20,
};

struct grpc_unary {
	struct grpc_client *client;
	struct grpc_tag tag;
	struct grpc_unary *prev, *next; /* client->live */
	grpc_call *call;
	grpc_byte_buffer *body;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice message;
	void (*done)(const struct grpc_answer *answer, void *arg);
	void *arg;
};

struct grpc_client {
	struct grpc_queue queue;
	grpc_channel *channel;
	struct grpc_headers headers;
	struct grpc_unary *live;
};

/* ---- calls ----------------------------------------------------------------------------------- */

/* Takes the call out of the client's list: from here on the client may go away. */
static void call_unlink(struct grpc_unary *u)
{
	if (u->prev)
		u->prev->next = u->next;
	else
		u->client->live = u->next;
	if (u->next)
		u->next->prev = u->prev;
	if (!u->client->live)
		grpc_queue_release(&u->client->queue);
}

static void call_free(struct grpc_unary *u)
{
	grpc_metadata_array_destroy(&u->initial);
	grpc_metadata_array_destroy(&u->trailing);
	grpc_slice_unref(u->message);
	if (u->body)
		grpc_byte_buffer_destroy(u->body);
	if (u->call)
		grpc_call_unref(u->call);
	free(u);
}

/* The whole message in one slice; false when it cannot be decompressed. */
static bool body_read(grpc_byte_buffer *body, grpc_slice *ret)
{
	grpc_byte_buffer_reader reader;

	if (!body || !grpc_byte_buffer_reader_init(&reader, body))
		return false;
	*ret = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	return true;
}

/*
 * The core says these two when no connection was there to carry the call; every other failure may
 * have happened after the request was out (1.51: priority.cc, pick_first.cc, client_channel.cc).
 */
static bool never_connected(int status, const char *message)
{
	return status == RPC_UNAVAILABLE && (has_prefix(message, "failed to connect to all") ||
					     has_prefix(message, "DNS resolution failed"));
}

static void call_finish(struct grpc_tag *tag)
{
	struct grpc_unary *u = container_of(tag, struct grpc_unary, tag);
	_cleanup_free_ char *message = NULL;
	struct grpc_answer answer = {.status = (int)u->status, .message = ""};
	grpc_slice body = grpc_empty_slice();
	size_t i;

	message =
	    strndup((const char *)GRPC_SLICE_START_PTR(u->message), GRPC_SLICE_LENGTH(u->message));
	if (message)
		answer.message = message;
	answer.connected = !never_connected(answer.status, answer.message);
	for (i = 0; i < u->trailing.count; i++) {
		if (grpc_slice_str_cmp(u->trailing.metadata[i].key, "grpc-status-details-bin"))
			continue;
		answer.details = GRPC_SLICE_START_PTR(u->trailing.metadata[i].value);
		answer.details_len = GRPC_SLICE_LENGTH(u->trailing.metadata[i].value);
	}
	if (body_read(u->body, &body) && GRPC_SLICE_LENGTH(body) > 0) {
		answer.body = GRPC_SLICE_START_PTR(body);
		answer.body_len = GRPC_SLICE_LENGTH(body);
	}
	/*
	 * The callback may free the client. The core's call stays until after it, because it owns
	 * the trailing metadata; it has references of its own to channel and queue.
	 */
	call_unlink(u);
	u->done(&answer, u->arg);
	grpc_slice_unref(body);
	call_free(u);
}

static grpc_call_error call_start(struct grpc_unary *u, grpc_byte_buffer *message, bool gzipped)
{
	struct grpc_client *c = u->client;
	grpc_op ops[UNARY_OPS] = {
	    {.op = GRPC_OP_SEND_INITIAL_METADATA,
	     .data.send_initial_metadata = {.count = c->headers.n, .metadata = c->headers.items}},
	    {.op = GRPC_OP_SEND_MESSAGE,
	     .flags = gzipped ? 0 : GRPC_WRITE_NO_COMPRESS,
	     .data.send_message.send_message = message},
	    {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
	    {.op = GRPC_OP_RECV_INITIAL_METADATA,
	     .data.recv_initial_metadata.recv_initial_metadata = &u->initial},
	    {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->body},
	    {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
	     .data.recv_status_on_client = {.trailing_metadata = &u->trailing,
					    .status = &u->status,
					    .status_details = &u->message}},
	};

	return grpc_call_start_batch(u->call, ops, UNARY_OPS, &u->tag, NULL);
}

int grpc_client_call(struct grpc_client *c, const char *method, const void *data, size_t len,
		     bool gzipped, uint64_t timeout_ms,
		     void (*done)(const struct grpc_answer *, void *), void *arg,
		     struct grpc_unary **ret)
{
	gpr_timespec deadline = gpr_time_add(
	    gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
	struct grpc_unary *u = calloc(1, sizeof(*u));
	grpc_slice path, bytes;
	grpc_byte_buffer *message;
	grpc_call_error r;

	if (!u)
		return -ENOMEM;
	u->client = c;
	u->tag.done = call_finish;
	u->done = done;
	u->arg = arg;
	u->message = grpc_empty_slice();
	grpc_metadata_array_init(&u->initial);
	grpc_metadata_array_init(&u->trailing);
	u->next = c->live;
	if (u->next)
		u->next->prev = u;
	c->live = u;
	grpc_queue_hold(&c->queue);

	/* Whoever calls has waited as long as it wants to: do not let the core wait on top of it.
	 */
	grpc_channel_reset_connect_backoff(c->channel);
	path = grpc_slice_from_copied_string(method);
	u->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue.cq,
					   path, NULL, deadline, NULL);
	grpc_slice_unref(path);
	if (!u->call) {
		call_unlink(u);
		call_free(u);
		return -EINVAL;
	}
	bytes = grpc_slice_from_copied_buffer(data, len);
	message = gzipped ? grpc_raw_compressed_byte_buffer_create(&bytes, 1, GRPC_COMPRESS_GZIP)
			  : grpc_raw_byte_buffer_create(&bytes, 1);
	grpc_slice_unref(bytes);
	r = call_start(u, message, gzipped);
	grpc_byte_buffer_destroy(message);
	if (r != GRPC_CALL_OK) {
		call_unlink(u);
		call_free(u);
		return -EINVAL;
	}
	*ret = u;
	return 0;
}

void grpc_unary_cancel(struct grpc_unary *u)
{
	grpc_call_cancel(u->call, NULL);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_closed(struct grpc_queue *queue)
{
	struct grpc_client *c = container_of(queue, struct grpc_client, queue);

	grpc_headers_done(&c->headers);
	free(c);
	grpc_library_unref();
}

static int client_init(struct grpc_client *c, const struct grpc_client_options *o, uv_loop_t *loop,
		       struct error *err)
{
	int r;

	r = grpc_headers_make(o, &c->headers, err);
	if (r == 0)
		r = grpc_channel_open(o, KEEPALIVE_TIME_MS, BODY_MAX, &c->channel, err);
	if (r == 0)
		r = grpc_queue_init(&c->queue, loop, err);
	return r;
}

int grpc_client_new(const struct grpc_client_options *o, uv_loop_t *loop, struct grpc_client **ret,
		    struct error *err)
{
	struct grpc_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	grpc_library_ref();
	r = client_init(c, o, loop, err);
	if (r < 0) {
		if (c->channel)
			grpc_channel_destroy(c->channel);
		grpc_headers_done(&c->headers);
		free(c);
		grpc_library_unref();
		return r;
	}
	*ret = c;
	return 0;
}

struct grpc_client *grpc_client_free(struct grpc_client *c)
{
	struct grpc_unary *u;

	if (!c)
		return NULL;
	for (u = c->live; u; u = u->next)
		grpc_call_cancel(u->call, NULL);
	grpc_queue_stop(&c->queue);
	while (c->live) {
		u = c->live;
		call_unlink(u);
		call_free(u);
	}
	grpc_channel_destroy(c->channel);
	grpc_queue_close(&c->queue, on_closed);
	return NULL;
}
