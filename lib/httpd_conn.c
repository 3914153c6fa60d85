/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: accepting, the libwebsockets callback, sending, deadlines. Connections are never
 * kept alive: a scrape or a probe gains nothing by it, and libwebsockets 4.1.6 spins or asserts in
 * some corners of pipelining.
 *
 * Facts about libwebsockets 4.1.6 that shape this file:
 * - While a transaction waits for its answer, the socket is polled but not read: a client that
 *   closes would wake the loop forever. So kept requests are taken out of polling, and the watch
 *   timer checks their sockets.
 * - A timeout that is set outside of its callbacks does not start its timer; so the server has
 *   deadlines of its own.
 */
#include "lib/httpd_internal.h"

#include <poll.h>
#include <sys/socket.h>

enum {
	WATCH_MS = 250,
	ACCEPT_BURST = 16,
	HALF_CLOSED_MS = 2000,
	/* For a request's head, while other clients wait for a free connection. */
	IDLE_GRACE_MS = 1000,
};

static void on_watch(uv_timer_t *timer);

static struct httpd_conn *conn_free(struct httpd_conn *conn)
{
	if (!conn)
		return NULL;
	httpd_request_gone(conn);
	*conn->link = conn->next;
	if (conn->next)
		conn->next->link = conn->link;
	conn->server->n_conns--;
	free(conn->out);
	free(conn);
	return NULL;
}

static struct httpd_conn *conn_new(struct httpd *h)
{
	struct httpd_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->server = h;
	conn->deadline_ms = uv_now(h->loop) + h->request_timeout_s * 1000ULL;
	conn->next = h->conns;
	conn->link = &h->conns;
	if (conn->next)
		conn->next->link = &conn->next;
	h->conns = conn;
	h->n_conns++;
	if (!uv_is_active((uv_handle_t *)&h->watch))
		uv_timer_start(&h->watch, on_watch, WATCH_MS, WATCH_MS);
	return conn;
}

static void pause_listener(struct httpd *h, bool pause)
{
	if (h->closing || h->paused == pause)
		return;
	h->paused = pause;
	if (pause)
		uv_poll_stop(&h->listener);
	else
		uv_poll_start(&h->listener, UV_READABLE, httpd_on_listener);
}

static void adopt(struct httpd *h, int fd)
{
	struct httpd_conn *conn = conn_new(h);

	if (!conn) {
		close(fd);
		return;
	}
	conn->wsi = lws_adopt_socket_vhost(h->vhost, fd); /* closes fd on failure */
	if (!conn->wsi) {
		conn_free(conn);
		return;
	}
	lws_set_opaque_user_data(conn->wsi, conn);
}

/*
 * All connections are taken and another client waits: closes the oldest connection that has not
 * sent a complete request within IDLE_GRACE_MS. The connection is freed in a later turn of the
 * loop.
 */
static void evict_idle(struct httpd *h)
{
	uint64_t now = uv_now(h->loop), timeout = h->request_timeout_s * 1000ULL;
	struct httpd_conn *oldest = NULL;

	/* The list has the newest first. Without a request, the deadline is still the one set when
	 * the connection began, so it tells the connection's age. */
	for (struct httpd_conn *conn = h->conns; conn; conn = conn->next)
		if (conn->wsi && !conn->req && !conn->out &&
		    now + timeout >= conn->deadline_ms + IDLE_GRACE_MS)
			oldest = conn;
	if (oldest)
		lws_set_timeout(oldest->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_SYNC);
}

void httpd_on_listener(uv_poll_t *poll, int status, int events)
{
	struct httpd *h = poll->data;

	for (int i = 0; i < ACCEPT_BURST; i++) {
		int fd;

		if (h->n_conns >= h->max_connections) {
			pause_listener(h, true);
			evict_idle(h);
			return;
		}
		fd = accept4(h->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0) {
			adopt(h, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			   errno == ENOBUFS) {
			/* The watch tries again; until then the level-triggered poll would spin. */
			pause_listener(h, true);
			uv_timer_start(&h->watch, on_watch, WATCH_MS, WATCH_MS);
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return;
		}
	}
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* Whether the client will send nothing more: it has closed the connection, or its half of it. */
static bool client_gone(struct lws *wsi)
{
	struct pollfd p = {.fd = lws_get_socket_fd(wsi), .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

/* Whether the socket has room for more: then the client reads, and the delay is on this side. */
static bool client_takes(struct lws *wsi)
{
	struct pollfd p = {.fd = lws_get_socket_fd(wsi), .events = POLLOUT};

	return poll(&p, 1, 0) > 0 && p.revents == POLLOUT;
}

/* Reads and discards a bounded amount of what the client still sends: closing with unread input
 * would reset the connection and lose the answer. */
static void drain(struct lws *wsi)
{
	char sink[4096];

	for (int i = 0; i < 32; i++)
		if (recv(lws_get_socket_fd(wsi), sink, sizeof(sink), MSG_DONTWAIT) <= 0)
			return;
}

/* Ends a connection that is past its deadline or whose client is gone. It may be freed later,
 * through the loop. */
static void watch_conn(struct httpd_conn *conn)
{
	bool kept = conn->req && conn->req->kept;

	if (!conn->wsi)
		return;
	/* A client that left and one that closed only its sending half look alike: a kept request
	 * is ended in both cases. */
	if (kept && client_gone(conn->wsi)) {
		httpd_request_gone(conn);
		lws_set_timeout(conn->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_SYNC);
		return;
	}
	if (conn->out)
		drain(conn->wsi); /* unread input wakes the loop until it is taken */
	if (uv_now(conn->server->loop) < conn->deadline_ms)
		return;
	if (kept && conn->req->streaming && conn->out && client_takes(conn->wsi)) {
		conn->deadline_ms =
		    uv_now(conn->server->loop) + conn->server->send_timeout_s * 1000ULL;
		return;
	}
	if (kept && conn->req->streaming) {
		conn->req->stalled = true;
		httpd_request_gone(conn);
	} else if (kept) {
		httpd_respond_error(conn, 504, NULL);
		httpd_request_gone(conn);
		return;
	}
	/* A stream, a request that is incomplete, or an answer that is not taken. */
	lws_set_timeout(conn->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_SYNC);
}

static void on_watch(uv_timer_t *timer)
{
	struct httpd *h = timer->data;

	/* Connections leave the list only in a closing callback of the loop, not in
	 * watch_conn(). */
	for (struct httpd_conn *conn = h->conns; conn; conn = conn->next)
		watch_conn(conn);
	/* If all connections are still taken, httpd_on_listener() evicts an idle one and pauses
	 * again. */
	pause_listener(h, false);
	if (!h->n_conns)
		uv_timer_stop(timer);
}

/* ---- the protocol ---------------------------------------------------------------------------- */

/* After a client has closed its sending half, the end of input stays readable and wakes the loop
 * until the answer is sent: so that time is short. */
static uint64_t send_timeout_ms(const struct httpd_conn *conn)
{
	uint64_t ms = conn->server->send_timeout_s * 1000ULL;

	return client_gone(conn->wsi) ? MIN(ms, (uint64_t)HALF_CLOSED_MS) : ms;
}

/* Returns -1 to close. */
static int send_some(struct httpd_conn *conn)
{
	size_t n = MIN(conn->out_len - conn->out_pos, (size_t)HTTPD_SEND_CHUNK);

	if (!conn->out)
		return 0;
	if (!lws_partial_buffered(conn->wsi)) {
		if (!n && conn->req && conn->req->streaming) {
			httpd_stream_sent(conn);
			return 0;
		}
		if (!n) {
			drain(conn->wsi);
			return -1;
		}
		/* lws_write() may overwrite the bytes before the piece: these are the spare ones,
		 * or already sent. */
		if (lws_write(conn->wsi, conn->out + LWS_PRE + conn->out_pos, n, LWS_WRITE_HTTP) <
		    0)
			return -1;
		conn->out_pos += n;
		conn->deadline_ms = uv_now(conn->server->loop) + send_timeout_ms(conn);
	}
	lws_callback_on_writable(conn->wsi);
	return 0;
}

static void conn_closed(struct httpd_conn *conn)
{
	conn->wsi = NULL;
	httpd_request_gone(conn);
}

static int refuse_upgrade(struct lws *wsi)
{
	static const char text[] = "HTTP/1.1 501 Not Implemented\r\nConnection: close\r\n"
				   "Content-Length: 0\r\n\r\n";
	uint8_t out[LWS_PRE + sizeof(text)];

	memcpy(out + LWS_PRE, text, sizeof(text) - 1);
	lws_write(wsi, out + LWS_PRE, sizeof(text) - 1, LWS_WRITE_HTTP);
	return -1; /* close, written or not */
}

int httpd_on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		 size_t len)
{
	struct httpd_conn *conn = wsi ? lws_get_opaque_user_data(wsi) : NULL;

	switch (reason) {
	case LWS_CALLBACK_HTTP:
		if (!conn)
			return -1;
		httpd_request_begin(conn);
		return 0;
	case LWS_CALLBACK_HTTP_BODY:
		if (conn)
			httpd_request_data(conn, in, len);
		return 0;
	case LWS_CALLBACK_HTTP_BODY_COMPLETION:
		if (conn)
			httpd_request_dispatch(conn);
		return 0;
	case LWS_CALLBACK_HTTP_WRITEABLE:
		return conn ? send_some(conn) : -1;
	case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
		return refuse_upgrade(wsi);
	case LWS_CALLBACK_OPENSSL_PERFORM_CLIENT_CERT_VERIFICATION:
		/* Our answer replaces OpenSSL's, which is LEN: 0 accepts (libwebsockets 4.1.6,
		 * lib/tls/openssl/openssl-server.c, OpenSSL_verify_callback()). */
		return len ? 0 : 1;
	case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION: /* WebSocket */
	case LWS_CALLBACK_RAW_ADOPT: /* CONNECT turns a connection into a raw one */
	case LWS_CALLBACK_RAW_CONNECTED:
	case LWS_CALLBACK_RAW_RX:
		return -1;
	case LWS_CALLBACK_CLOSED_HTTP:
		if (conn)
			conn_closed(conn);
		return 0;
	case LWS_CALLBACK_WSI_DESTROY:
		if (conn) {
			struct httpd *h = conn->server;

			lws_set_opaque_user_data(wsi, NULL);
			conn_free(conn);
			pause_listener(h, false);
		}
		return 0;
	default:
		return 0;
	}
}
