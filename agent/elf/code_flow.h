/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_flow: follows the control flow of one function and finds the state of its frame at
 * every instruction that can be reached. Reused for one function after the other.
 */
#pragma once

#include "agent/elf/code_state.h"
#include "agent/elf/image.h"

enum {
	CODE_FUNCTION_MAX = 1 << 18, /* bytes of a function that are followed */
	CODE_STATES_MAX = 65535,     /* distinct states within a function */
	CODE_SEEDS_MAX = 1 << 16,
	CODE_LEAS_MAX = 64,
	CODE_OUTS_MAX = 16,
};

/*
 * A jump out of a function while its frame is there: STATE holds at TARGET, and is not the state of
 * a function's entry.
 */
struct code_seed {
	uint64_t target;
	struct code_state state;
};

struct code_flow {
	const struct image *image;
	uint64_t seed; /* of the states' hash: nobody can craft code whose states collide */
	/* Ascending: data addresses that code takes. A switch table ends at the next one. */
	const uint64_t *tables;
	size_t n_tables;

	/* Indexed by offset from the function's start. */
	uint16_t *at; /* the state before the instruction: index in `states`, + 1; 0: not reached */
	uint32_t *origin; /* offset of the last call on a path without jumps to here, + 1 */
	uint8_t *no_return;
	uint32_t *decoded; /* index in `insns`, + 1; 0: not yet; UINT32_MAX: no instruction */
	size_t size_cap;
	struct code_insn *insns;
	size_t n_insns, insns_cap;
	struct code_state *states;
	size_t n_states, states_cap;
	uint16_t *buckets;
	uint32_t *work;
	size_t n_work, work_cap;

	struct cursor code; /* the function's bytes */
	uint64_t start;
	uint32_t size;
	/* Set by the caller: a call that is followed by padding, an entry mark or an aligned
	 * address does not return. */
	bool ends_at_gaps;
	bool is_sized; /* `size` is the function's own, else the room up to the next function */
	/* How many elements of the arrays above are in use, and are cleared for the next
	 * function. */
	uint32_t touched;
	uint64_t steps;	  /* steps left for this function */
	uint64_t budget;  /* steps left for all functions; the caller sets it */
	uint32_t suspect; /* offset of a call that may not return, + 1; 0: none */
	uint32_t leas[CODE_LEAS_MAX];
	uint64_t lea_targets[CODE_LEAS_MAX];
	size_t n_leas;
	uint32_t indirect; /* offset of the first indirect jump that is not followed, + 1 */
	struct code_state indirect_state;

	struct code_seed *seeds;
	size_t n_seeds, seeds_cap;

	/* Results. */
	uint32_t end; /* offset behind the last instruction that is reached */
	uint32_t returns;
	uint32_t switches; /* indirect jumps that were followed through a table of distances */
	uint32_t tails;	   /* indirect jumps in the state of an entry */
	uint32_t calls;
	uint32_t bare_calls; /* calls without a frame that the frame pointer points to */
	uint32_t cuts;	     /* calls that turned out not to return */
	/* Targets of jumps out of the function in the state of an entry: the first CODE_OUTS_MAX
	 * of them. */
	uint64_t outs[CODE_OUTS_MAX];
	size_t n_outs;
	bool is_outermost;     /* has code that looks like the start of a thread or process */
	bool is_contradictory; /* states that do not fit together, or bytes that are no code */
	int error;
};

void code_flow_done(struct code_flow *f);
/* Follows the function in [START, START + SIZE) from its first byte, where STATE holds. */
int code_flow_run(struct code_flow *f, uint64_t start, uint32_t size, bool is_sized,
		  const struct code_state *state) _must_check_;
/* The instruction at OFFSET. False when the bytes there are no instruction. */
bool code_flow_insn(struct code_flow *f, uint32_t offset, struct code_insn *ret);
/* The state before the instruction at OFFSET; NULL when no path reaches it. */
static inline const struct code_state *code_flow_at(const struct code_flow *f, uint32_t offset)
{
	return f->at[offset] ? &f->states[f->at[offset] - 1] : NULL;
}
