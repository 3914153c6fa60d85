/* SPDX-License-Identifier: Apache-2.0 */
/* The places of mappings when their slab, or the memory that it shares with tables, is full. */
#include "agent/sampler/mapping_room.h"

#include "agent/sampler/slab.h"
#include "tests/support/test.h"

enum {
	PAGE = 4096, /* a shard */
	SHARD_SLOTS = PAGE / KILN_SLOT_BYTES,
	SHARD_PLACES = PAGE / sizeof(struct kiln_mapping),
	LIMIT = 8,  /* pages; one is the reserve */
	SHARDS = 6, /* of the slab of mappings */
	PLACES = SHARDS * SHARD_PLACES,
	TABLES = 64,
	MORE = 16, /* places */
	CROWD = 7, /* cgroups */
	OTHER = 8,
};

static struct {
	struct kernel_memory memory;
	struct kiln_table tables[KILN_MAX_IMAGES];
	uint32_t epoch;
	struct slab_budget budget;
	struct unwind_store *unwind;
	struct mapping_room *room;
	struct stored_image images[TABLES];
	size_t loaded;
} t;

static int setup(void **state)
{
	const struct slab_shape unwind = {.element_bytes = KILN_SLOT_BYTES,
					  .shard_elements = SHARD_SLOTS,
					  .unit_bytes = KILN_SLOT_BYTES,
					  .units = 2 * LIMIT * SHARD_SLOTS,
					  .leaves_reserve = true},
				mappings = {.element_bytes = 2 * sizeof(struct kiln_mapping),
					    .shard_elements = SHARD_PLACES / 2,
					    .unit_bytes = sizeof(struct kiln_mapping),
					    .units = PLACES};

	memset(&t, 0, sizeof(t));
	t.budget.limit = (size_t)LIMIT * PAGE;
	if (slab_new(-1, &unwind, &t.budget, &t.memory.slab_shards) < 0 ||
	    slab_new(-1, &mappings, &t.budget, &t.memory.mapping_shards) < 0)
		return -1;
	t.memory.slab = slab_memory(t.memory.slab_shards);
	t.memory.slab_slots = slab_units(t.memory.slab_shards);
	t.memory.mappings = slab_memory(t.memory.mapping_shards);
	t.memory.n_mappings = slab_units(t.memory.mapping_shards);
	t.memory.tables = t.tables;
	t.memory.cache_epoch = &t.epoch;
	if (unwind_store_new(&t.memory, &t.unwind) < 0)
		return -1;
	return mapping_room_new(&t.memory, t.unwind, &t.room);
}

static int teardown(void **state)
{
	mapping_room_free(t.room);
	unwind_store_free(t.unwind);
	slab_free(t.memory.slab_shards);
	slab_free(t.memory.mapping_shards);
	return 0;
}

/* Loads tables of about a third of a shard each until none has room. */
static void load_tables(uint64_t now_ms)
{
	static uint32_t index[2];
	static struct kiln_row rows[300];
	static struct kiln_rule rule;
	const struct unwind_table table = {.index = index,
					   .blocks = 1,
					   .rows = rows,
					   .n_rows = ARRAY_SIZE(rows),
					   .rules = &rule,
					   .n_rules = 1};

	for (t.loaded = 0; t.loaded < TABLES; t.loaded++) {
		assert_int_equal(unwind_store_add(t.unwind, &t.images[t.loaded]), 0);
		if (unwind_store_load(t.unwind, &t.images[t.loaded], &table, now_ms) < 0)
			break;
	}
	assert_in_range(t.loaded, 2 * LIMIT, TABLES - 1);
}

static int get(uint32_t n, uint64_t now_ms)
{
	uint32_t at;

	return mapping_room_get(t.room, 0, n, now_ms, &at);
}

static int get_for(uint64_t cgroup, uint32_t n)
{
	uint32_t at;

	return mapping_room_get(t.room, cgroup, n, 0, &at);
}

static void mappings_have_memory_when_tables_have_taken_theirs(void **state)
{
	load_tables(0);
	assert_int_equal(get(SHARD_PLACES, 0), 0);
}

static void tables_that_are_not_in_use_make_room_for_mappings(void **state)
{
	const uint64_t start = 1000, idle = start + UNWIND_KEEP_MS;

	load_tables(start);
	assert_int_equal(get(SHARD_PLACES, start), 0);
	/* All tables are in use. */
	assert_int_equal(get(1, start), -ENOSPC);
	assert_int_equal(get(1, start + RANGE_REST_MS), -ENOSPC);
	assert_int_equal(unwind_store_loaded(t.unwind), t.loaded);
	assert_int_equal(get(1, idle), -ENOSPC);
	assert_int_equal(get(1, idle + RANGE_REST_MS), 0);
	/* Only those of one shard were evicted. */
	assert_true(unwind_store_loaded(t.unwind) >= t.loaded - 4);
}

/* Without places, more memory would be of no use. */
static void tables_stay_when_there_are_no_places(void **state)
{
	t.budget.limit = SIZE_MAX;
	assert_int_equal(get(PLACES, 0), 0);
	t.budget.limit = (size_t)2 * LIMIT * PAGE;
	load_tables(0);
	assert_int_equal(get(1, 2 * UNWIND_KEEP_MS), -ENOSPC);
	assert_int_equal(unwind_store_loaded(t.unwind), t.loaded);
}

static void a_crowded_cgroup_leaves_places_to_others(void **state)
{
	uint32_t at;

	t.budget.limit = SIZE_MAX;
	/* Less than half of the places is used, so a share is not looked at. */
	assert_int_equal(get_for(CROWD, PLACES / 2 - MORE), 0);
	assert_int_equal(mapping_room_get(t.room, CROWD, 2 * MORE, 0, &at), 0);
	assert_int_equal(get_for(CROWD, 1), -ENOSPC);
	assert_int_equal(get_for(OTHER, PLACES / 4), 0);
	assert_int_equal(get_for(CROWD, 1), -ENOSPC);
	assert_int_equal(get_for(OTHER, PLACES / 4 - MORE), 0);
	assert_int_equal(get_for(OTHER, 1), -ENOSPC);
	/* Processes of the crowd have ended: its share is half of what is used. */
	mapping_room_put(t.room, CROWD, at, 2 * MORE, 0);
	assert_int_equal(mapping_room_get(t.room, CROWD, 2 * MORE, RANGE_REST_MS, &at), 0);
}

/* Tables in use have all but the reserve, of which a crowd gets half. */
static void a_crowded_cgroup_leaves_memory_to_others(void **state)
{
	load_tables(0);
	for (uint32_t i = 0; i <= SHARD_PLACES / 2; i++)
		assert_int_equal(get_for(CROWD, 1), 0);
	assert_int_equal(get_for(CROWD, 1), -ENOSPC);
	assert_int_equal(get_for(OTHER, SHARD_PLACES / 2 - 1), 0);
}

static void a_cgroup_over_its_share_evicts_no_tables(void **state)
{
	uint32_t at;

	load_tables(0);
	assert_int_equal(get_for(CROWD, SHARD_PLACES), 0);
	assert_int_equal(mapping_room_get(t.room, CROWD, 1, 2 * UNWIND_KEEP_MS, &at), -ENOSPC);
	assert_int_equal(unwind_store_loaded(t.unwind), t.loaded);
	assert_int_equal(mapping_room_get(t.room, OTHER, 1, 2 * UNWIND_KEEP_MS, &at), -ENOSPC);
	assert_true(unwind_store_loaded(t.unwind) < t.loaded);
}

static void a_cgroup_alone_has_room_while_less_than_half_is_used(void **state)
{
	load_tables(0);
	assert_int_equal(get_for(CROWD, 1), 0);
	assert_int_equal(get_for(CROWD, SHARD_PLACES / 2 - 1), 0);
}

/* Where records carry no cgroup, all processes have the same. */
static void processes_without_a_known_cgroup_may_take_all(void **state)
{
	t.budget.limit = SIZE_MAX;
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(get_for(0, PLACES / 8), 0);
	assert_int_equal(get_for(0, 1), -ENOSPC);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(mappings_have_memory_when_tables_have_taken_theirs),
	    TEST(tables_that_are_not_in_use_make_room_for_mappings),
	    TEST(tables_stay_when_there_are_no_places),
	    TEST(a_crowded_cgroup_leaves_places_to_others),
	    TEST(a_crowded_cgroup_leaves_memory_to_others),
	    TEST(a_cgroup_over_its_share_evicts_no_tables),
	    TEST(a_cgroup_alone_has_room_while_less_than_half_is_used),
	    TEST(processes_without_a_known_cgroup_may_take_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
