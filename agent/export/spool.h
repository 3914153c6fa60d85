/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct spool: requests on disk, until the receiver is back or the agent starts again.
 *
 * One directory with one file for each request ("segment"), named by its sequence number, so that
 * requests are sent in the order in which they were made. A segment is written to a temporary file,
 * flushed and renamed, and has checksums: it is either complete or not used. The total size is
 * capped; the oldest segments are removed first. A segment that was read stays on disk until
 * spool_remove(), so a crash loses nothing that was spooled.
 *
 * Any thread, but the functions of one spool must not run at the same time.
 */
#pragma once

#include "agent/export/sender_payload.h"

enum { SPOOL_HEADER_BYTES = 48, SPOOL_FILES_MAX = 65536 };

struct spool;

struct spool_loss {	   /* functions add to it */
	uint64_t requests; /* dropped because the cap was reached */
	int64_t samples;
	/* Segments whose bytes have changed; their number of samples is unknown. */
	uint64_t corrupt;
};

/*
 * Makes DIR when it is missing, reads what it holds. -EBUSY: another agent or exporter uses it.
 */
int spool_open(const char *dir, uint64_t max_bytes, struct spool **ret, struct spool_loss *loss,
	       struct error *err) _must_check_;
struct spool *spool_free(struct spool *s); /* the files stay */

/* Writes a copy of P under SEQ, which must be new. -EFBIG: larger than the cap; other errors come
 * from the disk. */
int spool_put(struct spool *s, uint64_t seq, const struct payload *p,
	      struct spool_loss *loss) _must_check_;
/* Reads the first request whose number is above AFTER. -ENOENT: there is none. Corrupt segments are
 * removed. */
int spool_next(struct spool *s, uint64_t after, uint64_t *ret_seq, struct payload *ret,
	       struct spool_loss *loss) _must_check_;
/* The request was delivered or given up. Does nothing when it is gone already. */
void spool_remove(struct spool *s, uint64_t seq);

/* Returns whether the request is on disk. The caller drops its own copy, so from now on the request
 * counts as lost when the spool evicts it. */
bool spool_keep(struct spool *s, uint64_t seq);
uint64_t spool_last(const struct spool *s); /* highest number, 0 when empty */
size_t spool_count_after(const struct spool *s, uint64_t after);
size_t spool_count(const struct spool *s);
uint64_t spool_bytes(const struct spool *s);
