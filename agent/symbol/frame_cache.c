// SPDX-License-Identifier: Apache-2.0
/*
 * Two chained hash tables. A frame is found by (owner, address), a function by what the symbol
 * table says of it, so that demangling is done once a function. Frames count their functions'
 * references; functions without any are freed by the trim, never before it, because results point
 * to their text.
 *
 * Invariants: refs of a function equals the number of frame lines that point to it; `bytes` is the
 * sum of all allocations.
 */
#include "agent/symbol/frame_cache.h"

enum { BUCKETS_MIN = 1024 };

struct frame_cache {
	struct frame **frames;
	struct frame_function **functions;
	size_t n_buckets; /* of each table; a power of two */
	size_t n_frames, max_frames;
	size_t bytes, max_bytes;
	size_t hand; /* bucket at which the clock goes on */
};

int frame_cache_new(size_t max_frames, struct frame_cache **ret)
{
	_cleanup_(frame_cache_freep) struct frame_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->n_buckets = BUCKETS_MIN;
	while (c->n_buckets < max_frames / 4)
		c->n_buckets *= 2;
	c->max_frames = max_frames;
	c->max_bytes = max_frames * FRAME_CACHE_BYTES;
	c->frames = calloc(c->n_buckets, sizeof(*c->frames));
	c->functions = calloc(c->n_buckets, sizeof(*c->functions));
	if (!c->frames || !c->functions)
		return -ENOMEM;
	*ret = TAKE_PTR(c);
	return 0;
}

struct frame_cache *frame_cache_free(struct frame_cache *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < c->n_buckets; i++) {
		struct frame *f = c->frames ? c->frames[i] : NULL, *next;
		struct frame_function *fn = c->functions ? c->functions[i] : NULL, *next_fn;

		for (; f; f = next) {
			next = f->next;
			free(f);
		}
		for (; fn; fn = next_fn) {
			next_fn = fn->next;
			free(fn);
		}
	}
	free(c->frames);
	free(c->functions);
	free(c);
	return NULL;
}

static struct frame **frame_bucket(struct frame_cache *c, uint32_t owner, uint64_t address)
{
	return &c->frames[mix64(address ^ (uint64_t)owner << 40) & (c->n_buckets - 1)];
}

static size_t frame_bytes(size_t n)
{
	return sizeof(struct frame) + n * sizeof(struct frame_line);
}

const struct frame *frame_cache_get(struct frame_cache *c, uint32_t owner, uint64_t address)
{
	for (struct frame *f = *frame_bucket(c, owner, address); f; f = f->next) {
		if (f->address == address && f->owner == owner) {
			f->used = true;
			return f;
		}
	}
	return NULL;
}

static bool is_full(const struct frame_cache *c, size_t more)
{
	return c->n_frames >= c->max_frames * FRAME_CACHE_SLACK ||
	       c->bytes + more > c->max_bytes * FRAME_CACHE_SLACK;
}

int frame_cache_put(struct frame_cache *c, uint32_t owner, uint64_t address,
		    const struct frame_line *lines, size_t n, const struct frame **ret)
{
	struct frame **bucket = frame_bucket(c, owner, address), *f;

	if (n > UINT16_MAX || is_full(c, frame_bytes(n)))
		return -E2BIG;
	f = malloc(frame_bytes(n));
	if (!f)
		return -ENOMEM;
	f->next = *bucket;
	f->address = address;
	f->owner = owner;
	f->n = (uint16_t)n;
	f->used = true;
	for (size_t i = 0; i < n; i++) {
		f->lines[i] = lines[i];
		f->lines[i].function->refs++;
	}
	*bucket = f;
	c->n_frames++;
	c->bytes += frame_bytes(n);
	*ret = f;
	return 0;
}

static uint64_t function_hash(const char *system_name, const char *file, uint32_t start_line)
{
	return hash_bytes(system_name, strlen(system_name),
			  hash_bytes(file, strlen(file), start_line));
}

struct frame_function *frame_cache_function(struct frame_cache *c, const char *system_name,
					    const char *file, uint32_t start_line)
{
	uint64_t hash = function_hash(system_name, file, start_line);
	struct frame_function *f = c->functions[hash & (c->n_buckets - 1)];

	for (; f; f = f->next) {
		if (f->hash == hash && f->start_line == start_line &&
		    streq(f->system_name, system_name) && streq(f->file, file))
			return f;
	}
	return NULL;
}

int frame_cache_add_function(struct frame_cache *c, enum frame_type type, const char *name,
			     const char *system_name, const char *file, uint32_t start_line,
			     struct frame_function **ret)
{
	uint64_t hash = function_hash(system_name, file, start_line);
	struct frame_function **bucket = &c->functions[hash & (c->n_buckets - 1)], *f;
	size_t system_len = strlen(system_name) + 1, file_len = strlen(file) + 1;
	size_t name_len = name ? strlen(name) + 1 : 0, size = system_len + file_len + name_len;

	if (size > UINT32_MAX || is_full(c, sizeof(*f) + size))
		return -E2BIG;
	f = malloc(sizeof(*f) + size);
	if (!f)
		return -ENOMEM;
	memcpy(f->text, system_name, system_len);
	memcpy(f->text + system_len, file, file_len);
	if (name)
		memcpy(f->text + system_len + file_len, name, name_len);
	f->hash = hash;
	f->refs = 0;
	f->start_line = start_line;
	f->size = (uint32_t)size;
	f->type = type;
	f->system_name = f->text;
	f->file = f->text + system_len;
	f->name = name ? f->file + file_len : f->system_name;
	f->next = *bucket;
	*bucket = f;
	c->bytes += sizeof(*f) + size;
	*ret = f;
	return 0;
}

/* ---- trimming ---------------------------------------------------------------------------------
 */

static bool is_over(const struct frame_cache *c)
{
	return c->n_frames > c->max_frames || c->bytes > c->max_bytes;
}

static void drop_function(struct frame_cache *c, struct frame_function *f)
{
	struct frame_function **p = &c->functions[f->hash & (c->n_buckets - 1)];

	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	c->bytes -= sizeof(*f) + f->size;
	free(f);
}

static void drop_frame(struct frame_cache *c, struct frame *f)
{
	for (size_t i = 0; i < f->n; i++) {
		if (--f->lines[i].function->refs == 0)
			drop_function(c, f->lines[i].function);
	}
	c->n_frames--;
	c->bytes -= frame_bytes(f->n);
	free(f);
}

/* Functions that a failed or refused frame left behind. */
static void drop_unused_functions(struct frame_cache *c)
{
	for (size_t i = 0; i < c->n_buckets; i++) {
		struct frame_function *f = c->functions[i], *next;

		for (; f; f = next) {
			next = f->next;
			if (!f->refs)
				drop_function(c, f);
		}
	}
}

void frame_cache_trim(struct frame_cache *c)
{
	if (!is_over(c))
		return;
	drop_unused_functions(c);
	/* Two turns of the hand at most: the first takes the marks away. */
	for (size_t i = 0; i < 2 * c->n_buckets && is_over(c); i++) {
		struct frame **p = &c->frames[c->hand];

		while (*p) {
			struct frame *f = *p;

			if (f->used) {
				f->used = false;
				p = &f->next;
			} else {
				*p = f->next;
				drop_frame(c, f);
			}
		}
		c->hand = (c->hand + 1) & (c->n_buckets - 1);
	}
}

size_t frame_cache_bytes(const struct frame_cache *c)
{
	return sizeof(*c) + 2 * c->n_buckets * sizeof(void *) + c->bytes;
}

size_t frame_cache_count(const struct frame_cache *c)
{
	return c->n_frames;
}
