/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream: received bytes that hold messages with their prefix { compressed:8; length:32 }, one
 * message to be sent, and the status, which follows that message. If the peer takes neither within
 * FINISH_MS, the stream is reset, so that closed() always comes.
 *
 * Received bytes keep the peer's window closed until the application asks for a message. While it
 * waits for one, the window is opened for all bytes received, so that a message can be larger than
 * the window. Loop thread only.
 */
#include "lib/grpc_server_internal.h"

#include <utlist.h>

enum { FINISH_MS = 5000 };

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
			    .value = (uint8_t *)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value)};
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* grpc-message: each byte that is not printable ASCII, and '%', becomes %XX (each byte of
 * UTF-8). */
static void encode_text(const char *text, char ret[static STATUS_TEXT_MAX * 3])
{
	static const char hex[] = "0123456789ABCDEF";

	for (; *text; text++) {
		uint8_t byte = (uint8_t)*text;

		if (byte >= ' ' && byte <= '~' && byte != '%') {
			*ret++ = *text;
			continue;
		}
		*ret++ = '%';
		*ret++ = hex[byte >> 4];
		*ret++ = hex[byte & 15];
	}
	*ret = '\0';
}

/* Submits the status as trailers, or, before the response's headers, together with them. */
static int submit_status(struct server_stream *s)
{
	char status[16], text[STATUS_TEXT_MAX * 3];
	nghttp2_session *session = s->connection->session;
	bool first = !s->has_headers;
	nghttp2_nv fields[4];
	size_t n = 0;

	if (first) {
		fields[n++] = field(":status", "200");
		fields[n++] = field("content-type", "application/grpc");
	}
	snprintf(status, sizeof(status), "%d", s->status);
	encode_text(s->text, text);
	fields[n++] = field("grpc-status", status);
	fields[n++] = field("grpc-message", text);
	s->has_headers = s->has_trailers = true;
	return first ? nghttp2_submit_response(session, s->id, fields, n, NULL)
		     : nghttp2_submit_trailer(session, s->id, fields, n);
}

void server_stream_finish(struct server_stream *s, int status, const char *message)
{
	struct server_connection *c = s->connection;
	int r;

	if (s->finishing)
		return;
	s->finishing = true;
	s->status = status;
	snprintf(s->text, sizeof(s->text), "%s", message);
	s->cut_ms = uv_now(c->server->loop) + FINISH_MS;
	if (!s->has_headers)
		r = submit_status(s);
	else
		r = nghttp2_session_resume_data(c->session, s->id);
	/* INVALID_ARGUMENT is no error: sending is not deferred, so next_data() finds the status by
	 * itself. */
	c->failed |= r == NGHTTP2_ERR_NOMEM;
	connection_due(c);
}

bool server_stream_finishing(const struct server_stream *s)
{
	return s->finishing;
}

static void tell_closed(struct server_stream *s)
{
	void *arg = TAKE_PTR(s->arg);

	if (arg)
		s->connection->server->events.closed(arg);
}

void server_stream_cut(struct server_stream *s)
{
	struct server_connection *c = s->connection;

	s->cut_ms = 0;
	c->server->counts.cut++;
	c->failed |=
	    nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL) < 0;
	connection_due(c);
	tell_closed(s);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void message_free(struct message *m)
{
	explicit_bzero(m->bytes, m->len);
	free(m);
}

void server_stream_taken(struct server_stream *s)
{
	message_free(TAKE_PTR(s->message));
	s->flushed = true;
}

/* nghttp2's read callback: how many bytes of the message the next DATA frame has.
 * connection_write_data() copies them. */
static ssize_t next_data(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t max,
			 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct server_stream *s = source->ptr;

	if (s->message) {
		*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
		return (ssize_t)MIN(max, s->message->len - s->message->at);
	}
	if (!s->finishing)
		return NGHTTP2_ERR_DEFERRED;
	*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
	return submit_status(s) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int begin_sending(struct server_stream *s)
{
	nghttp2_data_provider data = {.source = {.ptr = s}, .read_callback = next_data};
	nghttp2_session *session = s->connection->session;
	const nghttp2_nv fields[] = {field(":status", "200"),
				     field("content-type", "application/grpc")};

	if (s->has_headers)
		return nghttp2_session_resume_data(session, s->id);
	s->has_headers = true;
	return nghttp2_submit_response(session, s->id, fields, ARRAY_SIZE(fields), &data);
}

int server_stream_send(struct server_stream *s, const void *data, size_t len)
{
	struct message *m;

	if (s->finishing)
		return -ENOTCONN;
	if (s->sending)
		return -EBUSY;
	m = malloc(sizeof(*m) + GRPC_PREFIX + len);
	if (!m)
		return -ENOMEM;
	*m = (struct message){.len = GRPC_PREFIX + len};
	grpc_prefix_write(m->bytes, false, len);
	memcpy(m->bytes + GRPC_PREFIX, data, len);
	s->message = m;
	s->sending = true;
	if (begin_sending(s) < 0) {
		message_free(TAKE_PTR(s->message));
		s->connection->failed = true;
	}
	connection_due(s->connection);
	return 0;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Opens the peer's window for all received bytes but KEEP. */
static void consume(struct server_stream *s, size_t keep)
{
	struct server_connection *c = s->connection;

	if (s->unconsumed <= keep)
		return;
	c->failed |= nghttp2_session_consume_stream(c->session, s->id, s->unconsumed - keep) < 0;
	s->unconsumed = keep;
	connection_due(c);
}

void server_stream_take(struct server_stream *s, const uint8_t *bytes, size_t len)
{
	s->unconsumed += len;
	if (s->finishing || !s->arg) {
		consume(s, 0);
		return;
	}
	if (grpc_inbox_add(&s->in, bytes, len) < 0)
		server_stream_finish(s, RPC_RESOURCE_EXHAUSTED, "out of memory");
	server_stream_deliver(s);
}

/* 1: *RET is the next message. 0: it is not complete yet. Negative: the stream ends. */
static int next_message(struct server_stream *s, struct grpc_received *ret)
{
	int r = grpc_inbox_next(&s->in, s->connection->server->o.max_message, ret);

	if (ret->compressed) {
		/* Compressed messages are refused, so that a small message cannot expand to a large
		 * one. */
		server_stream_finish(s, RPC_UNIMPLEMENTED, "compressed messages are not taken");
		return -ENOTSUP;
	}
	if (r < 0)
		server_stream_finish(s, RPC_RESOURCE_EXHAUSTED, "the message is too large");
	return r;
}

void server_stream_deliver(struct server_stream *s)
{
	const struct stream_server_events *events = &s->connection->server->events;
	struct grpc_received m;
	int r;

	while (s->reading && !s->finishing && s->arg) {
		r = next_message(s, &m);
		if (r < 0)
			break;
		if (!r && !s->half_closed) {
			consume(s, 0);
			return;
		}
		s->reading = false;
		if (!r) {
			s->told_end = true;
			events->received(s->arg, NULL, 0);
			break;
		}
		events->received(s->arg, m.data, m.len);
		if (!grpc_inbox_left(&s->in))
			grpc_inbox_clear(&s->in);
		consume(s, grpc_inbox_left(&s->in));
	}
	if (s->finishing) {
		grpc_inbox_clear(&s->in);
		consume(s, 0);
	}
}

void server_stream_read(struct server_stream *s)
{
	if (s->reading || s->finishing || s->told_end)
		return;
	s->reading = true;
	connection_due(s->connection);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct server_stream *server_stream_new(struct server_connection *c, int32_t id)
{
	struct server_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->connection = c;
	s->id = id;
	s->method = -1;
	/* Room for one complete message, and for the bytes that the window lets follow it. */
	grpc_inbox_init(&s->in, c->server->o.max_message,
			2 * (size_t)NGHTTP2_INITIAL_WINDOW_SIZE + 1);
	DL_APPEND(c->streams, s);
	c->n_streams++;
	c->server->counts.open++;
	return s;
}

static void wipe_authorization(struct server_stream *s)
{
	if (s->authorization)
		explicit_bzero(s->authorization, strlen(s->authorization));
	free(TAKE_PTR(s->authorization));
}

void server_stream_free(struct server_stream *s, bool tell)
{
	struct server_connection *c = s->connection;

	if (tell)
		tell_closed(s);
	DL_DELETE(c->streams, s);
	c->n_streams--;
	c->idle_ms = uv_now(c->server->loop);
	c->server->counts.open--;
	wipe_authorization(s);
	if (s->message)
		message_free(s->message);
	grpc_inbox_clear(&s->in);
	free(s);
}

void server_stream_open(struct server_stream *s)
{
	struct stream_server *server = s->connection->server;
	struct stream_request request = {.authorization = "", .fd = s->connection->fd};

	if (!s->is_post || !s->is_grpc || s->method < 0) {
		server->counts.unknown_method++;
		server_stream_finish(s, RPC_UNIMPLEMENTED, "no such method");
		return;
	}
	if (server->counts.open > server->o.max_streams) {
		server->counts.refused++;
		server_stream_finish(s, RPC_RESOURCE_EXHAUSTED, "too many streams");
		return;
	}
	server->counts.opened++;
	request.method = (size_t)s->method;
	if (s->authorization && !s->authorization_twice)
		request.authorization = s->authorization;
	s->arg = server->events.opened(server->events.arg, s, &request);
	wipe_authorization(s);
	if (!s->arg)
		server_stream_finish(s, RPC_UNAVAILABLE, "out of memory");
}
