/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct waiting_list: samples that wait until a table is compiled which their stack needs, as
 * copies of their records. Bounded in number and in bytes. Each holds its mapset; its process stays
 * as long as waiting_touch() is called before each sweep. Owned by the loop thread.
 */
#pragma once

#include "agent/process/process_table.h"
#include "agent/sampler/mapset.h"
#include "bpf/types.h"

enum { WAITING_MAX = 1024, WAITING_BYTES_MAX = 8 << 20 };

struct waiting {
	struct process *process;
	struct mapset *mapset; /* one of its refs */
	struct waiting *prev, *next;
	struct kiln_sample record; /* last: has a flexible tail */
};

struct waiting_list {
	struct waiting *first;
	size_t n, bytes; /* of records */
};

/* A copy of RECORD, of the end of whose stack only a part when much waits. False: no room for it,
 * which is counted. */
bool waiting_add(struct waiting_list *l, const struct kiln_sample *record, struct process *process,
		 struct mapset *mapset);
/* The oldest, which is the caller's from now on; NULL: there is none. */
struct waiting *waiting_take(struct waiting_list *l);
struct waiting *waiting_free(struct waiting *w);
/* The processes of those that wait are in use in window NUMBER. */
void waiting_touch(const struct waiting_list *l, uint32_t number);
