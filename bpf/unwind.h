/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* clang-format off: it would reflow the table. */
/*
 * The walk: unwinds from one frame to its caller by the tables of types.h. This file is compiled
 * into the BPF programs, and for the host (tests; the finisher that completes walks in user space).
 *
 * The file that includes this one defines:
 *   struct kiln_walk *env_walk(uint32_t slot)                the walk in that slot, or NULL
 *   const struct kiln_mapping *env_mapping(uint32_t index)   entry of mapping_slab, or NULL
 *   const struct kiln_table *env_table(uint32_t image)       entry of tables, or NULL
 *   const uint32_t *env_slot(uint32_t slot)                  16 words of unwind_slab, or NULL
 *   int env_read(void *dst, uint32_t len, uint64_t address)  user memory; 0 when all was read
 *   struct kiln_cache_entry *env_cache(struct kiln_walk *, uint64_t pc)  the cache entry for pc,
 *       which may hold another pc's rule; never NULL where there is memory
 *   struct kiln_cache_entry *env_shared(struct kiln_walk *, uint64_t tag, uint64_t vaddr)  the
 *       shared cache entry for vaddr of an image, which may hold another rule; or NULL
 *   const struct kiln_runtime *env_runtime(struct kiln_walk *, uint32_t id)  entry of `runtimes`,
 *       or NULL
 *   uint64_t *env_words(struct kiln_walk *)  the array for frame words, of KILN_RECORD_WORDS
 *       words; the walk writes from w->at on; or NULL
 *
 * The usual steps (a cached rule, a CFA by sp or fp, words that lie in the window) are made by
 * walk_usual_step(), in a loop without a call. walk_step(), a function of its own, can make any
 * step. The two are separate because at low rates the cost of a sample is the cache lines that it
 * touches, those of code as well as those of data.
 *
 * Invariants: the CFA only grows, except through a signal frame or a frame-pointer rule (which may
 * change stacks), so a walk ends; every loop has a constant bound.
 */
/* clang-format on */
#pragma once

#include "types.h"
#include "arch.h"

#ifdef __bpf__
#define KILN_INLINE static inline __attribute__((always_inline))
/*
 * The verifier checks a global function once, on its own, however often it is called. Before Linux
 * 5.13 a global function cannot take a pointer, so it takes the slot of the walk.
 */
#define KILN_GLOBAL __attribute__((noinline))
#else
#define KILN_INLINE static inline
#define KILN_GLOBAL static
#endif

enum {
	/* The stack is copied piece by piece into the window. The first piece is as large as recent
	 * walks needed; each further one is twice as large as the one before. */
	KILN_WINDOW_FIRST = 1024, /* bytes of the first piece, at least */
	KILN_WINDOW_WORDS = 512,  /* words of the largest piece: a page */
	KILN_PAGE = 4096,
	KILN_RECORD_WORDS = KILN_RECORD_MAX / 8,
	KILN_CHUNK_STEPS = 64, /* steps that one walk_chunk() makes */
	KILN_HURRIED = 512,    /* functions that walk_hurry() remembers; a power of 2 */
	/* Calls of walk_chunk() for the steps and visits of runtimes of the deepest walk. */
	KILN_CHUNKS = (KILN_MAX_USER_FRAMES * (2 + KILN_RUNTIME_CREDIT)) / KILN_CHUNK_STEPS + 1,
	/* Returned in place of an enum kiln_end: the frame is of the runtime whose number is in
	 * w->value, and the runtime's walker has to run before the step. See walk_chunk(). */
	KILN_STEP_RUNTIME = 64,
	KILN_CURSOR_WORDS = 6,
	KILN_CURSORS = 4, /* runtimes whose cursors are kept while another one is current */
	/* In deref_off of a cached rule: see walk_believe_frame_pointer(). */
	KILN_BY_FRAME_POINTER = -1,
	/* Switches from one walker to another in one stack. The kernel allows 32 or 33 tail calls;
	 * the last one ends the sample. */
	KILN_SWITCHES_MAX = 28,
};

/*
 * One entry of a rule cache. There are two caches, both hash tables with one entry per bucket:
 *   env_cache()   (pc, mapset, epoch) -> rule: a hit needs no lookup of mapping, table or slab.
 *   env_shared()  (vaddr, image, epoch) -> rule: a hit needs no search of the table.
 * The second cache serves new processes, and many processes that run one program.
 */
struct kiln_cache_entry {
	uint64_t pc;
	uint64_t tag; /* high half: mapset or image; low half: epoch + 1. 0: the entry is empty */
	struct kiln_rule rule;
};
KILN_ASSERT_SIZE(kiln_cache_entry, 32);

/* State of the copy of the stack (bpf/dump.h). */
struct kiln_dump {
	uint64_t end;	      /* address at which the stack ends; 0: not known */
	uint64_t second;      /* the time, in 2^30 ns, to which `large` belongs */
	uint32_t large;	      /* large dumps in that second */
	uint32_t limit, done; /* bytes that may be copied, and bytes copied */
	uint32_t gap;	      /* unreadable pages in a row */
};
KILN_ASSERT_SIZE(kiln_dump, 32);

/* The position of a runtime's walker in its stack; all 0 at its first call in a sample. */
struct kiln_cursor {
	uint64_t words[KILN_CURSOR_WORDS];
};

/*
 * The state of a walk. Members are in the order of their use: at low rates none of it is in the
 * CPU's caches when a sample begins, so the first cache lines hold the members that every walk
 * touches.
 */
struct kiln_walk {
	struct kiln_regs regs; /* of the frame that is being left */
	uint64_t tag;	       /* as in kiln_cache_entry */
	uint64_t window_base;  /* address of the window; a multiple of 8 */
	uint32_t window_len;   /* bytes, a multiple of 8 */
	uint32_t slot;	       /* number of this walk: see env_walk() */
	uint32_t at, n;	       /* the frame words: n words from word `at` of env_words() on */

	uint32_t limit; /* of n; see walk_begin() */
	uint32_t runtime_frames, max_frames;
	uint32_t end;	       /* enum kiln_end once walk_step() returned non-zero */
	uint8_t exact;	       /* pc is the current instruction, not a return address */
	uint8_t leaf_valid;    /* `leaf` has the registers of this frame */
	uint8_t leaf_called;   /* `leaf` has the registers of the frame that this frame called */
	uint8_t runtime_done;  /* the runtime's walker has run for this frame */
	uint8_t hide_native;   /* set by a walker: its frame stands for the native one */
	uint8_t full;	       /* there was no room for a runtime's frame */
	uint8_t stepped;       /* set by a walker: it has set `regs` to the caller */
	uint8_t unreadable;    /* a runtime's word could not be read */
	uint8_t syscall;       /* the thread is in a system call */
	uint8_t fresh;	       /* the reader is to be woken: new process, or walk_hurry() */
	uint8_t switches;      /* switches from walker to walker so far */
	uint8_t parked;	       /* number of cursors in `park` */
	uint8_t map_stays;     /* the map_* fields stay valid for later walks with the same `tag` */
	uint8_t doubt;	       /* fp leads to no frame: use the table's rule */
	uint8_t walker;	       /* runtime in whose walker the walk may begin; 0: none */
	uint32_t window_next;  /* bytes that the next walk_refill() reads, at most */
	uint32_t window_first; /* the same for the first read of the next walk */
	uint32_t misses;       /* misses of the cache in this walk */
	uint32_t first, count; /* the process's mappings */
	uint32_t mapset;       /* of the process */
	uint32_t runtimes;     /* runtimes that are walked: a bit for each enum kiln_runtime_id */
	uint32_t runtime_id;   /* the current runtime, to which `cursor` belongs; 0: none yet */
	uint64_t runtime_kept; /* key of the entry that `runtime` has kept: begin_in_walker() */
	uint32_t missing_said; /* a bit for each runtime that has a KILN_FRAME_MISSING already */

	uint64_t map_start, map_end; /* the mapping of the last lookup; `table` is its table */
	uint64_t map_bias;
	uint32_t map_image, map_flags;
	uint64_t thread_pointer; /* base of thread-local variables; 0: not known */
	uint64_t value;		 /* second result of a global function, such as walk_refill() */
	struct arch_walk arch;
	uint64_t leaf[ARCH_LEAF_ROOM]; /* ARCH_REGS registers, by DWARF number */

	struct kiln_cursor cursor;
	struct kiln_runtime runtime;
	uint64_t scratch[72]; /* working memory of a runtime's walker during one call */
	struct kiln_table table;
	/* Cursors of runtimes that are not current, and the runtimes' numbers. */
	uint32_t park_id[KILN_CURSORS];
	struct kiln_cursor park[KILN_CURSORS];
	uint64_t hurried[KILN_HURRIED]; /* hashes of walk_hurry()'s last functions on this CPU */
	struct kiln_dump dump;
	uint64_t window[KILN_WINDOW_WORDS];
};

KILN_INLINE struct kiln_walk *env_walk(uint32_t slot);
KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id);
KILN_INLINE uint64_t *env_words(struct kiln_walk *w);
KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index);
KILN_INLINE const struct kiln_table *env_table(uint32_t image);
KILN_INLINE const uint32_t *env_slot(uint32_t slot);
KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address);
KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc);
KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr);

/* Reads the 8 bytes at ADDRESS into w->value, and moves the window there. Returns 0 or -1. */
KILN_GLOBAL int walk_refill(uint32_t slot, uint64_t address)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t base = address, len, size;

	if (!w)
		return -1;
	if (address & 7)
		return env_read(&w->value, 8, address) ? -1 : 0;
	size = w->window_next;
	if (size < KILN_WINDOW_WORDS * 8)
		w->window_next = (uint32_t)size * 2;
	/* Begin at the stack pointer if it is close below ADDRESS on the same page. */
	if (w->regs.sp < address && (w->regs.sp ^ address) < KILN_PAGE &&
	    address - w->regs.sp + 8 < size)
		base = w->regs.sp & ~7ULL;
	/* Never read across the end of a page: the next page may not be present. */
	len = KILN_PAGE - (base & (KILN_PAGE - 1));
	if (len > size)
		len = size;
	/* Keeps the compiler from merging both comparisons: older verifiers would see no bound. */
	asm volatile("" : "+r"(len));
	if (len > KILN_WINDOW_WORDS * 8)
		len = KILN_WINDOW_WORDS * 8;
	w->window_len = 0;
	if (env_read(w->window, (uint32_t)len, base)) {
		/* A dump may end inside the window: read only the word. */
		base = address;
		len = 8;
		if (env_read(w->window, 8, base))
			return -1;
	}
	w->window_base = base;
	w->window_len = (uint32_t)len;
	w->value = w->window[((address - base) >> 3) & (KILN_WINDOW_WORDS - 1)];
	return 0;
}

/* Fills the window from the stack pointer on, for the first steps of the walk, if memory there can
 * be read. */
KILN_INLINE void walk_fill(struct kiln_walk *w)
{
	uint64_t base = w->regs.sp & ~7ULL, len = w->window_next;

	asm volatile("" : "+r"(len));
	if (len > KILN_WINDOW_WORDS * 8 || env_read(w->window, (uint32_t)len, base))
		return;
	w->window_base = base;
	w->window_len = (uint32_t)len;
	if (len < KILN_WINDOW_WORDS * 8)
		w->window_next = (uint32_t)len * 2;
}

/* Gets the 8 bytes at ADDRESS, a multiple of 8, from the window. Returns 0, or -1 if it does not
 * have them. */
KILN_INLINE int walk_peek(const struct kiln_walk *w, uint64_t address, uint64_t *ret)
{
	uint64_t offset = address - w->window_base;

	/* All are multiples of 8: the last byte is in the window when the first one is. */
	if (offset >= w->window_len)
		return -1;
	*ret = w->window[(offset >> 3) & (KILN_WINDOW_WORDS - 1)];
	return 0;
}

/* Reads the 8 bytes at ADDRESS through the window. Returns 0, or -1 if they cannot be read. */
KILN_INLINE int walk_read(struct kiln_walk *w, uint64_t address, uint64_t *ret)
{
	if (!(address & 7) && !walk_peek(w, address, ret))
		return 0;
	if (walk_refill(w->slot, address))
		return -1;
	*ret = w->value;
	return 0;
}

/* Sets w->map_* and w->table to the mapping of PC. Returns 0 or an enum kiln_end. */
KILN_GLOBAL int walk_find_mapping(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_mapping *m;
	const struct kiln_table *t;
	uint32_t lo, hi, blocks = 0;

	if (!w)
		return KILN_END_NO_MAPPING;
	lo = w->first;
	hi = w->first + w->count;
	for (int i = 0; i < 16 && lo < hi; i++) {
		uint32_t mid = (lo + hi) / 2;

		m = env_mapping(mid);
		if (!m)
			return KILN_END_NO_MAPPING;
		if (pc < m->start) {
			hi = mid;
		} else if (pc >= m->end) {
			lo = mid + 1;
		} else {
			w->map_start = m->start;
			w->map_end = m->end;
			w->map_bias = m->bias;
			w->map_image = m->image;
			w->map_flags = m->flags;
			w->table.blocks = 0;
			if (m->image) {
				t = env_table(m->image);
				/* `blocks` is published last, so it is read first. */
				blocks = t ? *(const volatile uint32_t *)&t->blocks : 0;
				if (t && blocks)
					w->table = *t;
				w->table.blocks = blocks;
			}
			w->map_stays = m->image ? blocks != 0 : m->flags & KILN_MAPPING_JIT;
			return 0;
		}
	}
	return KILN_END_NO_MAPPING;
}

KILN_INLINE int walk_slab_word(uint32_t at, uint32_t *ret)
{
	const uint32_t *slot = env_slot(at >> 4);

	if (!slot)
		return -1;
	*ret = slot[at & 15];
	return 0;
}

/* Finds the last row at or before VADDR. *RET_RULE: the index of its rule in `unwind_slab`, in
 * units of 16 bytes. Returns 0, or -1 if there is no such row. */
KILN_INLINE int walk_find_row(struct kiln_walk *w, uint64_t vaddr, uint32_t *ret_rule)
{
	uint64_t offset = vaddr - w->table.base;
	uint32_t block, lo, hi, row = 0, low = offset & 0xffff;

	if (vaddr < w->table.base || (offset >> KILN_BLOCK_SHIFT) >= w->table.blocks)
		return -1;
	block = (uint32_t)(offset >> KILN_BLOCK_SHIFT);
	if (walk_slab_word(w->table.index_at + block, &lo) ||
	    walk_slab_word(w->table.index_at + block + 1, &hi))
		return -1;
	/* Binary search for the first row beyond LOW; a block of 1 KiB has at most 1024 rows. */
	for (int i = 0; i < 11 && lo < hi; i++) {
		uint32_t mid = (lo + hi) / 2;

		if (walk_slab_word(w->table.rows_at + mid, &row))
			return -1;
		if ((row & 0xffff) <= low)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo == 0)
		return -1;
	if (walk_slab_word(w->table.rows_at + lo - 1, &row))
		return -1;
	*ret_rule = w->table.rules_at / 4 + (row >> 16);
	return 0;
}

/* For code that keeps a frame pointer: is RULE less reliable than fp for finding the caller? */
KILN_INLINE int walk_is_unsure(const struct kiln_rule *rule, uint32_t exact)
{
	if (rule->kind == KILN_RULE_CFA && rule->reg == ARCH_REG_FP)
		return rule->cfa_off != 16;
	return rule->kind == KILN_RULE_INVALID || !exact;
}

/*
 * For code that keeps a frame pointer and has no walker: replaces RULE, which is about to be cached
 * for a return address, by a frame-pointer rule that walk_usual_step() can follow. The key in the
 * cache of a return address is the last byte of the call instruction, which is never an interrupted
 * pc. So the rule for an interrupted pc is not affected.
 */
KILN_INLINE void walk_believe_frame_pointer(const struct kiln_walk *w, struct kiln_rule *rule)
{
	const uint8_t both = KILN_RULE_FRAME_POINTER | KILN_RULE_RUNTIME;
	const struct kiln_rule by_fp = {
	    .kind = KILN_RULE_CFA,
	    .reg = ARCH_REG_FP,
	    .flags = KILN_RULE_SAVED_FP,
	    .ra_off = ARCH_RA_OFFSET,
	    .cfa_off = 16,
	    .fp_off = -2,
	    .deref_off = KILN_BY_FRAME_POINTER,
	};

	if (w->exact || w->doubt || (rule->flags & both) != KILN_RULE_FRAME_POINTER)
		return;
	if (walk_is_unsure(rule, 0))
		*rule = by_fp;
	else
		rule->flags &= (uint8_t)~KILN_RULE_FRAME_POINTER;
}

/*
 * Finds the rule for PC (for a return address: the address minus 1) and stores it in the cache
 * entry of PC. Returns 0, or an enum kiln_end; the cache is untouched then.
 */
KILN_GLOBAL int walk_find_rule(uint32_t slot, uint64_t pc)
{
	struct kiln_walk *w = env_walk(slot);
	struct kiln_cache_entry *entry, *shared = 0;
	const uint32_t *found;
	uint32_t rule = KILN_BUILTIN_INVALID, runtime = 0;
	uint64_t tag = 0, vaddr = 0;
	int r;

	if (!w)
		return KILN_END_NO_RULE;
	w->misses++;
	if (pc < w->map_start || pc >= w->map_end) {
		r = walk_find_mapping(w->slot, pc);
		if (r)
			return r;
	}
	if (!w->map_image || (w->map_flags & KILN_MAPPING_JIT)) {
		if (!(w->map_flags & KILN_MAPPING_JIT))
			return KILN_END_NO_RULE;
		runtime = (w->map_flags >> KILN_MAPPING_RUNTIME_SHIFT) & 31;
		/* Some runtimes give a table for a part of their JIT code. */
		if (!w->map_image || walk_find_row(w, pc, &rule))
			rule = KILN_BUILTIN_FP;
	} else {
		if (!w->table.blocks)
			return KILN_END_NO_TABLE;
		vaddr = pc - w->map_bias;
		tag = (uint64_t)w->map_image << 32 | (uint32_t)w->tag;
		shared = env_shared(w, tag, vaddr);
		entry = env_cache(w, pc);
		if (shared && entry && shared->pc == vaddr && shared->tag == tag) {
			*entry = *shared;
			entry->pc = pc;
			entry->tag = w->tag;
			walk_believe_frame_pointer(w, &entry->rule);
			return 0;
		}
		if (walk_find_row(w, vaddr, &rule))
			return KILN_END_NO_RULE;
	}
	found = env_slot(rule >> 2);
	entry = env_cache(w, pc);
	if (!found || !entry)
		return KILN_END_NO_RULE;
	entry->pc = pc;
	entry->tag = w->tag;
	entry->rule = *(const struct kiln_rule *)(found + (rule & 3) * 4);
	if (runtime && !(entry->rule.flags & KILN_RULE_RUNTIME)) {
		entry->rule.flags |= KILN_RULE_RUNTIME;
		entry->rule.deref_off = (int32_t)runtime;
	}
	if (shared) {
		shared->pc = vaddr;
		shared->tag = tag;
		shared->rule = entry->rule;
	}
	walk_believe_frame_pointer(w, &entry->rule);
	return 0;
}

/*
 * The value of DWARF register REG in this frame. Returns 0, or -1 if it is not known. The registers
 * of the callee are also used for registers that a callee may change: if the CFA of a caller is in
 * such a register, its callee is assembly of the same author that leaves the register alone
 * (OpenSSL 3.0, crypto/modes/asm/aesni-gcm-x86_64.pl: rax).
 */
KILN_INLINE int walk_register(const struct kiln_walk *w, uint32_t reg, uint64_t *ret)
{
	if (reg == ARCH_REG_SP)
		*ret = w->regs.sp;
	else if (reg == ARCH_REG_FP)
		*ret = w->regs.fp;
	else if (reg == ARCH_REG_EXTRA)
		*ret = w->regs.extra;
	else if ((w->leaf_valid && reg < ARCH_REGS) || (w->leaf_called && reg < ARCH_REGS_FREE)) {
		/* The compiler would drop the mask; the verifier needs it. */
		asm volatile("" : "+r"(reg));
		*ret = w->leaf[reg & (ARCH_LEAF_ROOM - 1)];
	} else
		return -1;
	return 0;
}

/* Unwinds a signal frame, whose ucontext is at sp + OFFSET: restores all registers from it. */
KILN_GLOBAL int walk_signal(uint32_t slot, int32_t offset)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t at, v;

	if (!w)
		return KILN_END_BAD_READ;
	at = w->regs.sp + (uint64_t)(int64_t)offset + ARCH_UCONTEXT_REGS;
	for (uint32_t i = 0; i < ARCH_UCONTEXT_N; i++) {
		uint32_t reg = arch_ucontext_dwarf(i);

		if (walk_read(w, at + i * 8, &v))
			return KILN_END_BAD_READ;
		if (reg < ARCH_REGS)
			w->leaf[reg] = v;
	}
	w->regs.pc = w->leaf[ARCH_REG_PC];
	w->regs.sp = w->leaf[ARCH_REG_SP];
	w->regs.fp = w->leaf[ARCH_REG_FP];
	w->regs.extra = w->leaf[ARCH_REG_EXTRA];
	w->exact = 1;
	w->leaf_valid = 1;
	w->runtime_done = 0;
	return 0;
}

/*
 * Makes the caller the current frame. RA: the return address as it was saved; CFA, FP and EXTRA:
 * the caller's sp, fp and extra. Returns 0, or KILN_END_ROOT if RA is 0.
 */
KILN_INLINE int walk_enter(struct kiln_walk *w, uint64_t ra, uint64_t cfa, uint64_t fp,
			   uint64_t extra)
{
	uint64_t pc = arch_code_address(&w->arch, ra);

	if (!pc)
		return KILN_END_ROOT;
	w->regs.pc = pc;
	w->regs.sp = cfa;
	w->regs.fp = fp;
	w->regs.extra = extra;
	w->exact = 0;
	w->leaf_called = w->leaf_valid;
	w->leaf_valid = 0;
	w->runtime_done = 0;
	return 0;
}

/*
 * Goes to the caller by the frame pointer, from code that keeps one (KILN_RULE_FRAME_POINTER).
 * Returns a negative number if fp leads to no frame, else the same as walk_step().
 */
KILN_GLOBAL int walk_frame_pointer(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t fp, caller, ra;

	if (!w)
		return -1;
	fp = w->regs.fp;
	if (fp < w->regs.sp || walk_read(w, fp, &caller) || walk_read(w, fp + 8, &ra) || !ra)
		return -1;
	return walk_enter(w, ra, fp + 16, caller, w->regs.extra);
}

/* Is the rule for PC in the cache? If so, PC is in a known mapping. */
KILN_INLINE int walk_is_cached(struct kiln_walk *w, uint64_t pc)
{
	const struct kiln_cache_entry *entry = env_cache(w, pc);

	return entry && entry->pc == pc && entry->tag == w->tag;
}

/* walk_step() for the kinds of rule that few frames have. AT: the frame's key in the rule cache. */
KILN_GLOBAL int walk_step_special(uint32_t slot, uint64_t at)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry = w ? env_cache(w, at) : 0;
	const struct kiln_rule *rule;
	uint64_t cfa, fp, pc;

	if (!w || !entry)
		return KILN_END_NO_RULE;
	rule = &entry->rule;
	fp = w->regs.fp;
	switch (rule->kind) {
	case KILN_RULE_STOP:
		return KILN_END_ROOT;
	case KILN_RULE_UNREAD:
		return KILN_END_NO_TABLE;
	case KILN_RULE_SIGNAL:
		return walk_signal(w->slot, rule->cfa_off);
	case KILN_RULE_FP:
		if (!fp)
			return KILN_END_ROOT;
		cfa = fp + 16;
		if (walk_read(w, fp, &fp) || walk_read(w, cfa - 8, &pc))
			return KILN_END_BAD_READ;
		break;
	case KILN_RULE_PLT:
		cfa = w->regs.sp + 8 + ((w->regs.pc & 15) >= (uint64_t)rule->cfa_off ? 8 : 0);
		if (walk_read(w, cfa - 8, &pc))
			return KILN_END_BAD_READ;
		break;
	case KILN_RULE_RA_REG: /* x86-64 only; arm64 needs it often, so walk_step() has it */
		if (ARCH_RA_IN_REGISTER || walk_register(w, rule->reg, &cfa) ||
		    walk_register(w, (uint32_t)rule->ra_off, &pc))
			return KILN_END_NO_RULE;
		cfa += (uint64_t)(int64_t)rule->cfa_off;
		break;
	default:
		return KILN_END_NO_RULE;
	}
	pc = arch_code_address(&w->arch, pc);
	if (pc && (rule->flags & KILN_RULE_GUESS) && !walk_is_cached(w, pc - 1) &&
	    (pc - 1 < w->map_start || pc - 1 >= w->map_end) && walk_find_mapping(w->slot, pc - 1))
		return KILN_END_NO_RULE;
	return walk_enter(w, pc, cfa, fp, w->regs.extra);
}

/*
 * Goes from the frame in w->regs to its caller. Returns 0 if w->regs is the caller, else an enum
 * kiln_end or KILN_STEP_RUNTIME; w->regs is untouched then, so that the walk can go on from there.
 */
KILN_GLOBAL int walk_step(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_cache_entry *entry;
	const struct kiln_rule *rule;
	uint64_t base, cfa, from, saved, fp, extra, pc;
	int r, in_register, bare;

	if (!w)
		return KILN_END_NO_RULE;
	pc = w->regs.pc - (w->exact ? 0 : 1);
	entry = env_cache(w, pc);
	if (!entry)
		return KILN_END_NO_RULE;
	if (entry->pc != pc || entry->tag != w->tag) {
		r = walk_find_rule(w->slot, pc);
		if (r)
			return r;
	}
	rule = &entry->rule;
	if (rule->kind == KILN_RULE_CFA && rule->deref_off == KILN_BY_FRAME_POINTER) {
		r = walk_frame_pointer(w->slot);
		if (r >= 0)
			return r;
		w->doubt = 1;
		r = walk_find_rule(w->slot, pc);
		w->doubt = 0;
		if (r)
			return r;
	}
	if ((rule->flags & KILN_RULE_RUNTIME) && !w->runtime_done) {
		w->value = (uint32_t)rule->deref_off & (KILN_RUNTIME_MAX - 1);
		return KILN_STEP_RUNTIME;
	}
	if ((rule->flags & KILN_RULE_FRAME_POINTER) && walk_is_unsure(rule, w->exact)) {
		r = walk_frame_pointer(w->slot);
		if (r >= 0)
			return r;
	}
	fp = w->regs.fp;
	extra = w->regs.extra;
	in_register = ARCH_RA_IN_REGISTER && rule->kind == KILN_RULE_RA_REG;
	if (rule->kind == KILN_RULE_CFA && rule->reg == ARCH_REG_SP)
		base = w->regs.sp;
	else if (rule->kind == KILN_RULE_CFA && rule->reg == ARCH_REG_FP)
		base = fp;
	else if (rule->kind != KILN_RULE_CFA && rule->kind != KILN_RULE_DEREF && !in_register)
		return walk_step_special(w->slot, pc);
	else if (walk_register(w, rule->reg, &base))
		return KILN_END_NO_RULE;
	cfa = base + (uint64_t)(int64_t)rule->cfa_off;
	if (rule->kind == KILN_RULE_DEREF) {
		if (walk_read(w, cfa, &cfa))
			return KILN_END_BAD_READ;
		cfa += (uint64_t)(int64_t)rule->deref_off;
	}
	/* If calls leave the return address in a register, a frame may have nothing on the stack.
	 * For a function's last instructions clang's unwind information still says that the return
	 * address is where it was saved. */
	bare = in_register || (ARCH_RA_IN_REGISTER && w->exact);
	if ((bare ? cfa < w->regs.sp : cfa <= w->regs.sp) && !(rule->flags & KILN_RULE_SWITCH))
		return KILN_END_BAD_CFA;
	from = ARCH_HAS_BASE && (rule->flags & KILN_RULE_AT_BASE) ? base : cfa;
	saved = rule->flags & KILN_RULE_SAVED_AT_FP ? fp : from;
	/* Read the lowest slots first: the window then holds the next ones. */
	if ((rule->flags & KILN_RULE_SAVED_EXTRA) &&
	    walk_read(w, saved + (uint64_t)((int64_t)rule->extra_off * 8), &extra))
		return KILN_END_BAD_READ;
	if ((rule->flags & KILN_RULE_SAVED_FP) &&
	    walk_read(w, saved + (uint64_t)((int64_t)rule->fp_off * 8), &fp))
		return KILN_END_BAD_READ;
	if (in_register) {
		if (walk_register(w, (uint32_t)rule->ra_off, &pc))
			return KILN_END_NO_RULE;
	} else if (walk_read(w, from + (uint64_t)((int64_t)rule->ra_off * ARCH_RA_UNIT), &pc)) {
		return KILN_END_BAD_READ;
	}
	return walk_enter(w, pc, cfa, fp, extra);
}

/*
 * Makes the step that nearly every frame needs, with the same result as walk_step() but without a
 * call, and reading only the window and the rule. KEY: the frame's key in the rule cache, its pc or
 * its return address minus 1. *SP: in: the frame's stack pointer; out: the caller's. *PC: out: the
 * return address. fp and extra are read from and written to w->regs. FLAGS: KILN_RULE_RUNTIME: also
 * step from frames of a runtime, because its walker has shown this frame; else 0. Returns 0, or a
 * negative number if the step is not a usual one: nothing has changed then, and walk_step() has to
 * be called.
 */
KILN_INLINE int walk_usual_step(struct kiln_walk *w, uint64_t key, uint32_t flags, uint64_t *pc,
				uint64_t *sp)
{
	const uint32_t saved = KILN_RULE_SAVED_FP | KILN_RULE_SAVED_EXTRA;
	const struct kiln_cache_entry *entry = env_cache(w, key);
	uint64_t cfa, from, ra, wild, fp = 0, extra;
	const struct kiln_rule *rule;
	uint32_t head;

	/* Keeps the compiler from computing the address anew for each member. */
	asm volatile("" : "+r"(entry));
	if (!entry || entry->pc != key || entry->tag != w->tag)
		return -1;
	rule = &entry->rule;
	head = kiln_rule_head(rule);
	switch (head & ~(ARCH_HEAD_VARIES | flags << KILN_HEAD_FLAGS)) {
	case KILN_HEAD(KILN_RULE_CFA, ARCH_REG_SP, ARCH_HEAD_RA):
		cfa = *sp;
		break;
	case KILN_HEAD(KILN_RULE_CFA, ARCH_REG_FP, ARCH_HEAD_RA):
		cfa = w->regs.fp;
		break;
	default:
		return -1;
	}
	/* A negative offset becomes a large one, and leads out of the window. */
	cfa += (uint32_t)rule->cfa_off;
	from = cfa;
	if (ARCH_HAS_BASE)
		from -= (uint32_t)rule->cfa_off & (0 - (head >> KILN_HEAD_BASE & 1));
	if (walk_peek(w, from + (uint64_t)((int64_t)ARCH_RA_OFF(rule->ra_off) * ARCH_RA_UNIT), &ra))
		return -1;
	ra = arch_code_address(&w->arch, ra);
	/* Not written as comparisons: the verifier would deduce bounds of ra and cfa from them,
	 * different ones in each round, and check every round anew. */
	wild = (cfa & 7) | ~(*sp - cfa) >> 63 | (ra - 1) >> KILN_FRAME_FLAG_SHIFT;
	asm volatile("" : "+r"(wild));
	if (wild)
		return -1;
	if (head & saved << KILN_HEAD_FLAGS) {
		if ((head & KILN_RULE_SAVED_FP << KILN_HEAD_FLAGS) &&
		    walk_peek(w, from + (uint64_t)((int64_t)rule->fp_off * 8), &fp))
			return -1;
		if (head & KILN_RULE_SAVED_EXTRA << KILN_HEAD_FLAGS) {
			if (walk_peek(w, from + (uint64_t)((int64_t)rule->extra_off * 8), &extra))
				return -1;
			w->regs.extra = extra;
		}
		if (head & KILN_RULE_SAVED_FP << KILN_HEAD_FLAGS)
			w->regs.fp = fp;
	}
	*pc = ra;
	*sp = cfa;
	return 0;
}

/* Combined with a pc: the frame word of a native frame that called another one. */
#define KILN_CALLER (((uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT) | KILN_FRAME_RETURN)

/* The frame word of the frame in w->regs. */
KILN_INLINE uint64_t walk_frame(const struct kiln_walk *w)
{
	return (w->exact ? KILN_CALLER & ~KILN_FRAME_RETURN : KILN_CALLER) |
	       (w->regs.pc & KILN_FRAME_PC_MASK);
}

/* Appends the frame word WORD. Returns non-zero if there is no room. */
KILN_INLINE int walk_put(struct kiln_walk *w, uint64_t word)
{
	uint64_t *words = env_words(w);
	uint32_t i = w->at + w->n;

	if (!words || w->n >= KILN_MAX_USER_WORDS)
		return -1;
	/* The compiler compares copies and would drop the mask; the verifier needs it. */
	asm volatile("" : "+r"(i));
	words[i & (KILN_RECORD_WORDS - 1)] = word;
	w->n++;
	return 0;
}

#include "runtime_frames.h"

/* ---- the whole walk -------------------------------------------------------------------------- */

/*
 * Starts a walk at w->regs. AT: the index of the first frame word. The walk may have MAX_FRAMES
 * frames of runtimes, and MAX_FRAMES native frames plus KILN_RUNTIME_CREDIT for each frame of a
 * runtime, because some interpreters call themselves for each frame.
 */
KILN_INLINE void walk_begin(struct kiln_walk *w, uint32_t at, uint32_t max_frames)
{
	w->window_len = 0;
	w->window_next = w->window_first > KILN_WINDOW_FIRST ? w->window_first : KILN_WINDOW_FIRST;
	w->at = at;
	w->n = 0;
	w->limit = w->max_frames = max_frames;
	w->runtime_frames = 0;
	w->runtime_id = 0;
	w->missing_said = 0;
	w->runtime_done = w->hide_native = w->full = w->stepped = w->doubt = 0;
	w->switches = w->parked = 0;
}

/*
 * Adapts the size of the first window to the bytes of stack from the leaf to w->regs, where the
 * walk has ended: the next walk on this CPU will need about as many.
 */
KILN_INLINE void walk_learn_window(struct kiln_walk *w)
{
	uint64_t bytes = w->regs.sp - w->leaf[ARCH_REG_SP];

	/* The walk has changed stacks, or the stack does not fit into a window. */
	if (bytes > KILN_WINDOW_WORDS * 8)
		return;
	w->window_first = ((w->window_first * 3 + (uint32_t)bytes) / 4 + 63) & ~63U;
}

/* The limit of w->n for usual steps: 0 at an exact frame, because walk_chunk()'s loop makes usual
 * steps from return addresses only. */
KILN_INLINE uint32_t walk_room(const struct kiln_walk *w)
{
	uint32_t n = w->limit < KILN_MAX_USER_WORDS ? w->limit : KILN_MAX_USER_WORDS;

	return w->exact ? 0 : n;
}

/* Forgets the cached rule of the frame in w->regs if a walker has made it for itself: it is of no
 * use to the native walk. */
KILN_INLINE void walk_forget_walkers_rule(struct kiln_walk *w)
{
	struct kiln_cache_entry *entry = env_cache(w, w->regs.pc - (w->exact ? 0 : 1));

	if (entry && entry->rule.kind == KILN_RULE_INVALID)
		entry->tag = 0;
}

/* Makes one step of any kind, or one call of the program's walker. Returns the same as
 * walk_chunk(). */
KILN_INLINE int walk_any_step(struct kiln_walk *w)
{
	int end = walk_step(w->slot);

	if (end == KILN_STEP_RUNTIME) {
		/* A runtime that the policy does not allow: its memory is never read. */
		if (!(w->runtimes >> (w->value & 31) & 1)) {
			walk_forget_walkers_rule(w);
			w->runtime_done = 1;
			return 0;
		}
#ifdef KILN_WALKER
		if (w->value == w->runtime_id) {
			walk_own(w);
			if (w->full)
				return KILN_END_DEPTH;
			if (!w->stepped)
				return 0;
			end = w->regs.pc ? 0 : KILN_END_ROOT;
		}
#endif
	}
	if (end)
		return end;
	return w->n >= w->limit || walk_put(w, walk_frame(w)) ? KILN_END_DEPTH : 0;
}

/*
 * Goes up to KILN_CHUNK_STEPS further. The word of the frame in w->regs has been appended already.
 * Returns 0 if the walk is to go on; the enum kiln_end with which the walk has ended; or
 * KILN_STEP_RUNTIME: walk_switch() has to be called. A function of its own, so that the verifier
 * need not follow each round of the longest walk.
 */
KILN_GLOBAL int walk_chunk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	uint64_t pc, sp, *words;
	uint32_t at, room;
	int end = KILN_END_NONE;

	if (!w)
		return KILN_END_BAD_READ;
	words = env_words(w);
	if (!words)
		return KILN_END_BAD_READ;
	pc = w->regs.pc;
	sp = w->regs.sp;
	at = w->at;
	/* The first step, from the leaf: its rule is looked up at the pc itself, those of all other
	 * frames at the byte before the return address. It is not in the loop, because the verifier
	 * would have to check both cases in every iteration. */
	if (w->exact && w->n < w->limit && w->n < KILN_MAX_USER_WORDS &&
	    !walk_usual_step(w, pc, 0, &pc, &sp)) {
		uint32_t i = at + w->n++;

		asm volatile("" : "+r"(i));
		words[i & (KILN_RECORD_WORDS - 1)] = KILN_CALLER | pc;
		w->leaf_called = w->leaf_valid;
		w->exact = w->leaf_valid = w->runtime_done = 0;
	}
	room = walk_room(w);
	for (int round = 0; round < KILN_CHUNK_STEPS; round++) {
		if (w->n < room && !walk_usual_step(w, pc - 1, 0, &pc, &sp)) {
			uint32_t i = at + w->n++;

			asm volatile("" : "+r"(i));
			words[i & (KILN_RECORD_WORDS - 1)] = KILN_CALLER | pc;
			w->leaf_called = w->runtime_done = 0;
			continue;
		}
		w->regs.pc = pc;
		w->regs.sp = sp;
		end = walk_any_step(w);
		if (end)
			return end;
		pc = w->regs.pc;
		sp = w->regs.sp;
		room = walk_room(w);
	}
	w->regs.pc = pc;
	w->regs.sp = sp;
	return KILN_END_NONE;
}

#ifndef __bpf__
/*
 * Walks from w->regs to the end of the stack. w->end is the enum kiln_end, w->n the number of
 * words. For the host, where at most one walker, KILN_WALKER, is compiled in. BPF programs have
 * walk_on() of switch.h.
 */
KILN_INLINE void walk_on(struct kiln_walk *w)
{
	int end = KILN_END_NONE;

	for (int i = 0;
	     i < KILN_CHUNKS + KILN_SWITCHES_MAX + 32 && (!end || end == KILN_STEP_RUNTIME); i++) {
		end = walk_chunk(w->slot);
		if (end == KILN_STEP_RUNTIME)
			(void)walk_switch(w->slot);
	}
	w->end = (uint32_t)(end ? end : KILN_END_DEPTH);
}
#endif
