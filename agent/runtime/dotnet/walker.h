/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of .NET's frames (CoreCLR), on top of bpf/unwind.h; for BPF and for the host.
 * docs/unwinding/dotnet.md has the sources of all this.
 *
 * Compiled code has unwind information of its own, in the process's memory. What it says of a pc
 * becomes a rule (struct kiln_rule) in the rule cache, so that the step is exact wherever the code
 * was interrupted.
 *
 * A cached rule is enough for code that never moves and is never freed: code compiled ahead of
 * time, and methods that cannot be unloaded. For all other methods two words are read again at each
 * frame, the pointer to the code's header and the MethodDesc in that header: if they have changed,
 * another method is there now, and the rule is made anew.
 *
 * Everything that is read may be forged.
 */
#pragma once

#include "agent/runtime/dotnet/walker_data.h"

#include "agent/runtime/dotnet/walker_find.h"
#include "agent/runtime/dotnet/walker_unwind.h"

#define DOTNET_RULE_CODE(rule)	   ((uint32_t)(rule)->deref_off >> 5 & 3)
#define DOTNET_RULE_DISTANCE(rule) ((uint32_t)(rule)->deref_off >> 7 & DOTNET_FAR)
#define DOTNET_RULE_COOKIE(rule)   ((uint32_t)(rule)->deref_off >> 25)
#define DOTNET_FAR		   0x3ffffU /* a larger distance, or a rule for this step only */

enum { DOTNET_FRAMES_A_CALL = 16 };

/* Emits the current frame, of KIND. Non-zero: there is no room. */
KILN_INLINE int dotnet_emit(struct kiln_walk *w, uint32_t kind, uint64_t second)
{
	w->hide_native = 1;
	return walk_emit(w, kind | (w->exact ? 0 : KILN_DOTNET_RETURN), w->regs.pc, second);
}

/* Does the word SKIP bytes above rsp lead to code? */
KILN_INLINE int dotnet_is_return(struct kiln_walk *w, uint32_t skip)
{
	uint64_t to;

	return !walk_read(w, w->regs.sp + skip, &to) && to && !walk_find_mapping(w->slot, to - 1);
}

/*
 * Emits code without a frame of its own: stubs that jump, write barriers. If it is the leaf, makes
 * its rule: the return address is at rsp, or above one register that was pushed.
 */
KILN_INLINE int dotnet_stub(struct kiln_walk *w, uint64_t pc, uint64_t kind)
{
	uint32_t skip = 0;

	if (w->exact && w->leaf_valid) {
		if (!dotnet_is_return(w, 0))
			skip = dotnet_is_return(w, 8) ? 8 : 0;
		dotnet_bare(w, pc, skip, KILN_DOTNET_CODE_UNKNOWN);
	}
	return dotnet_emit(w, KILN_DOTNET_STUB, kind);
}

/* Emits the frame of the method in w->scratch, which begins DISTANCE bytes before the pc. */
KILN_INLINE int dotnet_compiled(struct kiln_walk *w, uint64_t distance)
{
	uint64_t cookie = w->scratch[DOTNET_COOKIE];

	if (w->scratch[DOTNET_DYNAMIC])
		walk_hurry(w, w->scratch[DOTNET_START], cookie);
	if (distance > KILN_DOTNET_DISTANCE_MAX)
		distance = KILN_DOTNET_DISTANCE_MAX;
	return dotnet_emit(w, KILN_DOTNET_JIT, KILN_DOTNET_CODE(distance, cookie));
}

/* Is the compiled method at PC still the one that RULE was made for? Then it is in w->scratch. */
KILN_INLINE int dotnet_is_same(struct kiln_walk *w, const struct kiln_rule *rule, uint64_t pc)
{
	const struct kiln_dotnet *v = dotnet_data(w);
	uint64_t header = 0, method = 0, start = pc - DOTNET_RULE_DISTANCE(rule);

	if (DOTNET_RULE_DISTANCE(rule) == DOTNET_FAR || env_read(&header, 8, start - 8) ||
	    env_read(&method, 8, header + v->header_method))
		return 0;
	w->scratch[DOTNET_START] = start;
	w->scratch[DOTNET_DYNAMIC] = 0;
	w->scratch[DOTNET_COOKIE] = kiln_dotnet_cookie(method, header, 0);
	return (w->scratch[DOTNET_COOKIE] & 127) == DOTNET_RULE_COOKIE(rule);
}

/* May the method in w->scratch be unloaded, so that its memory may hold another one later? */
KILN_INLINE int dotnet_is_collectible(const struct kiln_walk *w)
{
	return w->scratch[DOTNET_DYNAMIC] ||
	       (w->scratch[DOTNET_SECTION + KILN_DOTNET_SECTION_FLAGS] &
		KILN_DOTNET_IS_COLLECTIBLE);
}

/* Emits a frame that has no rule yet, or none that is still valid. Makes the rule for PC. */
KILN_INLINE int dotnet_look(struct kiln_walk *w, struct kiln_rule *rule, uint64_t pc)
{
	const struct kiln_rule by_fp = {
	    .kind = KILN_RULE_FP,
	    .flags = KILN_RULE_RUNTIME | KILN_RULE_GUESS,
	    .deref_off = KILN_RUNTIME_DOTNET,
	};
	uint32_t slot = w->slot, more = KILN_DOTNET_CODE_R2R;
	uint64_t distance = 0, keep = DOTNET_FAR;
	int found = dotnet_find(w, pc);

	if (rule->kind == KILN_RULE_CFA)
		*rule = by_fp;
	if (found == DOTNET_STUB)
		return dotnet_stub(w, pc, w->scratch[DOTNET_COOKIE]);
	if (found == DOTNET_NOTHING) {
		/* Write barriers are copied to memory of their own, which is in no section. */
		if (w->exact && w->leaf_valid && dotnet_is_return(w, 0))
			return dotnet_stub(w, pc, 0);
		walk_missing(w, KILN_MISSING_READ);
		return 0;
	}
	if (found == DOTNET_R2R_UNREAD) {
		walk_missing(w, KILN_MISSING_READ);
		return dotnet_emit(w, KILN_DOTNET_R2R, 0);
	}
	if (found == DOTNET_JIT) {
		distance = pc - w->scratch[DOTNET_START];
		if (distance < DOTNET_FAR && !w->scratch[DOTNET_DYNAMIC])
			keep = distance;
		more = KILN_DOTNET_CODE_JIT;
		if (!dotnet_is_collectible(w)) {
			w->scratch[DOTNET_COOKIE] = KILN_DOTNET_STAYS;
			more = KILN_DOTNET_CODE_STAYS;
		}
		more |= (uint32_t)(keep << 2 | (w->scratch[DOTNET_COOKIE] & 127) << 20);
	}
	if (!(w->exact && w->leaf_valid && dotnet_by_epilogue(slot, pc, more))) {
		int r = dotnet_by_codes(slot, pc, more);

		if (r)
			walk_missing(w, r < 0 ? KILN_MISSING_READ : KILN_MISSING_BROKEN);
	}
	if (found == DOTNET_R2R)
		return dotnet_emit(w, KILN_DOTNET_R2R, 0);
	return dotnet_compiled(w, w->regs.pc - w->scratch[DOTNET_START]);
}

/*
 * Emits the frame at PC if RULE is enough for that. Returns 0: it is not, and nothing was emitted.
 */
KILN_INLINE int dotnet_known(struct kiln_walk *w, const struct kiln_rule *rule, uint64_t pc)
{
	uint64_t distance = DOTNET_RULE_DISTANCE(rule) + (w->regs.pc - pc);

	if (rule->kind != KILN_RULE_CFA)
		return 0;
	switch (DOTNET_RULE_CODE(rule)) {
	case KILN_DOTNET_CODE_R2R:
		(void)dotnet_emit(w, KILN_DOTNET_R2R, 0);
		return 1;
	case KILN_DOTNET_CODE_STAYS:
		if (DOTNET_RULE_DISTANCE(rule) == DOTNET_FAR)
			return 0;
		(void)dotnet_emit(w, KILN_DOTNET_JIT,
				  KILN_DOTNET_CODE(distance, KILN_DOTNET_STAYS));
		return 1;
	case KILN_DOTNET_CODE_JIT:
		if (!dotnet_is_same(w, rule, pc))
			return 0;
		(void)dotnet_compiled(w, w->regs.pc - w->scratch[DOTNET_START]);
		return 1;
	default:
		return 0;
	}
}

KILN_GLOBAL int dotnet_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_cache_entry *entry;
	uint64_t pc;

	if (!w || !dotnet_data(w)->map)
		return 0;
	for (int i = 0; i < DOTNET_FRAMES_A_CALL; i++) {
		pc = w->regs.pc - (w->exact ? 0 : 1);
		entry = env_cache(w, pc);
		if (!entry)
			return 0;
		/* For the first frame the native walk has checked that the cache has its rule. */
		if (i && !walk_is_runtime_rule(w, entry, pc, KILN_RUNTIME_DOTNET))
			return 0;
		if (!dotnet_known(w, &entry->rule, pc))
			return i ? 0 : dotnet_look(w, &entry->rule, pc);
		if (w->full || walk_leave(w, pc))
			return 0;
	}
	return 0;
}
