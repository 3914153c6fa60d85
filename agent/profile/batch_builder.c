/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building a batch.
 *
 * The builder fills growing arrays and one arena; each array has an index (lib/ref_table.h) beside
 * it, so equal entries exist once.
 *
 * Invariants: every index in an array is smaller than the length of the array that it points into
 * (a caller that breaks this gets -EINVAL from finish); after the first failure nothing is added.
 * Owner: whoever builds.
 */
#include "agent/profile/batch.h"

#include <stdatomic.h>

#include "agent/profile/arena.h"
#include "lib/ref_table.h"
#include "agent/profile/strings.h"

enum {
	ENTRIES_MAX = 1 << 22, /* of any one array */
	STACK_LOCATIONS_MAX = 1 << 26,
	STACK_DEPTH_MAX = 4096,
	LINES_MAX = 1024,	  /* of one location */
	ATTRS_MAX = 1024,	  /* of one resource */
	LABELS_MAX = 64,	  /* of one sample */
	TIMESTAMPS_MAX = 1 << 20, /* of one sample */
};
#define ARENA_MAX ((size_t)256 << 20)

struct entries { /* one growing array and what makes its entries unique */
	void *items;
	size_t cap;
	uint32_t n;
	struct ref_table index;
};

struct built_sample {
	struct batch_sample s; /* timestamps: see times */
	uint32_t profile;
	bool timed;
	uint64_t *times;
	size_t n_times, times_cap;
};

struct batch_builder {
	uint64_t start_unix_ns;
	int error;
	struct batch_arena *arena;
	struct strings strings;
	struct entries functions, mappings, locations, stacks, processes, resources, label_sets,
	    profiles, samples;
	struct batch_line *lines;
	size_t lines_cap;
	uint32_t n_lines;
	uint32_t *stack_locations;
	size_t stack_locations_cap;
	uint32_t n_stack_locations;
	struct attr *scratch; /* attributes of the resource that is being looked up */
	size_t scratch_cap;
};

/* ---- shared pieces ----------------------------------------------------------------------------
 */

static void fail(struct batch_builder *b, int error)
{
	if (!b->error)
		b->error = error;
}

static void *arena_alloc(struct batch_builder *b, size_t size)
{
	void *p = batch_arena_alloc(b->arena, size);

	if (!p)
		fail(b, batch_arena_full(b->arena) ? -E2BIG : -ENOMEM);
	return p;
}

/*
 * Finds ENTRY (SIZE bytes) in E, or appends a copy (*ret_new). Returns the index, which is valid
 * only when the builder has no error. EQUAL compares the fields that make entries equal.
 */
static uint32_t add_entry(struct batch_builder *b, struct entries *e, uint64_t hash,
			  ref_table_equal equal, const void *entry, size_t size, bool *ret_new)
{
	uint32_t index;
	int r;

	if (ret_new)
		*ret_new = false;
	if (b->error)
		return 0;
	index = ref_table_index(&e->index, hash, equal, b, entry);
	if (index != REF_TABLE_NONE)
		return index;
	r = grow_array(&e->items, &e->cap, (size_t)e->n + 1, size, ENTRIES_MAX);
	if (!r)
		r = ref_table_reserve(&e->index, 1);
	if (r < 0) {
		fail(b, r);
		return 0;
	}
	memcpy((char *)e->items + e->n * size, entry, size);
	ref_table_insert(&e->index, hash, e->n + 1);
	if (ret_new)
		*ret_new = true;
	return e->n++;
}

/* Whether INDEX may be used as an index into an array of N; else the builder fails. */
static bool valid(struct batch_builder *b, uint32_t index, uint32_t n)
{
	if (index >= n)
		fail(b, -EINVAL);
	return !b->error;
}

static uint64_t hash_u64(uint64_t h, uint64_t v)
{
	return mix64(h ^ v) + 0x9e3779b97f4a7c15ULL;
}

static uint64_t hash_ptr(uint64_t h, const void *p)
{
	return hash_u64(h, (uintptr_t)p);
}

/* ---- strings ----------------------------------------------------------------------------------
 */

const char *batch_string(struct batch_builder *b, const char *s)
{
	const char *interned = "";
	int r = b->error ? 0 : strings_add(&b->strings, b->arena, s, &interned);

	if (r < 0)
		fail(b, r);
	return interned;
}

/* ---- functions, mappings, locations, stacks, processes ----------------------------------------
 */

static bool equal_function(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_function *a = key,
				    *f = &((struct batch_function *)b->functions.items)[index];

	return f->name == a->name && f->system_name == a->system_name && f->file == a->file &&
	       f->start_line == a->start_line;
}

uint32_t batch_add_function(struct batch_builder *b, const char *name, const char *system_name,
			    const char *file, uint32_t start_line)
{
	struct batch_function f = {.start_line = start_line};
	uint64_t h;

	if (!name || !name[0])
		name = system_name && system_name[0] ? system_name : "[unknown]";
	f.name = batch_string(b, name);
	f.system_name = system_name && system_name[0] ? batch_string(b, system_name) : f.name;
	f.file = batch_string(b, file);
	h = hash_ptr(hash_ptr(hash_ptr(start_line, f.name), f.system_name), f.file);
	return add_entry(b, &b->functions, h, equal_function, &f, sizeof(f), NULL);
}

static bool equal_mapping(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_mapping *a = key,
				   *m = &((struct batch_mapping *)b->mappings.items)[index];

	return m->start == a->start && m->limit == a->limit && m->file_offset == a->file_offset &&
	       m->filename == a->filename && m->build_id_gnu == a->build_id_gnu &&
	       m->build_id_go == a->build_id_go && m->htlhash == a->htlhash &&
	       m->has_functions == a->has_functions && m->has_lines == a->has_lines &&
	       m->has_inlines == a->has_inlines;
}

uint32_t batch_add_mapping(struct batch_builder *b, const struct batch_mapping *mapping)
{
	struct batch_mapping m = *mapping;
	uint64_t h = hash_u64(hash_u64(m.start, m.limit), m.file_offset);

	m.filename = batch_string(b, m.filename);
	m.build_id_gnu = batch_string(b, m.build_id_gnu);
	m.build_id_go = batch_string(b, m.build_id_go);
	m.htlhash = batch_string(b, m.htlhash);
	h = hash_ptr(hash_ptr(hash_ptr(hash_ptr(h, m.filename), m.build_id_gnu), m.build_id_go),
		     m.htlhash);
	return add_entry(b, &b->mappings, h, equal_mapping, &m, sizeof(m), NULL);
}

struct location_key {
	struct batch_location l; /* first_line is not part of it */
	const struct batch_line *lines;
};

static bool equal_location(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct location_key *k = key;
	const struct batch_location *l = &((struct batch_location *)b->locations.items)[index];

	return l->address == k->l.address && l->mapping == k->l.mapping && l->type == k->l.type &&
	       l->n_lines == k->l.n_lines &&
	       !memcmp(b->lines + l->first_line, k->lines, k->l.n_lines * sizeof(*k->lines));
}

uint32_t batch_add_location(struct batch_builder *b, uint32_t mapping, uint64_t address,
			    enum frame_type type, const struct batch_line *lines, uint32_t n)
{
	struct location_key key = {.l = {.mapping = mapping,
					 .address = address,
					 .type = type,
					 .first_line = b->n_lines,
					 .n_lines = n},
				   .lines = lines};
	uint32_t index;
	uint64_t h;
	bool added;
	int r;

	if (b->error || (mapping != BATCH_NO_MAPPING && !valid(b, mapping, b->mappings.n)))
		return 0;
	if (!n || n > LINES_MAX || (unsigned int)type >= FRAME_TYPE_COUNT) {
		fail(b, -EINVAL);
		return 0;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!valid(b, lines[i].function, b->functions.n))
			return 0;
	/* Room for the lines first, so that a new entry is never left without them. */
	r = grow_array((void **)&b->lines, &b->lines_cap, (size_t)b->n_lines + n, sizeof(*lines),
		       ENTRIES_MAX);
	if (r < 0) {
		fail(b, r);
		return 0;
	}
	h = hash_u64(hash_u64(hash_u64(mapping, address), type), n);
	h = hash_bytes(lines, n * sizeof(*lines), h);
	index = add_entry(b, &b->locations, h, equal_location, &key, sizeof(key.l), &added);
	if (added) {
		memcpy(b->lines + b->n_lines, lines, n * sizeof(*lines));
		b->n_lines += n;
	}
	return index;
}

struct stack_key {
	struct batch_stack s; /* first is not part of it */
	const uint32_t *locations;
};

static bool equal_stack(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct stack_key *k = key;
	const struct batch_stack *s = &((struct batch_stack *)b->stacks.items)[index];

	return s->len == k->s.len &&
	       (!s->len || !memcmp(b->stack_locations + s->first, k->locations,
				   s->len * sizeof(*k->locations)));
}

uint32_t batch_add_stack(struct batch_builder *b, const uint32_t *locations, uint32_t n)
{
	struct stack_key key = {.s = {.first = b->n_stack_locations, .len = n},
				.locations = locations};
	uint32_t index;
	bool added;
	int r;

	if (b->error)
		return 0;
	if (n > STACK_DEPTH_MAX) {
		fail(b, -E2BIG);
		return 0;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!valid(b, locations[i], b->locations.n))
			return 0;
	r = grow_array((void **)&b->stack_locations, &b->stack_locations_cap,
		       (size_t)b->n_stack_locations + n, sizeof(*locations), STACK_LOCATIONS_MAX);
	if (r < 0) {
		fail(b, r);
		return 0;
	}
	index = add_entry(b, &b->stacks, n ? hash_bytes(locations, n * sizeof(*locations), n) : 0,
			  equal_stack, &key, sizeof(key.s), &added);
	if (added && n) {
		memcpy(b->stack_locations + b->n_stack_locations, locations,
		       n * sizeof(*locations));
		b->n_stack_locations += n;
	}
	return index;
}

const uint32_t *batch_stack_locations(const struct batch_builder *b, uint32_t stack,
				      uint32_t *ret_n)
{
	const struct batch_stack *s = (const struct batch_stack *)b->stacks.items + stack;

	*ret_n = b->error || stack >= b->stacks.n ? 0 : s->len;
	return *ret_n ? b->stack_locations + s->first : NULL;
}

static bool equal_process(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_process *a = key,
				   *p = &((struct batch_process *)b->processes.items)[index];

	return p->pid == a->pid && p->executable_name == a->executable_name &&
	       p->executable_path == a->executable_path;
}

uint32_t batch_add_process(struct batch_builder *b, uint32_t pid, const char *executable_name,
			   const char *executable_path)
{
	struct batch_process p = {
	    .pid = pid,
	    .executable_name = batch_string(b, executable_name),
	    .executable_path = batch_string(b, executable_path),
	};
	uint64_t h = hash_ptr(hash_ptr(pid, p.executable_name), p.executable_path);

	return add_entry(b, &b->processes, h, equal_process, &p, sizeof(p), NULL);
}

/* ---- resources --------------------------------------------------------------------------------
 */

static bool equal_attr(const struct attr *a, const struct attr *b)
{
	if (a->key != b->key || a->type != b->type || a->str != b->str || a->num != b->num ||
	    a->n_strs != b->n_strs)
		return false;
	for (size_t i = 0; i < a->n_strs; i++)
		if (a->strs[i] != b->strs[i])
			return false;
	return true;
}

static bool equal_resource(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_resource *a = key,
				    *r = &((struct batch_resource *)b->resources.items)[index];

	if (r->container_id != a->container_id || r->n_attrs != a->n_attrs)
		return false;
	for (size_t i = 0; i < r->n_attrs; i++)
		if (!equal_attr(&r->attrs[i], &a->attrs[i]))
			return false;
	return true;
}

/* A copy of FROM whose strings are interned; fields that its type does not use become zero. */
static struct attr copy_attr(struct batch_builder *b, const struct attr *from)
{
	struct attr a = {.key = batch_string(b, from->key), .type = from->type};
	const char **strs;

	switch (from->type) {
	case ATTR_STR:
		a.str = batch_string(b, from->str);
		break;
	case ATTR_INT:
		a.num = from->num;
		break;
	case ATTR_BOOL:
		a.num = from->num != 0;
		break;
	case ATTR_STRS:
		if (from->n_strs > ATTRS_MAX) {
			fail(b, -E2BIG);
			break;
		}
		strs = arena_alloc(b, from->n_strs * sizeof(*strs));
		if (!strs)
			break;
		for (size_t i = 0; i < from->n_strs; i++)
			strs[i] = batch_string(b, from->strs[i]);
		a.strs = strs;
		a.n_strs = from->n_strs;
		break;
	}
	return a;
}

uint32_t batch_add_resource(struct batch_builder *b, const struct attr *attrs, size_t n,
			    const char *container_id)
{
	struct batch_resource res = {.n_attrs = n, .container_id = batch_string(b, container_id)};
	uint64_t h = hash_ptr(n, res.container_id);
	struct attr *copy;
	bool added;
	uint32_t index;
	int r;

	if (n > ATTRS_MAX)
		fail(b, -E2BIG);
	if (b->error)
		return 0;
	r = grow_array((void **)&b->scratch, &b->scratch_cap, n, sizeof(*b->scratch), ATTRS_MAX);
	if (r < 0) {
		fail(b, r);
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		b->scratch[i] = copy_attr(b, &attrs[i]);
		h = hash_ptr(hash_ptr(h, b->scratch[i].key), b->scratch[i].str);
		h = hash_u64(hash_u64(h, (uint64_t)b->scratch[i].num), b->scratch[i].n_strs);
	}
	res.attrs = b->scratch;
	index = add_entry(b, &b->resources, h, equal_resource, &res, sizeof(res), &added);
	if (!added)
		return index;
	copy = arena_alloc(b, n * sizeof(*copy));
	if (!copy)
		return 0;
	if (n)
		memcpy(copy, b->scratch, n * sizeof(*copy));
	((struct batch_resource *)b->resources.items)[index].attrs = copy;
	return index;
}

/* ---- labels -----------------------------------------------------------------------------------
 */

static bool equal_labels(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_label_set *a = key,
				     *s = &((struct batch_label_set *)b->label_sets.items)[index];

	if (a->n != s->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (a->labels[i].key != s->labels[i].key ||
		    a->labels[i].value != s->labels[i].value)
			return false;
	return true;
}

uint32_t batch_add_labels(struct batch_builder *b, const struct batch_label *labels, size_t n)
{
	struct batch_label interned[LABELS_MAX], *copy;
	struct batch_label_set set = {.labels = interned, .n = n};
	uint64_t h = n;
	uint32_t index;
	bool added;

	if (n > LABELS_MAX)
		fail(b, -E2BIG);
	if (n && !b->label_sets.n)
		(void)batch_add_labels(b, NULL, 0);
	for (size_t i = 0; i < n && !b->error; i++) {
		interned[i].key = batch_string(b, labels[i].key);
		interned[i].value = batch_string(b, labels[i].value);
		h = hash_ptr(hash_ptr(h, interned[i].key), interned[i].value);
	}
	index = add_entry(b, &b->label_sets, h, equal_labels, &set, sizeof(set), &added);
	if (!added)
		return index;
	copy = n ? arena_alloc(b, n * sizeof(*copy)) : NULL;
	if (n && !copy)
		return 0;
	if (n)
		memcpy(copy, interned, n * sizeof(*copy));
	((struct batch_label_set *)b->label_sets.items)[index].labels = copy;
	return index;
}

/* ---- samples ----------------------------------------------------------------------------------
 */

static bool equal_profile(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct batch_profile *a = key,
				   *p = &((struct batch_profile *)b->profiles.items)[index];

	return p->resource == a->resource && p->kind == a->kind && p->period_ns == a->period_ns &&
	       p->probe == a->probe;
}

static bool equal_sample(const void *owner, uint32_t index, const void *key)
{
	const struct batch_builder *b = owner;
	const struct built_sample *a = key, *s = &((struct built_sample *)b->samples.items)[index];

	return s->profile == a->profile && s->s.stack == a->s.stack &&
	       s->s.process == a->s.process && s->s.tid == a->s.tid && s->s.labels == a->s.labels &&
	       s->s.thread_name == a->s.thread_name && s->timed == a->timed;
}

static void add_times(struct batch_builder *b, struct built_sample *s, const uint64_t *times,
		      size_t n)
{
	size_t cap = MAX(s->times_cap, (size_t)4);
	uint64_t *p;

	if (n > TIMESTAMPS_MAX - s->n_times) {
		fail(b, -E2BIG);
		return;
	}
	if (s->n_times + n > s->times_cap) {
		while (cap < s->n_times + n)
			cap *= 2;
		p = arena_alloc(b, cap * sizeof(*p));
		if (!p)
			return;
		if (s->n_times)
			memcpy(p, s->times, s->n_times * sizeof(*p));
		s->times = p;
		s->times_cap = cap;
	}
	memcpy(s->times + s->n_times, times, n * sizeof(*times));
	s->n_times += n;
}

/* PROFILE: its resource, kind, period and probe. */
static void add_sample(struct batch_builder *b, struct batch_profile *profile,
		       const struct batch_sample *sample)
{
	const struct profile_type *type = profile_type_of(profile->kind);
	struct built_sample s = {.s = *sample}, *all;
	uint32_t index;
	uint64_t h;

	if (b->error || sample->value <= 0 || !valid(b, profile->resource, b->resources.n) ||
	    !valid(b, sample->stack, b->stacks.n) || !valid(b, sample->process, b->processes.n))
		return;
	if (sample->labels == BATCH_NO_LABELS && !b->label_sets.n)
		(void)batch_add_labels(b, NULL, 0);
	if (!valid(b, sample->labels, b->label_sets.n))
		return;
	if (!type->period_type)
		profile->period_ns = 0;
	h = hash_u64(hash_u64(profile->resource, profile->kind), profile->period_ns);
	h = hash_ptr(h, profile->probe);
	s.profile = add_entry(b, &b->profiles, h, equal_profile, profile, sizeof(*profile), NULL);
	s.s.thread_name = batch_string(b, sample->thread_name);
	s.s.timestamps = NULL;
	s.s.value = 0;
	/* A time for each unit of the value makes sense for counted samples only. */
	s.timed = type->period_type && sample->timestamps;
	h = hash_ptr(hash_u64(hash_u64(s.profile, sample->stack), sample->process),
		     s.s.thread_name);
	h = hash_u64(hash_u64(hash_u64(h, sample->tid), sample->labels), s.timed);
	index = add_entry(b, &b->samples, h, equal_sample, &s, sizeof(s), NULL);
	if (b->error)
		return;
	all = b->samples.items;
	if (s.timed)
		add_times(b, &all[index], sample->timestamps, (size_t)sample->value);
	if (__builtin_add_overflow(all[index].s.value, sample->value, &all[index].s.value))
		all[index].s.value = INT64_MAX;
}

void batch_add_sample(struct batch_builder *b, uint32_t resource, enum profile_kind kind,
		      uint64_t period_ns, const struct batch_sample *sample)
{
	struct batch_profile profile = {
	    .resource = resource,
	    .kind = kind,
	    .period_ns = period_ns,
	    .probe = batch_string(b, ""),
	};

	add_sample(b, &profile, sample);
}

void batch_add_probe_sample(struct batch_builder *b, uint32_t resource, const char *name,
			    const struct batch_sample *sample)
{
	struct batch_profile profile = {
	    .resource = resource,
	    .kind = PROFILE_PROBE,
	    .probe = batch_string(b, name),
	};

	add_sample(b, &profile, sample);
}

/* ---- life -------------------------------------------------------------------------------------
 */

int batch_builder_new(uint64_t start_unix_ns, struct batch_builder **ret)
{
	struct batch_builder *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->start_unix_ns = start_unix_ns;
	r = batch_arena_new(ARENA_MAX, &b->arena);
	if (r < 0) {
		batch_builder_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

static void expect_entries(struct entries *e, uint32_t n, size_t size)
{
	int r = grow_array(&e->items, &e->cap, n, size, ENTRIES_MAX);

	if (r == 0)
		r = ref_table_reserve(&e->index, n);
	(void)r; /* it grows when an entry is added */
}

void batch_builder_expect(struct batch_builder *b, const struct batch_counts *c)
{
	expect_entries(&b->functions, c->functions, sizeof(struct batch_function));
	expect_entries(&b->locations, c->locations, sizeof(struct batch_location));
	expect_entries(&b->stacks, c->stacks, sizeof(struct batch_stack));
	expect_entries(&b->samples, c->samples, sizeof(struct built_sample));
	(void)grow_array((void **)&b->lines, &b->lines_cap, c->lines, sizeof(*b->lines),
			 ENTRIES_MAX);
	(void)grow_array((void **)&b->stack_locations, &b->stack_locations_cap, c->stack_locations,
			 sizeof(*b->stack_locations), STACK_LOCATIONS_MAX);
}

static void entries_done(struct entries *e)
{
	free(e->items);
	ref_table_done(&e->index);
}

struct batch_builder *batch_builder_free(struct batch_builder *b)
{
	if (!b)
		return NULL;
	entries_done(&b->functions);
	entries_done(&b->mappings);
	entries_done(&b->locations);
	entries_done(&b->stacks);
	entries_done(&b->processes);
	entries_done(&b->resources);
	entries_done(&b->label_sets);
	entries_done(&b->profiles);
	entries_done(&b->samples);
	strings_done(&b->strings);
	free(b->scratch);
	free(b->lines);
	free(b->stack_locations);
	batch_arena_free(b->arena);
	free(b);
	return NULL;
}

/* Order of profiles: resource, kind, period, name of the probe. */
static int compare_profiles(const void *pa, const void *pb)
{
	const struct batch_profile *a = pa, *b = pb;

	if (a->resource != b->resource)
		return a->resource < b->resource ? -1 : 1;
	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->period_ns != b->period_ns)
		return a->period_ns < b->period_ns ? -1 : 1;
	return strcmp(a->probe, b->probe);
}

/*
 * Sorts the profiles and lays each one's samples side by side, in the order in which they came.
 * While it runs, first_sample of a profile holds its number before sorting, then the fill position.
 */
static int lay_samples(struct batch_builder *b, struct batch *batch)
{
	struct batch_profile *profiles = b->profiles.items;
	const struct built_sample *from = b->samples.items;
	_cleanup_free_ uint32_t *rank = NULL;
	uint32_t next = 0, at;

	if (!b->samples.n)
		return 0;
	rank = calloc(b->profiles.n, sizeof(*rank));
	batch->samples = calloc(b->samples.n, sizeof(*batch->samples));
	if (!rank || !batch->samples)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->samples.n; i++)
		profiles[from[i].profile].n_samples++;
	for (uint32_t i = 0; i < b->profiles.n; i++)
		profiles[i].first_sample = i;
	qsort(profiles, b->profiles.n, sizeof(*profiles), compare_profiles);
	for (uint32_t i = 0; i < b->profiles.n; i++) {
		rank[profiles[i].first_sample] = i;
		profiles[i].first_sample = next;
		next += profiles[i].n_samples;
	}
	for (uint32_t i = 0; i < b->samples.n; i++) {
		at = profiles[rank[from[i].profile]].first_sample++;
		batch->samples[at] = from[i].s;
		batch->samples[at].timestamps = from[i].timed ? from[i].times : NULL;
	}
	for (uint32_t i = 0; i < b->profiles.n; i++)
		profiles[i].first_sample -= profiles[i].n_samples;
	batch->n_samples = b->samples.n;
	return 0;
}

int batch_builder_finish(struct batch_builder *builder, uint64_t duration_ns, struct batch **ret)
{
	_cleanup_(batch_builder_freep) struct batch_builder *b = builder;
	_cleanup_(batch_unrefp) struct batch *batch = NULL;
	int r = b->error;

	if (r < 0)
		return r;
	batch = calloc(1, sizeof(*batch));
	if (!batch)
		return -ENOMEM;
	atomic_init(&batch->refs, 1);
	r = lay_samples(b, batch);
	if (r < 0)
		return r;
	batch->start_unix_ns = b->start_unix_ns;
	batch->duration_ns = duration_ns;
#define TAKE(array)                                                                                \
	batch->array = TAKE_PTR(b->array.items);                                                   \
	batch->n_##array = b->array.n
	TAKE(functions);
	TAKE(mappings);
	TAKE(locations);
	TAKE(stacks);
	TAKE(processes);
	TAKE(resources);
	TAKE(label_sets);
	TAKE(profiles);
#undef TAKE
	batch->lines = TAKE_PTR(b->lines);
	batch->n_lines = b->n_lines;
	batch->stack_locations = TAKE_PTR(b->stack_locations);
	batch->n_stack_locations = b->n_stack_locations;
	batch->arena = TAKE_PTR(b->arena);
	*ret = TAKE_PTR(batch);
	return 0;
}
