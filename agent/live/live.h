/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live extension: the flame graph page and its data.
 *
 *   /, /app.js, ...            the page; holds nothing about this machine
 *   /api/stream                the aggregate, then every window as it comes (encode.h)
 *   /api/profile?format=F&window=S&pid=P&...    what is aggregated, as pprof, folded, OTLP, SVG
 *   /debug/pprof/profile?seconds=N&pid=P&container=C    the coming N seconds, as pprof
 *
 * A slow client skips windows and gets the totals instead; one that does not read at all is
 * dropped. Both are counted. Loop's thread; consumes batches like an exporter.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/profile/batch.h"
#include "lib/base.h"
#include "lib/error.h"

#include <uv.h>

enum {
	LIVE_CLIENTS_MAX = 32,
	LIVE_CONNECTIONS_MAX = 96,
	LIVE_RATE = 200 << 10, /* bytes a second of new windows, for one client */
	LIVE_LAG_MAX = 3,      /* windows that a client may be behind before it skips */
	LIVE_STALL_S = 10,     /* a client that takes nothing for so long is dropped */
	LIVE_PIECE = 256 << 10,
	LIVE_MESSAGE_MAX = 64 << 20,
	/* Longest first window of the agent, so that the page soon has something to show. */
	LIVE_FIRST_WINDOW_MS = 1000,
};

struct live;

/* WINDOW_MS: reporter_interval. On failure ERR begins with "extensions.live.". */
int live_new(uv_loop_t *loop, const struct http_config *config, uint64_t window_ms,
	     struct live **ret, struct error *err) _must_check_;
struct live *live_free(struct live *l);
DEFINE_CLEANUP(struct live *, live_free)

void live_consume(struct live *l, struct batch *b);
uint16_t live_port(const struct live *l);
const char *live_address(const struct live *l);
