/* SPDX-License-Identifier: Apache-2.0 */
/* Functions are found by their whole key, and the cache keeps within its limits. */
#include "agent/runtime/functions.h"
#include "tests/support/test.h"

enum { MAX_BYTES = 16 << 10 };

static struct runtime_functions *functions;

static int setup(void **state)
{
	return runtime_functions_new(MAX_BYTES, &functions);
}

static int teardown(void **state)
{
	functions = runtime_functions_free(functions);
	return 0;
}

static struct runtime_function_key key(uint64_t address, uint64_t cookie, uint32_t space)
{
	return (struct runtime_function_key){address, cookie, space, 0};
}

static void put(struct runtime_function_key k, const char *name, const void *table, size_t size)
{
	runtime_functions_add(functions, &k,
			      &(struct runtime_function){.name = name,
							 .file = "a.py",
							 .start_line = 3,
							 .own = {7},
							 .table = table,
							 .table_size = size});
}

static const char *name_of(struct runtime_function_key k)
{
	static struct runtime_function f;

	return runtime_functions_find(functions, &k, &f) ? f.name : NULL;
}

static void each_part_of_the_key_tells_functions_apart(void **state)
{
	put(key(1, 2, 3), "one", NULL, 0);
	put(key(9, 2, 3), "address", NULL, 0);
	put(key(1, 9, 3), "cookie", NULL, 0);
	put(key(1, 2, 9), "space", NULL, 0);
	assert_string_equal(name_of(key(1, 2, 3)), "one");
	assert_string_equal(name_of(key(9, 2, 3)), "address");
	assert_string_equal(name_of(key(1, 9, 3)), "cookie");
	assert_string_equal(name_of(key(1, 2, 9)), "space");
	assert_null(name_of(key(9, 9, 9)));
}

static void what_was_put_last_at_an_address_is_guessed(void **state)
{
	struct runtime_function f;

	put(key(1, 2, 3), "old", NULL, 0);
	put(key(1, 4, 3), "new", NULL, 0);
	put(key(1, 5, 9), "other space", NULL, 0);
	assert_true(runtime_functions_guess(functions, 3, 1, &f));
	assert_string_equal(f.name, "new");
	assert_string_equal(name_of(key(1, 2, 3)), "old");
	assert_false(runtime_functions_guess(functions, 3, 2, &f));
	/* Some of these share the function's chain. */
	for (uint32_t space = 10; space < 100000; space++)
		assert_false(runtime_functions_guess(functions, space, 1, &f));
	for (uint64_t address = 10; address < 100000; address++)
		assert_false(runtime_functions_guess(functions, 3, address, &f));
}

static void cookies_are_of_their_code(void **state)
{
	uint64_t cookie = 0;

	assert_false(runtime_functions_cookie(functions, 3, 1, 2, &cookie));
	runtime_functions_keep_cookie(functions, 3, 1, 2, 77);
	assert_true(runtime_functions_cookie(functions, 3, 1, 2, &cookie));
	assert_int_equal(cookie, 77);
	assert_false(runtime_functions_cookie(functions, 9, 1, 2, &cookie));
	assert_false(runtime_functions_cookie(functions, 3, 9, 2, &cookie));
	assert_false(runtime_functions_cookie(functions, 3, 1, 9, &cookie));
	/* More entries than fit: an entry that is still found must be right. */
	for (uint64_t i = 1; i <= 10000; i++)
		runtime_functions_keep_cookie(functions, 3, i, 2, i * 3);
	for (uint64_t i = 1; i <= 10000; i++)
		if (runtime_functions_cookie(functions, 3, i, 2, &cookie))
			assert_int_equal(cookie, i * 3);
	assert_true(runtime_functions_cookie(functions, 3, 10000, 2, &cookie));
}

static void what_was_put_is_a_copy(void **state)
{
	char name[] = "shop.total", table[] = {1, 0, 2};
	struct runtime_function_key k = key(1, 2, 3);
	struct runtime_function f;

	put(k, name, table, sizeof(table));
	memset(name, 'x', sizeof(name) - 1);
	memset(table, 'x', sizeof(table));
	assert_true(runtime_functions_find(functions, &k, &f));
	assert_string_equal(f.name, "shop.total");
	assert_string_equal(f.file, "a.py");
	assert_int_equal(f.start_line, 3);
	assert_int_equal(f.own[0], 7);
	assert_int_equal(f.table_size, 3);
	assert_memory_equal(f.table, "\1\0\2", 3);
}

static void what_is_put_again_replaces_the_old(void **state)
{
	size_t bytes;

	put(key(1, 2, 3), "old", NULL, 0);
	bytes = runtime_functions_bytes(functions);
	put(key(1, 2, 3), "new", NULL, 0);
	assert_string_equal(name_of(key(1, 2, 3)), "new");
	assert_int_equal(runtime_functions_bytes(functions), bytes);
	assert_int_equal(runtime_functions_added(functions), 2);
}

static void a_large_table_is_not_kept(void **state)
{
	static const uint8_t table[RUNTIME_FUNCTION_TABLE_MAX + 1];
	struct runtime_function_key k = key(1, 2, 3);
	struct runtime_function f;

	put(k, "f", table, sizeof(table));
	assert_true(runtime_functions_find(functions, &k, &f));
	assert_null(f.table);
	assert_int_equal(f.table_size, 0);
	put(k, "f", table, 0);
	assert_true(runtime_functions_find(functions, &k, &f));
	assert_non_null(f.table);
	put(k, "f", table, sizeof(table) - 1);
	assert_true(runtime_functions_find(functions, &k, &f));
	assert_int_equal(f.table_size, RUNTIME_FUNCTION_TABLE_MAX);
}

static void who_was_not_used_for_longest_goes_first(void **state)
{
	static const uint8_t table[1000];

	put(key(1, 0, 0), "first", table, sizeof(table));
	put(key(2, 0, 0), "second", table, sizeof(table));
	for (uint64_t i = 3; i < 100; i++) {
		assert_non_null(name_of(key(1, 0, 0)));
		put(key(i, 0, 0), "next", table, sizeof(table));
		assert_in_range(runtime_functions_bytes(functions), 1000, MAX_BYTES);
	}
	assert_non_null(name_of(key(1, 0, 0)));
	assert_null(name_of(key(2, 0, 0)));
	assert_non_null(name_of(key(99, 0, 0)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(each_part_of_the_key_tells_functions_apart, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(what_was_put_last_at_an_address_is_guessed, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(cookies_are_of_their_code, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_was_put_is_a_copy, setup, teardown),
	    cmocka_unit_test_setup_teardown(what_is_put_again_replaces_the_old, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_large_table_is_not_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(who_was_not_used_for_longest_goes_first, setup,
					    teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
