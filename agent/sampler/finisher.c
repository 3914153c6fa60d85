/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's environment for bpf/unwind.h: mappings from the mapset, tables and slab from the
 * mapped BPF arrays, the stack from the record's dump. `current` is thread-local state of one call.
 */
#include "agent/sampler/finisher.h"

#include "agent/sampler/slab.h"
#include "bpf/unwind.h"

struct environment {
	const struct kernel_memory *memory;
	const struct mapset *mapset;
	const uint64_t *pages; /* as in struct kiln_resume */
	const uint8_t *dump;
	uint64_t dump_at;
	uint32_t dump_len;
	uint64_t *words;
	struct kiln_mapping mapping;  /* what env_mapping() returned last */
	struct kiln_cache_entry rule; /* a cache of one */
	struct kiln_walk walk;
};

static _Thread_local struct environment *current;

static inline struct kiln_walk *env_walk(uint32_t slot)
{
	return &current->walk;
}

static inline const struct kiln_mapping *env_mapping(uint32_t index)
{
	const struct mapset_range *range;

	if (index >= current->mapset->n)
		return NULL;
	range = &current->mapset->ranges[index];
	current->mapping = (struct kiln_mapping){
	    .start = range->start,
	    .end = range->end,
	    .bias = range->bias,
	    .image = mapset_range_elf(range) ? range->image->slot : 0,
	    .flags = mapset_range_flags(range),
	};
	return &current->mapping;
}

static inline const struct kiln_table *env_table(uint32_t image)
{
	return image < KILN_MAX_IMAGES ? &current->memory->tables[image] : NULL;
}

static inline const uint32_t *env_slot(uint32_t slot)
{
	const struct kernel_memory *memory = current->memory;

	return slot < memory->slab_slots && slab_is_backed(memory->slab_shards, slot)
		   ? memory->slab + (size_t)slot * 16
		   : NULL;
}

/* Where the byte at ADDRESS is in the dump, or a negative number when its page is not. */
static int64_t dump_offset(uint64_t address)
{
	uint64_t first_page = current->dump_at / KILN_PAGE, page = address / KILN_PAGE - first_page,
		 offset = address % KILN_PAGE;

	if (address < current->dump_at || page >= KILN_DUMP_PAGES ||
	    !(current->pages[page / 64] >> (page % 64) & 1))
		return -1;
	if (!page)
		return (int64_t)(address - current->dump_at);
	/* Skip the bytes of the pages below that were dumped. The first page is dumped from
	 * dump_at on only. */
	if (current->pages[0] & 1)
		offset += KILN_PAGE - current->dump_at % KILN_PAGE;
	for (uint64_t i = 0; i <= page / 64; i++) {
		uint64_t below = current->pages[i];

		if (i == 0)
			below &= ~1ULL;
		if (i == page / 64)
			below &= (1ULL << (page % 64)) - 1;
		offset += (uint64_t)__builtin_popcountll(below) * KILN_PAGE;
	}
	return (int64_t)offset;
}

static inline int env_read(void *dst, uint32_t len, uint64_t address)
{
	while (len > 0) {
		uint32_t part = (uint32_t)MIN(len, KILN_PAGE - address % KILN_PAGE);
		int64_t offset = dump_offset(address);

		if (offset < 0 || (uint64_t)offset + part > current->dump_len)
			return -1;
		memcpy(dst, current->dump + offset, part);
		dst = (uint8_t *)dst + part;
		address += part;
		len -= part;
	}
	return 0;
}

static inline struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	return &current->rule;
}

static inline struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

/* No runtime: a dump does not have its memory, which the process has changed since. */
static inline const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	return NULL;
}

static inline uint64_t *env_words(struct kiln_walk *w)
{
	return current->words;
}

static void start_walk(struct kiln_walk *w, const struct kiln_sample *record,
		       const struct kiln_resume *resume, const struct mapset *mapset)
{
	_Static_assert((int)ARCH_REGS <= (int)KILN_LEAF_REGS, "registers");
	*w = (struct kiln_walk){
	    .regs = resume->regs,
	    .tag = 1,
	    .count = mapset->n,
	    .runtimes = record->runtimes,
	    .exact = (record->flags & KILN_SAMPLE_FIRST_FRAME) != 0,
	    .leaf_valid = (record->flags & KILN_SAMPLE_FIRST_FRAME) != 0,
	};
	memcpy(w->leaf, resume->leaf, ARCH_REGS * sizeof(*w->leaf));
	arch_walk_init(&w->arch, resume->code_mask);
}

void finish_walk(const struct kernel_memory *memory, const struct mapset *mapset,
		 const struct kiln_sample *record, uint32_t max_depth, struct finish_result *ret)
{
	const uint64_t *words = record->words + record->n_kernel;
	const struct kiln_resume *resume = (const struct kiln_resume *)(words + record->n_user);
	struct environment env = {
	    .memory = memory,
	    .mapset = mapset,
	    .pages = resume->pages,
	    .dump = (const uint8_t *)(resume + 1),
	    .dump_at = (resume->regs.sp & ~7ULL) - KILN_RED_ZONE,
	    .dump_len = record->dump_len,
	    .words = ret->words,
	};
	const struct mapset_range *range;
	struct kiln_walk *w = &env.walk;

	current = &env;
	start_walk(w, record, resume, mapset);
	walk_begin(w, 0, MIN(max_depth, KILN_MAX_USER_FRAMES));
	ret->wanted = NULL;
	w->n = MIN(record->n_user, KILN_MAX_USER_WORDS);
	memcpy(ret->words, words, w->n * sizeof(*words));
	/* Each frame of a runtime raises the depth limit, here as in the BPF program. */
	for (uint32_t i = 0; i < w->n; i += kiln_frame_words(words[i])) {
		if (kiln_frame_runtime(words[i])) {
			w->runtime_frames++;
			w->limit += 2 + KILN_RUNTIME_CREDIT;
		} else if (KILN_FRAME_KIND(words[i]) == KILN_FRAME_MISSING) {
			w->missing_said |= 1U << kiln_missing_runtime(words[i]);
		}
	}
	/* The record's last frame is the one in w->regs, from which the walk goes on. */
	walk_on(w);
	ret->n = w->n;
	if (w->end == KILN_END_NO_TABLE) {
		ret->wanted_pc = w->regs.pc - (w->exact ? 0 : 1);
		range = mapset_find(mapset, ret->wanted_pc);
		ret->wanted = range ? range->image : NULL;
		ret->wanted_vaddr = range ? ret->wanted_pc - range->bias : 0;
	}
	ret->end = (enum kiln_end)w->end;
	current = NULL;
}
