/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a walk reads: the stack, through a window; and the rule for a pc, from the cache, else from
 * the table of the mapping's image. A part of unwind.h.
 */
#pragma once

#include "walk_state.h"

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
