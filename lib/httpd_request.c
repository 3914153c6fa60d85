/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request from complete headers to its answer.
 *
 * A request belongs to its connection (conn->req) until httpd_reply() or httpd_request_gone() frees
 * it. The answer is rendered at once into conn->out; httpd_conn.c sends it as the socket takes it
 * and then closes. Everything runs on the loop's thread.
 */
#include "lib/httpd_internal.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <strings.h>

#include "lib/buf.h"

static struct httpd_request *request_free(struct httpd_request *req)
{
	if (!req)
		return NULL;
	for (size_t i = 0; i < req->n_params; i++)
		free(req->param_text[i]);
	for (size_t i = 0; i < ARRAY_SIZE(req->headers); i++)
		free(req->headers[i]);
	free(req->path);
	free(req->body);
	free(req);
	return NULL;
}
DEFINE_CLEANUP(struct httpd_request *, request_free)

/* ---- answers --------------------------------------------------------------------------------- */

static const char *status_text(unsigned int status)
{
	static const struct {
		unsigned int status;
		const char *text;
	} texts[] = {
	    {200, "OK"},
	    {204, "No Content"},
	    {400, "Bad Request"},
	    {401, "Unauthorized"},
	    {403, "Forbidden"},
	    {404, "Not Found"},
	    {405, "Method Not Allowed"},
	    {411, "Length Required"},
	    {413, "Content Too Large"},
	    {414, "URI Too Long"},
	    {429, "Too Many Requests"},
	    {500, "Internal Server Error"},
	    {501, "Not Implemented"},
	    {503, "Service Unavailable"},
	    {504, "Gateway Timeout"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].status == status)
			return texts[i].text;
	return "Unknown";
}

static bool given(const struct httpd_header *headers, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcasecmp(headers[i].name, name) == 0)
			return true;
	return false;
}

/* LEN SIZE_MAX: no Content-Length; the body ends when the connection closes. */
void httpd_render_headers(struct buf *b, unsigned int status, const char *content_type,
			  const struct httpd_header *headers, size_t n, size_t len)
{
	static const struct httpd_header defaults[] = {
	    {"Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"},
	    {"Cache-Control", "no-store"},
	    {"Cross-Origin-Resource-Policy", "same-origin"},
	    {"Referrer-Policy", "no-referrer"},
	    {"X-Content-Type-Options", "nosniff"},
	    {"X-Frame-Options", "DENY"},
	};

	buf_printf(b, "HTTP/1.1 %u %s\r\nConnection: close\r\n", status, status_text(status));
	if (len != SIZE_MAX)
		buf_printf(b, "Content-Length: %zu\r\n", len);
	if (content_type)
		buf_printf(b, "Content-Type: %s\r\n", content_type);
	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++)
		if (!given(headers, n, defaults[i].name))
			buf_printf(b, "%s: %s\r\n", defaults[i].name, defaults[i].value);
	for (size_t i = 0; i < n; i++) {
		/* A line break would let a value add headers of its own. */
		if (strpbrk(headers[i].name, "\r\n:") || strpbrk(headers[i].value, "\r\n"))
			continue;
		buf_printf(b, "%s: %s\r\n", headers[i].name, headers[i].value);
	}
	buf_puts(b, "\r\n");
}

void httpd_respond(struct httpd_conn *conn, bool head, unsigned int status,
		   const char *content_type, const struct httpd_header *headers, size_t n_headers,
		   const void *body, size_t len)
{
	struct buf b;

	if (conn->out || !conn->wsi)
		return;
	buf_init(&b, HTTPD_REPLY_MAX + 65536UL);
	if (!buf_extend(&b, LWS_PRE) || len > HTTPD_REPLY_MAX) {
		buf_done(&b);
		conn->deadline_ms = 0;
		return;
	}
	httpd_render_headers(&b, status, content_type, headers, n_headers, len);
	if (!head)
		buf_append(&b, body, len);
	if (buf_error(&b)) {
		/* No memory for an answer: the connection is closed without one. */
		buf_done(&b);
		conn->deadline_ms = 0;
		return;
	}
	conn->out_len = b.len - LWS_PRE;
	conn->out_pos = 0;
	conn->out = (uint8_t *)buf_take(&b);
	conn->deadline_ms = uv_now(conn->server->loop) + conn->server->send_timeout_s * 1000ULL;
	lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
	if (conn->req && conn->req->kept)
		lws_rx_flow_control(conn->wsi,
				    1); /* else libwebsockets would not poll for writing */
	lws_callback_on_writable(conn->wsi);
}

void httpd_respond_error(struct httpd_conn *conn, unsigned int status, const char *allow)
{
	const struct httpd_header header = {"Allow", allow};
	char text[64];

	snprintf(text, sizeof(text), "%s\n", status_text(status));
	httpd_respond(conn, conn->req && conn->req->method == HTTPD_HEAD, status,
		      "text/plain; charset=utf-8", &header, allow ? 1 : 0, text, strlen(text));
}

void httpd_reply(struct httpd_request *req, unsigned int status, const char *content_type,
		 const struct httpd_header *headers, size_t n_headers, const void *body, size_t len)
{
	struct httpd_conn *conn = req->conn;

	httpd_respond(conn, req->method == HTTPD_HEAD, status, content_type, headers, n_headers,
		      body, len);
	conn->req = request_free(req);
}

void httpd_reply_text(struct httpd_request *req, unsigned int status, const char *format, ...)
{
	char text[1024];
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(text, sizeof(text) - 1, format, ap);
	va_end(ap);
	n = n < 0 ? 0 : MIN(n, (int)sizeof(text) - 2);
	text[n++] = '\n';
	httpd_reply(req, status, "text/plain; charset=utf-8", NULL, 0, text, (size_t)n);
}

void httpd_keep(struct httpd_request *req, unsigned int timeout_s,
		void (*on_gone)(struct httpd_request *req, void *user), void *user)
{
	struct httpd_conn *conn = req->conn;

	if (req->kept)
		return;
	req->kept = true;
	req->on_gone = on_gone;
	req->gone_user = user;
	conn->deadline_ms =
	    uv_now(conn->server->loop) + MIN(timeout_s, (unsigned int)HTTPD_KEEP_MAX_S) * 1000ULL;
	/* The watch timer has the deadline; unread bytes of this client must not wake the loop. */
	lws_set_timeout(conn->wsi, NO_PENDING_TIMEOUT, 0);
	lws_rx_flow_control(conn->wsi, 0);
}

void httpd_request_gone(struct httpd_conn *conn)
{
	_cleanup_(request_freep) struct httpd_request *req = TAKE_PTR(conn->req);

	if (req && req->kept && req->on_gone)
		req->on_gone(req, req->gone_user);
}

/* ---- requests -------------------------------------------------------------------------------- */

static enum httpd_method method_of(struct lws *wsi)
{
	if (lws_hdr_total_length(wsi, WSI_TOKEN_GET_URI))
		return HTTPD_GET;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_HEAD_URI))
		return HTTPD_HEAD;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_POST_URI))
		return HTTPD_POST;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_PUT_URI))
		return HTTPD_PUT;
	if (lws_hdr_total_length(wsi, WSI_TOKEN_DELETE_URI))
		return HTTPD_DELETE;
	return HTTPD_OTHER;
}

static const enum lws_token_indexes uri_tokens[] = {
    WSI_TOKEN_GET_URI,	  WSI_TOKEN_HEAD_URI,	 WSI_TOKEN_POST_URI,  WSI_TOKEN_PUT_URI,
    WSI_TOKEN_DELETE_URI, WSI_TOKEN_OPTIONS_URI, WSI_TOKEN_PATCH_URI,
};

/* The path, percent-decoded and with dot segments resolved by libwebsockets. 0 or an HTTP status.
 */
static int read_path(struct lws *wsi, struct httpd_request *req)
{
	int len = 0;

	req->path = malloc(HTTPD_PATH_MAX + 1);
	if (!req->path)
		return 500;
	req->path[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(uri_tokens) && !len; i++) {
		len = lws_hdr_total_length(wsi, uri_tokens[i]);
		/* token_limits (httpd_context.c) cuts the path at this length, so it may be
		 * incomplete. */
		if (len >= HTTPD_PATH_MAX)
			return 414;
		if (len && lws_hdr_copy(wsi, req->path, HTTPD_PATH_MAX + 1, uri_tokens[i]) < 0)
			return 400;
	}
	return len ? 0 : 400;
}

/* 0 or an HTTP status. */
static int read_params(struct lws *wsi, struct httpd_request *req)
{
	char text[HTTPD_PARAM_MAX + 8], *equals;

	for (int i = 0;; i++) {
		int n = lws_hdr_copy_fragment(wsi, text, sizeof(text), WSI_TOKEN_HTTP_URI_ARGS, i);

		if (n < 0)
			return 0;
		if (n >= HTTPD_PARAM_MAX || req->n_params == HTTPD_PARAMS_MAX)
			return 414;
		if (!n)
			continue;
		text[n] = 0;
		req->param_text[req->n_params] = strdup(text);
		if (!req->param_text[req->n_params])
			return 500;
		equals = strchr(req->param_text[req->n_params], '=');
		if (equals)
			*equals++ = 0;
		req->params[req->n_params].name = req->param_text[req->n_params];
		req->params[req->n_params].value = equals ? equals : "";
		req->n_params++;
	}
}

/* 0 or an HTTP status. */
static int read_length(struct lws *wsi, struct httpd_request *req)
{
	char text[32], *end;
	unsigned long long n;

	if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING))
		return 411;
	if (!lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH))
		return 0;
	if (lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HTTP_CONTENT_LENGTH) <= 0 ||
	    strspn(text, "0123456789") != strlen(text))
		return 400;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || n > HTTPD_BODY_MAX)
		return 413;
	req->body_size = (size_t)n;
	req->body = n ? malloc(n) : NULL;
	return n && !req->body ? 500 : 0;
}

/* libwebsockets knows no token for this header: it is found by its name, in lower case. */
static int read_fetch_site(struct lws *wsi, struct httpd_request *req)
{
	static const char name[] = "sec-fetch-site:";
	int n = lws_hdr_custom_length(wsi, name, sizeof(name) - 1);
	char *value;

	if (n <= 0)
		return 0;
	if (n > HTTPD_HEADER_MAX)
		return 400;
	value = req->headers[HTTPD_SEC_FETCH_SITE] = calloc(1, (size_t)n + 1);
	if (!value)
		return 500;
	return lws_hdr_custom_copy(wsi, value, n + 1, name, sizeof(name) - 1) < 0 ? 400 : 0;
}

/* 0 or an HTTP status. */
static int read_headers(struct lws *wsi, struct httpd_request *req)
{
	static const enum lws_token_indexes tokens[] = {
	    [HTTPD_HOST] = WSI_TOKEN_HOST,
	    [HTTPD_ORIGIN] = WSI_TOKEN_ORIGIN,
	    [HTTPD_AUTHORIZATION] = WSI_TOKEN_HTTP_AUTHORIZATION,
	};

	for (size_t i = 0; i < ARRAY_SIZE(tokens); i++) {
		int n = lws_hdr_total_length(wsi, tokens[i]);

		if (!n)
			continue;
		if (n > HTTPD_HEADER_MAX)
			return 400;
		req->headers[i] = calloc(1, (size_t)n + 1);
		if (!req->headers[i])
			return 500;
		if (lws_hdr_copy(wsi, req->headers[i], n + 1, tokens[i]) < 0)
			return 400;
	}
	return read_fetch_site(wsi, req);
}

/* Splits the port off a Host header, in place. */
static char *host_name(char *text)
{
	char *end;

	if (text[0] == '[') {
		end = strchr(text, ']');
		if (!end)
			return text;
		*end = 0;
		return text + 1;
	}
	text[strcspn(text, ":")] = 0;
	return text;
}

/* Is TEXT an address of the loopback range? A name that only begins like one is not. */
static bool is_loopback_address(const char *text)
{
	struct in6_addr v6;
	struct in_addr v4;

	if (inet_pton(AF_INET, text, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/*
 * DNS rebinding: a web page elsewhere lets a name of its own point to 127.0.0.1, and so makes its
 * visitor's browser ask servers on the visitor's own machine. A server that listens on loopback
 * therefore answers only when the Host header is a loopback address, "localhost", or the name that
 * it was configured with.
 */
static bool host_allowed(const struct httpd *h, struct lws *wsi)
{
	char text[256], *name;

	if (!h->loopback || !lws_hdr_total_length(wsi, WSI_TOKEN_HOST))
		return true;
	if (lws_hdr_copy(wsi, text, sizeof(text), WSI_TOKEN_HOST) <= 0)
		return false;
	name = host_name(text);
	return strcasecmp(name, "localhost") == 0 || is_loopback_address(name) ||
	       (h->host && strcasecmp(name, h->host) == 0);
}

void httpd_request_begin(struct httpd_conn *conn)
{
	struct httpd_request *req;
	int status;

	if (conn->req || conn->out)
		return;
	req = calloc(1, sizeof(*req));
	if (!req) {
		httpd_respond_error(conn, 500, NULL);
		return;
	}
	req->conn = conn;
	req->method = method_of(conn->wsi);
	conn->req = req;
	status = host_allowed(conn->server, conn->wsi) ? 0 : 403;
	if (!status)
		status = read_path(conn->wsi, req);
	if (!status)
		status = read_params(conn->wsi, req);
	if (!status)
		status = read_length(conn->wsi, req);
	if (!status)
		status = read_headers(conn->wsi, req);
	if (status) {
		httpd_respond_error(conn, (unsigned int)status, NULL);
		conn->req = request_free(req);
		return;
	}
	if (!req->body_size)
		httpd_request_dispatch(conn);
}

void httpd_request_data(struct httpd_conn *conn, const void *data, size_t len)
{
	struct httpd_request *req = conn->req;

	if (!req || req->kept)
		return;
	len = MIN(len, req->body_size - req->body_len);
	if (len)
		memcpy(req->body + req->body_len, data, len);
	req->body_len += len;
}

static const struct httpd_route *find_route(const struct httpd *h, const char *path)
{
	for (size_t i = 0; i < h->n_routes; i++)
		if (streq(h->routes[i].path, path))
			return &h->routes[i];
	return NULL;
}

static void allowed_methods(unsigned int methods, char *out, size_t size)
{
	static const struct {
		unsigned int bit;
		const char *name;
	} names[] = {{HTTPD_GET, "GET"},
		     {HTTPD_HEAD, "HEAD"},
		     {HTTPD_POST, "POST"},
		     {HTTPD_PUT, "PUT"},
		     {HTTPD_DELETE, "DELETE"}};
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if ((methods & names[i].bit) && n < size)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "",
					      names[i].name);
}

void httpd_request_dispatch(struct httpd_conn *conn)
{
	struct httpd_request *req = conn->req;
	const struct httpd_route *route;
	unsigned int methods;
	char allow[64];

	if (!req || req->kept)
		return;
	route = find_route(conn->server, req->path);
	if (!route) {
		httpd_respond_error(conn, 404, NULL);
		conn->req = request_free(req);
		return;
	}
	methods = route->methods | (route->methods & HTTPD_GET ? HTTPD_HEAD : 0);
	if (!(methods & req->method)) {
		allowed_methods(methods, allow, sizeof(allow));
		httpd_respond_error(conn, 405, allow);
		conn->req = request_free(req);
		return;
	}
	route->handle(req, route->user);
	/* The handler neither answered nor kept the request. */
	if (conn->req == req && !req->kept) {
		httpd_respond_error(conn, 500, NULL);
		conn->req = request_free(req);
	}
}

/* ---- what handlers see ----------------------------------------------------------------------- */

enum httpd_method httpd_request_method(const struct httpd_request *req)
{
	return req->method;
}

const char *httpd_request_path(const struct httpd_request *req)
{
	return req->path;
}

const char *httpd_request_param(const struct httpd_request *req, const char *name)
{
	for (size_t i = 0; i < req->n_params; i++)
		if (streq(req->params[i].name, name))
			return req->params[i].value;
	return NULL;
}

int httpd_request_param_u64(const struct httpd_request *req, const char *name, uint64_t min,
			    uint64_t max, uint64_t fallback, uint64_t *ret, struct error *err)
{
	const char *text = httpd_request_param(req, name);
	unsigned long long n;
	char *end;

	if (!text) {
		*ret = fallback;
		return 0;
	}
	errno = 0;
	n = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || n < min || n > max)
		return error_set(err, -EINVAL, "%s: want a number from %llu to %llu", name,
				 (unsigned long long)min, (unsigned long long)max);
	*ret = n;
	return 0;
}

const char *httpd_request_header(const struct httpd_request *req, enum httpd_request_header which)
{
	return req->headers[which];
}

const void *httpd_request_body(const struct httpd_request *req, size_t *ret_len)
{
	*ret_len = req->body_len;
	return req->body;
}
