/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel without a kernel, and two runtimes that are none: this very process runs them, because
 * its program is their image. Their frames' second word is the number that their name tells; an odd
 * one cannot be read.
 */
#pragma once

#include "agent/discovery/process_reader.h"
#include "agent/runtime/runtimes.h"
#include "tests/support/test.h"

enum { FAKE_PYTHON = 1, FAKE_V8 = 2 }; /* enum kiln_runtime_id */
enum { FAKE_RUNTIMES = 8, FAKE_MAPPINGS = 2048 };

struct fake_entry {
	bool used;
	struct kiln_runtime_key key;
	struct kiln_runtime value;
};

struct fake_runtime {
	int probe_result, attach_result;
	int probes, attaches, detaches, symbolizes;
	bool owns_jit;	     /* all JIT memory is likely its own */
	bool native_only;    /* probe() has an image of what it does not know */
	const char *version; /* what attach() learns of the process; NULL: nothing */
	uint64_t code_start, code_end;
	uint64_t jit_start, jit_end; /* certainly its own */
	uint64_t bias;		     /* of the last attach */
	int states;		     /* that were handed out and not given back */
};

struct fake {
	struct kernel_memory memory;
	struct image_store *images;
	struct unwind_store *unwind;
	struct mapset_store *mapsets;
	struct runtimes *rt;
	struct kiln_process process;
	bool has_process;
	struct fake_entry runtimes[FAKE_RUNTIMES];
	size_t max_runtimes;
	uint32_t epoch;
	bool published_bare; /* a process was given a mapset that had no entry in `runtimes` yet */
	struct fake_runtime r[KILN_RUNTIME_MAX];
	uint32_t last_tgid; /* whose memory was read */
	int proc_dirfd;
	_Alignas(64) uint32_t slab[64 * 16];
	struct kiln_table tables[KILN_MAX_IMAGES];
	struct kiln_mapping mappings[FAKE_MAPPINGS];
};

extern struct fake fake;

/* cmocka's setup and teardown: all tracers are on. */
int fake_setup(void **state);
int fake_teardown(void **state);
/* New ones, with only these tracers. */
void fake_restart(uint32_t tracers);

/* Reads this process's maps. */
struct mapset *fake_read(uint64_t now_ns);
/* What compiling the image of this program and runtimes_probed() do. */
void fake_probe(uint64_t now_ns);
/* The entry of M, or NULL. */
const struct fake_entry *fake_find(const struct mapset *m, uint32_t id);
/* The image of this program in M. */
const struct mapset_range *fake_own_range(const struct mapset *m);
uint64_t fake_word(uint32_t kind, uint64_t address);
