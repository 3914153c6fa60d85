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
	CODE_STATES_MAX = 65535,     /* different ones within a function */
	CODE_SEEDS_MAX = 1 << 16,
	CODE_LEAS_MAX = 64,
	CODE_OUTS_MAX = 16,
};

/* A jump out of the function, with a state that is not that of an entry. */
struct code_seed {
	uint64_t target;
	struct code_state state;
};

struct code_flow {
	const struct image *image;
	const uint64_t *tables; /* ascending: addresses that code takes, so that tables end there */
	size_t n_tables;

	/* By distance from the function's start. */
	uint16_t *at;	  /* states + 1 before the instruction there; 0: not reached */
	uint32_t *origin; /* the call in front of it on the straight path that led here, + 1 */
	uint8_t *no_return;
	uint32_t *decoded; /* insns + 1; 0: not yet decoded; UINT32_MAX: no instruction */
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
	bool ends_at_gaps; /* the caller sets it: no call returns into padding or an aligned address
			    */
	bool is_sized;	   /* it is all the function's, else it is the room up to the next one */
	uint32_t touched;  /* of the arrays above, to be cleared for the next function */
	uint64_t steps;	   /* left for this one */
	uint64_t budget;   /* steps left for all functions; the caller sets it */
	uint32_t suspect;  /* a call that may not return, + 1 */
	uint32_t leas[CODE_LEAS_MAX];
	uint64_t lea_targets[CODE_LEAS_MAX];
	size_t n_leas;
	uint32_t indirect; /* the first indirect jump, + 1 */
	struct code_state indirect_state;

	struct code_seed *seeds;
	size_t n_seeds, seeds_cap;

	/* Results. */
	uint32_t end; /* behind the last instruction that is reached */
	uint32_t returns;
	uint32_t switches; /* whose tables were followed */
	uint32_t tails;	   /* indirect jumps in the state of an entry */
	uint32_t calls;
	uint32_t bare_calls; /* without a frame that rbp points to */
	uint32_t cuts;	     /* calls that were taken not to return, after all */
	/* Where it jumps to, outside of the function, in the state of an entry; some of them. */
	uint64_t outs[CODE_OUTS_MAX];
	size_t n_outs;
	bool is_outermost;     /* has code that looks like the start of a thread or process */
	bool is_contradictory; /* states that do not fit together, or bytes that are no code */
	int error;
};

void code_flow_done(struct code_flow *f);
/* Follows [start, start + size) from its first byte, where STATE holds. */
int code_flow_run(struct code_flow *f, uint64_t start, uint32_t size, bool is_sized,
		  const struct code_state *state) _must_check_;
/* The instruction at OFFSET; false when it is none. */
bool code_flow_insn(struct code_flow *f, uint32_t offset, struct code_insn *ret);
/* The state before the instruction at OFFSET; NULL when none is reached there. */
static inline const struct code_state *code_flow_at(const struct code_flow *f, uint32_t offset)
{
	return f->at[offset] ? &f->states[f->at[offset] - 1] : NULL;
}
