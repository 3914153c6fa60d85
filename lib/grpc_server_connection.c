/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection. Bytes from the socket go into nghttp2; frames from nghttp2 go through the
 * server's output buffer to the socket, and are wiped there, as they may be secret. Bytes that the
 * socket does not take are kept in `rest`; until they are written, nothing more is read and no
 * further frames are made. nghttp2 calls only connection_write_data() and connection_on_ping() of
 * this file, and the application's callbacks cannot end a connection: so a connection ends only
 * between two steps. Loop thread only.
 */
#include "lib/grpc_server_internal.h"

#include <sys/socket.h>
#include <utlist.h>

enum { ROUNDS = 4 /* reads a turn, so that other connections get theirs */, PING_STRIKES = 2 };
enum { KEEPALIVE_TIMEOUT_MS = 20000 };

/* ---- sending --------------------------------------------------------------------------------- */

static void rest_free(struct server_connection *c)
{
	if (c->rest)
		explicit_bzero(c->rest, c->rest_len);
	free(TAKE_PTR(c->rest));
}

/* How many bytes the socket took. */
static size_t write_bytes(struct server_connection *c, const uint8_t *bytes, size_t len)
{
	ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);

	if (n >= 0)
		return (size_t)n;
	if (errno != EAGAIN && errno != EINTR)
		c->failed = true;
	return 0;
}

static void write_rest(struct server_connection *c)
{
	c->rest_at += write_bytes(c, c->rest + c->rest_at, c->rest_len - c->rest_at);
	if (c->rest_at == c->rest_len)
		rest_free(c);
}

/* Empties the output buffer into the socket; bytes that the socket does not take become `rest`. */
static void write_out(struct server_connection *c)
{
	struct stream_server *server = c->server;
	size_t sent = write_bytes(c, server->out, server->out_len), left = server->out_len - sent;

	if (left && !c->failed) {
		c->rest = malloc(left);
		c->failed = !c->rest;
		if (c->rest)
			memcpy(c->rest, server->out + sent, left);
		c->rest_at = 0;
		c->rest_len = left;
	}
	explicit_bzero(server->out, server->out_len);
	server->out_len = 0;
}

static void append(struct stream_server *server, const void *bytes, size_t len)
{
	memcpy(server->out + server->out_len, bytes, len);
	server->out_len += len;
}

int connection_write_data(struct server_connection *c, const uint8_t *header,
			  struct server_stream *s, size_t len)
{
	struct message *m = s->message;

	if (c->server->out_len + 9 + len > CONNECTION_WRITE)
		return NGHTTP2_ERR_WOULDBLOCK;
	append(c->server, header, 9);
	append(c->server, m->bytes + m->at, len);
	m->at += len;
	if (m->at == m->len)
		server_stream_taken(s);
	/* After data was sent to the peer, its next ping may come at once. */
	c->peer_ping_ms = c->ping_strikes = 0;
	/* Makes nghttp2_session_mem_send() return. With 0 it would start the next DATA frame, for
	 * which the output buffer may have no room. */
	return NGHTTP2_ERR_PAUSE;
}

/* False: nghttp2 has no frame to send, or failed. */
static bool make_frame(struct server_connection *c)
{
	size_t before = c->server->out_len;
	const uint8_t *bytes;
	ssize_t n = nghttp2_session_mem_send(c->session, &bytes);

	if (n < 0 || (size_t)n > CONNECTION_WRITE - c->server->out_len) {
		c->failed = true;
		return false;
	}
	if (n > 0)
		append(c->server, bytes, (size_t)n);
	return n > 0 || c->server->out_len > before;
}

static void flush(struct server_connection *c)
{
	if (c->rest)
		write_rest(c);
	while (!c->rest && !c->failed) {
		bool more = true;

		while (more && c->server->out_len <= CONNECTION_WRITE / 2)
			more = make_frame(c);
		if (!c->server->out_len)
			return;
		write_out(c);
	}
}

/* Calls sent() of the streams whose message left with the last flush. */
static void tell_sent(struct server_connection *c)
{
	struct server_stream *s;

	DL_FOREACH (c->streams, s) {
		if (!s->flushed)
			continue;
		s->flushed = s->sending = false;
		if (s->arg && !s->finishing)
			c->server->events.sent(s->arg);
	}
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct server_connection *c)
{
	int mask = c->rest ? UV_WRITABLE : UV_READABLE;

	if (c->mask == mask)
		return;
	c->mask = mask;
	uv_poll_start(&c->poll, mask, on_poll);
}

static void receive(struct server_connection *c)
{
	uint8_t *bytes = c->server->in;

	for (unsigned int i = 0; i < ROUNDS && !c->failed; i++) {
		ssize_t n = recv(c->fd, bytes, CONNECTION_READ, 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || nghttp2_session_mem_recv(c->session, bytes, (size_t)n) < 0)
			c->failed = true;
		if (n > 0) /* it may hold tokens */
			explicit_bzero(bytes, (size_t)n);
		c->heard_ms = uv_now(c->server->loop);
	}
}

void connection_run(struct server_connection *c)
{
	struct server_stream *s;

	DL_FOREACH (c->streams, s)
		server_stream_deliver(s);
	flush(c);
	if (!c->rest && !c->failed)
		tell_sent(c);
	if (c->failed || (!c->rest && !nghttp2_session_want_read(c->session) &&
			  !nghttp2_session_want_write(c->session)))
		connection_end(c, true);
	else
		watch(c);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct server_connection *c = container_of(poll, struct server_connection, poll);

	if (status < 0)
		c->failed = true;
	else if (events & UV_READABLE)
		receive(c);
	/* Before the connection ends, send the GOAWAY that reports a protocol error, if
	 * possible. */
	if (c->failed)
		flush(c);
	connection_run(c);
}

/* ---- time ------------------------------------------------------------------------------------ */

void connection_on_ping(struct server_connection *c)
{
	uint64_t now = uv_now(c->server->loop);

	if (c->peer_ping_ms && now < c->peer_ping_ms + c->server->o.ping_min_ms)
		c->ping_strikes++;
	c->peer_ping_ms = now;
	if (c->ping_strikes > PING_STRIKES)
		(void)nghttp2_session_terminate_session(c->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void cut_streams(struct server_connection *c, uint64_t now)
{
	struct server_stream *s;

	DL_FOREACH (c->streams, s) {
		if (!s->cut_ms || s->cut_ms > now)
			continue;
		server_stream_cut(s);
		/* The peer has not taken earlier bytes, so it will not take the reset either. */
		c->failed |= c->rest != NULL;
	}
}

void connection_sweep(struct server_connection *c, uint64_t now)
{
	const struct stream_server_options *o = &c->server->o;

	cut_streams(c, now);
	if (c->pinged_ms && now >= c->pinged_ms + KEEPALIVE_TIMEOUT_MS) {
		c->failed = true;
	} else if (!c->n_streams && now >= c->idle_ms + o->idle_ms) {
		(void)nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR);
		flush(c);
		c->failed = true;
	} else if (!c->pinged_ms && now >= c->heard_ms + o->keepalive_ms) {
		c->pinged_ms = now;
		c->failed |= nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL) < 0;
		connection_due(c);
	}
	if (c->failed)
		connection_run(c);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct server_connection, poll));
}

static void leave_due(struct server_connection *c)
{
	struct stream_server *server = c->server;
	struct server_connection *d;

	if (!c->due)
		return;
	LL_DELETE2(server->due, c, due_next);
	server->due_last = NULL;
	LL_FOREACH2(server->due, d, due_next)
	server->due_last = d;
}

void connection_end(struct server_connection *c, bool tell)
{
	while (c->streams)
		server_stream_free(c->streams, tell);
	leave_due(c);
	DL_DELETE(c->server->connections, c);
	nghttp2_session_del(c->session);
	rest_free(c);
	uv_close((uv_handle_t *)&c->poll, on_closed);
	close(c->fd);
}

static int start(struct server_connection *c)
{
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CONNECTION_STREAMS},
	    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX},
	    {NGHTTP2_SETTINGS_HEADER_TABLE_SIZE, 0},
	    {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
	};
	int r =
	    nghttp2_session_server_new2(&c->session, c->server->callbacks, c, c->server->option);

	return r < 0 ? r
		     : nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
					       ARRAY_SIZE(settings));
}

void connection_new(struct stream_server *server, int fd)
{
	struct server_connection *c = calloc(1, sizeof(*c));

	if (!c || uv_poll_init(server->loop, &c->poll, fd) < 0) {
		close(fd);
		free(c);
		return;
	}
	c->server = server;
	c->fd = fd;
	c->heard_ms = c->idle_ms = uv_now(server->loop);
	DL_APPEND(server->connections, c);
	c->failed = start(c) < 0;
	connection_due(c);
}
