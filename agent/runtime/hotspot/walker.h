/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The walk of HotSpot's frames, on top of bpf/unwind.h; for BPF and for the host.
 * docs/unwinding/hotspot.md has the sources of all this.
 *
 * One call walks on for as long as frames lie in the code cache. User space has made rules for the
 * JVM's own code (stubs, the interpreter). For compiled code the walker itself makes entries of the
 * rule cache (struct hotspot_code). Freed code is replaced by other code within seconds, so an
 * entry's compile id is checked again when the JVM may have freed code since; no id is given
 * twice. The leaf's registers and the bytes around its pc tell whether it is in its prologue, its
 * body or its epilogue.
 *
 * Everything that is read may be forged.
 */
#pragma once

#include "agent/runtime/hotspot/walker_data.h"

/* What w->cursor holds. */
enum {
	HOTSPOT_BLOB,	 /* the blob whose id was read last in this stack */
	HOTSPOT_BLOB_ID, /* its id */
	HOTSPOT_METHOD,	 /* the interpreted method whose cookie was found last */
	HOTSPOT_COOKIE,
	/* Counters of the JVM, each with bit 63: it was read. */
	HOTSPOT_UNLOADS,
	HOTSPOT_EPOCH, /* hotspot_epoch() */
};

enum { HOTSPOT_FRAMES_A_CALL = 16 };

#define HOTSPOT_RULE_CODE(rule) ((uint32_t)(rule)->deref_off >> KILN_HOTSPOT_RULE_CODE_SHIFT & 7)

#include "agent/runtime/hotspot/walker_blob.h"
#include "agent/runtime/hotspot/walker_leaf.h"
#include "agent/runtime/hotspot/walker_callers.h"
#include "agent/runtime/hotspot/walker_code.h"
#include "agent/runtime/hotspot/walker_frames.h"

/* Emits one frame of code that has no rule, by its blob, and steps to its caller. */
KILN_INLINE int hotspot_look(struct kiln_walk *w, uint64_t pc)
{
	uint32_t slot = w->slot, kind, life = HOTSPOT_LIVES, out_of_line = 0;
	int32_t stub = 0;

	kind = (uint32_t)hotspot_find(slot, pc);
	if (kind == HOTSPOT_INTERPRETER)
		return hotspot_interpreted(slot, 0);
	if (kind != HOTSPOT_NMETHOD && kind != HOTSPOT_WRAPPER)
		return hotspot_other(slot, kind);
	if (w->exact && w->leaf_valid) {
		if (kind == HOTSPOT_NMETHOD &&
		    !env_read(&stub, 4,
			      w->scratch[HOTSPOT_AT_BLOB] + hotspot_data(w)->nmethod_stub))
			out_of_line = pc >= w->scratch[HOTSPOT_AT_BLOB] + (uint32_t)stub;
		life = (uint32_t)hotspot_life(slot, pc, out_of_line);
	}
	w->scratch[HOTSPOT_AT_FRAME] = hotspot_frame_size(w);
	if (kind == HOTSPOT_NMETHOD && !w->exact)
		w->scratch[HOTSPOT_AT_FRAME] += hotspot_pushed(slot);
	else if (kind == HOTSPOT_NMETHOD && w->leaf_valid && life == HOTSPOT_LIVES)
		w->scratch[HOTSPOT_AT_FRAME] += hotspot_pushed_by_leaf(slot, hotspot_frame_size(w));
	if (!(w->exact && w->leaf_valid) && kind == HOTSPOT_NMETHOD &&
	    pc < w->scratch[HOTSPOT_AT_COMPLETE]) {
		/* The code has called before its frame is complete. */
		life = (uint32_t)hotspot_life(slot, w->regs.pc, 0);
		if (life != HOTSPOT_BARE_SP)
			life = HOTSPOT_LIVES;
	}
	return hotspot_compiled(slot, pc, kind, life);
}

/*
 * Emits one frame of the code cache, and steps to its caller. Returns 0, HOTSPOT_NOTHING or
 * HOTSPOT_STUCK.
 */
KILN_INLINE int hotspot_frame(struct kiln_walk *w)
{
	struct kiln_cache_entry *entry;
	struct hotspot_code *code;
	uint64_t pc = w->regs.pc - (w->exact ? 0 : 1);
	int r;

	if (!hotspot_is_code(hotspot_data(w), pc))
		return HOTSPOT_NOTHING;
	if (!w->exact && w->regs.pc == hotspot_data(w)->barrier)
		return hotspot_frozen(w->slot, 0);
	entry = env_cache(w, pc);
	if (!entry)
		return HOTSPOT_NOTHING;
	w->scratch[HOTSPOT_AT_CROWDED] = 0;
	if (entry->pc != pc || entry->tag != w->tag) {
		code = w->exact ? 0 : hotspot_second(w, pc);
		if (code && code->pc == pc && code->tag == ~w->tag) {
			r = hotspot_known(w, code);
			if (r != HOTSPOT_NOTHING)
				return r;
		}
		w->scratch[HOTSPOT_AT_CROWDED] = entry->tag == w->tag;
		if (walk_find_rule(w->slot, pc))
			return HOTSPOT_NOTHING;
	}
	switch (HOTSPOT_RULE_CODE(&entry->rule)) {
	case KILN_HOTSPOT_CODE_COMPILED:
		r = w->exact ? HOTSPOT_NOTHING : hotspot_known(w, (struct hotspot_code *)entry);
		if (r != HOTSPOT_NOTHING)
			return r;
		break;
	case KILN_HOTSPOT_CODE_INTERPRETER:
		return hotspot_interpreted(w->slot, (uint32_t)entry->rule.deref_off);
	case KILN_HOTSPOT_CODE_BARE:
		return hotspot_between(w->slot, pc);
	case KILN_HOTSPOT_CODE_THAW:
		return hotspot_thaw(w, (uint32_t)entry->rule.deref_off);
	case KILN_HOTSPOT_CODE_STUB:
		/* The native walk steps out of it by its rule. */
		(void)hotspot_emit_stub(w);
		return HOTSPOT_STUCK;
	default:
		break;
	}
	return hotspot_look(w, pc);
}

KILN_GLOBAL int hotspot_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	int r = 0;

	if (!w)
		return 0;
	for (int i = 0; i < HOTSPOT_FRAMES_A_CALL; i++) {
		if (hotspot_run(slot))
			w->hide_native = w->stepped = 1;
		r = hotspot_frame(w);
		if (r || w->full)
			break;
		/* The emitted frames stand for the native ones, which have no names. */
		w->hide_native = w->stepped = 1;
	}
	if (r == HOTSPOT_STUCK) {
		w->hide_native = 1;
		w->stepped = 0;
		w->runtime_done = 1;
	}
	return 0;
}
