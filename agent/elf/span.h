/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct spans: stretches of code, each with the place that holds its unwind information. The
 * compiler collects one list per source, sorts it, and fills the gaps of the better source from the
 * next one.
 */
#pragma once

#include "lib/base.h"

enum span_source { SPAN_EH_FRAME, SPAN_DEBUG_FRAME, SPAN_GO, SPAN_CODE, SPAN_FLOW, SPAN_UNREAD };

struct span {
	uint64_t start;	     /* ELF virtual address */
	uint32_t size : 29;  /* never 0 */
	uint32_t source : 3; /* enum span_source */
	uint32_t item;	     /* offset of the FDE in its section, index of the function or rule */
};

struct spans {
	struct span *v;
	size_t n, cap;
};

enum {
	SPANS_MAX = 4 << 20,
	SPAN_SIZE_MAX = (1 << 29) - 1,
	SPAN_PIECES_MAX = 16, /* so many gaps may be filled from one span */
};

static inline uint64_t span_end(const struct span *s)
{
	return s->start + s->size;
}

int spans_add(struct spans *s, const struct span *span) _must_check_;
void spans_done(struct spans *s);
/* By start, in linear time; equal starts: the first one stays; overlaps: the later start wins. */
int spans_sort(struct spans *s) _must_check_;
/*
 * Adds the parts of LOW (sorted) that lie in gaps of HIGH (sorted). Returns the number of spans of
 * LOW of which pieces beyond SPAN_PIECES_MAX were dropped, or -errno.
 */
int spans_fill(struct spans *high, const struct spans *low) _must_check_;
