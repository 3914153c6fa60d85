/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/range_alloc.h"
#include "tests/support/test.h"

static void gives_lowest_fit_and_joins_neighbours(void **state)
{
	_cleanup_(range_alloc_freep) struct range_alloc *a = NULL;
	uint32_t x, y, z, all;

	assert_int_equal(range_alloc_new(1, 100, &a), 0);
	assert_int_equal(range_alloc_get(a, 10, 0, &x), 0);
	assert_int_equal(range_alloc_get(a, 20, 0, &y), 0);
	assert_int_equal(range_alloc_get(a, 70, 0, &z), 0);
	assert_int_equal(x, 1);
	assert_int_equal(y, 11);
	assert_int_equal(z, 31);
	assert_int_equal(range_alloc_get(a, 1, 0, &all), -ENOSPC);
	range_alloc_put(a, y, 20, 0);
	range_alloc_put(a, x, 10, 0);
	range_alloc_put(a, z, 70, 0);
	assert_int_equal(range_alloc_used(a), 0);
	assert_int_equal(range_alloc_get(a, 100, RANGE_REST_MS, &all), 0);
	assert_int_equal(all, 1);
}

static void freed_range_rests_before_reuse(void **state)
{
	_cleanup_(range_alloc_freep) struct range_alloc *a = NULL;
	uint32_t x, y;

	assert_int_equal(range_alloc_new(0, 10, &a), 0);
	assert_int_equal(range_alloc_get(a, 10, 5, &x), 0);
	range_alloc_put(a, x, 10, 5);
	assert_int_equal(range_alloc_resting(a), 10);
	assert_int_equal(range_alloc_spare(a), 10);
	assert_int_equal(range_alloc_get(a, 1, 5 + RANGE_REST_MS - 1, &y), -ENOSPC);
	assert_int_equal(range_alloc_get(a, 1, 5 + RANGE_REST_MS, &y), 0);
	assert_int_equal(range_alloc_resting(a), 0);
}

/* Random traffic: ranges never overlap, and all room comes back. */
static void ranges_never_overlap(void **state)
{
	enum { N = 4096, LIVE = 64 };
	_cleanup_(range_alloc_freep) struct range_alloc *a = NULL;
	static uint8_t owner[N];
	struct {
		uint32_t at, n;
	} live[LIVE] = {};
	uint64_t now = 0;
	uint32_t at;

	assert_int_equal(range_alloc_new(0, N, &a), 0);
	srand(7);
	for (int i = 0; i < 20000; i++) {
		uint32_t k = (uint32_t)rand() % LIVE, n = 1 + (uint32_t)rand() % 200;

		now += 50;
		if (live[k].n) {
			for (uint32_t j = 0; j < live[k].n; j++)
				owner[live[k].at + j] = 0;
			range_alloc_put(a, live[k].at, live[k].n, now);
			live[k].n = 0;
		} else if (!range_alloc_get(a, n, now, &at)) {
			assert_true(at + n <= N);
			for (uint32_t j = 0; j < n; j++) {
				assert_int_equal(owner[at + j], 0);
				owner[at + j] = 1;
			}
			live[k].at = at;
			live[k].n = n;
		}
	}
	for (uint32_t k = 0; k < LIVE; k++)
		range_alloc_put(a, live[k].at, live[k].n, now);
	assert_int_equal(range_alloc_get(a, N, now + RANGE_REST_MS, &at), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(gives_lowest_fit_and_joins_neighbours),
	    cmocka_unit_test(freed_range_rests_before_reuse),
	    cmocka_unit_test(ranges_never_overlap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
