/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A queue in the order of arrival, threads that take from it, and a list of jobs that ran, which
 * the loop fetches when the uv_async fires. `jobs` has every job from its submission to its
 * delivery. One mutex guards all of it; it is never held while a job runs.
 *
 * Threads are started when jobs come, up to `threads` that are not late. A thread that returns from
 * a late job ends if it was replaced meanwhile. Threads are detached, because nothing can wait for
 * a thread that hangs: the pool counts them, and whoever leaves last, the loop or a thread, frees
 * it.
 */
#include "agent/discovery/pool.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <utlist.h>

#include "lib/loop_wake.h"
#include "lib/metrics.h"
#include "lib/pace.h"
#include "lib/wakeup.h"

enum {
	STACK_BYTES = 512 << 10,
	CHECKS_PER_DEADLINE = 4,
};

/* Not a part of the pool: libuv closes the handles after discovery_pool_free() has returned. */
struct handles {
	struct loop_wake ran;
	uv_timer_t check; /* for late jobs, while jobs run */
	unsigned int open;
	struct discovery_pool *pool; /* NULL: it is being freed */
};

struct discovery_pool {
	struct discovery_options options;
	struct handles *handles;
	pthread_mutex_t mutex;
	pthread_cond_t work, left;  /* there is a job; a thread left, or a job ended */
	struct discovery_job *jobs; /* by key */
	struct discovery_job *queue, *running, *ran;
	size_t queued, n_running;
	unsigned int threads, late; /* late: threads in late jobs; all of them in `threads` */
	bool closed;
	size_t submitted; /* jobs that are not delivered yet; only for the loop's thread */
};

static uint64_t now_ms(void)
{
	return uv_hrtime() / 1000000;
}

static void pool_destroy(struct discovery_pool *p)
{
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->left);
	pthread_mutex_destroy(&p->mutex);
	free(p);
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool has_key(const struct discovery_job *job)
{
	return job->key.a || job->key.b;
}

/* With the mutex. */
static void forget_key(struct discovery_pool *p, struct discovery_job *job)
{
	if (has_key(job))
		HASH_DEL(p->jobs, job);
}

/* With the mutex. The number of threads, less those in late jobs that may be replaced. */
static unsigned int staffed(const struct discovery_pool *p)
{
	return p->threads - MIN(p->late, p->options.late_max);
}

/* With the mutex. Whether this thread is one too many. */
static bool is_surplus(const struct discovery_pool *p)
{
	return p->closed || staffed(p) > p->options.threads;
}

/* With the mutex, which is released while the job runs. */
static void run_next(struct discovery_pool *p)
{
	struct discovery_job *job = p->queue;

	DL_DELETE(p->queue, job);
	p->queued--;
	DL_APPEND(p->running, job);
	p->n_running++;
	job->state = DISCOVERY_RUNNING;
	job->started_ms = now_ms();
	pthread_mutex_unlock(&p->mutex);
	job->run(job);
	pthread_mutex_lock(&p->mutex);
	DL_DELETE(p->running, job);
	p->n_running--;
	if (job->state == DISCOVERY_LATE) {
		p->late--;
		metric_set(M_DISCOVERY_THREADS_LATE, p->late);
	}
	job->state = DISCOVERY_RAN;
	if (p->closed) {
		forget_key(p, job);
		job->drop(job);
		return;
	}
	DL_APPEND(p->ran, job);
	loop_wake_send(&p->handles->ran);
}

static void *work(void *arg)
{
	struct discovery_pool *p = arg;
	bool last;

	wakeup_soon();
	pthread_mutex_lock(&p->mutex);
	while (!is_surplus(p)) {
		if (p->queue) {
			/* Wait before taking the job: its deadline begins when it is taken. */
			pthread_mutex_unlock(&p->mutex);
			pace_wait();
			pthread_mutex_lock(&p->mutex);
			if (!p->queue)
				continue;
			run_next(p);
			pthread_cond_broadcast(&p->left);
			continue;
		}
		pthread_cond_wait(&p->work, &p->mutex);
	}
	p->threads--;
	/* `handles` is NULL after discovery_pool_free(). */
	last = p->closed && !p->threads && !p->handles;
	pthread_cond_broadcast(&p->left);
	pthread_mutex_unlock(&p->mutex);
	if (last)
		pool_destroy(p);
	return NULL;
}

/* With the mutex. Signals are for the loop's thread. */
static int start_thread(struct discovery_pool *p)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	if (pthread_attr_init(&attr))
		return -ENOMEM;
	sigfillset(&all);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, &attr, work, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (r)
		return -r;
	p->threads++;
	return 0;
}

/*
 * With the mutex. Wakes or starts a thread for the queue, which has JOBS jobs. Every thread that
 * runs none takes one of them, also those that were woken or started and have not got the mutex
 * yet.
 */
static int staff(struct discovery_pool *p, size_t jobs)
{
	int r = 0;

	pthread_cond_signal(&p->work);
	if (jobs > p->threads - p->n_running && staffed(p) < p->options.threads)
		r = start_thread(p);
	/* No error while there is a thread that is not late: it will take the job. */
	return p->threads > p->late ? 0 : r;
}

/* ---- loop ------------------------------------------------------------------------------------ */

static bool is_beyond(const struct discovery_pool *p, const struct discovery_job *job, uint64_t now)
{
	return job->state == DISCOVERY_RUNNING && now - job->started_ms >= p->options.deadline_ms;
}

/*
 * Takes one job that has just become late, and replaces its thread if jobs wait. NULL: there is
 * none.
 */
static struct discovery_job *next_late(struct discovery_pool *p, uint64_t now)
{
	struct discovery_job *job;

	pthread_mutex_lock(&p->mutex);
	DL_FOREACH (p->running, job)
		if (is_beyond(p, job, now))
			break;
	if (job) {
		job->state = DISCOVERY_LATE;
		/* The threads of late jobs beyond late_max are not replaced: once all hang, the
		 * pool runs no more jobs. */
		p->late++;
		metric_add(M_DISCOVERY_LATE, 1);
		metric_set(M_DISCOVERY_THREADS_LATE, p->late);
		if (p->queue)
			(void)staff(p, p->queued);
	}
	pthread_mutex_unlock(&p->mutex);
	return job;
}

static void on_check(uv_timer_t *timer)
{
	struct discovery_pool *p = container_of(timer, struct handles, check)->pool;
	struct discovery_job *job;
	uint64_t now = now_ms();

	while (p && (job = next_late(p, now)))
		if (job->late)
			job->late(job);
}

/* Keeps the loop awake, and looks for late jobs, while there are jobs. */
static void watch(struct discovery_pool *p, bool on)
{
	uint64_t every = MAX(p->options.deadline_ms / CHECKS_PER_DEADLINE, 1);

	if (on) {
		uv_ref((uv_handle_t *)&p->handles->ran.poll);
		uv_timer_start(&p->handles->check, on_check, every, every);
	} else {
		uv_unref((uv_handle_t *)&p->handles->ran.poll);
		uv_timer_stop(&p->handles->check);
	}
}

static struct discovery_job *take_ran(struct discovery_pool *p)
{
	struct discovery_job *job;

	pthread_mutex_lock(&p->mutex);
	job = p->ran;
	if (job) {
		DL_DELETE(p->ran, job);
		forget_key(p, job);
		job->state = DISCOVERY_IDLE;
	}
	pthread_mutex_unlock(&p->mutex);
	return job;
}

static void on_ran(struct loop_wake *wake)
{
	struct handles *h = container_of(wake, struct handles, ran);
	struct discovery_job *job;

	/* `done` may free the pool. */
	while (h->pool && (job = take_ran(h->pool))) {
		if (!--h->pool->submitted)
			watch(h->pool, false);
		metric_add(M_DISCOVERY_JOBS, 1);
		job->done(job);
	}
}

static int refuse(int reason)
{
	metric_add(reason == -EHOSTDOWN ? M_DISCOVERY_REFUSED_THREADS : M_DISCOVERY_REFUSED_QUEUE,
		   1);
	return reason;
}

/* With the mutex. */
static int enqueue(struct discovery_pool *p, struct discovery_job *job)
{
	struct discovery_job *same = NULL;
	int r;

	if (has_key(job))
		HASH_FIND(hh, p->jobs, &job->key, sizeof(job->key), same);
	if (same)
		return -EBUSY;
	if (p->late >= p->options.late_max + p->options.threads)
		return refuse(-EHOSTDOWN);
	if (p->queued >= p->options.queue_max)
		return refuse(-EAGAIN);
	r = staff(p, p->queued + 1);
	if (r < 0)
		return r;
	job->state = DISCOVERY_QUEUED;
	job->pool = p;
	job->device = 0;
	DL_APPEND(p->queue, job);
	p->queued++;
	if (has_key(job))
		HASH_ADD(hh, p->jobs, key, sizeof(job->key), job);
	return 0;
}

int discovery_submit(struct discovery_pool *p, struct discovery_job *job)
{
	int r;

	pthread_mutex_lock(&p->mutex);
	r = enqueue(p, job);
	pthread_mutex_unlock(&p->mutex);
	if (!r && !p->submitted++)
		watch(p, true);
	return r;
}

int discovery_touch(struct discovery_job *job, uint64_t device)
{
	struct discovery_pool *p = job->pool;
	struct discovery_job *other;
	int r = 0;

	/* A job that is run without a pool. */
	if (!p)
		return 0;
	pthread_mutex_lock(&p->mutex);
	DL_FOREACH (p->running, other)
		if (other != job && other->state == DISCOVERY_LATE && other->device == device)
			r = -EHOSTDOWN;
	if (!r)
		job->device = device;
	pthread_mutex_unlock(&p->mutex);
	return r;
}

void discovery_read_stats(struct discovery_pool *p, struct discovery_stats *ret)
{
	pthread_mutex_lock(&p->mutex);
	*ret = (struct discovery_stats){
	    .queued = p->queued,
	    .running = p->n_running,
	    .late = p->late,
	};
	pthread_mutex_unlock(&p->mutex);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static int handles_new(struct discovery_pool *p)
{
	struct handles *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return -ENOMEM;
	r = loop_wake_init(p->options.loop, &h->ran, on_ran);
	if (r < 0) {
		free(h);
		return r;
	}
	/* Cannot fail. */
	(void)uv_timer_init(p->options.loop, &h->check);
	uv_unref((uv_handle_t *)&h->ran.poll);
	uv_unref((uv_handle_t *)&h->check);
	h->pool = p;
	h->open = 2;
	p->handles = h;
	return 0;
}

int discovery_pool_new(const struct discovery_options *options, struct discovery_pool **ret)
{
	struct discovery_pool *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;
	int r;

	if (!p)
		return -ENOMEM;
	p->options = *options;
	if (!p->options.threads)
		p->options.threads = DISCOVERY_THREADS;
	if (!p->options.late_max)
		p->options.late_max = DISCOVERY_THREADS_LATE_MAX;
	if (!p->options.queue_max)
		p->options.queue_max = DISCOVERY_QUEUE_MAX;
	if (!p->options.deadline_ms)
		p->options.deadline_ms = DISCOVERY_DEADLINE_MS;
	r = handles_new(p);
	if (r < 0) {
		free(p);
		return r;
	}
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->left, &attr);
	pthread_condattr_destroy(&attr);
	*ret = p;
	return 0;
}

static void handles_close(struct handles *h)
{
	if (!--h->open)
		free(h);
}

static void on_wake_closed(struct loop_wake *wake)
{
	handles_close(container_of(wake, struct handles, ran));
}

static void on_check_closed(uv_handle_t *handle)
{
	handles_close(container_of((uv_timer_t *)handle, struct handles, check));
}

static void drop_all(struct discovery_pool *p, struct discovery_job **list)
{
	struct discovery_job *job, *next;

	DL_FOREACH_SAFE (*list, job, next) {
		DL_DELETE(*list, job);
		forget_key(p, job);
		job->drop(job);
	}
}

/* With the mutex. Waits, for one deadline at most, until every thread that does not hang has ended.
 */
static void wait_for_threads(struct discovery_pool *p)
{
	uint64_t until = now_ms() + p->options.deadline_ms;
	struct timespec t = {.tv_sec = (time_t)(until / 1000),
			     .tv_nsec = (long)(until % 1000) * 1000000};

	while (p->threads > p->late)
		if (pthread_cond_timedwait(&p->left, &p->mutex, &t))
			break;
}

unsigned int discovery_pool_free(struct discovery_pool *p)
{
	struct handles *h;
	unsigned int left;

	if (!p)
		return 0;
	h = p->handles;
	pthread_mutex_lock(&p->mutex);
	p->closed = true;
	drop_all(p, &p->queue);
	drop_all(p, &p->ran);
	p->queued = 0;
	pthread_cond_broadcast(&p->work);
	wait_for_threads(p);
	p->handles = NULL;
	left = p->threads;
	pthread_mutex_unlock(&p->mutex);
	h->pool = NULL;
	loop_wake_close(&h->ran, on_wake_closed);
	uv_close((uv_handle_t *)&h->check, on_check_closed);
	/* Else the last thread does it. */
	if (!left)
		pool_destroy(p);
	return left;
}
