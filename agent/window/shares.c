/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/shares.h"

void shares_done(struct shares *s)
{
	struct share *o, *next;

	HASH_ITER (hh, s->all, o, next) {
		HASH_DEL(s->all, o);
		free(o);
	}
	s->n = 0;
}

void shares_reset(struct shares *s)
{
	struct share *o, *next;

	HASH_ITER (hh, s->all, o, next) {
		if (o->entries) {
			o->entries = 0;
			continue;
		}
		HASH_DEL(s->all, o);
		free(o);
	}
	s->n = 0;
}

static struct share *find_share(const struct shares *s, uint64_t owner)
{
	struct share *o;

	HASH_FIND(hh, s->all, &owner, sizeof(owner), o);
	return o;
}

struct share *shares_add(struct shares *s, uint64_t owner)
{
	struct share *o = find_share(s, owner);

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return NULL;
		o->owner = owner;
		HASH_ADD(hh, s->all, owner, sizeof(o->owner), o);
	}
	s->n += !o->entries++;
	return o;
}

void shares_subtract(struct shares *s, struct share *of)
{
	if (of)
		s->n -= !--of->entries;
}

bool shares_is_over(const struct shares *s, uint64_t owner, size_t max)
{
	const struct share *o = find_share(s, owner);

	return o && o->entries > max / MAX(s->n, (size_t)2);
}
