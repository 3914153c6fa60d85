/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct source_table: how many unauthenticated connections each source address has, and which
 * address has the most. A source exists while it has an unauthenticated connection. Not locked: the
 * front end's thread.
 */
#pragma once

#include <sys/socket.h>

#include "lib/uthash.h"

enum { SOURCE_KEY = 16 };

struct frontend_conn;

struct source {
	uint8_t key[SOURCE_KEY]; /* the IPv6 or mapped IPv4 address; of IPv6 the first 64 bits */
	size_t unauthenticated;
	size_t opened;	 /* unauthenticated connections that are opened */
	bool is_trusted; /* trusted.h; set when its last unauthenticated connection came */
	struct source *prev, *next;    /* sources with as many unauthenticated connections */
	struct frontend_conn *conns;   /* its unauthenticated connections, the oldest first */
	struct frontend_conn *waiting; /* those of `conns` that wait for their turn */
	struct source *turn_prev, *turn_next; /* frontend->turns, while `waiting` is not empty */
	UT_hash_handle hh;
};

struct source_table {
	struct source *sources;
	struct source **by_count; /* [n]: those that have n unauthenticated connections */
	size_t max;		  /* of all sources together */
	size_t most;		  /* no index of by_count above this has a source */
};

int source_table_init(struct source_table *t, size_t max_unauthenticated) _must_check_;
void source_table_done(struct source_table *t);

void source_key(const struct sockaddr *address, uint8_t ret[SOURCE_KEY]);
/* NULL when KEY has no unauthenticated connection. */
struct source *source_find(struct source_table *t, const uint8_t key[SOURCE_KEY]);
/* Counts one more unauthenticated connection of KEY. NULL without memory. */
struct source *source_add(struct source_table *t, const uint8_t key[SOURCE_KEY]);
/* Counts one unauthenticated connection less, and frees the source with its last one. */
void source_remove(struct source_table *t, struct source *s);
/* The one that has the most unauthenticated connections; NULL when there are none. */
struct source *source_most(struct source_table *t);
