/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics that Prometheus client libraries export about their own process, by the same names
 * (prometheus/docs, instrumenting/writing_clientlibs, "Process metrics").
 */
#pragma once

#include "lib/base.h"
#include "lib/buf.h"

struct process_metrics {
	double cpu_seconds;
	uint64_t resident_bytes, virtual_bytes;
	uint64_t open_fds, max_fds, threads;
	double start_time_seconds; /* UNIX time */
};

/* PROC: "/proc/self"; STAT: "/proc/stat" (boot time). A negative errno when one cannot be read. */
int process_metrics_read(const char *proc, const char *stat,
			 struct process_metrics *ret) _must_check_;
/* Prometheus text. */
int process_metrics_render(const struct process_metrics *m, struct buf *out);
