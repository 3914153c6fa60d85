/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A uthash table whose keys are whole stacks: header and all words. A stack is looked up with the
 * sample's words where they are, so a known stack costs a hash and a compare, and no copy. The
 * table keeps its entries in the order in which they were added: a stack is added again when a
 * later window has it, so that the sweep finds those that were not seen for long at the beginning.
 */
#include "agent/window/stack_table.h"

#include <sys/random.h>

#include "lib/metrics.h"

#define SCRATCH_WORDS (KILN_MAX_KERNEL_FRAMES + KILN_MAX_USER_WORDS)

enum { SHORT_FRAMES = 4, SHORT_KERNEL = 4 };

/* Exists while it has stacks. */
struct stack_owner {
	uint64_t id;
	size_t stacks, bytes;
	UT_hash_handle hh;
};

struct stack_table {
	struct stack *stacks;
	struct stack_owner *owners;
	struct stack *bare; /* without frames; not in `stacks` */
	size_t bytes, max_stacks, max_bytes;
	bool full;     /* treat the table as full whatever its limits */
	uint64_t seed; /* seed of the hash, because programs can choose the words of their stacks */
	union {
		struct stack_key key;
		uint64_t space[sizeof(struct stack_key) / 8 + SCRATCH_WORDS];
	} scratch;
};

int stack_table_new(struct stack_table **ret)
{
	struct stack_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->bare = calloc(1, sizeof(*t->bare));
	if (!t->bare) {
		free(t);
		return -ENOMEM;
	}
	t->bare->key.end = KILN_END_SHED;
	if (getrandom(&t->seed, sizeof(t->seed), GRND_NONBLOCK) < 0)
		t->seed = (uintptr_t)t;
	stack_table_limit(t, STACKS_MAX, STACK_BYTES_MAX);
	*ret = t;
	return 0;
}

void stack_table_limit(struct stack_table *t, size_t stacks, size_t bytes)
{
	t->max_stacks = stacks;
	t->max_bytes = bytes;
}

/* How full the table is: in eighths. */
static size_t fill(const struct stack_table *t)
{
	if (t->full)
		return 8;
	return MAX(t->bytes * 8 / t->max_bytes, HASH_COUNT(t->stacks) * 8 / t->max_stacks);
}

/* Whether the owner has more than an even part of the table; at least two owners are assumed,
 * because another may come at any time. */
static bool is_over(const struct stack_table *t, const struct stack_owner *o)
{
	size_t n = MAX(HASH_COUNT(t->owners), 2U);

	return o && (o->bytes > t->max_bytes / n || o->stacks > t->max_stacks / n);
}

static size_t key_size(const struct stack_key *key)
{
	return sizeof(*key) + (size_t)(key->n_kernel + key->n_user) * sizeof(key->words[0]);
}

static size_t stack_size(const struct stack *s)
{
	return sizeof(*s) + key_size(&s->key);
}

static void drop(struct stack_table *t, struct stack *s)
{
	struct stack_owner *o = s->owner;

	HASH_DEL(t->stacks, s);
	t->bytes -= stack_size(s);
	o->bytes -= stack_size(s);
	if (--o->stacks == 0) {
		HASH_DEL(t->owners, o);
		free(o);
	}
	if (s->mapset)
		s->mapset->refs--;
	free(s);
}

struct stack_table *stack_table_free(struct stack_table *t)
{
	struct stack *s, *next;

	if (!t)
		return NULL;
	HASH_ITER (hh, t->stacks, s, next)
		drop(t, s);
	free(t->bare);
	free(t);
	return NULL;
}

/* The entry of the runtime ID in S; NULL: S has frames of too many runtimes. */
static struct stack_runtime *get_runtime(struct stack *s, uint32_t id)
{
	for (size_t i = 0; i < STACK_RUNTIMES; i++)
		if (!s->runtimes[i].id || s->runtimes[i].id == id) {
			s->runtimes[i].id = (uint8_t)id;
			return &s->runtimes[i];
		}
	return NULL;
}

static void count_runtimes(struct stack *s)
{
	const uint64_t *words = s->key.words + s->key.n_kernel;

	for (uint32_t i = 0; i < s->key.n_user; i += kiln_frame_words(words[i])) {
		bool missing = KILN_FRAME_KIND(words[i]) == KILN_FRAME_MISSING;
		uint32_t id =
		    missing ? kiln_missing_runtime(words[i]) : kiln_frame_runtime(words[i]);
		struct stack_runtime *of = id ? get_runtime(s, id) : NULL;

		if (of && missing)
			of->missing = (uint8_t)kiln_missing_reason(words[i]);
		else if (of)
			of->frames++;
	}
}

/* Hashes the header in the scratch key and the given words, which need not be in the scratch
 * key. */
static unsigned int hash_of(const struct stack_table *t, const uint64_t *kernel,
			    const uint64_t *user)
{
	const struct stack_key *key = &t->scratch.key;
	uint64_t h = hash_words((const uint64_t *)key, sizeof(*key) / sizeof(uint64_t), t->seed);

	h = hash_words(kernel, key->n_kernel, h);
	return (unsigned int)hash_words(user, key->n_user, h);
}

static bool are_same(const uint64_t *a, const uint64_t *b, uint32_t n)
{
	return !n || !memcmp(a, b, n * sizeof(*a));
}

/* Like hash_of(), the words need not be in the scratch key; HASH_FIND() needs the key in one
 * piece. */
static struct stack *find(struct stack_table *t, unsigned int hash, const uint64_t *kernel,
			  const uint64_t *user)
{
	const struct stack_key *key = &t->scratch.key;
	UT_hash_handle *hh;
	unsigned int bucket;

	if (!t->stacks)
		return NULL;
	HASH_TO_BKT(hash, t->stacks->hh.tbl->num_buckets, bucket);
	for (hh = t->stacks->hh.tbl->buckets[bucket].hh_head; hh; hh = hh->hh_next) {
		struct stack *s = container_of(hh, struct stack, hh);

		if (hh->hashv == hash && !memcmp(&s->key, key, sizeof(*key)) &&
		    are_same(s->key.words, kernel, key->n_kernel) &&
		    are_same(s->key.words + key->n_kernel, user, key->n_user))
			return s;
	}
	return NULL;
}

static struct stack_owner *owner_of(struct stack_table *t, uint64_t id)
{
	struct stack_owner *o;

	HASH_FIND(hh, t->owners, &id, sizeof(id), o);
	return o;
}

/* Adds the stack of the scratch key, which is not in the table. NULL: no memory. */
static struct stack *insert(struct stack_table *t, unsigned int hash, uint64_t owner,
			    struct mapset *mapset)
{
	const struct stack_key *key = &t->scratch.key;
	size_t size = key_size(key);
	struct stack_owner *o = owner_of(t, owner), *fresh = NULL;
	struct stack *s = malloc(sizeof(*s) + size);

	if (s && !o)
		o = fresh = calloc(1, sizeof(*fresh));
	if (!s || !o) {
		free(s);
		return NULL;
	}
	if (fresh) {
		fresh->id = owner;
		HASH_ADD(hh, t->owners, id, sizeof(fresh->id), fresh);
	}
	*s = (struct stack){.mapset = mapset, .owner = o};
	memcpy(&s->key, key, size);
	count_runtimes(s);
	if (mapset)
		mapset->refs++;
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, t->stacks, &s->key, size, hash, s);
	t->bytes += stack_size(s);
	o->bytes += stack_size(s);
	o->stacks++;
	return s;
}

/* Shortens the scratch key to the frames next to the leaf. */
static void shorten(struct stack_key *key)
{
	const uint64_t *user = key->words + key->n_kernel;
	uint16_t n = 0, kernel = MIN(key->n_kernel, SHORT_KERNEL);

	for (int i = 0; i < SHORT_FRAMES && n < key->n_user; i++)
		n += (uint16_t)kiln_frame_words(user[n]);
	n = MIN(n, key->n_user);
	memmove(key->words + kernel, user, n * sizeof(*user));
	key->n_kernel = kernel;
	key->n_user = n;
	key->end = KILN_END_SHED;
}

/* Adds the scratch key, which is not in the table and whose hash is HASH, or returns the short or
 * empty stack that replaces it when there is no room. */
static struct stack *get_new(struct stack_table *t, unsigned int hash, uint64_t owner,
			     struct mapset *mapset)
{
	struct stack_key *key = &t->scratch.key;
	const uint64_t *user;
	size_t full = fill(t);
	bool over = full >= 6 && is_over(t, owner_of(t, owner));
	struct stack *s;

	if (!over && full < 8)
		return insert(t, hash, owner, mapset);
	if (full >= 7) {
		metric_add(M_STACKS_BARE, 1);
		return t->bare;
	}
	metric_add(M_STACKS_SHORTENED, 1);
	shorten(key);
	user = key->words + key->n_kernel;
	hash = hash_of(t, key->words, user);
	s = find(t, hash, key->words, user);
	return s ? s : insert(t, hash, owner, mapset);
}

static void move_to_end(struct stack_table *t, struct stack *s)
{
	unsigned int hash = s->hh.hashv;

	if (!s->hh.next)
		return;
	HASH_DEL(t->stacks, s);
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, t->stacks, &s->key, key_size(&s->key), hash, s);
}

int stack_table_get(struct stack_table *t, uint64_t owner, struct mapset *mapset, enum kiln_end end,
		    const uint64_t *kernel, uint16_t n_kernel, const uint64_t *user,
		    uint16_t n_user, uint32_t window, struct stack **ret)
{
	struct stack_key *key = &t->scratch.key;
	unsigned int hash;
	struct stack *s;

	if (n_kernel > KILN_MAX_KERNEL_FRAMES || n_user > KILN_MAX_USER_WORDS)
		return -EINVAL;
	*key = (struct stack_key){
	    .mapset = mapset ? mapset->id : 0,
	    .end = (uint32_t)end,
	    .n_kernel = n_kernel,
	    .n_user = n_user,
	};
	hash = hash_of(t, kernel, user);
	s = find(t, hash, kernel, user);
	if (!s) {
		/* Without frames their pointers may be NULL. */
		if (n_kernel)
			memcpy(key->words, kernel, n_kernel * sizeof(*kernel));
		if (n_user)
			memcpy(key->words + n_kernel, user, n_user * sizeof(*user));
		s = get_new(t, hash, owner, mapset);
	}
	if (!s)
		return -ENOMEM;
	if (s->last_window != window && s != t->bare)
		move_to_end(t, s);
	s->last_window = window;
	*ret = s;
	return 0;
}

void stack_table_sweep(struct stack_table *t, uint32_t before_window, uint32_t ended_before,
		       bool any_ended)
{
	bool nearly_full = fill(t) >= 6;
	uint32_t end = any_ended || nearly_full ? ended_before : before_window;
	struct stack *s, *next;

	HASH_ITER (hh, t->stacks, s, next) {
		if ((int32_t)(s->last_window - end) >= 0)
			break;
		bool ended = s->mapset && s->mapset->unnamed_sweeps;
		bool early = ended || (nearly_full && is_over(t, s->owner));
		uint32_t before = early ? ended_before : before_window;

		if ((int32_t)(s->last_window - before) < 0)
			drop(t, s);
	}
}

struct stack *stack_table_bare(struct stack_table *t)
{
	return t->bare;
}

size_t stack_table_count(const struct stack_table *t)
{
	return HASH_COUNT(t->stacks);
}

size_t stack_table_bytes(const struct stack_table *t)
{
	return t->bytes;
}

void stack_table_set_full(struct stack_table *t, bool full)
{
	t->full = full;
}
