/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct trusted: source addresses that go first, because a connection from there was granted not
 * long ago, or because the server expects one. Not locked.
 */
#pragma once

#include "lib/uthash.h"
#include "operator/frontend/source.h"

enum {
	TRUSTED_MAX = 16384, /* when full, the one added longest ago is evicted */
	TRUSTED_MS = 3600000,
};

struct trusted {
	struct trusted_source *all; /* in the order in which they were last added */
};

void trusted_done(struct trusted *f);
/* When out of memory, KEY is not added. */
void trusted_add(struct trusted *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
bool trusted_have(const struct trusted *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
