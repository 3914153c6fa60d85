/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk and the names over recordings of HotspotWork.java: VERSION-KIND.rec was made by
 * hack/record-hotspot, and must give what is written here. Then the same with bytes of it changed:
 * whatever comes of it, it ends, and within its bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bpf/arch.h"
#include "tests/unit/agent/runtime/hotspot/world.h"

enum {
	CHANGES = 3000,
	COUNTERS = 4096,
	OUT_BYTES = 1 << 16,
	PUSHED = 18 * 8, /* what an adapter pushes before it saves the FPU's state */
	BELOW = 256,	 /* bytes of stack for a C function */
	STACK_WORDS = 512,
};

static char out[OUT_BYTES];

/* Innermost first, each line the beginning of one of those printed. Stubs have no names here: which
 * there are is not recorded. */
static const char calls[] = "kiln.HotspotWork.burn HotspotWork.java:4\n"
			    "kiln.HotspotWork$Circle.twice HotspotWork.java:106\n"
			    "kiln.HotspotWork$Circle.area HotspotWork.java:102\n"
			    "kiln.HotspotWork.calls HotspotWork.java:129\n"
			    "kiln.HotspotWork.once HotspotWork.java:331\n"
			    "kiln.HotspotWork.run HotspotWork.java:360\n"
			    "kiln.HotspotWork$Worker.run HotspotWork.java:80\n"
			    "?\n"
			    "native\n";

/* Through C and back. */
#define BACK                                                                                       \
	"kiln.HotspotWork.callBack HotspotWork.java:211\n"                                         \
	"?\n"                                                                                      \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"kiln.HotspotWork.call HotspotWork.java:0\n"

static const char jni[] = "kiln.HotspotWork.burn HotspotWork.java:4\n" BACK BACK BACK BACK
			  "kiln.HotspotWork.jni HotspotWork.java:215\n"
			  "kiln.HotspotWork.once HotspotWork.java:341\n"
			  "kiln.HotspotWork.run HotspotWork.java:360\n"
			  "kiln.HotspotWork$Worker.run HotspotWork.java:80\n"
			  "?\n"
			  "native\n";

static const struct {
	const char *name, *stack;
} recordings[] = {
    {"8-compiled", calls},  {"8-interpreted", calls},  {"8-native", jni},
    {"28-compiled", calls}, {"28-interpreted", calls}, {"28-native", jni},
};

static struct world *load(const char *name)
{
	char path[256];
	struct world *w;

	snprintf(path, sizeof(path), "%s/hotspot/%s.rec", TEST_DATA, name);
	assert_int_equal(world_load(path, &w), 0);
	return w;
}

/* Do the lines of TEXT begin as those of WANT do? */
static void assert_stack(const char *text, const char *want)
{
	while (*want) {
		size_t n = strcspn(want, "\n");

		if (strncmp(text, want, n) != 0)
			fail_msg("want: %.*s, got: %.80s", (int)n, want, text);
		text += strcspn(text, "\n") + 1;
		want += n + 1;
	}
}

static void test_recorded_stacks(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		struct world *w = load(recordings[i].name);

		world_stack(w, out, sizeof(out));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
		assert_stack(out, recordings[i].stack);
		world_free(w);
	}
}

/* The rule of a C function that has a frame of its own, and that of code that is no known code of
 * the JVM. */
static void find_rules(struct world *w, const struct recorded_rule **ret_native,
		       const struct recorded_rule **ret_other)
{
	const struct recorded_rule *native = NULL, *other = NULL;

	for (uint32_t i = 0; i < w->walk.n_rules; i++) {
		const struct kiln_rule *rule = &w->walk.rules[i].rule;

		if (!other && (rule->flags & KILN_RULE_RUNTIME) &&
		    (uint32_t)rule->deref_off == KILN_RUNTIME_HOTSPOT)
			other = &w->walk.rules[i];
		if (!native && w->walk.rules[i].known && rule->kind == KILN_RULE_CFA &&
		    rule->reg == ARCH_REG_SP && !(rule->flags & KILN_RULE_RUNTIME) &&
		    rule->cfa_off >= 16 && rule->cfa_off < 256)
			native = &w->walk.rules[i];
	}
	assert_non_null(native);
	assert_non_null(other);
	*ret_native = native;
	*ret_other = other;
}

/* Changes W: a C function is the leaf, called by what has the stack pointer LOW. STACK: what is to
 * be there from LOW - BELOW on; the first words are filled in. */
static void put_function(struct world *w, const struct recorded_rule *native, uint64_t low,
			 uint64_t stack[STACK_WORDS])
{
	for (int i = 2; i <= BELOW / 8; i++)
		stack[BELOW / 8 - i] = w->walk.leaf[ARCH_REG_FP];
	recorded_walk_put(&w->walk, low - BELOW, stack, STACK_WORDS * sizeof(*stack));
	w->walk.leaf[ARCH_REG_PC] = native->pc;
	w->walk.leaf[ARCH_REG_SP] = low - (uint32_t)native->rule.cfa_off;
}

/* Reads the stack from LOW - BELOW on; what lies below SP is 0. */
static void read_stack(struct world *w, uint64_t low, uint64_t sp, uint64_t stack[STACK_WORDS])
{
	for (size_t i = 0; i < STACK_WORDS; i++)
		(void)recorded_walk_memory(&w->walk, low - BELOW + i * 8, &stack[i], 8);
	memset(stack, 0, BELOW + (sp - low));
}

/* Puts an adapter into W, and the rule OTHER for the address in it that is returned. */
static uint64_t put_adapter_blob(struct world *w, const struct recorded_rule *other)
{
	const struct kiln_hotspot *v = &w->process.kernel;
	const struct kiln_hotspot_heap *heap = &v->heaps[0];
	const uint64_t segment = 1ULL << v->log2_segment, name_at = 0x1000,
		       blob = heap->low + 5 * segment, pc = blob + v->block_header + 2 * segment;
	const uint8_t segments[] = {0, 1, 2, 3};
	uint8_t header[KILN_HOTSPOT_BLOB_BYTES] = {0};

	recorded_walk_put(&w->walk, heap->segmap + 5, segments, sizeof(segments));
	memcpy(header + v->blob_name, &name_at, sizeof(name_at));
	recorded_walk_put(&w->walk, blob + v->block_header, header, sizeof(header));
	recorded_walk_put(&w->walk, name_at, "I2C/C2I adapters", 16);
	w->walk.rules[w->walk.n_rules] = *other;
	w->walk.rules[w->walk.n_rules++].pc = pc;
	return pc;
}

/*
 * Changes W: its leaf has called an adapter, which has called a C function, as
 * patch_callers_callsite() does. Below the leaf's stack are then: the return address, padding that
 * aligns rsp, the flags and registers that the adapter has saved, FPU bytes of the FPU's state, and
 * the C function's frame.
 */
static void put_adapter(struct world *w, uint32_t fpu)
{
	const struct recorded_rule *native, *other;
	uint64_t sp = w->walk.leaf[ARCH_REG_SP], low, ra = w->walk.leaf[ARCH_REG_PC], pc;
	uint64_t stack[STACK_WORDS] = {0};

	find_rules(w, &native, &other);
	pc = put_adapter_blob(w, other);
	w->walk.rules[w->walk.n_rules - 1].pc--; /* it calls */
	low = ((sp - 8) & ~15ULL) - PUSHED - fpu;
	read_stack(w, low, sp, stack);
	stack[(BELOW + sp - 8 - low) / 8] = ra;
	/* The saved rax holds it too, and the saved r13 its place. */
	stack[(BELOW + fpu) / 8 + 15] = ra;
	stack[(BELOW + fpu) / 8 + 2] = sp - 8;
	stack[BELOW / 8 - 1] = pc;
	put_function(w, native, low, stack);
}

/*
 * Changes the recorded stack W: the leaf is compiled code that has pushed two words, called a C
 * function, and pops the words right after the call. A wrong return address lies where a walk that
 * does not count the two words would look for the leaf's.
 */
static void put_pushes(struct world *w)
{
	static const uint8_t pops[] = {0x41, 0x5a, 0x5e, 0x90}; /* pop %r10; pop %rsi; nop */
	const struct kiln_hotspot *v = &w->process.kernel;
	uint64_t sp = w->walk.leaf[ARCH_REG_SP], low = sp - 16, ra = w->walk.leaf[ARCH_REG_PC];
	const struct recorded_rule *native, *other;
	uint64_t stack[STACK_WORDS] = {0};
	size_t i = (BELOW + 16) / 8;

	find_rules(w, &native, &other);
	w->walk.rules[w->walk.n_rules] = *other;
	w->walk.rules[w->walk.n_rules++].pc = ra - 1;
	read_stack(w, low, sp, stack);
	while (stack[i] - v->low >= v->high - v->low)
		i++;
	stack[i - 2] = stack[i];
	stack[BELOW / 8 - 1] = ra;
	recorded_walk_put(&w->walk, ra, pops, sizeof(pops));
	put_function(w, native, low, stack);
}

/* Checks W's stack: a C function, the recorded leaf, and its callers as in STACK. */
static void assert_called(struct world *w, const char *stack)
{
	world_stack(w, out, sizeof(out));
	assert_int_equal(w->walk.end, KILN_END_ROOT);
	/* burn() was not recorded at a call, so it has no line. */
	assert_stack(out, "native\nkiln.HotspotWork.burn HotspotWork.java\n");
	assert_stack(strchr(strchr(out, '\n') + 1, '\n') + 1, strchr(stack, '\n') + 1);
}

static void test_an_adapter_calls_the_machine(void **state)
{
	static const struct {
		const char *name;
		uint32_t fpu;
	} cases[] = {{"8-native", 512}, {"28-native", 2688}};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = load(cases[i].name);

		put_adapter(w, cases[i].fpu);
		assert_called(w, jni);
		world_free(w);
	}
}

/*
 * Each step of an adapter as the leaf. Addresses are relative to the caller's rsp; the word at rsp
 * that is not the return address is left over from an earlier call.
 */
static void test_each_step_of_an_adapter(void **state)
{
	enum { RA = 1, OLD = 2, JUNK = 3, FAR = 1 << 30, LEAF_RAX = 0, LEAF_R13 = 13 };
	static const struct {
		const char *what;
		uint8_t code[8];
		int sp, top, rax, r13;
	} steps[] = {
	    {"compiled to interpreted, entered", {0x90}, -8, RA, JUNK, FAR},
	    {"8: before the pop, r13 from before", {0x58}, -8, RA, JUNK, -64},
	    {"8: mov %rsp,%r13", {0x4c, 0x8b, 0xec}, 0, RA, RA, -64},
	    {"11: mov %rsp,%r13", {0x49, 0x89, 0xe5}, 0, OLD, RA, 48},
	    {"21: before lea 8(%rsp),%r13", {0x4c, 0x8d, 0x6c, 0x24, 0x08}, -8, RA, JUNK, FAR},
	    {"21: before the pop", {0x58}, -8, RA, OLD, 0},
	    {"popped, same return address above", {0x48, 0x83, 0xec}, 0, RA, RA, 0},
	    {"popped, another one above", {0x48, 0x83, 0xec}, 0, OLD, RA, 0},
	    {"popped, room made, another one there", {0x50}, -64, OLD, RA, 0},
	    {"popped, room made, no return address there", {0x50}, -64, JUNK, RA, 0},
	    {"21: stored below the arguments", {0x90}, -72, RA, RA, 0},
	    {"8: stored below the arguments", {0x90}, -64, RA, RA, 0},
	    {"interpreted to compiled, entered", {0x90}, -8, RA, OLD, 0},
	    {"saves registers to call the JVM", {0x90}, -200, JUNK, RA, -8},
	    {"back, rax not restored", {0x90}, -200, JUNK, JUNK, -8},
	    {"21: back, at lea 8(%rsp),%r13", {0x4c, 0x8d, 0x6c, 0x24, 0x08}, -8, RA, RA, -8},
	    {"8: back, before the pop", {0x58}, -8, RA, RA, -8},
	    {"entered from a method handle", {0x90}, -8, RA, JUNK, -8},
	};
	static const char *const names[] = {"8-native", "28-native"};

	for (size_t i = 0; i < ARRAY_SIZE(steps) * ARRAY_SIZE(names); i++) {
		struct world *w = load(names[i % ARRAY_SIZE(names)]);
		const struct recorded_rule *native, *other;
		uint64_t sp = w->walk.leaf[ARCH_REG_SP], ra = w->walk.leaf[ARCH_REG_PC],
			 low = sp - 256, stack[STACK_WORDS] = {0}, pc;
		const uint64_t values[] = {[RA] = ra, [OLD] = ra + 1, [JUNK] = 7};
		size_t n = i / ARRAY_SIZE(names);
		int at = steps[n].sp;

		find_rules(w, &native, &other);
		pc = put_adapter_blob(w, other);
		recorded_walk_put(&w->walk, pc, steps[n].code, sizeof(steps[n].code));
		read_stack(w, low, sp, stack);
		stack[(BELOW + 256 - 8) / 8] = steps[n].r13 == -8 ? ra : 0;
		stack[(BELOW + 256 + at) / 8] = values[steps[n].top];
		recorded_walk_put(&w->walk, low - BELOW, stack, sizeof(stack));
		w->walk.leaf[ARCH_REG_PC] = pc;
		w->walk.leaf[ARCH_REG_SP] = sp + (uint64_t)at;
		w->walk.leaf[LEAF_RAX] = values[steps[n].rax];
		w->walk.leaf[LEAF_R13] = sp + (uint64_t)steps[n].r13;
		world_stack(w, out, sizeof(out));
		if (w->walk.end != KILN_END_ROOT || !strstr(out, strchr(jni, '\n')))
			fail_msg("%s: %s: %s", names[i % ARRAY_SIZE(names)], steps[n].what, out);
		world_free(w);
	}
}

/*
 * A leaf that has pushed words below its frame. In String.indexOf(), rcx or the word at rsp has the
 * value that rsp had before; elsewhere the next instructions tell. The frame also holds return
 * addresses of earlier calls. The recorded stack has a second return address, 48 bytes above the
 * first.
 */
static void test_a_leaf_that_has_pushed(void **state)
{
	/* As `kept`, NO_CALL: there is no call instruction before the return address, as when the
	 * interpreter has called. */
	enum { LEAF_RCX = 2, PC = 24, NO_CALL = 1 };
	static const struct {
		const char *what;
		int pushed; /* bytes */
		int kept;   /* what rcx or the word at rsp holds, minus the rsp before the pushes */
		bool in_rcx;
		uint8_t code[PC + 48]; /* around the program counter */
	} steps[] = {
	    {"at a comparison", 64, 0, false, {[PC] = 0xc4, 0xe3, 0x79, 0x61, 0x03, 0x0c}},
	    {"at one, without AVX", 64, 0, false, {[PC] = 0x66, 0x0f, 0x3a, 0x61, 0x03, 0x0c}},
	    {"behind one", 32, 0, false, {[PC - 6] = 0xc4, 0xe3, 0x79, 0x61, 0x03, 0x0c}},
	    {"before one", 24, 0, true, {[PC + 40] = 0xc4, 0xe3, 0x79, 0x61, 0x03, 0x0c}},
	    {"before the end", 64, 0, false, {[PC] = 0x48, 0x2b, 0xdf, 0x5c}},
	    {"at the end", 64, 0, false, {[PC - 3] = 0x48, 0x2b, 0xdf, 0x5c}},
	    {"one pushed", 8, 0, false, {[PC] = 0x57, 0xe8, 0, 0, 0, 0, 0x5b, 0x5b}},
	    {"two pushed, before the call", 16, 0, false, {[PC] = 0xe8, 0, 0, 0, 0, 0x5b, 0x5b}},
	    {"of r8 on", 16, 0, false, {[PC] = 0xe8, 0, 0, 0, 0, 0x41, 0x58, 0x41, 0x59}},
	    {"before both pops", 16, 0, false, {[PC] = 0x5b, 0x5b, 0x85, 0xdb}},
	    {"before the second pop", 8, 0, false, {[PC] = 0x5b, 0x85, 0xdb}},
	    {"before both pushes", 0, 0, false, {[PC] = 0x53, 0x57, 0xe8, 0, 0, 0, 0, 0x5b, 0x5b}},
	    {"called by the interpreter", 8, NO_CALL, false, {[PC] = 0x90}},
	    {"elsewhere, left over at rsp", 0, 48, false, {[PC] = 0x90}},
	    {"elsewhere, left over in rcx", 0, 48, true, {[PC] = 0x90}},
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct world *w = load("28-compiled");
		const struct kiln_hotspot *v = &w->process.kernel;
		uint64_t sp = w->walk.leaf[ARCH_REG_SP], stack[STACK_WORDS] = {0};
		static const uint8_t call[8] = {[3] = 0xe8};
		size_t ra = BELOW / 8, at = (size_t)(BELOW - steps[i].pushed) / 8;

		read_stack(w, sp, sp, stack);
		while (stack[ra] - v->low >= v->high - v->low)
			ra++;
		/* Below the return address are saved rbp and what the frame uses. */
		for (size_t k = steps[i].kept == NO_CALL ? 2 : 1; k <= 4 && steps[i].pushed; k++)
			stack[ra - k] = stack[ra + 6];
		if (steps[i].kept != NO_CALL)
			recorded_walk_put(&w->walk, stack[ra] - sizeof(call), call, sizeof(call));
		recorded_walk_put(&w->walk, stack[ra + 6] - sizeof(call), call, sizeof(call));
		stack[at] = steps[i].in_rcx ? 0 : sp + (uint64_t)steps[i].kept;
		recorded_walk_put(&w->walk, sp - BELOW, stack, sizeof(stack));
		recorded_walk_put(&w->walk, w->walk.leaf[ARCH_REG_PC] - PC, steps[i].code,
				  sizeof(steps[i].code));
		w->walk.leaf[ARCH_REG_SP] = sp - (uint64_t)steps[i].pushed;
		w->walk.leaf[LEAF_RCX] = steps[i].in_rcx ? sp + (uint64_t)steps[i].kept : 0;
		world_stack(w, out, sizeof(out));
		if (w->walk.end != KILN_END_ROOT || !strstr(out, strchr(calls, '\n')))
			fail_msg("%s: %s", steps[i].what, out);
		world_free(w);
	}
}

/* The last instructions of methods, as the leaf: BELOW_RA bytes below the return address. */
static void test_a_leaf_that_leaves_its_frame(void **state)
{
	static const struct {
		uint8_t code[20];
		uint32_t at; /* the program counter, in `code` */
		uint64_t below_ra;
	} steps[] = {
	    /* pop %rbp; cmp n(%r15),%rsp; ja; ret */
	    {{0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 1, 0, 0, 0, 0xc3}, 0, 8},
	    {{0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 1, 0, 0, 0, 0xc3}, 1, 0},
	    {{0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 1, 0, 0, 0, 0xc3}, 11, 0},
	    /* pop %rbp; cmp n(%r15),%rsp; jb; mov %r15,%rdi */
	    {{0x5d, 0x49, 0x3b, 0xa7, 1, 1, 0, 0, 0x0f, 0x82, 1, 0, 0, 0, 0x49, 0x8b, 0xff}, 0, 8},
	    {{0x5d, 0x49, 0x3b, 0xa7, 1, 1, 0, 0, 0x0f, 0x82, 1, 0, 0, 0, 0x49, 0x8b, 0xff}, 1, 0},
	    {{0x5d, 0x49, 0x3b, 0xa7, 1, 1, 0, 0, 0x0f, 0x82, 1, 0, 0, 0, 0x49, 0x8b, 0xff}, 8, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		struct world *w = load("28-compiled");
		const struct kiln_hotspot *v = &w->process.kernel;
		uint64_t sp = w->walk.leaf[ARCH_REG_SP], stack[STACK_WORDS] = {0};
		size_t ra = BELOW / 8;

		read_stack(w, sp, sp, stack);
		while (stack[ra] - v->low >= v->high - v->low)
			ra++;
		/* Nothing but the instructions tells where the return address is. */
		stack[ra + 1] = stack[ra];
		recorded_walk_put(&w->walk, sp - BELOW, stack, sizeof(stack));
		recorded_walk_put(&w->walk, w->walk.leaf[ARCH_REG_PC] - steps[i].at, steps[i].code,
				  sizeof(steps[i].code));
		w->walk.leaf[ARCH_REG_SP] = sp - BELOW + ra * 8 - steps[i].below_ra;
		world_stack(w, out, sizeof(out));
		if (w->walk.end != KILN_END_ROOT || !strstr(out, strchr(calls, '\n')))
			fail_msg("%zu: %s", i, out);
		world_free(w);
	}
}

/* Where the leaf's return address should be is none; the next one lies WORDS words above. */
static void test_a_return_address_far_up_is_told(void **state)
{
	static const struct {
		size_t words;
		bool told;
	} cases[] = {{1, false}, {8, false}, {12, true}};
	static const uint8_t call[8] = {[3] = 0xe8};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = load("28-compiled");
		const struct kiln_hotspot *v = &w->process.kernel;
		uint64_t sp = w->walk.leaf[ARCH_REG_SP], low = sp - cases[i].words * 8,
			 stack[STACK_WORDS] = {0};
		size_t ra = BELOW / 8;

		read_stack(w, low, low, stack);
		while (stack[ra] - v->low >= v->high - v->low)
			ra++;
		memset(stack, 0, (ra - 1) * sizeof(*stack));
		recorded_walk_put(&w->walk, stack[ra] - sizeof(call), call, sizeof(call));
		recorded_walk_put(&w->walk, low - BELOW, stack, sizeof(stack));
		w->walk.leaf[ARCH_REG_SP] = low;
		world_stack(w, out, sizeof(out));
		if (w->walk.end != KILN_END_ROOT || !strstr(out, strchr(calls, '\n')) ||
		    !strstr(out, "missing") == cases[i].told)
			fail_msg("%zu: %s", cases[i].words, out);
		world_free(w);
	}
}

static void test_code_pushes_before_it_calls(void **state)
{
	static const char *const names[] = {"8-native", "28-native"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct world *w = load(names[i]);

		put_pushes(w);
		assert_called(w, jni);
		world_free(w);
	}
}

static bool is_native(const struct recorded_rule *r)
{
	return r->known && !(r->rule.flags & KILN_RULE_RUNTIME);
}

static uint32_t image_of(const struct world *w, uint64_t pc)
{
	for (uint32_t i = 0; i < w->walk.n_maps; i++)
		if (pc - w->walk.maps[i].start < w->walk.maps[i].end - w->walk.maps[i].start)
			return w->walk.maps[i].image;
	return 0;
}

/* Makes native code of other files than the first one on the stack (libjvm.so) restore its
 * return address as the caller's rbp. */
static void lose_rbp(struct world *w)
{
	struct recorded_rule *rules = w->walk.rules;
	uint32_t first = 0, lost = 0;

	for (uint32_t i = 0; i < w->walk.n_rules; i++) {
		uint32_t image = is_native(&rules[i]) ? image_of(w, rules[i].pc) : 0;

		first = first ? first : image;
		if (image == first)
			continue;
		if (image) {
			rules[i].rule.flags |= KILN_RULE_SAVED_FP;
			rules[i].rule.fp_off = -1;
			lost++;
		}
	}
	assert_true(lost > 0);
}

/* The frame size of a native wrapper is known, so the wrong rbp does no harm. */
static void test_a_wrapper_does_not_need_rbp(void **state)
{
	static const char *const names[] = {"8-native", "28-native"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct world *w = load(names[i]);

		lose_rbp(w);
		world_stack(w, out, sizeof(out));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
		assert_stack(out, jni);
		world_free(w);
	}
}

/*
 * Makes W the stack of a virtual thread. The two innermost compiled frames stay; the second returns
 * to cont_returnBarrier, as if all outer frames were frozen in the heap. GAP bytes higher is the
 * frame of Continuation.enterSpecial(), which returns to the third frame of the recording, now the
 * carrier's. Each word of that frame that the JVM does not write holds a stale return address.
 */
static void put_frozen(struct world *w, uint32_t gap)
{
	enum { INNER_MAX = 64, FRAME = 80 };
	const uint64_t sp = w->walk.leaf[ARCH_REG_SP], room = FRAME + gap;
	uint64_t stack[INNER_MAX + 32], pc, at = 0;
	size_t n = 0, entry;

	world_walk(w);
	pc = w->words[4] & KILN_FRAME_PC_MASK; /* of the third frame */
	do {
		assert_true(n < INNER_MAX);
		(void)recorded_walk_memory(&w->walk, sp + n * 8, &stack[n], 8);
	} while (stack[n++] != pc);
	at = sp + n * 8; /* the stack pointer after the return */
	assert_int_equal(at % 16, 0);
	w->process.kernel.barrier = w->process.kernel.low + 64;
	stack[n - 1] = w->process.kernel.barrier;
	for (size_t i = 0; i < room / 8; i++)
		stack[n + i] = pc;
	entry = n + gap / 8;
	stack[entry + 1] = 0;		/* no parent */
	stack[entry + 2] = 0x687d1f138; /* the continuation */
	stack[entry + 3] = 0;		/* its chunk */
	stack[entry + 4] = 1;		/* of a virtual thread, without arguments */
	stack[entry + 5] = at + 64;
	stack[entry + 6] = 0x7f5000000000; /* not pinned */
	stack[n + room / 8 - 2] = 42;	   /* rbp, which is no frame pointer */
	recorded_walk_put(&w->walk, sp - room, stack, n * 8 + room);
	w->walk.leaf[ARCH_REG_SP] = sp - room;
}

static void test_frames_in_the_heap(void **state)
{
	static const char mark[] = "[frames of a virtual thread in the heap] :0\n";

	for (uint32_t gap = 0; gap <= 40; gap += 8) {
		struct world *w = load("28-compiled");
		char *at;

		put_frozen(w, gap);
		world_stack(w, out, sizeof(out));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
		at = strstr(out, mark);
		assert_non_null(at);
		memmove(at, at + strlen(mark), strlen(at + strlen(mark)) + 1);
		assert_stack(out, calls);
		world_free(w);
	}
}

/* While the process is not attached to there are no frames of Java, and a "missing" entry. */
static void test_what_is_not_attached_to_is_said(void **state)
{
	struct world *w = load("28-compiled");

	w->walk.unread = true;
	world_stack(w, out, sizeof(out));
	assert_non_null(strstr(out, "missing "));
	assert_null(strstr(out, "kiln."));
	world_free(w);
}

/* A frame gets no name if its method's cookie or its code's id has changed. */
static void test_what_has_changed_has_no_name(void **state)
{
	const struct target_memory nothing = {.read = recorded_walk_memory};
	static char scratch[OUT_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		struct world *w = load(recordings[i].name);
		struct target_memory memory = nothing;
		struct symbol_result symbols = {.n = 0};
		uint64_t frame[2];

		memory.arg = &w->walk;
		world_walk(w);
		assert_int_equal(KILN_FRAME_KIND(w->words[0]),
				 KILN_FRAME_RUNTIME(KILN_RUNTIME_HOTSPOT));
		memcpy(frame, w->words, sizeof(frame));
		assert_int_equal(hotspot_ops.symbolize(&w->process, &memory, frame, scratch,
						       sizeof(scratch), &symbols),
				 0);
		assert_string_equal(symbols.symbols[0].name, "kiln.HotspotWork.burn");
		/* Changes the id (lowest bit) or the cookie (highest bits). */
		frame[1] ^= 1 | 1ULL << 48;
		symbols.n = 0;
		assert_int_not_equal(hotspot_ops.symbolize(&w->process, &memory, frame, scratch,
							   sizeof(scratch), &symbols),
				     0);
		world_free(w);
	}
}

static bool is_compiled(const uint64_t *frame)
{
	return KILN_FRAME_KIND(frame[0]) == KILN_FRAME_RUNTIME(KILN_RUNTIME_HOTSPOT) &&
	       (frame[0] >> KILN_FRAME_FLAG_SHIFT & KILN_HOTSPOT_KIND_MASK) ==
		   KILN_HOTSPOT_COMPILED;
}

/* Gives the code of each compiled frame of W the next compile id. Returns how many frames. */
static unsigned int replace_code(struct world *w)
{
	unsigned int n = 0;

	for (uint32_t i = 0; i < w->n_words; i += kiln_frame_words(w->words[i])) {
		uint64_t address = w->words[i] & KILN_FRAME_PC_MASK, second = w->words[i + 1];
		uint32_t id = KILN_HOTSPOT_COMPILE_ID(second) + 1;

		if (!is_compiled(w->words + i))
			continue;
		recorded_walk_put(&w->walk,
				  address - KILN_HOTSPOT_DISTANCE(second) +
				      w->process.kernel.nmethod_id,
				  &id, sizeof(id));
		n++;
	}
	return n;
}

/* Walks code, other code that has its place, and that once more when COUNTERS have changed by
 * COMPILES and STOPPED. */
static void compare_ids(uint64_t compiles, uint64_t stopped)
{
	struct world *w = load("28-compiled");
	static uint64_t first[OUT_BYTES];
	uint64_t counters[2] = {1000, 10};
	unsigned int n;

	w->process.kernel.compiles = COUNTERS;
	w->process.kernel.stopped = COUNTERS + 8;
	recorded_walk_put(&w->walk, COUNTERS, counters, sizeof(counters));
	world_walk(w);
	memcpy(first, w->words, w->n_words * sizeof(*first));
	n = replace_code(w);
	assert_true(n >= 3);
	world_walk(w);
	/* The leaf's id is always read. */
	assert_int_equal(w->words[1], first[1] + 1);
	assert_memory_equal(w->words + 2, first + 2, (w->n_words - 2) * sizeof(*first));
	counters[0] += compiles;
	counters[1] += stopped;
	recorded_walk_put(&w->walk, COUNTERS, counters, sizeof(counters));
	world_walk(w);
	for (uint32_t i = 0; i < w->n_words; i += kiln_frame_words(w->words[i])) {
		assert_int_equal(w->words[i], first[i]);
		if (is_compiled(first + i)) {
			assert_int_equal(w->words[i + 1], first[i + 1] + 1);
			n--;
		}
	}
	assert_int_equal(n, 0);
	world_free(w);
}

/* Code that was walked is looked at again when the machine may have freed it since. */
static void test_compile_ids_are_compared_after_a_compilation(void **state)
{
	compare_ids(1, 0);
}

static void test_compile_ids_are_compared_after_a_safepoint(void **state)
{
	compare_ids(0, 1);
}

/* The blob of the compiled frame at word I of W's stack. */
static uint64_t blob_of(const struct world *w, uint32_t i)
{
	return (w->words[i] & KILN_FRAME_PC_MASK) - KILN_HOTSPOT_DISTANCE(w->words[i + 1]);
}

/*
 * Frees the code of the frame at word I of W, and puts other code there, whose blob begins two
 * segments later and has the next compile id. BLOCK: what stays of the freed block's header.
 */
static void free_code(struct world *w, uint32_t i, const uint64_t block[2])
{
	const struct kiln_hotspot *v = &w->process.kernel;
	uint64_t blob = blob_of(w, i), next = blob + (2ULL << v->log2_segment);
	uint32_t id = KILN_HOTSPOT_COMPILE_ID(w->words[i + 1]) + 1, stub = INT32_MAX;
	uint8_t header[KILN_HOTSPOT_BLOB_BYTES];

	assert_int_equal(recorded_walk_memory(&w->walk, blob, header, sizeof(header)), 0);
	recorded_walk_put(&w->walk, blob - v->block_header, block, 16);
	recorded_walk_put(&w->walk, next, header, sizeof(header));
	recorded_walk_put(&w->walk, next + v->nmethod_id, &id, sizeof(id));
	recorded_walk_put(&w->walk, next + v->nmethod_stub, &stub, sizeof(stub));
	for (size_t h = 0; h < KILN_HOTSPOT_HEAPS; h++) {
		const struct kiln_hotspot_heap *heap = &v->heaps[h];
		uint64_t first = (next - v->block_header - heap->low) >> v->log2_segment;

		if (blob - heap->low >= heap->size)
			continue;
		for (uint8_t n = 0; n < 32; n++)
			recorded_walk_put(&w->walk, heap->segmap + first + n, &n, 1);
	}
}

/*
 * Other code lies in the place of freed code, but does not begin where that began, so what stays of
 * the old header has the old id.
 */
static void test_a_freed_header_is_not_trusted(void **state)
{
	static const struct {
		uint64_t block[2];
		bool is_same;
	} cases[] = {
	    {{100, 1}, true},	  /* not freed after all */
	    {{100, 0}, false},	  /* marked as free */
	    {{1, 1}, false},	  /* too short */
	    {{100, 0x81}, false}, /* overwritten by code */
	    {{0xd0413440ba49c300, 1}, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct world *w = load("28-compiled");
		uint64_t counters[2] = {1000, 10}, blob;

		w->process.kernel.compiles = COUNTERS;
		w->process.kernel.stopped = COUNTERS + 8;
		recorded_walk_put(&w->walk, COUNTERS, counters, sizeof(counters));
		world_walk(w);
		blob = blob_of(w, 2);
		assert_true(is_compiled(w->words + 2));
		free_code(w, 2, cases[i].block);
		counters[1]++;
		recorded_walk_put(&w->walk, COUNTERS, counters, sizeof(counters));
		world_walk(w);
		if ((blob_of(w, 2) == blob) != cases[i].is_same)
			fail_msg("case %zu", i);
		world_free(w);
	}
}

static void test_changed_bytes_end(void **state)
{
	uint32_t seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		for (int k = 0; k < CHANGES / (int)ARRAY_SIZE(recordings); k++) {
			struct world *w = load(recordings[i].name);

			for (int n = 0; n < 1 + k % 16 && w->walk.n_bytes; n++) {
				seed = seed * 1664525 + 1013904223;
				w->walk.bytes[(seed >> 4) % w->walk.n_bytes] ^=
				    (uint8_t)(1U << (seed >> 29));
			}
			/* Offsets too: what a process's own tables say. */
			if (k % 4 == 3)
				((uint8_t *)&w->process
				     .layout)[(seed >> 8) % sizeof(w->process.layout)] ^=
				    (uint8_t)seed;
			if (k % 4 == 2)
				((uint8_t *)&w->process
				     .kernel)[(seed >> 8) % sizeof(w->process.kernel)] ^=
				    (uint8_t)seed;
			world_stack(w, out, sizeof(out));
			assert_true(w->n_words <= KILN_MAX_USER_WORDS);
			world_free(w);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_recorded_stacks),
	    cmocka_unit_test(test_an_adapter_calls_the_machine),
	    cmocka_unit_test(test_each_step_of_an_adapter),
	    cmocka_unit_test(test_a_leaf_that_has_pushed),
	    cmocka_unit_test(test_a_leaf_that_leaves_its_frame),
	    cmocka_unit_test(test_a_return_address_far_up_is_told),
	    cmocka_unit_test(test_code_pushes_before_it_calls),
	    cmocka_unit_test(test_a_wrapper_does_not_need_rbp),
	    cmocka_unit_test(test_frames_in_the_heap),
	    cmocka_unit_test(test_what_is_not_attached_to_is_said),
	    cmocka_unit_test(test_compile_ids_are_compared_after_a_compilation),
	    cmocka_unit_test(test_compile_ids_are_compared_after_a_safepoint),
	    cmocka_unit_test(test_a_freed_header_is_not_trusted),
	    cmocka_unit_test(test_what_has_changed_has_no_name),
	    cmocka_unit_test(test_changed_bytes_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
