/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What bpf/env.h is in the kernel, on the host: a walker reads any struct target_memory, and finds
 * no mappings, tables or rules. To be included behind bpf/unwind.h and the walker, by one file of a
 * program.
 */
#pragma once

static struct {
	const struct target_memory *memory;
	uint64_t words[KILN_RECORD_WORDS];
	uint64_t reads;
	struct kiln_walk walk;
} host;

KILN_INLINE struct kiln_walk *env_walk(uint32_t slot)
{
	(void)slot;
	return &host.walk;
}

KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	(void)id;
	return &w->runtime;
}

KILN_INLINE uint64_t *env_words(struct kiln_walk *w)
{
	(void)w;
	return host.words;
}

KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index)
{
	(void)index;
	return NULL;
}

KILN_INLINE const struct kiln_table *env_table(uint32_t image)
{
	(void)image;
	return NULL;
}

KILN_INLINE const uint32_t *env_slot(uint32_t slot)
{
	(void)slot;
	return NULL;
}

KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address)
{
	host.reads++;
	return target_read(host.memory, address, dst, len) < 0 ? -1 : 0;
}

KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	(void)w;
	(void)tag;
	(void)vaddr;
	return NULL;
}

KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	(void)w;
	(void)pc;
	return NULL;
}
