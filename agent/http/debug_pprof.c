/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures: each a kept request, the span of UNIX time that it asked for, and the batches that
 * overlap it. A capture is answered by the first batch that reaches its end, or, when windows stop
 * coming (an idle node makes no batch), by its timer: two windows after its end with what there is.
 *
 * Batches are shared and immutable; a capture holds references, nothing is copied. Everything runs
 * on the loop's thread; encoding does too, which a few megabytes of samples allow and which only
 * happens when somebody asks.
 */
#include "agent/http/debug_pprof.h"

#include <time.h>

#include "agent/profile/pprof.h"
#include "lib/buf.h"
#include "lib/clock.h"
#include "lib/httpd.h"
#include "lib/metrics.h"

enum { CONTAINER_ID_MIN = 12, CONTAINER_ID_MAX = 128 };

struct capture {
	struct debug_pprof *owner; /* NULL: the slot is free */
	struct httpd_request *req;
	uint64_t start_ns, end_ns;	      /* UNIX */
	uint32_t pid;			      /* 0: all */
	char container[CONTAINER_ID_MAX + 1]; /* "": all */
	struct batch **batches;
	size_t n_batches, cap;
};

struct debug_pprof {
	struct httpd *server;
	uint64_t window_ms;
	uint32_t default_pid;
	struct capture captures[DEBUG_PPROF_CAPTURES_MAX];
	/* Ends captures for which no window comes. Allocated apart: it is closed after this struct
	 * is freed. */
	uv_timer_t *timer;
};

static void capture_clear(struct capture *c)
{
	for (size_t i = 0; i < c->n_batches; i++)
		batch_unref(c->batches[i]);
	free(c->batches);
	*c = (struct capture){0};
}

static void capture_finish(struct capture *c)
{
	static const struct httpd_header headers[] = {
	    {"Content-Disposition", "attachment; filename=\"profile.pb.gz\""},
	};
	const struct pprof_filter filter = {.pid = c->pid, .container = c->container};
	struct httpd_request *req = c->req;
	struct error err = {0};
	struct buf out;
	int r;

	buf_init(&out, DEBUG_PPROF_BYTES_MAX);
	r = pprof_encode((const struct batch *const *)c->batches, c->n_batches, &filter, &out,
			 &err);
	capture_clear(c);
	metric_add(r < 0 ? M_HTTP_CAPTURES_FAILED : M_HTTP_CAPTURES, 1);
	if (r < 0)
		httpd_reply_text(req, 500, "profile: %s",
				 err.message[0] ? err.message : strerror(-r));
	else
		httpd_reply(req, 200, "application/octet-stream", headers, ARRAY_SIZE(headers),
			    out.data, out.len);
	buf_done(&out);
}

static void on_timer(uv_timer_t *timer)
{
	struct debug_pprof *d = timer->data;
	uint64_t now = clock_ns(CLOCK_REALTIME);
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(d->captures); i++) {
		struct capture *c = &d->captures[i];

		if (!c->owner)
			continue;
		if (now >= c->end_ns + 2 * d->window_ms * 1000000ULL)
			capture_finish(c);
		else
			any = true;
	}
	if (!any)
		uv_timer_stop(timer);
}

static void on_gone(struct httpd_request *req, void *user)
{
	capture_clear(user);
	metric_add(M_HTTP_CAPTURES_GONE, 1);
}

static struct capture *free_slot(struct debug_pprof *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->captures); i++)
		if (!d->captures[i].owner)
			return &d->captures[i];
	return NULL;
}

void debug_pprof_handle_profile(struct httpd_request *req, void *user)
{
	struct debug_pprof *d = user;
	const char *container = httpd_request_param(req, "container");
	struct capture *c;
	struct error err = {0};
	uint64_t seconds, pid;

	if (httpd_request_param_u64(req, "seconds", 1, DEBUG_PPROF_SECONDS_MAX,
				    DEBUG_PPROF_SECONDS_DEFAULT, &seconds, &err) < 0 ||
	    httpd_request_param_u64(req, "pid", 0, INT32_MAX, d->default_pid, &pid, &err) < 0) {
		httpd_reply_text(req, 400, "%s", err.message);
		return;
	}
	if (container &&
	    (strlen(container) < CONTAINER_ID_MIN || strlen(container) > CONTAINER_ID_MAX)) {
		httpd_reply_text(req, 400, "container: want an id of %d to %d characters",
				 CONTAINER_ID_MIN, CONTAINER_ID_MAX);
		return;
	}
	if (httpd_request_method(req) == HTTPD_HEAD) { /* costs no capture */
		httpd_reply(req, 200, "application/octet-stream", NULL, 0, "", 0);
		return;
	}
	c = free_slot(d);
	if (!c) {
		metric_add(M_HTTP_CAPTURES_REFUSED, 1);
		httpd_reply_text(req, 503, "%d profiles are being taken, try again later",
				 DEBUG_PPROF_CAPTURES_MAX);
		return;
	}
	*c = (struct capture){
	    .owner = d, .req = req, .pid = (uint32_t)pid, .start_ns = clock_ns(CLOCK_REALTIME)};
	snprintf(c->container, sizeof(c->container), "%s", container ? container : "");
	c->end_ns = c->start_ns + seconds * 1000000000ULL;
	if (!uv_is_active((uv_handle_t *)d->timer))
		uv_timer_start(d->timer, on_timer, 500, 500);
	httpd_keep(req, (unsigned int)(seconds + 3 * d->window_ms / 1000 + 10), on_gone, c);
}

static void handle_index(struct httpd_request *req, void *user)
{
	static const char page[] =
	    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>kiln-agent: "
	    "/debug/pprof/</title></head><body><h1>/debug/pprof/</h1><ul>"
	    "<li><a href=\"/debug/pprof/profile?seconds=10\">profile</a>: CPU profile of the agent "
	    "itself "
	    "(pprof, gzip). seconds=1..300, default 30; pid=PID for another process, pid=0 for "
	    "the whole node.</li></ul>"
	    "<p><code>go tool pprof http://HOST:PORT/debug/pprof/profile?seconds=30</code></p>"
	    "</body></html>\n";

	httpd_reply(req, 200, "text/html; charset=utf-8", NULL, 0, page, sizeof(page) - 1);
}

static void capture_add(struct capture *c, struct batch *b)
{
	if (c->n_batches == DEBUG_PPROF_BATCHES_MAX ||
	    grow_array((void **)&c->batches, &c->cap, c->n_batches + 1, sizeof(struct batch *),
		       DEBUG_PPROF_BATCHES_MAX) < 0) {
		metric_add(M_HTTP_CAPTURE_BATCHES_DROPPED, 1);
		return;
	}
	c->batches[c->n_batches++] = batch_ref(b);
}

void debug_pprof_consume(struct debug_pprof *d, struct batch *b)
{
	uint64_t end = b->start_unix_ns + b->duration_ns;

	for (size_t i = 0; i < ARRAY_SIZE(d->captures); i++) {
		struct capture *c = &d->captures[i];

		if (!c->owner)
			continue;
		if (end > c->start_ns && b->start_unix_ns < c->end_ns)
			capture_add(c, b);
		if (end >= c->end_ns)
			capture_finish(c);
	}
}

unsigned int debug_pprof_pending(const struct debug_pprof *d)
{
	unsigned int n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(d->captures); i++)
		n += d->captures[i].owner != NULL;
	return n;
}

int debug_pprof_new_captures(uv_loop_t *loop, uint64_t window_ms, struct debug_pprof **ret,
			     struct error *err)
{
	_cleanup_(debug_pprof_freep) struct debug_pprof *d = calloc(1, sizeof(*d));

	if (!d)
		return error_set(err, -ENOMEM, "out of memory");
	d->timer = malloc(sizeof(*d->timer));
	if (!d->timer)
		return error_set(err, -ENOMEM, "out of memory");
	uv_timer_init(loop, d->timer);
	d->timer->data = d;
	d->window_ms = window_ms;
	*ret = TAKE_PTR(d);
	return 0;
}

int debug_pprof_new(uv_loop_t *loop, const struct http_config *config, uint64_t window_ms,
		    struct debug_pprof **ret, struct error *err)
{
	_cleanup_(debug_pprof_freep) struct debug_pprof *d = NULL;
	const struct httpd_options options = {.host = config->host, .port = config->port};
	int r;

	r = debug_pprof_new_captures(loop, window_ms, &d, err);
	if (r < 0)
		return error_wrap(err, r, "extensions.pprof");
	d->default_pid = (uint32_t)getpid();
	const struct httpd_route routes[] = {
	    {"/", HTTPD_GET, handle_index, d},
	    {"/debug/pprof", HTTPD_GET, handle_index, d},
	    {"/debug/pprof/", HTTPD_GET, handle_index, d},
	    {"/debug/pprof/profile", HTTPD_GET, debug_pprof_handle_profile, d},
	};
	r = httpd_new(loop, &options, routes, ARRAY_SIZE(routes), &d->server, err);
	if (r < 0)
		return error_wrap(err, r, "extensions.pprof.endpoint");
	*ret = TAKE_PTR(d);
	return 0;
}

static void free_timer(uv_handle_t *handle)
{
	free(handle);
}

struct debug_pprof *debug_pprof_free(struct debug_pprof *d)
{
	if (!d)
		return NULL;
	httpd_free(d->server); /* every capture hears on_gone */
	if (d->timer)
		uv_close((uv_handle_t *)d->timer, free_timer);
	free(d);
	return NULL;
}

uint16_t debug_pprof_port(const struct debug_pprof *d)
{
	return httpd_port(d->server);
}

const char *debug_pprof_address(const struct debug_pprof *d)
{
	return httpd_address(d->server);
}
