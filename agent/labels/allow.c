/* SPDX-License-Identifier: Apache-2.0 */
/* Lists are short, so they are searched linearly. */
#include "agent/labels/allow.h"

#include <stdatomic.h>

struct label_allow *label_allow_new(const char *const *keys, size_t n)
{
	static atomic_uint_fast64_t last;
	_cleanup_(label_allow_freep) struct label_allow *a = NULL;
	struct label_allow *ret;

	n = MIN(n, (size_t)LABEL_ALLOW_MAX);
	a = calloc(1, sizeof(*a) + n * sizeof(a->keys[0]));
	if (!a)
		return NULL;
	a->number = atomic_fetch_add(&last, 1) + 1;
	for (size_t i = 0; i < n; i++) {
		a->keys[i] = strdup(keys[i]);
		if (!a->keys[i])
			return NULL;
		a->n++;
	}
	ret = a;
	a = NULL;
	return ret;
}

struct label_allow *label_allow_free(struct label_allow *a)
{
	for (size_t i = 0; a && i < a->n; i++)
		free(a->keys[i]);
	free(a);
	return NULL;
}

bool label_allow_permits(const struct label_allow *a, const char *key)
{
	for (size_t i = 0; a && i < a->n; i++)
		if (streq(a->keys[i], key) || streq(a->keys[i], "*"))
			return true;
	return false;
}

bool label_allow_equal(const struct label_allow *a, const char *const *keys, size_t n)
{
	if (!a)
		return n == 0;
	if (a->n != MIN(n, (size_t)LABEL_ALLOW_MAX))
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (!streq(a->keys[i], keys[i]))
			return false;
	return true;
}
