/* SPDX-License-Identifier: Apache-2.0 */
/* The values are relaxed atomics: each is exact, their relation to each other is not. */
#include "lib/metrics.h"

#include <inttypes.h>

_Atomic int64_t metric_values[M_COUNT];

static const struct {
	enum metric_kind kind;
	const char *name, *labels, *help;
} rows[] = {
#define X(id, kind_, name_, labels_, help_) {METRIC_##kind_, name_, labels_, help_},
#include "lib/metrics.def"
#undef X
};

int metrics_render(struct buf *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (i == 0 || !streq(rows[i].name, rows[i - 1].name))
			buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", rows[i].name, rows[i].help,
				   rows[i].name,
				   rows[i].kind == METRIC_COUNTER ? "counter" : "gauge");
		if (rows[i].labels[0])
			buf_printf(out, "%s{%s} %" PRId64 "\n", rows[i].name, rows[i].labels,
				   metric_get((enum metric_id)i));
		else
			buf_printf(out, "%s %" PRId64 "\n", rows[i].name,
				   metric_get((enum metric_id)i));
	}
	return buf_error(out);
}
