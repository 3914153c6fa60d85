/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct slab: small allocations that are named by 32 bits instead of a pointer and never move.
 * Chunks of 16 KiB serve one size each, larger pieces stand alone; an empty chunk goes back at
 * once, so that a shrinking cluster gives its memory back.
 *
 * A name is (chunk number + 1) * 2048 + offset in units of 8 bytes. It may also point INTO an
 * allocation, up to SLAB_REACH bytes from its start: slab_base() gives the start back. So an index
 * can hold the place of a key inside a record and need no second word. Loop thread only.
 */
#pragma once

#include "lib/base.h"

enum {
	SLAB_UNIT = 8,
	SLAB_CHUNK = 16384,
	SLAB_UNITS = SLAB_CHUNK / SLAB_UNIT,
	SLAB_UNIT_BITS = 11,
	SLAB_SMALL_MAX = 2048,
	SLAB_CLASSES = 80,
	SLAB_REACH = SLAB_CHUNK - SLAB_UNIT,
	SLAB_CHUNKS_MAX = (1 << 21) - 2,
};
_Static_assert(SLAB_UNITS == 1 << SLAB_UNIT_BITS, "a name is chunk number and unit");

struct slab_chunk {
	char *mem;	     /* NULL: the number is free */
	uint32_t bytes;	     /* of mem */
	uint32_t next, prev; /* chunks of this size with room, or free numbers; number + 1 */
	uint16_t units;	     /* of one allocation; SLAB_UNITS: a single larger one */
	uint16_t used;	     /* allocations */
	uint16_t fresh;	     /* slots that were handed out at least once */
	uint16_t freed;	     /* last freed slot + 1; the next one is in its first bytes */
};
_Static_assert(sizeof(struct slab_chunk) == 32, "32 bytes beside each chunk");

struct slab {
	struct slab_chunk *chunks;
	size_t n_chunks, cap;
	uint32_t free_number;		  /* number + 1 */
	uint32_t with_room[SLAB_CLASSES]; /* number + 1 */
	size_t bytes;			  /* of chunks */
	size_t count;
};

void slab_done(struct slab *s);
/* -ENOMEM. */
int slab_alloc(struct slab *s, size_t size, uint32_t *ret) _must_check_;
void slab_free(struct slab *s, uint32_t ref);
/* What slab_alloc() would add to slab_bytes(). */
size_t slab_growth(const struct slab *s, size_t size);
size_t slab_bytes(const struct slab *s);

static inline void *slab_at(const struct slab *s, uint32_t ref)
{
	return s->chunks[(ref >> SLAB_UNIT_BITS) - 1].mem +
	       (size_t)(ref & (SLAB_UNITS - 1)) * SLAB_UNIT;
}

static inline uint32_t slab_base(const struct slab *s, uint32_t ref)
{
	return ref - (ref & (SLAB_UNITS - 1)) % s->chunks[(ref >> SLAB_UNIT_BITS) - 1].units;
}
