/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nghttp2's callbacks for requests: header fields (of which only a few are kept), message bytes,
 * and the end of streams. They may submit frames and call the application, but no function of
 * nghttp2 that receives or sends. Loop thread only.
 */
#include "lib/grpc_server_internal.h"

/* ---- headers --------------------------------------------------------------------------------- */

static bool is_request(const nghttp2_frame *frame)
{
	return frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct server_connection *c = arg;
	struct server_stream *s;

	if (!is_request(frame))
		return 0;
	if (c->n_streams >= CONNECTION_STREAMS) /* possible before the peer has seen our SETTINGS */
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	s = server_stream_new(c, frame->hd.stream_id);
	if (!s)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return nghttp2_session_set_stream_user_data(session, s->id, s);
}

static bool is(const char *want, const uint8_t *text, size_t len)
{
	return strlen(want) == len && !memcmp(want, text, len);
}

/* "application/grpc", "application/grpc+proto", "application/grpc;charset=..." */
static bool is_grpc_type(const uint8_t *value, size_t len)
{
	const char type[] = "application/grpc";
	size_t n = sizeof(type) - 1;

	return len >= n && !memcmp(value, type, n) &&
	       (len == n || value[n] == '+' || value[n] == ';');
}

static int find_method(const struct stream_server *server, const uint8_t *value, size_t len)
{
	for (int i = 0; server->o.methods[i]; i++)
		if (is(server->o.methods[i], value, len))
			return i;
	return -1;
}

static void take_authorization(struct server_stream *s, const uint8_t *value, size_t len)
{
	s->authorization_twice = s->authorization != NULL;
	if (!s->authorization)
		s->authorization = strndup((const char *)value, len);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
	struct server_stream *s =
	    nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	struct server_connection *c = arg;

	if (!is_request(frame) || !s)
		return 0;
	s->header_bytes += name_len + len + 32;
	if (s->header_bytes > HEADERS_MAX)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (is(":method", name, name_len))
		s->is_post = is("POST", value, len);
	else if (is(":path", name, name_len))
		s->method = find_method(c->server, value, len);
	else if (is("content-type", name, name_len))
		s->is_grpc = is_grpc_type(value, len);
	else if (is("authorization", name, name_len))
		take_authorization(s, value, len);
	return 0;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct server_connection *c = arg;
	struct server_stream *s;

	if (frame->hd.type == NGHTTP2_PING) {
		if (frame->hd.flags & NGHTTP2_FLAG_ACK)
			c->pinged_ms = 0;
		else
			connection_on_ping(c);
		return 0;
	}
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!s)
		return 0;
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		s->half_closed = true;
	if (is_request(frame))
		server_stream_open(s);
	server_stream_deliver(s);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
		   size_t len, void *arg)
{
	struct server_stream *s = nghttp2_session_get_stream_user_data(session, id);

	/* The connection's window is opened at once, so that a stream that is not read does not
	 * block others. */
	if (nghttp2_session_consume_connection(session, len) < 0)
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	if (s)
		server_stream_take(s, bytes, len);
	return 0;
}

/* The status was sent, so the rest of the request is not needed: resets the stream if the peer
 * still sends. */
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	const struct server_stream *s;

	if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	s = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (s && !s->half_closed)
		return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
						 NGHTTP2_NO_ERROR);
	return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct server_stream *s = nghttp2_session_get_stream_user_data(session, id);

	if (s)
		server_stream_free(s, true);
	return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
			size_t len, nghttp2_data_source *source, void *arg)
{
	return connection_write_data(arg, header, source->ptr, len);
}

int server_callbacks_new(nghttp2_session_callbacks **ret)
{
	int r = nghttp2_session_callbacks_new(ret);

	if (r < 0)
		return r;
	nghttp2_session_callbacks_set_on_begin_headers_callback(*ret, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(*ret, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(*ret, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(*ret, on_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(*ret, on_frame_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(*ret, on_stream_closed);
	nghttp2_session_callbacks_set_send_data_callback(*ret, on_send_data);
	return 0;
}
