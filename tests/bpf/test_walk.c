/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks in the kernel while user space changes tables and mappings. No stack may be wrong: it is
 * complete and right, or marked as incomplete.
 */
#include "tests/bpf/watch.h"
#include "tests/support/test.h"

enum { RATE = 999, DEPTH = 20, ENOUGH = 100, ROUNDS = 400 };

static struct {
	struct profiled *p;
	struct child child;
	struct watch watch;
} t;

static struct watch *const w = &t.watch;

static int setup(void **state)
{
	memset(&t, 0, sizeof(t));
	return child_start("spin", DEPTH, NULL, &t.child);
}

static int teardown(void **state)
{
	t.p = profiled_free(t.p);
	child_end(&t.child);
	return 0;
}

static void start(uint32_t max_depth)
{
	const uint32_t pid = (uint32_t)t.child.pid;
	const struct sampler_options options = {.hz = RATE,
						.cgroup_mode = CGROUP_HYBRID,
						.max_depth = max_depth,
						.pids = &pid,
						.n_pids = 1};
	struct error err = {};

	if (profiled_new(&options, &t.p, &err) < 0 || sampler_start(t.p->sampler, &err) < 0)
		fail_msg("%s", err.message);
	*w = (struct watch){.tgid = pid, .learn = true, .child = &t.child};
}

/* The image of the program itself: each of the chain's frames is in it. */
static struct stored_image *own_image(void)
{
	return mapset_find(w->mapset, t.child.report.leaf)->image;
}

static uint64_t misses(void)
{
	struct sampler_stats stats;

	sampler_read_stats(t.p->sampler, &stats);
	return stats.counts[KILN_STAT_CACHE_MISS];
}

static void stack_is_the_chain_word_by_word(void **state)
{
	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	assert_int_equal(w->wrong, 0);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->complete, w->records);
}

static void known_frames_come_from_the_cache(void **state)
{
	struct sampler_stats stats;

	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	sampler_read_stats(t.p->sampler, &stats);
	assert_true(stats.counts[KILN_STAT_CACHE_HIT] > 5 * stats.counts[KILN_STAT_CACHE_MISS]);
}

static void new_epoch_makes_the_cache_void(void **state)
{
	uint64_t before, distinct = 6; /* the chain has two functions in turn */

	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	before = misses();
	__atomic_fetch_add(sampler_memory(t.p->sampler)->cache_epoch, 1, __ATOMIC_RELEASE);
	watch_drain(t.p, w, 1);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->complete, 3));
	assert_true(misses() >= before + distinct);
	assert_int_equal(w->wrong, 0);
}

static void unloaded_table_is_not_answered_from_the_cache(void **state)
{
	struct error err = {};

	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	unwind_store_remove(t.p->unwind, own_image(), profiled_now_ns() / 1000000);
	watch_drain(t.p, w, 1);
	watch_reset(w);
	assert_true(watch_until(t.p, w, 1, &w->records, ENOUGH));
	assert_int_equal(w->complete, 0);
	assert_int_equal(w->by_end[KILN_END_NO_TABLE], w->records);
	/* The record has the leaf, and a copy of the stack with which user space can go on. */
	assert_int_equal(w->last.n_user, 1);
	assert_int_equal(w->with_dump, w->records);
	assert_int_equal(unwind_store_add(t.p->unwind, own_image()), 0);
	assert_int_equal(profiled_load(t.p, own_image(), &err), 0);
}

/* Tables are loaded and removed while walks use them. */
static void walk_over_changing_tables_is_right_or_says_so(void **state)
{
	struct stored_image *own, *libc = NULL;
	struct error err = {};
	uint64_t complete = 0, records = 0;

	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, 1));
	own = own_image();
	for (uint32_t i = 0; i < w->mapset->n; i++)
		if (w->mapset->ranges[i].image && w->mapset->ranges[i].image->path &&
		    strstr(w->mapset->ranges[i].image->path, "libc.so"))
			libc = w->mapset->ranges[i].image;
	assert_non_null(libc);
	watch_drain(t.p, w, 1);
	watch_reset(w);
	for (int i = 0; i < ROUNDS; i++) {
		struct stored_image *image = i % 4 == 3 ? libc : own;

		/* Loading a table removes the one that is loaded first. */
		if (profiled_load(t.p, image, &err) < 0)
			assert_int_equal(err.code, -ENOSPC);
		if (i % 8 == 0)
			__atomic_fetch_add(sampler_memory(t.p->sampler)->cache_epoch, 1,
					   __ATOMIC_RELEASE);
		usleep(3000);
		watch_drain(t.p, w, 1);
		complete += w->complete;
		records += w->records;
		assert_int_equal(w->wrong, 0);
		assert_int_equal(w->complete + w->by_end[KILN_END_NO_TABLE], w->records);
		watch_reset(w);
	}
	assert_true(complete >= ENOUGH && records >= complete);
}

/* Frees the mapsets that no entry in the kernel names. */
static void sweep(void)
{
	_cleanup_(sampler_named_done) struct sampler_named named = {};

	assert_int_equal(sampler_read_named(t.p->sampler, t.p->proc_dirfd, &named), 0);
	mapset_store_sweep(t.p->mapsets, named.mapsets, named.n_mapsets,
			   profiled_now_ns() / 1000000);
}

/* Runs longer than a freed range rests, so that later mapsets get the ranges of earlier ones. */
static void mappings_that_change_hands_are_right_or_say_so(void **state)
{
	uint64_t complete = 0, until;

	start(0);
	assert_true(watch_until(t.p, w, 1, &w->complete, 1));
	watch_drain(t.p, w, 1);
	watch_reset(w);
	until = profiled_now_ns() + 2 * RANGE_REST_MS * 1000000ULL;
	while (profiled_now_ns() < until) {
		mapset_store_forget(t.p->mapsets, w->tgid);
		usleep(2000);
		watch_drain(t.p, w, 1);
		complete += w->complete;
		assert_int_equal(w->wrong, 0);
		assert_int_equal(w->complete + w->by_end[KILN_END_NO_PROCESS], w->records);
		watch_reset(w);
		sweep();
	}
	assert_true(mapset_store_count(t.p->mapsets) < 10);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	assert_int_equal(w->wrong, 0);
}

static void depth_limit_cuts_and_says_so(void **state)
{
	start(7);
	assert_true(watch_until(t.p, w, 1, &w->by_end[KILN_END_DEPTH], ENOUGH));
	assert_int_equal(w->last.n_user, 7);
	assert_int_equal(w->complete, 0);
}

static void depth_limit_that_just_suffices_cuts_nothing(void **state)
{
	start(1 + t.child.report.n + CHILD_ABOVE_MAIN);
	assert_true(watch_until(t.p, w, 1, &w->complete, ENOUGH));
	assert_int_equal(w->wrong, 0);
	assert_int_equal(w->by_end[KILN_END_DEPTH], 0);
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(stack_is_the_chain_word_by_word),
	    TEST(known_frames_come_from_the_cache),
	    TEST(new_epoch_makes_the_cache_void),
	    TEST(unloaded_table_is_not_answered_from_the_cache),
	    TEST(walk_over_changing_tables_is_right_or_says_so),
	    TEST(mappings_that_change_hands_are_right_or_say_so),
	    TEST(depth_limit_cuts_and_says_so),
	    TEST(depth_limit_that_just_suffices_cuts_nothing),
	};
	int r = argc > 1 ? child_main(argc, argv) : cmocka_run_group_tests(tests, NULL, NULL);

	__asm__ volatile("" ::: "memory");
	return r;
}
