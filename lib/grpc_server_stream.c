/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the C core as streams. A call has four batches that are under way side by side: `close`
 * (from the beginning: the core tells when the call is over), `receive` (one message, when asked),
 * `send` (one message, the first one with our headers) and `finish` (the status). A call may be
 * destroyed only when each batch has come back, so `pending` counts them.
 *
 * A status is sent after the message that is under way. A peer that takes neither is cut off
 * FINISH_MS later by cancelling the call, so that closed() always comes. Loop thread only.
 */
#include "lib/grpc_server_internal.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/slice.h>
#include <stdatomic.h>

enum { FINISH_MS = 5000, STATUS_TEXT_MAX = 512 };

/* ---- ending ---------------------------------------------------------------------------------- */

static bool start(struct server_stream *s, grpc_op *ops, size_t n, struct grpc_tag *tag)
{
	grpc_queue_hand_over(&s->server->queue);
	if (grpc_call_start_batch(s->call, ops, n, tag, NULL) != GRPC_CALL_OK)
		return false;
	s->pending++;
	return true;
}

static void stream_unlink(struct server_stream *s)
{
	if (s->prev)
		s->prev->next = s->next;
	else
		s->server->streams = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->server->counts.open--;
}

void server_stream_free(struct server_stream *s)
{
	if (s->body)
		grpc_byte_buffer_destroy(s->body);
	if (s->call)
		grpc_call_unref(s->call);
	free(s->message);
	free(s);
}

/* A batch is back: after the last one the call may go. */
static void batch_back(struct server_stream *s)
{
	if (s->pending || !s->closed)
		return;
	stream_unlink(s);
	if (s->arg)
		s->server->events.closed(s->arg);
	server_stream_free(s);
}

static void cut_off(struct server_stream *s)
{
	s->cut_ms = 0;
	s->server->counts.cut++;
	grpc_call_cancel(s->call, NULL);
}

void stream_server_sweep(uv_timer_t *timer)
{
	struct stream_server *server = container_of(timer, struct stream_server, sweep);
	uint64_t now = uv_now(timer->loop);
	struct server_stream *s;

	for (s = server->streams; s; s = s->next)
		if (s->cut_ms && s->cut_ms <= now)
			cut_off(s);
}

static void start_finish(struct server_stream *s)
{
	grpc_slice words = grpc_slice_from_copied_string(s->message ? s->message : "");
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
	size_t n = s->has_headers ? 0 : 1;

	ops[n++] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
			     .data.send_status_from_server = {.status = (grpc_status_code)s->status,
							      .status_details = &words}};
	s->has_headers = s->has_finish = true;
	if (!start(s, ops, n, &s->finish))
		cut_off(s);
	grpc_slice_unref(words);
}

void server_stream_finish(struct server_stream *s, int status, const char *message)
{
	if (s->finishing)
		return;
	s->finishing = true;
	s->status = status;
	s->message = strndup(message, STATUS_TEXT_MAX);
	if (s->closed)
		return;
	s->cut_ms = uv_now(s->server->sweep.loop) + FINISH_MS;
	if (!s->sending)
		start_finish(s);
}

bool server_stream_finishing(const struct server_stream *s)
{
	return s->finishing;
}

/* ---- sending --------------------------------------------------------------------------------- */

/*
 * What is sent may be secret: it is wiped when the core, on any of its threads, is done with it.
 * The core orders that after what was written here, and `len` says so to those who cannot see into
 * it.
 */
struct sent {
	_Atomic size_t len; /* stored last, loaded first */
	uint8_t bytes[];
};

static void wipe_sent(void *arg)
{
	struct sent *m = arg;

	explicit_bzero(m->bytes, atomic_load_explicit(&m->len, memory_order_acquire));
	free(m);
}

static grpc_byte_buffer *make_message(const void *data, size_t len)
{
	struct sent *m = malloc(sizeof(*m) + len);
	grpc_byte_buffer *message;
	grpc_slice bytes;

	if (!m)
		return NULL;
	memcpy(m->bytes, data, len);
	atomic_store_explicit(&m->len, len, memory_order_release);
	bytes = grpc_slice_new_with_user_data(m->bytes, len, wipe_sent, m);
	message = grpc_raw_byte_buffer_create(&bytes, 1);
	grpc_slice_unref(bytes);
	return message;
}

int server_stream_send(struct server_stream *s, const void *data, size_t len)
{
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
	size_t n = s->has_headers ? 0 : 1;
	grpc_byte_buffer *message;
	bool good;

	if (s->finishing || s->closed)
		return -ENOTCONN;
	if (s->sending)
		return -EBUSY;
	message = make_message(data, len);
	if (!message)
		return -ENOMEM;
	ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
	good = start(s, ops, n, &s->send);
	grpc_byte_buffer_destroy(message);
	if (!good)
		return -ENOTCONN;
	s->has_headers = s->sending = true;
	return 0;
}

static void on_sent(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, send);

	s->pending--;
	s->sending = false;
	if (s->finishing && !s->has_finish && !s->closed)
		start_finish(s);
	else if (tag->ok && !s->finishing && !s->closed)
		s->server->events.sent(s->arg);
	batch_back(s);
}

/* ---- receiving ------------------------------------------------------------------------------- */

void server_stream_read(struct server_stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->body};

	if (s->receiving || s->finishing || s->closed)
		return;
	s->receiving = start(s, &op, 1, &s->receive);
}

static void deliver(struct server_stream *s, grpc_byte_buffer *body)
{
	grpc_byte_buffer_reader reader;
	grpc_slice bytes;

	/* Our core does not expand messages, so that a small one cannot become a large one. */
	if (body->type != GRPC_BB_RAW || body->data.raw.compression != GRPC_COMPRESS_NONE) {
		server_stream_finish(s, RPC_UNIMPLEMENTED, "compressed messages are not taken");
		return;
	}
	if (!grpc_byte_buffer_reader_init(&reader, body))
		return;
	bytes = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	s->server->events.received(s->arg, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes));
	grpc_slice_unref(bytes);
}

static void on_received(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, receive);
	grpc_byte_buffer *body = TAKE_PTR(s->body);

	s->pending--;
	s->receiving = false;
	if (!s->finishing && !s->closed) {
		if (body)
			deliver(s, body);
		else
			s->server->events.received(s->arg, NULL, 0);
	}
	if (body)
		grpc_byte_buffer_destroy(body);
	batch_back(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_finished(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, finish);

	s->pending--;
	batch_back(s);
}

static void on_close(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, close);

	s->pending--;
	s->closed = true;
	s->cut_ms = 0;
	/* What is still under way would wait for a peer that is gone. */
	if (s->pending)
		grpc_call_cancel(s->call, NULL);
	batch_back(s);
}

struct server_stream *server_stream_new(struct stream_server *server, grpc_call *call)
{
	struct server_stream *s = calloc(1, sizeof(*s));
	grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

	if (!s) {
		grpc_call_cancel(call, NULL);
		grpc_call_unref(call);
		return NULL;
	}
	*s = (struct server_stream){.server = server,
				    .call = call,
				    .close = {.done = on_close},
				    .receive = {.done = on_received},
				    .send = {.done = on_sent},
				    .finish = {.done = on_finished}};
	op.data.recv_close_on_server.cancelled = &s->cancelled;
	s->next = server->streams;
	if (s->next)
		s->next->prev = s;
	server->streams = s;
	server->counts.open++;
	if (start(s, &op, 1, &s->close))
		return s;
	stream_unlink(s);
	server_stream_free(s);
	return NULL;
}
