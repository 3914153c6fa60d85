/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The env_*() functions that unwind.h declares, implemented with the BPF maps. Include it after
 * unwind.h and maps.h.
 */
#pragma once

KILN_INLINE struct kiln_walk *env_walk(uint32_t slot)
{
	struct scratch *s = bpf_map_lookup_elem(&scratch, &slot);

	return s ? &s->walk : 0;
}

/* The record that the walk W is a part of. */
static __always_inline struct record *env_record(struct kiln_walk *w)
{
	struct record *r = &((struct scratch *)w)->record;

	/* Keeps the address in a register of its own: the record is too far from W for a short
	 * offset, and the compiler would compute the address of each member anew. */
	asm volatile("" : "+r"(r));
	return r;
}

KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index)
{
	uint32_t shard = index / 2 / KILN_MAPPING_SHARD_PAIRS,
		 key = index / 2 % KILN_MAPPING_SHARD_PAIRS;
	void *pairs = bpf_map_lookup_elem(&mapping_slab, &shard);
	struct mapping_pair *pair = pairs ? bpf_map_lookup_elem(pairs, &key) : 0;

	return pair ? &pair->m[index & 1] : 0;
}

KILN_INLINE const struct kiln_table *env_table(uint32_t image)
{
	return bpf_map_lookup_elem(&tables, &image);
}

KILN_INLINE const uint32_t *env_slot(uint32_t slot)
{
	uint32_t shard = slot / KILN_UNWIND_SHARD_SLOTS, key = slot % KILN_UNWIND_SHARD_SLOTS;
	void *slots = bpf_map_lookup_elem(&unwind_slab, &shard);
	struct slot *s = slots ? bpf_map_lookup_elem(slots, &key) : 0;

	return s ? s->words : 0;
}

KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address)
{
	if (len > KILN_WINDOW_WORDS * 8)
		return -1;
	return (int)bpf_probe_read_user(dst, len, (const void *)address);
}

KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	return (void *)((char *)((struct scratch *)w)->rules +
			KILN_CACHE_PLACE(pc + w->tag, KILN_CACHE_ENTRIES));
}

KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return (void *)((char *)((struct scratch *)w)->shared +
			KILN_CACHE_PLACE(vaddr + tag, KILN_SHARED_ENTRIES));
}

KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	struct kiln_runtime_key key = {.mapset = w->mapset, .id = id};

	return bpf_map_lookup_elem(&runtimes, &key);
}

KILN_INLINE uint64_t *env_words(struct kiln_walk *w)
{
	return env_record(w)->words;
}
