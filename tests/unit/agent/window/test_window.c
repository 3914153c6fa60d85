/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/window.h"
#include "tests/support/test.h"

static struct stack s1, s2;
static struct process p1, p2;

static void counts_by_stack_thread_process_and_policy(void **state)
{
	struct window w;
	int64_t sum = 0;

	window_init(&w, false);
	window_reset(&w, 1, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(window_add(&w, &s1, &p1, 7, "main", 0, 0), 0);
	assert_int_equal(window_add(&w, &s2, &p1, 7, "main", 0, 0), 0);
	assert_int_equal(window_add(&w, &s1, &p2, 7, "main", 0, 0), 0);
	assert_int_equal(window_add(&w, &s1, &p1, 8, "main", 0, 0), 0);
	assert_int_equal(window_add(&w, &s1, &p1, 7, "other", 0, 0), 0);
	assert_int_equal(window_add(&w, &s1, &p1, 7, "main", 1, 0), 0);
	assert_int_equal(w.n, 6);
	for (struct count *c = w.list; c; c = c->next)
		sum += c->value;
	assert_int_equal(sum, 8);
	window_done(&w);
}

/* What stands behind the end of a thread's name is not part of it. */
static void bytes_after_the_name_do_not_matter(void **state)
{
	char a[KILN_COMM_LEN] = "x\0aaaa", b[KILN_COMM_LEN] = "x\0bbbb";
	struct window w;

	window_init(&w, false);
	window_reset(&w, 1, 0);
	assert_int_equal(window_add(&w, &s1, &p1, 7, a, 0, 0), 0);
	assert_int_equal(window_add(&w, &s1, &p1, 7, b, 0, 0), 0);
	assert_int_equal(w.n, 1);
	window_done(&w);
}

static void times_are_kept_when_wanted(void **state)
{
	struct window w;

	window_init(&w, true);
	window_reset(&w, 1, 0);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(window_add(&w, &s1, &p1, 7, "main", 0, 1000 + i), 0);
	assert_int_equal(w.list->value, 100);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(w.list->times[i], 1000 + i);
	window_reset(&w, 2, 0);
	assert_int_equal(window_add(&w, &s1, &p1, 7, "main", 0, 5), 0);
	assert_int_equal(w.list->value, 1);
	assert_int_equal(w.list->times[0], 5);
	window_done(&w);
}

static void reset_empties(void **state)
{
	struct window w;

	window_init(&w, false);
	window_reset(&w, 1, 0);
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(window_add(&w, &s1, &p1, i, "main", 0, 0), 0);
	window_reset(&w, 2, 5);
	assert_int_equal(w.n, 0);
	assert_null(w.list);
	assert_int_equal(w.number, 2);
	assert_int_equal(window_add(&w, &s1, &p1, 1, "main", 0, 0), 0);
	assert_int_equal(w.list->value, 1);
	window_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(counts_by_stack_thread_process_and_policy),
	    cmocka_unit_test(bytes_after_the_name_do_not_matter),
	    cmocka_unit_test(times_are_kept_when_wanted),
	    cmocka_unit_test(reset_empties),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
