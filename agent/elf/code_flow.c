// SPDX-License-Identifier: Apache-2.0
/*
 * Data flow over one function: every instruction gets the state in which all paths to it agree.
 *
 * Calls are assumed to return. When the state behind a call contradicts that of another path (code
 * behind a call of abort() is some other block), the function is followed once more with that call
 * as the end of its path. A switch is followed through its table of 8-byte addresses or of 4-byte
 * distances from the table itself. The table ends at the next data address that any code takes. The
 * work is bounded by a number of steps in proportion to the function's size. One thread per struct.
 */
#include "agent/elf/code_flow.h"

#include <sys/random.h>

#include "agent/elf/arch.h"

enum {
	STEPS_PER_BYTE = 8,
	STEPS_MIN = 1024,
	TOUCHED_PER_STEP = 32, /* array elements that can be cleared for the cost of one step */
	BUCKETS = 1 << 17,     /* at least twice CODE_STATES_MAX, a power of two */
	TABLE_ENTRIES_MAX = 4096,
};

void code_flow_done(struct code_flow *f)
{
	free(f->at);
	free(f->origin);
	free(f->no_return);
	free(f->decoded);
	free(f->insns);
	free(f->states);
	free(f->buckets);
	free(f->work);
	free(f->seeds);
	*f = (struct code_flow){0};
}

/* ---- states -----------------------------------------------------------------------------------
 */

static uint32_t hash_state(const struct code_flow *f, const struct code_state *s)
{
	return (uint32_t)hash_bytes(s, sizeof(*s), f->seed) & (BUCKETS - 1);
}

/* The index of STATE in f->states, + 1; adds STATE if it is new. 0 when there is no room for it. */
static uint16_t intern(struct code_flow *f, const struct code_state *state)
{
	uint32_t i = hash_state(f, state);
	int r;

	for (; f->buckets[i]; i = (i + 1) & (BUCKETS - 1))
		if (memcmp(&f->states[f->buckets[i] - 1], state, sizeof(*state)) == 0)
			return f->buckets[i];
	r = grow_array((void **)&f->states, &f->states_cap, f->n_states + 1, sizeof(*f->states),
		       CODE_STATES_MAX);
	if (r < 0) {
		f->error = r == -ENOMEM ? r : f->error;
		return 0;
	}
	f->states[f->n_states++] = *state;
	f->buckets[i] = (uint16_t)f->n_states;
	return f->buckets[i];
}

static void forget_states(struct code_flow *f)
{
	/* Entry by entry: the hash table is far larger than the number of states of most
	 * functions. */
	for (size_t i = 0; i < f->n_states; i++) {
		uint32_t b = hash_state(f, &f->states[i]);

		while (f->buckets[b]) {
			f->buckets[b] = 0;
			b = (b + 1) & (BUCKETS - 1);
		}
	}
	f->n_states = 0;
}

static int prepare(struct code_flow *f)
{
	if (!f->seed && getrandom(&f->seed, sizeof(f->seed), GRND_NONBLOCK) != sizeof(f->seed))
		f->seed = mix64((uintptr_t)f);
	if (!f->buckets)
		f->buckets = calloc(BUCKETS, sizeof(*f->buckets));
	if (f->size > f->size_cap || !f->size_cap) {
		size_t cap = MAX(f->size_cap, (size_t)4096);

		while (cap < f->size)
			cap *= 2;
		free(f->at);
		free(f->origin);
		free(f->no_return);
		free(f->decoded);
		f->at = malloc(cap * sizeof(*f->at));
		f->origin = malloc(cap * sizeof(*f->origin));
		f->no_return = malloc(cap);
		f->decoded = malloc(cap * sizeof(*f->decoded));
		f->size_cap = f->at && f->origin && f->no_return && f->decoded ? cap : 0;
		f->touched = (uint32_t)f->size_cap;
	}
	return f->buckets && f->size_cap ? 0 : -ENOMEM;
}

bool code_flow_insn(struct code_flow *f, uint32_t offset, struct code_insn *ret)
{
	struct cursor c = f->code;
	struct code_insn insn;
	int r;

	if (f->decoded[offset]) {
		if (f->decoded[offset] == UINT32_MAX)
			return false;
		*ret = f->insns[f->decoded[offset] - 1];
		return true;
	}
	cursor_seek(&c, offset);
	f->touched = MAX(f->touched, offset + 1);
	r = grow_array((void **)&f->insns, &f->insns_cap, f->n_insns + 1, sizeof(*f->insns),
		       CODE_FUNCTION_MAX);
	if (r < 0)
		f->error = r;
	if (r < 0 || c.bad || !code_decode(c, f->start + offset, false, &insn)) {
		f->decoded[offset] = UINT32_MAX;
		return false;
	}
	f->insns[f->n_insns++] = insn;
	f->decoded[offset] = (uint32_t)f->n_insns;
	*ret = insn;
	return true;
}

/* ---- paths ------------------------------------------------------------------------------------
 */

static void add_work(struct code_flow *f, uint32_t offset)
{
	int r = grow_array((void **)&f->work, &f->work_cap, f->n_work + 1, sizeof(*f->work),
			   2 * CODE_FUNCTION_MAX);

	if (r < 0)
		f->error = r == -ENOMEM ? r : f->error;
	else
		f->work[f->n_work++] = offset;
}

static bool has_rule(const struct code_state *s)
{
	return code_state_rule(s).kind != KILN_RULE_INVALID;
}

/*
 * Two states contradict each other. The call at offset ORIGIN - 1 (ORIGIN 0: none) may be one that
 * does not return.
 */
static void contradiction(struct code_flow *f, uint32_t origin)
{
	f->is_contradictory = true;
	if (origin && !f->suspect)
		f->suspect = origin;
}

/*
 * A path reaches OFFSET with STATE. ID: what intern() returned for STATE, or 0. ORIGIN: the offset
 * of the last call on a path without jumps, + 1, or 0. True when the state at OFFSET has changed,
 * so that the path has to be followed from there.
 */
static bool arrive(struct code_flow *f, uint32_t offset, const struct code_state *state,
		   uint16_t id, uint32_t origin)
{
	struct code_state joined;

	if (!f->at[offset]) {
		f->at[offset] = id ? id : intern(f, state);
		f->touched = MAX(f->touched, offset + 1);
		f->origin[offset] = origin;
		return f->at[offset] != 0;
	}
	if (f->at[offset] == id)
		return false;
	joined = f->states[f->at[offset] - 1];
	if (!code_state_join(&joined, state))
		return false;
	if (!has_rule(&joined) && (has_rule(state) || has_rule(&f->states[f->at[offset] - 1])))
		contradiction(f, origin ? origin : f->origin[offset]);
	id = intern(f, &joined);
	if (!id || id == f->at[offset])
		return false;
	f->at[offset] = id;
	return true;
}

static void jump(struct code_flow *f, uint64_t target, const struct code_state *state)
{
	int r;

	if (target - f->start < f->size) {
		uint32_t offset = (uint32_t)(target - f->start);

		if (arrive(f, offset, state, 0, 0))
			add_work(f, offset);
		return;
	}
	if (code_state_is_entry(state) && f->n_outs < CODE_OUTS_MAX)
		f->outs[f->n_outs++] = target;
	if (code_state_is_entry(state) || !has_rule(state) || state->is_outermost)
		return;
	r = grow_array((void **)&f->seeds, &f->seeds_cap, f->n_seeds + 1, sizeof(*f->seeds),
		       CODE_SEEDS_MAX);
	if (r == 0)
		f->seeds[f->n_seeds++] = (struct code_seed){.target = target, .state = *state};
	else if (r == -ENOMEM)
		f->error = r;
}

/* ---- switches ---------------------------------------------------------------------------------
 */

static uint64_t table_end(const struct code_flow *f, uint64_t table)
{
	size_t low = 0, high = f->n_tables;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (f->tables[middle] <= table)
			low = middle + 1;
		else
			high = middle;
	}
	return low < f->n_tables ? f->tables[low] : UINT64_MAX;
}

/*
 * Follows the entries of TABLE up to the first that does not lead into the function. False when
 * there is none that does.
 */
static bool follow_table(struct code_flow *f, uint64_t table, bool is_relative,
			 const struct code_state *state)
{
	struct cursor c = image_at_vaddr(f->image, table);
	uint64_t room = table_end(f, table) - table;
	size_t width = is_relative ? 4 : 8, n = MIN(room / width, (uint64_t)TABLE_ENTRIES_MAX);

	for (size_t i = 0; i < n; i++) {
		uint64_t target =
		    is_relative ? table + (uint64_t)(int64_t)cursor_i32(&c) : cursor_u64(&c);

		if (c.bad || target - f->start >= f->size || f->steps == 0)
			return i > 0;
		f->steps--;
		jump(f, target, state);
	}
	return n > 0;
}

static void indirect_jump(struct code_flow *f, uint32_t offset, const struct code_insn *insn,
			  const struct code_state *state)
{
	size_t best = SIZE_MAX;

	if (insn->target) {
		if (follow_table(f, insn->target, false, state))
			return;
	} else {
		for (size_t i = 0; i < f->n_leas; i++)
			if (f->leas[i] < offset && (best == SIZE_MAX || f->leas[i] > f->leas[best]))
				best = i;
		if (best != SIZE_MAX && follow_table(f, f->lea_targets[best], true, state)) {
			f->switches++;
			return;
		}
	}
	f->tails += code_state_is_entry(state);
	if (!f->indirect && !code_state_is_entry(state)) {
		f->indirect = offset + 1;
		f->indirect_state = *state;
	}
}

static void remember_lea(struct code_flow *f, uint32_t offset, uint64_t target)
{
	size_t i = f->n_leas % CODE_LEAS_MAX;

	for (size_t n = 0; n < MIN(f->n_leas, (size_t)CODE_LEAS_MAX); n++)
		if (f->leas[n] == offset)
			return;
	if (image_is_code(f->image, target) || f->n_leas >= CODE_LEAS_MAX)
		return;
	f->leas[i] = offset;
	f->lea_targets[i] = target;
	f->n_leas++;
}

/* ---- one path ---------------------------------------------------------------------------------
 */

/* May another function begin at OFFSET, where a call ends? */
static bool is_gap(struct code_flow *f, uint32_t offset)
{
	struct code_insn insn;

	return (f->start + offset) % ARCH_CODE_ALIGN == 0 || offset >= f->size ||
	       (code_flow_insn(f, offset, &insn) && (insn.is_padding || insn.is_entry));
}

/* Takes one instruction, before which STATE holds. False when the path does not go on behind it. */
static bool take(struct code_flow *f, uint32_t offset, const struct code_insn *insn,
		 const struct code_state *state, uint32_t *origin)
{
	f->end = MAX(f->end, offset + insn->size);
	switch ((enum code_flow_kind)insn->flow) {
	case CODE_NEXT:
		if (insn->target)
			remember_lea(f, offset, insn->target);
		return true;
	case CODE_BRANCH:
		jump(f, insn->target, state);
		return true;
	case CODE_JUMP:
		jump(f, insn->target, state);
		return false;
	case CODE_INDIRECT:
		indirect_jump(f, offset, insn, state);
		return false;
	case CODE_CALL:
		f->calls++;
		f->bare_calls += !code_state_has_frame(state);
		*origin = offset + 1;
		return !f->no_return[offset] &&
		       !(f->ends_at_gaps && is_gap(f, offset + insn->size));
	case CODE_RETURN:
		f->returns++;
		if (!state->is_outermost && !code_state_is_entry(state))
			contradiction(f, *origin);
		return false;
	case CODE_HALT: /* musl's a_crash(): compilers emit code behind it as if it returned */
		*origin = offset + 1;
		return f->is_sized && !f->no_return[offset];
	case CODE_END:
		return false;
	}
	return false;
}

static void walk(struct code_flow *f, uint32_t offset)
{
	uint32_t origin = f->origin[offset];

	while (f->steps && !f->suspect && !f->error) {
		uint16_t id = f->at[offset];
		struct code_state state = f->states[id - 1];
		struct code_insn insn;

		f->steps--;
		if (!code_flow_insn(f, offset, &insn) || code_saves_again(&insn, &state)) {
			contradiction(f, origin);
			return;
		}
		if (!take(f, offset, &insn, &state, &origin))
			return;
		code_apply(&insn, &state);
		f->is_outermost |= state.is_outermost;
		if (memcmp(&state, &f->states[id - 1], sizeof(state)) != 0)
			id = 0;
		offset += insn.size;
		if (offset >= f->size || !arrive(f, offset, &state, id, origin))
			return;
	}
}

static void drain(struct code_flow *f)
{
	while (f->n_work && f->steps && !f->suspect && !f->error)
		walk(f, f->work[--f->n_work]);
	f->n_work = 0;
}

/*
 * Follows the blocks that no path has reached, as targets of the indirect jump that was not
 * followed.
 */
static void follow_unreached(struct code_flow *f)
{
	struct code_insn insn;

	for (uint32_t offset = 0;
	     f->indirect && offset < (f->is_sized ? f->size : f->end) && !f->suspect;) {
		if (f->steps == 0 || !code_flow_insn(f, offset, &insn))
			return;
		f->steps--;
		if (!f->at[offset] && !insn.is_padding) {
			jump(f, f->start + offset, &f->indirect_state);
			drain(f);
		}
		offset += insn.size;
	}
}

static void run_once(struct code_flow *f, const struct code_state *state)
{
	forget_states(f);
	memset(f->at, 0, f->touched * sizeof(*f->at));
	f->n_leas = 0;
	f->indirect = 0;
	f->end = 0;
	f->returns = 0;
	f->tails = 0;
	f->switches = 0;
	f->calls = f->bare_calls = 0;
	f->n_outs = 0;
	f->suspect = 0;
	f->is_contradictory = f->is_outermost = false;
	jump(f, f->start, state);
	drain(f);
	follow_unreached(f);
}

int code_flow_run(struct code_flow *f, uint64_t start, uint32_t size, bool is_sized,
		  const struct code_state *state)
{
	size_t first_seed = f->n_seeds;
	uint64_t before;
	int r;

	f->start = start;
	f->size = MIN(size, (uint32_t)CODE_FUNCTION_MAX);
	f->code = image_at_vaddr(f->image, start);
	f->code.size = MIN(f->code.size, (size_t)f->size);
	if (f->code.bad)
		f->size = 0;
	f->error = 0;
	f->is_sized = is_sized;
	f->steps = MIN((uint64_t)f->size * STEPS_PER_BYTE + STEPS_MIN, f->budget);
	before = f->steps;
	r = prepare(f);
	if (r < 0)
		return r;
	/* Only what is in use: functions whose end is not known have far more room than code. */
	memset(f->no_return, 0, f->touched);
	memset(f->decoded, 0, f->touched * sizeof(*f->decoded));
	memset(f->at, 0, f->touched * sizeof(*f->at));
	f->touched = 0;
	f->n_insns = 0;
	f->cuts = 0;
	do {
		f->n_seeds = first_seed;
		run_once(f, state);
		if (f->suspect) {
			f->no_return[f->suspect - 1] = 1;
			f->cuts++;
		}
		f->steps -= MIN(f->steps, (uint64_t)f->touched / TOUCHED_PER_STEP);
	} while (f->suspect && f->steps && !f->error);
	f->budget -= before - f->steps;
	if (f->steps == 0) { /* not all paths were followed to their end */
		f->is_contradictory = true;
		f->end = 0;
	}
	return f->error;
}
