/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct friends: source addresses that go first, because a connection from there was granted not
 * long ago, or because the server expects one. Not locked.
 */
#pragma once

#include "lib/uthash.h"
#include "operator/door/source.h"

enum {
	FRIENDS_MAX = 16384, /* the one that was named longest ago goes first */
	FRIENDS_MS = 3600000,
};

struct friends {
	struct friend *all; /* in the order in which they were named last */
};

void friends_done(struct friends *f);
/* Without memory it is forgotten. */
void friends_add(struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
bool friends_have(const struct friends *f, const uint8_t key[SOURCE_KEY], uint64_t now_ms);
