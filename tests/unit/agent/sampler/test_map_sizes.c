/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/sampler/map_sizes.h"
#include "tests/support/test.h"

#define GIB (1ULL << 30)

static void processes_grow_with_the_machine_within_bounds(void **state)
{
	assert_int_equal(map_sizes_processes(0), 4096);
	assert_int_equal(map_sizes_processes(8 * GIB), 4096);
	assert_int_equal(map_sizes_processes(24 * GIB), 16384);
	assert_int_equal(map_sizes_processes(2048 * GIB), 65536);
}

static void slabs_have_room_for_what_is_asked(void **state)
{
	const struct sampler_options few = {.unwind_bytes = 1, .max_mappings = 1},
				     many = {.unwind_bytes = 64 << 20, .max_mappings = 1 << 20},
				     any = {};
	struct slab_shape unwind = map_sizes_unwind(&many), mappings = map_sizes_mappings(&many);

	assert_int_equal((size_t)unwind.units * unwind.unit_bytes, 64 << 20);
	assert_int_equal(mappings.units, 1 << 20);
	assert_int_equal(slab_shards(&unwind), 128);
	mappings = map_sizes_mappings(&few);
	assert_int_equal(slab_shards(&mappings), 1);
	unwind = map_sizes_unwind(&any);
	assert_true(unwind.units > 5600000 / (KILN_SLOT_BYTES / sizeof(struct kiln_row)));
}

static void tables_leave_the_reserve_of_the_memory_limit_to_mappings(void **state)
{
	const struct sampler_options any = {};

	assert_true(map_sizes_unwind(&any).leaves_reserve);
	assert_false(map_sizes_mappings(&any).leaves_reserve);
}

static void the_ring_follows_rate_and_cpus(void **state)
{
	const struct sampler_options slow = {.hz = 20}, usual = {.hz = 99},
				     any = {.hz = 20, .max_hz = 1000},
				     fixed = {.hz = 99, .ring_bytes = 4 << 20};

	assert_int_equal(map_sizes_ring(&slow, 2), 1 << 20);
	assert_int_equal(map_sizes_ring(&usual, 64), 4 << 20);
	/* Few samples, but each of the CPUs may have a copy of a stack to send. */
	assert_int_equal(map_sizes_ring(&slow, 128), 8 << 20);
	assert_int_equal(map_sizes_ring(&any, 128), 16 << 20);
	assert_int_equal(map_sizes_ring(&any, 4096), 16 << 20);
	assert_int_equal(map_sizes_ring(&fixed, 4096), 4 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(processes_grow_with_the_machine_within_bounds),
	    cmocka_unit_test(the_ring_follows_rate_and_cpus),
	    cmocka_unit_test(slabs_have_room_for_what_is_asked),
	    cmocka_unit_test(tables_leave_the_reserve_of_the_memory_limit_to_mappings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
