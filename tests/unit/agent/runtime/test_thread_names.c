/* SPDX-License-Identifier: Apache-2.0 */
/* How long names of threads are kept, when they are read again, and how many there can be. */
#include "agent/runtime/thread_names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct thread_names *names;

static int setup(void **state)
{
	return thread_names_new(&names);
}

static int teardown(void **state)
{
	names = thread_names_free(names);
	return 0;
}

static struct thread_name *get(uint32_t tid, const char *comm, uint32_t window)
{
	struct thread_name_key key = {.space = 1, .tid = tid};

	snprintf(key.comm, sizeof(key.comm), "%s", comm);
	return thread_names_get(names, &key, window);
}

static void a_name_holds_until_it_is_asked_for_again(void **state)
{
	struct thread_name *e = get(5, "ForkJoinPool-1-", 1);

	assert_non_null(e);
	assert_null(e->name);
	assert_int_equal(e->due_ms, 0);
	thread_names_set(e, "ForkJoinPool-1-worker-1", 0, 1000);
	assert_ptr_equal(get(5, "ForkJoinPool-1-", 1), e);
	assert_string_equal(e->name, "ForkJoinPool-1-worker-1");
	assert_int_equal(e->due_ms, 1000 + THREAD_NAME_KEEP_MS);
	/* A name that cannot be read now leaves the old one in place. */
	thread_names_set(e, NULL, -EAGAIN, 20000);
	assert_string_equal(e->name, "ForkJoinPool-1-worker-1");
	/* A thread whose name in the kernel changes gets a new entry. */
	assert_ptr_not_equal(get(5, "ForkJoinPool-2-", 1), e);
}

static void what_cannot_be_read_is_asked_for_less_and_less(void **state)
{
	struct thread_name *e = get(5, "ForkJoinPool-1-", 1);
	uint64_t wait = THREAD_NAME_RETRY_MIN_MS;

	for (int i = 0; i < 12; i++) {
		thread_names_set(e, NULL, -EAGAIN, 100);
		assert_int_equal(e->due_ms, 100 + wait);
		wait = MIN(wait * 2, (uint64_t)THREAD_NAME_RETRY_MAX_MS);
	}
	e = get(6, "ForkJoinPool-1-", 1);
	thread_names_set(e, NULL, -ENOENT, 100);
	assert_int_equal(e->due_ms, 100 + THREAD_NAME_RETRY_MAX_MS);
}

static void there_is_an_end(void **state)
{
	for (uint32_t i = 0; i < THREAD_NAMES_MAX; i++)
		assert_non_null(get(i, "x", i < 10 ? 2 : 1));
	assert_null(get(THREAD_NAMES_MAX, "x", 1));
	/* A window before the first one expires no entry. */
	thread_names_sweep(names, (uint32_t)-3);
	assert_null(get(THREAD_NAMES_MAX, "x", 1));
	thread_names_sweep(names, 2);
	for (uint32_t i = 0; i < THREAD_NAMES_MAX - 10; i++)
		assert_non_null(get(100000 + i, "x", 2));
	assert_null(get(THREAD_NAMES_MAX, "x", 2));
	assert_non_null(get(3, "x", 2));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(a_name_holds_until_it_is_asked_for_again, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(what_cannot_be_read_is_asked_for_less_and_less, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(there_is_an_end, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
