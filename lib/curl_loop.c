/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl on libuv: curl reports which sockets it waits for and when it wants to be called; one
 * uv_poll per socket and one timer implement that. Everything on the loop thread; curl resolves
 * names on a thread of its own.
 *
 * Invariant: `inside` is set while curl may be on the stack below one of its callbacks. Requests
 * that arrive meanwhile (transfers to add or to drop, freeing the pool) are recorded in the lists
 * `due` and `gone` and in `closing`; settle() carries them out after curl has returned.
 *
 * Reading ahead: OpenSSL then holds bytes that are no longer in the socket, so polling the socket
 * does not report them. curl 7.88 takes one record each time that its socket is readable and goes
 * on only when a part of that record is left (lib/transfer.c, readwrite_data; lib/vtls/openssl.c,
 * ossl_data_pending). So whenever curl returns, it is told that the socket is readable, until
 * OpenSSL has nothing left, or OpenSSL needs bytes of a record that have not arrived, or curl does
 * not want to read. Whether curl wants to read may change inside curl too, so this is checked again
 * whenever curl returns. After ROUNDS_MAX records the loop's other work comes first.
 *
 * A peer that sends much, but more slowly than it is read, would wake the loop for each record. So
 * after REST_RECORDS records in one go the sockets are not polled for REST_MS; the records that
 * arrive meanwhile are then read together.
 */
#include "lib/curl_loop.h"

#include <openssl/ssl.h>
#include <utlist.h>

#include "lib/http_proxy.h"
#include "lib/parse.h"

enum {
	/* How many bytes OpenSSL reads at once: two of the largest records. A larger buffer costs
	 * more than it saves, because OpenSSL moves its whole content to the front for each record
	 * (ssl/record/rec_layer_s3.c, 3.0). */
	AHEAD_BYTES = 32 << 10,
	ROUNDS_MAX = 64,
	/* The most sockets that tell_readable() reports; a pool that reads ahead has one or two. */
	SOCKETS_MAX = 8,
	REST_RECORDS = 4,
	REST_MS = 2,
};

struct curl_loop {
	uv_timer_t timer;
	uv_idle_t more;	 /* active when ROUNDS_MAX were not enough */
	uv_timer_t rest; /* active while the sockets are not polled */
	uv_loop_t *loop;
	CURLM *multi;
	struct curl_transfer *due, *gone; /* recorded while `inside` */
	struct curl_transfer *ahead;	  /* transfers in curl that read ahead */
	struct curl_loop_socket *sockets;
	bool inside, closing;
	unsigned int handles; /* handles on the loop that are not closed yet */
	uint64_t records;     /* TLS records received by the transfers that read ahead */
};

struct curl_loop_socket {
	uv_poll_t poll;
	struct curl_loop *owner;
	curl_socket_t fd;
	int events; /* what it is polled for */
	struct curl_loop_socket *prev, *next;
};

static void on_closed(uv_handle_t *handle)
{
	struct curl_loop *l = handle->data;

	if (--l->handles == 0)
		free(l);
}

static bool closed(const struct curl_loop *l)
{
	return uv_is_closing((const uv_handle_t *)&l->timer);
}

static void close_now(struct curl_loop *l)
{
	curl_multi_cleanup(l->multi); /* closes its sockets through socket_changed() */
	uv_close((uv_handle_t *)&l->timer, on_closed);
	uv_close((uv_handle_t *)&l->more, on_closed);
	uv_close((uv_handle_t *)&l->rest, on_closed);
}

static int take_in(struct curl_loop *l, struct curl_transfer *t)
{
	if (curl_multi_add_handle(l->multi, t->easy) != CURLM_OK)
		return -ENOMEM;
	t->state = CURL_TRANSFER_IN;
	if (t->read_ahead)
		DL_APPEND2(l->ahead, t, ahead_prev, ahead_next);
	return 0;
}

static void take_out(struct curl_loop *l, struct curl_transfer *t)
{
	curl_multi_remove_handle(l->multi, t->easy);
	t->state = CURL_TRANSFER_OUT;
	if (t->read_ahead)
		DL_DELETE2(l->ahead, t, ahead_prev, ahead_next);
}

static void drop_now(struct curl_loop *l, struct curl_transfer *t)
{
	if (t->state == CURL_TRANSFER_IN)
		take_out(l, t);
	t->state = CURL_TRANSFER_OUT;
	t->dropped(t);
}

/* Carries out what was requested while curl was running. Callbacks may request more and free the
 * pool. */
static void settle(struct curl_loop *l)
{
	struct curl_transfer *t;

	while (l->gone) {
		t = l->gone;
		DL_DELETE(l->gone, t);
		drop_now(l, t);
	}
	if (l->closing) {
		close_now(l);
		return;
	}
	while (!closed(l) && l->due) {
		t = l->due;
		DL_DELETE(l->due, t);
		t->state = CURL_TRANSFER_OUT;
		if (take_in(l, t) < 0)
			t->done(t, CURLE_OUT_OF_MEMORY);
	}
}

static void tell_finished(struct curl_loop *l)
{
	struct curl_transfer *t;
	CURLMsg *m;
	CURLcode code;
	int left;

	while (!closed(l) && (m = curl_multi_info_read(l->multi, &left))) {
		if (m->msg != CURLMSG_DONE)
			continue;
		t = NULL;
		code = m->data.result; /* M is invalid once take_out() has removed the handle */
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
		take_out(l, t);
		t->done(t, code);
	}
}

/* Whether OpenSSL holds bytes that only a read by curl can deliver. */
static bool holds_more(const struct curl_transfer *t)
{
	struct curl_tlssessioninfo *tls = NULL;

	if (t->gone || curl_easy_getinfo(t->easy, CURLINFO_TLS_SSL_PTR, &tls) != CURLE_OK || !tls ||
	    tls->backend != CURLSSLBACKEND_OPENSSL || !tls->internals)
		return false;
	return SSL_has_pending(tls->internals) && !BIO_should_read(SSL_get_rbio(tls->internals));
}

/*
 * curl tells neither a transfer's socket (CURLINFO_ACTIVESOCKET is that of the previous transfer,
 * in 7.88) nor a socket's TLS session. So all sockets are reported as readable; reading one that
 * has no data does no harm.
 */
static void tell_readable(struct curl_loop *l)
{
	curl_socket_t fds[SOCKETS_MAX];
	struct curl_loop_socket *s;
	size_t n = 0;
	int running;

	DL_FOREACH (l->sockets, s) {
		if (n < SOCKETS_MAX)
			fds[n++] = s->fd;
	}
	for (size_t i = 0; i < n; i++)
		curl_multi_socket_action(l->multi, fds[i], CURL_CSELECT_IN, &running);
}

/* False: there may be more, but other work of the loop comes first. */
static bool read_on(struct curl_loop *l)
{
	uint64_t enough = l->records + ROUNDS_MAX, before;
	struct curl_transfer *t;

	DL_FOREACH2(l->ahead, t, ahead_next)
	{
		do {
			before = l->records;
			if (holds_more(t))
				tell_readable(l);
		} while (l->records != before && l->records < enough);
	}
	return l->records < enough;
}

static void on_socket(uv_poll_t *handle, int status, int events);

static void on_rested(uv_timer_t *handle)
{
	struct curl_loop *l = container_of(handle, struct curl_loop, rest);
	struct curl_loop_socket *s;

	DL_FOREACH (l->sockets, s)
		(void)uv_poll_start(&s->poll, s->events, on_socket);
}

static void rest(struct curl_loop *l)
{
	struct curl_loop_socket *s;

	DL_FOREACH (l->sockets, s)
		uv_poll_stop(&s->poll);
	uv_update_time(l->loop);
	uv_timer_start(&l->rest, on_rested, REST_MS, 0);
}

static void on_more(uv_idle_t *idle);

static void act(struct curl_loop *l, curl_socket_t fd, int flags)
{
	uint64_t before = l->records;
	int running;

	l->inside = true;
	curl_multi_socket_action(l->multi, fd, flags, &running);
	if (!read_on(l)) {
		uv_idle_start(&l->more, on_more);
	} else {
		uv_idle_stop(&l->more);
		if (l->records - before >= REST_RECORDS)
			rest(l);
	}
	l->inside = false;
	settle(l);
	tell_finished(l);
}

static void on_more(uv_idle_t *idle)
{
	act(container_of(idle, struct curl_loop, more), CURL_SOCKET_TIMEOUT, 0);
}

/*
 * libuv stops a poll whose socket has an error (src/unix/poll.c, uv__poll_io, 1.44). Passing
 * CURL_CSELECT_ERR would end only one of the connection's transfers; the others would read what
 * came before the error, see no error, and wait for a socket that is no longer polled. So the poll
 * is started again, and every transfer reads until it meets the error itself.
 */
static void on_socket(uv_poll_t *handle, int status, int events)
{
	struct curl_loop_socket *s = container_of(handle, struct curl_loop_socket, poll);
	int flags = 0;

	if (status < 0) {
		(void)uv_poll_start(handle, s->events, on_socket);
		events = UV_READABLE | UV_WRITABLE;
	}
	if (events & UV_READABLE)
		flags |= CURL_CSELECT_IN;
	if (events & UV_WRITABLE)
		flags |= CURL_CSELECT_OUT;
	act(s->owner, s->fd, flags);
}

static void on_timer(uv_timer_t *handle)
{
	act(container_of(handle, struct curl_loop, timer), CURL_SOCKET_TIMEOUT, 0);
}

static void socket_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct curl_loop_socket, poll));
}

/*
 * CURLMOPT_SOCKETFUNCTION: curl wants this socket polled for WHAT, or no longer polled. A result
 * other than 0 would end the whole pool; so without memory the socket is not polled, and the
 * transfer ends by its timeout.
 */
static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket)
{
	struct curl_loop *l = arg;
	struct curl_loop_socket *s = socket;

	if (what == CURL_POLL_REMOVE) {
		if (s) {
			DL_DELETE(l->sockets, s);
			uv_poll_stop(&s->poll);
			uv_close((uv_handle_t *)&s->poll, socket_closed);
			curl_multi_assign(l->multi, fd, NULL);
		}
		return 0;
	}
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return 0;
		s->owner = l;
		s->fd = fd;
		if (uv_poll_init_socket(l->loop, &s->poll, fd) < 0) {
			free(s);
			return 0;
		}
		DL_APPEND(l->sockets, s);
		curl_multi_assign(l->multi, fd, s);
	}
	s->events = what == CURL_POLL_IN    ? UV_READABLE
		    : what == CURL_POLL_OUT ? UV_WRITABLE
					    : UV_READABLE | UV_WRITABLE;
	(void)uv_poll_start(&s->poll, s->events, on_socket); /* fails while closing only */
	return 0;
}

/* CURLMOPT_TIMERFUNCTION: curl wants to be called after TIMEOUT_MS; it must not be called from
 * inside this function, so 0 means the next turn of the loop. */
static int timer_changed(CURLM *multi, long timeout_ms, void *arg)
{
	struct curl_loop *l = arg;

	if (timeout_ms < 0)
		uv_timer_stop(&l->timer);
	else if (!closed(l))
		uv_timer_start(&l->timer, on_timer, (uint64_t)timeout_ms, 0);
	return 0;
}

int curl_loop_new(uv_loop_t *loop, unsigned int pool_max, struct curl_loop **ret)
{
	struct curl_loop *l = calloc(1, sizeof(*l));

	if (!l || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		free(l);
		return -ENOMEM;
	}
	l->loop = loop;
	l->multi = curl_multi_init();
	if (!l->multi) {
		free(l);
		return -ENOMEM;
	}
	(void)uv_timer_init(loop, &l->timer); /* cannot fail */
	(void)uv_idle_init(loop, &l->more);
	(void)uv_timer_init(loop, &l->rest);
	l->timer.data = l->more.data = l->rest.data = l;
	l->handles = 3;
	curl_multi_setopt(l->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	curl_multi_setopt(l->multi, CURLMOPT_SOCKETDATA, l);
	curl_multi_setopt(l->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
	curl_multi_setopt(l->multi, CURLMOPT_TIMERDATA, l);
	curl_multi_setopt(l->multi, CURLMOPT_MAXCONNECTS, (long)pool_max);
	*ret = l;
	return 0;
}

struct curl_loop *curl_loop_free(struct curl_loop *l)
{
	if (!l)
		return NULL;
	if (l->inside)
		l->closing = true;
	else
		close_now(l);
	return NULL;
}

int curl_loop_add(struct curl_loop *l, struct curl_transfer *t)
{
	t->gone = false;
	if (curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t) != CURLE_OK)
		return -ENOMEM;
	if (l->inside) {
		t->state = CURL_TRANSFER_DUE;
		DL_APPEND(l->due, t);
		return 0;
	}
	return take_in(l, t);
}

static void on_tls_message(int sent, int version, int type, const void *bytes, size_t len, SSL *tls,
			   void *arg)
{
	struct curl_loop *l = arg;

	l->records += !sent && type == SSL3_RT_HEADER;
}

/* CURLOPT_SSL_CTX_FUNCTION. The pool outlives its connections, so ARG stays valid. */
static CURLcode on_tls_made(CURL *easy, void *ctx, void *arg)
{
	SSL_CTX_set_read_ahead(ctx, 1);
	SSL_CTX_set_default_read_buffer_len(ctx, AHEAD_BYTES);
	SSL_CTX_set_msg_callback(ctx, on_tls_message);
	SSL_CTX_set_msg_callback_arg(ctx, arg);
	return CURLE_OK;
}

void curl_loop_read_ahead(struct curl_loop *l, struct curl_transfer *t)
{
	const char *tls = curl_version_info(CURLVERSION_NOW)->ssl_version;

	t->read_ahead =
	    tls && has_prefix(tls, "OpenSSL/") &&
	    curl_easy_setopt(t->easy, CURLOPT_SSL_CTX_DATA, l) == CURLE_OK &&
	    curl_easy_setopt(t->easy, CURLOPT_SSL_CTX_FUNCTION, on_tls_made) == CURLE_OK;
}

void curl_loop_drop(struct curl_loop *l, struct curl_transfer *t)
{
	if (t->gone)
		return;
	t->gone = true;
	if (t->state == CURL_TRANSFER_DUE) {
		DL_DELETE(l->due, t);
		t->state = CURL_TRANSFER_OUT;
	}
	if (l->inside)
		DL_APPEND(l->gone, t);
	else
		drop_now(l, t);
}

int curl_override_name(char **text, const char *name, char **ret_host, char **ret_connect_to)
{
	CURLU *url = curl_url();
	char *host = NULL, *port = NULL, *full = NULL;
	_cleanup_free_ char *new_url = NULL, *new_host = NULL, *connect_to = NULL;
	int r = -ENOMEM;

	if (!url)
		return -ENOMEM;
	if (curl_url_set(url, CURLUPART_URL, *text, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
	    curl_url_set(url, CURLUPART_HOST, name, 0) == CURLUE_OK &&
	    curl_url_get(url, CURLUPART_URL, &full, 0) == CURLUE_OK) {
		new_url = strdup(full);
		if (asprintf(&new_host, "%s:%s", host, port) < 0)
			new_host = NULL;
		if (asprintf(&connect_to, "::%s:%s", host, port) < 0)
			connect_to = NULL;
		r = new_url && new_host && connect_to ? 0 : -ENOMEM;
	} else {
		r = -EINVAL;
	}
	curl_free(host);
	curl_free(port);
	curl_free(full);
	curl_url_cleanup(url);
	if (r < 0)
		return r;
	free(*text);
	*text = TAKE_PTR(new_url);
	*ret_host = TAKE_PTR(new_host);
	*ret_connect_to = TAKE_PTR(connect_to);
	return 0;
}

const char *curl_no_proxy(const char *authority)
{
	const char *list = getenv("no_proxy"); /* curl's order */
	struct host_port hp;

	if (!list)
		list = getenv("NO_PROXY");
	return list && parse_host_port(authority, &hp) == 0 && http_proxy_exempt(list, hp.host)
		   ? "*"
		   : "";
}

int curl_add_header(struct curl_slist **list, const char *key, const char *value)
{
	_cleanup_free_ char *line = NULL;
	struct curl_slist *longer;

	if (asprintf(&line, "%s: %s", key, value) < 0) {
		line = NULL;
		return -ENOMEM;
	}
	longer = curl_slist_append(*list, line);
	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}
