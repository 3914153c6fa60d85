/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pprof extension: the agent's own CPU profile, as `go tool pprof http://HOST:1777` asks for
 * it.
 *
 *   GET /debug/pprof/                       what there is
 *   GET /debug/pprof/profile?seconds=N&pid=P&container=C  N 1..300 (30); P a process, 0 the whole
 * node, default the agent; C a container, by its id or the first 12 characters or more
 *
 * A capture keeps the reporting windows that overlap its time, whole, and answers when a window
 * that reaches its end has come. Loop's thread.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/profile/batch.h"
#include "lib/base.h"
#include "lib/error.h"

#include <uv.h>

enum {
	DEBUG_PPROF_CAPTURES_MAX = 4, /* at once; more: 503 */
	DEBUG_PPROF_SECONDS_MAX = 300,
	DEBUG_PPROF_SECONDS_DEFAULT = 30,
	DEBUG_PPROF_BATCHES_MAX = 512, /* of one capture; later windows are left out and counted */
	DEBUG_PPROF_BYTES_MAX = 64 << 20, /* of an encoded profile */
};

struct debug_pprof;

/* WINDOW_MS: reporter_interval, how long a window may still be on its way at the end of a capture.
 */
int debug_pprof_new(uv_loop_t *loop, const struct http_config *config, uint64_t window_ms,
		    struct debug_pprof **ret, struct error *err) _must_check_;
/*
 * Only the captures, for another server that has a route to debug_pprof_handle_profile(). Without
 * pid= a profile is of the whole node. To be freed after that server.
 */
int debug_pprof_new_captures(uv_loop_t *loop, uint64_t window_ms, struct debug_pprof **ret,
			     struct error *err) _must_check_;
struct httpd_request;
/* Answers REQ, now or when its windows have come. USER is the struct debug_pprof. */
void debug_pprof_handle_profile(struct httpd_request *req, void *user);
/* The memory of its server goes as the loop runs on (lib/httpd.h). Takes NULL, returns NULL. */
struct debug_pprof *debug_pprof_free(struct debug_pprof *d);
DEFINE_CLEANUP(struct debug_pprof *, debug_pprof_free)

/* To be called for every finished batch, in order of time. Takes a reference where it needs one. */
void debug_pprof_consume(struct debug_pprof *d, struct batch *b);
/* The number of captures under way; when it is 0, no batch is kept. */
unsigned int debug_pprof_pending(const struct debug_pprof *d);

uint16_t debug_pprof_port(const struct debug_pprof *d);
const char *debug_pprof_address(const struct debug_pprof *d);
