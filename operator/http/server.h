/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's HTTP endpoints: /healthz (the loop runs) and /readyz (the caches are synced; also
 * of a standby) on one address, /metrics (Prometheus text) on another. Loop thread only.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */
#include "lib/buf.h"
#include "lib/error.h"
#include "lib/parse.h"

#include <uv.h>

struct operator_http;
struct operator_http_callbacks {
	/* True when ready; else REASON is the reason. */
	bool (*ready)(void *arg, char *reason, size_t size);
	void (*metrics)(void *arg, struct buf *out);
	void *arg;
};

int operator_http_new(uv_loop_t *loop, const struct host_port *health,
		      const struct host_port *metrics,
		      const struct operator_http_callbacks *callbacks, struct operator_http **ret,
		      struct error *err) _must_check_;
/* The servers are freed when the loop has run on. Takes NULL, returns NULL. */
struct operator_http *operator_http_free(struct operator_http *h);
