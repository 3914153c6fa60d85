/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct waiting_room: samples that wait for a process to be read or a table to be compiled: copies
 * of their records, found by what they wait for. Their number and bytes are bounded, for each
 * cgroup too. Each holds a reference to its mapset; its process stays as long as waiting_touch() is
 * called before each sweep. Owned by the loop thread.
 */
#pragma once

#include "agent/process/process_table.h"
#include "agent/sampler/mapset.h"
#include "bpf/types.h"
#include "lib/uthash.h"

enum { WAITING_MAX = 4096, WAITING_BYTES_MAX = 8 << 20 };

/*
 * What samples wait for: the table of a slot of the unwind store (`number`), the table of an image
 * whose slot is not known yet (`id`: the image's address), or a program of a process (`number`:
 * tgid, `id`: exec id).
 */
enum waiting_kind { WAITING_TABLE, WAITING_IMAGE, WAITING_PROCESS };
struct waiting_key {
	uint64_t id;
	uint32_t kind;
	uint32_t number;
};

struct waiting {
	struct process *process; /* NULL: not known yet */
	struct mapset *mapset;	 /* one of its refs; NULL: not known yet */
	struct waiting *prev, *next;
	struct waiting_share *share;
	struct kiln_sample record; /* last: has a flexible tail */
};

struct waiting_room {
	struct waiting_queue *queues;
	struct waiting_share *shares;
	size_t n, bytes; /* of records */
};

/* Stores a copy of RECORD; when much waits, without the outer part of its stack dump. False: no
 * room, which is counted. */
bool waiting_add(struct waiting_room *room, struct waiting_key key,
		 const struct kiln_sample *record, struct process *process, struct mapset *mapset);
/* Removes all samples that wait for KEY, oldest first, linked by `next`; the caller owns them. */
struct waiting *waiting_take(struct waiting_room *room, struct waiting_key key);
/* All that wait for anything. */
struct waiting *waiting_take_all(struct waiting_room *room);
struct waiting *waiting_free(struct waiting *w);
/* Marks the processes of all waiting samples as used in window NUMBER. */
void waiting_touch(const struct waiting_room *room, uint32_t number);
