/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libcurl on libuv: curl says which sockets it waits for and when it wants to be woken, one uv_poll
 * a socket and one timer do that. Everything on the loop thread; curl resolves names on a thread of
 * its own.
 *
 * Invariant: `inside` is set while curl may be on the stack below one of its callbacks. What comes
 * in then (transfers to add or to drop, the end of the pool) is noted on the lists `due` and
 * `gone` and in `closing`, and settle() does it after curl has returned.
 */
#include "lib/curl_loop.h"

#include <utlist.h>

struct curl_loop {
	uv_timer_t timer;
	uv_loop_t *loop;
	CURLM *multi;
	struct curl_transfer *due, *gone; /* noted while inside */
	bool inside, closing;
};

struct curl_loop_socket {
	uv_poll_t poll;
	struct curl_loop *owner;
	curl_socket_t fd;
};

static void on_closed(uv_handle_t *handle)
{
	free(container_of((uv_timer_t *)handle, struct curl_loop, timer));
}

static bool closed(const struct curl_loop *l)
{
	return uv_is_closing((const uv_handle_t *)&l->timer);
}

static void close_now(struct curl_loop *l)
{
	curl_multi_cleanup(l->multi); /* closes its sockets through socket_changed() */
	uv_close((uv_handle_t *)&l->timer, on_closed);
}

static void drop_now(struct curl_loop *l, struct curl_transfer *t)
{
	if (t->state == CURL_TRANSFER_IN)
		curl_multi_remove_handle(l->multi, t->easy);
	t->state = CURL_TRANSFER_OUT;
	t->dropped(t);
}

/* curl has returned: what was asked for meanwhile. Callbacks may ask for more and free the pool. */
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
		t->state = CURL_TRANSFER_IN;
		if (curl_multi_add_handle(l->multi, t->easy) != CURLM_OK) {
			t->state = CURL_TRANSFER_OUT;
			t->done(t, CURLE_OUT_OF_MEMORY);
		}
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
		code = m->data.result; /* the message goes with the handle */
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
		curl_multi_remove_handle(l->multi, t->easy);
		t->state = CURL_TRANSFER_OUT;
		t->done(t, code);
	}
}

static void act(struct curl_loop *l, curl_socket_t fd, int flags)
{
	int running;

	l->inside = true;
	curl_multi_socket_action(l->multi, fd, flags, &running);
	l->inside = false;
	settle(l);
	tell_finished(l);
}

static void on_socket(uv_poll_t *handle, int status, int events)
{
	struct curl_loop_socket *s = container_of(handle, struct curl_loop_socket, poll);
	int flags = 0;

	if (status < 0)
		flags = CURL_CSELECT_ERR;
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
 * curl: watch this socket so, or no longer. Anything but 0 would be the end of the whole pool for
 * curl; without memory the transfer hears nothing instead, and its time runs out.
 */
static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket)
{
	struct curl_loop *l = arg;
	struct curl_loop_socket *s = socket;
	int events = 0;

	if (what == CURL_POLL_REMOVE) {
		if (s) {
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
		curl_multi_assign(l->multi, fd, s);
	}
	if (what != CURL_POLL_IN)
		events |= UV_WRITABLE;
	if (what != CURL_POLL_OUT)
		events |= UV_READABLE;
	(void)uv_poll_start(&s->poll, events, on_socket); /* fails while closing only */
	return 0;
}

/* curl: wake me after that long; never from inside this call, so 0 becomes the next turn. */
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
	if (!l->multi || uv_timer_init(loop, &l->timer) < 0) {
		if (l->multi)
			curl_multi_cleanup(l->multi);
		free(l);
		return -ENOMEM;
	}
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
	if (curl_multi_add_handle(l->multi, t->easy) != CURLM_OK)
		return -ENOMEM;
	t->state = CURL_TRANSFER_IN;
	return 0;
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
