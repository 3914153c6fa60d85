/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First fit over a sorted array of free ranges; neighbours are joined. A queue holds the ranges
 * that rest.
 * Some hundred tables and some thousand mapping sets live at once, so linear scans are cheap.
 */
#include "agent/sampler/range_alloc.h"

struct range {
	uint32_t at, n;
};

struct resting {
	struct range range;
	uint64_t until_ms;
};

struct range_alloc {
	struct range *free;
	size_t n_free, cap_free;
	struct resting *resting; /* oldest first */
	size_t n_resting, cap_resting;
	uint32_t used, first, total;
};

int range_alloc_new(uint32_t first, uint32_t count, struct range_alloc **ret)
{
	_cleanup_(range_alloc_freep) struct range_alloc *a = calloc(1, sizeof(*a));

	if (!a || grow_array((void **)&a->free, &a->cap_free, 1, sizeof(*a->free), SIZE_MAX))
		return -ENOMEM;
	a->free[0] = (struct range){first, count};
	a->n_free = 1;
	a->first = first;
	a->total = count;
	*ret = TAKE_PTR(a);
	return 0;
}

struct range_alloc *range_alloc_free(struct range_alloc *a)
{
	if (!a)
		return NULL;
	free(a->free);
	free(a->resting);
	free(a);
	return NULL;
}

/* Gives R back for use. On out of memory the range is lost, which only costs room. */
static void release(struct range_alloc *a, struct range r)
{
	size_t i = 0;

	while (i < a->n_free && a->free[i].at < r.at)
		i++;
	if (i > 0 && a->free[i - 1].at + a->free[i - 1].n == r.at) {
		a->free[i - 1].n += r.n;
		if (i < a->n_free && a->free[i - 1].at + a->free[i - 1].n == a->free[i].at) {
			a->free[i - 1].n += a->free[i].n;
			memmove(&a->free[i], &a->free[i + 1], (--a->n_free - i) * sizeof(*a->free));
		}
		return;
	}
	if (i < a->n_free && r.at + r.n == a->free[i].at) {
		a->free[i].at = r.at;
		a->free[i].n += r.n;
		return;
	}
	if (grow_array((void **)&a->free, &a->cap_free, a->n_free + 1, sizeof(*a->free), SIZE_MAX))
		return;
	memmove(&a->free[i + 1], &a->free[i], (a->n_free - i) * sizeof(*a->free));
	a->free[i] = r;
	a->n_free++;
}

static void wake_rested(struct range_alloc *a, uint64_t now_ms)
{
	size_t n = 0;

	while (n < a->n_resting && a->resting[n].until_ms <= now_ms)
		release(a, a->resting[n++].range);
	if (n) {
		a->n_resting -= n;
		memmove(a->resting, a->resting + n, a->n_resting * sizeof(*a->resting));
	}
}

int range_alloc_get(struct range_alloc *a, uint32_t n, uint64_t now_ms, uint32_t *ret)
{
	wake_rested(a, now_ms);
	for (size_t i = 0; i < a->n_free; i++) {
		if (a->free[i].n < n)
			continue;
		*ret = a->free[i].at;
		a->free[i].at += n;
		a->free[i].n -= n;
		a->used += n;
		if (!a->free[i].n) {
			a->n_free--;
			memmove(&a->free[i], &a->free[i + 1], (a->n_free - i) * sizeof(*a->free));
		}
		return 0;
	}
	return -ENOSPC;
}

void range_alloc_put(struct range_alloc *a, uint32_t at, uint32_t n, uint64_t now_ms)
{
	if (!n)
		return;
	a->used -= n;
	wake_rested(a, now_ms);
	if (grow_array((void **)&a->resting, &a->cap_resting, a->n_resting + 1, sizeof(*a->resting),
		       SIZE_MAX))
		return; /* lost, never reused: safe */
	a->resting[a->n_resting++] = (struct resting){{at, n}, now_ms + RANGE_REST_MS};
}

void range_alloc_cancel(struct range_alloc *a, uint32_t at, uint32_t n)
{
	if (!n)
		return;
	a->used -= n;
	release(a, (struct range){at, n});
}

bool range_alloc_is_free(struct range_alloc *a, uint32_t at, uint32_t n, uint64_t now_ms)
{
	uint32_t from = MAX(at, a->first), to = MIN(at + n, a->first + a->total);

	wake_rested(a, now_ms);
	for (size_t i = 0; i < a->n_free; i++)
		if (a->free[i].at <= from && to <= a->free[i].at + a->free[i].n)
			return true;
	return false;
}

uint32_t range_alloc_used(const struct range_alloc *a)
{
	return a->used;
}

uint32_t range_alloc_spare(const struct range_alloc *a)
{
	return a->total - a->used;
}

uint32_t range_alloc_resting(const struct range_alloc *a)
{
	uint32_t n = 0;

	for (size_t i = 0; i < a->n_resting; i++)
		n += a->resting[i].range.n;
	return n;
}
