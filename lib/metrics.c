/* SPDX-License-Identifier: Apache-2.0 */
/* The values are relaxed atomics: each is exact, their relation to each other is not. */
#include "lib/metrics.h"

#include <inttypes.h>
#include <stdarg.h>

_Atomic int64_t metric_values[M_COUNT];

static const struct {
	enum metric_kind kind;
	const char *name, *labels, *help;
} rows[] = {
#define X(id, kind_, name_, labels_, help_) {METRIC_##kind_, name_, labels_, help_},
#include "lib/metrics.def"
#undef X
};

static struct metric_family *families;

void metric_series_label(struct metric_series *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->labels, sizeof(s->labels), format, args);
	va_end(args);
}

void metrics_add_family(struct metric_family *f)
{
	if (f->added)
		return;
	f->added = true;
	f->next = families;
	families = f;
}

int64_t metric_family_get(const char *name, const char *labels)
{
	for (const struct metric_family *f = families; f; f = f->next)
		for (size_t i = 0; streq(f->name, name) && i < f->n; i++)
			if (streq(f->series[i].labels, labels))
				return atomic_load_explicit(&f->series[i].value,
							    memory_order_relaxed);
	return 0;
}

static void render_head(struct buf *out, enum metric_kind kind, const char *name, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		   kind == METRIC_COUNTER ? "counter" : "gauge");
}

static void render_family(struct buf *out, const struct metric_family *f)
{
	render_head(out, f->kind, f->name, f->help);
	for (size_t i = 0; i < f->n; i++) {
		const struct metric_series *s = &f->series[i];
		const char *labels = s->text ? s->text : s->labels;

		if (labels[0])
			buf_printf(out, "%s{%s} %" PRId64 "\n", f->name, labels,
				   atomic_load_explicit(&s->value, memory_order_relaxed));
	}
}

int metrics_render(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (i == 0 || !streq(rows[i].name, rows[i - 1].name))
			render_head(out, rows[i].kind, rows[i].name, rows[i].help);
		if (rows[i].labels[0])
			buf_printf(out, "%s{%s} %" PRId64 "\n", rows[i].name, rows[i].labels,
				   metric_get((enum metric_id)i));
		else
			buf_printf(out, "%s %" PRId64 "\n", rows[i].name,
				   metric_get((enum metric_id)i));
	}
	for (const struct metric_family *f = families; f; f = f->next)
		render_family(out, f);
	return buf_error(out);
}
