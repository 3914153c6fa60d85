// SPDX-License-Identifier: Apache-2.0
/* Each place in a method's life: before its frame is there, while it is, and after. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/dotnet/host_walk.h"
#include "tests/unit/agent/runtime/dotnet/small.h"

enum { CALLER_FP = 0x1234, CALLER_EXTRA = 0x5678, CALLED_FROM = SMALL_TINY + 8, READS_MAX = 4096 };

static struct small small;
static struct target_memory memory;

static struct kiln_runtime attach(void)
{
	struct runtime_target target = small_target(&small);
	struct kiln_runtime kernel = {0};
	struct error err = {0};
	void *state;

	memory = target.memory;
	assert_int_equal(dotnet_ops.attach(&small.image.base, &target, &kernel, &state, &err), 0);
	dotnet_ops.detach(state);
	return kernel;
}

/*
 * From PC, the stack pointer SKIP bytes below where the return address into TINY is, rbp and rbx as
 * given. The leaf's word and TINY's have to come, and nothing else.
 */
static void check_step(uint64_t pc, uint64_t skip, uint64_t fp, uint64_t extra)
{
	struct kiln_runtime kernel = attach();
	struct kiln_regs regs = {.pc = pc, .sp = SMALL_STACK - skip, .fp = fp, .extra = extra};
	uint32_t n;

	small_word(&small, SMALL_STACK, CALLED_FROM);
	small_word(&small, SMALL_STACK + 8, 0);
	n = host_walk(&memory, &kernel, &regs, SMALL_BASE, SMALL_STUBS + 0x1000);
	if (n != 4 || host.walk.end != KILN_END_ROOT)
		fail_msg("pc %#llx: %u words, end %u", (unsigned long long)pc, n, host.walk.end);
	assert_int_equal(host.words[0] & KILN_FRAME_PC_MASK, pc);
	assert_int_equal(host.words[2] & KILN_FRAME_PC_MASK, CALLED_FROM);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[2]), KILN_DOTNET_JIT | KILN_DOTNET_RETURN);
	assert_int_equal(KILN_DOTNET_DISTANCE(host.words[3]), 8);
	assert_int_equal(host.walk.regs.fp, CALLER_FP);
	assert_int_equal(host.walk.regs.extra, CALLER_EXTRA);
}

static void each_instruction_of_a_method_leads_to_its_caller(void **unused)
{
	small_init(&small);
	small_word(&small, SMALL_STACK - 8, CALLER_FP);
	small_word(&small, SMALL_STACK - 16, CALLER_EXTRA);
	/* push rbp; push rbx; sub */
	check_step(SMALL_TOTAL, 0, CALLER_FP, CALLER_EXTRA);
	check_step(SMALL_TOTAL + 1, 8, CALLER_FP, CALLER_EXTRA);
	check_step(SMALL_TOTAL + 2, 16, 1, CALLER_EXTRA);
	check_step(SMALL_TOTAL + 6, 48, 1, 2);
	check_step(SMALL_TOTAL + 0x50, 48, 1, 2);
	/* add; pop rbx; pop rbp; ret */
	check_step(SMALL_TOTAL_EPILOGUE, 48, 1, 2);
	check_step(SMALL_TOTAL_EPILOGUE + 4, 16, 1, 2);
	check_step(SMALL_TOTAL_EPILOGUE + 5, 8, 1, CALLER_EXTRA);
	check_step(SMALL_TOTAL_EPILOGUE + 6, 0, CALLER_FP, CALLER_EXTRA);
	/* A leaf that has no frame at all. */
	check_step(SMALL_TINY + 4, 0, CALLER_FP, CALLER_EXTRA);
}

static void a_frame_that_rbp_leads_to_is_left_by_it(void **unused)
{
	small_init(&small);
	small_word(&small, SMALL_STACK - 8, CALLER_FP);
	/* rsp is anywhere below: memory was taken from the stack. */
	check_step(SMALL_MADE + 0x40, 0x300, SMALL_STACK - 8 - 0x100 + 0x20, CALLER_EXTRA);
	/* Before lea. */
	check_step(SMALL_MADE + 8, 0x108, 7, CALLER_EXTRA);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[0]), KILN_DOTNET_JIT);
}

static void code_of_an_image_is_left_by_its_own_table(void **unused)
{
	small_init(&small);
	small_word(&small, SMALL_STACK - 8, CALLER_FP);
	check_step(SMALL_AHEAD, 0, CALLER_FP, CALLER_EXTRA);
	check_step(SMALL_AHEAD + 0x20, 8, 1, CALLER_EXTRA);
	check_step(SMALL_AHEAD_HANDLER + 0x20, 8, 1, CALLER_EXTRA);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[0]), KILN_DOTNET_R2R);
}

static void a_stub_has_its_return_address_at_the_stack_pointer_or_above(void **unused)
{
	small_init(&small);
	check_step(SMALL_STUBS + 0x10, 0, CALLER_FP, CALLER_EXTRA);
	small_word(&small, SMALL_STACK - 8, 3);
	check_step(SMALL_STUBS + 0x10, 8, CALLER_FP, CALLER_EXTRA);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[0]), KILN_DOTNET_STUB);
}

/* Only methods that can be unloaded need a cookie: their memory may hold another one later. */
static void code_that_may_be_unloaded_has_a_cookie(void **unused)
{
	small_init(&small);
	small_word(&small, SMALL_STACK - 8, CALLER_FP);
	small_word(&small, SMALL_STACK - 16, CALLER_EXTRA);
	check_step(SMALL_TOTAL + 0x50, 48, 1, 2);
	assert_int_equal(KILN_DOTNET_COOKIE(host.words[1]), KILN_DOTNET_STAYS);
	small_heap_flags(&small, KILN_DOTNET_IS_HEAP | KILN_DOTNET_IS_COLLECTIBLE);
	check_step(SMALL_TOTAL + 0x50, 48, 1, 2);
	assert_int_not_equal(KILN_DOTNET_COOKIE(host.words[1]), KILN_DOTNET_STAYS);
}

/* Of a large method, and of the map's words in both forms. */
static void a_method_is_found_from_far_behind_its_beginning(void **unused)
{
	struct kiln_runtime kernel;
	uint32_t pointer = 0x4400 + 9, size = 0x3f00;

	small_init(&small);
	small_word(&small, SMALL_STACK - 8, CALLER_FP);
	kernel = attach();
	host.memory = &memory;
	memset(&host.walk, 0, sizeof(host.walk));
	host.walk.runtime = kernel;
	assert_int_equal(dotnet_method_start(0, 0x31000, 0x4100 + size - 0x200), 0);
	assert_int_equal(host.walk.value, 0x4100);
	/* The byte before it is of the method before. */
	assert_int_equal(dotnet_method_start(0, 0x31000, 0x40ff), 0);
	assert_int_equal(host.walk.value, SMALL_TINY - SMALL_HEAP);
	assert_int_equal(dotnet_method_start(0, 0x31000, 0xff), -1);
	/* From 10 on: words that have the distance. */
	small_put(&small, 0x31000 + 0x50 * 4, &pointer, sizeof(pointer));
	assert_int_equal(dotnet_method_start(0, 0x31000, 0x5023), 0);
	assert_int_equal(host.walk.value, 0x4400);
	assert_int_equal(dotnet_method_start(0, 0x31000, 0x51ff), 0);
	assert_int_equal(host.walk.value, 0x4400);
}

/* Any word may be a lie: the walk ends, and reads no more than it may. */
static void lies_cost_a_bounded_number_of_reads(void **unused)
{
	static const uint64_t lies[] = {0, 1, ~0ULL, SMALL_BASE, 0x11000, 0x7f0000000000, 0x20100};
	struct kiln_runtime kernel;

	for (uint64_t at = SMALL_BASE; at < SMALL_BASE + SMALL_BYTES; at += 8)
		for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
			struct kiln_regs regs = {
			    .pc = SMALL_TOTAL + 0x50, .sp = SMALL_STACK - 48, .fp = SMALL_STACK};
			uint64_t was;

			if (at == SMALL_BASE) {
				small_init(&small);
				kernel = attach();
				small_word(&small, SMALL_STACK, CALLED_FROM);
			}
			memcpy(&was, small.bytes + (at - SMALL_BASE), sizeof(was));
			if (!was && at % 0x100)
				continue;
			small_word(&small, at, lies[i]);
			(void)host_walk(&memory, &kernel, &regs, SMALL_BASE, SMALL_STUBS);
			if (host.reads > READS_MAX)
				fail_msg("%#llx: %llu reads", (unsigned long long)at,
					 (unsigned long long)host.reads);
			small_word(&small, at, was);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_instruction_of_a_method_leads_to_its_caller),
	    cmocka_unit_test(a_frame_that_rbp_leads_to_is_left_by_it),
	    cmocka_unit_test(code_of_an_image_is_left_by_its_own_table),
	    cmocka_unit_test(a_stub_has_its_return_address_at_the_stack_pointer_or_above),
	    cmocka_unit_test(code_that_may_be_unloaded_has_a_cookie),
	    cmocka_unit_test(a_method_is_found_from_far_behind_its_beginning),
	    cmocka_unit_test(lies_cost_a_bounded_number_of_reads),
	};

	return cmocka_run_group_tests_name("dotnet_walk", tests, NULL, NULL);
}
