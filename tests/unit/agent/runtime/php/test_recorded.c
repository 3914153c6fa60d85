// SPDX-License-Identifier: Apache-2.0
/*
 * The walk and the names over recorded memory of each version (hack/record-php), and over the same
 * memory with forged structures: the work is bounded, and a broken structure gives a "missing"
 * entry.
 */
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdarg.h>

#include <cmocka.h>

#include "tests/unit/agent/runtime/php/host_walk.h"
#include "tests/unit/agent/runtime/php/recording.h"

static const char *const versions[] = {"7.4", "8.2", "8.4", "8.5", "8.6"};

enum { FRAMES = 16, READS_MAX = 12 * PHP_DEPTH_MAX };

struct fixture {
	struct recording *r;
	struct target_memory memory;
	struct kiln_runtime kernel;
	void *state;
};

static const struct kiln_php *data_of(const struct fixture *f)
{
	return (const struct kiln_php *)f->kernel.data;
}

static struct fixture open_recording(const char *version)
{
	struct fixture f = {0};
	struct runtime_target target;
	struct error err = {0};
	char path[256];

	snprintf(path, sizeof(path), TEST_DATA "/php/%s.txt", version);
	f.r = recording_read(path);
	assert_non_null(f.r);
	f.memory = recorded_memory_target(&f.r->memory);
	target = recording_target(f.r);
	if (php_ops.attach(&f.r->image.base, &target, &f.kernel, &f.state, &err) < 0)
		fail_msg("%s: %s", version, err.message);
	return f;
}

static void close_recording(struct fixture *f)
{
	php_ops.detach(f->state);
	recording_free(f->r);
}

/* Calls TEST with each version's recording. */
static void with_each(void (*test)(struct fixture *f))
{
	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		test(&f);
		close_recording(&f);
	}
}

static uint32_t walk(struct fixture *f)
{
	return host_walk(&f->memory, &f->kernel);
}

static enum kiln_missing missing_in(uint32_t n)
{
	for (uint32_t i = 0; i < n; i += kiln_frame_words(host.words[i])) {
		if (KILN_FRAME_KIND(host.words[i]) == KILN_FRAME_MISSING)
			return (enum kiln_missing)(host.words[i] & 255);
	}
	return KILN_MISSING_NONE;
}

static int name(struct fixture *f, uint32_t frame, char *scratch, size_t size,
		struct symbol_result *ret)
{
	return php_symbolize(f->state, &f->memory, host.words + (size_t)frame * 2, scratch, size,
			     ret);
}

/* The address of frame N's zend_execute_data. */
static uint64_t frame_address(struct fixture *f, int n)
{
	uint64_t at =
	    recorded_memory_word(&f->r->memory, data_of(f)->globals + data_of(f)->current);

	for (; n > 0; n--)
		at = recorded_memory_word(&f->r->memory, at + PHP_FRAME_PREVIOUS * 8);
	return at;
}

/* ---- as they are ----------------------------------------------------------------------------- */

static void has_its_frames(struct fixture *f)
{
	uint32_t n = walk(f);

	assert_int_equal(n, f->r->n_frames * 2);
	assert_int_equal(f->r->n_frames, FRAMES);
	for (uint32_t i = 0; i < n / 2; i++) {
		const struct recording_frame *want = &f->r->frames[i];
		struct symbol_result got = {0};
		char scratch[4096];

		assert_int_equal(name(f, i, scratch, sizeof(scratch), &got), 0);
		assert_int_equal(got.n, 1);
		assert_int_equal(got.type, FRAME_PHP);
		assert_string_equal(got.symbols[0].name, want->name);
		assert_string_equal(got.symbols[0].file, want->file);
		assert_int_equal(got.symbols[0].line, want->line);
		assert_int_equal(got.symbols[0].start_line, want->start_line);
	}
}

static void every_version_has_its_frames(void **unused)
{
	with_each(has_its_frames);
}

/* The recorded frames are those that the program is written to have. */
static void the_recorded_frames_are_the_programs(void **unused)
{
	static const char *const names[FRAMES] = {
	    "sleep",
	    "Record\\wait",
	    "Record\\recurse",
	    "Record\\recurse",
	    "Record\\recurse",
	    "Record\\Shop::later",
	    "array_map",
	    "Record\\Shop::all",
	    "Record\\inner",
	    "Record\\middle",
	    "Record\\outer",
	    "Record\\generate",
	    "{eval}",
	    "{closure:/tmp/recorded/program.php:58}",
	    "{include:/tmp/recorded/included.php}",
	    "{main}",
	};

	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		struct fixture f = open_recording(versions[v]);

		for (size_t i = 0; i < ARRAY_SIZE(names); i++)
			assert_string_equal(f.r->frames[i].name, names[i]);
		close_recording(&f);
	}
}

/* ---- memory that was freed and is another's ---------------------------------------------------
 */

/* Asserts that frame N has no name while VALUE is at ADDRESS, and has its name again afterwards. */
static void has_no_name(struct fixture *f, uint32_t n, uint64_t address, uint64_t value)
{
	uint64_t saved = recorded_memory_word(&f->r->memory, address);
	struct symbol_result got = {0};
	char scratch[4096];

	assert_non_null(recorded_memory_at(&f->r->memory, address, 8));
	(void)walk(f);
	assert_int_equal(name(f, n, scratch, sizeof(scratch), &got), 0);
	recorded_memory_put(&f->r->memory, address, value);
	assert_true(name(f, n, scratch, sizeof(scratch), &got) < 0);
	recorded_memory_put(&f->r->memory, address, saved);
	assert_int_equal(name(f, n, scratch, sizeof(scratch), &got), 0);
}

static uint64_t func_of(struct fixture *f, int n)
{
	return recorded_memory_word(&f->r->memory, frame_address(f, n) + PHP_FRAME_FUNC * 8);
}

static void a_replaced_function_has(struct fixture *f)
{
	uint64_t func = func_of(f, 1),
		 text = recorded_memory_word(&f->r->memory, func + PHP_FUNC_NAME);

	/*
	 * Record\wait with another name, another class, another text with the same hash, and
	 * another hash.
	 */
	has_no_name(f, 1, func + PHP_FUNC_NAME,
		    recorded_memory_word(&f->r->memory, func_of(f, 2) + PHP_FUNC_NAME));
	has_no_name(f, 1, func + PHP_FUNC_SCOPE, func);
	has_no_name(f, 1, text + PHP_STRING_TEXT, 0x4141414141414141);
	has_no_name(f, 1, text + PHP_STRING_HASH, 1ULL << 63 | 5);
}

static void a_replaced_function_has_no_name(void **unused)
{
	with_each(a_replaced_function_has);
}

/* Record\Shop::all with a class that is not the one of that name in PHP's table of classes. */
static void a_class_that_is_gone_has(struct fixture *f)
{
	uint64_t scope = recorded_memory_word(&f->r->memory, func_of(f, 7) + PHP_FUNC_SCOPE);
	uint64_t text = recorded_memory_word(&f->r->memory, scope + PHP_CLASS_NAME);

	has_no_name(f, 7, scope + PHP_CLASS_NAME,
		    recorded_memory_word(&f->r->memory, func_of(f, 1) + PHP_FUNC_NAME));
	has_no_name(f, 7, text + PHP_STRING_TEXT, 0x4242424242424242);
}

static void a_class_that_is_gone_has_no_name(void **unused)
{
	with_each(a_class_that_is_gone_has);
}

/* Record\Shop::later as a closure: the method must be in its class's table. */
static void a_method_as_a_value_is_looked_up(struct fixture *f)
{
	uint64_t scope = recorded_memory_word(&f->r->memory, func_of(f, 5) + PHP_FUNC_SCOPE);
	const struct php_process *p = f->state;
	uint64_t table = scope + p->layout->class_functions;

	(void)walk(f);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[10]), PHP_BORROWED);
	has_no_name(f, 5, table + 24, 0);
	has_no_name(f, 5, table + 16, 8);
}

static void a_method_as_a_value_is_found_in_its_class(void **unused)
{
	with_each(a_method_as_a_value_is_looked_up);
}

/*
 * The string with the included file's name was freed: PHP still has the string of the first
 * include.
 */
static void an_included_file_is_looked_up(struct fixture *f)
{
	const struct php_process *p = f->state;
	uint64_t file = p->globals + p->layout->included_files, string, hash;
	struct symbol_result got = {0};
	char scratch[4096];

	(void)walk(f);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[28]), PHP_INCLUDE);
	string = host.words[28] & KILN_FRAME_PC_MASK;
	hash = recorded_memory_word(&f->r->memory, string + PHP_STRING_HASH);
	assert_true(hash >> 63);
	assert_int_equal(php_table_find(&f->memory, file,
					php_string_cookie(hash, PHP_LONG_COOKIE_BITS), &string),
			 0);
	host.words[28] = (host.words[28] & ~KILN_FRAME_PC_MASK) |
			 recorded_memory_word(&f->r->memory, func_of(f, 1) + PHP_FUNC_NAME);
	assert_int_equal(name(f, 14, scratch, sizeof(scratch), &got), 0);
	assert_string_equal(got.symbols[0].name, "{include:/tmp/recorded/included.php}");
	host.words[29] ^= 1ULL << 63;
	assert_true(name(f, 14, scratch, sizeof(scratch), &got) < 0);
}

static void an_included_files_name_is_found_after_it_is_gone(void **unused)
{
	with_each(an_included_file_is_looked_up);
}

/* ---- native frames --------------------------------------------------------------------------- */

/* zend_execute() has run the file: its native frame adds the PHP frames that the loop's did not. */
static void the_root_shows_the_rest(struct fixture *f)
{
	struct kiln_php *k = (struct kiln_php *)f->kernel.data;
	uint32_t n;

	k->root = 0x1000;
	k->root_size = 0x100;
	host_begin(&f->memory, &f->kernel);
	host_visit(k->loop + k->entered + 64);
	n = host.walk.n;
	assert_true(n < 2 * FRAMES);
	host_visit(0x1010);
	assert_int_equal(host.walk.n, 2 * FRAMES);
	host_visit(0x1010);
	assert_int_equal(host.walk.n, 2 * FRAMES);
}

static void no_frame_is_lost_between_two_native_ones(void **unused)
{
	with_each(the_root_shows_the_rest);
}

/* Record\wait from registers: one frame further out than the current frame in memory. */
static void the_leaf_is_from_registers(struct fixture *f)
{
	struct kiln_php *k = (struct kiln_php *)f->kernel.data;
	uint64_t frame = frame_address(f, 2), func = func_of(f, 2);

	k->flags |= PHP_HAS_REGISTERS;
	k->left_from = k->entered + 0x20;
	k->left_to = k->entered + 0x30;
	host_begin(&f->memory, &f->kernel);
	host.walk.leaf_valid = host.walk.exact = 1;
	host.walk.leaf[14] = frame;
	host.walk.leaf[15] = recorded_memory_word(&f->r->memory, frame);
	host_visit(k->loop + k->entered + 64);
	assert_int_equal(host.words[0] & KILN_FRAME_PC_MASK, func);
	assert_int_equal((uint32_t)host.words[1], f->r->frames[2].line);
	/* An instruction that is not in the function is not accepted, from registers or memory. */
	host_begin(&f->memory, &f->kernel);
	host.walk.leaf_valid = host.walk.exact = 1;
	host.walk.leaf[14] = frame;
	host.walk.leaf[15] = recorded_memory_word(&f->r->memory, frame_address(f, 7));
	recorded_memory_put(&f->r->memory, frame, host.walk.leaf[15]);
	host_visit(k->loop + k->entered + 64);
	assert_int_equal(host.words[0] & KILN_FRAME_PC_MASK, func);
	assert_int_equal((uint32_t)host.words[1], 0);
	/* Where the loop returns, the registers are the caller's. */
	host_begin(&f->memory, &f->kernel);
	host.walk.leaf_valid = host.walk.exact = 1;
	host_visit(k->loop + k->left_from);
	assert_int_equal(host.walk.n, 0);
}

static void at_the_leaf_registers_are_ahead_of_memory(void **unused)
{
	with_each(the_leaf_is_from_registers);
}

/*
 * A regular expression that PCRE has compiled, with three amounts of pushed words: rbp points to
 * its arguments, and the return address is right below them.
 */
static void a_regular_expression_is_left(struct fixture *f)
{
	enum { STACK = 0x10000, CODE = 0x20000, SIZE = 1024, ARGUMENTS = STACK + 512 };
	static const uint8_t call[] = {0xff, 0xd0}; /* call *%rax */
	struct kiln_walk *w = &host.walk;

	recorded_memory_add(&f->r->memory, STACK, SIZE);
	memcpy(recorded_memory_add(&f->r->memory, CODE, 64) + 30, call, sizeof(call));
	recorded_memory_put(&f->r->memory, ARGUMENTS - 8, CODE + 32);
	for (uint64_t used = 48; used <= 480; used += 216) {
		host_begin(&f->memory, &f->kernel);
		w->regs.fp = ARGUMENTS;
		w->regs.sp = ARGUMENTS - used;
		host_visit(CODE);
		assert_int_equal(KILN_FRAME_FLAGS(host.words[0]), PHP_REGEX);
		assert_int_equal(w->value, ARGUMENTS - 8);
	}
	/* At its first instruction nothing has been pushed. */
	host_begin(&f->memory, &f->kernel);
	w->leaf_valid = w->exact = 1;
	w->regs.sp = ARGUMENTS - 8;
	host_visit(CODE);
	assert_int_equal(KILN_FRAME_FLAGS(host.words[0]), PHP_REGEX);
	/* No return address of a call is there. */
	recorded_memory_put(&f->r->memory, ARGUMENTS - 8, CODE + 16);
	host_begin(&f->memory, &f->kernel);
	w->regs.fp = ARGUMENTS;
	w->regs.sp = ARGUMENTS - 64;
	host_visit(CODE);
	assert_int_equal(w->n, 0);
}

static void a_regular_expression_is_left_by_its_arguments(void **unused)
{
	with_each(a_regular_expression_is_left);
}

/* The loop has called a function that pushes the loop's registers right below the stack pointer. */
static void pushed_registers_tell(struct fixture *f)
{
	enum { STACK = 0x10000, SP = STACK + 512 };
	struct kiln_php *k = (struct kiln_php *)f->kernel.data;
	uint64_t frame = frame_address(f, 2), at = frame + PHP_FRAME_OPLINE * 8;
	uint64_t opline = recorded_memory_word(&f->r->memory, at);

	k->flags |= PHP_HAS_REGISTERS;
	recorded_memory_add(&f->r->memory, STACK, 1024);
	recorded_memory_put(&f->r->memory, k->globals + k->current, frame);
	recorded_memory_put(&f->r->memory, at,
			    recorded_memory_word(&f->r->memory, frame_address(f, 7)));
	for (uint64_t i = 2; i <= 16; i++) {
		recorded_memory_put(&f->r->memory, SP - i * 8, frame);
		recorded_memory_put(&f->r->memory, SP - (i - 1) * 8, opline);
		host_begin(&f->memory, &f->kernel);
		host.walk.regs.sp = SP;
		host_visit(k->loop + k->entered + 64);
		assert_int_equal(host.words[0] & KILN_FRAME_PC_MASK, func_of(f, 2));
		assert_int_equal((uint32_t)host.words[1], f->r->frames[2].line);
		recorded_memory_put(&f->r->memory, SP - i * 8, 0);
	}
}

static void what_the_loop_has_called_pushes_its_registers(void **unused)
{
	with_each(pushed_registers_tell);
}

/* ---- forged structures ----------------------------------------------------------------------- */

static void a_cycle_is_found(struct fixture *f)
{
	recorded_memory_put(&f->r->memory, frame_address(f, 4) + PHP_FRAME_PREVIOUS * 8,
			    frame_address(f, 2));
	assert_int_equal(missing_in(walk(f)), KILN_MISSING_BROKEN);
	assert_true(host.walk.n < 100 && host.reads < 500);
}

static void a_cycle_ends(void **unused)
{
	with_each(a_cycle_is_found);
}

static void wild_pointers_are_said(void **unused)
{
	static const uint64_t wild[] = {8, 0xdeadbeefdeadbeef, UINT64_MAX, 1ULL << 47};

	for (size_t v = 0; v < ARRAY_SIZE(versions); v++) {
		for (size_t i = 0; i < ARRAY_SIZE(wild); i++) {
			struct fixture f = open_recording(versions[v]);

			recorded_memory_put(&f.r->memory,
					    frame_address(&f, 2) + PHP_FRAME_PREVIOUS * 8, wild[i]);
			/* The frames before it are still found. */
			assert_int_equal(walk(&f), 3 * 2 + 1);
			assert_int_equal(missing_in(host.walk.n), KILN_MISSING_READ);
			close_recording(&f);
			f = open_recording(versions[v]);
			recorded_memory_put(&f.r->memory, frame_address(&f, 2) + PHP_FRAME_FUNC * 8,
					    wild[i]);
			assert_int_equal(walk(&f), 2 * 2 + 1);
			assert_int_equal(missing_in(host.walk.n), KILN_MISSING_READ);
			close_recording(&f);
		}
	}
}

static void what_is_no_function_is_said(struct fixture *f)
{
	recorded_memory_put(&f->r->memory, func_of(f, 1), 0x77);
	(void)walk(f);
	assert_int_equal(missing_in(host.walk.n), KILN_MISSING_BROKEN);
}

static void a_function_of_no_known_type_is_said(void **unused)
{
	with_each(what_is_no_function_is_said);
}

/* A generator that yields from itself. */
static void generators_end(struct fixture *f)
{
	const struct kiln_php *k = data_of(f);
	uint64_t fake = frame_address(f, 9), generator = fake - k->generator_fake;

	assert_int_equal(recorded_memory_word(&f->r->memory, fake + PHP_FRAME_FUNC * 8), 0);
	recorded_memory_put(&f->r->memory, generator + k->generator_parent, generator);
	(void)walk(f);
	assert_int_equal(missing_in(host.walk.n), KILN_MISSING_BUDGET);
	assert_true(host.reads < 1000);
}

static void generators_without_end_are_bounded(void **unused)
{
	with_each(generators_end);
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

static void chains_without_end_are(struct fixture *f)
{
	static const uint64_t steps[] = {0, 8, 16, 128, 4096, 1 << 20};

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		uint64_t step = steps[i];
		struct target_memory memory = {.read = endless, .arg = &step};

		(void)host_walk(&memory, &f->kernel);
		assert_true(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
		assert_true(host.reads < READS_MAX);
	}
}

static void chains_without_end_are_bounded(void **unused)
{
	with_each(chains_without_end_are);
}

/* Puts nonsense into each recorded word in turn: walking and naming must end. */
static void nonsense_does_no_harm(struct fixture *f)
{
	static const uint64_t nonsense[] = {0, 1, UINT64_MAX, 0x4141414141414141};

	for (size_t i = 0; i < f->r->memory.n_pieces; i++) {
		struct recorded_piece *p = &f->r->memory.pieces[i];

		for (uint64_t at = 0; at + 8 <= p->size; at += 8) {
			uint64_t saved;
			uint32_t n;

			memcpy(&saved, p->bytes + at, 8);
			memcpy(p->bytes + at, &nonsense[(at / 8 + i) % 4], 8);
			n = walk(f);
			assert_true(host.reads < READS_MAX);
			for (uint32_t k = 0; k + 1 < n && kiln_frame_runtime(host.words[k]);
			     k += 2) {
				struct symbol_result got;
				char scratch[512];

				(void)name(f, k / 2, scratch, sizeof(scratch), &got);
			}
			memcpy(p->bytes + at, &saved, 8);
		}
	}
}

static void nonsense_anywhere_does_no_harm(void **unused)
{
	with_each(nonsense_does_no_harm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_version_has_its_frames),
	    cmocka_unit_test(the_recorded_frames_are_the_programs),
	    cmocka_unit_test(a_replaced_function_has_no_name),
	    cmocka_unit_test(a_class_that_is_gone_has_no_name),
	    cmocka_unit_test(a_method_as_a_value_is_found_in_its_class),
	    cmocka_unit_test(an_included_files_name_is_found_after_it_is_gone),
	    cmocka_unit_test(no_frame_is_lost_between_two_native_ones),
	    cmocka_unit_test(at_the_leaf_registers_are_ahead_of_memory),
	    cmocka_unit_test(a_regular_expression_is_left_by_its_arguments),
	    cmocka_unit_test(what_the_loop_has_called_pushes_its_registers),
	    cmocka_unit_test(a_cycle_ends),
	    cmocka_unit_test(wild_pointers_are_said),
	    cmocka_unit_test(a_function_of_no_known_type_is_said),
	    cmocka_unit_test(generators_without_end_are_bounded),
	    cmocka_unit_test(chains_without_end_are_bounded),
	    cmocka_unit_test(nonsense_anywhere_does_no_harm),
	};

	return cmocka_run_group_tests_name("php_recorded", tests, NULL, NULL);
}
