/* SPDX-License-Identifier: Apache-2.0 */
/* The queue on a real loop: from the loop only, again after failures, paused, freed at any time. */
#include "operator/work/queue.h"

#include "tests/support/test.h"

struct world {
	uv_loop_t loop;
	struct work_queue *queue;
	char seen[4096];
	unsigned int started, failures_left;
	bool inside_call, end_at_once, add_again, free_inside;
	struct work_queue_options options;
};

static void on_work(void *arg, const char *key)
{
	struct world *w = arg;
	char name[WORK_KEY_MAX];

	assert_false(w->inside_call);
	w->started++;
	if (strlen(w->seen) + strlen(key) + 2 < sizeof(w->seen)) {
		strcat(w->seen, key);
		strcat(w->seen, " ");
	}
	if (w->free_inside) {
		w->queue = work_queue_free(w->queue);
		return;
	}
	if (!w->end_at_once)
		return;
	snprintf(name, sizeof(name), "%s", key);
	if (w->add_again && w->started < 1000)
		assert_int_equal(work_queue_add(w->queue, name), 0);
	if (w->failures_left > 0) {
		w->failures_left--;
		work_queue_done(w->queue, name, -EIO);
	} else {
		work_queue_done(w->queue, name, 0);
	}
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	assert_int_equal(uv_loop_init(&w->loop), 0);
	w->options = (struct work_queue_options){
	    .name = "test", .workers = 2, .max_keys = 100, .work = on_work, .arg = w};
	assert_int_equal(work_queue_new(&w->loop, &w->options, &w->queue), 0);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	work_queue_free(w->queue);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->loop), 0);
	free(w);
	return 0;
}

static void add(struct world *w, const char *key)
{
	w->inside_call = true;
	assert_int_equal(work_queue_add(w->queue, key), 0);
	w->inside_call = false;
}

static void test_work_starts_from_the_loop_and_as_many_as_there_are_workers(void **state)
{
	struct world *w = *state;
	struct work_queue_stats stats;

	add(w, "a");
	add(w, "b");
	add(w, "c");
	uv_run(&w->loop, UV_RUN_DEFAULT); /* ends: no timer is left while the workers are busy */
	assert_string_equal(w->seen, "a b ");
	work_queue_read_stats(w->queue, &stats);
	assert_int_equal(stats.depth, 1);
	assert_int_equal(stats.at_work, 2);
	w->inside_call = true;
	work_queue_done(w->queue, "a", 0);
	w->inside_call = false;
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_string_equal(w->seen, "a b c ");
	assert_string_equal(work_queue_name(w->queue), "test");
}

static void test_failures_come_again_until_they_succeed(void **state)
{
	struct world *w = *state;
	struct work_queue_stats stats;

	w->end_at_once = true;
	w->failures_left = 3;
	add(w, "a");
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->started, 4);
	work_queue_read_stats(w->queue, &stats);
	assert_int_equal(stats.retries, 3);
	assert_int_equal(stats.waiting, 0);
}

static void test_a_key_that_adds_itself_does_not_stop_the_loop(void **state)
{
	struct world *w = *state;
	int turns = 1;

	w->end_at_once = w->add_again = true;
	add(w, "a");
	while (uv_run(&w->loop, UV_RUN_ONCE))
		turns++;
	assert_int_equal(w->started, 1000);
	assert_true(turns >= 1000 / 64 / 2); /* a turn looks at its timers twice */
}

static void test_delays_and_pause(void **state)
{
	struct world *w = *state;

	w->end_at_once = true;
	work_queue_pause(w->queue, true);
	assert_int_equal(work_queue_add_after(w->queue, "later", 20), 0);
	add(w, "now");
	assert_int_equal(work_queue_add_low(w->queue, "low"), 0);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_string_equal(w->seen, "");
	work_queue_pause(w->queue, false);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_string_equal(w->seen, "now low later ");
}

static void test_freed_inside_its_own_work(void **state)
{
	struct world *w = *state;

	w->free_inside = true;
	add(w, "a");
	add(w, "b");
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->started, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_work_starts_from_the_loop_and_as_many_as_there_are_workers, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_failures_come_again_until_they_succeed, set_up,
					    tear_down),
	    cmocka_unit_test_setup_teardown(test_a_key_that_adds_itself_does_not_stop_the_loop,
					    set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_delays_and_pause, set_up, tear_down),
	    cmocka_unit_test_setup_teardown(test_freed_inside_its_own_work, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
