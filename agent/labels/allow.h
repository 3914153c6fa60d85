/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct label_allow: the keys of the labels that a policy allows to be exported. Trace and span id
 * are always allowed. Immutable; any thread.
 */
#pragma once

#include "lib/base.h"

enum { LABEL_ALLOW_MAX = 64, LABEL_ALLOW_KEY_MAX = 127 };

struct label_allow {
	uint64_t number; /* no other list has it */
	size_t n;
	char *keys[]; /* "*": all */
};

/* N keys, LABEL_ALLOW_MAX at most; more are left out. NULL: no memory. */
struct label_allow *label_allow_new(const char *const *keys, size_t n);
struct label_allow *label_allow_free(struct label_allow *a);
DEFINE_CLEANUP(struct label_allow *, label_allow_free)
/* Whether A allows KEY. A NULL: no key is allowed. */
bool label_allow_permits(const struct label_allow *a, const char *key);
/* What a policy allows samples to export besides their stack. */
struct sample_rules {
	const struct label_allow *labels; /* NULL: no keys but the trace's */
	bool timestamps;		  /* each sample has its own time */
};
bool label_allow_equal(const struct label_allow *a, const char *const *keys, size_t n);
