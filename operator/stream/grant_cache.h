/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct grant_cache: the answers about tokens, by the token's SHA-256: refusals for a time of
 * their own, grants until the token expires. At most STREAM_AUTH_CACHE answers; the oldest is
 * evicted. Loop thread only.
 */
#pragma once

#include "operator/stream/auth.h"

struct grant_cache;
int grant_cache_new(struct grant_cache **ret) _must_check_;
struct grant_cache *grant_cache_free(struct grant_cache *c);

/*
 * KEY: SHA256_DIGEST_LENGTH bytes. Replaces an earlier answer. Without memory nothing is kept, and
 * the token is reviewed again.
 */
void grant_cache_put(struct grant_cache *c, const uint8_t *key, const struct stream_grant *grant);
void grant_cache_drop(struct grant_cache *c, const uint8_t *key);
/* False: there is no answer for KEY. The answer may have expired (until_ms). */
bool grant_cache_get(const struct grant_cache *c, const uint8_t *key, struct stream_grant *ret);
/* Forgets expired answers. */
void grant_cache_sweep(struct grant_cache *c, uint64_t now_ms);
size_t grant_cache_count(const struct grant_cache *c);
