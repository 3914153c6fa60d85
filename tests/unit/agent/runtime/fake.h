/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake kernel and two fake runtimes. This very process runs both runtimes, because its program
 * counts as their image. A frame's second word is a number, which its name tells ("f7"); frames
 * with an odd number cannot be read.
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
	bool owns_jit;	     /* claims all JIT memory as JIT_LIKELY */
	bool native_only;    /* probe() fails with -ENOTSUP and returns an image */
	const char *version; /* the version that attach() reads in the process; NULL: none */
	uint64_t code_start, code_end;
	uint64_t jit_start, jit_end; /* claimed as JIT_CERTAIN */
	uint64_t bias;		     /* of the last attach */
	int states;		     /* states that attach() returned and detach() has not freed */
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
	bool published_bare; /* a process got a mapset without an entry in `runtimes` */
	struct fake_runtime r[KILN_RUNTIME_MAX];
	uint32_t last_tgid; /* the process whose memory was read last */
	int proc_dirfd;
	_Alignas(64) uint32_t slab[64 * 16];
	struct kiln_table tables[KILN_MAX_IMAGES];
	struct kiln_mapping mappings[FAKE_MAPPINGS];
};

extern struct fake fake;

/* cmocka's setup and teardown: all tracers are on. */
int fake_setup(void **state);
int fake_teardown(void **state);
/* Makes new stores and runtimes, with only these tracers enabled. */
void fake_restart(uint32_t tracers);

/* Reads this process's maps. */
struct mapset *fake_read(uint64_t now_ns);
/*
 * Does what discovery does after the image of this program was compiled, and calls
 * runtimes_probed().
 */
void fake_probe(uint64_t now_ns);
/* M's entry of runtime ID in `runtimes`, or NULL. */
const struct fake_entry *fake_find(const struct mapset *m, uint32_t id);
/* The range of M that maps this program. */
const struct mapset_range *fake_own_range(const struct mapset *m);
uint64_t fake_word(uint32_t kind, uint64_t address);
