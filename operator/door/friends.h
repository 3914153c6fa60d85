/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct friends: source addresses that go first, because a connection from there was granted not
 * long ago, or because the server expects one. Not locked.
 */
#pragma once

#include "lib/uthash.h"
#include "operator/door/source.h"

enum {
	FRIENDS_MAX = 16384, /* when full, the one added longest ago is evicted */
	FRIENDS_MS = 3600000,
};

struct friends {
	struct friend *all; /* in the order in which they were last added */
};

void friends_done(struct friends *f);
/* When out of memory, KEY is not added. */
void friends_add(struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
bool friends_have(const struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
