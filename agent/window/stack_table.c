/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A uthash table over whole keys: header and all words. The key of a sample is put together in one
 * scratch buffer, so that a known stack costs a hash, a compare, and no allocation.
 */
#include "agent/window/stack_table.h"

#define SCRATCH_WORDS (KILN_MAX_KERNEL_FRAMES + KILN_MAX_USER_WORDS)

struct stack_table {
	struct stack *stacks;
	size_t bytes;
	bool refuse_new;
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
	*ret = t;
	return 0;
}

static size_t key_size(const struct stack_key *key)
{
	return sizeof(*key) + (size_t)(key->n_kernel + key->n_user) * sizeof(key->words[0]);
}

static void drop(struct stack_table *t, struct stack *s)
{
	HASH_DEL(t->stacks, s);
	t->bytes -= sizeof(*s) + key_size(&s->key);
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
	free(t);
	return NULL;
}

/* What S has of runtimes. */
static void count_runtimes(struct stack *s)
{
	const uint64_t *words = s->key.words + s->key.n_kernel;

	for (uint32_t i = 0; i < s->key.n_user; i += kiln_frame_words(words[i])) {
		uint32_t id = kiln_frame_runtime(words[i]);

		if (KILN_FRAME_KIND(words[i]) == KILN_FRAME_MISSING) {
			id = kiln_missing_runtime(words[i]) % KILN_RUNTIME_COUNT;
			s->missing[id] = (uint8_t)kiln_missing_reason(words[i]);
		} else if (id) {
			id %= KILN_RUNTIME_COUNT;
			s->runtime_frames[id]++;
		}
		s->has_runtimes |= id != 0;
	}
}

int stack_table_get(struct stack_table *t, struct mapset *mapset, enum kiln_end end,
		    const uint64_t *kernel, uint16_t n_kernel, const uint64_t *user,
		    uint16_t n_user, uint32_t window, struct stack **ret)
{
	struct stack_key *key = &t->scratch.key;
	unsigned int hash;
	struct stack *s;
	size_t size;

	if (n_kernel > KILN_MAX_KERNEL_FRAMES || n_user > KILN_MAX_USER_WORDS)
		return -EINVAL;
	*key = (struct stack_key){
	    .mapset = mapset ? mapset->id : 0,
	    .end = (uint32_t)end,
	    .n_kernel = n_kernel,
	    .n_user = n_user,
	};
	memcpy(key->words, kernel, n_kernel * sizeof(*kernel));
	memcpy(key->words + n_kernel, user, n_user * sizeof(*user));
	size = key_size(key);
	hash = (unsigned int)hash_bytes(key, size, 0);
	HASH_FIND_BYHASHVALUE(hh, t->stacks, key, size, hash, s);
	if (s) {
		s->last_window = window;
		*ret = s;
		return 0;
	}
	if (t->refuse_new)
		return -EDQUOT;
	if (HASH_COUNT(t->stacks) >= STACKS_MAX || t->bytes + size > STACK_BYTES_MAX)
		return -ENOSPC;
	s = malloc(sizeof(*s) + size);
	if (!s)
		return -ENOMEM;
	*s = (struct stack){.mapset = mapset, .last_window = window};
	memcpy(&s->key, key, size);
	count_runtimes(s);
	if (mapset)
		mapset->refs++;
	HASH_ADD_KEYPTR_BYHASHVALUE(hh, t->stacks, &s->key, size, hash, s);
	t->bytes += sizeof(*s) + size;
	*ret = s;
	return 0;
}

void stack_table_sweep(struct stack_table *t, uint32_t before_window, uint32_t ended_before)
{
	struct stack *s, *next;

	HASH_ITER (hh, t->stacks, s, next) {
		bool ended = s->mapset && s->mapset->unnamed_sweeps;
		uint32_t before = ended ? ended_before : before_window;

		if ((int32_t)(s->last_window - before) < 0)
			drop(t, s);
	}
}

size_t stack_table_count(const struct stack_table *t)
{
	return HASH_COUNT(t->stacks);
}

size_t stack_table_bytes(const struct stack_table *t)
{
	return t->bytes;
}

void stack_table_refuse_new(struct stack_table *t, bool refuse)
{
	t->refuse_new = refuse;
}
