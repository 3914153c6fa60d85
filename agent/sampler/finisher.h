/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completes, in user space, a walk that the kernel had to give up for want of mappings or of an
 * unwind table, by the same code (bpf/unwind.h) over the stack bytes that came with the sample.
 */
#pragma once

#include "agent/sampler/mapset.h"

struct finish_result {
	enum kiln_end end;
	/* KILN_END_NO_TABLE: the image that has no table, or no rule for WANTED_PC. Load its
	 * table and call again. */
	struct stored_image *wanted;
	uint64_t wanted_pc, wanted_vaddr; /* in the process; in the image */
	uint32_t n;			  /* words of all user frames, those of RECORD included */
	uint64_t words[KILN_RECORD_MAX / 8];
};

/*
 * RECORD must carry a dump. Starts over from the record each time, so it may be called again after
 * a table was loaded. MEMORY: where tables and slab are. Loop thread.
 */
void finish_walk(const struct kernel_memory *memory, const struct mapset *mapset,
		 const struct kiln_sample *record, uint32_t max_depth, struct finish_result *ret);
