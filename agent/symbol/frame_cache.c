// SPDX-License-Identifier: Apache-2.0
/*
 * Two arrays, of frames and of functions, with an index each. A frame is found by owner and
 * address, a function by its name, file and start line in the symbol table, so that each function
 * is demangled once. A function counts the frame lines that point to it. Functions without
 * references are freed by the trim, never before it, because results point to their text. When an
 * entry is removed, the last one of its array takes its place.
 *
 * Invariants: refs of a function equals the number of frame lines that point to it; `bytes` is the
 * sum of all allocations but the arrays'.
 */
#include "agent/symbol/frame_cache.h"

#include "lib/ref_table.h"

struct frame_cache {
	struct frame **frames;
	size_t cap_frames, cap_functions;
	struct frame_function **functions;
	struct ref_table frame_index, function_index;
	size_t max_frames;
	size_t bytes, max_bytes;
	uint32_t hand; /* index of the frame at which eviction (clock) continues */
};

int frame_cache_new(size_t max_frames, struct frame_cache **ret)
{
	struct frame_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->max_frames = max_frames;
	c->max_bytes = max_frames * FRAME_CACHE_BYTES;
	*ret = c;
	return 0;
}

struct frame_cache *frame_cache_free(struct frame_cache *c)
{
	if (!c)
		return NULL;
	for (uint32_t i = 0; i < c->frame_index.count; i++)
		free(c->frames[i]);
	for (uint32_t i = 0; i < c->function_index.count; i++)
		free(c->functions[i]);
	ref_table_done(&c->frame_index);
	ref_table_done(&c->function_index);
	free(c->frames);
	free(c->functions);
	free(c);
	return NULL;
}

static uint64_t frame_hash(uint32_t owner, uint64_t address)
{
	return mix64(address ^ (uint64_t)owner << 40);
}

static size_t frame_bytes(size_t n)
{
	return sizeof(struct frame) + n * sizeof(struct frame_line);
}

static bool same_frame(const void *cache, uint32_t place, const void *key)
{
	const struct frame *a = ((const struct frame_cache *)cache)->frames[place], *b = key;

	return a->address == b->address && a->owner == b->owner;
}

const struct frame *frame_cache_get(struct frame_cache *c, uint32_t owner, uint64_t address)
{
	const struct frame key = {.address = address, .owner = owner};
	uint32_t place =
	    ref_table_index(&c->frame_index, frame_hash(owner, address), same_frame, c, &key);

	if (place == REF_TABLE_NONE)
		return NULL;
	c->frames[place]->used = true;
	return c->frames[place];
}

static bool is_full(const struct frame_cache *c, size_t more)
{
	return c->frame_index.count >= c->max_frames * FRAME_CACHE_SLACK ||
	       c->bytes + more > c->max_bytes * FRAME_CACHE_SLACK;
}

/* Room for one more in the array ITEMS and in its INDEX. */
static int make_room(void *items, size_t *cap, struct ref_table *index)
{
	int r = grow_array(items, cap, (size_t)index->count + 1, sizeof(void *), UINT32_MAX);

	return r < 0 ? r : ref_table_reserve(index, 1);
}

int frame_cache_put(struct frame_cache *c, uint32_t owner, uint64_t address,
		    const struct frame_line *lines, size_t n, const struct frame **ret)
{
	struct frame *f;
	int r;

	if (n > UINT16_MAX || is_full(c, frame_bytes(n)))
		return -E2BIG;
	r = make_room((void **)&c->frames, &c->cap_frames, &c->frame_index);
	if (r < 0)
		return r;
	f = malloc(frame_bytes(n));
	if (!f)
		return -ENOMEM;
	f->address = address;
	f->owner = owner;
	f->n = (uint16_t)n;
	f->used = true;
	for (size_t i = 0; i < n; i++) {
		f->lines[i] = lines[i];
		f->lines[i].function->refs++;
	}
	c->frames[c->frame_index.count] = f;
	ref_table_insert(&c->frame_index, frame_hash(owner, address), c->frame_index.count + 1);
	c->bytes += frame_bytes(n);
	*ret = f;
	return 0;
}

static uint64_t function_hash(const char *system_name, const char *file, uint32_t start_line)
{
	return hash_bytes(system_name, strlen(system_name),
			  hash_bytes(file, strlen(file), start_line));
}

static bool same_function(const void *cache, uint32_t place, const void *key)
{
	const struct frame_function *a = ((const struct frame_cache *)cache)->functions[place],
				    *b = key;

	/* FRAME_RUST and FRAME_NATIVE follow from the name, FRAME_GO does not. */
	return (a->type == FRAME_GO) == (b->type == FRAME_GO) && a->start_line == b->start_line &&
	       streq(a->system_name, b->system_name) && streq(a->file, b->file);
}

struct frame_function *frame_cache_function(struct frame_cache *c, enum frame_type type,
					    const char *system_name, const char *file,
					    uint32_t start_line)
{
	const struct frame_function key = {
	    .type = type, .system_name = system_name, .file = file, .start_line = start_line};
	uint32_t place =
	    ref_table_index(&c->function_index, function_hash(system_name, file, start_line),
			    same_function, c, &key);

	return place == REF_TABLE_NONE ? NULL : c->functions[place];
}

int frame_cache_add_function(struct frame_cache *c, enum frame_type type, const char *name,
			     const char *system_name, const char *file, uint32_t start_line,
			     struct frame_function **ret)
{
	uint64_t hash = function_hash(system_name, file, start_line);
	struct frame_function *f;
	size_t system_len = strlen(system_name) + 1, file_len = strlen(file) + 1;
	size_t name_len = name ? strlen(name) + 1 : 0, size = system_len + file_len + name_len;
	int r;

	if (size > UINT32_MAX || is_full(c, sizeof(*f) + size))
		return -E2BIG;
	r = make_room((void **)&c->functions, &c->cap_functions, &c->function_index);
	if (r < 0)
		return r;
	f = malloc(sizeof(*f) + size);
	if (!f)
		return -ENOMEM;
	memcpy(f->text, system_name, system_len);
	memcpy(f->text + system_len, file, file_len);
	if (name)
		memcpy(f->text + system_len + file_len, name, name_len);
	/* The strings may lie in a mapped file that is written to meanwhile: terminate each at
	 * the length that was measured. */
	f->text[system_len - 1] = f->text[system_len + file_len - 1] = f->text[size - 1] = '\0';
	f->hash = hash;
	f->refs = 0;
	f->start_line = start_line;
	f->size = (uint32_t)size;
	f->type = type;
	f->system_name = f->text;
	f->file = f->text + system_len;
	f->name = name ? f->file + file_len : f->system_name;
	f->place = c->function_index.count;
	c->functions[f->place] = f;
	ref_table_insert(&c->function_index, hash, f->place + 1);
	c->bytes += sizeof(*f) + size;
	*ret = f;
	return 0;
}

/* ---- trimming ---------------------------------------------------------------------------------
 */

static bool is_over(const struct frame_cache *c)
{
	return c->frame_index.count > c->max_frames || c->bytes > c->max_bytes;
}

static void drop_function(struct frame_cache *c, struct frame_function *f)
{
	uint32_t last = c->function_index.count - 1, place = f->place;

	(void)ref_table_remove(&c->function_index, f->hash, place + 1);
	if (place != last) {
		struct frame_function *moved = c->functions[last];

		(void)ref_table_remove(&c->function_index, moved->hash, last + 1);
		ref_table_insert(&c->function_index, moved->hash, place + 1);
		c->functions[place] = moved;
		moved->place = place;
	}
	c->bytes -= sizeof(*f) + f->size;
	free(f);
}

static void drop_frame(struct frame_cache *c, uint32_t place)
{
	uint32_t last = c->frame_index.count - 1;
	struct frame *f = c->frames[place], *moved = c->frames[last];

	(void)ref_table_remove(&c->frame_index, frame_hash(f->owner, f->address), place + 1);
	if (place != last) {
		uint64_t hash = frame_hash(moved->owner, moved->address);

		(void)ref_table_remove(&c->frame_index, hash, last + 1);
		ref_table_insert(&c->frame_index, hash, place + 1);
		c->frames[place] = moved;
	}
	for (size_t i = 0; i < f->n; i++) {
		if (--f->lines[i].function->refs == 0)
			drop_function(c, f->lines[i].function);
	}
	c->bytes -= frame_bytes(f->n);
	free(f);
}

/* Functions that a failed or refused frame left behind. */
static void drop_unused_functions(struct frame_cache *c)
{
	for (uint32_t i = 0; i < c->function_index.count;) {
		if (c->functions[i]->refs)
			i++;
		else
			drop_function(c, c->functions[i]);
	}
}

void frame_cache_trim(struct frame_cache *c)
{
	if (!is_over(c))
		return;
	drop_unused_functions(c);
	/* Two turns of the hand at most: the first clears the `used` marks. */
	for (size_t left = 2 * (size_t)c->frame_index.count; left && is_over(c); left--) {
		if (c->hand >= c->frame_index.count)
			c->hand = 0;
		if (c->frames[c->hand]->used)
			c->frames[c->hand++]->used = false;
		else
			drop_frame(c, c->hand);
	}
	ref_table_trim(&c->frame_index);
	ref_table_trim(&c->function_index);
}

size_t frame_cache_bytes(const struct frame_cache *c)
{
	return sizeof(*c) + (c->cap_frames + c->cap_functions) * sizeof(void *) +
	       ref_table_bytes(&c->frame_index) + ref_table_bytes(&c->function_index) + c->bytes;
}

size_t frame_cache_count(const struct frame_cache *c)
{
	return c->frame_index.count;
}
