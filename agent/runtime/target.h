/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a runtime reads a process: its memory, its images, its mappings. Loop thread, for the time of
 * one call.
 */
#pragma once

#include "agent/runtime/runtime.h"
#include "agent/sampler/mapset.h"

/* How memory of processes is read; tests give memory that they have made up. */
struct target_source {
	/* As struct target_memory's. NULL: process_vm_readv(2). */
	int (*read)(void *arg, uint32_t tgid, uint64_t address, void *dst, size_t len);
	void *arg;
	int proc_dirfd;
};

enum {
	/* Bytes that are read at once and kept: a name takes many small reads that lie side by
	 * side. Pieces are aligned, so that none is part of two pages. */
	TARGET_PIECE = 512,
	TARGET_SETS = 256,
	TARGET_WAYS = 4, /* places of a set */
	TARGET_PIECES = TARGET_SETS * TARGET_WAYS,
	TARGET_BATCH = 32,		    /* pieces that are read by one system call */
	TARGET_READ_MAX = 3 * TARGET_PIECE, /* longer reads are not kept */
	/* Limits of one call: a process may make its structures as long as it likes. */
	TARGET_READS_MAX = 1 << 18,
	TARGET_BYTES_MAX = 64 << 20,
};

/*
 * A piece of a process's memory. It is good until target_renew() (SPACE is 0, CODE counts these
 * calls), or for as long as the process with the name space SPACE has the compiled code CODE.
 */
struct target_piece {
	uint64_t address, code;
	uint32_t space;
	uint32_t batch; /* the last system call that read into this place */
};

/* The pieces that were read. The address of a piece tells its set. */
struct target_pieces {
	struct target_piece pieces[TARGET_PIECES];
	uint8_t oldest[TARGET_SETS]; /* the place of the set that is used next */
	uint64_t n_renewed;	     /* at least 1 */
	uint32_t batch;		     /* system calls */
	uint32_t last;		     /* place of the piece that was found last */
	uint8_t bytes[TARGET_PIECES][TARGET_PIECE];
};

struct target {
	const struct target_source *source;
	const struct mapset *mapset; /* NULL: only memory is asked for */
	uint32_t tgid;
	uint32_t n_reads; /* pieces of the process's memory that were read so far */
	uint64_t n_bytes; /* bytes of these */
	struct target_pieces *pieces;
	/* Between target_keep_begin() and target_keep_end(); otherwise 0. */
	uint64_t code;
	uint32_t space;
	uint32_t reads_before; /* n_reads at target_keep_begin() */
};

struct target_memory target_memory_of(struct target *t);
/* As target_memory_of(), but reads ahead, into PIECES, which T uses from here on; for
 * ops->symbolize(). */
struct target_memory target_memory_ahead(struct target *t, struct target_pieces *pieces);
/* The target for the runtime whose file is mapped at RANGE, one of the mapset's ranges. */
struct runtime_target runtime_target_of(struct target *t, const struct mapset_range *range);
