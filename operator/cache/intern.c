// SPDX-License-Identifier: Apache-2.0
/*
 * Strings in a slab, found by a table of their handles. A string costs its bytes, 13 more, rounded
 * up to 8, and 5 bytes a slot of the table.
 *
 * The hash has a secret seed: names come from whoever may create pods, and chosen collisions would
 * make every look-up a walk. Loop thread only.
 */
#include "operator/cache/intern.h"

#include <sys/random.h>

#include "lib/ref_table.h"
#include "operator/cache/slab.h"

struct entry {
	uint32_t refs; /* UINT32_MAX: overflowed once, stays for ever */
	uint32_t len;
	uint32_t hash;
	char bytes[];
};
_Static_assert(sizeof(struct entry) == 12, "12 bytes beside each string and its NUL");

struct intern {
	struct slab slab;
	struct ref_table table;
	size_t max_bytes;
	uint64_t seed, refused;
};

static struct entry *entry_of(const struct intern *in, interned s)
{
	return slab_at(&in->slab, s);
}

int intern_new(size_t max_bytes, struct intern **ret)
{
	struct intern *in = calloc(1, sizeof(*in));

	if (!in)
		return -ENOMEM;
	in->max_bytes = max_bytes;
	if (getrandom(&in->seed, sizeof(in->seed), GRND_NONBLOCK) != sizeof(in->seed))
		in->seed = mix64((uintptr_t)in);
	*ret = in;
	return 0;
}

struct intern *intern_free(struct intern *in)
{
	if (!in)
		return NULL;
	ref_table_done(&in->table);
	slab_done(&in->slab);
	free(in);
	return NULL;
}

static interned find(const struct intern *in, uint32_t hash, const void *bytes, size_t len)
{
	uint32_t pos = REF_TABLE_START, ref;
	const struct entry *e;

	while ((ref = ref_table_next(&in->table, mix64(hash), &pos))) {
		e = entry_of(in, ref);
		if (e->hash == hash && e->len == len && (!len || !memcmp(e->bytes, bytes, len)))
			return ref;
	}
	return 0;
}

interned intern_find(const struct intern *in, const void *bytes, size_t len)
{
	return find(in, (uint32_t)hash_bytes(bytes ? bytes : "", len, in->seed), bytes, len);
}

int intern_get(struct intern *in, const void *bytes, size_t len, interned *ret)
{
	uint32_t hash = (uint32_t)hash_bytes(bytes ? bytes : "", len, in->seed), ref;
	size_t size = sizeof(struct entry) + len + 1;
	struct entry *e;
	int r;

	ref = find(in, hash, bytes, len);
	if (ref) {
		*ret = intern_ref(in, ref);
		return 0;
	}
	if (len > in->max_bytes ||
	    intern_bytes(in) + slab_growth(&in->slab, size) > in->max_bytes) {
		in->refused++;
		return -ENOSPC;
	}
	r = ref_table_reserve(&in->table, 1);
	if (r)
		return r;
	r = slab_alloc(&in->slab, size, &ref);
	if (r)
		return r;
	e = entry_of(in, ref);
	e->refs = 1;
	e->len = (uint32_t)len;
	e->hash = hash;
	if (len)
		memcpy(e->bytes, bytes, len);
	e->bytes[len] = 0;
	ref_table_insert(&in->table, mix64(hash), ref);
	*ret = ref;
	return 0;
}

interned intern_ref(struct intern *in, interned s)
{
	struct entry *e;

	if (!s)
		return 0;
	e = entry_of(in, s);
	if (e->refs != UINT32_MAX)
		e->refs++;
	return s;
}

void intern_unref(struct intern *in, interned s)
{
	struct entry *e;

	if (!s)
		return;
	e = entry_of(in, s);
	if (e->refs == UINT32_MAX || --e->refs)
		return;
	(void)ref_table_remove(&in->table, mix64(e->hash), s);
	slab_free(&in->slab, s);
	ref_table_trim(&in->table);
}

uint32_t intern_refs(const struct intern *in, interned s)
{
	return s ? entry_of(in, s)->refs : 0;
}

const char *intern_text(const struct intern *in, interned s, size_t *ret_len)
{
	const struct entry *e = s ? entry_of(in, s) : NULL;

	if (ret_len)
		*ret_len = e ? e->len : 0;
	return e ? e->bytes : "";
}

size_t intern_bytes(const struct intern *in)
{
	return sizeof(*in) + slab_bytes(&in->slab) + ref_table_bytes(&in->table);
}

size_t intern_count(const struct intern *in)
{
	return in->slab.count;
}

uint64_t intern_refused(const struct intern *in)
{
	return in->refused;
}
