// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes the memory with PHP's compiled code. Opcache keeps that code in the memory that it
 * shares between processes. It begins with stubs, which handle exceptions and interrupts, and read
 * and write executor_globals. The address of executor_globals in the stubs' instructions tells the
 * memory from other code without a file, such as that of regular expressions (PCRE). Loop thread.
 */
#include "agent/runtime/php/php.h"

enum {
	STUBS_SEEN = 4096,    /* bytes at the start of the memory that are searched */
	GLOBALS_BYTES = 4096, /* about the size of executor_globals */
	HITS_MIN = 4,
};

static bool is_global(const struct php_process *p, uint64_t address)
{
	return address - p->globals < GLOBALS_BYTES;
}

enum jit_claim php_owns(void *state, const struct target_memory *memory, uint64_t start,
			uint64_t end)
{
	const struct php_process *p = state;
	uint8_t code[STUBS_SEEN];
	size_t size = MIN(end - start, (uint64_t)sizeof(code));
	unsigned int hits = 0;
	uint64_t whole;
	int32_t near;

	if (target_read(memory, start, code, size) < 0)
		return JIT_NONE;
	for (size_t i = 0; i + sizeof(whole) <= size && hits < HITS_MIN; i++) {
		memcpy(&whole, code + i, sizeof(whole));
		memcpy(&near, code + i, sizeof(near));
		/* An absolute address, or a distance from the next instruction. */
		hits += is_global(p, whole) ||
			is_global(p, start + i + sizeof(near) + (uint64_t)(int64_t)near);
	}
	return hits >= HITS_MIN ? JIT_CERTAIN : JIT_LIKELY;
}
