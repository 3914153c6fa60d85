/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct source_table: how many strangers each source address has, and which has the most. A source
 * is there while it has a stranger. Not locked: the door's thread.
 */
#pragma once

#include <sys/socket.h>

#include "lib/uthash.h"

enum { SOURCE_KEY = 16 };

struct door_conn;

struct source {
	uint8_t key[SOURCE_KEY]; /* the IPv6 or mapped IPv4 address; of IPv6 the first 64 bits */
	size_t strangers;
	size_t opened;			      /* of those */
	bool is_friend;			      /* friends.h, when its last one came */
	struct source *prev, *next;	      /* with as many strangers */
	struct door_conn *conns;	      /* its strangers, the oldest first */
	struct door_conn *waiting;	      /* of those: for their turn */
	struct source *turn_prev, *turn_next; /* while any waits */
	UT_hash_handle hh;
};

struct source_table {
	struct source *sources;
	struct source **by_count; /* [n]: those that have n strangers */
	size_t max;		  /* strangers of all */
	size_t most;		  /* no source has more */
};

int source_table_init(struct source_table *t, size_t max_strangers) _must_check_;
void source_table_done(struct source_table *t);

void source_key(const struct sockaddr *address, uint8_t ret[SOURCE_KEY]);
/* NULL: it has no stranger. */
struct source *source_find(struct source_table *t, const uint8_t key[SOURCE_KEY]);
/* One stranger more of KEY. NULL without memory. */
struct source *source_add(struct source_table *t, const uint8_t key[SOURCE_KEY]);
/* One less; the source is freed with its last one. */
void source_remove(struct source_table *t, struct source *s);
/* The one that has the most strangers; NULL when there are none. */
struct source *source_most(struct source_table *t);
