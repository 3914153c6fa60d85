/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the HTTP server (lib/httpd*.c) only. */
#pragma once

#include "lib/httpd.h"

#include <libwebsockets.h>

enum { HTTPD_SEND_CHUNK = 65536 };

struct httpd_conn {
	struct httpd *server;
	struct lws *wsi; /* NULL once closed */
	struct httpd_request *req;
	struct httpd_conn *next, **link; /* in httpd.conns */
	uint8_t *out;			 /* LWS_PRE spare bytes, then the answer */
	size_t out_len, out_pos;	 /* of the answer, without LWS_PRE */
	uint64_t deadline_ms; /* uv_now() time; for the current phase of the connection */
};

struct httpd_param {
	const char *name, *value;
};

struct httpd_request {
	struct httpd_conn *conn;
	enum httpd_method method;
	char *path;
	struct httpd_param params[HTTPD_PARAMS_MAX];
	char *param_text[HTTPD_PARAMS_MAX]; /* owns the strings */
	size_t n_params;
	uint8_t *body;
	size_t body_len, body_size; /* arrived, announced */
	char *headers[HTTPD_REQUEST_HEADERS];
	bool kept;
	bool streaming; /* kept, too */
	bool stalled;
	void (*on_sent)(struct httpd_request *req, void *user);
	void (*on_gone)(struct httpd_request *req, void *user);
	void *gone_user;
};

struct httpd {
	uv_loop_t *loop;
	struct lws_context *lws;
	struct lws_vhost *vhost;
	struct httpd_route routes[HTTPD_ROUTES_MAX];
	size_t n_routes;
	unsigned int max_connections, request_timeout_s, send_timeout_s;
	bool loopback; /* only local clients: their Host header must name this machine */
	bool closing;
	char address[128];
	uint16_t port;
	char *host; /* as configured, may be NULL */
	int listen_fd;
	uv_poll_t listener;
	/* Checks deadlines and for clients that left; runs while there are connections. */
	uv_timer_t watch;
	uv_idle_t reaper; /* waits for the context's handles while closing */
	unsigned int open_handles;
	const uv_handle_t *lws_handles[4]; /* the context's idle and timer handles */
	size_t n_lws_handles;
	int lws_wake_fd;    /* the context's eventfd */
	int reserve_fds[4]; /* httpd_context.c, close_lws() */
	struct httpd_conn *conns;
	unsigned int n_conns;
	bool paused; /* not accepting: full, or out of descriptors */
	struct lws_token_limits limits;
	struct lws_protocols protocols[2];
};

/* httpd.c: one of the server's handles has closed; the last one frees the memory. */
void httpd_on_handle_closed(uv_handle_t *handle);

/* httpd_context.c. After a failed start, httpd_context_stop() must be called too. */
int httpd_context_start(struct httpd *h, const struct httpd_tls *tls,
			struct error *err) _must_check_;
void httpd_context_stop(struct httpd *h);

/* httpd_conn.c */
void httpd_on_listener(uv_poll_t *poll, int status, int events);
int httpd_on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
		 size_t len);

/* httpd_tls.c: fills in INFO for libwebsockets; its strings are TLS's. */
int httpd_set_tls(const struct httpd_tls *tls, struct lws_context_creation_info *info,
		  struct error *err) _must_check_;

/* httpd_request.c: the life of one request. */
void httpd_request_begin(struct httpd_conn *conn); /* headers are complete */
void httpd_request_data(struct httpd_conn *conn, const void *data, size_t len);
void httpd_request_dispatch(struct httpd_conn *conn);
void httpd_request_gone(struct httpd_conn *conn);
struct buf;
void httpd_render_headers(struct buf *b, unsigned int status, const char *content_type,
			  const struct httpd_header *headers, size_t n, size_t len);
void httpd_stream_sent(struct httpd_conn *conn); /* the piece in conn->out went out */
/* Sends an answer on a connection that may have no request, for errors before there is one. */
void httpd_respond(struct httpd_conn *conn, bool head, unsigned int status,
		   const char *content_type, const struct httpd_header *headers, size_t n_headers,
		   const void *body, size_t len);
void httpd_respond_error(struct httpd_conn *conn, unsigned int status, const char *allow);
