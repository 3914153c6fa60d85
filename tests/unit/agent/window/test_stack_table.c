/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/window/stack_table.h"
#include "tests/support/test.h"

enum { OWNER = 7, NOISY = 8, QUIET = 9, MANY = 1000 };

static void equal_stacks_are_one(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	const uint64_t kernel[] = {1, 2}, user[] = {3, 4, 5};
	struct mapset m = {.id = 9};
	struct stack *a, *b;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, OWNER, &m, KILN_END_ROOT, kernel, 2, user, 3, 1, &a),
			 0);
	assert_int_equal(stack_table_get(t, OWNER, &m, KILN_END_ROOT, kernel, 2, user, 3, 2, &b),
			 0);
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
	assert_int_equal(
	    stack_table_get(t, OWNER, &m, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(
	    stack_table_get(t, OWNER, &n, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(
	    stack_table_get(t, OWNER, NULL, KILN_END_ROOT, words, 2, words + 2, 4, 1, &s), 0);
	assert_int_equal(
	    stack_table_get(t, OWNER, &m, KILN_END_DEPTH, words, 2, words + 2, 4, 1, &s), 0);
	/* The same words, divided differently into kernel and user frames. */
	assert_int_equal(
	    stack_table_get(t, OWNER, &m, KILN_END_ROOT, words, 3, words + 3, 3, 1, &s), 0);
	assert_int_equal(
	    stack_table_get(t, OWNER, &m, KILN_END_ROOT, words, 2, words + 2, 3, 1, &s), 0);
	for (int i = 0; i < 6; i++)
		for (int bit = 0; bit < 64; bit++) {
			words[i] ^= 1ULL << bit;
			assert_int_equal(stack_table_get(t, OWNER, &m, KILN_END_ROOT, words, 2,
							 words + 2, 4, 1, &s),
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
	assert_int_equal(stack_table_get(t, OWNER, &m, KILN_END_ROOT, &word, 0, &word, 1, 1, &s),
			 0);
	word = 2;
	assert_int_equal(stack_table_get(t, OWNER, &m, KILN_END_ROOT, &word, 0, &word, 1, 3, &s),
			 0);
	stack_table_sweep(t, 3, 3, false);
	assert_int_equal(stack_table_count(t), 1);
	assert_int_equal(m.refs, 1);
	stack_table_sweep(t, 4, 4, false);
	assert_int_equal(m.refs, 0);
	assert_int_equal(stack_table_bytes(t), 0);
}

/* The sweep stops at the first stack that stays: the order must be that of the last windows. */
static void a_stack_that_is_seen_again_keeps_no_other(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	uint64_t words[] = {1, 2, 3};
	const uint32_t windows[][2] = {{0, 1}, {1, 1}, {2, 2}, {0, 3}};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	for (size_t i = 0; i < ARRAY_SIZE(windows); i++)
		assert_int_equal(stack_table_get(t, OWNER, NULL, KILN_END_ROOT, NULL, 0,
						 &words[windows[i][0]], 1, windows[i][1], &s),
				 0);
	stack_table_sweep(t, 2, 3, false);
	assert_int_equal(stack_table_count(t), 2);
	stack_table_sweep(t, 3, 3, false);
	assert_int_equal(stack_table_count(t), 1);
	assert_int_equal(s->last_window, 3);
}

static void too_deep_a_stack_is_refused(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct stack *s = NULL;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(stack_table_get(t, OWNER, NULL, KILN_END_ROOT, NULL, 0, NULL,
					 KILN_MAX_USER_WORDS + 1, 1, &s),
			 -EINVAL);
	assert_null(s);
}

static void without_memory_a_new_stack_has_no_frames(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	uint64_t word = 1;
	struct stack *known, *s;

	assert_int_equal(stack_table_new(&t), 0);
	assert_int_equal(
	    stack_table_get(t, OWNER, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &known), 0);
	stack_table_set_full(t, true);
	assert_int_equal(stack_table_get(t, OWNER, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s),
			 0);
	assert_ptr_equal(s, known);
	for (word = 2; word < MANY; word++) {
		assert_int_equal(
		    stack_table_get(t, OWNER, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s), 0);
		assert_int_equal(s->key.n_user, 0);
		assert_int_equal(s->key.end, KILN_END_SHED);
		assert_ptr_equal(s, stack_table_bare(t));
		assert_int_equal(stack_table_count(t), 1);
	}
	stack_table_set_full(t, false);
	assert_int_equal(stack_table_get(t, OWNER, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &s),
			 0);
	assert_int_equal(s->key.n_user, 1);
}

static void stacks_of_ended_processes_go_earlier(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct mapset lives = {.id = 1}, ended = {.id = 2, .unnamed_sweeps = 1};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	for (uint64_t word = 5; word < 8; word++) {
		uint32_t window = (uint32_t)word;

		assert_int_equal(stack_table_get(t, OWNER, &lives, KILN_END_ROOT, &word, 0, &word,
						 1, window, &s),
				 0);
		assert_int_equal(stack_table_get(t, OWNER, &ended, KILN_END_ROOT, &word, 0, &word,
						 1, window, &s),
				 0);
		assert_int_equal(
		    stack_table_get(t, OWNER, NULL, KILN_END_NONE, &word, 1, &word, 0, window, &s),
		    0);
	}
	stack_table_sweep(t, 2, 6, true);
	assert_int_equal(stack_table_count(t), 8);
	assert_int_equal(ended.refs, 2);
	assert_int_equal(lives.refs, 3);
	stack_table_sweep(t, 2, 8, true);
	assert_int_equal(ended.refs, 0);
	assert_int_equal(lives.refs, 3);
	stack_table_sweep(t, 7, 8, true);
	assert_int_equal(lives.refs, 1);
	assert_int_equal(stack_table_count(t), 2);
}

/* The Nth stack of OWNER, of 20 frames. */
static struct stack *add(struct stack_table *t, uint64_t owner, struct mapset *m, uint64_t n,
			 uint32_t window)
{
	uint64_t user[20] = {[0] = n, [10] = owner};
	struct stack *s;

	assert_int_equal(stack_table_get(t, owner, m, KILN_END_ROOT, NULL, 0, user, 20, window, &s),
			 0);
	return s;
}

static void who_fills_the_table_loses_frames_and_nobody_a_sample(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct mapset m = {.id = 9}, other = {.id = 10};
	struct stack *s;
	uint32_t by_words[21] = {};

	assert_int_equal(stack_table_new(&t), 0);
	stack_table_limit(t, MANY, STACK_BYTES_MAX);
	for (uint64_t i = 0; i < 10 * MANY; i++) {
		s = add(t, NOISY, &m, i, 1);
		by_words[s->key.n_user]++;
		assert_int_equal(s->key.end, s->key.n_user == 20 ? KILN_END_ROOT : KILN_END_SHED);
	}
	assert_int_equal(by_words[20], MANY * 6 / 8);
	assert_int_equal(by_words[4], MANY / 8);
	assert_int_equal(by_words[0], 10 * MANY - MANY * 7 / 8);
	/* The last eighth of the table is left to other owners. */
	for (uint64_t i = 0; i < MANY / 8; i++)
		assert_int_equal(add(t, QUIET, &other, i, 1)->key.n_user, 20);
	assert_int_equal(stack_table_count(t), MANY);
	/* In a full table a new stack has no frames, whoever owns it. */
	s = add(t, QUIET, &other, MANY, 1);
	assert_int_equal(s->key.n_user, 0);
	assert_null(s->mapset);
	assert_int_equal(stack_table_count(t), MANY);
	assert_int_equal(m.refs, MANY * 7 / 8);
}

static void bytes_fill_the_table_too(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct mapset m = {.id = 9};

	assert_int_equal(stack_table_new(&t), 0);
	stack_table_limit(t, STACKS_MAX, 100000);
	for (uint64_t i = 0; i < MANY; i++)
		(void)add(t, NOISY, &m, i, 1);
	assert_in_range(stack_table_bytes(t), 100000 * 6 / 8, 100000);
	assert_int_equal(add(t, QUIET, &m, 0, 1)->key.n_user, 20);
}

static void a_short_stack_keeps_whole_frames(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	const uint64_t two = (uint64_t)KILN_FRAME_RUNTIME(1) << KILN_FRAME_KIND_SHIFT;
	const uint64_t user[] = {1, two, 2, 3, two, 4, 5, 6}, kernel[] = {7, 8, 9, 10, 11, 12};
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	stack_table_limit(t, 8, STACK_BYTES_MAX);
	for (uint64_t i = 0; i < 6; i++)
		(void)add(t, NOISY, NULL, i, 1);
	assert_int_equal(stack_table_get(t, NOISY, NULL, KILN_END_ROOT, kernel, 6, user, 8, 1, &s),
			 0);
	assert_int_equal(s->key.n_kernel, 4);
	assert_int_equal(s->key.n_user, 6);
	assert_memory_equal(s->key.words, kernel, 4 * 8);
	assert_memory_equal(s->key.words + 4, user, 6 * 8);
}

static void the_coldest_of_who_has_too_much_go_first(void **state)
{
	_cleanup_(stack_table_freep) struct stack_table *t = NULL;
	struct stack *s;

	assert_int_equal(stack_table_new(&t), 0);
	stack_table_limit(t, 16, STACK_BYTES_MAX);
	(void)add(t, QUIET, NULL, 0, 1);
	for (uint64_t i = 0; i < 10; i++)
		(void)add(t, NOISY, NULL, i, 1);
	(void)add(t, NOISY, NULL, 0, 2);
	stack_table_sweep(t, 1, 2, false);
	assert_int_equal(stack_table_count(t), 11);
	(void)add(t, NOISY, NULL, 10, 2);
	stack_table_sweep(t, 1, 2, false);
	assert_int_equal(stack_table_count(t), 9); /* an even part: 8 */
	s = add(t, QUIET, NULL, 0, 3);
	assert_int_equal(s->key.n_user, 20);
	stack_table_sweep(t, 4, 4, false);
	assert_int_equal(stack_table_bytes(t), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(equal_stacks_are_one),
	    cmocka_unit_test(any_difference_makes_another),
	    cmocka_unit_test(sweep_forgets_what_was_not_seen),
	    cmocka_unit_test(stacks_of_ended_processes_go_earlier),
	    cmocka_unit_test(without_memory_a_new_stack_has_no_frames),
	    cmocka_unit_test(a_stack_that_is_seen_again_keeps_no_other),
	    cmocka_unit_test(too_deep_a_stack_is_refused),
	    cmocka_unit_test(who_fills_the_table_loses_frames_and_nobody_a_sample),
	    cmocka_unit_test(bytes_fill_the_table_too),
	    cmocka_unit_test(a_short_stack_keeps_whole_frames),
	    cmocka_unit_test(the_coldest_of_who_has_too_much_go_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
