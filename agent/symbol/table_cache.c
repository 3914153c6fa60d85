// SPDX-License-Identifier: Apache-2.0
/*
 * Tables are found by the image's address: the record holds a reference, so the address is not used
 * for another image meanwhile. Dropping a table does no harm but time, since frames that were
 * resolved stay in the frame cache; so the cap also holds while a window is being resolved.
 */
#include "agent/symbol/table_cache.h"

#include <stdatomic.h>

#include "agent/symbol/debug_file.h"
#include "lib/metrics.h"

enum { BUCKETS = 1024 };

struct table_cache {
	struct table *buckets[BUCKETS];
	size_t max_bytes, bytes; /* of the ELF tables */
	char *debug_root;
	uint32_t last_id, window;
};

int table_cache_new(size_t max_bytes, const char *debug_root, struct table_cache **ret)
{
	_cleanup_(table_cache_freep) struct table_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->max_bytes = max_bytes;
	c->debug_root = strdup(debug_root);
	if (!c->debug_root)
		return -ENOMEM;
	*ret = TAKE_PTR(c);
	return 0;
}

static void drop_elf(struct table_cache *c, struct table *t)
{
	if (!t->elf)
		return;
	c->bytes -= elf_symbols_bytes(t->elf);
	t->elf = elf_symbols_free(t->elf);
	t->elf_tried = false;
}

static void table_free(struct table_cache *c, struct table *t)
{
	drop_elf(c, t);
	gopclntab_free(t->go);
	image_unref(t->image);
	free(t);
}

struct table_cache *table_cache_free(struct table_cache *c)
{
	if (!c)
		return NULL;
	for (size_t i = 0; i < BUCKETS; i++) {
		while (c->buckets[i]) {
			struct table *t = c->buckets[i];

			c->buckets[i] = t->next;
			table_free(c, t);
		}
	}
	free(c->debug_root);
	free(c);
	return NULL;
}

int table_cache_get(struct table_cache *c, struct image *image, struct table **ret)
{
	struct table **bucket = &c->buckets[mix64((uintptr_t)image) % BUCKETS], *t;

	for (t = *bucket; t; t = t->next) {
		if (t->image == image) {
			t->used = c->window;
			*ret = t;
			return 0;
		}
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->image = image_ref(image);
	t->id = ++c->last_id;
	t->used = c->window;
	t->next = *bucket;
	*bucket = t;
	*ret = t;
	return 0;
}

/* Frees tables, the oldest first, until what is left fits; never KEEP's. */
static void enforce_cap(struct table_cache *c, const struct table *keep)
{
	while (c->bytes > c->max_bytes) {
		struct table *oldest = NULL;

		for (size_t i = 0; i < BUCKETS; i++) {
			for (struct table *t = c->buckets[i]; t; t = t->next) {
				if (t->elf && t != keep &&
				    (!oldest || c->window - t->used > c->window - oldest->used))
					oldest = t;
			}
		}
		if (!oldest)
			return;
		drop_elf(c, oldest);
	}
}

int table_go(struct table_cache *c, struct table *t, const struct gopclntab **ret)
{
	int r;

	if (!t->go_tried) {
		r = gopclntab_open(t->image, &t->go, NULL);
		if (r == -ENOMEM)
			return r;
		t->go_tried = true;
	}
	*ret = t->go;
	return 0;
}

static int build(struct table_cache *c, struct image *image, const char *root,
		 struct elf_symbols **ret)
{
	_cleanup_(image_unrefp) struct image *debug = NULL, *data = NULL;
	struct elf_symbols_input inputs[ELF_SYMBOLS_INPUTS_MAX];
	size_t n = 0;
	int r;

	if (elf_symbols_listed(image, false) > 1) {
		inputs[n++] = (struct elf_symbols_input){.image = image};
		/* Partly stripped: what is exported may be missing. */
		if (elf_symbols_listed(image, false) < elf_symbols_listed(image, true))
			inputs[n++] = (struct elf_symbols_input){.image = image, .dynamic = true};
	} else if ((r = debug_file_find(image, root, c->debug_root, &debug)) == 0) {
		inputs[n++] = (struct elf_symbols_input){.image = debug};
	} else if (r == -ENOMEM) {
		return r;
	} else {
		/* .gnu_debugdata leaves out what .dynsym has. */
		r = debug_data_unpack(image, &data, NULL);
		if (r == -ENOMEM)
			return r;
		if (r == 0)
			inputs[n++] = (struct elf_symbols_input){.image = data};
		inputs[n++] = (struct elf_symbols_input){.image = image, .dynamic = true};
	}
	r = elf_symbols_build(image, inputs, n, ret, NULL);
	if (debug)
		image_forget(debug);
	image_forget(image);
	return r;
}

int table_elf(struct table_cache *c, struct table *t, const char *root,
	      const struct elf_symbols **ret)
{
	int r;

	if (!t->elf_tried) {
		r = build(c, t->image, root, &t->elf);
		if (r < 0)
			return r;
		t->elf_tried = true;
		metric_add(M_SYMBOL_TABLES_BUILT, 1);
		c->bytes += elf_symbols_bytes(t->elf);
		enforce_cap(c, t);
	}
	*ret = t->elf;
	return 0;
}

/* The Go table holds one, and an ELF table one for each string table that its names lie in. */
static int own_references(const struct table *t)
{
	return 1 + (t->go ? 1 : 0) + (t->elf ? (int)elf_symbols_holds(t->elf, t->image) : 0);
}

void table_cache_trim(struct table_cache *c)
{
	for (size_t i = 0; i < BUCKETS; i++) {
		struct table **p = &c->buckets[i], *t;

		while ((t = *p)) {
			/* Looking into a Go table made pages of the mapping resident. */
			if (t->go && t->used == c->window)
				image_forget(t->image);
			if (t->used != c->window &&
			    atomic_load(&t->image->refs) <= own_references(t)) {
				*p = t->next;
				table_free(c, t);
			} else {
				p = &t->next;
			}
		}
	}
	enforce_cap(c, NULL);
	c->window++;
}

size_t table_cache_bytes(const struct table_cache *c)
{
	return sizeof(*c) + c->bytes;
}
