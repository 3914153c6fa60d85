/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four handlers over what the agent tells by its callbacks and its metrics. All state is the time
 * of start; everything runs on the loop's thread.
 *
 * Shape of the JSON: opentelemetry-collector-contrib 0.120, extension/healthcheckextension
 * (healthcheck package): {"status", "upSince", "uptime"}.
 */
#include "agent/http/health.h"

#include <time.h>

#include "lib/process_metrics.h"
#include "lib/buf.h"
#include "lib/httpd.h"
#include "lib/metrics.h"

enum { METRICS_TEXT_MAX = 4 << 20 };

struct health {
	struct httpd *server;
	struct health_callbacks callbacks;
	struct timespec started, started_mono;
	char *path;
};

static bool is_ready(const struct health *h, char *reason, size_t size)
{
	reason[0] = 0;
	return h->callbacks.ready(h->callbacks.user, reason, size);
}

static void handle_healthz(struct httpd_request *req, void *user)
{
	httpd_reply_text(req, 200, "ok");
}

static void handle_readyz(struct httpd_request *req, void *user)
{
	char reason[512];

	if (is_ready(user, reason, sizeof(reason)))
		httpd_reply_text(req, 200, "ok");
	else
		httpd_reply_text(req, 503, "not ready: %s", reason[0] ? reason : "starting");
}

/* As Go prints a duration: "1h2m3.5s". */
static void format_uptime(double seconds, char *out, size_t size)
{
	uint64_t whole = (uint64_t)seconds;
	double rest = (double)(whole % 60) + (seconds - (double)whole);

	if (whole >= 3600)
		snprintf(out, size, "%lluh%llum%.9gs", (unsigned long long)(whole / 3600),
			 (unsigned long long)(whole / 60 % 60), rest);
	else if (whole >= 60)
		snprintf(out, size, "%llum%.9gs", (unsigned long long)(whole / 60), rest);
	else
		snprintf(out, size, "%.9gs", rest);
}

static void handle_status(struct httpd_request *req, void *user)
{
	const struct health *h = user;
	char reason[512], since[64], uptime[64] = "0s", text[256];
	struct timespec now;
	struct tm tm;
	size_t n;
	int len;

	if (!is_ready(h, reason, sizeof(reason))) {
		static const char unavailable[] =
		    "{\"status\":\"Server not available\",\"upSince\":\"0001-01-01T00:00:00Z\","
		    "\"uptime\":\"\"}";

		httpd_reply(req, 503, "application/json", NULL, 0, unavailable,
			    sizeof(unavailable) - 1);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	format_uptime((double)(now.tv_sec - h->started_mono.tv_sec) +
			  (double)(now.tv_nsec - h->started_mono.tv_nsec) / 1e9,
		      uptime, sizeof(uptime));
	gmtime_r(&h->started.tv_sec, &tm);
	n = strftime(since, sizeof(since), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(since + n, sizeof(since) - n, ".%09ldZ", h->started.tv_nsec);
	len = snprintf(text, sizeof(text),
		       "{\"status\":\"Server available\",\"upSince\":\"%s\",\"uptime\":\"%s\"}",
		       since, uptime);
	httpd_reply(req, 200, "application/json", NULL, 0, text, (size_t)len);
}

static void handle_metrics(struct httpd_request *req, void *user)
{
	const struct health *h = user;
	struct process_metrics process;
	struct buf b;

	if (h->callbacks.refresh)
		h->callbacks.refresh(h->callbacks.user);
	buf_init(&b, METRICS_TEXT_MAX);
	metrics_render(&b);
	/* Without /proc the agent's own numbers are still worth having. */
	if (process_metrics_read("/proc/self", "/proc/stat", &process) == 0)
		process_metrics_render(&process, &b);
	if (buf_error(&b))
		httpd_reply_text(req, 500, "metrics: %s", strerror(-buf_error(&b)));
	else
		httpd_reply(req, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, b.data,
			    b.len);
	buf_done(&b);
}

int health_new(uv_loop_t *loop, const struct http_config *config,
	       const struct health_callbacks *callbacks, struct health **ret, struct error *err)
{
	_cleanup_(health_freep) struct health *h = calloc(1, sizeof(*h));
	const struct httpd_options options = {.host = config->host, .port = config->port};
	int r;

	if (h)
		h->path = strdup(config->path && config->path[0] ? config->path : "/");
	if (!h || !h->path)
		return error_set(err, -ENOMEM, "extensions.health_check: out of memory");
	h->callbacks = *callbacks;
	clock_gettime(CLOCK_REALTIME, &h->started);
	clock_gettime(CLOCK_MONOTONIC, &h->started_mono);
	/* The first match wins: a configured path never hides the fixed ones. */
	const struct httpd_route routes[] = {
	    {"/healthz", HTTPD_GET, handle_healthz, h},
	    {"/readyz", HTTPD_GET, handle_readyz, h},
	    {"/metrics", HTTPD_GET, handle_metrics, h},
	    {h->path, HTTPD_GET, handle_status, h},
	};
	r = httpd_new(loop, &options, routes, ARRAY_SIZE(routes), &h->server, err);
	if (r < 0)
		return error_wrap(err, r, "extensions.health_check.endpoint");
	*ret = TAKE_PTR(h);
	return 0;
}

struct health *health_free(struct health *h)
{
	if (!h)
		return NULL;
	httpd_free(h->server);
	free(h->path);
	free(h);
	return NULL;
}

uint16_t health_port(const struct health *h)
{
	return httpd_port(h->server);
}

const char *health_address(const struct health *h)
{
	return httpd_address(h->server);
}
