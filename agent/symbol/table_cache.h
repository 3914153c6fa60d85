/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct table_cache: the symbol tables of images, built when first asked for, the least recently
 * used ones dropped over a byte cap. Images of equal content (content.h) with equal debug files
 * share one. The tables of an image that nobody else uses any more are freed at the next trim. One
 * thread at a time.
 */
#pragma once

#include "agent/elf/gopclntab.h"
#include "agent/symbol/elf_symbols.h"
#include "agent/symbol/witness.h"
#include "lib/uthash.h"

/* Compared as bytes: what a table does not have is 0. */
struct table_key {
	struct image_content image, debug;
	uint64_t own; /* address of an image whose content is not known: shared with nobody */
};

struct table {
	struct table_key key;
	struct witness image, debug; /* the files that it is made from */
	struct table *sibling;	     /* ring of the tables of one struct image */
	uint32_t id;		     /* owner of its frames in a frame cache; never used again */
	uint32_t used;		     /* window */
	struct gopclntab *go;
	struct elf_symbols *elf;
	bool go_tried, elf_tried;
	UT_hash_handle hh;
};

/* The owner, in a frame cache, of the frames that keep the names of T's functions. */
static inline uint32_t table_functions_id(const struct table *t)
{
	return t->id + 1;
}

struct table_cache;
struct process_root;
/* FOREIGN outlives it. */
struct foreign;
int table_cache_new(size_t max_bytes, const char *debug_root, struct foreign *foreign,
		    struct table_cache **ret) _must_check_;
struct table_cache *table_cache_free(struct table_cache *c);
DEFINE_CLEANUP(struct table_cache *, table_cache_free)

/*
 * The table of the image's content, a new one if there is none; valid until the trim, or
 * table_cache_drop(). ROOT as in symbolize_image(). -ESTALE as table_check().
 */
int table_cache_get(struct table_cache *c, struct image *image, const struct process_root *root,
		    struct table **ret) _must_check_;
/*
 * These build the table when it is asked for first. *RET is NULL when the image has no such table.
 */
int table_go(struct table_cache *c, struct table *t, const struct gopclntab **ret) _must_check_;
int table_elf(struct table_cache *c, struct table *t, const struct elf_symbols **ret) _must_check_;
/*
 * To be called after T was read, and before the result is kept. -ESTALE: a file that T is made from
 * has changed, so the result may be wrong; call table_cache_drop() then.
 */
int table_check(struct table *t) _must_check_;
/* Frees T. If the file of its image has changed, that image shares no table from now on. */
void table_cache_drop(struct table_cache *c, struct table *t);

void table_cache_trim(struct table_cache *c);
size_t table_cache_count(const struct table_cache *c);
size_t table_cache_bytes(const struct table_cache *c);
