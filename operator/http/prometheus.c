/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of names and numbers to text. A full buffer keeps its error, which the caller checks. */
#include "operator/http/prometheus.h"

static const double reconcile_bounds[RECONCILE_BUCKETS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
							   0.5,	  1,	2.5,   5,    10,  60};

void prometheus_head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prometheus_value(struct buf *out, const char *name, const char *labels, double value)
{
	if (labels[0])
		buf_printf(out, "%s{%s} %.17g\n", name, labels, value);
	else
		buf_printf(out, "%s %.17g\n", name, value);
}

void prometheus_single(struct buf *out, const char *name, const char *type, const char *help,
		       double value)
{
	prometheus_head(out, name, type, help);
	prometheus_value(out, name, "", value);
}

/* COUNTS are those of each bucket; Prometheus wants cumulative ones. */
static void histogram(struct buf *out, const char *name, const char *label, const char *value,
		      const double *bounds, size_t n_bounds, const uint64_t *counts, double sum)
{
	uint64_t total = 0;

	for (size_t i = 0; i < n_bounds; i++) {
		total += counts[i];
		buf_printf(out, "%s_bucket{%s=\"%s\",le=\"%g\"} %llu\n", name, label, value,
			   bounds[i], (unsigned long long)total);
	}
	total += counts[n_bounds];
	buf_printf(out, "%s_bucket{%s=\"%s\",le=\"+Inf\"} %llu\n", name, label, value,
		   (unsigned long long)total);
	buf_printf(out, "%s_sum{%s=\"%s\"} %.17g\n", name, label, value, sum);
	buf_printf(out, "%s_count{%s=\"%s\"} %llu\n", name, label, value,
		   (unsigned long long)total);
}

static double depth(const struct work_queue_stats *s)
{
	return (double)s->depth;
}
static double adds(const struct work_queue_stats *s)
{
	return (double)s->adds;
}
static double retries(const struct work_queue_stats *s)
{
	return (double)s->retries;
}
static double unfinished(const struct work_queue_stats *s)
{
	return s->unfinished_s;
}
static double longest(const struct work_queue_stats *s)
{
	return s->longest_running_s;
}

static const struct {
	const char *name, *type, *help;
	double (*read)(const struct work_queue_stats *s);
} queue_rows[] = {
    {"workqueue_depth", "gauge", "Keys that wait for a worker.", depth},
    {"workqueue_adds_total", "counter", "Keys that were added.", adds},
    {"workqueue_retries_total", "counter", "Keys that were added again after a failure.", retries},
    {"workqueue_unfinished_work_seconds", "gauge", "Age of all work that is under way, added up.",
     unfinished},
    {"workqueue_longest_running_processor_seconds", "gauge", "Age of the oldest work under way.",
     longest},
};

static void queue_histograms(struct buf *out, struct work_queue *const *queues, size_t n, bool work)
{
	const char *name =
	    work ? "workqueue_work_duration_seconds" : "workqueue_queue_duration_seconds";
	double bounds[WORK_BUCKETS];

	for (size_t i = 0; i < WORK_BUCKETS; i++)
		bounds[i] = i ? bounds[i - 1] * 10 : WORK_BUCKET_FIRST_NS * 1e-9;
	prometheus_head(out, name, "histogram",
			work ? "Time that work on a key took." : "Time that a key waited.");
	for (size_t i = 0; i < n; i++) {
		struct work_queue_stats s;
		const struct work_histogram *h = work ? &s.work_duration : &s.queue_duration;

		work_queue_read_stats(queues[i], &s);
		histogram(out, name, "name", work_queue_name(queues[i]), bounds, WORK_BUCKETS,
			  h->counts, h->sum_s);
	}
}

void prometheus_queues(struct buf *out, struct work_queue *const *queues, size_t n)
{
	for (size_t row = 0; row < ARRAY_SIZE(queue_rows); row++) {
		prometheus_head(out, queue_rows[row].name, queue_rows[row].type,
				queue_rows[row].help);
		for (size_t i = 0; i < n; i++) {
			struct work_queue_stats s;
			char labels[64];

			work_queue_read_stats(queues[i], &s);
			snprintf(labels, sizeof(labels), "name=\"%s\"", work_queue_name(queues[i]));
			prometheus_value(out, queue_rows[row].name, labels,
					 queue_rows[row].read(&s));
		}
	}
	queue_histograms(out, queues, n, false);
	queue_histograms(out, queues, n, true);
}

void request_count(struct request_counts *c, const char *method, int status)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->rows[i].status == status && streq(c->rows[i].method, method)) {
			c->rows[i].n++;
			return;
		}
	if (c->n == REQUEST_KINDS_MAX) {
		c->others++;
		return;
	}
	snprintf(c->rows[c->n].method, sizeof(c->rows[c->n].method), "%s", method);
	c->rows[c->n].status = status;
	c->rows[c->n++].n = 1;
}

void prometheus_requests(struct buf *out, const struct request_counts *c)
{
	prometheus_head(out, "rest_client_requests_total", "counter",
			"Requests to the API server by method and status.");
	for (size_t i = 0; i < c->n; i++) {
		char labels[64], code[16] = "<error>";

		if (c->rows[i].status)
			snprintf(code, sizeof(code), "%d", c->rows[i].status);
		snprintf(labels, sizeof(labels), "method=\"%s\",code=\"%s\"", c->rows[i].method,
			 code);
		prometheus_value(out, "rest_client_requests_total", labels, (double)c->rows[i].n);
	}
	if (c->others)
		prometheus_value(out, "rest_client_requests_total", "method=\"\",code=\"other\"",
				 (double)c->others);
}

void reconcile_count(struct reconcile_counts *c, enum reconcile_result result, double seconds)
{
	size_t i = 0;

	while (i < RECONCILE_BUCKETS && seconds > reconcile_bounds[i])
		i++;
	c->buckets[i]++;
	c->sum_s += seconds;
	*(result == RECONCILE_SUCCESS ? &c->successes
	  : result == RECONCILE_ERROR ? &c->errors
				      : &c->requeues) += 1;
}

static void reconcile_total(struct buf *out, const char *controller, const char *result, uint64_t n)
{
	char labels[96];

	snprintf(labels, sizeof(labels), "controller=\"%s\",result=\"%s\"", controller, result);
	prometheus_value(out, "controller_runtime_reconcile_total", labels, (double)n);
}

void prometheus_reconciles(struct buf *out, const struct reconcile_counts *const *counts, size_t n)
{
	prometheus_head(out, "controller_runtime_reconcile_total", "counter",
			"Reconciles by controller and result.");
	for (size_t i = 0; i < n; i++) {
		reconcile_total(out, counts[i]->controller, "success", counts[i]->successes);
		reconcile_total(out, counts[i]->controller, "error", counts[i]->errors);
		reconcile_total(out, counts[i]->controller, "requeue", counts[i]->requeues);
	}
	prometheus_head(out, "controller_runtime_reconcile_errors_total", "counter",
			"Reconciles that failed.");
	for (size_t i = 0; i < n; i++) {
		char labels[64];

		snprintf(labels, sizeof(labels), "controller=\"%s\"", counts[i]->controller);
		prometheus_value(out, "controller_runtime_reconcile_errors_total", labels,
				 (double)counts[i]->errors);
	}
	prometheus_head(out, "controller_runtime_reconcile_time_seconds", "histogram",
			"Time that a reconcile took.");
	for (size_t i = 0; i < n; i++)
		histogram(out, "controller_runtime_reconcile_time_seconds", "controller",
			  counts[i]->controller, reconcile_bounds, RECONCILE_BUCKETS,
			  counts[i]->buckets, counts[i]->sum_s);
}
