/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct range_alloc: hands out ranges of a flat array that BPF programs read at the same time. A
 * freed range rests before it is used again, so that a program that still walks it (at most some
 * microseconds) never sees somebody else's content. Owned by the loop thread.
 */
#pragma once

#include "lib/base.h"

enum { RANGE_REST_MS = 50 };

struct range_alloc;

/* Ranges lie in [FIRST, FIRST + COUNT). */
int range_alloc_new(uint32_t first, uint32_t count, struct range_alloc **ret) _must_check_;
struct range_alloc *range_alloc_free(struct range_alloc *a);
DEFINE_CLEANUP(struct range_alloc *, range_alloc_free)

/* The lowest fitting range. -ENOSPC when there is none (some may come back after their rest). */
int range_alloc_get(struct range_alloc *a, uint32_t n, uint64_t now_ms, uint32_t *ret) _must_check_;
void range_alloc_put(struct range_alloc *a, uint32_t at, uint32_t n, uint64_t now_ms);
/* Frees, without a rest, a range of range_alloc_get() that no program could have read yet. */
void range_alloc_cancel(struct range_alloc *a, uint32_t at, uint32_t n);
/* Are all units of [AT, AT + N) that belong to A free: neither handed out nor at rest? */
bool range_alloc_is_free(struct range_alloc *a, uint32_t at, uint32_t n, uint64_t now_ms);
/* Units handed out, without those at rest. */
uint32_t range_alloc_used(const struct range_alloc *a);
/* Units that are free or at rest: what range_alloc_get() could give at best, later. */
uint32_t range_alloc_spare(const struct range_alloc *a);
/* Units at rest. */
uint32_t range_alloc_resting(const struct range_alloc *a);
