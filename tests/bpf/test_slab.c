/* SPDX-License-Identifier: Apache-2.0 */
/* Slabs over real BPF maps: memory comes and goes shard by shard while programs read it. */
#include "agent/sampler/slab.h"

#include <bpf/bpf.h>

#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum {
	ELEMENT = 64,
	SHARD = 64, /* elements: one page */
	SHARDS = 4,
	UNITS = SHARD * SHARDS,
	RATE = 999,
	ENOUGH = 20,
	SHARD_MAPPINGS = KILN_MAPPING_SHARD_PAIRS * 2,
};

static struct {
	int outer;
	struct slab *slab;
	struct slab_budget budget;
	struct range_alloc *room;
	struct profiled *p;
	struct child child;
} t;

static int setup(void **state)
{
	const struct slab_shape shape = {.element_bytes = ELEMENT,
					 .shard_elements = SHARD,
					 .unit_bytes = ELEMENT,
					 .units = UNITS};
	LIBBPF_OPTS(bpf_map_create_opts, mmapable, .map_flags = BPF_F_MMAPABLE);
	int inner;

	memset(&t, 0, sizeof(t));
	t.budget.limit = SIZE_MAX;
	inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, "template", 4, ELEMENT, SHARD, &mmapable);
	LIBBPF_OPTS(bpf_map_create_opts, options, .inner_map_fd = (uint32_t)inner);
	t.outer = bpf_map_create(BPF_MAP_TYPE_ARRAY_OF_MAPS, "outer", 4, 4, slab_shards(&shape),
				 &options);
	close(inner);
	if (t.outer < 0 || slab_new(t.outer, &shape, &t.budget, &t.slab) < 0)
		return -1;
	return range_alloc_new(0, UNITS, &t.room);
}

static int teardown(void **state)
{
	slab_free(t.slab);
	range_alloc_free(t.room);
	close(t.outer);
	t.p = profiled_free(t.p);
	child_end(&t.child);
	return 0;
}

static bool kernel_has_shard(uint32_t shard)
{
	uint32_t id;

	return bpf_map_lookup_elem(t.outer, &shard, &id) == 0;
}

static void memory_comes_with_the_first_unit_of_a_shard(void **state)
{
	uint8_t *memory = slab_memory(t.slab);

	assert_int_equal(slab_bytes(t.slab), 0);
	assert_int_equal(slab_back(t.slab, SHARD - 1, 2), 0);
	assert_int_equal(slab_bytes(t.slab), 2 * SHARD * ELEMENT);
	assert_true(kernel_has_shard(0) && kernel_has_shard(1) && !kernel_has_shard(2));
	assert_true(slab_is_backed(t.slab, 2 * SHARD - 1));
	assert_false(slab_is_backed(t.slab, 2 * SHARD));
	/* One range across both shards. */
	memset(memory + (SHARD - 1) * ELEMENT, 7, 2 * ELEMENT);
	assert_int_equal(slab_back(t.slab, 0, SHARD), 0);
	assert_int_equal(memory[SHARD * ELEMENT], 7);
	assert_int_equal(slab_back(t.slab, UNITS - 1, 2), -ENOSPC);
}

static void a_shard_goes_when_all_of_it_is_free_and_has_rested(void **state)
{
	uint8_t *memory = slab_memory(t.slab);
	uint32_t a, b;

	assert_int_equal(range_alloc_get(t.room, SHARD + 1, 0, &a), 0);
	assert_int_equal(range_alloc_get(t.room, SHARD, 0, &b), 0);
	assert_int_equal(slab_back(t.slab, a, SHARD + 1), 0);
	assert_int_equal(slab_back(t.slab, b, SHARD), 0);
	memset(memory, 7, (2 * SHARD + 1) * ELEMENT);
	range_alloc_put(t.room, a, SHARD + 1, 0);
	slab_trim(t.slab, t.room, RANGE_REST_MS - 1, SHARDS);
	assert_int_equal(slab_bytes(t.slab), 3 * SHARD * ELEMENT);
	slab_trim(t.slab, t.room, RANGE_REST_MS, SHARDS);
	/* The second shard holds a part of B. */
	assert_int_equal(slab_bytes(t.slab), 2 * SHARD * ELEMENT);
	assert_false(kernel_has_shard(0));
	assert_true(kernel_has_shard(1) && kernel_has_shard(2));
	assert_int_equal(memory[b * ELEMENT], 7);
	assert_int_equal(slab_back(t.slab, 0, 1), 0);
	assert_int_equal(memory[0], 0);
}

static void no_shard_is_added_beyond_the_budget(void **state)
{
	t.budget.limit = 2 * SHARD * ELEMENT;
	assert_int_equal(slab_back(t.slab, 0, 2 * SHARD), 0);
	assert_int_equal(t.budget.used, 2 * SHARD * ELEMENT);
	assert_int_equal(slab_back(t.slab, 2 * SHARD, 1), -ENOSPC);
	assert_int_equal(slab_bytes(t.slab), t.budget.used);
	/* The memory of a free shard can be used for another shard. */
	slab_trim(t.slab, t.room, 0, 1);
	assert_int_equal(t.budget.used, SHARD * ELEMENT);
	assert_int_equal(slab_back(t.slab, 2 * SHARD, 1), 0);
	/* A lower limit does not take memory that is in use. */
	t.budget.limit = 0;
	assert_true(slab_is_backed(t.slab, 2 * SHARD));
}

/* Leaves no room in the first shard of rows and in the first shard of mappings. */
static void fill_first_shards(struct profiled *p)
{
	static uint32_t index[2];
	static struct kiln_row rows[KILN_UNWIND_SHARD_SLOTS * (KILN_SLOT_BYTES / sizeof(uint32_t))];
	static struct kiln_rule rule;
	const struct unwind_table big = {.index = index,
					 .blocks = 1,
					 .rows = rows,
					 .n_rows = ARRAY_SIZE(rows),
					 .rules = &rule,
					 .n_rules = 1};
	const struct kiln_sample own = {.tgid = (uint32_t)getpid()};
	static struct stored_image image;
	struct mapset *m;

	image = (struct stored_image){};
	assert_int_equal(unwind_store_add(p->unwind, &image), 0);
	assert_int_equal(unwind_store_load(p->unwind, &image, &big, 0), 0);
	do {
		assert_int_equal(profiled_learn(p, &own, &m), 0);
	} while (m->first + m->n <= SHARD_MAPPINGS);
}

static void walks_read_shards_that_were_added_later(void **state)
{
	const struct sampler_options options = {.hz = RATE, .cgroup_mode = CGROUP_HYBRID};
	struct watch w = {.learn = true, .child = &t.child};
	struct sampler_stats before, after;
	struct error err = {};

	assert_int_equal(child_start("spin", 30, NULL, &t.child), 0);
	w.tgid = (uint32_t)t.child.pid;
	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	sampler_read_stats(t.p->sampler, &before);
	fill_first_shards(t.p);
	assert_true(watch_until(t.p, &w, 1, &w.complete, ENOUGH));
	assert_int_equal(w.wrong, 0);
	assert_true(w.mapset->first >= SHARD_MAPPINGS);
	sampler_read_stats(t.p->sampler, &after);
	assert_true(after.map_bytes >=
		    before.map_bytes + KILN_UNWIND_SHARD_SLOTS * KILN_SLOT_BYTES +
			KILN_MAPPING_SHARD_PAIRS * 2 * sizeof(struct kiln_mapping));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(memory_comes_with_the_first_unit_of_a_shard),
	    TEST(a_shard_goes_when_all_of_it_is_free_and_has_rested),
	    TEST(no_shard_is_added_beyond_the_budget),
	    TEST(walks_read_shards_that_were_added_later),
	};

	return argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);
}
