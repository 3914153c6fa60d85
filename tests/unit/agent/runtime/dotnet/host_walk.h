/* SPDX-License-Identifier: Apache-2.0 */
/*
 * agent/runtime/dotnet/walker.h compiled for the host, over any struct target_memory: all of the
 * memory is one mapping of .NET's code. To be included by one file of a program.
 */
#pragma once

#include "agent/runtime/dotnet/dotnet.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#define KILN_WALKER dotnet_walk
#include "bpf/unwind.h"
#include "agent/runtime/dotnet/walker.h"
#pragma GCC diagnostic pop

static struct {
	const struct target_memory *memory;
	struct kiln_mapping mapping;
	struct kiln_runtime runtime;
	struct kiln_cache_entry rule; /* of one pc: the last */
	uint64_t words[KILN_RECORD_WORDS];
	uint64_t reads;
	struct kiln_walk walk;
} host;

/* What a table has in its first slot: the rules of enum kiln_builtin_rule. */
static const struct kiln_rule host_rules[4] = {{0},
					       {.kind = KILN_RULE_FP, .flags = KILN_RULE_GUESS}};

KILN_INLINE struct kiln_walk *env_walk(uint32_t slot)
{
	return &host.walk;
}

KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id)
{
	return id == KILN_RUNTIME_DOTNET ? &host.runtime : NULL;
}

KILN_INLINE uint64_t *env_words(struct kiln_walk *w)
{
	return host.words;
}

KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index)
{
	return index ? NULL : &host.mapping;
}

KILN_INLINE const struct kiln_table *env_table(uint32_t image)
{
	return NULL;
}

KILN_INLINE const uint32_t *env_slot(uint32_t slot)
{
	return slot ? NULL : (const uint32_t *)host_rules;
}

KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address)
{
	host.reads++;
	return target_read(host.memory, address, dst, len) < 0 ? -1 : 0;
}

KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr)
{
	return NULL;
}

KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc)
{
	return &host.rule;
}

/* Walks from the registers on; how many words there are. Memory is mapped from START to END. */
static uint32_t host_walk(const struct target_memory *memory, const struct kiln_runtime *runtime,
			  const struct kiln_regs *regs, uint64_t start, uint64_t end)
{
	struct kiln_walk *w = &host.walk;

	memset(w, 0, sizeof(*w));
	memset(&host.rule, 0, sizeof(host.rule));
	host.memory = memory;
	host.runtime = *runtime;
	host.reads = 0;
	host.mapping = (struct kiln_mapping){
	    .start = start,
	    .end = end,
	    .flags = KILN_MAPPING_JIT | KILN_MAPPING_CERTAIN |
		     KILN_RUNTIME_DOTNET << KILN_MAPPING_RUNTIME_SHIFT,
	};
	w->regs = *regs;
	w->leaf[ARCH_REG_PC] = regs->pc;
	w->leaf[ARCH_REG_SP] = regs->sp;
	w->leaf[ARCH_REG_FP] = regs->fp;
	w->leaf[ARCH_REG_EXTRA] = regs->extra;
	w->exact = w->leaf_valid = 1;
	w->tag = 1;
	w->count = 1;
	w->runtimes = UINT32_MAX;
	walk_begin(w, 0, KILN_MAX_USER_FRAMES);
	host.words[0] = walk_frame(w);
	w->n = 1;
	walk_on(w);
	return w->n;
}
