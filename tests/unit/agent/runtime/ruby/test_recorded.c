// SPDX-License-Identifier: Apache-2.0
/*
 * Ruby's frames over recorded memory of program.rb, and over the same memory with forged
 * structures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/ruby/host_walk.h"
#include "tests/unit/agent/runtime/ruby/recording.h"

static const char *const versions[] = {"2.7.4", "3.1.2", "3.3.8", "3.4.11"};

/* The frames of program.rb, leaf first. */
static const struct {
	const char *name;
	unsigned int line;
} expected[] = {
    {"IO#read", 0},
    {"block (2 levels) in <main>", 49},
    {"go", 40},
    {"block in <main>", 46},
    {"block (3 levels) in Shop::Cart#fill", 13},
    {"block in Shop::Cart#again", 25},
    {"Shop::Cart#finish", 31},
    {"Kernel#eval", 0},
    {"Shop::Cart#finish", 33},
    {"block in Shop::Cart#made", 29},
    {"Array#map", 0},
    {"Shop::Cart#made", 29},
    {"rescue in Shop::Cart#again", 25},
    {"Shop::Cart#again", 22},
    {"Shop::Cart#total", 18},
    {"Shop::Cart#total", 19},
    {"Shop::Cart#total", 19},
    {"Shop::Cart#total", 19},
    {"block (2 levels) in Shop::Cart#fill", 13},
    {"Hash#each_pair", 0},
    {"block in Shop::Cart#fill", 13},
    {"Array#each", 0},
    {"Shop::Cart#fill", 12},
    {"Shop::Cart.build", 8},
    {"<main>", 45},
};

struct fixture {
	struct recording *r;
	struct target_memory memory;
	struct kiln_runtime kernel;
	void *state;
};

static struct fixture open_recording(const char *version)
{
	struct runtime_target target;
	struct fixture f = {0};
	char path[512];

	snprintf(path, sizeof(path), TEST_DATA "/ruby/%s.txt", version);
	f.r = recording_read(path);
	assert_non_null(f.r);
	f.memory = recorded_memory_target(&f.r->memory);
	target = recording_target(f.r);
	assert_int_equal(ruby_ops.attach(&f.r->image.base, &target, &f.kernel, &f.state, NULL), 0);
	return f;
}

static void close_recording(struct fixture *f)
{
	ruby_ops.detach(f->state);
	recording_free(f->r);
}

static struct kiln_ruby *data_of(struct fixture *f)
{
	return (struct kiln_ruby *)f->kernel.data;
}

static int name_of(struct fixture *f, const uint64_t *words, struct symbol *ret)
{
	static char scratch[16384];
	struct symbol_result got = {0};
	int r = ruby_symbolize(f->state, &f->memory, words, scratch, sizeof(scratch), &got);

	*ret = got.symbols[0];
	return r;
}

static uint32_t missing_in(uint32_t n)
{
	for (uint32_t i = 0; i < n; i += kiln_frame_words(host.words[i]))
		if (!kiln_frame_runtime(host.words[i]))
			return kiln_missing_reason(host.words[i]);
	return KILN_MISSING_NONE;
}

static void every_version_has_its_frames(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread),
				 2 * ARRAY_SIZE(expected));
		assert_int_equal(f.r->n_frames, ARRAY_SIZE(expected));
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
			const struct recording_frame *want = &f.r->frames[i];
			struct symbol got;

			assert_int_equal(name_of(&f, host.words + 2 * i, &got), 0);
			assert_string_equal(got.name, expected[i].name);
			assert_int_equal(got.line, expected[i].line);
			assert_int_equal(got.start_line, want->start_line);
			assert_non_null(strstr(got.file, streq(want->file, "-") ? "" : want->file));
		}
		close_recording(&f);
	}
}

/* Walks with the loop's native frame as the leaf, AT bytes from its start; R15: HELD, R14: PC. */
static uint32_t walk_leaf(struct fixture *f, uint64_t at, uint64_t held, uint64_t pc)
{
	host_begin(&f->memory, &f->kernel, f->r->thread);
	host_stand(false);
	host.walk.regs.pc = data_of(f)->loop_start + at;
	host.walk.exact = host.walk.leaf_valid = 1;
	host.walk.leaf[RUBY_REG_R15] = held;
	host.walk.leaf[RUBY_REG_R14] = pc;
	(void)ruby_walk(0);
	return host.walk.n;
}

/* The address of the topmost control frame. */
static uint64_t top(struct fixture *f)
{
	host_begin(&f->memory, &f->kernel, f->r->thread);
	host_stand(false);
	assert_int_equal(ruby_begin(0, RUBY_IN_LOOP), 0);
	return host.walk.cursor.words[RUBY_FRAME];
}

/* Makes the control frame N from the leaf the topmost one; returns its address. */
static uint64_t take_off(struct fixture *f, uint64_t n)
{
	uint64_t frame = top(f), new = frame + n *data_of(f)->frame_size;
	uint8_t *at = NULL;

	for (size_t i = 0; i < f->r->memory.n_pieces && !at; i++) {
		struct recorded_piece *p = &f->r->memory.pieces[i];

		/* The context: {stack, size, frame}. */
		for (uint64_t k = 0; k + 24 <= p->size && !at; k += 8)
			if (!memcmp(p->bytes + k + 16, &frame, 8))
				at = p->bytes + k + 16;
	}
	assert_non_null(at);
	memcpy(at, &new, sizeof(new));
	assert_int_equal(top(f), new);
	return new;
}

static void a_loop_that_returns_has_no_frames(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t frame = top(&f);
		uint32_t n;

		/* The topmost frame is a C method, so the loop has already popped its own frame. */
		assert_int_equal(walk_leaf(&f, 2000, frame, 0), 0);
		host_stand(true);
		(void)ruby_walk(0);
		assert_int_equal(host.walk.n, 0);
		/* The next native frame of the loop has the frames. */
		host_stand(false);
		(void)ruby_walk(0);
		assert_true(host.walk.n >= 4);
		/* At the loop's first instructions its frames are there. */
		n = walk_leaf(&f, 4, 0, 0);
		assert_true(n >= 4);
		close_recording(&f);
	}
}

static void a_frame_that_is_just_off_is_still_there(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t size = data_of(&f)->frame_size, frame = take_off(&f, 2), pc = 0;
		struct symbol got;

		memcpy(&pc, recorded_memory_at(&f.r->memory, frame - size, 8), 8);
		assert_true(walk_leaf(&f, 2000, frame - size, pc) >= 4);
		assert_int_equal(name_of(&f, host.words, &got), 0);
		assert_string_equal(got.name, expected[1].name);
		assert_int_equal(got.line, expected[1].line);
		close_recording(&f);
	}
}

static void the_leafs_line_is_that_of_the_instruction_that_runs(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t frame = take_off(&f, 1), pc = 0, handler;

		memcpy(&pc, recorded_memory_at(&f.r->memory, frame, 8), 8);
		/* The word at PC holds the address of the instruction's native code. */
		handler = data_of(&f)->loop_start + 1990;
		assert_non_null(recorded_memory_add(&f.r->memory, pc, 8));
		recorded_memory_put(&f.r->memory, pc, handler);
		assert_true(walk_leaf(&f, 2000, frame, pc) >= 2);
		assert_true(KILN_FRAME_FLAGS(host.words[0]) & KILN_RUBY_EXACT);
		recorded_memory_put(&f.r->memory, pc, handler + 20);
		assert_true(walk_leaf(&f, 2000, frame, pc) >= 2);
		assert_false(KILN_FRAME_FLAGS(host.words[0]) & KILN_RUBY_EXACT);
		close_recording(&f);
	}
}

static void a_frame_that_has_not_begun_is_left_out(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		/* The outermost block that was called by C. */
		uint64_t frame = take_off(&f, 20), iseq = 0, body = 0, encoded = 0;
		struct symbol got;

		memcpy(&iseq, recorded_memory_at(&f.r->memory, frame + 16, 8), 8);
		memcpy(&body, recorded_memory_at(&f.r->memory, iseq + 16, 8), 8);
		memcpy(&encoded, recorded_memory_at(&f.r->memory, body + 8, 8), 8);
		recorded_memory_put(&f.r->memory, frame, encoded);
		assert_true(host_walk(&f.memory, &f.kernel, f.r->thread) >= 2);
		assert_int_equal(name_of(&f, host.words, &got), 0);
		assert_string_equal(got.name, expected[21].name);
		close_recording(&f);
	}
}

static void code_of_a_string_is_named_at_once(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t before[KILN_HURRIED];

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		assert_int_equal(host.walk.fresh, 1);
		/* Sent once; the main program is code of a string too. */
		memcpy(before, host.walk.hurried, sizeof(before));
		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		assert_memory_equal(before, host.walk.hurried, sizeof(before));
		(void)take_off(&f, 8);
		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		assert_int_equal(host.walk.fresh, 0);
		close_recording(&f);
	}
}

/* A native stack: registers that the entry of JIT code saved, and its return address. */
static void jit_code_is_left_by_its_stack(void **unused)
{
	(void)unused;
	for (size_t v = 1; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		const struct kiln_ruby *k = data_of(&f);
		uint64_t native[8] = {1, 2, 0xb0, 0xc0, 0xd0, k->exec_start + 9, 7, 8};
		uint64_t frame = take_off(&f, 1);
		uint8_t *stack;

		stack = recorded_memory_add(&f.r->memory, 0x7000, sizeof(native));
		assert_non_null(stack);
		memcpy(stack, native, sizeof(native));
		host_begin(&f.memory, &f.kernel, f.r->thread);
		host_stand(false);
		host.walk.map_image = 0;
		host.walk.regs.sp = 0x7000;
		host.walk.regs.fp = 0x1234;
		host.walk.exact = host.walk.leaf_valid = 1;
		host.walk.leaf[RUBY_REG_R13] = frame;
		(void)ruby_walk(0);
		assert_true(host.walk.hide_native && host.walk.stepped && host.walk.n >= 2);
		assert_int_equal(KILN_RUBY_INDEX(host.words[1]), KILN_RUBY_INDEX_NONE);
		assert_int_equal(host.walk.regs.pc, k->exec_start + 9);
		assert_int_equal(host.walk.regs.sp, 0x7000 + 6 * 8);
		assert_int_equal(host.walk.regs.extra, 0xb0);
		assert_int_equal(host.walk.regs.fp, 0x1234);
		close_recording(&f);
	}
}

static uint64_t recorded_word(struct fixture *f, uint64_t address)
{
	const uint8_t *at = recorded_memory_at(&f->r->memory, address, 8);
	uint64_t v;

	assert_non_null(at);
	memcpy(&v, at, 8);
	return v;
}

/* Changes the word at ADDRESS: frame I must have no name. Restores it: the name is back. */
static void assert_noticed(struct fixture *f, size_t i, uint64_t address)
{
	uint8_t *at = recorded_memory_at(&f->r->memory, address, 8);
	struct symbol got;

	assert_non_null(at);
	at[1] ^= 0x10;
	assert_int_equal(name_of(f, host.words + 2 * i, &got), -EFAULT);
	at[1] ^= 0x10;
	assert_int_equal(name_of(f, host.words + 2 * i, &got), 0);
	assert_string_equal(got.name, expected[i].name);
}

static size_t frame_named(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
		if (streq(expected[i].name, name))
			return i;
	fail();
	return 0;
}

static void a_replaced_method_is_noticed(void **unused)
{
	size_t c = frame_named("IO#read"),
	       block = frame_named("block (3 levels) in Shop::Cart#fill"),
	       made = frame_named("Shop::Cart#made");

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t iseq;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		/* C method: definition.original_id, owner.klass. */
		assert_noticed(&f, c, KILN_RUBY_OBJECT(host.words[2 * c]) + 32);
		assert_noticed(&f, c, KILN_RUBY_OBJECT(host.words[2 * c + 1]) + 8);
		/* Ruby code: body.location.label, owner.klass. */
		iseq = KILN_RUBY_OBJECT(host.words[2 * block]);
		assert_noticed(&f, block, recorded_word(&f, iseq + 16) + 80);
		assert_noticed(&f, block, KILN_RUBY_OBJECT(host.words[2 * block + 1]) + 8);
		/* Code of define_method: owner of the method entry. */
		assert_true(KILN_RUBY_IS_ENTRY(host.words[2 * made + 1]));
		assert_noticed(&f, made, KILN_RUBY_OBJECT(host.words[2 * made + 1]) + 32);
		close_recording(&f);
	}
}

/* Method entries are young objects, which GC.compact moves. */
static void a_method_whose_entry_has_moved_has_its_name(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t frame = top(&f);
		unsigned int n = 0;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		for (; frame < host.walk.cursor.words[RUBY_END]; frame += data_of(&f)->frame_size) {
			uint64_t ep = recorded_word(&f, frame + 8 * RUBY_CFP_EP);
			uint64_t entry = recorded_word(&f, ep - 16);
			uint8_t *at =
			    entry & 7 ? NULL : recorded_memory_at(&f.r->memory, entry, 40);
			bool is_bmethod = recorded_word(&f, ep) & RUBY_BMETHOD;

			if (!at || is_bmethod || (at[0] & RUBY_TYPE_MASK) != RUBY_TYPE_IMEMO)
				continue;
			memset(at, 0, 40);
			n++;
		}
		assert_true(n > 4);
		for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
			struct symbol got;

			assert_int_equal(name_of(&f, host.words + 2 * i, &got), 0);
			assert_string_equal(got.name, expected[i].name);
		}
		close_recording(&f);
	}
}

/* When evaluated code was collected, its name is in the text that the walker sent. */
static void code_of_a_string_has_its_name_when_it_is_gone(void **unused)
{
	size_t eval = frame_named("Kernel#eval") - 1;

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		struct symbol_result result;
		const uint64_t *words = host.words + 2 * eval;
		const struct kiln_text *text;
		struct symbol before, got;
		char file[64];
		uint8_t *at;

		(void)host_walk(&f.memory, &f.kernel, f.r->thread);
		text = host_text(words);
		assert_non_null(text);
		assert_int_equal(name_of(&f, words, &before), 0);
		snprintf(file, sizeof(file), "%s", before.file);
		assert_string_equal(file, "cart.erb");
		/* The code is collected. */
		recorded_memory_put(&f.r->memory, KILN_RUBY_OBJECT(words[0]) + 16, 0);
		assert_int_equal(name_of(&f, words, &got), -EFAULT);
		assert_int_equal(ruby_read_text(f.state, text, NULL, 0, &result), -EAGAIN);
		assert_int_equal(name_of(&f, words, &got), 0);
		assert_string_equal(got.name, expected[eval].name);
		assert_string_equal(got.file, file);
		assert_int_equal(got.line, expected[eval].line);
		assert_int_equal(got.start_line, 31);
		/* Its method was replaced. */
		at = recorded_memory_at(&f.r->memory,
					((const struct kiln_ruby_text *)text->bytes)->root + 16, 8);
		assert_non_null(at);
		at[1] ^= 0x10;
		assert_int_equal(name_of(&f, words, &got), -EFAULT);
		close_recording(&f);
	}
}

static void a_thread_without_ruby_has_no_frames(void **unused)
{
	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread + 4096), 1);
		assert_int_equal(missing_in(1), KILN_MISSING_NO_THREAD);
		close_recording(&f);
	}
}

static void wild_pointers_are_said(void **unused)
{
	static const uint64_t wild[] = {8, 0xdeadbeefdeadbee8, UINT64_MAX & ~7ULL, 1ULL << 47};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(wild); i++) {
			struct fixture f = open_recording(versions[v]);
			uint64_t frame = top(&f) + 3 * (uint64_t)data_of(&f)->frame_size;
			uint32_t n;

			recorded_memory_put(&f.r->memory, frame + 16 * (1 + i % 2),
					    wild[i]); /* iseq, ep */
			n = host_walk(&f.memory, &f.kernel, f.r->thread);
			assert_int_equal(missing_in(n), KILN_MISSING_READ);
			/* The frames before it are still found. */
			assert_int_equal(n, 3 * 2 + 1);
			close_recording(&f);
		}
	}
}

static void a_context_that_makes_no_sense_is_none(void **unused)
{
	static const uint64_t sizes[] = {0, 1ULL << 40, UINT64_MAX};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);
		uint64_t end = 0, size = 0;

		(void)top(&f);
		end = host.walk.cursor.words[RUBY_END];
		for (size_t i = 0; i < f.r->memory.n_pieces; i++) {
			struct recorded_piece *p = &f.r->memory.pieces[i];
			uint64_t words[3];

			for (uint64_t k = 0; k + 24 <= p->size; k += 8) {
				memcpy(words, p->bytes + k, sizeof(words));
				if (words[1] < 1 << 27 && words[0] + words[1] * 8 == end)
					size = p->start + k + 8;
			}
		}
		assert_true(size);
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			recorded_memory_put(&f.r->memory, size, sizes[i]);
			assert_int_equal(host_walk(&f.memory, &f.kernel, f.r->thread), 1);
			assert_int_equal(missing_in(1), KILN_MISSING_NO_THREAD);
		}
		close_recording(&f);
	}
}

/* Memory without an end: every structure is full of pointers to another one. */
static int endless(void *arg, uint64_t address, void *dst, size_t len)
{
	uint64_t *step = arg, value;

	for (size_t i = 0; i < len; i++) {
		value = (address + *step) & ~7ULL;
		((uint8_t *)dst)[i] = (uint8_t)(value >> ((address + i) % 8 * 8));
	}
	return 0;
}

static void what_has_no_end_is_bounded(void **unused)
{
	static const uint64_t steps[] = {0, 8, 16, 128, 4096, 1 << 20};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
			uint64_t step = steps[i];
			struct target_memory memory = {.read = endless, .arg = &step};

			(void)host_walk(&memory, &f.kernel, f.r->thread);
			assert_true(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
			assert_true(host.reads < 40 * KILN_RUBY_STEPS_MAX);
		}
		close_recording(&f);
	}
}

/* Puts nonsense into each recorded word in turn: walking and naming must end. */
static void nonsense_anywhere_does_no_harm(void **unused)
{
	static const uint64_t nonsense[] = {0, 1, UINT64_MAX, 0x4141414141414141};

	(void)unused;
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		for (size_t i = 0; i < f.r->memory.n_pieces; i++) {
			struct recorded_piece *p = &f.r->memory.pieces[i];

			for (uint64_t at = 0; at + 8 <= p->size; at += 8) {
				uint64_t saved;
				uint32_t n;

				memcpy(&saved, p->bytes + at, 8);
				memcpy(p->bytes + at, &nonsense[(at / 8 + i) % 4], 8);
				n = host_walk(&f.memory, &f.kernel, f.r->thread);
				for (uint32_t k = 0; k + 1 < n; k += 2) {
					struct symbol got;

					if (!kiln_frame_runtime(host.words[k]))
						break;
					(void)name_of(&f, host.words + k, &got);
				}
				memcpy(p->bytes + at, &saved, 8);
			}
		}
		close_recording(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_version_has_its_frames),
	    cmocka_unit_test(a_loop_that_returns_has_no_frames),
	    cmocka_unit_test(a_frame_that_is_just_off_is_still_there),
	    cmocka_unit_test(the_leafs_line_is_that_of_the_instruction_that_runs),
	    cmocka_unit_test(a_frame_that_has_not_begun_is_left_out),
	    cmocka_unit_test(code_of_a_string_is_named_at_once),
	    cmocka_unit_test(jit_code_is_left_by_its_stack),
	    cmocka_unit_test(a_replaced_method_is_noticed),
	    cmocka_unit_test(a_method_whose_entry_has_moved_has_its_name),
	    cmocka_unit_test(code_of_a_string_has_its_name_when_it_is_gone),
	    cmocka_unit_test(a_thread_without_ruby_has_no_frames),
	    cmocka_unit_test(wild_pointers_are_said),
	    cmocka_unit_test(a_context_that_makes_no_sense_is_none),
	    cmocka_unit_test(what_has_no_end_is_bounded),
	    cmocka_unit_test(nonsense_anywhere_does_no_harm),
	};

	return cmocka_run_group_tests_name("ruby_recorded", tests, NULL, NULL);
}
