/* SPDX-License-Identifier: Apache-2.0 */
/* A table that keeps the order in which entries were added: naming one again moves it to the end.
 */
#include "operator/door/friends.h"

struct friend
{
	uint8_t key[SOURCE_KEY];
	uint64_t named_ms;
	UT_hash_handle hh;
};

static struct friend *find(const struct friends *f, const uint8_t key[SOURCE_KEY])
{
	struct friend *entry = NULL;

	if (f->all)
		HASH_FIND(hh, f->all, key, SOURCE_KEY, entry);
	return entry;
}

void friends_done(struct friends *f)
{
	struct friend *entry, *next;

	HASH_ITER (hh, f->all, entry, next) {
		HASH_DEL(f->all, entry);
		free(entry);
	}
}

void friends_add(struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms)
{
	struct friend *entry = find(f, key);

	if (!entry && HASH_COUNT(f->all) >= FRIENDS_MAX)
		entry = f->all;
	if (entry)
		HASH_DEL(f->all, entry);
	else
		entry = calloc(1, sizeof(*entry));
	if (!entry)
		return;
	memcpy(entry->key, key, SOURCE_KEY);
	entry->named_ms = now_ms;
	HASH_ADD(hh, f->all, key, SOURCE_KEY, entry);
}

bool friends_have(const struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms)
{
	const struct friend *entry = find(f, key);

	return entry && now_ms - entry->named_ms < FRIENDS_MS;
}
