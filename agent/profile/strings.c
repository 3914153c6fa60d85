/* SPDX-License-Identifier: Apache-2.0 */
/* Interning and repair of strings; the common case (clean and known) copies nothing. */
#include "agent/profile/strings.h"

void strings_done(struct strings *t)
{
	ref_table_done(&t->index);
	free(t->items);
	*t = (struct strings){0};
}

/* Well-formed sequences are those of the Unicode Standard, table 3-7. */
size_t utf8_len(const char *bytes, size_t n)
{
	const unsigned char *s = (const unsigned char *)bytes;
	unsigned int low = 0x80, high = 0xbf;
	size_t len;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (len > n)
		return 0;
	if (s[0] == 0xe0) /* no overlong forms, surrogates, or values past U+10FFFF */
		low = 0xa0;
	else if (s[0] == 0xed)
		high = 0x9f;
	else if (s[0] == 0xf0)
		low = 0x90;
	else if (s[0] == 0xf4)
		high = 0x8f;
	if (s[1] < low || s[1] > high)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

/* How many of the N bytes at S are ASCII for certain: eight at a time. */
static size_t ascii_len(const char *s, size_t n)
{
	uint64_t eight;
	size_t i;

	for (i = 0; i + sizeof(eight) <= n; i += sizeof(eight)) {
		memcpy(&eight, s + i, sizeof(eight));
		if (eight & 0x8080808080808080ULL)
			break;
	}
	return i;
}

/* Cuts S to the cap at a character's end; *ret_clean tells whether it may be used as it is. */
static size_t measure(const char *s, bool *ret_clean)
{
	size_t n = strnlen(s, STRINGS_LEN_MAX + 4), i = ascii_len(s, MIN(n, STRINGS_LEN_MAX)), len;
	bool clean = true;

	while (i < n) {
		len = utf8_len(s + i, n - i);
		clean = clean && len;
		len = MAX(len, (size_t)1);
		if (i + len > STRINGS_LEN_MAX)
			break;
		i += len;
	}
	*ret_clean = clean;
	return i;
}

struct key {
	const char *s;
	size_t len;
};

static bool equal(const void *owner, uint32_t index, const void *key)
{
	const struct strings *t = owner;
	const struct key *k = key;

	/* strncmp: it must not read past the end of a shorter string. */
	return strncmp(t->items[index], k->s, k->len) == 0 && !t->items[index][k->len];
}

static int add_clean(struct strings *t, struct batch_arena *arena, const char *s, size_t len,
		     const char **ret)
{
	struct key key = {s, len};
	uint64_t hash = hash_bytes(s, len, 1);
	uint32_t index = ref_table_index(&t->index, hash, equal, t, &key);
	char *copy;
	int r;

	if (index != REF_TABLE_NONE) {
		*ret = t->items[index];
		return 0;
	}
	r = grow_array((void **)&t->items, &t->cap, (size_t)t->n + 1, sizeof(*t->items),
		       STRINGS_MAX);
	if (r < 0)
		return r;
	r = ref_table_reserve(&t->index, 1);
	if (r < 0)
		return r;
	copy = batch_arena_alloc(arena, len + 1);
	if (!copy)
		return batch_arena_full(arena) ? -E2BIG : -ENOMEM;
	memcpy(copy, s, len);
	copy[len] = 0;
	t->items[t->n] = copy;
	ref_table_insert(&t->index, hash, ++t->n);
	*ret = copy;
	return 0;
}

int strings_add(struct strings *t, struct batch_arena *arena, const char *s, const char **ret)
{
	static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
	char repaired[STRINGS_LEN_MAX];
	size_t len, n = 0, c, w;
	bool clean;

	if (!s)
		s = "";
	len = measure(s, &clean);
	if (clean)
		return add_clean(t, arena, s, len, ret);
	for (size_t i = 0; i < len; i += MAX(c, (size_t)1), n += w) {
		c = utf8_len(s + i, len - i);
		w = c ? c : 3;
		if (n + w > sizeof(repaired))
			break;
		memcpy(repaired + n, c ? s + i : replacement, w);
	}
	return add_clean(t, arena, repaired, n, ret);
}
