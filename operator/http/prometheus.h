/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's metrics as Prometheus text (format 0.0.4), under the names of controller-runtime
 * and client-go (controller-runtime v0.20, pkg/metrics and pkg/internal/controller/metrics), so
 * that dashboards and alerts for operators work. Loop thread only.
 */
#pragma once

#include "lib/buf.h"
#include "operator/work/queue.h"

/* workqueue_* of N queues. */
void prometheus_queues(struct buf *out, struct work_queue *const *queues, size_t n);

/* Requests to the API server by method and status: rest_client_requests_total. */
enum { REQUEST_KINDS_MAX = 64 };
struct request_counts {
	struct {
		char method[8];
		int status; /* 0: no answer */
		uint64_t n;
	} rows[REQUEST_KINDS_MAX];
	size_t n;
	uint64_t others;
};
void request_count(struct request_counts *c, const char *method, int status);
void prometheus_requests(struct buf *out, const struct request_counts *c);

/* controller_runtime_reconcile_{total,errors_total,time_seconds} of one controller. */
enum { RECONCILE_BUCKETS = 12 };
struct reconcile_counts {
	const char *controller;
	uint64_t successes, errors, requeues;
	uint64_t buckets[RECONCILE_BUCKETS + 1]; /* not cumulative; the last has no upper bound */
	double sum_s;
};
enum reconcile_result { RECONCILE_SUCCESS, RECONCILE_ERROR, RECONCILE_REQUEUE };
void reconcile_count(struct reconcile_counts *c, enum reconcile_result result, double seconds);
void prometheus_reconciles(struct buf *out, const struct reconcile_counts *const *counts, size_t n);

/*
 * prometheus_head() writes "# HELP" and "# TYPE", prometheus_value() one sample,
 * prometheus_single() both. LABELS without braces, "" for none.
 */
void prometheus_head(struct buf *out, const char *name, const char *type, const char *help);
void prometheus_value(struct buf *out, const char *name, const char *labels, double value);
void prometheus_single(struct buf *out, const char *name, const char *type, const char *help,
		       double value);
