/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of the C core at a time, as four kinds of batches that are under way side by side:
 * the headers and then each message that is sent (`send`), the peer's headers (`initial`), each
 * message that is received (`receive`, started again after each), and the end (`status`).
 *
 * A call may be destroyed only when each of its batches has come back, so `pending` counts them and
 * the end is told when it is 0. What was received before the end is told before it. Nothing is
 * started once `ended` is set, or after the queue was stopped.
 *
 * Owned by the loop thread; lib/grpc_queue.c brings the batches back to it.
 */
#include "lib/grpc_stream.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

#include "lib/grpc_channel.h"
#include "lib/grpc_queue.h"

struct grpc_stream {
	struct grpc_queue queue;
	struct grpc_stream_events events;
	grpc_channel *channel; /* NULL, like `call`, while there is no connection */
	grpc_call *call;
	struct grpc_headers headers;
	size_t message_max;
	struct grpc_tag send, initial, receive, status;
	unsigned int pending;
	bool sending;
	bool unwanted; /* the caller wants no more */
	bool ended;    /* that, or the status is there */
	bool freed;
	grpc_metadata_array initial_metadata, trailing_metadata;
	grpc_byte_buffer *received;
	grpc_status_code status_code;
	grpc_slice status_message;
};

static bool start(struct grpc_stream *s, grpc_op *ops, size_t n, struct grpc_tag *tag)
{
	grpc_queue_hand_over(&s->queue);
	if (grpc_call_start_batch(s->call, ops, n, tag, NULL) != GRPC_CALL_OK)
		return false;
	s->pending++;
	return true;
}

static bool start_receive(struct grpc_stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->received};

	return start(s, &op, 1, &s->receive);
}

/* Destroys call and channel; the object is as new. */
static void connection_done(struct grpc_stream *s)
{
	if (s->received)
		grpc_byte_buffer_destroy(s->received);
	s->received = NULL;
	grpc_metadata_array_destroy(&s->initial_metadata);
	grpc_metadata_array_destroy(&s->trailing_metadata);
	grpc_metadata_array_init(&s->initial_metadata);
	grpc_metadata_array_init(&s->trailing_metadata);
	grpc_slice_unref(s->status_message);
	s->status_message = grpc_empty_slice();
	if (s->call)
		grpc_call_unref(s->call);
	s->call = NULL;
	if (s->channel)
		grpc_channel_destroy(s->channel);
	s->channel = NULL;
	grpc_headers_done(&s->headers);
	s->sending = s->ended = s->unwanted = false;
}

/* One batch is back: when it was the last one, this was the end. */
static void batch_back(struct grpc_stream *s)
{
	_cleanup_free_ char *message = NULL;
	int status = (int)s->status_code;

	if (s->freed || s->pending > 0)
		return;
	message = strndup((const char *)GRPC_SLICE_START_PTR(s->status_message),
			  GRPC_SLICE_LENGTH(s->status_message));
	connection_done(s);
	grpc_queue_release(&s->queue);
	s->events.closed(status, message ? message : "", s->events.arg);
}

static void on_send(struct grpc_tag *tag)
{
	struct grpc_stream *s = container_of(tag, struct grpc_stream, send);

	s->pending--;
	s->sending = false;
	if (tag->ok && !s->ended)
		s->events.writable(s->events.arg);
	batch_back(s);
}

static void on_initial(struct grpc_tag *tag)
{
	struct grpc_stream *s = container_of(tag, struct grpc_stream, initial);

	s->pending--;
	batch_back(s);
}

static void on_status(struct grpc_tag *tag)
{
	struct grpc_stream *s = container_of(tag, struct grpc_stream, status);

	s->pending--;
	s->ended = true;
	batch_back(s);
}

static void deliver(struct grpc_stream *s, grpc_byte_buffer *bytes)
{
	grpc_byte_buffer_reader reader;
	grpc_slice slice;

	if (!grpc_byte_buffer_reader_init(&reader, bytes)) {
		grpc_call_cancel(s->call, NULL); /* compressed, and not as it says */
		return;
	}
	slice = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	/* The core's limit is of the bytes on the wire; this one also of what they unpack to. */
	if (GRPC_SLICE_LENGTH(slice) > s->message_max)
		grpc_call_cancel_with_status(s->call, GRPC_STATUS_RESOURCE_EXHAUSTED,
					     "message is larger than the limit", NULL);
	else
		s->events.message(GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice),
				  s->events.arg);
	grpc_slice_unref(slice);
}

static void on_receive(struct grpc_tag *tag)
{
	struct grpc_stream *s = container_of(tag, struct grpc_stream, receive);
	grpc_byte_buffer *bytes = s->received;

	s->received = NULL;
	s->pending--;
	if (bytes && !s->unwanted)
		deliver(s, bytes);
	/* No bytes: there will be no more. After a status there may be messages that came before.
	 */
	if (bytes && !s->freed)
		(void)start_receive(s);
	if (bytes)
		grpc_byte_buffer_destroy(bytes);
	batch_back(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_closed(struct grpc_queue *queue)
{
	free(container_of(queue, struct grpc_stream, queue));
	grpc_library_unref();
}

int grpc_stream_new(const struct grpc_stream_events *events, uv_loop_t *loop,
		    struct grpc_stream **ret, struct error *err)
{
	struct grpc_stream *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->events = *events;
	s->send.done = on_send;
	s->initial.done = on_initial;
	s->receive.done = on_receive;
	s->status.done = on_status;
	s->status_message = grpc_empty_slice();
	grpc_library_ref();
	r = grpc_queue_init(&s->queue, loop, err);
	if (r < 0) {
		free(s);
		grpc_library_unref();
		return r;
	}
	*ret = s;
	return 0;
}

struct grpc_stream *grpc_stream_free(struct grpc_stream *s)
{
	if (!s)
		return NULL;
	s->freed = true;
	if (s->call)
		grpc_call_cancel(s->call, NULL);
	grpc_queue_stop(&s->queue);
	connection_done(s);
	grpc_queue_close(&s->queue, on_closed);
	return NULL;
}

/* The three batches that are under way from the beginning. */
static bool start_call(struct grpc_stream *s)
{
	grpc_op headers = {
	    .op = GRPC_OP_SEND_INITIAL_METADATA,
	    .data.send_initial_metadata = {.count = s->headers.n, .metadata = s->headers.items}};
	grpc_op initial = {.op = GRPC_OP_RECV_INITIAL_METADATA,
			   .data.recv_initial_metadata.recv_initial_metadata =
			       &s->initial_metadata};
	grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
			  .data.recv_status_on_client = {.trailing_metadata = &s->trailing_metadata,
							 .status = &s->status_code,
							 .status_details = &s->status_message}};

	if (!start(s, &headers, 1, &s->send))
		return false;
	s->sending = true;
	return start(s, &initial, 1, &s->initial) && start(s, &status, 1, &s->status) &&
	       start_receive(s);
}

int grpc_stream_connect(struct grpc_stream *s, const struct grpc_stream_options *o,
			struct error *err)
{
	grpc_slice path;
	int r;

	if (s->call)
		return error_set(err, -EBUSY, "there is a connection already");
	s->message_max = o->message_max;
	r = grpc_headers_make(&o->client, &s->headers, err);
	if (r == 0)
		r = grpc_channel_open(&o->client, o->keepalive_ms, o->message_max, &s->channel,
				      err);
	if (r < 0) {
		connection_done(s);
		return r;
	}
	path = grpc_slice_from_copied_string(o->method);
	s->call = grpc_channel_create_call(s->channel, NULL, GRPC_PROPAGATE_DEFAULTS, s->queue.cq,
					   path, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	grpc_slice_unref(path);
	if (!s->call) {
		connection_done(s);
		return error_set(err, -EINVAL, "method %s: no such call", o->method);
	}
	grpc_queue_hold(&s->queue);
	if (start_call(s))
		return 0;
	/* Only a mistake in this file: what did start comes back, and closed() with it. */
	grpc_call_cancel(s->call, NULL);
	if (s->pending > 0)
		return 0;
	grpc_queue_release(&s->queue);
	connection_done(s);
	return error_set(err, -EINVAL, "the call could not be started");
}

int grpc_stream_send(struct grpc_stream *s, const void *data, size_t len)
{
	grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
	grpc_byte_buffer *message;
	grpc_slice bytes;

	if (!s->call || s->ended)
		return -ENOTCONN;
	if (s->sending)
		return -EAGAIN;
	bytes = grpc_slice_from_copied_buffer(data, len);
	message = grpc_raw_byte_buffer_create(&bytes, 1);
	grpc_slice_unref(bytes);
	op.data.send_message.send_message = message;
	s->sending = start(s, &op, 1, &s->send);
	grpc_byte_buffer_destroy(message);
	return s->sending ? 0 : -EIO;
}

void grpc_stream_disconnect(struct grpc_stream *s)
{
	if (!s->call || s->ended)
		return;
	s->ended = s->unwanted = true;
	grpc_call_cancel(s->call, NULL);
}

bool grpc_stream_busy(const struct grpc_stream *s)
{
	return s->call != NULL;
}
