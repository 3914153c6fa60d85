/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct table_cache: the symbol tables of images, built when first asked for, the least recently
 * used ones dropped over a byte cap. An image that nobody else uses any more goes at the next trim.
 * One thread at a time.
 */
#pragma once

#include "agent/elf/gopclntab.h"
#include "agent/symbol/elf_symbols.h"

struct table {
	struct table *next; /* of the cache */
	struct image *image;
	uint32_t id;   /* never used again */
	uint32_t used; /* window */
	struct gopclntab *go;
	struct elf_symbols *elf;
	bool go_tried, elf_tried;
};

struct table_cache;
int table_cache_new(size_t max_bytes, const char *debug_root,
		    struct table_cache **ret) _must_check_;
struct table_cache *table_cache_free(struct table_cache *c);
DEFINE_CLEANUP(struct table_cache *, table_cache_free)

/* The image's record, new if need be; lives until the trim. */
int table_cache_get(struct table_cache *c, struct image *image, struct table **ret) _must_check_;
/* Build if need be; NULL in *RET when the image has no such table. ROOT as in symbolize_image(). */
int table_go(struct table_cache *c, struct table *t, const struct gopclntab **ret) _must_check_;
int table_elf(struct table_cache *c, struct table *t, const char *root,
	      const struct elf_symbols **ret) _must_check_;

void table_cache_trim(struct table_cache *c);
size_t table_cache_bytes(const struct table_cache *c);
