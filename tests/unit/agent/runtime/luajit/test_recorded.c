/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker and the names over recordings of program.lua with each version, interpreted and
 * compiled: record_luajit made data/NAME.rec, whose stack must be the one below. Then with changed
 * bytes: walking and naming must end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bpf/types.h"
#include "bpf/arch.h"
#include "tests/unit/agent/runtime/luajit/world.h"

static char out[1 << 16];

/* The stack down to the program's code; each line is a part of a printed one. */
static const char *const expected[] = {
    "leaf program.lua:",
    "function <program.lua:14> program.lua:15\n",
    "pcall :0\n",
    "recurse program.lua:21\n",
    "recurse program.lua:24\n",
    "recurse program.lua:24\n",
    "recurse program.lua:24\n",
    "function <program.lua:28> program.lua:29\n",
    "native\n", /* the library's gsub() */
    "gsub :0\n",
    "global program.lua:28\n",
    "function <program.lua:35> program.lua:36\n",
    "co :0\n",
    "main chunk program.lua:38\n",
    "native\n", /* lua_pcall() */
    "[C] :0\n",
    "native\n",
};

static const char *const names[] = {"bookworm",	  "bookworm-jit", "trixie",
				    "trixie-jit", "forky",	  "forky-jit"};

static struct world *load(const char *name)
{
	char path[256];
	struct world *w;

	snprintf(path, sizeof(path), "%s/%s.rec", LUAJIT_DATA, name);
	assert_int_equal(world_load(path, &w), 0);
	return w;
}

static void stack_has_every_frame_in_order(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);
		const char *at = out;

		world_stack(w, out, sizeof(out));
		for (size_t k = 0; k < ARRAY_SIZE(expected); k++) {
			const char *next = strstr(at, expected[k]);

			if (!next)
				fail_msg("%s: no %s in\n%s", names[i], expected[k], out);
			at = next + strlen(expected[k]);
		}
		assert_null(strstr(out, "?\n"));
		assert_null(strstr(out, "missing"));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
	}
}

/* A trace's frame replaces the native frame, which would have no name. */
static void a_trace_hides_its_native_frame(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);
		const char *leaf, *next;

		world_stack(w, out, sizeof(out));
		leaf = strstr(out, expected[0]);
		assert_non_null(leaf);
		next = strstr(leaf, "native\n");
		assert_non_null(next);
		/*
		 * The first native frame is gsub()'s, further out than its callback: the trace has
		 * none.
		 */
		if (strstr(names[i], "-jit"))
			assert_true(next > strstr(leaf, expected[7]));
	}
}

static void nothing_is_read_when_nothing_is_known(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);

		world_stack(w, out, sizeof(out));
		w->walk.unread = true;
		world_stack(w, out, sizeof(out));
		assert_non_null(strstr(out, "missing 1\n"));
		assert_null(strstr(out, "program.lua"));
	}
}

/* ---- the interpreter between two instructions -------------------------------------------------
 */

enum { RBX = 3, RDX = 1 };

/* A word of recorded memory. RDX holds the leaf's base, RBX its pc. */
static uint64_t word(struct world *w, uint64_t address)
{
	uint64_t v = 0;

	assert_int_equal(recorded_walk_memory(&w->walk, address, &v, sizeof(v)), 0);
	return v;
}

/* The leaf has returned: pc is the caller's already, and the results are where the function was. */
static void a_function_that_returns_is_its_caller(void **state)
{
	_cleanup_(world_freep) struct world *w = load("trixie");
	uint64_t base = w->walk.leaf[RDX], slots[2];

	slots[0] = 0x3ff0000000000000; /* 1.0 */
	slots[1] = word(w, base - 8);
	w->walk.leaf[RBX] = slots[1];
	recorded_walk_put(&w->walk, base - 16, slots, sizeof(slots));
	world_stack(w, out, sizeof(out));
	assert_null(strstr(out, "leaf "));
	assert_non_null(strstr(out, expected[1]));
	assert_null(strstr(out, "missing"));
}

/* Neither base nor pc is valid. */
static void registers_that_make_no_sense_are_said(void **state)
{
	_cleanup_(world_freep) struct world *w = load("trixie");

	w->walk.leaf[RDX] = 0x4141414141414140;
	w->walk.leaf[ARCH_REG_FP] = 8;
	w->walk.leaf[RBX] = 0x4141414141414140;
	world_stack(w, out, sizeof(out));
	assert_non_null(strstr(out, "missing 4\n"));
	assert_null(strstr(out, "leaf "));
}

/* ---- forged memory ----------------------------------------------------------------------------
 */

/* A generator with a seed of its own, so that a failure can be repeated. */
static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return *seed >> 33;
}

static void forged_memory_harms_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);
		uint64_t seed = i + 1;

		for (int round = 0; round < 400; round++) {
			uint32_t at = (uint32_t)(next_random(&seed) % w->walk.n_reads);
			struct recorded_read *r = &w->walk.reads[at];
			uint8_t before, *p;

			if (r->at == UINT32_MAX)
				continue;
			p = w->walk.bytes + r->at + next_random(&seed) % r->len;
			before = *p;
			*p = (uint8_t)next_random(&seed);
			world_stack(w, out, sizeof(out));
			*p = before;
		}
		/* The bytes are restored, so the stack is as before. */
		world_stack(w, out, sizeof(out));
		assert_non_null(strstr(out, expected[0]));
	}
}

/* The place of the function is taken by another one. */
static void another_function_in_its_place_is_not_named(void **state)
{
	_cleanup_(world_freep) struct world *w = load("trixie");
	uint64_t words[2], pc = w->walk.leaf[RBX] - 4;
	struct target_memory memory = {.read = recorded_walk_memory, .arg = &w->walk};
	struct luajit_proto proto, caller;
	struct symbol_result got;
	char scratch[1024];

	world_stack(w, out, sizeof(out));
	assert_int_equal(luajit_find_proto(&memory, pc, &proto), 0);
	assert_int_equal(luajit_find_proto(&memory, word(w, w->walk.leaf[RDX] - 8) - 4, &caller),
			 0);
	for (int changed = 0; changed < 2; changed++) {
		uint64_t both =
		    kiln_luajit_cookies(proto.cookie + (uint64_t)changed * 2, caller.cookie);

		words[0] =
		    pc >> 2 | (both & ((1 << KILN_LUAJIT_COOKIE_LOW) - 1)) << KILN_LUAJIT_AT_BITS |
		    (uint64_t)KILN_FRAME_RUNTIME(KILN_RUNTIME_LUAJIT) << KILN_FRAME_KIND_SHIFT;
		words[1] = (word(w, w->walk.leaf[RDX] - 8) - 4) >> 2 |
			   both >> KILN_LUAJIT_COOKIE_LOW << KILN_LUAJIT_AT_BITS;
		assert_int_equal(
		    luajit_symbolize(NULL, &memory, words, scratch, sizeof(scratch), &got),
		    changed ? -EFAULT : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(stack_has_every_frame_in_order),
	    cmocka_unit_test(a_trace_hides_its_native_frame),
	    cmocka_unit_test(nothing_is_read_when_nothing_is_known),
	    cmocka_unit_test(a_function_that_returns_is_its_caller),
	    cmocka_unit_test(registers_that_make_no_sense_are_said),
	    cmocka_unit_test(forged_memory_harms_nothing),
	    cmocka_unit_test(another_function_in_its_place_is_not_named),
	};

	return cmocka_run_group_tests_name("luajit_recorded", tests, NULL, NULL);
}
