/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a process's mappings into the entries by which the kernel walks. The order of publication:
 * slab entries, then the process's entry that names them. An entry is written only over one that is
 * there (BPF made it when it met the process, exit deletes it), and carries the exec id of the
 * sample that asked: if the process became another program meanwhile, BPF sees that the entry is
 * void.
 */
#include "agent/sampler/mapset.h"

#include "agent/sampler/mapping_room.h"
#include "agent/sampler/sideband.h"
#include "lib/metrics.h"

struct mapset_store {
	struct kernel_memory memory;
	struct mapset_hooks hooks;
	struct image_store *images;
	struct unwind_store *unwind;
	struct mapping_room *room;
	struct mapset *by_id;
	uint32_t next_id;
	bool any_unnamed; /* at the end of the last sweep */
};

int mapset_store_new(const struct kernel_memory *memory, struct image_store *images,
		     struct unwind_store *unwind, struct mapset_store **ret)
{
	_cleanup_(mapset_store_freep) struct mapset_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->memory = *memory;
	s->images = images;
	s->unwind = unwind;
	s->next_id = 1;
	r = mapping_room_new(memory, unwind, &s->room);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

void mapset_store_set_hooks(struct mapset_store *s, const struct mapset_hooks *hooks)
{
	s->hooks = *hooks;
}

static void put_images(struct mapset_store *s, struct mapset *m, uint64_t now_ms)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->ranges[i].image)
			image_store_put(s->images, m->ranges[i].image, now_ms);
}

static void mapset_release(struct mapset_store *s, struct mapset *m, uint64_t now_ms)
{
	if (s->hooks.gone)
		s->hooks.gone(m, s->hooks.arg);
	put_images(s, m, now_ms);
	mapping_room_put(s->room, m->cgroup, m->first, m->n, now_ms);
	free(m->ranges);
	free(m);
}

struct mapset_store *mapset_store_free(struct mapset_store *s)
{
	struct mapset *m, *next;

	if (!s)
		return NULL;
	HASH_ITER (hh, s->by_id, m, next) {
		HASH_DEL(s->by_id, m);
		mapset_release(s, m, 0);
	}
	mapping_room_free(s->room);
	free(s);
	return NULL;
}

/* Adds mapping I of SOURCE to M. */
static void add_range(struct mapset_store *s, struct mapset *m, const struct mapset_source *source,
		      size_t i)
{
	const struct map_entry *e = &source->maps->entries[i];
	struct mapset_range *range = &m->ranges[m->n];
	struct stored_image *image = TAKE_PTR(source->images[i]);
	uint64_t vaddr;

	if (!image && e->kind != MAPPING_ANON) {
		metric_add(M_MAPS_READ_PARTIAL, 1);
		return;
	}
	*range = (struct mapset_range){
	    .start = e->start,
	    .end = e->end,
	    .offset = e->kind == MAPPING_FILE ? e->offset : 0,
	    .jit = e->kind == MAPPING_ANON,
	    .image = image,
	};
	m->n++;
	if (!image)
		return;
	m->is_remote |= image->is_remote;
	range->bias = e->start - e->offset;
	if (!image->image || !image_offset_to_vaddr(image->image, e->offset, &vaddr)) {
		/* Code that a runtime has in a file of its own format, or behind the segments of an
		 * ELF file (a program and its libraries in one file). */
		range->jit = true;
		return;
	}
	range->bias = e->start - vaddr;
	unwind_store_expect(s->unwind, image);
}

static void publish_ranges(struct mapset_store *s, const struct mapset *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		const struct mapset_range *range = &m->ranges[i];

		s->memory.mappings[m->first + i] = (struct kiln_mapping){
		    .start = range->start,
		    .end = range->end,
		    .bias = range->bias,
		    .image = mapset_range_slot(range),
		    .flags = mapset_range_flags(range),
		};
	}
	kernel_memory_publish();
}

void mapset_store_renumber(struct mapset_store *s)
{
	struct mapset *m, *next;

	HASH_ITER (hh, s->by_id, m, next) {
		struct kiln_mapping *mappings = s->memory.mappings + m->first;

		for (uint32_t i = 0; i < m->n; i++) {
			const struct stored_image *image = m->ranges[i].image;

			if (mapset_range_elf(&m->ranges[i]) && mappings[i].image != image->slot)
				__atomic_store_n(&mappings[i].image, image->slot, __ATOMIC_RELEASE);
		}
	}
}

/* Is RANGE executable memory without a file? */
static bool is_jit(const struct mapset_range *range)
{
	return range->jit && !range->image;
}

/* Would RUNTIME, whose claim is CLAIM, win RANGE? */
static bool is_won(const struct mapset_range *range, uint32_t runtime, enum jit_claim claim)
{
	if (!range->runtime || (uint32_t)claim != range->claim)
		return (uint32_t)claim > range->claim;
	return runtime < range->runtime;
}

/* Gives RANGE to the runtime of CLAIMS if no other claim is better. Returns true if it did. */
static bool claim_range(struct mapset_range *range, const struct jit_claims *claims)
{
	enum jit_claim claim;

	if (!range->jit)
		return false;
	claim = range->start >= claims->code_start && range->end <= claims->code_end
		    ? JIT_CERTAIN
		    : claims->claim(claims->arg, range->start, range->end);
	if (claim == JIT_NONE || !is_won(range, claims->runtime, claim))
		return false;
	range->runtime = (uint8_t)claims->runtime;
	range->claim = (uint8_t)claim;
	range->code = is_jit(range) ? claims->table : NULL;
	return true;
}

static struct mapset_range part_of(const struct mapset_range *range, uint64_t start, uint64_t end)
{
	struct mapset_range part = *range;

	part.start = MAX(part.start, start);
	part.end = MIN(part.end, end);
	return part;
}

/*
 * Copies M's ranges to TO and adds the range that a runtime reserved for its JIT, except where a
 * file or another runtime's code is mapped. Ranges of JIT memory inside the reserved one are merged
 * into it. Returns how many ranges there are.
 */
static uint32_t widen(const struct mapset *m, const struct jit_claims *claims,
		      struct mapset_range *to)
{
	const uint64_t start = claims->code_start, end = claims->code_end;
	const struct mapset_range all = {.start = start,
					 .end = end,
					 .jit = true,
					 .runtime = (uint8_t)claims->runtime,
					 .claim = JIT_CERTAIN,
					 .code = claims->table};
	uint64_t at = start; /* the reserved range is in TO up to here */
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n; i++) {
		const struct mapset_range *r = &m->ranges[i];
		bool melts =
		    is_jit(r) && r->start < end && r->end > start &&
		    (r->runtime == claims->runtime || is_won(r, claims->runtime, JIT_CERTAIN));
		uint64_t until = MIN(melts ? r->end : r->start, end);

		if (melts && r->start < start)
			to[n++] = part_of(r, 0, start);
		if (melts && r->end <= end)
			continue;
		if (at < until)
			to[n++] = part_of(&all, at, until);
		at = MAX(at, MIN(r->end, end));
		to[n++] = melts ? part_of(r, end, UINT64_MAX) : *r;
	}
	if (at < end)
		to[n++] = part_of(&all, at, end);
	return n;
}

int mapset_claim_jit(struct mapset *m, const struct jit_claims *claims)
{
	struct mapset_range *wider;
	uint32_t n;

	for (uint32_t i = 0; i < m->n; i++)
		(void)claim_range(&m->ranges[i], claims);
	if (claims->code_start >= claims->code_end)
		return 0;
	/* There may be a new range before each old one and one after the last, and two old ones may
	 * be cut in two, where the reserved range begins and where it ends. */
	wider = calloc(2 * (size_t)m->n + 3, sizeof(*wider));
	if (!wider)
		return -ENOMEM;
	n = widen(m, claims, wider);
	if (n > MAPSET_RANGES_MAX) {
		free(wider);
		return -E2BIG;
	}
	free(m->ranges);
	m->ranges = wider;
	m->n = n;
	return 0;
}

/* Updates image and flags of range I in the kernel. */
static void publish_range(struct mapset_store *s, struct mapset *m, uint32_t i)
{
	struct kiln_mapping *mapping = &s->memory.mappings[m->first + i];

	__atomic_store_n(&mapping->image, mapset_range_slot(&m->ranges[i]), __ATOMIC_RELEASE);
	__atomic_store_n(&mapping->flags, mapset_range_flags(&m->ranges[i]), __ATOMIC_RELEASE);
}

bool mapset_store_claim_jit(struct mapset_store *s, struct mapset *m,
			    const struct jit_claims *claims)
{
	const uint64_t start = claims->code_start, end = claims->code_end;
	const struct mapset_range *range = start < end ? mapset_find(m, start) : NULL;
	bool changed = false;

	for (uint32_t i = 0; i < m->n; i++) {
		if (!claim_range(&m->ranges[i], claims))
			continue;
		publish_range(s, m, i);
		changed = true;
	}
	/* Invalidate the rule caches, which may hold rules of these mappings. */
	if (changed)
		__atomic_fetch_add(s->memory.cache_epoch, 1, __ATOMIC_RELEASE);
	return start >= end || (range && is_jit(range) && range->end >= end);
}

void mapset_store_set_code(struct mapset_store *s, struct mapset *m, uint32_t runtime,
			   const struct stored_image *table)
{
	for (uint32_t i = 0; i < m->n; i++) {
		if (!is_jit(&m->ranges[i]) || m->ranges[i].runtime != runtime)
			continue;
		m->ranges[i].code = table;
		publish_range(s, m, i);
	}
	__atomic_fetch_add(s->memory.cache_epoch, 1, __ATOMIC_RELEASE);
}

void mapset_store_each(struct mapset_store *s, void (*each)(struct mapset *m, void *arg), void *arg)
{
	struct mapset *m, *next;

	HASH_ITER (hh, s->by_id, m, next)
		each(m, arg);
}

/* Names M in the kernel's entry of TGID, unless that entry is no longer about this program. */
static int publish_process(struct mapset_store *s, const struct mapset *m)
{
	struct kiln_process entry = {};
	int r = s->memory.get_process(s->memory.arg, m->tgid, &entry);

	if (r < 0)
		return -ESRCH;
	if (entry.exec_id != m->exec_id)
		return -ESRCH;
	entry.first = m->first;
	entry.count = m->n;
	entry.mapset = m->id;
	entry.flags &=
	    ~(uint32_t)(KILN_PROCESS_PENDING | KILN_PROCESS_UNRESOLVED | KILN_PROCESS_LABELS);
	if (m->has_labels)
		entry.flags |= KILN_PROCESS_LABELS;
	return s->memory.set_process(s->memory.arg, m->tgid, &entry) < 0 ? -ESRCH : 0;
}

void mapset_store_mark(struct mapset_store *s, const struct mapset *m, uint32_t tgid)
{
	struct kiln_process entry = {};

	if (s->memory.get_process(s->memory.arg, tgid, &entry) < 0 || entry.mapset != m->id)
		return;
	entry.flags |= KILN_PROCESS_LABELS;
	(void)s->memory.set_process(s->memory.arg, tgid, &entry);
}

void mapset_store_set_labels(struct mapset_store *s, struct mapset *m, bool published)
{
	m->has_labels = true;
	if (published)
		mapset_store_mark(s, m, m->tgid);
}

/* A set of SOURCE's mappings. It is not in the BPF maps yet. */
static int mapset_new(struct mapset_store *s, const struct mapset_source *source,
		      struct mapset **ret)
{
	struct mapset *m = calloc(1, sizeof(*m));
	uint64_t left = source->maps->dropped;

	if (m)
		m->ranges = calloc(MAX(source->maps->n, (size_t)1), sizeof(*m->ranges));
	if (!m || !m->ranges) {
		free(m);
		return -ENOMEM;
	}
	m->tgid = source->tgid;
	m->exec_id = source->exec_id;
	m->start_time = source->start_time;
	m->cgroup = source->cgroup;
	m->read_ns = source->read_ns;
	m->is_gone = source->is_gone;
	m->has_context = source->maps->has_context;
	for (size_t i = 0; i < source->maps->n; i++) {
		if (source->maps->entries[i].kind == MAPPING_OTHER)
			continue;
		if (m->n < MAPSET_RANGES_MAX)
			add_range(s, m, source, i);
		else
			left++;
	}
	metric_add(M_MAPS_READ_PARTIAL, left);
	do {
		m->id = s->next_id++;
	} while (!m->id || mapset_store_find(s, m->id));
	*ret = m;
	return 0;
}

static void discard(struct mapset_store *s, struct mapset *m, uint64_t now_ms)
{
	put_images(s, m, now_ms);
	free(m->ranges);
	free(m);
}

/* Gives M a place in the kernel and puts it in force for its process. M is freed on failure. */
static int put_in_force(struct mapset_store *s, struct mapset *m, uint64_t now_ms)
{
	int r;

	if (s->hooks.made)
		s->hooks.made(m, s->hooks.arg);
	r = mapping_room_get(s->room, m->cgroup, m->n, now_ms, &m->first);
	if (r < 0) {
		if (s->hooks.gone)
			s->hooks.gone(m, s->hooks.arg);
		discard(s, m, now_ms);
		metric_add(M_MAPPING_SLAB_FULL, 1);
		return r;
	}
	publish_ranges(s, m);
	/* Kept even when the process is gone by now: samples of it are still to be named. */
	(void)publish_process(s, m);
	HASH_ADD(hh, s->by_id, id, sizeof(m->id), m);
	return 0;
}

int mapset_store_make(struct mapset_store *s, const struct mapset_source *source,
		      struct mapset **ret)
{
	struct mapset *m;
	int r = mapset_new(s, source, &m);

	if (!r)
		r = put_in_force(s, m, source->read_ns / 1000000);
	if (!r)
		*ret = m;
	return r;
}

static bool is_same_code(const struct mapset_range *a, const struct mapset_range *b)
{
	if (!a || !b)
		return a == b;
	return a->image == b->image && a->bias == b->bias && a->jit == b->jit;
}

/* Does B have all the code that A has, at the same addresses? */
static bool has_all_of(const struct mapset *b, const struct mapset *a)
{
	for (uint32_t i = 0; i < a->n; i++) {
		const struct mapset_range *x = &a->ranges[i], *y = mapset_find(b, x->start);

		if (!is_same_code(x, y) || y->end < x->end)
			return false;
	}
	return true;
}

int mapset_store_check(struct mapset_store *s, const struct mapset_source *source,
		       struct mapset *old, struct mapset **ret)
{
	uint64_t now_ms = source->read_ns / 1000000;
	enum mapset_change change;
	struct mapset *m;
	int r = mapset_new(s, source, &m);

	if (r < 0)
		return r;
	if (has_all_of(old, m)) {
		old->has_context |= m->has_context;
		discard(s, m, now_ms);
		*ret = old;
		return MAPSET_HOLDS;
	}
	metric_add(M_MAPSETS_OUTDATED, 1);
	change = has_all_of(m, old) ? MAPSET_EXTENDED : MAPSET_EXCHANGED;
	r = put_in_force(s, m, now_ms);
	if (r < 0)
		return r;
	*ret = m;
	return (int)change;
}

struct mapset *mapset_store_find(struct mapset_store *s, uint32_t id)
{
	struct mapset *m;

	HASH_FIND(hh, s->by_id, &id, sizeof(id), m);
	return m;
}

const struct mapset_range *mapset_find(const struct mapset *m, uint64_t pc)
{
	uint32_t lo = 0, hi = m->n;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (pc < m->ranges[mid].start)
			hi = mid;
		else if (pc >= m->ranges[mid].end)
			lo = mid + 1;
		else
			return &m->ranges[mid];
	}
	return NULL;
}

uint32_t mapset_first_exchanged(const struct mapset *walked, const struct mapset *now,
				const uint64_t *words, uint32_t n)
{
	for (uint32_t i = 0; i < n; i += kiln_frame_words(words[i])) {
		uint64_t pc = (words[i] & KILN_FRAME_PC_MASK) - !!(words[i] & KILN_FRAME_RETURN);

		if (KILN_FRAME_KIND(words[i]) != KILN_FRAME_NATIVE)
			continue;
		if (!is_same_code(mapset_find(walked, pc), mapset_find(now, pc)))
			return i;
	}
	return n;
}

void mapset_store_forget(struct mapset_store *s, uint32_t tgid)
{
	struct kiln_process entry;

	if (s->memory.get_process(s->memory.arg, tgid, &entry) < 0)
		return;
	entry.mapset = entry.first = entry.count = 0;
	entry.flags |= KILN_PROCESS_PENDING;
	(void)s->memory.set_process(s->memory.arg, tgid, &entry);
}

void mapset_store_give_up(struct mapset_store *s, uint32_t tgid, uint64_t exec_id)
{
	struct kiln_process entry;

	if (s->memory.get_process(s->memory.arg, tgid, &entry) < 0 || entry.exec_id != exec_id ||
	    entry.mapset)
		return;
	entry.flags |= KILN_PROCESS_UNRESOLVED;
	(void)s->memory.set_process(s->memory.arg, tgid, &entry);
}

struct mapset *mapset_store_in_force(struct mapset_store *s, uint32_t tgid, uint64_t exec_id)
{
	struct kiln_process entry;

	if (s->memory.get_process(s->memory.arg, tgid, &entry) < 0 || !entry.mapset ||
	    entry.exec_id != exec_id)
		return NULL;
	return mapset_store_find(s, entry.mapset);
}

static bool is_file(const struct stored_image *image, const struct sideband_mapping *mapping)
{
	return image->inode == mapping->inode && image->dev_major == mapping->dev_major &&
	       image->dev_minor == mapping->dev_minor;
}

/* Does M have the mapping NEW already? */
static bool has_mapping(const struct mapset *m, const struct sideband_mapping *new)
{
	const struct mapset_range *range = mapset_find(m, new->start);
	const struct stored_image *image = range ? range->image : NULL;

	if (!range || range->start > new->start || range->end < new->start + new->length)
		return false;
	/* Memory without a file has its own address as the offset. */
	if (is_jit(range) && !new->inode)
		return true;
	return range->offset + (new->start - range->start) == new->offset &&
	       (image ? is_file(image, new) : !new->inode);
}

/*
 * Does M have nothing in the range of NEW? Or, if NEW has no file, only memory without a file,
 * which has grown.
 */
static bool is_vacant(const struct mapset *m, const struct sideband_mapping *new)
{
	uint32_t lo = 0, hi = m->n; /* the first range that ends behind the start */

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (m->ranges[mid].end <= new->start)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < m->n && m->ranges[lo].start < new->start + new->length; lo++)
		if (new->inode || !is_jit(&m->ranges[lo]))
			return false;
	return true;
}

const struct image *mapset_image_of(const struct mapset *m, const struct sideband_mapping *mapping)
{
	for (uint32_t i = 0; mapping->inode && i < m->n; i++) {
		const struct stored_image *image = m->ranges[i].image;

		if (image && is_file(image, mapping))
			return image->image;
	}
	return NULL;
}

enum mapset_change mapset_compare(const struct mapset *m, const struct sideband_mapping *mapping)
{
	if (has_mapping(m, mapping))
		return MAPSET_HOLDS;
	return is_vacant(m, mapping) ? MAPSET_EXTENDED : MAPSET_EXCHANGED;
}

void mapset_store_sweep(struct mapset_store *s, const uint32_t *named, size_t n, uint64_t now_ms)
{
	struct mapset *m, *next;

	s->any_unnamed = false;
	HASH_ITER (hh, s->by_id, m, next) {
		if (n && bsearch(&m->id, named, n, sizeof(*named), compare_u32)) {
			m->unnamed_sweeps = 0;
			continue;
		}
		/* One sweep's grace for records that are still in the ring. */
		if (++m->unnamed_sweeps < 2 || m->refs) {
			s->any_unnamed = true;
			continue;
		}
		HASH_DEL(s->by_id, m);
		mapset_release(s, m, now_ms);
	}
}

void mapset_store_trim(struct mapset_store *s, uint64_t now_ms)
{
	mapping_room_trim(s->room, now_ms);
}

bool mapset_store_any_unnamed(const struct mapset_store *s)
{
	return s->any_unnamed;
}

size_t mapset_store_count(const struct mapset_store *s)
{
	return HASH_COUNT(s->by_id);
}
