// SPDX-License-Identifier: Apache-2.0
/*
 * Allocation by 32-bit names. Sizes are rounded up to one of 80 classes: up to 256 bytes to the
 * next multiple of 8, larger ones by at most an eighth. Each class has a list of its chunks with
 * room; a chunk keeps the list of its own freed slots, so that it can tell when it is empty.
 *
 * Under AddressSanitizer freed slots are poisoned, as malloc()'s would be. Loop thread only.
 */
#include "operator/cache/slab.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)	  ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* Units of the class that serves SIZE, and its number. */
static unsigned int class_of(size_t size, unsigned int *ret_class)
{
	unsigned int units = MAX((unsigned int)((size + SLAB_UNIT - 1) / SLAB_UNIT), 1);
	unsigned int shift = 0, steps;

	if (units <= 32) {
		*ret_class = units - 1;
		return units;
	}
	while (units > (32u << (shift + 1)))
		shift++;
	shift++; /* 33..64: steps of 2, 65..128: of 4, 129..256: of 8 */
	steps = (units + (1u << shift) - 1) >> shift; /* 17..32 */
	*ret_class = 32 + (shift - 1) * 16 + (steps - 17);
	return steps << shift;
}

static struct slab_chunk *chunk_of(const struct slab *s, uint32_t number)
{
	return &s->chunks[number - 1];
}

static void list_add(struct slab *s, uint32_t number, unsigned int class)
{
	struct slab_chunk *c = chunk_of(s, number);

	c->prev = 0;
	c->next = s->with_room[class];
	if (c->next)
		chunk_of(s, c->next)->prev = number;
	s->with_room[class] = number;
}

static void list_remove(struct slab *s, uint32_t number, unsigned int class)
{
	struct slab_chunk *c = chunk_of(s, number);

	if (c->prev)
		chunk_of(s, c->prev)->next = c->next;
	else
		s->with_room[class] = c->next;
	if (c->next)
		chunk_of(s, c->next)->prev = c->prev;
}

static int chunk_new(struct slab *s, size_t bytes, unsigned int units, uint32_t *ret)
{
	_cleanup_free_ char *mem = NULL;
	struct slab_chunk *c;
	uint32_t number;
	int r;

	if (bytes > UINT32_MAX)
		return -ENOMEM;
	if (!s->free_number) {
		r = grow_array((void **)&s->chunks, &s->cap, s->n_chunks + 1, sizeof(*s->chunks),
			       SLAB_CHUNKS_MAX);
		if (r)
			return -ENOMEM;
	}
	mem = malloc(bytes);
	if (!mem)
		return -ENOMEM;
	if (s->free_number) {
		number = s->free_number;
		s->free_number = chunk_of(s, number)->next;
	} else {
		number = (uint32_t)++s->n_chunks;
	}
	c = chunk_of(s, number);
	*c = (struct slab_chunk){
	    .mem = TAKE_PTR(mem), .bytes = (uint32_t)bytes, .units = (uint16_t)units};
	s->bytes += bytes;
	ASAN_POISON_MEMORY_REGION(c->mem, bytes);
	*ret = number;
	return 0;
}

static void chunk_free(struct slab *s, uint32_t number)
{
	struct slab_chunk *c = chunk_of(s, number);

	ASAN_UNPOISON_MEMORY_REGION(c->mem, c->bytes);
	s->bytes -= c->bytes;
	free(c->mem);
	*c = (struct slab_chunk){.next = s->free_number, .units = 1};
	s->free_number = number;
}

static bool chunk_full(const struct slab_chunk *c)
{
	return c->used == SLAB_UNITS / c->units;
}

int slab_alloc(struct slab *s, size_t size, uint32_t *ret)
{
	unsigned int class, units;
	struct slab_chunk *c;
	uint32_t number, unit;
	char *p;
	int r;

	if (size > SLAB_SMALL_MAX) {
		r = chunk_new(s, ALIGN_UP(size, (size_t)SLAB_UNIT), SLAB_UNITS, &number);
		if (r)
			return r;
		c = chunk_of(s, number);
		c->used = 1;
		ASAN_UNPOISON_MEMORY_REGION(c->mem, c->bytes);
		s->count++;
		*ret = number << SLAB_UNIT_BITS;
		return 0;
	}
	units = class_of(size, &class);
	number = s->with_room[class];
	if (!number) {
		r = chunk_new(s, SLAB_CHUNK, units, &number);
		if (r)
			return r;
		list_add(s, number, class);
	}
	c = chunk_of(s, number);
	if (c->freed) {
		unit = (uint32_t)(c->freed - 1) * units;
		p = c->mem + (size_t)unit * SLAB_UNIT;
		ASAN_UNPOISON_MEMORY_REGION(p, units * SLAB_UNIT);
		memcpy(&c->freed, p, sizeof(c->freed));
	} else {
		unit = (uint32_t)c->fresh++ * units;
		p = c->mem + (size_t)unit * SLAB_UNIT;
		ASAN_UNPOISON_MEMORY_REGION(p, units * SLAB_UNIT);
	}
	c->used++;
	if (chunk_full(c))
		list_remove(s, number, class);
	s->count++;
	*ret = number << SLAB_UNIT_BITS | unit;
	return 0;
}

void slab_free(struct slab *s, uint32_t ref)
{
	uint32_t number = ref >> SLAB_UNIT_BITS, unit = ref & (SLAB_UNITS - 1);
	struct slab_chunk *c;
	unsigned int class;
	char *p;

	if (!ref)
		return;
	c = chunk_of(s, number);
	s->count--;
	if (c->units == SLAB_UNITS) {
		chunk_free(s, number);
		return;
	}
	(void)class_of((size_t)c->units * SLAB_UNIT, &class);
	if (chunk_full(c))
		list_add(s, number, class);
	if (!--c->used) {
		list_remove(s, number, class);
		chunk_free(s, number);
		return;
	}
	p = c->mem + (size_t)unit * SLAB_UNIT;
	memcpy(p, &c->freed, sizeof(c->freed));
	c->freed = (uint16_t)(unit / c->units + 1);
	ASAN_POISON_MEMORY_REGION(p, c->units * SLAB_UNIT);
}

size_t slab_growth(const struct slab *s, size_t size)
{
	unsigned int class;

	if (size > SLAB_SMALL_MAX)
		return ALIGN_UP(size, (size_t)SLAB_UNIT);
	(void)class_of(size, &class);
	return s->with_room[class] ? 0 : SLAB_CHUNK;
}

size_t slab_bytes(const struct slab *s)
{
	return s->bytes + s->cap * sizeof(*s->chunks);
}

void slab_done(struct slab *s)
{
	for (uint32_t i = 1; i <= s->n_chunks; i++)
		if (chunk_of(s, i)->mem)
			chunk_free(s, i);
	free(s->chunks);
	*s = (struct slab){0};
}
