/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names are found by their whole key, stay while they are used, and keep within the memory limit.
 */
#include <pthread.h>

#include "agent/runtime/names.h"
#include "tests/support/test.h"

enum { MAX_BYTES = 64 << 10 };

static struct runtime_names *names;

static int setup(void **state)
{
	return runtime_names_new(MAX_BYTES, &names);
}

static int teardown(void **state)
{
	names = runtime_names_free(names);
	return 0;
}

static struct symbol_result one(const char *name, const char *file, uint32_t line)
{
	return (struct symbol_result){
	    .type = FRAME_CPYTHON,
	    .n = 1,
	    .symbols = {{.name = name, .file = file, .line = line, .start_line = 3}},
	};
}

static int put(uint32_t space, uint64_t a, uint64_t b, const char *name, uint32_t window)
{
	struct symbol_result sym = one(name, "file.py", 4);

	return runtime_names_put(names, space, (uint64_t[2]){a, b}, &sym, window);
}

static const char *get(uint32_t space, uint64_t a, uint64_t b)
{
	static struct symbol_result sym;

	if (!runtime_names_get(names, space, (uint64_t[2]){a, b}, &sym))
		return NULL;
	return sym.symbols[0].name;
}

static void each_part_of_the_key_tells_frames_apart(void **state)
{
	assert_int_equal(put(1, 10, 20, "one", 1), 0);
	assert_int_equal(put(2, 10, 20, "space", 1), 0);
	assert_int_equal(put(1, 11, 20, "first", 1), 0);
	assert_int_equal(put(1, 10, 21, "second", 1), 0);
	assert_string_equal(get(1, 10, 20), "one");
	assert_string_equal(get(2, 10, 20), "space");
	assert_string_equal(get(1, 11, 20), "first");
	assert_string_equal(get(1, 10, 21), "second");
	assert_null(get(3, 10, 20));
}

static void inlined_functions_come_back_in_order_with_their_lines(void **state)
{
	struct symbol_result in = one("inner", "in.js", 5), out = {0};
	const uint64_t words[2] = {1, 2};

	in.type = FRAME_V8JS;
	in.n = 2;
	in.symbols[1] = (struct symbol){
	    .name = "outer", .system_name = "_outer", .file = NULL, .line = 9, .start_line = 8};
	assert_int_equal(runtime_names_put(names, 1, words, &in, 1), 0);
	assert_true(runtime_names_get(names, 1, words, &out));
	assert_int_equal(out.type, FRAME_V8JS);
	assert_int_equal(out.n, 2);
	assert_string_equal(out.symbols[0].name, "inner");
	assert_string_equal(out.symbols[0].system_name, "inner");
	assert_string_equal(out.symbols[0].file, "in.js");
	assert_int_equal(out.symbols[0].line, 5);
	assert_int_equal(out.symbols[0].start_line, 3);
	assert_string_equal(out.symbols[1].system_name, "_outer");
	assert_string_equal(out.symbols[1].file, "");
	assert_int_equal(out.symbols[1].line, 9);
}

static void equal_functions_are_one_and_unequal_ones_are_not(void **state)
{
	struct symbol_result a = one("f", "x.py", 4), b = one("f", "y.py", 4),
			     c = one("f", "x.py", 5), out[3];
	struct symbol_result *in[] = {&a, &b, &c};

	for (uint64_t i = 0; i < 3; i++) {
		const uint64_t words[2] = {i, 0};

		assert_int_equal(runtime_names_put(names, 1, words, in[i], 1), 0);
		assert_true(runtime_names_get(names, 1, words, &out[i]));
	}
	assert_ptr_not_equal(out[0].symbols[0].name, out[1].symbols[0].name);
	assert_ptr_equal(out[0].symbols[0].name, out[2].symbols[0].name);
	assert_string_equal(out[1].symbols[0].file, "y.py");
}

static void a_name_that_could_not_be_read_is_tried_again_but_not_for_ever(void **state)
{
	const uint64_t words[2] = {1, 2};

	assert_int_equal(runtime_names_touch(names, 1, words, 1), RUNTIME_NAME_UNKNOWN);
	for (int i = 0; i < RUNTIME_NAME_TRIES; i++) {
		assert_int_equal(runtime_names_put(names, 1, words, NULL, 1), 0);
		assert_null(get(1, 1, 2));
		assert_int_equal(runtime_names_touch(names, 1, words, 1), RUNTIME_NAME_FAILED_NOW);
		runtime_names_next_round(names);
		assert_int_equal(runtime_names_touch(names, 1, words, 1),
				 i < RUNTIME_NAME_TRIES - 1 ? RUNTIME_NAME_FAILED
							    : RUNTIME_NAME_FAILED_NOW);
	}
	assert_int_equal(runtime_names_touch(names, 1, words, 2), RUNTIME_NAME_FAILED);
}

/* Adds names until none fits; returns how many. */
static uint64_t fill(uint32_t space, uint32_t window)
{
	char name[32];
	uint64_t n = 0;

	for (; n < 100000; n++) {
		snprintf(name, sizeof(name), "name%u", (unsigned)n);
		if (put(space, n, 0, name, window) < 0)
			return n;
	}
	fail_msg("there is no cap");
	return n;
}

static void what_was_not_used_for_longest_makes_room_and_nothing_in_use_does(void **state)
{
	const uint64_t first[2] = {0, 0};
	uint64_t n = fill(1, 1);
	uint32_t later = 1 + RUNTIME_NAMES_WINDOWS;

	assert_true(n > 50);
	assert_true(runtime_names_bytes(names) < MAX_BYTES + 512);
	/* Names stay as long as the worker may hold pointers to them. */
	assert_int_equal(put(2, 0, 0, "new", later - 1), -ENOSPC);
	assert_int_equal(runtime_names_touch(names, 1, first, later), RUNTIME_NAME_KNOWN);
	assert_int_equal(put(2, 0, 0, "new", later), 0);
	assert_string_equal(get(1, 0, 0), "name0");
	assert_null(get(1, 1, 0));
	assert_true(runtime_names_bytes(names) < MAX_BYTES + 512);
}

static void a_sweep_leaves_nothing_but_what_was_used(void **state)
{
	size_t empty = runtime_names_bytes(names);

	assert_int_equal(put(1, 1, 1, "old", 1), 0);
	assert_int_equal(put(1, 2, 2, "new", 5), 0);
	runtime_names_sweep(names, 5);
	assert_null(get(1, 1, 1));
	assert_string_equal(get(1, 2, 2), "new");
	runtime_names_sweep(names, 6);
	assert_int_equal(runtime_names_bytes(names), empty);
	assert_int_equal(runtime_names_count(names), 0);
}

/* A name that was just touched is found by a shorter way; when it is gone, it is not known. */
static void a_touched_name_that_is_gone_is_not_known(void **state)
{
	const uint64_t words[2] = {1, 1};

	assert_int_equal(put(1, 1, 1, "old", 1), 0);
	assert_int_equal(runtime_names_touch(names, 1, words, 2), RUNTIME_NAME_KNOWN);
	assert_int_equal(runtime_names_touch(names, 1, words, 2), RUNTIME_NAME_KNOWN);
	assert_int_equal(runtime_names_touch(names, 2, words, 2), RUNTIME_NAME_UNKNOWN);
	/* Each window's first touch counts as use. */
	assert_int_equal(runtime_names_touch(names, 1, words, 3), RUNTIME_NAME_KNOWN);
	runtime_names_sweep(names, 3);
	assert_string_equal(get(1, 1, 1), "old");
	runtime_names_sweep(names, 4);
	assert_int_equal(runtime_names_touch(names, 1, words, 3), RUNTIME_NAME_UNKNOWN);
}

static void endless_names_are_cut(void **state)
{
	_cleanup_free_ char *name = malloc(100001);
	struct symbol_result sym;

	memset(name, 'x', 100000);
	name[100000] = 0;
	sym = one(name, name, 1);
	sym.symbols[0].system_name = "other";
	assert_int_equal(runtime_names_put(names, 1, (uint64_t[2]){1, 1}, &sym, 1), 0);
	assert_int_equal(strlen(get(1, 1, 1)), RUNTIME_NAME_MAX - 1);
}

static void *read_names(void *arg)
{
	size_t found = 0;

	for (uint64_t i = 0; i < 20000; i++)
		found += get(1, i % 50, 0) != NULL;
	return (void *)(uintptr_t)(found > 0);
}

/* For the thread sanitizer: the loop adds names while the worker reads. */
static void two_threads_may_use_it(void **state)
{
	pthread_t thread;
	void *found;
	char name[32];

	assert_int_equal(put(1, 0, 0, "name", 1), 0);
	assert_int_equal(pthread_create(&thread, NULL, read_names, NULL), 0);
	for (uint64_t i = 1; i < 2000; i++) {
		snprintf(name, sizeof(name), "name%u", (unsigned)i);
		(void)put(1 + i % 2, i, 0, name, 2);
	}
	assert_int_equal(pthread_join(thread, &found), 0);
	assert_non_null(found);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(each_part_of_the_key_tells_frames_apart),
	    TEST(inlined_functions_come_back_in_order_with_their_lines),
	    TEST(equal_functions_are_one_and_unequal_ones_are_not),
	    TEST(a_name_that_could_not_be_read_is_tried_again_but_not_for_ever),
	    TEST(what_was_not_used_for_longest_makes_room_and_nothing_in_use_does),
	    TEST(a_sweep_leaves_nothing_but_what_was_used),
	    TEST(a_touched_name_that_is_gone_is_not_known),
	    TEST(endless_names_are_cut),
	    TEST(two_threads_may_use_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
