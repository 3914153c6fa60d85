// SPDX-License-Identifier: Apache-2.0
/*
 * Sorting and merging of spans, see span.h. Everything is linear: a stable radix sort over the
 * distance from the lowest start, then passes over sorted lists. One thread per list.
 */
#include "agent/elf/span.h"

enum {
	RADIX_BITS = 11,
	RADIX = 1 << RADIX_BITS,
};

int spans_add(struct spans *s, const struct span *span)
{
	int r = grow_array((void **)&s->v, &s->cap, s->n + 1, sizeof(*s->v), SPANS_MAX);

	if (r < 0)
		return r;
	s->v[s->n++] = *span;
	return 0;
}

void spans_done(struct spans *s)
{
	free(s->v);
	*s = (struct spans){0};
}

static int radix_sort(struct spans *s)
{
	uint64_t low = UINT64_MAX, high = 0;
	_cleanup_free_ struct span *other = NULL;
	struct span *from, *to, *t;
	bool sorted = true;

	for (size_t i = 0; i < s->n; i++) {
		sorted &= i == 0 || s->v[i - 1].start <= s->v[i].start;
		low = MIN(low, s->v[i].start);
		high = MAX(high, s->v[i].start);
	}
	if (sorted)
		return 0;
	other = malloc(s->n * sizeof(*other));
	if (!other)
		return -ENOMEM;
	from = s->v;
	to = other;
	for (unsigned int shift = 0; shift < 64 && (high - low) >> shift; shift += RADIX_BITS) {
		uint32_t at[RADIX] = {0}, sum = 0;

		for (size_t i = 0; i < s->n; i++)
			at[((from[i].start - low) >> shift) % RADIX]++;
		for (size_t i = 0; i < RADIX; i++) {
			uint32_t n = at[i];

			at[i] = sum;
			sum += n;
		}
		for (size_t i = 0; i < s->n; i++)
			to[at[((from[i].start - low) >> shift) % RADIX]++] = from[i];
		t = from;
		from = to;
		to = t;
	}
	if (from != s->v)
		memcpy(s->v, from, s->n * sizeof(*from));
	return 0;
}

int spans_sort(struct spans *s)
{
	size_t n = 0;
	int r = radix_sort(s);

	if (r < 0)
		return r;
	for (size_t i = 0; i < s->n; i++) {
		struct span span = s->v[i];

		if (n && s->v[n - 1].start == span.start)
			continue;
		if (n && span_end(&s->v[n - 1]) > span.start)
			s->v[n - 1].size = (uint32_t)(span.start - s->v[n - 1].start);
		s->v[n++] = span;
	}
	s->n = n;
	return 0;
}

/* Adds SPAN cut to [start, end). */
static int add_piece(struct spans *out, const struct span *span, uint64_t start, uint64_t end)
{
	struct span piece = *span;

	start = MAX(start, span->start);
	end = MIN(end, span_end(span));
	if (start >= end)
		return 0;
	piece.start = start;
	piece.size = (uint32_t)(end - start);
	return spans_add(out, &piece);
}

static int fill(struct spans *out, const struct spans *high, const struct spans *low)
{
	size_t h = 0, pieces = 0;
	uint64_t done = 0; /* everything below is decided */
	int dropped = 0, r;

	for (size_t l = 0; l < low->n;) {
		const struct span *span = &low->v[l];
		uint64_t until = h < high->n ? high->v[h].start : UINT64_MAX;

		if (span->start < until && span_end(span) > done) {
			if (++pieces <= SPAN_PIECES_MAX) {
				r = add_piece(out, span, done, until);
				if (r < 0)
					return r;
			}
			dropped += pieces == SPAN_PIECES_MAX + 1;
		}
		if (span_end(span) <= until) {
			l++;
			pieces = 0;
			continue;
		}
		r = spans_add(out, &high->v[h]);
		if (r < 0)
			return r;
		done = span_end(&high->v[h++]);
	}
	for (; h < high->n; h++) {
		r = spans_add(out, &high->v[h]);
		if (r < 0)
			return r;
	}
	return dropped;
}

int spans_fill(struct spans *high, const struct spans *low)
{
	struct spans out = {0};
	int r;

	if (low->n == 0)
		return 0;
	r = fill(&out, high, low);
	if (r < 0) {
		spans_done(&out);
		return r;
	}
	spans_done(high);
	*high = out;
	return r;
}
