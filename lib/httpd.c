/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life. It listens and accepts by itself and hands each socket over to libwebsockets
 * (httpd_conn.c): so it can report why listening failed, and knows the exact number of connections.
 * Each server has its own lws_context on the caller's loop (httpd_context.c). Loop thread only.
 */
#include "lib/httpd_internal.h"
#include "lib/listen.h"

void httpd_on_handle_closed(uv_handle_t *handle)
{
	struct httpd *h = handle->data;

	if (--h->open_handles)
		return;
	free(h->host);
	free(h);
}

struct httpd *httpd_free(struct httpd *h)
{
	if (!h || h->closing)
		return NULL;
	h->closing = true;
	uv_poll_stop(&h->listener);
	uv_timer_stop(&h->watch);
	uv_close((uv_handle_t *)&h->listener, httpd_on_handle_closed);
	uv_close((uv_handle_t *)&h->watch, httpd_on_handle_closed);
	close(h->listen_fd);
	for (struct httpd_conn *conn = h->conns; conn; conn = conn->next)
		httpd_request_gone(conn);
	httpd_context_stop(h);
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
	r = listen_tcp(options->host, options->port, &blank->listen_fd, blank->address,
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
	r = httpd_context_start(h, &options->tls, err);
	if (r < 0)
		return r;
	r = uv_poll_start(&h->listener, UV_READABLE, httpd_on_listener);
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
