/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/stack_table.h"
#include "tests/support/test.h"

static void equal_stacks_are_one(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	const uint64_t kernel[] = {1, 2}, user[] = {3, 4, 5};
	struct mapset m = {.id = 9};
	struct stack *a, *b;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, kernel, 2, user, 3, 1, &a), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, kernel, 2, user, 3, 2, &b), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(a->last_window, 2);
	assert_int_equal(m.refs, 1);
	assert_int_equal(stack_table_count(t), 1);
}

/* Whatever differs, by however little, makes another stack. */
static void any_difference_makes_another(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	uint64_t words[6] = {1, 2, 3, 4, 5, 6};
	struct mapset m = {.id = 9}, n = {.id = 10};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(stack_table_get(t, &n, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(stack_table_get(t, NULL, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_DEPTH, words, 2, words + 2, 4, 1, &s), 0);
	/* The same words, another border between kernel and user. */
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, words, 3, words + 3, 3, 1, &s), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, words, 2, words + 2, 3, 1, &s), 0);
	for (int i = 0; i < 6; i++)
		for (int bit = 0; bit < 64; bit++) {
			words[i] ^= 1ULL << bit;
			assert_int_equal(
			    stack_table_get(t, &m, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s),
			    0);
			words[i] ^= 1ULL << bit;
		}
	assert_int_equal(stack_table_count(t), 6 + 6 * 64);
}

static void sweep_forgets_what_was_not_seen(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	uint64_t word = 1;
	struct mapset m = {.id = 9};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, &word, 0, &word, 1, 1, &s), 0);
	word = 2;
	assert_int_equal(stack_table_get(t, &m, KILN_END_ROOT, &word, 0, &word, 1, 3, &s), 0);
	stack_table_sweep(t, 3, 3);
	assert_int_equal(stack_table_count(t), 1);
	assert_int_equal(m.refs, 1);
	stack_table_sweep(t, 4, 4);
	assert_int_equal(m.refs, 0);
	assert_int_equal(stack_table_bytes(t), 0);
}

static void too_deep_a_stack_is_refused(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct stack *s = NULL;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(
	    stack_table_get(t, NULL, KILN_END_ROOT, NULL, 0, NULL, KILN_MAX_USER_WORDS + 1, 1, &s),
	    -EINVAL);
	assert_null(s);
}

static void refusing_takes_only_known_stacks(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	uint64_t word = 1;
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s), 0);
	stack_table_refuse_new(t, true);
	assert_int_equal(stack_table_get(t, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s), 0);
	word = 2;
	assert_int_equal(stack_table_get(t, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s),
			 -EDQUOT);
	stack_table_refuse_new(t, false);
	assert_int_equal(stack_table_get(t, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s), 0);
}

static void stacks_of_ended_processes_go_earlier(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct mapset lives = {.id = 1}, ended = {.id = 2, .unnamed_sweeps = 1};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	for (uint64_t word = 5; word < 8; word++) {
		uint32_t window = (uint32_t)word;

		assert_int_equal(
		    stack_table_get(t, &lives, KILN_END_ROOT, &word, 0, &word, 1, window, &s), 0);
		assert_int_equal(
		    stack_table_get(t, &ended, KILN_END_ROOT, &word, 0, &word, 1, window, &s), 0);
		assert_int_equal(
		    stack_table_get(t, NULL, KILN_END_NONE, &word, 1, &word, 0, window, &s), 0);
	}
	stack_table_sweep(t, 2, 6);
	assert_int_equal(stack_table_count(t), 8);
	assert_int_equal(ended.refs, 2);
	assert_int_equal(lives.refs, 3);
	stack_table_sweep(t, 2, 8);
	assert_int_equal(ended.refs, 0);
	assert_int_equal(lives.refs, 3);
	stack_table_sweep(t, 7, 8);
	assert_int_equal(lives.refs, 1);
	assert_int_equal(stack_table_count(t), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(equal_stacks_are_one),
	    cmocka_unit_test(any_difference_makes_another),
	    cmocka_unit_test(sweep_forgets_what_was_not_seen),
	    cmocka_unit_test(stacks_of_ended_processes_go_earlier),
	    cmocka_unit_test(refusing_takes_only_known_stacks),
	    cmocka_unit_test(too_deep_a_stack_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
