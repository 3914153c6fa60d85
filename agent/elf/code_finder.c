// SPDX-License-Identifier: Apache-2.0
/*
 * Known code without unwind information; code_finder.h. Patterns are searched only where no other
 * source has a rule, and the bytes scanned are bounded.
 */
#include "agent/elf/code_finder.h"

#include <elf.h>

enum {
	SCAN_MAX = 8 << 20, /* bytes of uncovered code that are searched for patterns */
	GAP_MIN = 16,	    /* bytes; shorter gaps are padding */
};

void code_finder_add(struct code_finder *f, uint64_t start, uint64_t end,
		     const struct kiln_rule *rule)
{
	if (f->n < f->max && start < end)
		f->rules[f->n++] = (struct code_rule){.start = start, .end = end, .rule = *rule};
}

static void scan(struct code_finder *f, const struct code_pattern *patterns, size_t n,
		 uint64_t start, uint64_t size)
{
	struct cursor c = image_at_vaddr(f->image, start);

	if (c.bad)
		return;
	size = MIN(size, c.size);
	for (size_t i = 0; i < n; i++) {
		const struct code_pattern *p = &patterns[i];
		const uint8_t *at = c.data;

		while ((at = memmem(at, size - (size_t)(at - c.data), p->bytes, p->size))) {
			uint64_t vaddr = start + (uint64_t)(at - c.data);

			code_finder_add(f, vaddr - p->before, vaddr + p->size, p->rule);
			at += p->size;
		}
	}
}

void code_finder_scan(struct code_finder *f, const struct spans *covered,
		      const struct code_pattern *patterns, size_t n)
{
	uint64_t budget = SCAN_MAX;
	size_t next = 0;

	for (size_t i = 0; i < f->image->n_segments; i++) {
		const struct image_segment *s = &f->image->segments[i];
		uint64_t at = s->vaddr, end = s->vaddr + s->filesz;

		if (!(s->flags & PF_X))
			continue;
		while (at < end && budget) {
			uint64_t gap_end = end;

			while (next < covered->n && span_end(&covered->v[next]) <= at)
				next++;
			if (next < covered->n)
				gap_end = MIN(end, covered->v[next].start);
			if (gap_end >= at + GAP_MIN) {
				uint64_t size = MIN(gap_end - at, budget);

				scan(f, patterns, n, at, size);
				budget -= size;
			}
			if (next == covered->n)
				break;
			at = span_end(&covered->v[next]);
		}
	}
}
