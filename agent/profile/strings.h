/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct strings: the interned strings of a batch under construction. Every one is valid UTF-8 and
 * at most STRINGS_LEN_MAX bytes: receivers refuse a whole request for one bad byte, and a thread
 * name that the kernel cut in the middle of a character is enough for that.
 */
#pragma once

#include "agent/profile/arena.h"
#include "lib/ref_table.h"

enum { STRINGS_LEN_MAX = 16384, STRINGS_MAX = 1 << 22 };

struct strings {
	struct ref_table index;
	const char **items;
	size_t cap;
	uint32_t n;
};

void strings_done(struct strings *t); /* the strings themselves belong to the arena */
/*
 * The interned form of S (NULL reads as ""): bytes that are no UTF-8 become U+FFFD, what is over
 * the cap is cut. Equal strings give the same pointer. -ENOMEM, -E2BIG.
 */
int strings_add(struct strings *t, struct batch_arena *arena, const char *s,
		const char **ret) _must_check_;
/* Length of the well-formed UTF-8 sequence at S (N > 0 bytes left), 0 when there is none. */
size_t utf8_len(const char *s, size_t n);
