/* SPDX-License-Identifier: Apache-2.0 */
/* How slabs share a budget. tests/bpf/test_slab.c has slabs over BPF maps. */
#include "agent/sampler/slab.h"
#include "tests/support/test.h"

enum { ELEMENT = 64, SHARD = 64 /* elements: one page */, PAGE = ELEMENT * SHARD, LIMIT = 16 };

static struct {
	struct slab_budget budget;
	struct slab *modest, *other; /* modest: leaves the reserve */
} t;

static int setup(void **state)
{
	struct slab_shape shape = {.element_bytes = ELEMENT,
				   .shard_elements = SHARD,
				   .unit_bytes = ELEMENT,
				   .units = 2 * LIMIT * SHARD,
				   .leaves_reserve = true};

	t.budget = (struct slab_budget){.limit = (size_t)LIMIT * PAGE};
	if (slab_new(-1, &shape, &t.budget, &t.modest) < 0)
		return -1;
	shape.leaves_reserve = false;
	return slab_new(-1, &shape, &t.budget, &t.other);
}

static int teardown(void **state)
{
	t.modest = slab_free(t.modest);
	t.other = slab_free(t.other);
	return 0;
}

static int back_shards(struct slab *s, uint32_t at, uint32_t n)
{
	return slab_back(s, at * SHARD, n * SHARD);
}

static void the_reserve_is_only_for_the_slabs_that_need_not_leave_it(void **state)
{
	assert_int_equal(back_shards(t.modest, 0, LIMIT), -ENOSPC);
	assert_int_equal(back_shards(t.modest, 0, LIMIT - 2), 0);
	assert_int_equal(back_shards(t.modest, LIMIT - 2, 1), -ENOSPC);
	assert_int_equal(back_shards(t.other, 0, 2), 0);
	assert_int_equal(back_shards(t.other, 2, 1), -ENOSPC);
	assert_int_equal(t.budget.used, t.budget.limit);
}

/* What the other slab takes below the reserve is not made up for. */
static void a_slab_may_take_more_than_the_reserve(void **state)
{
	assert_int_equal(back_shards(t.other, 0, LIMIT - 1), 0);
	assert_int_equal(back_shards(t.modest, 0, 1), -ENOSPC);
	assert_int_equal(back_shards(t.other, LIMIT - 1, 1), 0);
}

static void a_limit_below_what_is_used_leaves_nothing(void **state)
{
	assert_int_equal(back_shards(t.modest, 0, 2), 0);
	t.budget.limit = PAGE;
	assert_int_equal(back_shards(t.modest, 2, 1), -ENOSPC);
	assert_int_equal(back_shards(t.other, 0, 1), -ENOSPC);
	assert_true(slab_is_backed(t.modest, 0));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_reserve_is_only_for_the_slabs_that_need_not_leave_it),
	    TEST(a_slab_may_take_more_than_the_reserve),
	    TEST(a_limit_below_what_is_used_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
