/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct spool: requests on disk, until the receiver is back or the agent starts again.
 *
 * One directory, one file a request ("segment"), named by its sequence number, so that requests go
 * out in the order in which they were made whatever happened between. A segment is written beside,
 * flushed and renamed, and carries checksums: it is there whole, or it is not believed. The total
 * is capped; the oldest go first. What was read stays on disk until spool_remove(), so a crash
 * loses nothing that was spooled.
 *
 * No function may run at the same time as another of the same spool; any thread.
 */
#pragma once

#include "agent/export/sender_payload.h"

enum { SPOOL_HEADER_BYTES = 48, SPOOL_FILES_MAX = 65536 };

struct spool;

struct spool_loss {	   /* functions add to it */
	uint64_t requests; /* dropped for want of room */
	int64_t samples;
	uint64_t corrupt; /* segments whose bytes were not as written; their samples are unknown */
};

/*
 * Makes DIR when it is missing, reads what it holds. -EBUSY: another agent or exporter uses it.
 */
int spool_open(const char *dir, uint64_t max_bytes, struct spool **ret, struct spool_loss *loss,
	       struct error *err) _must_check_;
struct spool *spool_free(struct spool *s); /* the files stay */

/* Keeps a copy of P under SEQ, which must be new. -EFBIG: larger than the whole spool; -E...: disk.
 */
int spool_put(struct spool *s, uint64_t seq, const struct payload *p,
	      struct spool_loss *loss) _must_check_;
/* The first request with a number above AFTER. -ENOENT: there is none. Corrupt ones are removed. */
int spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
	       struct spool_loss *loss) _must_check_;
/* Delivered or given up. Does nothing when it is gone already. */
void spool_remove(struct spool *s, uint64_t seq);

bool spool_has(const struct spool *s, uint64_t seq);
uint64_t spool_last(const struct spool *s); /* highest number, 0 when empty */
size_t spool_count_after(const struct spool *s, uint64_t after);
size_t spool_count(const struct spool *s);
uint64_t spool_bytes(const struct spool *s);
