/* SPDX-License-Identifier: Apache-2.0 */
/* A table that keeps the order in which entries were added: naming one again moves it to the end.
 */
#include "operator/frontend/trusted.h"

struct trusted_source {
	uint8_t key[SOURCE_KEY];
	uint64_t named_ms;
	UT_hash_handle hh;
};

static struct trusted_source *find(const struct trusted *f, const uint8_t key[SOURCE_KEY])
{
	struct trusted_source *entry = NULL;

	if (f->all)
		HASH_FIND(hh, f->all, key, SOURCE_KEY, entry);
	return entry;
}

void trusted_done(struct trusted *f)
{
	struct trusted_source *entry, *next;

	HASH_ITER (hh, f->all, entry, next) {
		HASH_DEL(f->all, entry);
		free(entry);
	}
}

void trusted_add(struct trusted *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms)
{
	struct trusted_source *entry = find(f, key);

	if (!entry && HASH_COUNT(f->all) >= TRUSTED_MAX)
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

bool trusted_have(const struct trusted *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms)
{
	const struct trusted_source *entry = find(f, key);

	return entry && now_ms - entry->named_ms < TRUSTED_MS;
}
