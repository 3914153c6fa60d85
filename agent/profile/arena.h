/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct batch_arena: memory of one batch, given back all at once. Blocks double in size up to
 * 256 KiB; a hard cap on the sum is given at construction. One owner while it is filled.
 */
#pragma once

#include "lib/base.h"

struct batch_arena;
int batch_arena_new(size_t max_bytes, struct batch_arena **ret) _must_check_;
struct batch_arena *batch_arena_free(struct batch_arena *a);
/* SIZE bytes aligned for any type, not zeroed; NULL when out of memory or over the cap. */
void *batch_arena_alloc(struct batch_arena *a, size_t size);
bool batch_arena_full(const struct batch_arena *a); /* the last NULL was the cap's */
