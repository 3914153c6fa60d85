/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and gauges, declared once in an X-macro list: X(ID, kind, "name", "labels", "help").
 * Rows of one name with different labels stand together. Any thread may add; /metrics reads.
 *
 *   metric_add(M_SAMPLES, 1);      counter
 *   metric_set(M_RSS_BYTES, n);    gauge
 */
#pragma once

#include <stdatomic.h>

#include "lib/base.h"
#include "lib/buf.h"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE };

enum metric_id {
#define X(id, kind, name, labels, help) M_##id,
#include "lib/metrics.def"
#undef X
	M_COUNT
};

extern _Atomic int64_t metric_values[M_COUNT];

static inline void metric_add(enum metric_id id, int64_t n)
{
	atomic_fetch_add_explicit(&metric_values[id], n, memory_order_relaxed);
}

static inline void metric_set(enum metric_id id, int64_t n)
{
	atomic_store_explicit(&metric_values[id], n, memory_order_relaxed);
}

static inline int64_t metric_get(enum metric_id id)
{
	return atomic_load_explicit(&metric_values[id], memory_order_relaxed);
}

/*
 * Metrics of one name whose labels are known only at run time. Families are static. They must be
 * added, and their series labelled, before other threads use them.
 */
struct metric_series {
	char labels[64]; /* "": the series is not shown */
	/* Labels that are too long for `labels`, owned by the caller; NULL: use `labels`. */
	const char *text;
	_Atomic int64_t value;
};

struct metric_family {
	enum metric_kind kind;
	const char *name, *help;
	struct metric_series *series;
	size_t n;
	struct metric_family *next; /* set by metrics_add_family() */
	bool added;
};

void metric_series_label(struct metric_series *s, const char *format, ...) _printf_(2, 3);
/* Shows F after the rows of the list; adding it again does nothing. */
void metrics_add_family(struct metric_family *f);
/* The value of the series with these labels; 0 when there is none. */
int64_t metric_family_get(const char *name, const char *labels);

static inline void metric_series_add(struct metric_series *s, int64_t n)
{
	atomic_fetch_add_explicit(&s->value, n, memory_order_relaxed);
}

/* Prometheus text format 0.0.4 (prometheus/docs, instrumenting/exposition_formats). */
int metrics_render(struct buf *out);
