// SPDX-License-Identifier: Apache-2.0
/*
 * Memory that record.py recorded from processes of OTP 25, 27 and 29: the list of modules,
 * descriptions and code. The stacks are made here, of addresses of that code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "tests/unit/agent/runtime/beam/host_walk.h"
#include "tests/unit/agent/runtime/recorded_memory.h"

/* Addresses of forged memory. */
enum {
	STACK = 0x10000,     /* stack of an Erlang process */
	SCHEDULER = 0x40000, /* the scheduler's native stack, which holds its registers */
	IMAGE = 0x60000,     /* native code of the emulator */
	THREAD = 0x70000,
	DATA = 0x71000,
	MATCHING = 0x72000,
	PROCESS = 0x73000,
	PIECE = 0x8000,
};

struct machine {
	struct recorded_memory recorded;
	struct target_memory memory;
	struct beam_image image;
	struct beam_process process;
	const struct beam_module *swap;
	uint64_t inner, outer, helper; /* addresses of code */
	uint64_t scheduler;
};

static const char *const releases[] = {"25", "27", "29"};

static uint64_t function(struct machine *m, const char *name)
{
	struct beam_place place;
	uint8_t *text;

	assert_int_equal(beam_module_text(m->swap, &m->memory, &text), 0);
	assert_int_equal(beam_module_named(text, m->swap->symfile_size, name, &place), 0);
	free(text);
	return m->swap->base + place.start;
}

static void put_code(struct machine *m, uint64_t at, const void *bytes, size_t size)
{
	memcpy(recorded_memory_at(&m->recorded, at, size), bytes, size);
}

static struct machine *begin(const char *release)
{
	static const uint8_t call[] = {0xe8, 1, 2, 3, 4};
	struct machine *m = calloc(1, sizeof(*m));
	struct error err = {0};
	char path[256];
	char *line = NULL;
	size_t cap = 0;
	FILE *f;

	assert_non_null(m);
	m->scheduler = SCHEDULER;
	snprintf(path, sizeof(path), DATA_DIR "/%s.txt", release);
	f = fopen(path, "r");
	assert_non_null(f);
	while (getline(&line, &cap, f) > 0)
		if (!recorded_memory_parse(&m->recorded, line))
			m->process.descriptor = strtoull(line + strlen("descriptor "), NULL, 16);
	free(line);
	fclose(f);
	m->memory = recorded_memory_target(&m->recorded);
	m->process.image = &m->image;
	m->process.kernel.key = KILN_BEAM_NO_KEY;
	m->process.kernel.image_start = IMAGE;
	m->process.kernel.image_end = IMAGE + PIECE;
	assert_int_equal(beam_learn(&m->process, &m->memory, &err), 0);
	for (size_t i = 0; i < m->process.modules.n; i++)
		if (m->process.modules.v[i].base != m->process.modules.oldest.base)
			m->swap = &m->process.modules.v[i];
	assert_non_null(m->swap);
	m->inner = function(m, "beam_swap:inner_a/2");
	m->outer = function(m, "beam_swap:outer_a/1");
	m->helper = m->swap->base + 0x100000;
	recorded_memory_add(&m->recorded, STACK, PIECE);
	recorded_memory_add(&m->recorded, SCHEDULER, PIECE);
	recorded_memory_add(&m->recorded, IMAGE, PIECE);
	recorded_memory_add(&m->recorded, THREAD, PIECE);
	recorded_memory_add(&m->recorded, m->helper, PIECE);
	put_code(m, IMAGE + 0x100, call, sizeof(call));
	return m;
}

static void end(struct machine *m)
{
	recorded_memory_done(&m->recorded);
	beam_modules_done(&m->process.modules);
	free(m->process.kept_text);
	free(m);
}

static void what_is_learned(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
		struct machine *m = begin(releases[i]);
		const struct kiln_beam *k = &m->process.kernel;

		assert_true(m->process.ready);
		assert_int_equal(k->frame, i ? 0x40d0 : 0x4110);
		assert_int_equal(k->registers, i ? 0x40 : 0x80);
		assert_int_equal(k->data_registers, 0);
		assert_int_equal(k->process_stop, 0x58);
		assert_int_equal(k->frame_pointers, 0);
		assert_true(k->normal_exit > k->low && k->normal_exit < k->high);
		assert_true(k->main_end - k->main_start > 256);
		end(m);
	}
}

static int name_of(struct machine *m, uint64_t pc, uint32_t flags, struct symbol_result *ret)
{
	static char scratch[1024];
	uint64_t code[KILN_BEAM_CODE_WORDS];
	uint64_t words[2] = {
	    ((uint64_t)KILN_FRAME_RUNTIME(KILN_RUNTIME_BEAM) << KILN_FRAME_KIND_SHIFT) |
	    (uint64_t)flags << KILN_FRAME_FLAG_SHIFT | pc};

	if (target_read(&m->memory, pc - KILN_BEAM_CODE_BEFORE, code, sizeof(code)) == 0)
		words[1] = kiln_beam_cookie(code);
	return beam_ops.symbolize(&m->process, &m->memory, words, scratch, sizeof(scratch), ret);
}

static const char *base_name(const char *file)
{
	return strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
}

static void functions_have_names_and_lines(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
		struct machine *m = begin(releases[i]);
		struct symbol_result got;

		assert_int_equal(name_of(m, m->inner, 0, &got), 0);
		assert_string_equal(got.symbols[0].name, "beam_swap:inner_a/2");
		assert_string_equal(base_name(got.symbols[0].file), "beam_swap.erl");
		assert_in_range(got.symbols[0].line, 11, 12);
		assert_int_equal(name_of(m, m->outer + 60, KILN_BEAM_RETURN, &got), 0);
		assert_string_equal(got.symbols[0].name, "beam_swap:outer_a/1");
		assert_in_range(got.symbols[0].line, 14, 17);
		/*
		 * When an error is raised, a function's address is where a return address would be.
		 */
		assert_int_equal(name_of(m, m->outer, KILN_BEAM_RETURN, &got), 0);
		assert_string_equal(got.symbols[0].name, "beam_swap:outer_a/1");
		assert_in_range(got.symbols[0].line, 14, 17);
		assert_int_equal(name_of(m, m->process.kernel.main_start + 64, 0, &got), 0);
		assert_string_equal(got.symbols[0].name, "global::process_main");
		assert_string_equal(got.symbols[0].file, "");
		assert_true(name_of(m, m->helper + 64, 0, &got) < 0);
		end(m);
	}
}

static void other_code_in_its_place_has_no_name(void **state)
{
	struct machine *m = begin("27");
	struct target_memory *memory = &m->memory;
	struct symbol_result got;
	uint64_t code[KILN_BEAM_CODE_WORDS], words[2] = {m->inner};
	char scratch[256];

	assert_int_equal(target_read(memory, m->inner - 16, code, sizeof(code)), 0);
	words[1] = kiln_beam_cookie(code);
	assert_int_equal(
	    beam_ops.symbolize(&m->process, memory, words, scratch, sizeof(scratch), &got), 0);
	recorded_memory_put(&m->recorded, m->inner - 8, 1);
	assert_int_equal(
	    beam_ops.symbolize(&m->process, memory, words, scratch, sizeof(scratch), &got),
	    -EFAULT);
	end(m);
}

static void a_module_that_was_purged_has_no_names(void **state)
{
	struct machine *m = begin("27");
	struct symbol_result got;

	/* malloc() wrote its own words into the freed memory. */
	recorded_memory_put(&m->recorded, m->swap->symfile, 0);
	recorded_memory_put(&m->recorded, m->swap->symfile + 8, 0);
	assert_true(name_of(m, m->inner, 0, &got) < 0);
	end(m);
}

static void of_two_in_one_place_the_newer_one_counts(void **state)
{
	struct machine *m = begin("25");
	uint64_t first = recorded_memory_word(&m->recorded, m->process.descriptor + 16),
		 newer = THREAD + 0x4000, text = THREAD + 0x5000;
	struct symbol_result got;
	uint8_t bytes[PIECE];

	/* The newer module begins inside of the older one's range. */
	assert_true(m->swap->symfile_size < sizeof(bytes) / 4);
	assert_int_equal(target_read(&m->memory, m->swap->symfile, bytes, m->swap->symfile_size),
			 0);
	put_code(m, text, bytes, m->swap->symfile_size);
	recorded_memory_put(&m->recorded, text + 8, m->swap->base + 64);
	recorded_memory_put(&m->recorded, newer, first);
	recorded_memory_put(&m->recorded, newer + 16, text);
	recorded_memory_put(&m->recorded, newer + 24, m->swap->symfile_size);
	recorded_memory_put(&m->recorded, m->process.descriptor + 16, newer);
	assert_int_equal(name_of(m, m->inner + 64, 0, &got), 0);
	assert_string_equal(got.symbols[0].name, "beam_swap:inner_a/2");
	assert_int_equal(m->process.modules.n, 2);
	end(m);
}

static void the_list_is_found_by_what_it_looks_like(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
		struct machine *m = begin(releases[i]);
		uint8_t bytes[64] = {1, 0, 0, 0};
		uint64_t at = 0x123400;

		assert_int_equal(target_read(&m->memory, m->process.descriptor, bytes + 32, 24), 0);
		assert_int_equal(beam_find_descriptor(&m->memory, at, bytes, sizeof(bytes)),
				 at + 32);
		bytes[32] = 2;
		assert_int_equal(beam_find_descriptor(&m->memory, at, bytes, sizeof(bytes)), 0);
		end(m);
	}
}

/* ---- stacks -----------------------------------------------------------------------------------
 */

static void put_stack(struct machine *m, uint64_t at, const uint64_t *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		recorded_memory_put(&m->recorded, at + i * 8, words[i]);
}

/* Calls the walker for a native frame at PC with the stack pointer SP. */
static struct kiln_walk *walk(struct machine *m, uint64_t pc, uint64_t sp, uint64_t fp, bool exact)
{
	const struct kiln_beam *k = &m->process.kernel;
	uint64_t start = MIN(m->swap->base, k->main_start & ~4095ULL), entry, end;
	struct kiln_walk *w = &host.walk;

	end = MAX(m->helper + PIECE, k->main_end);
	host_begin(&m->memory, k, start, end);
	entry = m->scheduler + k->frame + 56;
	recorded_memory_put(&m->recorded, entry, IMAGE + 0x105);
	w->regs = (struct kiln_regs){pc, sp, fp, m->scheduler + k->registers};
	w->exact = w->leaf_valid = exact;
	w->thread_pointer = THREAD;
	w->leaf[BEAM_LEAF_PROCESS] = PROCESS;
	(void)beam_walk(0);
	return w;
}

static void assert_frames(const uint64_t *want, uint32_t n)
{
	assert_int_equal(host.walk.n, 2 * n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(host.words[2 * i] & KILN_FRAME_PC_MASK, want[i]);
}

static void a_leaf_has_all_its_callers_and_the_scheduler(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(releases); i++) {
		struct machine *m = begin(releases[i]);
		uint64_t ret = (m->outer & ~3ULL) + 64, out = m->process.kernel.normal_exit;
		const uint64_t stack[] = {ret, 0x1f, ret + 4, 0x7fff0002, 0x2b, ret + 8, out};
		const uint64_t want[] = {m->inner + 40, ret, ret + 4, ret + 8};
		struct kiln_walk *w;

		put_stack(m, STACK, stack, ARRAY_SIZE(stack));
		/* The code of normal_exit was not recorded, but the mapping covers its address. */
		w = walk(m, m->inner + 40, STACK, 0, true);
		assert_frames(want, ARRAY_SIZE(want));
		assert_int_equal(w->regs.pc, IMAGE + 0x105);
		assert_int_equal(w->regs.sp,
				 SCHEDULER + w->runtime_frames * 0 + m->process.kernel.frame + 64);
		assert_true(w->hide_native && w->stepped);
		end(m);
	}
}

static void variables_that_are_not_set_yet_are_no_callers(void **state)
{
	static const uint8_t allocate[] = {0x48, 0x83, 0xec, 0x10}; /* sub $16,%rsp */
	struct machine *m = begin("27");
	uint64_t ret = (m->outer & ~3ULL) + 64;
	const uint64_t stack[] = {ret + 16, ret + 20, ret, m->process.kernel.normal_exit};
	const uint64_t want[] = {m->helper + 0x204, ret},
		       all[] = {m->helper + 0x304, ret + 16, ret + 20, ret};

	put_stack(m, STACK, stack, ARRAY_SIZE(stack));
	put_code(m, m->helper + 0x200, allocate, sizeof(allocate));
	walk(m, m->helper + 0x204, STACK, 0, true);
	assert_frames(want, ARRAY_SIZE(want));
	walk(m, m->helper + 0x304, STACK, 0, true);
	assert_frames(all, ARRAY_SIZE(all));
	end(m);
}

static void the_erlang_caller_of_c_by_rbp(void **state)
{
	/* mov %rsp,%rbp; mov %r14d,120(%r13); lea -64(%rbx),%rsp; vzeroupper; call *%rcx */
	static const uint8_t code[] = {0x48, 0x89, 0xe5, 0x45, 0x89, 0x75, 0x78, 0x48,
				       0x8d, 0x63, 0xc0, 0xc5, 0xf8, 0x77, 0xff, 0xd1};
	/* The return address of a helper need not be aligned. */
	static const uint8_t call[] = {0xe8, 1, 2, 3, 4};
	struct machine *m = begin("29");
	uint64_t pc = m->helper + 0x400 + sizeof(code), ret = (m->outer & ~3ULL) + 64,
		 odd = m->helper + 0x505;
	const uint64_t stack[] = {odd, 0x0f, ret, m->process.kernel.normal_exit};
	const uint64_t want[] = {pc, odd, ret};

	put_code(m, m->helper + 0x400, code, sizeof(code));
	put_code(m, m->helper + 0x500, call, sizeof(call));
	put_stack(m, STACK, stack, ARRAY_SIZE(stack));
	walk(m, pc, SCHEDULER, STACK, false);
	assert_frames(want, ARRAY_SIZE(want));
	end(m);
}

static void the_erlang_caller_of_c_by_the_process(void **state)
{
	/* vmovdqu %xmm0,80(%r13); lea -64(%rbx),%rsp; vzeroupper; call *%rcx */
	static const uint8_t code[] = {0xc4, 0xc1, 0x7a, 0x7f, 0x45, 0x50, 0x48, 0x8d,
				       0x63, 0xc0, 0xc5, 0xf8, 0x77, 0xff, 0xd1};
	static const uint8_t call[] = {0xe8, 1, 2, 3, 4};
	struct machine *m = begin("29");
	uint64_t pc = m->helper + 0x400 + sizeof(code), ret = m->helper + 0x600;
	const uint64_t stack[] = {ret, m->process.kernel.normal_exit};
	const uint64_t want[] = {pc, ret};

	put_code(m, m->helper + 0x400, code, sizeof(code));
	put_code(m, ret - sizeof(call), call, sizeof(call));
	put_stack(m, STACK, stack, ARRAY_SIZE(stack));
	recorded_memory_put(&m->recorded, PROCESS + m->process.kernel.process_stop, STACK);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_process, PROCESS);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_matching, MATCHING);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_registers, SCHEDULER);
	/* The thread's first slots have values of other libraries. */
	recorded_memory_put(&m->recorded, THREAD + BEAM_SPECIFIC + 8, MATCHING);
	recorded_memory_put(&m->recorded, THREAD + BEAM_SPECIFIC + 4 * BEAM_PAIR + 8, DATA);
	walk(m, pc, SCHEDULER, 0x8888, false);
	assert_frames(want, ARRAY_SIZE(want));
	end(m);
}

static void while_ets_matches_the_process_is_found_on_the_stack(void **state)
{
	static const uint8_t code[] = {0x48, 0x8d, 0x63, 0xc0, 0xff, 0xd1};
	static const uint8_t call[] = {0xe8, 1, 2, 3, 4};
	struct machine *m = begin("29");
	uint64_t pc = m->helper + 0x400 + sizeof(code), ret = m->helper + 0x600;
	const uint64_t stack[] = {ret, m->process.kernel.normal_exit}, want[] = {pc, ret};
	uint64_t below = SCHEDULER + 0x1000; /* leaves memory below that can be read */

	put_code(m, m->helper + 0x400, code, sizeof(code));
	put_code(m, ret - sizeof(call), call, sizeof(call));
	put_stack(m, STACK, stack, ARRAY_SIZE(stack));
	recorded_memory_put(&m->recorded, PROCESS + m->process.kernel.process_stop, STACK);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_process, MATCHING);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_matching, MATCHING);
	recorded_memory_put(&m->recorded, DATA + m->process.kernel.data_registers, below);
	recorded_memory_put(&m->recorded, THREAD + BEAM_SPECIFIC + 4 * BEAM_PAIR + 8, DATA);
	recorded_memory_put(&m->recorded, below - 16, MATCHING);
	recorded_memory_put(&m->recorded, below - 40, PROCESS);
	m->scheduler = below;
	walk(m, pc, below, 0x8888, false);
	assert_frames(want, ARRAY_SIZE(want));
	end(m);
}

static void a_stack_without_an_end_says_so(void **state)
{
	struct machine *m = begin("25");
	struct kiln_walk *w;

	for (uint64_t at = STACK; at < STACK + PIECE; at += 8)
		recorded_memory_put(&m->recorded, at, 15);
	w = walk(m, m->inner + 40, STACK, 0, true);
	assert_int_equal(w->n, 3);
	assert_int_equal(host.words[2] >> KILN_FRAME_KIND_SHIFT, KILN_FRAME_MISSING);
	assert_int_equal(kiln_missing_reason(host.words[2]), KILN_MISSING_BROKEN);
	assert_true(host.reads < 4096);
	end(m);
}

static void the_scheduler_itself_runs_no_erlang(void **state)
{
	struct machine *m = begin("27");
	uint64_t pc = m->process.kernel.main_start + 64;
	struct kiln_walk *w = walk(m, pc, SCHEDULER, STACK, false);

	assert_frames(&pc, 1);
	assert_int_equal(w->regs.pc, IMAGE + 0x105);
	end(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_learned),
	    cmocka_unit_test(functions_have_names_and_lines),
	    cmocka_unit_test(other_code_in_its_place_has_no_name),
	    cmocka_unit_test(a_module_that_was_purged_has_no_names),
	    cmocka_unit_test(of_two_in_one_place_the_newer_one_counts),
	    cmocka_unit_test(the_list_is_found_by_what_it_looks_like),
	    cmocka_unit_test(a_leaf_has_all_its_callers_and_the_scheduler),
	    cmocka_unit_test(variables_that_are_not_set_yet_are_no_callers),
	    cmocka_unit_test(the_erlang_caller_of_c_by_rbp),
	    cmocka_unit_test(the_erlang_caller_of_c_by_the_process),
	    cmocka_unit_test(while_ets_matches_the_process_is_found_on_the_stack),
	    cmocka_unit_test(a_stack_without_an_end_says_so),
	    cmocka_unit_test(the_scheduler_itself_runs_no_erlang),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
