/* SPDX-License-Identifier: Apache-2.0 */
/* Two small servers over lib/httpd.h. No state but the callbacks. */
#include "operator/http/server.h"

#include "lib/httpd.h"
#include "lib/process_metrics.h"

enum { METRICS_TEXT_MAX = 1 << 20 };

struct operator_http {
	struct operator_http_callbacks callbacks;
	struct httpd *health, *metrics;
};

static void handle_healthz(struct httpd_request *req, void *user)
{
	httpd_reply_text(req, 200, "ok");
}

static void handle_readyz(struct httpd_request *req, void *user)
{
	const struct operator_http *h = user;
	char reason[256] = "";

	if (h->callbacks.ready(h->callbacks.arg, reason, sizeof(reason)))
		httpd_reply_text(req, 200, "ok");
	else
		httpd_reply_text(req, 503, "not ready: %s", reason);
}

static void handle_metrics(struct httpd_request *req, void *user)
{
	const struct operator_http *h = user;
	struct process_metrics process;
	struct buf b;

	buf_init(&b, METRICS_TEXT_MAX);
	h->callbacks.metrics(h->callbacks.arg, &b);
	/* Without /proc the operator's own numbers are still worth having. */
	if (process_metrics_read("/proc/self", "/proc/stat", &process) == 0)
		process_metrics_render(&process, &b);
	if (buf_error(&b))
		httpd_reply_text(req, 500, "metrics: %s", strerror(-buf_error(&b)));
	else
		httpd_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, b.data,
			    b.len);
	buf_done(&b);
}

static int listen_on(uv_loop_t *loop, const struct host_port *address,
		     const struct httpd_route *routes, size_t n, struct httpd **ret,
		     struct error *err)
{
	struct httpd_options options = {.host = address->host, .port = address->port};

	return httpd_new(loop, &options, routes, n, ret, err);
}

int operator_http_new(uv_loop_t *loop, const struct host_port *health,
		      const struct host_port *metrics,
		      const struct operator_http_callbacks *callbacks, struct operator_http **ret,
		      struct error *err)
{
	struct operator_http *h = calloc(1, sizeof(*h));
	struct httpd_route health_routes[] = {{"/healthz", HTTPD_GET, handle_healthz, h},
					      {"/readyz", HTTPD_GET, handle_readyz, h}};
	struct httpd_route metrics_routes[] = {{"/metrics", HTTPD_GET, handle_metrics, h}};
	int r;

	if (!h)
		return error_set(err, -ENOMEM, "out of memory");
	h->callbacks = *callbacks;
	r = listen_on(loop, health, health_routes, ARRAY_SIZE(health_routes), &h->health, err);
	if (r < 0)
		error_wrap(err, r, "--health-address");
	if (!r) {
		r = listen_on(loop, metrics, metrics_routes, ARRAY_SIZE(metrics_routes),
			      &h->metrics, err);
		if (r < 0)
			error_wrap(err, r, "--metrics-address");
	}
	if (r < 0) {
		operator_http_free(h);
		return r;
	}
	*ret = h;
	return 0;
}

struct operator_http *operator_http_free(struct operator_http *h)
{
	if (!h)
		return NULL;
	httpd_free(h->health);
	httpd_free(h->metrics);
	free(h);
	return NULL;
}
