/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes and clients. A client has no queue: it has a cursor into the aggregate's tables and the
 * number of the next window that it needs. The history that all clients share holds what it has not
 * received. One piece is being sent to a client at a time; when it was sent, or a window came,
 * pump() makes the next one.
 *
 * A new client gets the totals, then the windows of the history as past ones (they are in the
 * totals already), then each window as it comes, at LIVE_RATE. A client that falls behind by more
 * than LIVE_LAG_MAX windows gets the totals again instead of these windows.
 *
 * When the aggregate's entries were renumbered, every client starts over with a greeting. Loop's
 * thread.
 */
#include "agent/live/live.h"

#include "agent/http/debug_pprof.h"
#include "agent/live/access.h"
#include "agent/live/aggregate.h"
#include "agent/live/assets.h"
#include "agent/live/encode.h"
#include "agent/live/profile.h"
#include "agent/live/svg.h"
#include "agent/profile/folded.h"
#include "agent/profile/otlp.h"
#include "agent/profile/pprof.h"
#include "lib/httpd.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum { PROFILE_BYTES_MAX = 64 << 20, WINDOW_S_MAX = 3600 };

struct client {
	struct live *owner; /* NULL: the slot is free */
	struct httpd_request *req;
	struct live_cursor cursor;
	bool busy;	     /* a piece is under way */
	bool greeted;	     /* it has had the totals */
	uint64_t totals_seq; /* newest window that its totals hold */
	uint64_t next_seq;
	uint64_t skipped;
	uint64_t not_before_ms; /* uv_now(), of the next new window */
};

struct live {
	uv_loop_t *loop;
	struct httpd *server;
	struct aggregate *aggregate;
	struct debug_pprof *captures;
	struct access access;
	uint64_t window_ms;
	unsigned int born; /* of the aggregate's numbers that clients have */
	char host[256];
	struct client clients[LIVE_CLIENTS_MAX];
	unsigned int n_clients;
};

static const struct httpd_header page_headers[] = {
    {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "
				"img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
				"form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
};

/* nginx keeps an answer back until it has a buffer full, unless it is told this way
 * (nginx.org, ngx_http_proxy_module, proxy_buffering). */
static const struct httpd_header stream_headers[] = {
    {"X-Accel-Buffering", "no"},
};

/* ---- the stream ------------------------------------------------------------------------------ */

static void send_totals(struct client *c, struct buf *out)
{
	const struct aggregate *a = c->owner->aggregate;

	live_encode_totals(a, &c->cursor, c->skipped, out);
	c->totals_seq = a->next_seq - 1;
}

static void greet(struct client *c, struct buf *out)
{
	const struct live *l = c->owner;

	live_encode_hello(l->aggregate, l->host, l->window_ms, out);
	send_totals(c, out);
	c->next_seq = l->aggregate->first_seq;
	c->greeted = true;
}

/* Encodes the windows that are due: one new one, or several past ones. Nothing if the client must
 * wait. */
static void next_windows(struct client *c, struct buf *out)
{
	const struct aggregate *a = c->owner->aggregate;
	uint64_t now = uv_now(c->owner->loop);

	c->next_seq = MAX(c->next_seq, a->first_seq);
	while (c->next_seq <= c->totals_seq && out->len < LIVE_PIECE) {
		live_encode_window(a, aggregate_window(a, c->next_seq), true, &c->cursor, out);
		c->next_seq++;
	}
	if (out->len || c->next_seq >= a->next_seq || now < c->not_before_ms)
		return;
	if (a->next_seq - c->next_seq > LIVE_LAG_MAX) {
		uint64_t skips = a->next_seq - 1 - c->next_seq;

		metric_add(M_LIVE_WINDOWS_SKIPPED, (int64_t)skips);
		c->skipped += skips;
		c->next_seq = a->next_seq - 1;
		send_totals(c, out);
	}
	live_encode_window(a, aggregate_window(a, c->next_seq), c->next_seq <= c->totals_seq,
			   &c->cursor, out);
	c->next_seq++;
	c->not_before_ms = now + out->len * 1000 / LIVE_RATE;
}

/* After the entries were renumbered: the entries that the client has are no longer valid. */
static void greet_again(struct client *c)
{
	c->greeted = false;
	c->cursor = (struct live_cursor){0};
}

static void pump(struct client *c)
{
	struct buf out;

	if (c->busy)
		return;
	buf_init(&out, LIVE_MESSAGE_MAX);
	if (!c->greeted)
		greet(c, &out);
	else
		next_windows(c, &out);
	if (out.len) {
		int r = buf_error(&out);

		if (r == 0)
			r = httpd_stream_send(c->req, out.data, out.len);
		if (r < 0) {
			/* The cursor has advanced past data that was not sent, so the stream cannot
			 * continue. */
			log_debug("live", "a client is dropped: %s", strerror(-r));
			httpd_stream_end(c->req);
			*c = (struct client){0};
		} else {
			c->busy = true;
			metric_add(M_LIVE_BYTES, (int64_t)out.len);
		}
	}
	buf_done(&out);
}

static void count_clients(struct live *l)
{
	l->n_clients = 0;
	for (size_t i = 0; i < ARRAY_SIZE(l->clients); i++)
		l->n_clients += l->clients[i].owner != NULL;
	metric_set(M_LIVE_CLIENTS, l->n_clients);
}

static void on_sent(struct httpd_request *req, void *user)
{
	struct client *c = user;
	struct live *l = c->owner;

	c->busy = false;
	pump(c);
	count_clients(l);
}

static void on_gone(struct httpd_request *req, void *user)
{
	struct client *c = user;
	struct live *l = c->owner;

	if (httpd_stream_stalled(req))
		metric_add(M_LIVE_CLIENTS_STALLED, 1);
	*c = (struct client){0};
	count_clients(l);
}

static struct client *free_slot(struct live *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->clients); i++)
		if (!l->clients[i].owner)
			return &l->clients[i];
	return NULL;
}

/* Whether the request may have data; answers it when not. */
static bool allowed(struct live *l, struct httpd_request *req)
{
	static const struct httpd_header challenge = {"WWW-Authenticate", "Bearer"};
	static const char *const texts[] = {"the page of another site has no access here\n",
					    "a bearer token is required\n"};
	const struct access_request asked = {
	    .host = httpd_request_header(req, HTTPD_HOST),
	    .origin = httpd_request_header(req, HTTPD_ORIGIN),
	    .authorization = httpd_request_header(req, HTTPD_AUTHORIZATION),
	    .fetch_site = httpd_request_header(req, HTTPD_SEC_FETCH_SITE),
	};
	unsigned int status = access_check(&l->access, &asked);
	const char *text = texts[status == 401];

	if (!status)
		return true;
	metric_add(status == 401 ? M_LIVE_REFUSED_TOKEN : M_LIVE_REFUSED_ORIGIN, 1);
	httpd_reply(req, status, "text/plain; charset=utf-8", &challenge, status == 401, text,
		    strlen(text));
	return false;
}

static void handle_stream(struct httpd_request *req, void *user)
{
	struct live *l = user;
	struct client *c = free_slot(l);
	const struct httpd_stream_callbacks callbacks = {on_sent, on_gone, c};

	if (!allowed(l, req))
		return;
	if (httpd_request_method(req) == HTTPD_HEAD) {
		httpd_reply(req, 200, "application/octet-stream", NULL, 0, "", 0);
		return;
	}
	if (!c) {
		metric_add(M_LIVE_CLIENTS_REFUSED, 1);
		httpd_reply_text(req, 503, "%d clients are watching, try again later",
				 LIVE_CLIENTS_MAX);
		return;
	}
	*c = (struct client){.owner = l, .req = req, .busy = true};
	count_clients(l);
	httpd_stream_start(req, "application/octet-stream", stream_headers,
			   ARRAY_SIZE(stream_headers), &callbacks);
}

/* ---- the page and profiles ------------------------------------------------------------------- */

static void handle_asset(struct httpd_request *req, void *user)
{
	const struct live_asset *asset = user;

	httpd_reply(req, 200, asset->content_type, page_headers, ARRAY_SIZE(page_headers),
		    asset->data, (size_t)(asset->end - asset->data));
}

static int encode_folded(const struct batch *b, enum profile_kind kind, struct buf *out)
{
	struct folded *f = NULL;
	int r = folded_new(PROFILE_BYTES_MAX, kind, &f);

	if (r < 0)
		return r;
	r = folded_add(f, b);
	if (r == 0)
		r = folded_write(f, out);
	folded_free(f);
	return r;
}

static int encode_otlp(const struct batch *b, struct buf *out, struct error *err)
{
	const struct otlp_options options = {OTLP_G6, PROFILE_BYTES_MAX};
	struct otlp_request *requests = NULL;
	size_t n = 0;
	int r = otlp_encode(b, &options, &requests, &n, err);

	if (r < 0)
		return r;
	/* Concatenated protobuf messages are merged, but their dictionaries are not: a profile that
	 * needs more than one request cannot be downloaded. */
	if (n > 1)
		r = error_set(err, -E2BIG, "too large");
	else if (n == 1)
		r = buf_append(out, requests[0].data, requests[0].len);
	otlp_requests_free(requests, n);
	return r;
}

static const struct format {
	const char *name, *content_type, *file;
} formats[] = {
    {"pprof", "application/octet-stream", "attachment; filename=\"kiln.pb.gz\""},
    {"folded", "text/plain; charset=utf-8", "attachment; filename=\"kiln.folded\""},
    {"otlp", "application/x-protobuf", "attachment; filename=\"kiln.otlp.pb\""},
    {"svg", "image/svg+xml", "attachment; filename=\"kiln.svg\""},
};

static void send_profile(const struct live *l, struct httpd_request *req,
			 const struct format *format, enum profile_kind kind, const struct batch *b)
{
	const struct httpd_header headers[] = {{"Content-Disposition", format->file}};
	struct error err = {0};
	struct buf out;
	int r;

	buf_init(&out, PROFILE_BYTES_MAX);
	if (format == &formats[0])
		r = pprof_encode(&b, 1, NULL, &out, &err);
	else if (format == &formats[1])
		r = encode_folded(b, kind, &out);
	else if (format == &formats[2])
		r = encode_otlp(b, &out, &err);
	else
		r = svg_encode(b, kind, l->host, &out);
	if (r < 0)
		httpd_reply_text(req, 500, "profile: %s",
				 err.message[0] ? err.message : strerror(-r));
	else
		httpd_reply(req, 200, format->content_type, headers, ARRAY_SIZE(headers),
			    out.data ? out.data : "", out.len);
	buf_done(&out);
}

static const struct format *find_format(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (streq(formats[i].name, name ? name : formats[0].name))
			return &formats[i];
	return NULL;
}

/* Returns PROFILE_CPU for unknown names too. */
static enum profile_kind kind_of(const char *name)
{
	if (streq(name ? name : "", "off-cpu"))
		return PROFILE_OFF_CPU;
	if (streq(name ? name : "", "wall"))
		return FOLDED_WALL;
	return streq(name ? name : "", "probe") ? PROFILE_PROBE : PROFILE_CPU;
}

static void handle_profile(struct httpd_request *req, void *user)
{
	struct live *l = user;
	const struct format *format = find_format(httpd_request_param(req, "format"));
	const char *kind = httpd_request_param(req, "kind");
	enum profile_kind of = kind_of(kind);
	_cleanup_(batch_unrefp) struct batch *b = NULL;
	struct live_filter filter = {
	    .process = httpd_request_param(req, "process"),
	    .thread = httpd_request_param(req, "thread"),
	    .container = httpd_request_param(req, "container"),
	    .pod = httpd_request_param(req, "pod"),
	    .k8s_namespace = httpd_request_param(req, "namespace"),
	    .probe = httpd_request_param(req, "probe"),
	    .label = httpd_request_param(req, "label"),
	};
	const char *trace = httpd_request_param(req, "trace");
	struct live_trace_prefix prefix;
	struct error err = {0};
	int r;

	if (!allowed(l, req))
		return;
	if (!format)
		error_set(&err, -EINVAL, "format: want pprof, folded, otlp or svg");
	else if (kind && of == PROFILE_CPU && !streq(kind, "cpu"))
		error_set(&err, -EINVAL, "kind: want cpu, off-cpu, wall or probe");
	else if (filter.label && !strchr(filter.label, '='))
		error_set(&err, -EINVAL, "label: want KEY=VALUE");
	else if (trace && live_trace_parse(trace, &prefix) < 0)
		error_set(&err, -EINVAL, "trace: want up to 32 digits of hex, lower case");
	else if (trace)
		filter.trace = &prefix;
	if (err.message[0] ||
	    httpd_request_param_u64(req, "window", 0, WINDOW_S_MAX, 0, &filter.window_ms, &err) <
		0 ||
	    httpd_request_param_u64(req, "pid", 0, INT32_MAX, 0, &filter.pid, &err) < 0) {
		httpd_reply_text(req, 400, "%s", err.message);
		return;
	}
	filter.window_ms *= 1000;
	r = live_profile(l->aggregate, &filter, &b);
	if (r < 0)
		httpd_reply_text(req, 500, "profile: %s", strerror(-r));
	else
		send_profile(l, req, format, of, b);
}

static void handle_capture(struct httpd_request *req, void *user)
{
	struct live *l = user;

	if (allowed(l, req))
		debug_pprof_handle_profile(req, l->captures);
}

/* ---- life ------------------------------------------------------------------------------------ */

void live_consume(struct live *l, struct batch *b)
{
	int r = aggregate_add(l->aggregate, b);

	if (r < 0) {
		metric_add(M_LIVE_WINDOWS_FAILED, 1);
		log_debug("live", "a window is not shown whole: %s", strerror(-r));
	}
	for (size_t i = 0; i < ARRAY_SIZE(l->clients); i++) {
		if (!l->clients[i].owner)
			continue;
		if (l->born != l->aggregate->born)
			greet_again(&l->clients[i]);
		pump(&l->clients[i]);
	}
	l->born = l->aggregate->born;
	count_clients(l);
	debug_pprof_consume(l->captures, b);
}

static int listen_live(struct live *l, const struct http_config *config, struct error *err)
{
	const struct httpd_options options = {
	    .host = config->host,
	    .port = config->port,
	    .max_connections = LIVE_CONNECTIONS_MAX,
	    .send_timeout_s = LIVE_STALL_S,
	    .tls = {config->cert_file, config->key_file, config->client_ca_file},
	};
	struct httpd_route routes[HTTPD_ROUTES_MAX] = {
	    {"/api/stream", HTTPD_GET, handle_stream, l},
	    {"/api/profile", HTTPD_GET, handle_profile, l},
	    {"/debug/pprof/profile", HTTPD_GET, handle_capture, l},
	};
	size_t n = 3;
	int r;

	/* A route's user pointer is not const; the handler does not change the asset. */
	for (size_t i = 0; i < live_n_assets; i++)
		routes[n++] = (struct httpd_route){live_assets[i].path, HTTPD_GET, handle_asset,
						   (void *)(uintptr_t)&live_assets[i]};
	r = httpd_new(l->loop, &options, routes, n, &l->server, err);
	if (r < 0 && config->cert_file)
		return error_wrap(err, r, "extensions.live");
	return r < 0 ? error_wrap(err, r, "extensions.live.endpoint") : 0;
}

int live_new(uv_loop_t *loop, const struct http_config *config, uint64_t window_ms,
	     struct live **ret, struct error *err)
{
	_cleanup_(live_freep) struct live *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_set(err, -ENOMEM, "extensions.live: out of memory");
	l->loop = loop;
	l->window_ms = window_ms;
	if (gethostname(l->host, sizeof(l->host) - 1) < 0)
		l->host[0] = 0;
	if (config->token_file) {
		r = access_read_token(config->token_file, &l->access, err);
		if (r < 0)
			return error_wrap(err, r, "extensions.live");
	}
	if (aggregate_new(&l->aggregate) < 0)
		return error_set(err, -ENOMEM, "extensions.live: out of memory");
	/* On a busy machine short windows come late, so captures wait for them as long as for long
	 * ones. */
	r = debug_pprof_new_captures(loop, MAX(window_ms, 10000UL), &l->captures, err);
	if (r < 0)
		return error_wrap(err, r, "extensions.live");
	r = listen_live(l, config, err);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(l);
	return 0;
}

struct live *live_free(struct live *l)
{
	if (!l)
		return NULL;
	httpd_free(l->server); /* every client hears on_gone */
	debug_pprof_free(l->captures);
	aggregate_free(l->aggregate);
	explicit_bzero(&l->access, sizeof(l->access));
	free(l);
	return NULL;
}

uint16_t live_port(const struct live *l)
{
	return httpd_port(l->server);
}

const char *live_address(const struct live *l)
{
	return httpd_address(l->server);
}
