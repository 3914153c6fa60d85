/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One metric family for each kind of count, with a place for each id. Only those of runtimes are
 * shown.
 */
#include "agent/runtime/metrics.h"

#include "lib/metrics.h"

enum { REASONS = KILN_MISSING_COUNT };

static const char *const reason_names[REASONS] = {
    [KILN_MISSING_UNKNOWN] = "not_read_yet", [KILN_MISSING_NO_THREAD] = "no_thread",
    [KILN_MISSING_READ] = "unreadable",	     [KILN_MISSING_BROKEN] = "broken",
    [KILN_MISSING_BUDGET] = "budget",	     [KILN_MISSING_NOT_LOADED] = "not_loaded",
    [KILN_MISSING_SWITCHES] = "switches",
};

_Static_assert(KILN_MISSING_SWITCHES == REASONS - 1, "each reason has a name");

enum { PLACES = RUNTIME_VERSIONS_MAX + 1 }; /* the last one is for all other versions */

static struct metric_series frames[KILN_RUNTIME_MAX], missing[KILN_RUNTIME_MAX * REASONS];
static struct metric_series programs[KILN_RUNTIME_MAX * PLACES];
static struct metric_family families[] = {
    {.kind = METRIC_COUNTER,
     .name = "kiln_runtime_frames_total",
     .help = "Frames of runtimes in samples.",
     .series = frames,
     .n = ARRAY_SIZE(frames)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_runtime_missing_total",
     .help = "Samples that lack frames of a runtime, by reason.",
     .series = missing,
     .n = ARRAY_SIZE(missing)},
    {.kind = METRIC_COUNTER,
     .name = "kiln_runtime_programs_total",
     .help = "Programs whose runtime was attached to, by its version; one that maps more code "
	     "counts again.",
     .series = programs,
     .n = ARRAY_SIZE(programs)},
};

void runtime_metrics_init(const struct interpreter_ops *const *table)
{
	for (; *table; table++) {
		const char *name = (*table)->name;
		uint32_t id = (*table)->id;

		metric_series_label(&frames[id], "runtime=\"%s\"", name);
		for (uint32_t why = KILN_MISSING_NONE + 1; why < REASONS; why++)
			metric_series_label(&missing[id * REASONS + why],
					    "runtime=\"%s\",reason=\"%s\"", name,
					    reason_names[why]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(families); i++)
		metrics_add_family(&families[i]);
}

void runtime_metrics_frames(uint32_t id, uint32_t n)
{
	if (id < KILN_RUNTIME_MAX)
		metric_series_add(&frames[id], n);
}

void runtime_metrics_missing(uint32_t id, enum kiln_missing why)
{
	if (id < KILN_RUNTIME_MAX && (uint32_t)why < REASONS)
		metric_series_add(&missing[id * REASONS + why], 1);
}

void runtime_metrics_program(const struct interpreter_ops *ops, size_t place, const char *version)
{
	struct metric_series *s;

	if (ops->id >= KILN_RUNTIME_MAX)
		return;
	s = &programs[ops->id * PLACES + MIN(place, (size_t)RUNTIME_VERSIONS_MAX)];
	metric_series_label(s, "runtime=\"%s\",version=\"%s\"", ops->name,
			    place < RUNTIME_VERSIONS_MAX ? version : "other");
	metric_series_add(s, 1);
}
