/* SPDX-License-Identifier: Apache-2.0 */
/* What runtimes.c (attaching) and naming.c (names of frames and threads) share. */
#pragma once

#include "agent/elf/content.h"
#include "agent/runtime/runtimes.h"
#include "agent/runtime/thread_names.h"
#include "lib/uthash.h"

enum { RUNTIMES_SCRATCH_BYTES = 64 << 10 };

struct known_key {
	struct image_content content;
	uint8_t id;
};

/* A build of a runtime. */
struct known {
	struct known_key key;
	const struct interpreter_ops *ops;
	struct runtime_image *image; /* NULL: not supported, nothing to attach */
	UT_hash_handle hh;
};

struct space_key {
	uint64_t start_time, exec_id;
	uint32_t tgid, id;
};

struct space {
	struct space_key key;
	uint32_t number, refs;
	bool retired;		  /* not found by its key any more */
	struct attachment *last;  /* the last one that was attached and still is; NULL: none */
	struct stored_image code; /* stands for the runtime's own code: has the slot of its table */
	uint64_t code_ns, code_wait_ns;
	UT_hash_handle hh;
};

struct attachment_key {
	uint32_t mapset, id;
};

struct attachment {
	struct attachment_key key;
	struct mapset *mapset;
	struct space *space;
	const struct known *known; /* the build that is attached, or is tried again */
	bool attached;
	void *state;
	uint64_t retry_ns, wait_ns; /* wait_ns 0: not again */
	UT_hash_handle hh;
};

struct seen_versions {
	char text[RUNTIME_VERSIONS_MAX][RUNTIME_VERSION_MAX];
	size_t n;
};

struct runtimes {
	struct runtimes_options options;
	const struct interpreter_ops *by_id[RUNTIME_MAX]; /* those that are on */
	struct known *known;
	struct space *spaces;
	uint32_t next_space;
	struct attachment *attachments;
	struct runtime_names *names;
	struct runtime_functions *functions;
	struct thread_names *threads;
	uint32_t namers; /* bits: those of `by_id` that have thread_name() */
	uint64_t news;	 /* names of functions that were not known */
	uint64_t attached_ever[RUNTIME_MAX];
	uint32_t attached[RUNTIME_MAX];
	char unsupported[RUNTIME_MAX][160];
	struct seen_versions seen[RUNTIME_MAX];
	uint32_t logged; /* unsupported builds that were logged */
	uint32_t asked;	 /* tracers of mapsets that are made from here on */
	struct symbol_result result;
	struct target_pieces pieces;
	char scratch[RUNTIMES_SCRATCH_BYTES];
};

/* The attachment of the runtime ID to the mapset MAPSET, attached or not; NULL: there is none. */
struct attachment *runtimes_find_attachment(const struct runtimes *rt, uint32_t mapset,
					    uint32_t id);
