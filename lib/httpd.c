/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server: accepting, the libwebsockets callback, sending, deadlines, and taking all of it down.
 *
 * Each server has its own lws_context on the caller's loop (libwebsockets' libuv plugin, "foreign
 * loop"). We listen and accept ourselves and hand each socket over, which gives us the reason of a
 * failed listen and an exact count of connections. Connections are never kept alive: a scrape or a
 * probe gains nothing by it, and libwebsockets 4.1.6 spins or asserts in some corners of
 * pipelining.
 *
 * Facts about libwebsockets 4.1.6 that shape this file (lib/event-libs/libuv/libuv.c,
 * lib/core/context.c):
 * - With a foreign loop lws_context_destroy() only begins: sockets, then the context's idle and
 * timer handles close through the loop, and it must be called again once they are gone. Nothing
 * tells when. The reaper looks whether the loop still knows these two handles.
 * - While a transaction waits for our answer the socket is not read, though it is polled: the end
 * of the client would wake the loop for ever. So kept requests are taken out of polling, and the
 * watch asks the socket itself.
 * - It closes its eventfd twice, at once and again through the loop: see close_lws().
 * - Timeouts that are set from outside of its own callbacks do not arm its timer; we keep our own.
 */
#include "lib/httpd_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "lib/log.h"

enum {
	WATCH_MS = 250,
	ACCEPT_BURST = 16,
	SEND_CHUNK = 65536,
	HALF_CLOSED_MS = 2000,
	SPARE_FDS = 8, /* of the context: its wake-up pipe, and sockets that are still closing */
};

static void log_lws(int level, const char *line)
{
	size_t n = strlen(line);

	while (n && line[n - 1] == '\n')
		n--;
	log_debug("libwebsockets", "%.*s", (int)n, line);
}

static void set_lws_log(void)
{
	lws_set_log_level(LLL_ERR | LLL_WARN, log_lws);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void on_watch(uv_timer_t *timer);
static void on_listener(uv_poll_t *poll, int status, int events);

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
		uv_poll_start(&h->listener, UV_READABLE, on_listener);
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

static void on_listener(uv_poll_t *poll, int status, int events)
{
	struct httpd *h = poll->data;

	for (int i = 0; i < ACCEPT_BURST; i++) {
		int fd;

		if (h->n_conns >= h->max_connections) {
			pause_listener(h, true);
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

/* Whether the client will send nothing more: it left, or closed its half. */
static bool client_gone(struct lws *wsi)
{
	struct pollfd p = {.fd = lws_get_socket_fd(wsi), .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL));
}

/* Whether the client has taken enough for more to be sent: then it is we who are late. */
static bool client_takes(struct lws *wsi)
{
	struct pollfd p = {.fd = lws_get_socket_fd(wsi), .events = POLLOUT};

	return poll(&p, 1, 0) > 0 && p.revents == POLLOUT;
}

/* Takes what the client still sends, bounded, so that closing does not reset the answer away. */
static void drain(struct lws *wsi)
{
	char sink[4096];

	for (int i = 0; i < 32; i++)
		if (recv(lws_get_socket_fd(wsi), sink, sizeof(sink), MSG_DONTWAIT) <= 0)
			return;
}

/* Past its deadline, or its client is gone. The connection may be freed later, through the loop. */
static void watch_conn(struct httpd_conn *conn)
{
	bool kept = conn->req && conn->req->kept;

	if (!conn->wsi)
		return;
	/* Those that left and those that closed their half look alike; a pending answer is for
	 * neither. */
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
	/* A stream, or what came before and after a request. */
	lws_set_timeout(conn->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_SYNC);
}

static void on_watch(uv_timer_t *timer)
{
	struct httpd *h = timer->data;

	/* A connection leaves the list only in a closing callback of the loop, never in here. */
	for (struct httpd_conn *conn = h->conns; conn; conn = conn->next)
		watch_conn(conn);
	if (h->n_conns < h->max_connections)
		pause_listener(h, false);
	if (!h->n_conns)
		uv_timer_stop(timer);
}

/* ---- the protocol ---------------------------------------------------------------------------- */

/* The end of a half-closed client's input cannot be taken: it wakes the loop until the answer is
 * out. */
static uint64_t send_timeout_ms(const struct httpd_conn *conn)
{
	uint64_t ms = conn->server->send_timeout_s * 1000ULL;

	return client_gone(conn->wsi) ? MIN(ms, (uint64_t)HALF_CLOSED_MS) : ms;
}

/* Returns -1 to close. */
static int send_some(struct httpd_conn *conn)
{
	size_t n = MIN(conn->out_len - conn->out_pos, (size_t)SEND_CHUNK);

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
		/* The bytes before it may be overwritten: spare ones, or sent already. */
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

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
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

/* ---- making and taking down ------------------------------------------------------------------ */

struct handle_list {
	const uv_handle_t **items;
	size_t n, cap;
	int error;
};

static void list_handle(uv_handle_t *handle, void *arg)
{
	struct handle_list *list = arg;
	uv_handle_type type = uv_handle_get_type(handle);
	int r;

	if ((type != UV_IDLE && type != UV_TIMER && type != UV_POLL) || list->error)
		return;
	r = grow_array((void **)&list->items, &list->cap, list->n + 1, sizeof(*list->items),
		       1 << 20);
	if (r < 0)
		list->error = r;
	else
		list->items[list->n++] = handle;
}

static bool listed(const struct handle_list *list, const uv_handle_t *handle)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->items[i] == handle)
			return true;
	return false;
}

static void note_handle(struct httpd *h, const uv_handle_t *handle)
{
	uv_os_fd_t fd;

	if (uv_handle_get_type(handle) != UV_POLL) {
		if (h->n_lws_handles < ARRAY_SIZE(h->lws_handles))
			h->lws_handles[h->n_lws_handles++] = handle;
	} else if (uv_fileno(handle, &fd) == 0) {
		h->lws_wake_fd = fd;
	}
}

/* Makes the context and notes which handles of the loop are its own. */
static int new_context(struct httpd *h, struct lws_context_creation_info *info)
{
	struct handle_list before = {0}, after = {0};
	int r = 0;

	uv_walk(h->loop, list_handle, &before);
	if (!before.error)
		h->lws = lws_create_context(info);
	if (h->lws) {
		uv_walk(h->loop, list_handle, &after);
		for (size_t i = 0; i < after.n; i++)
			if (!listed(&before, after.items[i]))
				note_handle(h, after.items[i]);
	}
	r = before.error ? before.error : after.error;
	free(before.items);
	free(after.items);
	return r;
}

static int start_lws(struct httpd *h, const struct httpd_tls *tls, struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *loops[1] = {h->loop};
	struct lws_context_creation_info info = {
	    .port = CONTEXT_PORT_NO_LISTEN_SERVER,
	    .protocols = h->protocols,
	    .options = LWS_SERVER_OPTION_LIBUV | LWS_SERVER_OPTION_SKIP_SERVER_CANONICAL_NAME,
	    .foreign_loops = loops,
	    .gid = (gid_t)-1,
	    .uid = (uid_t)-1,
	    .user = h,
	    .token_limits = &h->limits,
	    .max_http_header_data = HTTPD_HEAD_MAX,
	    .max_http_header_pool = (short)h->max_connections,
	    .timeout_secs = h->request_timeout_s,
	    /* One for the context; longer pieces would go out by 4 KiB, each with a turn of the
	       loop. */
	    .pt_serv_buf_size = SEND_CHUNK,
	    .fd_limit_per_thread = h->max_connections + SPARE_FDS,
	};
	int r;

	pthread_once(&once, set_lws_log);
	h->protocols[0] = (struct lws_protocols){.name = "http", .callback = on_lws};
	h->limits.token_limit[WSI_TOKEN_GET_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_HEAD_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_POST_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_PUT_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_DELETE_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_OPTIONS_URI] = HTTPD_PATH_MAX;
	h->limits.token_limit[WSI_TOKEN_PATCH_URI] = HTTPD_PATH_MAX;
	r = httpd_set_tls(tls, &info, err);
	if (r < 0)
		return r;
	r = new_context(h, &info);
	if (!h->lws)
		return error_set(err, r < 0 ? r : -ENOSYS,
				 "libwebsockets cannot run on libuv: is its plugin "
				 "(libwebsockets-evlib-uv) installed?");
	h->vhost = lws_get_vhost_by_name(h->lws, "default");
	return r < 0 || !h->vhost ? error_set(err, r < 0 ? r : -ENOSYS, "libwebsockets: no server")
				  : 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct httpd *h = handle->data;

	if (--h->open_handles)
		return;
	free(h->host);
	free(h);
}

struct presence {
	const struct httpd *h;
	bool any;
};

static void find_lws_handle(uv_handle_t *handle, void *arg)
{
	struct presence *p = arg;

	for (size_t i = 0; i < p->h->n_lws_handles; i++)
		if (p->h->lws_handles[i] == handle)
			p->any = true;
}

static void on_reaper(uv_idle_t *idle)
{
	struct httpd *h = idle->data;
	struct presence p = {.h = h};

	uv_walk(h->loop, find_lws_handle, &p);
	if (p.any)
		return;
	lws_context_destroy(h->lws);
	h->lws = NULL;
	uv_idle_stop(idle);
	uv_close((uv_handle_t *)idle, on_handle_closed);
}

/*
 * Begins to take the context down. libwebsockets 4.1.6 closes its eventfd here and the same number
 * once more from the loop (lws_destroy_event_pipe() and __lws_close_free_wsi_final()); by then the
 * number may be a file that another thread has opened. So we take the number ourselves in between,
 * for the second close to hit. Descriptors are given out lowest first: the reserve, opened before
 * the context and therefore lower, is let go first, so that others who open something at this
 * moment get those numbers.
 */
static void close_lws(struct httpd *h)
{
	int source = h->reserve_fds[0], fd;

	for (size_t i = 1; i < ARRAY_SIZE(h->reserve_fds); i++)
		if (h->reserve_fds[i] >= 0)
			close(h->reserve_fds[i]);
	lws_context_destroy(h->lws);
	if (source < 0)
		return;
	if (h->lws_wake_fd >= 0) {
		fd = fcntl(source, F_DUPFD_CLOEXEC, h->lws_wake_fd);
		if (fd >= 0 && fd != h->lws_wake_fd)
			close(fd);
	}
	close(source);
}

static int open_reserve(struct httpd *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(h->reserve_fds); i++) {
		h->reserve_fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (h->reserve_fds[i] < 0)
			return -errno;
	}
	return 0;
}

static void close_reserve(struct httpd *h)
{
	for (size_t i = 0; i < ARRAY_SIZE(h->reserve_fds); i++)
		if (h->reserve_fds[i] >= 0)
			close(h->reserve_fds[i]);
}

struct httpd *httpd_free(struct httpd *h)
{
	if (!h || h->closing)
		return NULL;
	h->closing = true;
	uv_poll_stop(&h->listener);
	uv_timer_stop(&h->watch);
	uv_close((uv_handle_t *)&h->listener, on_handle_closed);
	uv_close((uv_handle_t *)&h->watch, on_handle_closed);
	close(h->listen_fd);
	for (struct httpd_conn *conn = h->conns; conn; conn = conn->next)
		httpd_request_gone(conn);
	if (h->lws) {
		close_lws(h);
		uv_idle_start(&h->reaper, on_reaper);
	} else {
		close_reserve(h);
		uv_close((uv_handle_t *)&h->reaper, on_handle_closed);
	}
	return NULL;
}

static int copy_options(struct httpd *h, const struct httpd_options *o)
{
	h->max_connections = o->max_connections ? MIN(o->max_connections, 4096U) : 64;
	h->request_timeout_s = o->request_timeout_s ? o->request_timeout_s : 10;
	h->send_timeout_s = o->send_timeout_s ? o->send_timeout_s : 30;
	if (o->host) {
		h->host = strdup(o->host);
		if (!h->host)
			return -ENOMEM;
	}
	return 0;
}

int httpd_new(uv_loop_t *loop, const struct httpd_options *options,
	      const struct httpd_route *routes, size_t n_routes, struct httpd **ret,
	      struct error *err)
{
	_cleanup_free_ struct httpd *blank = NULL;
	_cleanup_(httpd_freep) struct httpd *h = NULL;
	int r;

	if (n_routes > HTTPD_ROUTES_MAX)
		return error_set(err, -E2BIG, "more than %d routes", HTTPD_ROUTES_MAX);
	blank = calloc(1, sizeof(*blank));
	if (!blank)
		return error_set(err, -ENOMEM, "out of memory");
	blank->loop = loop;
	r = httpd_listen(options->host, options->port, &blank->listen_fd, blank->address,
			 sizeof(blank->address), &blank->port, &blank->loopback, err);
	if (r < 0)
		return r;
	r = uv_poll_init(loop, &blank->listener, blank->listen_fd);
	if (r < 0) {
		close(blank->listen_fd);
		return error_set(err, r, "%s: %s", blank->address, uv_strerror(r));
	}
	h = TAKE_PTR(blank);
	uv_timer_init(loop, &h->watch);
	uv_idle_init(loop, &h->reaper);
	h->listener.data = h->watch.data = h->reaper.data = h;
	h->open_handles = 3;
	h->lws_wake_fd = -1;
	for (size_t i = 0; i < ARRAY_SIZE(h->reserve_fds); i++)
		h->reserve_fds[i] = -1;
	memcpy(h->routes, routes, n_routes * sizeof(*routes));
	h->n_routes = n_routes;
	r = copy_options(h, options);
	if (r < 0)
		return error_set(err, r, "out of memory");
	r = open_reserve(h);
	if (r < 0)
		return error_set(err, r, "%s: %s", h->address, strerror(-r));
	r = start_lws(h, &options->tls, err);
	if (r < 0)
		return r;
	r = uv_poll_start(&h->listener, UV_READABLE, on_listener);
	if (r < 0)
		return error_set(err, r, "%s: %s", h->address, uv_strerror(r));
	*ret = TAKE_PTR(h);
	return 0;
}

uint16_t httpd_port(const struct httpd *h)
{
	return h->port;
}

const char *httpd_address(const struct httpd *h)
{
	return h->address;
}

unsigned int httpd_connections(const struct httpd *h)
{
	return h->n_conns;
}
