// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a PHP process, recorded or forged (the text format of record.c): walking it, from
 * memory and from registers, and naming its frames do bounded work, and names end within their
 * buffer.
 */
#include "tests/unit/agent/runtime/php/host_walk.h"
#include "tests/unit/agent/runtime/php/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 16 * PHP_DEPTH_MAX, NAMED_MAX = 64 };

static void check(bool good)
{
	if (!good)
		abort();
}

/* TEXT is a constant, or ends within SCRATCH. */
static void check_text(const char *text, const char *scratch, size_t size)
{
	if (text >= scratch && text < scratch + size)
		check(memchr(text, 0, size - (size_t)(text - scratch)));
	else
		check(strlen(text) < 32);
}

static void name_frames(struct recording *r, void *state, uint32_t n)
{
	struct target_memory memory = recorded_memory_target(&r->memory);

	check(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
	check(host.reads <= READS_MAX);
	for (uint32_t i = 0, named = 0; i < n && named < NAMED_MAX;
	     i += kiln_frame_words(host.words[i]), named++) {
		struct symbol_result got = {0};
		char scratch[256];

		if (!kiln_frame_runtime(host.words[i]) ||
		    php_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch), &got) <
			0)
			continue;
		check(got.n == 1);
		check_text(got.symbols[0].name, scratch, sizeof(scratch));
		check_text(got.symbols[0].file, scratch, sizeof(scratch));
	}
}

/* Visits all kinds of native frame with registers that point into recorded memory. */
static void visit(struct recording *r, const struct kiln_runtime *kernel)
{
	const struct kiln_php *k = (const struct kiln_php *)kernel->data;
	struct target_memory memory = recorded_memory_target(&r->memory);
	const uint64_t pcs[] = {k->loop + k->entered, 0x1000, 0x1010, 0x1020, 0x2000, k->loop};

	host_begin(&memory, kernel);
	host.walk.leaf_valid = host.walk.exact = 1;
	host.walk.thread_pointer = r->memory.pieces[0].start;
	host.walk.map_start = 0x1000;
	host.walk.map_end = 0x3000;
	host.walk.map_flags = KILN_MAPPING_JIT | KILN_MAPPING_CERTAIN;
	for (uint32_t i = 0; i < ARCH_REGS; i++)
		host.walk.leaf[i] = r->memory.pieces[i % r->memory.n_pieces].start;
	host.walk.regs.sp = r->memory.pieces[0].start;
	host.walk.regs.fp = r->memory.pieces[r->memory.n_pieces - 1].start;
	for (size_t i = 0; i < ARRAY_SIZE(pcs); i++) {
		host_visit(pcs[i]);
		host.walk.map_flags ^= KILN_MAPPING_CERTAIN;
	}
	check(host.reads <= READS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct recording *r = recording_parse(f);
	struct target_memory memory;
	struct runtime_target target;
	struct kiln_runtime kernel;
	struct kiln_php *k = (struct kiln_php *)kernel.data;
	void *state;

	if (f)
		fclose(f);
	if (!r)
		return 0;
	memory = recorded_memory_target(&r->memory);
	target = recording_target(r);
	if (php_ops.attach(&r->image.base, &target, &kernel, &state, NULL) == 0) {
		name_frames(r, state, host_walk(&memory, &kernel));
		k->root = 0x1000;
		k->resume = 0x1010;
		k->fiber = 0x1020;
		k->root_size = k->resume_size = k->fiber_size = 0x10;
		k->flags = PHP_HAS_REGISTERS;
		if (r->memory.n_pieces)
			visit(r, &kernel);
		php_ops.detach(state);
	}
	recording_free(r);
	return 0;
}
