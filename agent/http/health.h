/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would reflow the table. */
/*
 * The health_check extension: is the agent alive, is it ready, what does it count.
 *
 *   /healthz        200 "ok" whenever the loop runs
 *   /readyz         200 "ok", or 503 with the reason, one line
 *   /metrics        Prometheus text: every row of lib/metrics.def, and the process's own numbers
 *   health_check.path ("/")
 *                   the Collector's answer: JSON with status, upSince, uptime; 200 when ready, else
 *                   503
 *
 * Loop's thread. The callbacks run on it too, while an answer is made: they must not block.
 */
/* clang-format on */
#pragma once

#include "agent/config/config.h"
#include "lib/base.h"
#include "lib/error.h"

#include <uv.h>

struct health;

struct health_callbacks {
	/* Writes why the agent is not ready into REASON; true when it is. */
	bool (*ready)(void *user, char *reason, size_t size);
	/* Brings gauges up to date before /metrics answers; may be NULL. */
	void (*refresh)(void *user);
	void *user;
};

/* CONFIG is copied. On failure ERR begins with "extensions.health_check.endpoint: ". */
int health_new(uv_loop_t *loop, const struct http_config *config,
	       const struct health_callbacks *callbacks, struct health **ret,
	       struct error *err) _must_check_;
/* The memory of its server goes as the loop runs on (lib/httpd.h). Takes NULL, returns NULL. */
struct health *health_free(struct health *h);
DEFINE_CLEANUP(struct health *, health_free)

uint16_t health_port(const struct health *h);
const char *health_address(const struct health *h);
