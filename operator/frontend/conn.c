/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection. Before its turn nothing is read from it: the kernel buffers its ClientHello and
 * wakes us when that is complete (SO_RCVLOWAT). Then the front end speaks TLS with the peer, and
 * the plaintext goes through a socket pair to the server and back. Each direction buffers at most
 * one TLS record (struct rest). Until that record is sent in full, the front end reads nothing more
 * in this direction, so a slow receiver slows down its sender and takes no more memory.
 *
 * The front end's thread.
 */
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <utlist.h>

#include "operator/frontend/hello.h"
#include "operator/frontend/internal.h"

enum {
	ROUNDS = 4,		/* records per event, so that other connections get their turn */
	PAIR_BUFFER = 64 << 10, /* the kernel doubles it */
	EARLY_FRAMES = 100,	/* an agent sends up to 10 before it is granted */
	STRANGER_CALLS = 4,
	GRANTED_CALLS = 32, /* plus one a second */
};

/* ---- life ------------------------------------------------------------------------------------ */

static void on_peer(uv_poll_t *poll, int status, int events);
static void on_core(uv_poll_t *poll, int status, int events);

struct frontend_conn *conn_new(struct frontend *frontend, int peer_fd)
{
	struct frontend_conn *c = calloc(1, sizeof(*c));

	if (!c || uv_poll_init(&frontend->loop, &c->peer, peer_fd) < 0) {
		close(peer_fd);
		free(c);
		return NULL;
	}
	c->frontend = frontend;
	c->peer_fd = peer_fd;
	c->core_fd = c->server_fd = -1;
	c->id = ++frontend->last_id;
	c->peer.data = c->core.data = c;
	c->open_handles = 1;
	c->since_ms = uv_now(&frontend->loop);
	return c;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct frontend_conn *c = handle->data;

	if (!--c->open_handles)
		free(c);
}

static void rest_free(struct rest *r)
{
	if (r->bytes)
		explicit_bzero(r->bytes, r->len);
	free(TAKE_PTR(r->bytes));
}

void conn_end(struct frontend_conn *c, enum frontend_end end)
{
	if (c->ended)
		return;
	c->ended = true;
	atomic_fetch_add_explicit(&c->frontend->ended[end], 1, memory_order_relaxed);
	frontend_drop_server_fd(c);
	frontend_forget(c);
	if (c->ssl && c->shaken && !c->to_peer.bytes && end != FRONTEND_END_TLS) {
		ERR_clear_error();
		(void)SSL_shutdown(c->ssl);
	}
	SSL_free(TAKE_PTR(c->ssl));
	rest_free(&c->to_peer);
	rest_free(&c->to_core);
	uv_close((uv_handle_t *)&c->peer, on_handle_closed);
	close(c->peer_fd);
	if (c->core_fd < 0)
		return;
	uv_close((uv_handle_t *)&c->core, on_handle_closed);
	close(c->core_fd);
}

/* ---- what it waits for ----------------------------------------------------------------------- */

static int peer_mask(const struct frontend_conn *c)
{
	if (c->state == CONN_HELLO || c->state == CONN_WAITS)
		return UV_DISCONNECT | (c->parked ? 0 : UV_READABLE);
	return (!c->to_core.bytes && !c->peer_eof ? UV_READABLE : 0) |
	       (c->to_peer.bytes || c->wants_write ? UV_WRITABLE : 0);
}

static void poll_for(uv_poll_t *poll, int *mask, int want, uv_poll_cb on_event)
{
	if (*mask == want)
		return;
	*mask = want;
	if (want)
		uv_poll_start(poll, want, on_event);
	else
		uv_poll_stop(poll);
}

void conn_watch(struct frontend_conn *c)
{
	if (c->ended)
		return;
	poll_for(&c->peer, &c->peer_mask, peer_mask(c), on_peer);
	if (c->core_fd >= 0)
		poll_for(&c->core, &c->core_mask,
			 (c->to_peer.bytes ? 0 : UV_READABLE) |
			     (c->to_core.bytes ? UV_WRITABLE : 0),
			 on_core);
}

/* ---- the ClientHello ------------------------------------------------------------------------- */

/* The kernel wakes us when N bytes are there. */
static void wake_at(const struct frontend_conn *c, size_t n)
{
	int bytes = (int)n;

	(void)setsockopt(c->peer_fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

static void look_at_hello(struct frontend_conn *c)
{
	bool known = c->hello != 0;
	uint8_t start[HELLO_START];
	int there = 0;

	if (ioctl(c->peer_fd, FIONREAD, &there) < 0) {
		conn_end(c, FRONTEND_END_PEER);
		return;
	}
	if (!c->hello && there >= HELLO_START) {
		if (recv(c->peer_fd, start, sizeof(start), MSG_PEEK) != sizeof(start) ||
		    hello_length(start, &c->hello) < 0) {
			conn_end(c, FRONTEND_END_BAD_HELLO);
			return;
		}
		wake_at(c, c->hello);
	}
	/* A client sends nothing after its ClientHello until it has the server's answer. */
	if (c->hello && (size_t)there > c->hello) {
		conn_end(c, FRONTEND_END_BAD_HELLO);
	} else if (c->hello && (size_t)there == c->hello) {
		wake_at(c, c->hello + 1);
		frontend_wait_for_turn(c);
	} else {
		/* Woken early, as the kernel does when its buffer is full: look again at the tick.
		 */
		c->parked = known || !c->hello;
	}
	conn_watch(c);
}

/*
 * A connection that waits for its turn is readable: either more than its ClientHello came, or the
 * kernel, short of memory, wakes us early.
 */
static void look_at_more(struct frontend_conn *c)
{
	int there = 0;

	if (ioctl(c->peer_fd, FIONREAD, &there) < 0)
		conn_end(c, FRONTEND_END_PEER);
	else if ((size_t)there > c->hello)
		conn_end(c, FRONTEND_END_BAD_HELLO);
	else
		c->parked = true;
	conn_watch(c);
}

/* ---- to the server --------------------------------------------------------------------------- */

static void join(struct frontend_conn *c)
{
	int pair[2], size = PAIR_BUFFER;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(pair); i++)
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (uv_poll_init(&c->frontend->loop, &c->core, pair[0]) < 0) {
		close(pair[0]);
		close(pair[1]);
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	c->core_fd = pair[0];
	c->open_handles++;
	if (frontend_note_server_fd(c, pair[1]) < 0) {
		close(pair[1]);
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	c->frontend->o.join(c->frontend->o.arg, pair[1]);
}

/* Copies BYTES, the part of the scratch buffer that could not be sent, to R. */
static void keep_rest(struct frontend_conn *c, struct rest *r, const uint8_t *bytes, size_t len)
{
	r->bytes = malloc(len);
	if (!r->bytes) {
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	memcpy(r->bytes, bytes, len);
	r->at = 0;
	r->len = len;
}

/*
 * Returns how many bytes the socket pair took. Ends the connection when the server has closed its
 * end.
 */
static size_t send_to_core(struct frontend_conn *c, const uint8_t *bytes, size_t len)
{
	ssize_t n = send(c->core_fd, bytes, len, MSG_NOSIGNAL);

	if (n >= 0)
		return (size_t)n;
	if (errno != EAGAIN && errno != EINTR)
		conn_end(c, FRONTEND_END_SERVER);
	return 0;
}

/* True when nothing is left. */
static bool flush_to_core(struct frontend_conn *c)
{
	struct rest *r = &c->to_core;

	if (!r->bytes)
		return true;
	r->at += send_to_core(c, r->bytes + r->at, r->len - r->at);
	if (c->ended || r->at < r->len)
		return false;
	rest_free(r);
	return true;
}

static void pass_to_core(struct frontend_conn *c, size_t len)
{
	const uint8_t *bytes = c->frontend->scratch;
	size_t sent;

	if (c->core_fd < 0)
		join(c);
	if (c->ended)
		return;
	sent = send_to_core(c, bytes, len);
	if (!c->ended && sent < len)
		keep_rest(c, &c->to_core, bytes + sent, len - sent);
}

/*
 * RESULT of an SSL_*() call was no success: waits for the socket, passes on the peer's end, or ends
 * the connection.
 */
static void on_tls_pause(struct frontend_conn *c, int result)
{
	switch (SSL_get_error(c->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		break;
	case SSL_ERROR_WANT_WRITE:
		c->wants_write = true;
		break;
	case SSL_ERROR_ZERO_RETURN:
		c->peer_eof = true;
		if (c->core_fd < 0)
			conn_end(c, FRONTEND_END_PEER);
		else
			(void)shutdown(c->core_fd, SHUT_WR);
		break;
	case SSL_ERROR_SYSCALL:
		conn_end(c, FRONTEND_END_PEER);
		break;
	default:
		conn_end(c, FRONTEND_END_TLS);
	}
}

static bool sent_too_many_bytes(const struct frontend_conn *c)
{
	return c->state == CONN_OPENED && BIO_number_read(SSL_get_rbio(c->ssl)) - c->bytes_before >
					      c->frontend->o.limits.unauthenticated_bytes;
}

/*
 * Each call costs the server some KiB until the server has handled it, even a call that the peer
 * resets at once.
 */
static bool sent_too_many_frames(const struct frontend_conn *c)
{
	uint64_t calls = c->frames.calls - c->calls_before;

	if (c->state == CONN_OPENED)
		return calls > STRANGER_CALLS || c->frames.all - c->frames_before > EARLY_FRAMES;
	return calls > GRANTED_CALLS + (uv_now(&c->frontend->loop) - c->since_ms) / 1000;
}

static void move_to_core(struct frontend_conn *c)
{
	for (unsigned int i = 0; i < ROUNDS && !c->ended && !c->peer_eof && flush_to_core(c); i++) {
		int n;

		ERR_clear_error();
		n = SSL_read(c->ssl, c->frontend->scratch, FRONTEND_SCRATCH);
		if (sent_too_many_bytes(c))
			conn_end(c, FRONTEND_END_TOO_MUCH);
		else if (n <= 0)
			on_tls_pause(c, n);
		else if (frames_read(&c->frames, c->frontend->scratch, (size_t)n) < 0)
			conn_end(c, FRONTEND_END_BAD_FRAMES);
		else if (sent_too_many_frames(c))
			conn_end(c, FRONTEND_END_TOO_MUCH);
		else
			pass_to_core(c, (size_t)n);
		if (n <= 0)
			return;
	}
}

/* ---- to the peer ----------------------------------------------------------------------------- */

static size_t send_to_peer(struct frontend_conn *c, const uint8_t *bytes, size_t len)
{
	int n;

	ERR_clear_error();
	n = SSL_write(c->ssl, bytes, (int)len);
	if (n > 0)
		return (size_t)n;
	/*
	 * Once the peer has closed its side, OpenSSL reports every failure as
	 * SSL_ERROR_ZERO_RETURN.
	 */
	if (SSL_get_error(c->ssl, n) == SSL_ERROR_ZERO_RETURN)
		conn_end(c, FRONTEND_END_PEER);
	else
		on_tls_pause(c, n);
	return 0;
}

static bool flush_to_peer(struct frontend_conn *c)
{
	struct rest *r = &c->to_peer;

	if (!r->bytes)
		return true;
	r->at += send_to_peer(c, r->bytes + r->at, r->len - r->at);
	if (c->ended || r->at < r->len)
		return false;
	rest_free(r);
	return true;
}

/* The server's bytes may be secret: they are wiped from the scratch buffer. */
static void move_to_peer(struct frontend_conn *c)
{
	uint8_t *bytes = c->frontend->scratch;

	for (unsigned int i = 0; i < ROUNDS && !c->ended && flush_to_peer(c); i++) {
		ssize_t n = recv(c->core_fd, bytes, FRONTEND_SCRATCH, 0);
		size_t sent;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			conn_end(c, FRONTEND_END_SERVER);
			return;
		}
		sent = send_to_peer(c, bytes, (size_t)n);
		if (!c->ended && sent < (size_t)n)
			keep_rest(c, &c->to_peer, bytes + sent, (size_t)n - sent);
		explicit_bzero(bytes, (size_t)n);
	}
}

void conn_close(struct frontend_conn *c)
{
	if (c->shaken && c->core_fd >= 0)
		move_to_peer(c);
	conn_end(c, FRONTEND_END_CLOSING);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void shake_hands(struct frontend_conn *c)
{
	int r;

	ERR_clear_error();
	r = SSL_do_handshake(c->ssl);
	if (r == 1)
		c->shaken = true;
	else
		on_tls_pause(c, r);
}

static void on_peer(uv_poll_t *poll, int status, int events)
{
	struct frontend_conn *c = poll->data;

	if (status < 0) {
		conn_end(c, FRONTEND_END_PEER);
		return;
	}
	if (c->state == CONN_HELLO || c->state == CONN_WAITS) {
		if (events & UV_DISCONNECT)
			conn_end(c, FRONTEND_END_PEER);
		else if (c->state == CONN_WAITS)
			look_at_more(c);
		else
			look_at_hello(c);
		return;
	}
	c->wants_write = false;
	if (!c->shaken)
		shake_hands(c);
	if (!c->ended && c->shaken)
		move_to_core(c);
	if (!c->ended && c->shaken && c->core_fd >= 0 && (events & UV_WRITABLE))
		move_to_peer(c);
	conn_watch(c);
}

static void on_core(uv_poll_t *poll, int status, int events)
{
	struct frontend_conn *c = poll->data;

	if (events & UV_WRITABLE)
		move_to_core(c);
	if (!c->ended)
		move_to_peer(c);
	if (status < 0)
		conn_end(c, FRONTEND_END_SERVER);
	conn_watch(c);
}

void conn_open(struct frontend_conn *c)
{
	struct frontend *frontend = c->frontend;
	int one = 1;

	wake_at(c, 1);
	(void)setsockopt(c->peer_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	pthread_mutex_lock(&frontend->lock);
	c->ssl = SSL_new(frontend->tls);
	pthread_mutex_unlock(&frontend->lock);
	if (!c->ssl || SSL_set_fd(c->ssl, c->peer_fd) != 1) {
		conn_end(c, FRONTEND_END_NO_MEMORY);
		return;
	}
	SSL_set_accept_state(c->ssl);
	shake_hands(c);
	conn_watch(c);
}
