/* SPDX-License-Identifier: Apache-2.0 */
/* Stateless: a file is shown to each runtime in turn. */
#include "agent/runtime/probe.h"

void runtime_probe(const struct interpreter_ops *const *table, uint32_t tracers,
		   const struct image *image, struct runtime_probe *ret)
{
	for (; *table && ret->n < RUNTIME_MAX; table++) {
		const struct interpreter_ops *ops = *table;
		struct runtime_image *found = NULL;
		struct error err = {};
		int r;

		if (!(tracers >> ops->id & 1))
			continue;
		r = ops->probe(image, &found, &err);
		/* On other errors the file is not this runtime, or cannot be read: skip it. */
		if (r < 0 && r != -ENOTSUP)
			continue;
		ret->found[ret->n].ops = ops;
		ret->found[ret->n].image = found;
		snprintf(ret->found[ret->n].why, sizeof(ret->found[0].why), "%.159s", err.message);
		ret->n++;
	}
}

int runtime_mark(const struct runtime_probe *probe, struct unwind_table **table)
{
	struct unwind_range ranges[RUNTIME_RANGES_MAX];
	int r = 0;

	for (size_t i = 0; i < probe->n && r == 0; i++) {
		const struct runtime_image *ri = probe->found[i].image;
		size_t n = ri ? MIN(ri->n_ranges, (size_t)RUNTIME_RANGES_MAX) : 0;

		for (size_t k = 0; k < n; k++)
			ranges[k] = (struct unwind_range){
			    .start = ri->ranges[k].start,
			    .end = ri->ranges[k].end,
			    .frame_pointer = ri->ranges[k].frame_pointer,
			    .keeps_fp = ri->ranges[k].keeps_fp,
			    .native = ri->ranges[k].native,
			};
		if (n)
			r = unwind_table_mark(table, ranges, n, probe->found[i].ops->id);
	}
	return r;
}

void runtime_probe_done(struct runtime_probe *probe)
{
	for (size_t i = 0; i < probe->n; i++)
		if (probe->found[i].image)
			probe->found[i].ops->forget(probe->found[i].image);
	probe->n = 0;
}
