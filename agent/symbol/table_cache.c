// SPDX-License-Identifier: Apache-2.0
/*
 * A table is found in two steps. Its key is the content of the image and that of its debug file.
 * But which debug file an image has depends on the container's root and on the image's path there,
 * and searching for it costs some system calls. So a struct origin caches the table that was found
 * for a content, a root and a path. As the content of the debug file is part of the key, a
 * container's debug file cannot name frames of other containers, except of those that have the same
 * debug file.
 *
 * Dropping a table costs only time, since frames that were resolved stay in the frame cache; so the
 * cap is also enforced while a window is being resolved.
 */
#include "agent/symbol/table_cache.h"

#include <stdatomic.h>

#include "agent/process/procfs.h"
#include "agent/symbol/debug_file.h"
#include "agent/symbol/foreign.h"
#include "agent/symbol/symbolizer.h"
#include "lib/metrics.h"

enum { ORIGIN_IDLE_WINDOWS = 16, ROOTS = 64 };

/*
 * The root of a process, read once in each window: in the next one the pid may be another
 * process's.
 */
struct root {
	uint64_t name;		/* hash; 0: none */
	uint64_t device, inode; /* 0: the process is gone, or they cannot be read */
};

struct origin_key {
	struct image_content image;
	/* 0: no debug file is needed, or only the host's root is searched */
	uint64_t root_device, root_inode;
	uint64_t path; /* hash */
};

struct origin {
	struct origin_key key;
	struct table *table;
	uint32_t used; /* window */
	UT_hash_handle hh;
};

struct table_cache {
	struct table *tables;
	struct origin *origins;
	size_t max_bytes, bytes; /* of the ELF tables */
	char *debug_root;
	struct foreign *foreign;
	uint32_t last_id, window;
	struct root roots[ROOTS]; /* those that were asked for in this window, by hash */
	/* What was found last: the frames of a stack come in runs of one image. */
	struct {
		const struct image *image;
		struct process_root root;
		struct table *table; /* NULL: nothing */
	} last;
};

int table_cache_new(size_t max_bytes, const char *debug_root, struct foreign *foreign,
		    struct table_cache **ret)
{
	_cleanup_(table_cache_freep) struct table_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->max_bytes = max_bytes;
	c->foreign = foreign;
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

static void drop_origin(struct table_cache *c, struct origin *o)
{
	HASH_DEL(c->origins, o);
	free(o);
}

/* Puts T into the ring of the tables of its image. */
static void join_siblings(struct table_cache *c, struct table *t)
{
	struct table *other, *next;

	t->sibling = t;
	HASH_ITER (hh, c->tables, other, next) {
		if (other->image.image == t->image.image) {
			t->sibling = other->sibling;
			other->sibling = t;
			return;
		}
	}
}

static void leave_siblings(struct table *t)
{
	struct table *before = t;

	while (before->sibling != t)
		before = before->sibling;
	before->sibling = t->sibling;
}

static void table_free(struct table_cache *c, struct table *t)
{
	struct origin *o, *next;

	HASH_ITER (hh, c->origins, o, next)
		if (o->table == t)
			drop_origin(c, o);
	HASH_DEL(c->tables, t);
	leave_siblings(t);
	drop_elf(c, t);
	gopclntab_free(t->go);
	witness_done(&t->image);
	witness_done(&t->debug);
	free(t);
}

struct table_cache *table_cache_free(struct table_cache *c)
{
	struct table *t, *next;

	if (!c)
		return NULL;
	HASH_ITER (hh, c->tables, t, next)
		table_free(c, t);
	free(c->debug_root);
	free(c);
	return NULL;
}

/* ---- finding a table --------------------------------------------------------------------------
 */

static struct table *find_table(struct table_cache *c, const struct table_key *key)
{
	struct table *t;

	HASH_FIND(hh, c->tables, key, sizeof(*key), t);
	return t;
}

/* Adds the table of IMAGE and its debug file DEBUG (or NULL), with references to both. */
static int add_table(struct table_cache *c, const struct table_key *key, struct image *image,
		     struct image *debug, struct table **ret)
{
	struct table *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->key = *key;
	r = witness_init(&t->image, image);
	if (r == 0 && debug)
		r = witness_init(&t->debug, debug);
	if (r < 0) {
		witness_done(&t->image);
		free(t);
		return r;
	}
	t->id = c->last_id += 2; /* the id after it is table_functions_id() */
	join_siblings(c, t);
	HASH_ADD(hh, c->tables, key, sizeof(t->key), t);
	*ret = t;
	return 0;
}

/*
 * An image needs no debug file if it has symbols of its own, or nothing (build id, debug link) by
 * which a debug file could be recognized.
 */
static bool needs_debug_file(const struct image *image)
{
	return elf_symbols_listed(image, false) <= 1 &&
	       (image->build_id_len || image_section(image, ".gnu_debuglink"));
}

/* The device and inode of the root of P; inode 0 when they cannot be read. */
static const struct root *identify_root(struct table_cache *c, const struct process_root *p)
{
	uint64_t name = hash_bytes(p->path, strlen(p->path), p->start_time) | 1;
	struct root *root = &c->roots[name >> 32 & (ROOTS - 1)];
	struct stat st;

	if (root->name == name)
		return root;
	*root = (struct root){.name = name};
	if ((!p->start_time || process_is_still("/proc", p->pid, p->start_time)) &&
	    foreign_stat_root(c->foreign, p->path, &st) == 0) {
		root->device = st.st_dev;
		root->inode = st.st_ino;
	}
	return root;
}

/*
 * The root where the image's debug file is looked for before the host's; NULL: only the host's is.
 * So it is when no debug file is needed, or ROOT's device and inode cannot be read.
 */
static const struct root *root_for(struct table_cache *c, const struct image *image,
				   const struct process_root *root)
{
	const struct root *known = NULL;

	if (root && !image->is_remote && needs_debug_file(image))
		known = identify_root(c, root);
	return known && known->inode ? known : NULL;
}

static struct origin_key origin_of(const struct image *image, const struct image_content *content,
				   const struct root *known)
{
	struct origin_key key;

	memset(&key, 0, sizeof(key));
	key.image = *content;
	if (!needs_debug_file(image))
		return key;
	if (known) {
		key.root_device = known->device;
		key.root_inode = known->inode;
	}
	key.path = hash_bytes(image->path, strlen(image->path), 1);
	return key;
}

/* Looks for the debug file of IMAGE, and for the table of both. */
static int find_by_content(struct table_cache *c, struct image *image, struct table_key *key,
			   const char *root, struct table **ret)
{
	_cleanup_(image_unrefp) struct image *debug = NULL;
	int r;

	if (needs_debug_file(image)) {
		r = debug_file_find(c->foreign, image, root, c->debug_root, &debug);
		if (r == -ENOMEM)
			return r;
		/* A debug file whose content cannot be read is not used. */
		if (r == 0 && image_identify(debug, &key->debug) < 0)
			debug = image_unref(debug);
	}
	*ret = find_table(c, key);
	return *ret ? 0 : add_table(c, key, image, debug, ret);
}

static int get_shared(struct table_cache *c, struct image *image, struct table_key *key,
		      const struct process_root *root, struct table **ret)
{
	const struct root *known = root_for(c, image, root);
	struct origin_key where = origin_of(image, &key->image, known);
	struct origin *o;
	int r;

	HASH_FIND(hh, c->origins, &where, sizeof(where), o);
	if (!o) {
		r = find_by_content(c, image, key, known ? root->path : NULL, ret);
		if (r < 0)
			return r;
		o = calloc(1, sizeof(*o));
		if (!o)
			return -ENOMEM;
		o->key = where;
		o->table = *ret;
		HASH_ADD(hh, c->origins, key, sizeof(o->key), o);
	}
	o->used = c->window;
	*ret = o->table;
	return 0;
}

static int get_own(struct table_cache *c, struct image *image, struct table_key *key,
		   const struct process_root *root, struct table **ret)
{
	const struct root *known;

	key->own = (uintptr_t)image;
	*ret = find_table(c, key);
	if (*ret)
		return 0;
	known = root_for(c, image, root);
	return find_by_content(c, image, key, known ? root->path : NULL, ret);
}

/* Roots without a start time are not compared: their paths may differ. */
static bool is_last(const struct table_cache *c, const struct image *image,
		    const struct process_root *root)
{
	return c->last.table && c->last.image == image && root && root->start_time &&
	       c->last.root.pid == root->pid && c->last.root.start_time == root->start_time;
}

int table_cache_get(struct table_cache *c, struct image *image, const struct process_root *root,
		    struct table **ret)
{
	struct table_key key;
	struct table *t;
	int r;

	if (is_last(c, image, root)) {
		*ret = c->last.table;
		return 0;
	}
	memset(&key, 0, sizeof(key));
	r = image_identify(image, &key.image);
	if (r == -ENOMEM)
		return r;
	r = r == 0 ? get_shared(c, image, &key, root, &t) : get_own(c, image, &key, root, &t);
	if (r == -ESTALE)
		image_content_revoke(image);
	if (r < 0)
		return r;
	t->used = c->window;
	c->last.table = NULL;
	if (root) {
		c->last.image = image;
		c->last.root = *root;
		c->last.table = t;
	}
	*ret = t;
	return 0;
}

/* ---- tables -----------------------------------------------------------------------------------
 */

/*
 * Frees ELF tables, the least recently used first, until the others fit the cap; never that of
 * KEEP.
 */
static void enforce_cap(struct table_cache *c, const struct table *keep)
{
	while (c->bytes > c->max_bytes) {
		struct table *oldest = NULL, *t, *next;

		HASH_ITER (hh, c->tables, t, next) {
			if (t->elf && t != keep &&
			    (!oldest || c->window - t->used > c->window - oldest->used))
				oldest = t;
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
		r = gopclntab_open(t->image.image, &t->go, NULL);
		if (r == -ENOMEM)
			return r;
		t->go_tried = true;
	}
	*ret = t->go;
	return 0;
}

static int build(const struct table *t, struct elf_symbols **ret)
{
	struct image *image = t->image.image, *debug = t->debug.image;
	_cleanup_(image_unrefp) struct image *data = NULL;
	struct elf_symbols_input inputs[ELF_SYMBOLS_INPUTS_MAX];
	size_t n = 0;
	int r;

	if (elf_symbols_listed(image, false) > 1) {
		inputs[n++] = (struct elf_symbols_input){.image = image};
		/* Partly stripped: exported functions may be missing. */
		if (elf_symbols_listed(image, false) < elf_symbols_listed(image, true))
			inputs[n++] = (struct elf_symbols_input){.image = image, .dynamic = true};
	} else if (debug) {
		inputs[n++] = (struct elf_symbols_input){.image = debug};
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

int table_elf(struct table_cache *c, struct table *t, const struct elf_symbols **ret)
{
	int r;

	if (!t->elf_tried) {
		r = build(t, &t->elf);
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

int table_check(struct table *t)
{
	int r = 0;

	if (!t->key.own)
		r = image_content(t->image.image) ? witness_check(&t->image) : -ESTALE;
	return r < 0 ? r : witness_check(&t->debug);
}

void table_cache_drop(struct table_cache *c, struct table *t)
{
	metric_add(M_IMAGES_CHANGED, 1);
	c->last.table = NULL;
	if (witness_check(&t->image) == -ESTALE)
		image_content_revoke(t->image.image);
	table_free(c, t);
}

/* ---- trimming ---------------------------------------------------------------------------------
 */

/*
 * How many references all tables of T's image hold to that image: each table one, its Go table one
 * more, and its ELF table one for each string table of the image that holds names.
 */
static int own_references(const struct table *t)
{
	const struct image *image = t->image.image;
	const struct table *s = t;
	int n = 0;

	do {
		n += 1 + (s->go ? 1 : 0) + (s->elf ? (int)elf_symbols_holds(s->elf, image) : 0);
		s = s->sibling;
	} while (s != t);
	return n;
}

void table_cache_trim(struct table_cache *c)
{
	struct origin *o, *next_origin;
	struct table *t, *next;

	HASH_ITER (hh, c->tables, t, next) {
		/* Looking into a Go table made pages of the mapping resident. */
		if (t->go && t->used == c->window)
			image_forget(t->image.image);
		if (t->used != c->window && atomic_load(&t->image.image->refs) <= own_references(t))
			table_free(c, t);
	}
	HASH_ITER (hh, c->origins, o, next_origin)
		if (c->window - o->used >= ORIGIN_IDLE_WINDOWS)
			drop_origin(c, o);
	enforce_cap(c, NULL);
	memset(c->roots, 0, sizeof(c->roots));
	c->last.table = NULL;
	c->window++;
}

size_t table_cache_count(const struct table_cache *c)
{
	return HASH_COUNT(c->tables);
}

size_t table_cache_bytes(const struct table_cache *c)
{
	return sizeof(*c) + c->bytes + HASH_COUNT(c->tables) * sizeof(struct table) +
	       HASH_COUNT(c->origins) * sizeof(struct origin);
}
