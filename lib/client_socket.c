/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `phase` is the current step. When a step fails or takes too long, the connection is closed and
 * the next address is dialed: of several replicas behind one name, some may be broken.
 *
 * The environment is asked for a proxy once per socket. With a proxy, the proxy's host is dialed
 * instead of the target's, and the proxy resolves the target's authority. Error texts hold no
 * secrets.
 */
#include "lib/client_socket.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include "lib/buf.h"
#include "lib/dial.h"
#include "lib/http_proxy.h"
#include "lib/log.h"
#include "lib/tls_client.h"
#include "lib/watch.h"

struct client_socket {
	struct client_socket_options o;
	struct client_socket_events events;
	uv_loop_t *loop;
	enum {
		SOCKET_DIALS,
		SOCKET_ASKS_PROXY,
		SOCKET_SHAKES_HANDS,
		SOCKET_OPENED,
		SOCKET_SETTLED
	} phase;
	/* When the step began; from connecting until SOCKET_SETTLED counts as one step. */
	uint64_t since_ms;
	struct dial *dial;
	struct http_proxy proxy; /* without a host: none */
	char *request;		 /* to the proxy */
	size_t request_at;
	struct buf reply;
	int fd;
	struct watch *watch;
	SSL *ssl;
	bool wants_room;     /* the owner wants ready() when the socket is writable */
	bool tls_wants_room; /* OpenSSL needs to write (handshake or read) */
	char address[112];   /* of the peer */
	char why[CLIENT_SOCKET_WORDS_MAX];
};

static void on_ready(void *arg, int events);

/* ---- failing -----------------------------------------------------------------------------------
 */

/* Closes the connection to the peer, but keeps the dial for the other addresses. */
static void hang_up(struct client_socket *s)
{
	s->watch = watch_free(s->watch);
	SSL_free(TAKE_PTR(s->ssl));
	if (s->fd >= 0)
		close(TAKE_FD(s->fd));
	s->tls_wants_room = s->wants_room = false;
	s->why[0] = 0;
	s->request_at = 0;
	buf_done(&s->reply);
}

void client_socket_again(struct client_socket *s, const char *words)
{
	char line[CLIENT_SOCKET_WORDS_MAX];

	(void)!snprintf(line, sizeof(line), "%s: %s", s->address, words); /* cut when too long */
	hang_up(s);
	s->phase = SOCKET_DIALS;
	s->since_ms = uv_now(s->loop);
	dial_again(s->dial, line);
}

static void on_failed(void *arg, const char *words)
{
	struct client_socket *s = arg;

	s->events.failed(s->events.arg, words);
}

/* ---- the steps ---------------------------------------------------------------------------------
 */

static void watch_peer(struct client_socket *s)
{
	bool room = s->wants_room || s->tls_wants_room ||
		    (s->phase == SOCKET_ASKS_PROXY && s->request[s->request_at]);

	if (watch_for(s->watch, UV_READABLE | (room ? UV_WRITABLE : 0)) < 0)
		client_socket_again(s, strerror(ENOMEM));
}

static void open_up(struct client_socket *s)
{
	s->phase = SOCKET_OPENED;
	watch_peer(s);
	if (s->phase == SOCKET_OPENED)
		s->events.opened(s->events.arg);
}

static void shake_hands(struct client_socket *s)
{
	char words[CLIENT_SOCKET_WORDS_MAX / 2];
	int r, kind;

	ERR_clear_error();
	r = SSL_do_handshake(s->ssl);
	kind = SSL_get_error(s->ssl, r);
	s->tls_wants_room = kind == SSL_ERROR_WANT_WRITE;
	if (r != 1 && kind != SSL_ERROR_WANT_WRITE && kind != SSL_ERROR_WANT_READ) {
		tls_client_explain(s->ssl, r, words, sizeof(words));
		client_socket_again(s, words);
		return;
	}
	if (r != 1) {
		watch_peer(s);
		return;
	}
	if (!tls_client_speaks(s->ssl, s->o.protocol)) {
		snprintf(words, sizeof(words), "TLS: the peer does not speak %s (ALPN)",
			 s->o.protocol);
		client_socket_again(s, words);
		return;
	}
	tls_client_trim(s->ssl);
	open_up(s);
}

static void begin_tls(struct client_socket *s)
{
	const struct tls_client_options o = {.tls = s->o.tls,
					     .name = s->o.target->host ? s->o.target->host
								       : s->o.target->authority,
					     .protocol = s->o.protocol};
	struct error err = {0};

	if (s->o.target->plaintext) {
		open_up(s);
		return;
	}
	s->phase = SOCKET_SHAKES_HANDS;
	if (tls_client_new(&o, &s->ssl, &err) < 0)
		client_socket_again(s, err.message);
	else if (tls_client_use(s->ssl, s->fd) < 0)
		client_socket_again(s, strerror(ENOMEM));
	else
		shake_hands(s);
}

static void refused_by_proxy(struct client_socket *s, int error, int status)
{
	char words[128];

	if (status)
		snprintf(words, sizeof(words), "the proxy answers HTTP %d", status);
	else if (error == EPROTO)
		snprintf(words, sizeof(words), "the proxy does not speak HTTP/1");
	else
		snprintf(words, sizeof(words), "the proxy: %s", strerror(error));
	client_socket_again(s, words);
}

/* Reads the proxy's reply, but no byte after it: those belong to the peer. */
static void hear_proxy(struct client_socket *s)
{
	size_t before = s->reply.len, len = 0;
	uint8_t bytes[1024];
	ssize_t n = recv(s->fd, bytes, sizeof(bytes), MSG_PEEK);
	int status = 0, r;

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		watch_peer(s);
		return;
	}
	if (n <= 0) {
		refused_by_proxy(s, n < 0 ? errno : ECONNRESET, 0);
		return;
	}
	r = buf_append(&s->reply, bytes, (size_t)n);
	if (r == 0)
		r = http_proxy_reply((const uint8_t *)s->reply.data, s->reply.len, &len, &status);
	if (r >= 0)
		(void)!recv(s->fd, bytes, r == 1 ? len - before : (size_t)n, 0);
	if (r == 0)
		watch_peer(s);
	else if (r == 1 && status / 100 == 2)
		begin_tls(s);
	else
		refused_by_proxy(s, r == -ENOMEM ? ENOMEM : EPROTO, status);
}

static void ask_proxy(struct client_socket *s)
{
	const char *left = s->request + s->request_at;
	ssize_t n = *left ? send(s->fd, left, strlen(left), MSG_NOSIGNAL) : 0;

	if (n < 0 && errno != EAGAIN && errno != EINTR) {
		refused_by_proxy(s, errno, 0);
		return;
	}
	if (n > 0)
		s->request_at += (size_t)n;
	if (s->request[s->request_at])
		watch_peer(s);
	else
		hear_proxy(s);
}

static void on_connected(void *arg, int fd, const char *address)
{
	struct client_socket *s = arg;

	s->fd = fd;
	s->since_ms = uv_now(s->loop);
	snprintf(s->address, sizeof(s->address), "%s%s", s->request ? "proxy " : "", address);
	if (watch_new(s->loop, fd, on_ready, s, &s->watch) < 0) {
		client_socket_again(s, strerror(ENOMEM));
		return;
	}
	s->phase = SOCKET_ASKS_PROXY;
	if (s->request)
		ask_proxy(s);
	else
		begin_tls(s);
}

static void on_ready(void *arg, int events)
{
	struct client_socket *s = arg;

	if (s->phase == SOCKET_ASKS_PROXY)
		ask_proxy(s);
	else if (s->phase == SOCKET_SHAKES_HANDS)
		shake_hands(s);
	else
		s->events.ready(s->events.arg);
}

/* ---- time --------------------------------------------------------------------------------------
 */

uint64_t client_socket_due_ms(const struct client_socket *s)
{
	return s->phase == SOCKET_SETTLED ? UINT64_MAX : s->since_ms + CLIENT_SOCKET_STEP_MS;
}

void client_socket_tick(struct client_socket *s, uint64_t now_ms)
{
	static const char *const late[] = {"no address of it was reached", "no answer of the proxy",
					   "no end of the TLS handshake", "no HTTP/2"};
	char words[128];

	if (now_ms < client_socket_due_ms(s))
		return;
	snprintf(words, sizeof(words), "%s within %d s", late[s->phase],
		 CLIENT_SOCKET_STEP_MS / 1000);
	if (s->phase != SOCKET_DIALS) {
		client_socket_again(s, words);
		return;
	}
	/* All addresses were tried, or the resolver hangs. */
	s->dial = dial_free(s->dial);
	s->since_ms = now_ms;
	s->events.failed(s->events.arg, words);
}

void client_socket_settle(struct client_socket *s)
{
	s->phase = SOCKET_SETTLED;
}

/* ---- bytes -------------------------------------------------------------------------------------
 */

/* The return value for an OpenSSL call that moved no bytes: 0 to try again, or -ECONNRESET. */
static ssize_t tls_result(struct client_socket *s, int result)
{
	int kind = SSL_get_error(s->ssl, result);

	s->tls_wants_room = kind == SSL_ERROR_WANT_WRITE;
	if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
		return 0;
	tls_client_explain(s->ssl, result, s->why, sizeof(s->why));
	return -ECONNRESET;
}

static ssize_t plain_result(struct client_socket *s, ssize_t n)
{
	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	snprintf(s->why, sizeof(s->why), "%s", strerror(errno));
	return -ECONNRESET;
}

ssize_t client_socket_read(struct client_socket *s, uint8_t *out, size_t size)
{
	ssize_t n;

	if (s->ssl) {
		ERR_clear_error();
		n = SSL_read(s->ssl, out, (int)size);
		return n > 0 ? n : tls_result(s, (int)n);
	}
	n = recv(s->fd, out, size, 0);
	if (n)
		return plain_result(s, n);
	snprintf(s->why, sizeof(s->why), "the peer closed the connection");
	return -ECONNRESET;
}

ssize_t client_socket_write(struct client_socket *s, const uint8_t *bytes, size_t len)
{
	ssize_t n;

	if (s->ssl) {
		ERR_clear_error();
		n = SSL_write(s->ssl, bytes, (int)len);
		return n > 0 ? n : tls_result(s, (int)n);
	}
	return plain_result(s, send(s->fd, bytes, len, MSG_NOSIGNAL));
}

const char *client_socket_why(const struct client_socket *s)
{
	return s->why;
}

const char *client_socket_address(const struct client_socket *s)
{
	return s->address;
}

int client_socket_want_room(struct client_socket *s, bool wanted)
{
	s->wants_room = wanted;
	return watch_for(s->watch, UV_READABLE | (wanted || s->tls_wants_room ? UV_WRITABLE : 0));
}

/* ---- life --------------------------------------------------------------------------------------
 */

static int find_proxy(struct client_socket *s, struct error *err)
{
	const struct grpc_target *t = s->o.target;
	struct error why = {0};
	int r = t->host ? http_proxy_find(t->host, &s->proxy, &why) : 0;

	if (r == -EINVAL) {
		static struct log_limit limit;

		/* As gRPC's C core does. */
		if (log_allowed(&limit, 3600, NULL))
			log_warn("grpc", "%s; connecting without a proxy", why.message);
		return 0;
	}
	if (r > 0) {
		s->request = http_proxy_request(&s->proxy, t->authority);
		r = s->request ? 0 : -ENOMEM;
	}
	return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int start(struct client_socket *s, struct error *err)
{
	const struct dial_events events = {on_connected, on_failed, s};
	const struct grpc_target *t = s->o.target;
	int r = find_proxy(s, err);

	if (r < 0)
		return r;
	r = dial_new(s->loop, s->request ? s->proxy.host : t->host,
		     s->request ? s->proxy.port : t->port, t->path, &events, &s->dial);
	return r < 0 ? error_set(err, r, "%s", uv_strerror(r)) : 0;
}

int client_socket_new(const struct client_socket_options *o, uv_loop_t *loop,
		      const struct client_socket_events *events, struct client_socket **ret,
		      struct error *err)
{
	struct client_socket *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->o = *o;
	s->events = *events;
	s->loop = loop;
	s->fd = -1;
	buf_init(&s->reply, HTTP_PROXY_REPLY_MAX);
	s->since_ms = uv_now(loop);
	r = start(s, err);
	if (r < 0) {
		client_socket_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

struct client_socket *client_socket_free(struct client_socket *s)
{
	if (!s)
		return NULL;
	if (s->ssl && s->phase >= SOCKET_OPENED && !s->why[0]) {
		ERR_clear_error();
		(void)SSL_shutdown(s->ssl);
	}
	hang_up(s);
	dial_free(s->dial);
	http_proxy_done(&s->proxy);
	if (s->request)
		explicit_bzero(s->request, strlen(s->request));
	free(s->request);
	free(s);
	return NULL;
}
