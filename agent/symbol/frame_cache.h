/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct frame_cache: the frames that addresses were resolved to, by owner (an id of a symbol
 * table) and virtual address. Functions are shared by their frames and owned by the cache; all that
 * it hands out lives until frame_cache_trim(). Frames that are not asked for between two trims go
 * first (clock). Between trims it may grow to FRAME_CACHE_SLACK times its caps, then it refuses.
 * One thread at a time.
 */
#pragma once

#include "agent/profile/batch.h"
#include "lib/base.h"

enum {
	FRAME_CACHE_SLACK = 4,
	FRAME_CACHE_BYTES = 160, /* for each frame of the cap, names included, on average */
};

struct frame_function {
	uint64_t hash;
	uint32_t place; /* in the cache's array */
	uint32_t refs;
	uint32_t start_line;
	uint32_t size; /* bytes of text */
	enum frame_type type;
	const char *name, *system_name, *file;
	char text[];
};

struct frame_line {
	struct frame_function *function;
	uint32_t line;
};

struct frame {
	uint64_t address;
	uint32_t owner;
	uint16_t n;
	bool used;
	struct frame_line lines[];
};

struct frame_cache;
int frame_cache_new(size_t max_frames, struct frame_cache **ret) _must_check_;
struct frame_cache *frame_cache_free(struct frame_cache *c);
DEFINE_CLEANUP(struct frame_cache *, frame_cache_free)

/* NULL when it is not known. */
const struct frame *frame_cache_get(struct frame_cache *c, uint32_t owner, uint64_t address);
/* N 0: no function covers the address. -E2BIG when the cache is full until the next trim. */
int frame_cache_put(struct frame_cache *c, uint32_t owner, uint64_t address,
		    const struct frame_line *lines, size_t n,
		    const struct frame **ret) _must_check_;

/*
 * A function by SYSTEM_NAME, FILE and START_LINE; NULL when there is none yet. TYPE: FRAME_GO finds
 * Go functions alone, any other type finds all other functions.
 */
struct frame_function *frame_cache_function(struct frame_cache *c, enum frame_type type,
					    const char *system_name, const char *file,
					    uint32_t start_line);
/* Adds one. NAME may be NULL: the same as SYSTEM_NAME. */
int frame_cache_add_function(struct frame_cache *c, enum frame_type type, const char *name,
			     const char *system_name, const char *file, uint32_t start_line,
			     struct frame_function **ret) _must_check_;

void frame_cache_trim(struct frame_cache *c);
size_t frame_cache_bytes(const struct frame_cache *c);
size_t frame_cache_count(const struct frame_cache *c);
