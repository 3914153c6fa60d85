/* SPDX-License-Identifier: Apache-2.0 */
/* The store over plain memory in place of BPF maps. */
#include "agent/sampler/unwind_store.h"

#include "agent/sampler/slab.h"
#include "tests/support/test.h"

/* SHARD: slots of a shard of the fixture that has a slab, one page. */
enum { SLOTS = 64, SHARD = 64, SHARDS = 4 };

struct fake {
	_Alignas(64) uint32_t slab[SLOTS * 16];
	struct kiln_table tables[KILN_MAX_IMAGES];
	uint32_t epoch;
	struct kernel_memory memory;
	struct slab_budget budget;
	struct unwind_store *store;
};

static int setup(void **state)
{
	struct fake *f = aligned_alloc(64, ALIGN_UP(sizeof(*f), 64));

	if (!f)
		return -1;
	memset(f, 0, sizeof(*f));
	f->memory = (struct kernel_memory){
	    .slab = f->slab,
	    .slab_slots = SLOTS,
	    .tables = f->tables,
	    .cache_epoch = &f->epoch,
	};
	*state = f;
	return unwind_store_new(&f->memory, &f->store);
}

/* The same with a slab of several shards, whose memory comes and goes. */
static int setup_slab(void **state)
{
	const struct slab_shape shape = {.element_bytes = KILN_SLOT_BYTES,
					 .shard_elements = SHARD,
					 .unit_bytes = KILN_SLOT_BYTES,
					 .units = SHARD * SHARDS};
	struct fake *f;

	if (setup(state))
		return -1;
	f = *state;
	f->store = unwind_store_free(f->store);
	f->budget.limit = SIZE_MAX;
	if (slab_new(-1, &shape, &f->budget, &f->memory.slab_shards) < 0)
		return -1;
	f->memory.slab = slab_memory(f->memory.slab_shards);
	f->memory.slab_slots = slab_units(f->memory.slab_shards);
	return unwind_store_new(&f->memory, &f->store);
}

static int teardown(void **state)
{
	struct fake *f = *state;

	unwind_store_free(f->store);
	slab_free(f->memory.slab_shards);
	free(f);
	return 0;
}

static uint32_t index_of[64];
static struct kiln_row rows[512];
static struct kiln_rule rules[4] = {
    {.kind = KILN_RULE_INVALID},
    {.kind = KILN_RULE_CFA, .reg = 7, .cfa_off = 8, .ra_off = -8},
    {.kind = KILN_RULE_CFA, .reg = 6, .cfa_off = 16, .ra_off = -8},
    {.kind = KILN_RULE_STOP},
};

/* N_ROWS rows over 64 blocks. */
static struct unwind_table table_of(uint32_t n_rows)
{
	for (uint32_t i = 0; i < n_rows; i++)
		rows[i] = (struct kiln_row){.low = (uint16_t)(i * 7), .rule = (uint16_t)(i % 4)};
	return (struct unwind_table){
	    .base = 0x1000,
	    .index = index_of,
	    .blocks = 63,
	    .rows = rows,
	    .n_rows = n_rows,
	    .rules = rules,
	    .n_rules = 4,
	};
}

static void loaded_table_is_in_the_slab_as_given(void **state)
{
	struct fake *f = *state;
	struct stored_image image = {};
	struct unwind_table t = table_of(100);
	const struct kiln_table *e;

	assert_int_equal(unwind_store_add(f->store, &image), 0);
	assert_int_not_equal(image.slot, 0);
	assert_int_equal(unwind_store_state(f->store, &image, 0), UNWIND_NONE);
	assert_int_equal(unwind_store_load(f->store, &image, &t, 0), 0);
	assert_int_equal(unwind_store_state(f->store, &image, 0), UNWIND_LOADED);
	e = &f->tables[image.slot];
	assert_int_equal(e->blocks, 63);
	assert_int_equal(e->base, 0x1000);
	assert_int_equal(e->rules_at % 4, 0);
	assert_memory_equal(f->slab + e->index_at, index_of, sizeof(index_of));
	assert_memory_equal(f->slab + e->rows_at, rows, 100 * sizeof(rows[0]));
	assert_memory_equal(f->slab + e->rules_at, rules, sizeof(rules));
	/* Behind the built-in rules. */
	assert_true(e->index_at >= 16);
	assert_int_equal(((struct kiln_rule *)f->slab)[KILN_BUILTIN_FP].kind, KILN_RULE_FP);
}

static void full_slab_evicts_the_longest_unused(void **state)
{
	struct fake *f = *state;
	struct stored_image a = {}, b = {}, c = {};
	struct unwind_table t = table_of(300); /* 64 + 300 + 16 words: 24 slots of 63 */
	uint64_t now = 20 + UNWIND_KEEP_MS;
	uint32_t epoch;

	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_add(f->store, &b), 0);
	assert_int_equal(unwind_store_add(f->store, &c), 0);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 10), 0);
	assert_int_equal(unwind_store_load(f->store, &b, &t, 20), 0);
	unwind_store_touch(f->store, &a, 30);
	epoch = f->epoch;
	/* b is evicted, but its room rests first. */
	assert_int_equal(unwind_store_load(f->store, &c, &t, now), -EAGAIN);
	assert_int_equal(unwind_store_state(f->store, &b, now), UNWIND_NONE);
	assert_int_equal(f->tables[b.slot].blocks, 0);
	assert_int_not_equal(f->epoch, epoch);
	assert_int_equal(unwind_store_state(f->store, &a, now), UNWIND_LOADED);
	assert_int_equal(unwind_store_load(f->store, &c, &t, now + RANGE_REST_MS), 0);
	assert_int_equal(unwind_store_state(f->store, &c, now), UNWIND_LOADED);
	assert_int_equal(unwind_store_loaded(f->store), 2);
}

/* Tables in use must not replace each other at every sample. */
static void tables_in_use_stay(void **state)
{
	struct fake *f = *state;
	struct stored_image a = {}, b = {}, c = {};
	struct unwind_table t = table_of(300);

	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_add(f->store, &b), 0);
	assert_int_equal(unwind_store_add(f->store, &c), 0);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 10), 0);
	assert_int_equal(unwind_store_load(f->store, &b, &t, 20), 0);
	assert_int_equal(unwind_store_load(f->store, &c, &t, 100), -ENOSPC);
	assert_int_equal(unwind_store_state(f->store, &c, 100), UNWIND_REFUSED);
	assert_int_equal(unwind_store_state(f->store, &c, 100 + UNWIND_PATIENCE_MS), UNWIND_NONE);
	assert_int_equal(unwind_store_loaded(f->store), 2);
}

static void only_unused_tables_go_when_memory_is_short(void **state)
{
	struct fake *f = *state;
	struct stored_image a = {}, b = {};
	struct unwind_table t = table_of(100);

	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_add(f->store, &b), 0);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 10), 0);
	assert_int_equal(unwind_store_load(f->store, &b, &t, 10), 0);
	unwind_store_touch(f->store, &b, 20);
	unwind_store_evict_unused(f->store, 10 + UNWIND_KEEP_MS);
	assert_int_equal(unwind_store_state(f->store, &a, 20), UNWIND_NONE);
	assert_int_equal(unwind_store_state(f->store, &b, 20), UNWIND_LOADED);
}

static void table_that_never_fits_fails_for_good(void **state)
{
	struct fake *f = *state;
	struct stored_image image = {};
	struct unwind_table t = table_of(512);
	static uint32_t big_index[1025];

	t.index = big_index;
	t.blocks = 1024;
	assert_int_equal(unwind_store_add(f->store, &image), 0);
	assert_int_equal(unwind_store_load(f->store, &image, &t, 0), -ENOSPC);
	assert_int_equal(unwind_store_state(f->store, &image, 0), UNWIND_FAILED);
}

static void removed_image_gives_its_slot_back(void **state)
{
	struct fake *f = *state;
	static struct stored_image images[KILN_MAX_IMAGES];

	memset(images, 0, sizeof(images));
	/* Two slots are reserved: for "no file" and "not known". */
	for (uint32_t i = 0; i < KILN_MAX_IMAGES - 2; i++)
		assert_int_equal(unwind_store_add(f->store, &images[i]), 0);
	assert_int_equal(unwind_store_add(f->store, &images[KILN_MAX_IMAGES - 1]), -ENOSPC);
	unwind_store_remove(f->store, &images[17], 0);
	assert_int_equal(images[17].slot, 0);
	assert_int_equal(unwind_store_add(f->store, &images[KILN_MAX_IMAGES - 1]), 0);
}

/* The same file in two containers: two inodes, one table. */
static void images_of_equal_content_share_a_table(void **state)
{
	static const struct image_content same = {{1, 2, 3}}, other = {{1, 2, 4}};
	struct fake *f = *state;
	struct image x = {}, y = {}, z = {};
	struct stored_image a = {.image = &x}, b = {.image = &y}, c = {.image = &z};
	struct unwind_table t = table_of(100);

	image_content_set(&x, &same);
	image_content_set(&y, &same);
	image_content_set(&z, &other);
	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_add(f->store, &b), 0);
	assert_int_equal(unwind_store_add(f->store, &c), 0);
	assert_int_equal(a.slot, b.slot);
	assert_int_not_equal(a.slot, c.slot);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 0), 0);
	assert_int_equal(unwind_store_state(f->store, &b, 0), UNWIND_LOADED);
	unwind_store_remove(f->store, &a, 0);
	assert_int_equal(unwind_store_state(f->store, &b, 0), UNWIND_LOADED);
	unwind_store_remove(f->store, &b, 0);
	assert_int_equal(unwind_store_loaded(f->store), 0);
	/* The content and its table are forgotten with its last image. */
	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_state(f->store, &a, 0), UNWIND_NONE);
}

/* Anybody can write any build id, head, tail and size into a file. */
static void images_without_content_share_nothing(void **state)
{
	struct fake *f = *state;
	struct image x = {.htlhash = "0123456789abcdef0123456789abcdef", .build_id_len = 20}, y = x;
	struct stored_image a = {.image = &x}, b = {.image = &y};

	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_add(f->store, &b), 0);
	assert_int_not_equal(a.slot, b.slot);
}

/* Until an image's content is known, walks find an entry without blocks and ask for the table. */
static void an_expected_image_has_no_table(void **state)
{
	static const struct image_content content = {{7}};
	struct fake *f = *state;
	struct image x = {};
	struct stored_image a = {.image = &x}, b = {};
	struct unwind_table t = table_of(100), view;

	unwind_store_expect(f->store, &a);
	unwind_store_expect(f->store, &b);
	assert_int_equal(a.slot, UNWIND_SLOT_UNKNOWN);
	assert_int_equal(unwind_store_state(f->store, &a, 0), UNWIND_NONE);
	unwind_store_set_state(f->store, &a, UNWIND_WANTED);
	assert_int_equal(unwind_store_state(f->store, &a, 0), UNWIND_WANTED);
	assert_int_equal(unwind_store_state(f->store, &b, 0), UNWIND_NONE);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 0), -EINVAL);
	assert_false(unwind_store_view(f->store, &a, &view));
	assert_null(unwind_store_code_bytes(f->store, &a));
	unwind_store_touch(f->store, &a, 0);
	image_content_set(&x, &content);
	assert_int_equal(unwind_store_add(f->store, &a), 0);
	assert_int_equal(unwind_store_state(f->store, &a, 0), UNWIND_NONE);
	assert_int_equal(unwind_store_load(f->store, &a, &t, 0), 0);
	assert_int_equal(f->tables[UNWIND_SLOT_UNKNOWN].blocks, 0);
	unwind_store_remove(f->store, &b, 0);
	assert_int_equal(b.slot, 0);
}

static void a_view_reads_what_was_loaded(void **state)
{
	struct fake *f = *state;
	struct stored_image image = {}, other = {};
	struct unwind_table t = table_of(100), view;

	assert_false(unwind_store_view(f->store, &image, &view));
	assert_null(unwind_store_code_bytes(f->store, &image));
	assert_int_equal(unwind_store_add(f->store, &image), 0);
	assert_false(unwind_store_view(f->store, &image, &view));
	*unwind_store_code_bytes(f->store, &image) = 5;
	assert_int_equal(unwind_store_load(f->store, &image, &t, 0), 0);
	assert_true(unwind_store_view(f->store, &image, &view));
	assert_int_equal(view.base, t.base);
	assert_int_equal(view.blocks, t.blocks);
	assert_int_equal(view.n_rows, t.n_rows);
	assert_int_equal(view.n_rules, t.n_rules);
	assert_memory_equal(view.rows, t.rows, t.n_rows * sizeof(*t.rows));
	assert_memory_equal(view.rules, t.rules, t.n_rules * sizeof(*t.rules));
	assert_memory_equal(view.index, t.index, (t.blocks + 1) * sizeof(*t.index));
	/* The count of bytes read lasts as long as the file has its slot. */
	assert_int_equal(*unwind_store_code_bytes(f->store, &image), 5);
	unwind_store_remove(f->store, &image, 0);
	assert_false(unwind_store_view(f->store, &image, &view));
	assert_int_equal(unwind_store_add(f->store, &other), 0);
	assert_int_equal(*unwind_store_code_bytes(f->store, &other), 0);
}

/* Walks of JIT code need them when no table is loaded, too. */
static void the_builtin_rules_stay_when_memory_is_given_back(void **state)
{
	struct fake *f = *state;
	const struct kiln_rule *builtin = (const struct kiln_rule *)f->memory.slab;

	unwind_store_trim(f->store, RANGE_REST_MS);
	assert_true(slab_is_backed(f->memory.slab_shards, 0));
	assert_int_equal(builtin[KILN_BUILTIN_FP].kind, KILN_RULE_FP);
}

/* Tables of 24 slots behind the built-in rules: tables 2 to 5 lie in the second shard, of which 2
 * begins in the first and 5 ends in the third. */
static void mappings_get_the_shard_that_was_not_used_for_the_longest_time(void **state)
{
	struct fake *f = *state;
	const struct slab *slab = f->memory.slab_shards;
	struct stored_image images[7] = {};
	struct unwind_table t = table_of(300);
	uint64_t now = 10 + UNWIND_KEEP_MS;

	for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
		assert_int_equal(unwind_store_add(f->store, &images[i]), 0);
		assert_int_equal(unwind_store_load(f->store, &images[i], &t, 10), 0);
	}
	unwind_store_touch(f->store, &images[5], now);
	assert_false(unwind_store_evict_shard(f->store, now));
	assert_int_equal(unwind_store_loaded(f->store), 7);
	unwind_store_touch(f->store, &images[5], 10);
	unwind_store_touch(f->store, &images[6], now);
	assert_true(unwind_store_evict_shard(f->store, now));
	for (size_t i = 0; i < ARRAY_SIZE(images); i++)
		assert_int_equal(unwind_store_state(f->store, &images[i], now),
				 i >= 2 && i <= 5 ? UNWIND_NONE : UNWIND_LOADED);
	/* No other table goes until the memory of these is given back. */
	now += UNWIND_KEEP_MS;
	assert_true(unwind_store_evict_shard(f->store, now));
	assert_int_equal(unwind_store_loaded(f->store), 3);
	unwind_store_trim(f->store, now);
	assert_false(slab_is_backed(slab, SHARD));
	assert_true(slab_is_backed(slab, 2 * SHARD));
	assert_true(unwind_store_evict_shard(f->store, now));
	assert_int_equal(unwind_store_loaded(f->store), 2);
	/* The shard of the built-in rules is all that is left. */
	unwind_store_trim(f->store, now + RANGE_REST_MS);
	assert_false(unwind_store_evict_shard(f->store, now + RANGE_REST_MS));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(loaded_table_is_in_the_slab_as_given, setup, teardown),
	    cmocka_unit_test_setup_teardown(full_slab_evicts_the_longest_unused, setup, teardown),
	    cmocka_unit_test_setup_teardown(tables_in_use_stay, setup, teardown),
	    cmocka_unit_test_setup_teardown(images_of_equal_content_share_a_table, setup, teardown),
	    cmocka_unit_test_setup_teardown(images_without_content_share_nothing, setup, teardown),
	    cmocka_unit_test_setup_teardown(an_expected_image_has_no_table, setup, teardown),
	    cmocka_unit_test_setup_teardown(only_unused_tables_go_when_memory_is_short, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(table_that_never_fits_fails_for_good, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_view_reads_what_was_loaded, setup, teardown),
	    cmocka_unit_test_setup_teardown(removed_image_gives_its_slot_back, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		mappings_get_the_shard_that_was_not_used_for_the_longest_time, setup_slab,
		teardown),
	    cmocka_unit_test_setup_teardown(the_builtin_rules_stay_when_memory_is_given_back,
					    setup_slab, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
