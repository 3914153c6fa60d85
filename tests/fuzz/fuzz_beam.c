// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a BEAM process, recorded or forged (the text format of record.py): reading the
 * process's layout, walking and naming do bounded work, and names end within their buffer.
 */
#include "tests/unit/agent/runtime/beam/host_walk.h"
#include "tests/unit/agent/runtime/recorded_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 1 << 16, NAMED_MAX = 64 };

static void check(bool good)
{
	if (!good)
		abort();
}

static void name_frames(struct beam_process *p, const struct target_memory *memory, uint32_t n)
{
	for (uint32_t i = 0, named = 0; i < n && named < NAMED_MAX;
	     i += kiln_frame_words(host.words[i]), named++) {
		struct symbol_result got = {0};
		char *scratch;

		if (!kiln_frame_runtime(host.words[i]))
			continue;
		scratch = malloc(64);
		if (scratch &&
		    beam_ops.symbolize(p, memory, host.words + i, scratch, 64, &got) == 0) {
			check(got.n == 1);
			check(strlen(got.symbols[0].name) < 64 && strlen(got.symbols[0].file) < 64);
		}
		free(scratch);
	}
}

/*
 * Walks from each recorded piece: as code that runs now, and as the Erlang code that C code returns
 * to.
 */
static void walk(struct beam_process *p, const struct recorded_memory *r,
		 const struct target_memory *memory)
{
	for (size_t i = 0; i < r->n_pieces; i++)
		for (unsigned int how = 0; how < 4; how++) {
			const struct recorded_piece *stack = &r->pieces[(i + 1) % r->n_pieces];
			struct kiln_walk *w = &host.walk;

			host_begin(memory, &p->kernel, 4096, 1ULL << 47);
			w->regs.pc = r->pieces[i].start + r->pieces[i].size / 2;
			w->regs.sp = stack->start & ~7ULL;
			w->regs.fp = w->regs.sp;
			w->regs.extra = w->regs.sp + (how & 1 ? p->kernel.registers : 64);
			w->exact = w->leaf_valid = how >> 1;
			w->leaf[BEAM_LEAF_PROCESS] = stack->start;
			w->thread_pointer = stack->start;
			(void)beam_walk(0);
			check(w->n <= KILN_MAX_USER_WORDS);
			check(host.reads <= READS_MAX);
			name_frames(p, memory, w->n);
			if (p->kernel.key < KILN_BEAM_KEYS)
				(void)beam_dirty(0);
		}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct recorded_memory *r = calloc(1, sizeof(*r));
	struct beam_image image = {0};
	struct beam_process p = {.image = &image, .kernel = {.high = UINT64_MAX, .key = 4}};
	struct target_memory memory;
	struct error err = {0};
	char *line = NULL;
	size_t cap = 0;

	check(r);
	while (f && getline(&line, &cap, f) > 0)
		if (!recorded_memory_parse(r, line) && strncmp(line, "descriptor ", 11) == 0)
			p.descriptor = strtoull(line + 11, NULL, 16);
	memory = recorded_memory_target(r);
	for (size_t i = 0; i < r->n_pieces; i++)
		(void)beam_find_descriptor(&memory, r->pieces[i].start, r->pieces[i].bytes,
					   r->pieces[i].size);
	if (beam_learn(&p, &memory, &err) == 0)
		check(p.ready);
	walk(&p, r, &memory);
	free(line);
	if (f)
		fclose(f);
	recorded_memory_done(r);
	free(r);
	beam_modules_done(&p.modules);
	free(p.kept_text);
	return 0;
}
