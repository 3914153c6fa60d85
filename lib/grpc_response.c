/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nghttp2's callbacks for responses: header fields (of which only a few are kept), message bytes,
 * and the end of a stream. The callbacks may submit frames and end calls (which only records that
 * they have ended). They must not call the application, nor any function of nghttp2 that receives
 * or sends.
 *
 * A response's headers are the first header block that is not informational (1xx); the next block
 * is the trailers. A "Trailers-Only" response has grpc-status in the first block and ends there.
 */
#include "lib/grpc_channel.h"
#include "lib/parse.h"

/* ---- fields ------------------------------------------------------------------------------------
 */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, frame->hd.stream_id);

	if (!call)
		return 0;
	call->header_bytes = 0;
	call->http_status = 0;
	call->grpc_status = -1;
	call->other_type = false;
	return 0;
}

static bool is(const char *want, const uint8_t *text, size_t len)
{
	return strlen(want) == len && !memcmp(want, text, len);
}

static void keep(char *out, size_t size, const uint8_t *text, size_t len)
{
	snprintf(out, size, "%.*s", (int)MIN(len, size), (const char *)text);
}

/* "application/grpc", "application/grpc+proto", "application/grpc;charset=..." */
static bool is_grpc_type(const uint8_t *value, size_t len)
{
	const char type[] = "application/grpc";
	size_t n = sizeof(type) - 1;

	return len >= n && !memcmp(value, type, n) &&
	       (len == n || value[n] == '+' || value[n] == ';');
}

/* A later header replaces an earlier one. A value that is not valid base64 is ignored. */
static void keep_details(struct grpc_call *call, const uint8_t *value, size_t len)
{
	const uint8_t *comma = memchr(value, ',', len);
	size_t n = comma ? (size_t)(comma - value) : len;

	free(TAKE_PTR(call->details));
	call->details_len = 0;
	call->details = malloc(n / 4 * 3 + 3);
	if (call->details && grpc_base64_decode(value, n, call->details, &call->details_len) < 0)
		free(TAKE_PTR(call->details));
}

static void keep_message(struct grpc_call *call, const uint8_t *value, size_t len)
{
	free(call->words);
	call->words = grpc_text_decode(value, len);
}

static void take_field(struct grpc_call *call, const uint8_t *name, size_t name_len,
		       const uint8_t *value, size_t len)
{
	if (is(":status", name, name_len)) {
		call->http_status = grpc_status_parse(value, len);
	} else if (is("content-type", name, name_len)) {
		call->other_type = !is_grpc_type(value, len);
		keep(call->type, sizeof(call->type), value, len);
	} else if (is("grpc-encoding", name, name_len)) {
		keep(call->encoding, sizeof(call->encoding), value, len);
	} else if (is("grpc-status", name, name_len)) {
		call->grpc_status = grpc_status_parse(value, len);
	} else if (is("grpc-message", name, name_len)) {
		keep_message(call, value, len);
	} else if (is("grpc-status-details-bin", name, name_len)) {
		keep_details(call, value, len);
	}
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, frame->hd.stream_id);

	if (!call)
		return 0;
	call->header_bytes += name_len + len + 32;
	if (call->header_bytes > HEADERS_MAX) {
		grpc_call_cut(call, RPC_RESOURCE_EXHAUSTED, "the answer's headers are too large");
		return 0;
	}
	take_field(call, name, name_len, value, len);
	return 0;
}

/* ---- headers -----------------------------------------------------------------------------------
 */

static void first_headers(struct grpc_call *call, bool is_end)
{
	if (call->http_status >= 100 && call->http_status < 200)
		return;
	call->has_headers = true;
	if (call->grpc_status >= 0 && (is_end || call->http_status != 200))
		grpc_call_end(call, call->grpc_status, "%s", "");
	else if (call->http_status != 200)
		grpc_call_cut(call, grpc_status_of_http(call->http_status),
			      "the answer is HTTP %d, not gRPC", call->http_status);
	else if (call->other_type)
		grpc_call_cut(call, RPC_UNKNOWN, "the answer is %s, not gRPC", call->type);
	else if (is_end)
		grpc_call_end(call, RPC_UNKNOWN, "the answer has no status");
}

static void take_headers(struct grpc_call *call, bool is_end)
{
	if (!call->has_headers)
		first_headers(call, is_end);
	else if (call->grpc_status < 0)
		grpc_call_end(call, RPC_UNKNOWN, "the answer has no status");
	else
		grpc_call_end(call, call->grpc_status, "%s", "");
}

/* ---- frames ------------------------------------------------------------------------------------
 */

static void describe_goaway(const nghttp2_goaway *goaway, char *out, size_t size)
{
	char *debug = grpc_text_decode(goaway->opaque_data, MIN(goaway->opaque_data_len, 128));

	if (debug)
		parse_make_printable(debug);
	snprintf(out, size, "the peer ended the connection: %s%s%s",
		 nghttp2_http2_strerror(goaway->error_code), debug && *debug ? ", " : "",
		 debug ? debug : "");
	free(debug);
}

static void on_goaway(struct grpc_connection *c, const nghttp2_goaway *goaway)
{
	static const char pings[] = "too_many_pings";

	c->retired = true;
	if (goaway->error_code != NGHTTP2_NO_ERROR && !c->why[0])
		describe_goaway(goaway, c->why, sizeof(c->why));
	/* gRPC proposal A8: a server that answers so allows fewer pings. */
	if (goaway->error_code == NGHTTP2_ENHANCE_YOUR_CALM &&
	    is(pings, goaway->opaque_data, goaway->opaque_data_len))
		c->channel->keepalive_ms *= 2;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	bool is_end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
	struct grpc_connection *c = arg;
	struct grpc_call *call;

	switch (frame->hd.type) {
	case NGHTTP2_SETTINGS:
		if (!c->ready && !(frame->hd.flags & NGHTTP2_FLAG_ACK)) {
			c->ready = true;
			client_socket_settle(c->socket);
		}
		break;
	case NGHTTP2_PING:
		if (frame->hd.flags & NGHTTP2_FLAG_ACK)
			c->pinged_ms = 0;
		break;
	case NGHTTP2_GOAWAY:
		on_goaway(c, &frame->goaway);
		break;
	case NGHTTP2_HEADERS:
		call = grpc_connection_find(c, frame->hd.stream_id);
		if (call)
			take_headers(call, is_end);
		break;
	case NGHTTP2_DATA:
		call = is_end ? grpc_connection_find(c, frame->hd.stream_id) : NULL;
		if (call)
			grpc_call_end(call, RPC_UNKNOWN, "the answer has no status");
		break;
	default:
		break;
	}
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
		   size_t len, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, id);

	if (call)
		grpc_call_take(call, bytes, len);
	return 0;
}

static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	call = grpc_connection_find(arg, frame->hd.stream_id);
	if (call)
		call->reached = call->flushed = true;
	return 0;
}

static int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int code,
			     void *arg)
{
	struct grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS)
		return 0;
	call = grpc_connection_find(arg, frame->hd.stream_id);
	if (call)
		grpc_call_end(call, RPC_UNAVAILABLE, "the request could not be sent: %s",
			      nghttp2_strerror(code));
	return 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, id);

	if (!call)
		return 0;
	if (code == NGHTTP2_REFUSED_STREAM)
		call->reached = false; /* RFC 9113 §8.7: the server did not act on the request */
	call->id = 0;		       /* the stream is closed: no reset needed */
	if (code == NGHTTP2_CANCEL && call->deadline_ms &&
	    uv_now(call->channel->loop) >= call->deadline_ms)
		grpc_call_end(call, RPC_DEADLINE_EXCEEDED, "the deadline is over");
	else
		grpc_call_end(call, grpc_status_of_reset(code), "the peer ended the stream: %s",
			      nghttp2_http2_strerror(code));
	return 0;
}

static int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
			size_t len, nghttp2_data_source *source, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, frame->hd.stream_id);

	return call ? grpc_connection_write_data(arg, header, call, len)
		    : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

int grpc_callbacks_new(nghttp2_session_callbacks **ret)
{
	if (nghttp2_session_callbacks_new(ret) < 0)
		return -ENOMEM;
	nghttp2_session_callbacks_set_on_begin_headers_callback(*ret, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(*ret, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(*ret, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(*ret, on_data);
	nghttp2_session_callbacks_set_on_frame_send_callback(*ret, on_frame_sent);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(*ret, on_frame_not_sent);
	nghttp2_session_callbacks_set_on_stream_close_callback(*ret, on_stream_closed);
	nghttp2_session_callbacks_set_send_data_callback(*ret, on_send_data);
	return 0;
}
