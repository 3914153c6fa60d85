/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters: where finished batches go. One row of `exporter_ops_table` per type. agent.c makes one
 * struct exporter for each configured component; the router (agent/export/route.h) gives it
 * batches. All functions run on the loop thread and must not block it: slow work goes to the thread
 * pool.
 */
#pragma once

#include <uv.h>

#include "agent/config/config.h"
#include "agent/profile/batch.h"
#include "lib/error.h"

struct exporter;

struct exporter_ops {
	const char *type; /* as in the configuration: "otlp_grpc" */
	int (*create)(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		      struct error *err);
	/* Takes its own reference of BATCH when it keeps it. Never fails: it drops and counts. */
	void (*consume)(struct exporter *exporter, struct batch *batch);
	/*
	 * The agent is ending: send what is queued, until DEADLINE_MS from now at most, then call
	 * DONE once (maybe from inside this call) on the loop thread.
	 */
	void (*flush)(struct exporter *exporter, uint64_t deadline_ms, void (*done)(void *),
		      void *arg);
	struct exporter *(*destroy)(struct exporter *exporter);
	/*
	 * Whether the last attempt worked. If not, ERROR gets one line with the reason, without
	 * secrets. NULL: it counts as healthy while `failed` is not set.
	 */
	bool (*healthy)(const struct exporter *exporter, char *error, size_t size);
	/* Whether the receiver rejects everything that is sent. ERROR as above. NULL: there is no
	 * receiver that could. */
	bool (*refused)(const struct exporter *exporter, char *error, size_t size);
	/*
	 * Uses CONFIG's endpoint, TLS and headers from the next request on; the queue and its
	 * content stay. On failure nothing changes. NULL: this type has no endpoint.
	 */
	int (*redirect)(struct exporter *exporter, const struct exporter_config *config,
			uv_loop_t *loop, struct error *err);
};

/* Every exporter embeds this first. */
struct exporter {
	const struct exporter_ops *ops;
	const char *name; /* component id: "otlp_grpc/backend" */
	/* May be set by any thread, never cleared. */
	_Atomic bool failed; /* a write failed for good; that was logged */
	_Atomic bool gone;   /* the reader of the output has gone: further output is useless */
};

extern const struct exporter_ops otlp_grpc_exporter_ops, otlp_http_exporter_ops, text_exporter_ops,
    pprof_file_exporter_ops, folded_file_exporter_ops, top_exporter_ops;

bool exporter_healthy(const struct exporter *exporter, char *error, size_t size);

/* Looks the configured type up and creates it. */
int exporter_new(const struct exporter_config *config, uv_loop_t *loop, struct exporter **ret,
		 struct error *err) _must_check_;
