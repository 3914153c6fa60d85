/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers in pieces. A stream is a kept request whose connection is sent to again and again:
 * conn->out is the piece being sent, or NULL between two pieces. Between pieces the socket is not
 * polled, like that of every kept request (httpd_conn.c tells why), and the watch timer notices
 * that the client left. Loop's thread.
 */
#include "lib/httpd_internal.h"

#include <sys/socket.h>

#include "lib/buf.h"

static void begin_piece(struct httpd_conn *conn, struct buf *piece)
{
	conn->out_len = piece->len - LWS_PRE;
	conn->out_pos = 0;
	conn->out = (uint8_t *)buf_take(piece);
	conn->deadline_ms = uv_now(conn->server->loop) + conn->server->send_timeout_s * 1000ULL;
	lws_rx_flow_control(conn->wsi, 1); /* else libwebsockets would not poll for writing */
	lws_callback_on_writable(conn->wsi);
}

void httpd_stream_start(struct httpd_request *req, const char *content_type,
			const struct httpd_header *headers, size_t n_headers,
			const struct httpd_stream_callbacks *callbacks)
{
	struct httpd_conn *conn = req->conn;
	int size = HTTPD_STREAM_SNDBUF;
	struct buf b;

	req->kept = req->streaming = true;
	req->on_sent = callbacks->on_sent;
	req->on_gone = callbacks->on_gone;
	req->gone_user = callbacks->user;
	lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
	(void)setsockopt(lws_get_socket_fd(conn->wsi), SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	buf_init(&b, 65536);
	buf_extend(&b, LWS_PRE);
	httpd_render_headers(&b, 200, content_type, headers, n_headers, SIZE_MAX);
	if (buf_error(&b)) {
		buf_done(&b);
		conn->deadline_ms = 0; /* the watch timer closes it */
		return;
	}
	begin_piece(conn, &b);
}

void httpd_stream_sent(struct httpd_conn *conn)
{
	struct httpd_request *req = conn->req;

	free(conn->out);
	conn->out = NULL;
	conn->deadline_ms = UINT64_MAX;
	lws_rx_flow_control(conn->wsi, 0);
	if (req->on_sent)
		req->on_sent(req, req->gone_user);
}

int httpd_stream_send(struct httpd_request *req, const void *data, size_t len)
{
	struct httpd_conn *conn = req->conn;
	struct buf b;

	if (conn->out || !conn->wsi)
		return -EBUSY;
	if (len > HTTPD_REPLY_MAX)
		return -E2BIG;
	if (!len)
		return 0;
	buf_init(&b, LWS_PRE + len);
	buf_extend(&b, LWS_PRE);
	buf_append(&b, data, len);
	if (buf_error(&b)) {
		buf_done(&b);
		return -ENOMEM;
	}
	begin_piece(conn, &b);
	return 0;
}

void httpd_stream_end(struct httpd_request *req)
{
	struct httpd_conn *conn = req->conn;

	req->on_gone = NULL;
	httpd_request_gone(conn);
	conn->deadline_ms = 0;
}

bool httpd_stream_stalled(const struct httpd_request *req)
{
	return req->stalled;
}
