/* SPDX-License-Identifier: Apache-2.0 */
/* Which frames of a walk are void because a library took another's place, and whose the places of
 * a mapset are. */
#include "agent/sampler/mapset.h"

#include "lib/metrics.h"
#include "tests/support/test.h"

enum { EXE = 0x10000, LIB = 0x20000, JIT = 0x30000, SIZE = 0x4000 };

static struct stored_image exe, red, blue;

static struct mapset_range range(uint64_t start, struct stored_image *image)
{
	return (struct mapset_range){
	    .start = start, .end = start + SIZE, .bias = start, .image = image, .jit = !image};
}

static uint64_t frame(uint64_t pc, bool is_return)
{
	return ((uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT) |
	       (is_return ? KILN_FRAME_RETURN : 0) | pc;
}

static void the_first_frame_in_exchanged_code_is_found(void **state)
{
	struct mapset_range before[] = {range(EXE, &exe), range(LIB, &red), range(JIT, NULL)},
			    after[] = {range(EXE, &exe), range(LIB, &blue), range(JIT, NULL)};
	const struct mapset walked = {.ranges = before, .n = 3}, now = {.ranges = after, .n = 3};
	const uint64_t leaf[] = {frame(LIB + 8, false), frame(EXE + 8, true)},
		       middle[] = {frame(JIT + 8, false), frame(EXE + 8, true),
				   frame(LIB + 8, true), frame(EXE + 16, true)},
		       none[] = {frame(EXE + 8, false), frame(JIT + 8, true), frame(0x999, true)};

	assert_int_equal(mapset_first_exchanged(&walked, &now, leaf, 2), 0);
	assert_int_equal(mapset_first_exchanged(&walked, &now, middle, 4), 2);
	assert_int_equal(mapset_first_exchanged(&walked, &now, middle, 2), 2);
	assert_int_equal(mapset_first_exchanged(&walked, &now, none, 3), 3);
	assert_int_equal(mapset_first_exchanged(&walked, &walked, leaf, 2), 2);
}

static void code_that_came_or_went_or_moved_is_exchanged(void **state)
{
	struct mapset_range with[] = {range(EXE, &exe), range(LIB, &red)}, moved[2];
	const struct mapset has = {.ranges = with, .n = 2}, lacks = {.ranges = with, .n = 1},
			    has_moved = {.ranges = moved, .n = 2};
	const uint64_t words[] = {frame(EXE, false), frame(LIB + 8, true)};

	memcpy(moved, with, sizeof(moved));
	moved[1].bias += 0x1000;
	assert_int_equal(mapset_first_exchanged(&lacks, &has, words, 2), 1);
	assert_int_equal(mapset_first_exchanged(&has, &lacks, words, 2), 1);
	assert_int_equal(mapset_first_exchanged(&has, &has_moved, words, 2), 1);
}

/* A call may be the last instruction of its mapping. */
static void a_return_address_belongs_to_the_call_before(void **state)
{
	struct mapset_range before[] = {range(EXE, &exe), range(EXE + SIZE, &red)},
			    after[] = {range(EXE, &exe), range(EXE + SIZE, &blue)};
	const struct mapset walked = {.ranges = before, .n = 2}, now = {.ranges = after, .n = 2};
	const uint64_t back = frame(EXE + SIZE, true), leaf = frame(EXE + SIZE, false);

	assert_int_equal(mapset_first_exchanged(&walked, &now, &back, 1), 1);
	assert_int_equal(mapset_first_exchanged(&walked, &now, &leaf, 1), 0);
}

enum { PLACES = 8 };

static struct {
	struct kiln_mapping mappings[PLACES];
	struct kiln_table tables[KILN_MAX_IMAGES];
	uint32_t slab[KILN_SLOT_BYTES / 4], epoch;
	struct unwind_store *unwind;
	struct image_store *images;
	struct mapset_store *mapsets;
} t;

static int no_process(void *arg, uint32_t tgid, struct kiln_process *ret)
{
	return -ENOENT;
}

static int setup(void **state)
{
	const struct kernel_memory memory = {
	    .slab = t.slab,
	    .slab_slots = 1,
	    .tables = t.tables,
	    .mappings = t.mappings,
	    .n_mappings = PLACES,
	    .cache_epoch = &t.epoch,
	    .get_process = no_process,
	};

	if (unwind_store_new(&memory, &t.unwind) < 0 ||
	    image_store_new(4, NULL, NULL, &t.images) < 0)
		return -1;
	return mapset_store_new(&memory, t.images, t.unwind, &t.mapsets);
}

static int teardown(void **state)
{
	mapset_store_free(t.mapsets);
	image_store_free(t.images);
	unwind_store_free(t.unwind);
	return 0;
}

/* Makes a mapset of N mappings for a process of CGROUP. */
static int make(uint64_t cgroup, size_t n, uint64_t now_ms)
{
	struct map_entry entries[PLACES] = {};
	struct stored_image *none[PLACES] = {};
	struct maps maps = {.entries = entries, .n = n};
	const struct mapset_source source = {.tgid = 1,
					     .cgroup = cgroup,
					     .read_ns = now_ms * 1000000,
					     .maps = &maps,
					     .images = none};
	struct mapset *m;

	for (size_t i = 0; i < n; i++)
		entries[i] = (struct map_entry){
		    .start = i << 12, .end = (i + 1) << 12, .kind = MAPPING_ANON};
	return mapset_store_make(t.mapsets, &source, &m);
}

static void the_places_of_a_mapset_are_its_cgroups_until_it_is_freed(void **state)
{
	int64_t full = metric_get(M_MAPPING_SLAB_FULL);

	assert_int_equal(make(7, PLACES / 2 + 1, 0), 0);
	assert_int_equal(make(7, 1, 0), -ENOSPC);
	assert_int_equal(metric_get(M_MAPPING_SLAB_FULL), full + 1);
	assert_int_equal(make(8, 1, 0), 0);
	/* No process names them any more. */
	mapset_store_sweep(t.mapsets, NULL, 0, 0);
	mapset_store_sweep(t.mapsets, NULL, 0, 0);
	assert_int_equal(mapset_store_count(t.mapsets), 0);
	assert_int_equal(make(8, PLACES / 2 + 1, RANGE_REST_MS), 0);
	assert_int_equal(make(8, 1, RANGE_REST_MS), -ENOSPC);
	assert_int_equal(make(7, 1, RANGE_REST_MS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_first_frame_in_exchanged_code_is_found),
	    cmocka_unit_test(code_that_came_or_went_or_moved_is_exchanged),
	    cmocka_unit_test(a_return_address_belongs_to_the_call_before),
	    cmocka_unit_test_setup_teardown(
		the_places_of_a_mapset_are_its_cgroups_until_it_is_freed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
