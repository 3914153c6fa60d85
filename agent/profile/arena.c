/* SPDX-License-Identifier: Apache-2.0 */
/* A chain of blocks; only the newest has room. See the header. */
#include "agent/profile/arena.h"

enum { BLOCK_MIN = 4096, BLOCK_MAX = 256 * 1024, ALIGN = 8 };

struct block {
	struct block *next;
	size_t size; /* of data */
	_Alignas(ALIGN) unsigned char data[];
};

struct batch_arena {
	struct block *blocks; /* newest first */
	size_t used;	      /* bytes of the newest block */
	size_t total, max;    /* bytes of all blocks */
	bool full;
};

int batch_arena_new(size_t max_bytes, struct batch_arena **ret)
{
	struct batch_arena *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->max = max_bytes;
	*ret = a;
	return 0;
}

struct batch_arena *batch_arena_free(struct batch_arena *a)
{
	struct block *next;

	if (!a)
		return NULL;
	for (struct block *b = a->blocks; b; b = next) {
		next = b->next;
		free(b);
	}
	free(a);
	return NULL;
}

static int add_block(struct batch_arena *a, size_t want)
{
	size_t size = a->blocks ? MIN(a->blocks->size * 2, (size_t)BLOCK_MAX) : BLOCK_MIN;
	struct block *b;

	size = MAX(size, want);
	a->full = size > a->max - a->total;
	if (a->full)
		return -E2BIG;
	b = malloc(sizeof(*b) + size);
	if (!b)
		return -ENOMEM;
	b->size = size;
	b->next = a->blocks;
	a->blocks = b;
	a->used = 0;
	a->total += size;
	return 0;
}

void *batch_arena_alloc(struct batch_arena *a, size_t size)
{
	void *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = ALIGN_UP(size, (size_t)ALIGN);
	if ((!a->blocks || size > a->blocks->size - a->used) && add_block(a, size) < 0)
		return NULL;
	p = a->blocks->data + a->used;
	a->used += size;
	return p;
}

bool batch_arena_full(const struct batch_arena *a)
{
	return a->full;
}
