// SPDX-License-Identifier: Apache-2.0
/* Work on other threads, and waking a loop from them. */
#include "lib/work.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "lib/loop_wake.h"

enum { JOBS = 2000, SENDERS = 4, SENDS = 5000 };

struct job {
	struct work work;
	uv_loop_t *loop;
	pthread_t loop_thread;
	int again; /* how often DONE submits it anew */
	int *n_done;
	bool ran;
};

static atomic_int running, most;

static void run(struct work *w)
{
	struct job *job = container_of(w, struct job, work);
	int now = atomic_fetch_add(&running, 1) + 1, before = atomic_load(&most);

	assert_false(pthread_equal(pthread_self(), job->loop_thread));
	while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
		;
	job->ran = true;
	atomic_fetch_sub(&running, 1);
}

static void done(struct work *w)
{
	struct job *job = container_of(w, struct job, work);

	assert_true(pthread_equal(pthread_self(), job->loop_thread));
	assert_true(job->ran);
	job->ran = false;
	++*job->n_done;
	if (job->again-- > 0)
		assert_int_equal(work_submit(job->loop, w, run, done), 0);
	else
		free(job);
}

static int submit(uv_loop_t *loop, int n, int again, int *n_done)
{
	for (int i = 0; i < n; i++) {
		struct job *job = calloc(1, sizeof(*job));

		assert_non_null(job);
		*job = (struct job){
		    .loop = loop, .loop_thread = pthread_self(), .again = again, .n_done = n_done};
		assert_int_equal(work_submit(loop, &job->work, run, done), 0);
	}
	return n * (again + 1);
}

/*
 * Each job runs on another thread and ends on the loop's, also one that is submitted from an end;
 * then the loop ends.
 */
static void test_all_is_done(void **state)
{
	uv_loop_t loop;
	int n_done = 0, want;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	for (int round = 0; round < 3; round++) {
		n_done = 0;
		want = submit(&loop, JOBS, round, &n_done);
		uv_run(&loop, UV_RUN_DEFAULT);
		assert_int_equal(n_done, want);
	}
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_in_range(atomic_load(&most), 1, WORK_THREADS);
}

struct own_loop {
	uv_loop_t loop;
	pthread_t thread;
	int n_done;
};

static void *run_loop(void *arg)
{
	struct own_loop *own = arg;

	submit(&own->loop, JOBS, 1, &own->n_done);
	uv_run(&own->loop, UV_RUN_DEFAULT);
	return NULL;
}

static void test_each_loop_gets_its_own(void **state)
{
	struct own_loop own[3] = {};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		assert_int_equal(uv_loop_init(&own[i].loop), 0);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		assert_int_equal(pthread_create(&own[i].thread, NULL, run_loop, &own[i]), 0);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		pthread_join(own[i].thread, NULL);
		assert_int_equal(own[i].n_done, JOBS * 2);
		assert_int_equal(uv_loop_close(&own[i].loop), 0);
	}
}

static struct loop_wake wake;
static atomic_int sent;
static int seen;
static bool closed;

static void on_closed(struct loop_wake *w)
{
	assert_ptr_equal(w, &wake);
	closed = true;
}

static void woken(struct loop_wake *w)
{
	seen = atomic_load(&sent);
	if (seen == SENDERS * SENDS)
		uv_stop(w->poll.loop);
}

static void *send_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < SENDS; i++) {
		atomic_fetch_add(&sent, 1);
		loop_wake_send(&wake);
	}
	return NULL;
}

/*
 * The loop sees what was done before a wakeup; if the last wakeup was lost, the loop would not end.
 */
static void test_no_wakeup_is_lost(void **state)
{
	pthread_t threads[SENDERS];
	uv_loop_t loop;

	(void)state;
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(loop_wake_init(&loop, &wake, woken), 0);
	for (size_t i = 0; i < SENDERS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, send_all, NULL), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	for (size_t i = 0; i < SENDERS; i++)
		pthread_join(threads[i], NULL);
	loop_wake_close(&wake, on_closed);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_true(closed);
	assert_int_equal(seen, SENDERS * SENDS);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all_is_done),
	    cmocka_unit_test(test_each_loop_gets_its_own),
	    cmocka_unit_test(test_no_wakeup_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
