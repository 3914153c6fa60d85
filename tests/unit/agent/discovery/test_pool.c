/* SPDX-License-Identifier: Apache-2.0 */
/* A job hangs if it reads from a pipe (its gate) to which nothing is written yet. */
#include "agent/discovery/pool.h"

#include <pthread.h>

#include "tests/support/test.h"

enum { DEADLINE_MS = 20, JOBS = 8 };

struct fixture {
	uv_loop_t loop;
	struct discovery_pool *pool;
	struct job *last_done;
	unsigned int done, late;
	unsigned int stop_at_late, stop_at_done; /* stop the loop at this count */
};

struct job {
	struct discovery_job base;
	struct fixture *f;
	int gate[2]; /* the pipe that the job reads; -1: it does not hang */
	uint64_t device;
	int touched;
	pthread_t ran_on;
	bool ran, done, late, dropped;
};

static void run(struct discovery_job *base)
{
	struct job *job = container_of(base, struct job, base);
	char byte;

	job->ran_on = pthread_self();
	job->ran = true;
	if (job->device)
		job->touched = discovery_touch(base, job->device);
	if (job->touched == 0 && job->gate[0] >= 0)
		assert_int_equal(read(job->gate[0], &byte, 1), 1);
}

static void on_done(struct discovery_job *base)
{
	struct job *job = container_of(base, struct job, base);

	assert_false(job->done);
	job->done = true;
	job->f->last_done = job;
	if (++job->f->done == job->f->stop_at_done)
		uv_stop(&job->f->loop);
}

static void on_late(struct discovery_job *base)
{
	struct job *job = container_of(base, struct job, base);

	assert_false(job->late || job->done);
	job->late = true;
	if (++job->f->late == job->f->stop_at_late)
		uv_stop(&job->f->loop);
}

static void on_drop(struct discovery_job *base)
{
	__atomic_store_n(&container_of(base, struct job, base)->dropped, true, __ATOMIC_RELEASE);
}

static struct job job_of(struct fixture *f, uint64_t key, bool hangs)
{
	struct job job = {
	    .base = {{key, 0}, run, on_late, on_done, on_drop}, .f = f, .gate = {-1, -1}};

	if (hangs)
		assert_int_equal(pipe(job.gate), 0);
	return job;
}

static void unhang(struct job *job)
{
	assert_int_equal(write(job->gate[1], "", 1), 1);
}

static void close_gate(struct job *job)
{
	close(job->gate[0]);
	close(job->gate[1]);
}

static void begin_with(struct fixture *f, unsigned int threads, unsigned int late_max,
		       size_t queue_max, uint64_t deadline_ms)
{
	struct discovery_options options = {.loop = &f->loop,
					    .threads = threads,
					    .late_max = late_max,
					    .queue_max = queue_max,
					    .deadline_ms = deadline_ms};

	*f = (struct fixture){};
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(discovery_pool_new(&options, &f->pool), 0);
}

static void begin(struct fixture *f, unsigned int threads, unsigned int late_max, size_t queue_max)
{
	begin_with(f, threads, late_max, queue_max, DEADLINE_MS);
}

static void end(struct fixture *f, unsigned int left)
{
	assert_int_equal(discovery_pool_free(f->pool), left);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0);
}

/* Runs the loop until all jobs have ended. */
static void run_all(struct fixture *f)
{
	uv_run(&f->loop, UV_RUN_DEFAULT);
}

static void run_until_late(struct fixture *f, unsigned int n)
{
	f->stop_at_late = n;
	if (f->late < n)
		uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(f->late, n);
}

static void jobs_run_elsewhere_and_come_back(void **state)
{
	struct job jobs[JOBS];
	struct fixture f;

	begin(&f, 2, 0, 0);
	for (int i = 0; i < JOBS; i++) {
		jobs[i] = job_of(&f, (uint64_t)i + 1, false);
		assert_int_equal(discovery_submit(f.pool, &jobs[i].base), 0);
	}
	run_all(&f);
	assert_int_equal(f.done, JOBS);
	for (int i = 0; i < JOBS; i++) {
		assert_true(jobs[i].ran && !pthread_equal(jobs[i].ran_on, pthread_self()));
		assert_int_equal(jobs[i].base.state, DISCOVERY_IDLE);
	}
	/* A job that has ended can be submitted again. */
	jobs[0].done = false;
	assert_int_equal(discovery_submit(f.pool, &jobs[0].base), 0);
	run_all(&f);
	assert_true(jobs[0].done);
	end(&f, 0);
}

static void a_process_has_one_job_at_a_time(void **state)
{
	struct job a, b, other, nothing, nothing_too;
	struct fixture f;

	begin(&f, 2, 0, 0);
	a = job_of(&f, 1, true);
	b = job_of(&f, 1, false);
	other = job_of(&f, 2, false);
	nothing = job_of(&f, 0, false);
	nothing_too = job_of(&f, 0, false);
	assert_int_equal(discovery_submit(f.pool, &a.base), 0);
	assert_int_equal(discovery_submit(f.pool, &b.base), -EBUSY);
	assert_int_equal(discovery_submit(f.pool, &other.base), 0);
	assert_int_equal(discovery_submit(f.pool, &nothing.base), 0);
	assert_int_equal(discovery_submit(f.pool, &nothing_too.base), 0);
	run_until_late(&f, 1);
	assert_int_equal(discovery_submit(f.pool, &b.base), -EBUSY);
	unhang(&a);
	run_all(&f);
	assert_int_equal(discovery_submit(f.pool, &b.base), 0);
	run_all(&f);
	assert_true(a.done && b.done && other.done && nothing.done && nothing_too.done);
	close_gate(&a);
	end(&f, 0);
}

static void a_job_that_hangs_stops_no_other(void **state)
{
	struct discovery_stats stats;
	struct job hung, other;
	struct fixture f;

	begin(&f, 1, 0, 0);
	hung = job_of(&f, 1, true);
	other = job_of(&f, 2, false);
	assert_int_equal(discovery_submit(f.pool, &hung.base), 0);
	assert_int_equal(discovery_submit(f.pool, &other.base), 0);
	f.stop_at_done = 1;
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_true(other.done && hung.late && !hung.done);
	discovery_read_stats(f.pool, &stats);
	assert_int_equal(stats.late, 1);
	f.stop_at_done = 0;
	unhang(&hung);
	run_all(&f);
	assert_true(hung.done);
	assert_int_equal(f.late, 1);
	discovery_read_stats(f.pool, &stats);
	assert_int_equal(stats.late, 0);
	close_gate(&hung);
	end(&f, 0);
}

static void submit_two_to_one_idle_thread(void)
{
	struct job first, hung, other;
	struct fixture f;

	begin_with(&f, 2, 0, 0, 5000);
	first = job_of(&f, 1, false);
	hung = job_of(&f, 2, true);
	other = job_of(&f, 3, false);
	assert_int_equal(discovery_submit(f.pool, &first.base), 0);
	run_all(&f);
	usleep(1000); /* the thread waits for work by then */
	assert_int_equal(discovery_submit(f.pool, &hung.base), 0);
	assert_int_equal(discovery_submit(f.pool, &other.base), 0);
	f.stop_at_done = 2;
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_true(other.done && !hung.late && !hung.done);
	unhang(&hung);
	run_all(&f);
	close_gate(&hung);
	end(&f, 0);
}

/* A thread that was woken for a job is not free for the next one. Repeated, because the thread may
 * take its job before the next one is submitted. */
static void a_job_does_not_wait_for_the_one_before_it(void **state)
{
	for (int i = 0; i < 50; i++)
		submit_two_to_one_idle_thread();
}

static void threads_that_hang_are_bounded(void **state)
{
	enum { LATE_MAX = 2, THREADS = 1, ALL = LATE_MAX + THREADS };
	struct job hung[ALL], other;
	struct fixture f;

	begin(&f, THREADS, LATE_MAX, 0);
	other = job_of(&f, 100, false);
	for (int i = 0; i < ALL; i++) {
		hung[i] = job_of(&f, (uint64_t)i + 1, true);
		assert_int_equal(discovery_submit(f.pool, &hung[i].base), 0);
	}
	run_until_late(&f, ALL);
	assert_int_equal(discovery_submit(f.pool, &other.base), -EHOSTDOWN);
	unhang(&hung[1]);
	f.stop_at_done = 1;
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_true(hung[1].done);
	f.stop_at_done = 2;
	assert_int_equal(discovery_submit(f.pool, &other.base), 0);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_true(other.done);
	unhang(&hung[0]);
	unhang(&hung[2]);
	run_all(&f);
	assert_int_equal(f.done, ALL + 1);
	for (int i = 0; i < ALL; i++)
		close_gate(&hung[i]);
	end(&f, 0);
}

static void the_queue_is_bounded(void **state)
{
	struct job hung, waits, refused;
	struct discovery_stats stats;
	struct fixture f;

	begin(&f, 1, 1, 1);
	hung = job_of(&f, 1, true);
	waits = job_of(&f, 2, false);
	refused = job_of(&f, 3, false);
	assert_int_equal(discovery_submit(f.pool, &hung.base), 0);
	/* Wait until a thread has taken the job from the queue. */
	do
		discovery_read_stats(f.pool, &stats);
	while (stats.queued);
	assert_int_equal(discovery_submit(f.pool, &waits.base), 0);
	assert_int_equal(discovery_submit(f.pool, &refused.base), -EAGAIN);
	unhang(&hung);
	run_all(&f);
	assert_true(waits.done && !refused.ran);
	close_gate(&hung);
	end(&f, 0);
}

static void a_filesystem_that_hangs_takes_one_thread(void **state)
{
	struct job hung, same, other;
	struct fixture f;

	begin(&f, 1, 0, 0);
	hung = job_of(&f, 1, true);
	same = job_of(&f, 2, true);
	other = job_of(&f, 3, false);
	hung.device = same.device = 7;
	other.device = 8;
	assert_int_equal(discovery_submit(f.pool, &hung.base), 0);
	run_until_late(&f, 1);
	assert_int_equal(discovery_submit(f.pool, &same.base), 0);
	assert_int_equal(discovery_submit(f.pool, &other.base), 0);
	f.stop_at_done = 2;
	uv_run(&f.loop, UV_RUN_DEFAULT);
	assert_int_equal(same.touched, -EHOSTDOWN);
	assert_int_equal(other.touched, 0);
	unhang(&hung);
	run_all(&f);
	assert_int_equal(hung.touched, 0);
	same.done = false;
	unhang(&same);
	assert_int_equal(discovery_submit(f.pool, &same.base), 0);
	run_all(&f);
	assert_int_equal(same.touched, 0);
	close_gate(&hung);
	close_gate(&same);
	end(&f, 0);
}

static void a_pool_can_go_before_what_hangs(void **state)
{
	struct job hung, queued;
	struct fixture f;

	begin(&f, 1, 1, 0);
	hung = job_of(&f, 1, true);
	assert_int_equal(discovery_submit(f.pool, &hung.base), 0);
	run_until_late(&f, 1);
	queued = job_of(&f, 2, true);
	assert_int_equal(discovery_submit(f.pool, &queued.base), 0);
	unhang(&queued);
	end(&f, 1);
	assert_false(hung.dropped);
	unhang(&hung);
	while (!__atomic_load_n(&hung.dropped, __ATOMIC_ACQUIRE))
		usleep(1000);
	assert_false(hung.done || queued.done);
	assert_true(__atomic_load_n(&queued.dropped, __ATOMIC_ACQUIRE));
	close_gate(&hung);
	close_gate(&queued);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(jobs_run_elsewhere_and_come_back),
	    cmocka_unit_test(a_process_has_one_job_at_a_time),
	    cmocka_unit_test(a_job_that_hangs_stops_no_other),
	    cmocka_unit_test(a_job_does_not_wait_for_the_one_before_it),
	    cmocka_unit_test(threads_that_hang_are_bounded),
	    cmocka_unit_test(the_queue_is_bounded),
	    cmocka_unit_test(a_filesystem_that_hangs_takes_one_thread),
	    cmocka_unit_test(a_pool_can_go_before_what_hangs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
