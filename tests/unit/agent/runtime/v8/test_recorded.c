/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walker and the names over recordings of program.js, one for each major version of Node.js, of
 * program_calls.js and of program_given_up.js: record_v8 made data/NN-KIND.rec, whose stack must be
 * the one below. Then with changed bytes: walking and naming must end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bpf/types.h"
#include "bpf/arch.h"
#include "tests/unit/agent/runtime/v8/world.h"

static char out[1 << 16];

/* The stack down to top(); each line is a part of a printed one. */
static const char *const expected[] = {
    "leaf program.js:",
    "step program.js:19\n",
    "(anonymous) program.js:26\n",
    "through program.js:25\n",
    "recurse program.js:30\n",
    "recurse program.js:30\n",
    "recurse program.js:30\n",
    "recurse program.js:30\n",
    "top program.js:35\n",
    "(anonymous) program.js:36\n",
};

/* Optimized; interpreted (--no-opt --no-sparkplug); baseline (--no-opt --always-sparkplug). */
static const char *const names[] = {
    "16",	   "18",	  "20",		 "22",		"24",	       "26",
    "16-interp",   "18-interp",	  "20-interp",	 "22-interp",	"24-interp",   "26-interp",
    "16-baseline", "18-baseline", "20-baseline", "22-baseline", "24-baseline", "26-baseline",
};

/* Of program_given_up.js: optimized code that is given up, and a frame that deoptimization has
 * made. */
static const char *const given_up[] = {
    "leaf program_given_up.js:9\n",
    "(anonymous) program_given_up.js:19\n",
    "(anonymous) :3\n",
    "middle program_given_up.js:25\n",
    "outer program_given_up.js:32\n",
    "top program_given_up.js:39\n",
    NULL,
};

static const char *const names_given_up[] = {"16-given-up", "20-given-up", "22-given-up",
					     "24-given-up"};

/* Maglev (--maglev --no-turbofan), the innermost function called or inlined. */
static const struct {
	const char *name, *stack[5];
} maglev[] = {
    {"22-maglev",
     {"leaf program_calls.js:", "middle program_calls.js:20\n", "loop program_calls.js:36\n",
      "top program_calls.js:45\n"}},
    {"24-maglev",
     {"leaf program_calls.js:", "middle program_calls.js:20\n", "loop program_calls.js:36\n",
      "top program_calls.js:45\n"}},
    {"22-maglev-inner",
     {"inner program_calls.js:", "loop program_calls.js:37\n", "top program_calls.js:45\n"}},
    {"24-maglev-inner",
     {"inner program_calls.js:", "loop program_calls.js:37\n", "top program_calls.js:45\n"}},
};

static struct world *load(const char *name)
{
	char path[256];
	struct world *w;

	snprintf(path, sizeof(path), "%s/%s.rec", V8_DATA, name);
	assert_int_equal(world_load(path, &w), 0);
	return w;
}

static void stack_has_every_frame_with_name_file_and_line(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);
		const char *at = out;

		world_stack(w, out, sizeof(out));
		for (size_t k = 0; k < ARRAY_SIZE(expected); k++) {
			const char *next = strstr(at, expected[k]);

			if (!next)
				fail_msg("node %s: no %s in\n%s", names[i], expected[k], out);
			at = next + strlen(expected[k]);
		}
		assert_null(strstr(out, "?\n"));
		assert_null(strstr(out, "missing"));
	}
}

static void known_functions_have_the_same_names(void **state)
{
	static char again[sizeof(out)];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);

		world_stack(w, out, sizeof(out));
		w->again = true;
		world_stack(w, again, sizeof(again));
		assert_string_equal(again, out);
	}
}

static bool has(const char *text, const char *const *lines)
{
	for (; text && *lines; lines++) {
		text = strstr(text, *lines);
		text = text ? text + strlen(*lines) : NULL;
	}
	return text;
}

/* Maglev's table of positions is wrong for code that it makes of loops. */
static void callers_in_maglev_code_are_at_their_calls(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(maglev); i++) {
		_cleanup_(world_freep) struct world *w = load(maglev[i].name);

		world_stack(w, out, sizeof(out));
		if (!has(out, maglev[i].stack))
			fail_msg("node %s:\n%s", maglev[i].name, out);
		assert_null(strstr(out, "?\n"));
		/* A build whose translations cannot be decoded. */
		w->image.opcodes.n = 0;
		world_stack(w, out, sizeof(out));
		assert_non_null(strstr(out, maglev[i].stack[0]));
		assert_null(strstr(out, "?\n"));
	}
}

static void code_that_is_given_up_on_the_stack_has_all_its_functions(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names_given_up); i++) {
		_cleanup_(world_freep) struct world *w = load(names_given_up[i]);

		world_stack(w, out, sizeof(out));
		if (!has(out, given_up))
			fail_msg("node %s:\n%s", names_given_up[i], out);
	}
}

/* After deoptimization: the frame is gone, and rbp still has its address. */
static void a_frame_pointer_below_the_stack_pointer_is_not_followed(void **state)
{
	_cleanup_(world_freep) struct world *w = load("22");
	struct recorded_rule *in = NULL;
	uint64_t frame[2], bp = w->walk.leaf[ARCH_REG_SP] - 64;

	for (uint32_t i = 0; i < w->walk.n_rules && !in; i++)
		if (w->walk.rules[i].known && (w->walk.rules[i].rule.flags & KILN_RULE_RUNTIME) &&
		    w->walk.rules[i].rule.kind == KILN_RULE_CFA)
			in = &w->walk.rules[i];
	assert_non_null(in);
	in->rule.kind = KILN_RULE_INVALID;
	frame[0] = bp;
	frame[1] = in->pc + 1;
	recorded_walk_put(&w->walk, bp, frame, sizeof(frame));
	recorded_walk_put(&w->walk, bp, frame, 8);
	recorded_walk_put(&w->walk, bp + 8, frame + 1, 8);
	w->walk.leaf[ARCH_REG_PC] = in->pc;
	w->walk.leaf[ARCH_REG_FP] = bp;
	world_stack(w, out, sizeof(out));
	assert_int_not_equal(w->walk.end, KILN_END_DEPTH);
}

/*
 * The interpreter was interrupted between `leave` and the return, at a place for which the
 * recording has no rule: rbp is already the caller's. FRAMES: how far out the interpreter's frame
 * is from the recorded leaf, which may be in a built-in function with a frame of its own.
 */
static void leave_interpreter(struct world *w, int frames)
{
	uint64_t bp = w->walk.leaf[ARCH_REG_FP], at = 0;
	const struct recorded_rule *in = NULL;
	struct recorded_rule *rule;

	for (uint32_t i = 0; i < w->walk.n_rules && !in; i++)
		if (w->walk.rules[i].known && (w->walk.rules[i].rule.flags & KILN_RULE_RUNTIME))
			for (uint32_t k = 0; k < w->walk.n_maps; k++) {
				at = w->walk.rules[i].pc - w->walk.maps[k].bias -
				     w->image.kernel.interpreter;
				if (w->walk.maps[k].image &&
				    at - w->image.kernel.interpreter_frame <
					w->image.kernel.interpreter_size -
					    w->image.kernel.interpreter_frame)
					in = &w->walk.rules[i];
			}
	assert_non_null(in);
	assert_true(w->walk.n_rules < RECORDED_RULES_MAX);
	for (; frames; frames--)
		assert_int_equal(recorded_walk_memory(&w->walk, bp, &bp, 8), 0);
	rule = &w->walk.rules[w->walk.n_rules++];
	*rule = *in;
	rule->pc++;
	rule->rule.kind = KILN_RULE_CFA;
	rule->rule.reg = ARCH_REG_SP;
	rule->rule.flags = KILN_RULE_RUNTIME;
	rule->rule.cfa_off = 8;
	rule->rule.ra_off = ARCH_RA_OFFSET;
	w->walk.leaf[ARCH_REG_PC] = rule->pc;
	w->walk.leaf[ARCH_REG_SP] = bp + 8;
	assert_int_equal(recorded_walk_memory(&w->walk, bp, &w->walk.leaf[ARCH_REG_FP], 8), 0);
}

static void an_interpreted_function_that_has_left_is_not_taken_for_its_caller(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *step;

		if (!strstr(names[i], "interp"))
			continue;
		out[0] = 0;
		for (int frames = 0; frames < 4 && (!out[0] || strstr(out, expected[0]));
		     frames++) {
			_cleanup_(world_freep) struct world *w = load(names[i]);

			leave_interpreter(w, frames);
			world_stack(w, out, sizeof(out));
		}
		step = strstr(out, "step ");
		if (strstr(out, expected[0]) || !step || strstr(step + 1, "step "))
			fail_msg("node %s:\n%s", names[i], out);
		assert_non_null(strstr(step, "top program.js:35\n"));
	}
}

/* As before the process is attached to, when the walk uses a copy of the stack. */
static void native_frames_are_whole_when_nothing_is_known_of_v8(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_(world_freep) struct world *w = load(names[i]);

		world_stack(w, out, sizeof(out));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
		w->walk.unread = true;
		world_stack(w, out, sizeof(out));
		if (w->walk.end != KILN_END_ROOT || !strstr(out, "missing 1\n"))
			fail_msg("node %s: end %u\n%s", names[i], w->walk.end, out);
		assert_null(strstr(out, "program.js"));
	}
}

/* A generator with a seed of its own, so that a failure can be repeated. */
static uint64_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return *seed >> 33;
}

static void forge(const char *name, const char *leaf, uint64_t seed)
{
	_cleanup_(world_freep) struct world *w = load(name);

	for (int round = 0; round < 200; round++) {
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
	assert_non_null(strstr(out, leaf));
}

static void forged_memory_harms_nothing(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		forge(names[i], expected[0], i + 1);
	for (size_t i = 0; i < ARRAY_SIZE(maglev); i++)
		forge(maglev[i].name, maglev[i].stack[0], i + 1);
	for (size_t i = 0; i < ARRAY_SIZE(names_given_up); i++)
		forge(names_given_up[i], given_up[0], i + 1);
}

/* The cookie tells that another function has taken the place of this one. */
static void another_function_in_its_place_is_not_named(void **state)
{
	_cleanup_(world_freep) struct world *w = load("20");
	const struct v8_layout *l = &w->image.layout;
	uint32_t changed = 0;

	world_stack(w, out, sizeof(out));
	assert_non_null(strstr(out, expected[0]));
	/*
	 * The lengths that the kernel read stay; user space, which reads the type first, finds
	 * other lengths.
	 */
	for (uint32_t i = 0; i < w->walk.n_reads; i++)
		if (w->walk.reads[i].len == 2 && w->walk.reads[i].at != UINT32_MAX) {
			uint16_t type;

			memcpy(&type, w->walk.bytes + w->walk.reads[i].at, sizeof(type));
			if (type != l->type_shared)
				continue;
			type++;
			memcpy(w->walk.bytes + w->walk.reads[i].at, &type, sizeof(type));
			changed++;
		}
	assert_true(changed);
	world_stack(w, out, sizeof(out));
	assert_null(strstr(out, expected[0]));
	assert_non_null(strstr(out, "?\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(stack_has_every_frame_with_name_file_and_line),
	    cmocka_unit_test(known_functions_have_the_same_names),
	    cmocka_unit_test(callers_in_maglev_code_are_at_their_calls),
	    cmocka_unit_test(code_that_is_given_up_on_the_stack_has_all_its_functions),
	    cmocka_unit_test(a_frame_pointer_below_the_stack_pointer_is_not_followed),
	    cmocka_unit_test(an_interpreted_function_that_has_left_is_not_taken_for_its_caller),
	    cmocka_unit_test(native_frames_are_whole_when_nothing_is_known_of_v8),
	    cmocka_unit_test(forged_memory_harms_nothing),
	    cmocka_unit_test(another_function_in_its_place_is_not_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
