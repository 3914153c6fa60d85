/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources are in one list for each number of unauthenticated connections, so that the one with the
 * most is found without a search: a flood asks for it at each connection.
 */
#include "operator/frontend/source.h"

#include <netinet/in.h>
#include <utlist.h>

enum { PREFIX = 8 /* bytes of an IPv6 address that count: the network's */ };

int source_table_init(struct source_table *t, size_t max_unauthenticated)
{
	*t = (struct source_table){.max = max_unauthenticated};
	t->by_count = calloc(max_unauthenticated + 1, sizeof(struct source *));
	return t->by_count ? 0 : -ENOMEM;
}

void source_table_done(struct source_table *t)
{
	struct source *s, *next;

	HASH_ITER (hh, t->sources, s, next) {
		HASH_DEL(t->sources, s);
		free(s);
	}
	free(TAKE_PTR(t->by_count));
}

void source_key(const struct sockaddr *address, uint8_t ret[SOURCE_KEY])
{
	static const uint8_t mapped[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	memset(ret, 0, SOURCE_KEY);
	if (address->sa_family == AF_INET) {
		memcpy(ret, mapped, sizeof(mapped));
		memcpy(ret + sizeof(mapped), &((const struct sockaddr_in *)address)->sin_addr,
		       SOURCE_KEY - sizeof(mapped));
	} else if (address->sa_family == AF_INET6) {
		const struct in6_addr *in = &((const struct sockaddr_in6 *)address)->sin6_addr;

		memcpy(ret, in, IN6_IS_ADDR_V4MAPPED(in) ? SOURCE_KEY : PREFIX);
	}
}

struct source *source_find(struct source_table *t, const uint8_t key[SOURCE_KEY])
{
	struct source *s = NULL;

	if (t->sources)
		HASH_FIND(hh, t->sources, key, SOURCE_KEY, s);
	return s;
}

/*
 * A source with more than MAX unauthenticated connections is in the list of MAX: a connection whose
 * last granted stream ends becomes unauthenticated again, and no limit applies to
 * that.
 */
static struct source **list_of(struct source_table *t, size_t unauthenticated)
{
	return &t->by_count[MIN(unauthenticated, t->max)];
}

static void count(struct source_table *t, struct source *s, size_t unauthenticated)
{
	struct source **list = list_of(t, s->unauthenticated);

	if (s->unauthenticated)
		DL_DELETE(*list, s);
	s->unauthenticated = unauthenticated;
	list = list_of(t, unauthenticated);
	if (unauthenticated)
		DL_APPEND(*list, s);
	t->most = MAX(t->most, MIN(unauthenticated, t->max));
}

struct source *source_add(struct source_table *t, const uint8_t key[SOURCE_KEY])
{
	struct source *s = source_find(t, key);

	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		memcpy(s->key, key, SOURCE_KEY);
		HASH_ADD(hh, t->sources, key, SOURCE_KEY, s);
	}
	count(t, s, s->unauthenticated + 1);
	return s;
}

void source_remove(struct source_table *t, struct source *s)
{
	count(t, s, s->unauthenticated - 1);
	if (s->unauthenticated)
		return;
	HASH_DEL(t->sources, s);
	free(s);
}

struct source *source_most(struct source_table *t)
{
	while (t->most && !t->by_count[t->most])
		t->most--;
	return t->by_count[t->most];
}
