/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/php/walker.h compiled for the host, over any struct target_memory. Only PHP's own
 * frames are walked: the native ones are all of the interpreter's loop.
 */
#pragma once

#include "agent/runtime/php/php.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER php_walk
#include "bpf/unwind.h"

#include "agent/runtime/php/walker.h"
#pragma GCC diagnostic pop

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

static void host_begin(const struct target_memory *memory, const struct kiln_runtime *runtime)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	host.memory = memory;
	host.reads = 0;
	w->runtimes = ~0U;
	w->mapset = 1;
	w->runtime = *runtime;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	w->runtime_id = KILN_RUNTIME_PHP;
}

/* What a native frame at PC has: as php_walk(). */
static void host_visit(uint64_t pc)
{
	struct kiln_walk *w = &host.walk;

	w->regs.pc = pc;
	w->hide_native = w->stepped = 0;
	(void)php_walk(0);
}

/*
 * The PHP frames of a process: two words each, in host.words. Returns the number of words; a
 * KILN_FRAME_MISSING is one.
 */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime)
{
	const struct kiln_php *k = (const struct kiln_php *)runtime->data;
	struct kiln_walk *w = &host.walk;

	host_begin(memory, runtime);
	/* One native frame after the other, until there is nothing more for them. */
	for (int i = 0; i < 2 * KILN_MAX_USER_FRAMES; i++) {
		uint32_t n = w->n;

		host_visit(k->loop + k->entered + 64);
		if (w->n == n || w->full)
			break;
	}
	return w->n;
}
