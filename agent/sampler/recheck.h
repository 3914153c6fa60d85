/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct recheck: which processes have to have their maps read again because the kernel lost notes
 * of mappings (sideband.h). A loss makes every mapset that was read before it suspect, and changes
 * nothing else: a process is looked at when it is sampled, once a loss, and only so many a second,
 * so that 2,000 processes are spread over some seconds. Losses that come in a row count as one, at
 * growing intervals. Owned by the loop thread.
 */
#pragma once

#include "lib/base.h"

enum {
	RECHECKS_PER_SECOND = 200,
	RECHECKS_AT_ONCE = 20,
	RECHECK_WAIT_MIN_MS = 1000, /* at first: losses within it count as one */
	RECHECK_WAIT_MAX_MS = 16000,
	RECHECK_PROCESSES_MAX = 16384, /* remembered as checked; others may be checked again */
};

struct recheck;
int recheck_new(struct recheck **ret) _must_check_;
struct recheck *recheck_free(struct recheck *r);
DEFINE_CLEANUP(struct recheck *, recheck_free)

/* Notes of mappings that were made since SINCE_NS were lost. Both CLOCK_MONOTONIC. */
void recheck_lost(struct recheck *r, uint64_t since_ns, uint64_t now_ns);
/*
 * Must the maps of TGID, which were read at READ_NS, be read again now? True once for each loss.
 * Its mappings may have changed since *RET_SINCE_NS.
 */
bool recheck_due(struct recheck *r, uint32_t tgid, uint64_t read_ns, uint64_t now_ns,
		 uint64_t *ret_since_ns);
