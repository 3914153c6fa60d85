/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Emits the frames of compiled code, and steps to their callers; a part of walker.h. */
#pragma once

enum {
	HOTSPOT_RUN_MAX = 32, /* frames that hotspot_run() emits */
	HOTSPOT_BLOCK_SEGMENTS_MAX = 1 << 20,
	/* The lowest byte of place in struct hotspot_code */
	HOTSPOT_PLACE_COMPILED = KILN_RUNTIME_HOTSPOT | KILN_HOTSPOT_CODE_COMPILED
							    << KILN_HOTSPOT_RULE_CODE_SHIFT,
};

KILN_INLINE int hotspot_emit_code(struct kiln_walk *w, uint32_t kind, uint64_t pc, uint32_t id,
				  uint64_t blob)
{
	uint64_t distance = pc - blob;

	if (distance >= KILN_HOTSPOT_DISTANCE_MAX)
		distance = KILN_HOTSPOT_DISTANCE_MAX;
	return walk_emit(w, kind | (w->exact ? 0 : KILN_HOTSPOT_RETURN), pc,
			 KILN_HOTSPOT_CODE(id, distance));
}

/* Emits code that lies in no blob, or whose blob does not matter. */
KILN_INLINE int hotspot_emit_stub(struct kiln_walk *w)
{
	return hotspot_emit_code(w, KILN_HOTSPOT_STUB, w->regs.pc, 0,
				 w->regs.pc - KILN_HOTSPOT_DISTANCE_MAX);
}

/* Reads the compile id of the nmethod at BLOB. 0, or -1. */
KILN_INLINE int hotspot_id(struct kiln_walk *w, uint64_t blob, uint32_t *ret)
{
	if (w->cursor.words[HOTSPOT_BLOB] == blob) {
		*ret = (uint32_t)w->cursor.words[HOTSPOT_BLOB_ID];
		return 0;
	}
	if (env_read(ret, 4, blob + hotspot_data(w)->nmethod_id))
		return -1;
	w->cursor.words[HOTSPOT_BLOB] = blob;
	w->cursor.words[HOTSPOT_BLOB_ID] = *ret;
	return 0;
}

/*
 * An entry of the rule cache for a return address in compiled code. It stays valid until the JVM
 * may have freed the code: hotspot_epoch().
 */
struct hotspot_code {
	uint64_t pc, tag; /* as in kiln_cache_entry */
	uint8_t kind;	  /* KILN_RULE_INVALID: of no use without the walker */
	uint8_t frame_low;
	uint8_t flags;	    /* KILN_RULE_RUNTIME */
	uint8_t frame_high; /* size of a frame, in units of 8 bytes */
	uint32_t id;
	uint32_t epoch; /* hotspot_epoch() when the id was read */
	uint32_t place; /* as rule.deref_off; 24 bits: the return address minus the blob's */
};
KILN_ASSERT_SIZE(hotspot_code, sizeof(struct kiln_cache_entry));
_Static_assert(__builtin_offsetof(struct hotspot_code, flags) ==
		       __builtin_offsetof(struct kiln_cache_entry, rule.flags) &&
		   __builtin_offsetof(struct hotspot_code, place) ==
		       __builtin_offsetof(struct kiln_cache_entry, rule.deref_off),
	       "an entry of the rule cache");

/*
 * Returns a number that changes before other code can take the place of code that is on a stack
 * now; 0: not known. The JVM frees code only after it has looked for it on all stacks: in a
 * safepoint, or after one (12 to 19: after a handshake with each thread, which is not counted; so
 * compilations are counted too). Of the safepoint's counters only the time grows at its end; those
 * that grow at its beginning do so before all threads have stopped. java.ci.totalTime alone grows
 * too late, after the new code runs. Sources: src/hotspot/share/code/codeCache.cpp,
 * runtime/sweeper.cpp, runtime/runtimeService.cpp.
 */
KILN_INLINE uint32_t hotspot_epoch(struct kiln_walk *w)
{
	const struct kiln_hotspot *v = hotspot_data(w);
	uint64_t compiles = 0, stopped = 0, epoch = 0;

	if (!w->cursor.words[HOTSPOT_EPOCH]) {
		if (v->compiles && v->stopped && !env_read(&compiles, 8, v->compiles) &&
		    !env_read(&stopped, 8, v->stopped))
			/* The factor keeps small changes of both from adding up to 0. */
			epoch = (uint32_t)(compiles + stopped * 0x9e3779b1) ?: 1;
		w->cursor.words[HOTSPOT_EPOCH] = epoch | 1ULL << 63;
	}
	return (uint32_t)w->cursor.words[HOTSPOT_EPOCH];
}

KILN_INLINE uint32_t hotspot_code_frame(const struct hotspot_code *code)
{
	return ((uint32_t)code->frame_low | (uint32_t)code->frame_high << 8) * 8;
}

/*
 * The fast path, for nearly all frames: emits frames of compiled code and steps to their callers.
 * Stops at a frame that has no valid entry in the rule cache, or whose saved rbp and return address
 * are not in the stack window. Returns the number of frames emitted; always 0 at the leaf, whose pc
 * is no return address.
 */
KILN_GLOBAL int hotspot_run(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc, sp, fp, cfa, ra, *words, first;
	const struct hotspot_code *code;
	uint32_t n, room, epoch, i;
	int round;

	words = w ? env_words(w) : 0;
	if (!w || !words || w->exact || w->n + 2 >= KILN_MAX_USER_WORDS ||
	    w->runtime_frames >= w->max_frames)
		return 0;
	epoch = hotspot_epoch(w);
	room = (KILN_MAX_USER_WORDS - w->n) / 2 - 1;
	if (room > w->max_frames - w->runtime_frames)
		room = w->max_frames - w->runtime_frames;
	pc = w->regs.pc;
	sp = w->regs.sp;
	fp = w->regs.fp;
	n = w->at + w->n;
	first = (uint64_t)KILN_FRAME_RUNTIME(w->runtime_id & 31) << KILN_FRAME_KIND_SHIFT |
		(uint64_t)(KILN_HOTSPOT_COMPILED | KILN_HOTSPOT_RETURN) << KILN_FRAME_FLAG_SHIFT;
	for (round = 0; round < HOTSPOT_RUN_MAX; round++) {
		code = (const struct hotspot_code *)env_cache(w, pc - 1);
		if (!code || code->pc != pc - 1 || code->tag != w->tag ||
		    (uint8_t)code->place != HOTSPOT_PLACE_COMPILED || !epoch ||
		    code->epoch != epoch || (uint32_t)round >= room)
			break;
		cfa = sp + hotspot_code_frame(code);
		if (walk_peek(w, cfa - 8, &ra) || walk_peek(w, cfa - 16, &fp) ||
		    !hotspot_is_code(hotspot_data(w), ra) || (cfa & 7) || cfa <= sp)
			break;
		i = n + (uint32_t)round * 2;
		asm volatile("" : "+r"(i));
		words[i & (KILN_RECORD_WORDS - 1)] = first | (pc & KILN_FRAME_PC_MASK);
		i++;
		asm volatile("" : "+r"(i));
		words[i & (KILN_RECORD_WORDS - 1)] =
		    KILN_HOTSPOT_CODE(code->id, code->place >> KILN_HOTSPOT_PLACE_SHIFT);
		w->regs.fp = fp;
		pc = ra;
		sp = cfa;
	}
	if (!round)
		return 0;
	w->regs.pc = pc;
	w->regs.sp = sp;
	w->n += (uint32_t)round * 2;
	w->runtime_frames += (uint32_t)round;
	w->limit += (uint32_t)round * (2 + KILN_RUNTIME_CREDIT);
	w->leaf_called = w->leaf_valid = w->runtime_done = 0;
	return round;
}

/*
 * Is the nmethod at BLOB, which has the return address PC, still the one with ID? When code is
 * freed, the JVM only marks its block. New code may lie behind what stays of the old header, and
 * other code may overwrite a part of it, so the id alone may still be there. A block begins with
 * its number of segments, and then whether it is used (HeapBlock::Header,
 * src/hotspot/share/memory/heap.hpp; the same in 8 to 28).
 */
KILN_INLINE int hotspot_is_same(struct kiln_walk *w, uint64_t blob, uint64_t pc, uint32_t id)
{
	const struct kiln_hotspot *v = hotspot_data(w);
	uint64_t block[2] = {0};
	uint32_t got = 0;

	return !env_read(block, sizeof(block), blob - v->block_header) && (uint8_t)block[1] == 1 &&
	       block[0] <= HOTSPOT_BLOCK_SEGMENTS_MAX &&
	       pc - blob < block[0] << (v->log2_segment & 31) && !hotspot_id(w, blob, &got) &&
	       got == id;
}

/*
 * Emits the frame of CODE, whose return address is in w->regs, and steps to its caller.
 * HOTSPOT_NOTHING: other code lies there by now.
 */
KILN_INLINE int hotspot_known(struct kiln_walk *w, struct hotspot_code *code)
{
	uint32_t epoch = hotspot_epoch(w);
	uint64_t blob = w->regs.pc - (code->place >> KILN_HOTSPOT_PLACE_SHIFT);

	if (!epoch || code->epoch != epoch) {
		if (!hotspot_is_same(w, blob, w->regs.pc, code->id))
			return HOTSPOT_NOTHING;
		code->epoch = epoch;
	}
	if (hotspot_emit_code(w, KILN_HOTSPOT_COMPILED, w->regs.pc, code->id, blob))
		return HOTSPOT_STUCK;
	return hotspot_pop(w, w->regs.sp + hotspot_code_frame(code), 1);
}

/*
 * The second place for the entry of PC, used when another frame has the first one. It is in the
 * cache that processes share; no file has the tag ~w->tag. Both caches hash by the same
 * multiplication, so without KILN_HOTSPOT_SECOND_KEY pcs that collide in one would collide in the
 * other.
 */
KILN_INLINE struct hotspot_code *hotspot_second(struct kiln_walk *w, uint64_t pc)
{
	return (struct hotspot_code *)env_shared(w, ~w->tag, KILN_HOTSPOT_SECOND_KEY(pc));
}

/* Keeps what was found of the nmethod at BLOB, which has the return address PC + 1. */
KILN_GLOBAL int hotspot_keep(uint32_t slot, uint64_t pc, uint64_t blob, uint32_t id, uint32_t frame)
{
	struct kiln_walk *w = env_walk(slot);
	struct hotspot_code *code = w ? (struct hotspot_code *)env_cache(w, pc) : 0, *second;
	uint64_t distance = pc + 1 - blob;

	if (!code || distance >= KILN_HOTSPOT_DISTANCE_MAX || (frame & 7) || frame >> 3 > 0xffff)
		return 0;
	*code = (struct hotspot_code){
	    .pc = pc,
	    .tag = w->tag,
	    .flags = KILN_RULE_RUNTIME,
	    .frame_low = (uint8_t)(frame >> 3),
	    .frame_high = (uint8_t)(frame >> 11),
	    .id = id,
	    .epoch = hotspot_epoch(w),
	    .place = HOTSPOT_PLACE_COMPILED | (uint32_t)distance << KILN_HOTSPOT_PLACE_SHIFT,
	};
	second = w->scratch[HOTSPOT_AT_CROWDED] ? hotspot_second(w, pc) : 0;
	if (second) {
		*second = *code;
		second->tag = ~w->tag;
	}
	return 0;
}

/* Is PC the deoptimization handler of BLOB, whose address is at FIELD? Deoptimized frames return
 * to it. */
KILN_INLINE int hotspot_is_handler(const struct kiln_hotspot *v, uint64_t blob, uint32_t field,
				   uint64_t pc)
{
	uint64_t address = 0;
	int32_t offset = 0;

	if (!field)
		return 0;
	if (v->flags & KILN_HOTSPOT_DEOPT_POINTER)
		return !env_read(&address, 8, blob + field) && address == pc;
	return !env_read(&offset, 4, blob + field) && offset > 0 && blob + (uint32_t)offset == pc;
}

/* Returns the pc that the current frame, of BLOB, had before it was deoptimized; 0: it was not. */
KILN_GLOBAL uint64_t hotspot_given_up(uint32_t slot, uint64_t blob)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_hotspot *v;
	uint64_t pc;
	uint32_t at = 0;

	if (!w)
		return 0;
	v = hotspot_data(w);
	if (!hotspot_is_handler(v, blob, v->nmethod_deopt, w->regs.pc) &&
	    !hotspot_is_handler(v, blob, v->nmethod_deopt_mh, w->regs.pc))
		return 0;
	if (env_read(&at, 4, blob + v->nmethod_orig_pc) || walk_read(w, w->regs.sp + at, &pc) ||
	    pc - blob > w->regs.pc - blob)
		return 0;
	return pc;
}

/*
 * Emits a frame of compiled code, and steps to its caller. KIND is what hotspot_find() has found at
 * PC, LIFE enum hotspot_life.
 */
KILN_GLOBAL int hotspot_compiled(uint32_t slot, uint64_t pc, uint32_t kind, uint32_t life)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t blob, address, given_up;
	uint32_t id = 0, frame;
	int32_t stub = 0;

	if (!w)
		return HOTSPOT_NOTHING;
	blob = w->scratch[HOTSPOT_AT_BLOB];
	frame = (uint32_t)w->scratch[HOTSPOT_AT_FRAME];
	address = w->regs.pc;
	if (frame < 16 || frame > HOTSPOT_FRAME_MAX || hotspot_id(w, blob, &id))
		return HOTSPOT_NOTHING;
	if (kind == HOTSPOT_NMETHOD && !w->exact && pc >= w->scratch[HOTSPOT_AT_COMPLETE]) {
		if (env_read(&stub, 4, blob + hotspot_data(w)->nmethod_stub))
			return HOTSPOT_NOTHING;
		given_up = pc >= blob + (uint32_t)stub ? hotspot_given_up(slot, blob) : 0;
		if (given_up)
			address = given_up;
		else
			hotspot_keep(slot, pc, blob, id, frame);
	}
	if (life != HOTSPOT_SILENT &&
	    hotspot_emit_code(w, KILN_HOTSPOT_COMPILED, address, id, blob))
		return HOTSPOT_STUCK;
	if (life == HOTSPOT_LIVES && kind == HOTSPOT_WRAPPER)
		return hotspot_leave_wrapper(w, frame);
	if (life == HOTSPOT_BARE_SP || life == HOTSPOT_SILENT)
		frame = 8;
	if (life == HOTSPOT_PUSHED)
		frame = 16;
	return hotspot_pop(w, w->regs.sp + frame, frame > 8 && life != HOTSPOT_UNSAVED);
}
