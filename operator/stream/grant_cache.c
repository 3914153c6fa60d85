/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table in the order of insertion, which uthash keeps. Loop thread only. */
#include "operator/stream/grant_cache.h"

#include <openssl/sha.h>

#include "lib/uthash.h"

struct entry {
	uint8_t key[SHA256_DIGEST_LENGTH];
	enum stream_refusal refusal;
	bool controller, has_pod;
	uint8_t pod_uid[16];
	uint64_t until_ms, token_until_ms;
	UT_hash_handle hh;
	char node[]; /* shorter than what struct stream_grant has room for */
};

struct grant_cache {
	struct entry *entries;
};

int grant_cache_new(struct grant_cache **ret)
{
	struct grant_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	*ret = c;
	return 0;
}

static void drop(struct grant_cache *c, struct entry *e)
{
	HASH_DEL(c->entries, e);
	free(e);
}

struct grant_cache *grant_cache_free(struct grant_cache *c)
{
	struct entry *e, *next;

	if (!c)
		return NULL;
	HASH_ITER (hh, c->entries, e, next)
		drop(c, e);
	free(c);
	return NULL;
}

static struct entry *find(const struct grant_cache *c, const uint8_t *key)
{
	struct entry *e;

	HASH_FIND(hh, c->entries, key, SHA256_DIGEST_LENGTH, e);
	return e;
}

void grant_cache_drop(struct grant_cache *c, const uint8_t *key)
{
	struct entry *e = find(c, key);

	if (e)
		drop(c, e);
}

void grant_cache_put(struct grant_cache *c, const uint8_t *key, const struct stream_grant *grant)
{
	size_t n = strlen(grant->node) + 1;
	struct entry *e;

	grant_cache_drop(c, key);
	if (HASH_COUNT(c->entries) >= STREAM_AUTH_CACHE)
		drop(c, c->entries);
	e = malloc(sizeof(*e) + n);
	if (!e)
		return;
	memcpy(e->key, key, sizeof(e->key));
	memcpy(e->node, grant->node, n);
	memcpy(e->pod_uid, grant->pod_uid, sizeof(e->pod_uid));
	e->refusal = grant->refusal;
	e->controller = grant->controller;
	e->has_pod = grant->has_pod;
	e->until_ms = grant->until_ms;
	e->token_until_ms = grant->token_until_ms;
	HASH_ADD(hh, c->entries, key, sizeof(e->key), e);
}

bool grant_cache_get(const struct grant_cache *c, const uint8_t *key, struct stream_grant *ret)
{
	const struct entry *e = find(c, key);

	if (!e)
		return false;
	*ret = (struct stream_grant){.refusal = e->refusal,
				     .controller = e->controller,
				     .has_pod = e->has_pod,
				     .until_ms = e->until_ms,
				     .token_until_ms = e->token_until_ms};
	memcpy(ret->pod_uid, e->pod_uid, sizeof(ret->pod_uid));
	snprintf(ret->node, sizeof(ret->node), "%s", e->node);
	return true;
}

void grant_cache_sweep(struct grant_cache *c, uint64_t now_ms)
{
	struct entry *e, *next;

	HASH_ITER (hh, c->entries, e, next)
		if (e->until_ms <= now_ms &&
		    (e->refusal != STREAM_GRANTED || e->token_until_ms <= now_ms))
			drop(c, e);
}

size_t grant_cache_count(const struct grant_cache *c)
{
	return HASH_COUNT(c->entries);
}
