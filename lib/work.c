/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. */
#include "lib/work.h"

#include <pthread.h>
#include <signal.h>

#include "lib/loop_wake.h"

/* One for each loop that has work under way. */
struct work_loop {
	struct loop_wake wake;
	uv_loop_t *loop;
	struct work *ran;	/* finished work, newest first; guarded by `mutex` */
	unsigned int submitted; /* work whose DONE was not called yet; loop thread only */
	struct work_loop *next; /* guarded by `mutex` */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queued = PTHREAD_COND_INITIALIZER;
/* Guarded by `mutex`, as are the others below. */
static struct work *first, **last = &first;
static struct work_loop *loops;
static unsigned int threads, idle, waiting; /* waiting: work in the list */

/* ---- threads ----------------------------------------------------------------------------------
 */

/* The caller holds the mutex, which is released while the work runs. */
static void run_first(void)
{
	struct work *w = first;

	first = w->next;
	waiting--;
	if (!first)
		last = &first;
	pthread_mutex_unlock(&mutex);
	w->run(w);
	pthread_mutex_lock(&mutex);
	w->next = w->of->ran;
	w->of->ran = w;
	/* Sent under the mutex: otherwise the loop may take W, finish, and close the handle
	 * first. */
	if (!w->next)
		loop_wake_send(&w->of->wake);
}

static void *serve(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&mutex);
	for (;;) {
		if (first) {
			run_first();
			continue;
		}
		idle++;
		pthread_cond_wait(&queued, &mutex);
		idle--;
	}
	return NULL;
}

/* The caller holds the mutex. The thread takes no signals: they are for the loop's thread. */
static int start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return -r;
	pthread_detach(thread);
	threads++;
	return 0;
}

/* The caller holds the mutex. */
static int enqueue(struct work *w)
{
	int r = 0;

	/* A thread that was woken for other work is still idle here. */
	if (waiting >= idle && threads < WORK_THREADS)
		r = start_thread();
	/* If no thread could be started, the existing threads will do the work. */
	if (r < 0 && !threads)
		return r;
	w->next = NULL;
	*last = w;
	last = &w->next;
	waiting++;
	pthread_cond_signal(&queued);
	return 0;
}

/* ---- loop -------------------------------------------------------------------------------------
 */

static void on_closed(struct loop_wake *wake)
{
	free(container_of(wake, struct work_loop, wake));
}

static void forget(struct work_loop *l)
{
	struct work_loop **at = &loops;

	pthread_mutex_lock(&mutex);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	pthread_mutex_unlock(&mutex);
	loop_wake_close(&l->wake, on_closed);
}

/* Takes the finished work, oldest first. */
static struct work *take_ran(struct work_loop *l)
{
	struct work *w, *next, *ret = NULL;

	pthread_mutex_lock(&mutex);
	w = l->ran;
	l->ran = NULL;
	pthread_mutex_unlock(&mutex);
	for (; w; w = next) {
		next = w->next;
		w->next = ret;
		ret = w;
	}
	return ret;
}

static void on_ran(struct loop_wake *wake)
{
	struct work_loop *l = container_of(wake, struct work_loop, wake);
	struct work *w, *next;

	for (w = take_ran(l); w; w = next) {
		next = w->next;
		w->done(w);
		l->submitted--;
	}
	if (!l->submitted)
		forget(l);
}

static struct work_loop *find_loop(uv_loop_t *loop)
{
	struct work_loop *l;

	pthread_mutex_lock(&mutex);
	for (l = loops; l && l->loop != loop; l = l->next)
		;
	pthread_mutex_unlock(&mutex);
	return l;
}

static int new_loop(uv_loop_t *loop, struct work_loop **ret)
{
	struct work_loop *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	r = loop_wake_init(loop, &l->wake, on_ran);
	if (r < 0) {
		free(l);
		return r;
	}
	l->loop = loop;
	pthread_mutex_lock(&mutex);
	l->next = loops;
	loops = l;
	pthread_mutex_unlock(&mutex);
	*ret = l;
	return 0;
}

int work_submit(uv_loop_t *loop, struct work *w, void (*run)(struct work *w),
		void (*done)(struct work *w))
{
	struct work_loop *l = find_loop(loop);
	int r = l ? 0 : new_loop(loop, &l);

	if (r < 0)
		return r;
	*w = (struct work){.run = run, .done = done, .of = l};
	pthread_mutex_lock(&mutex);
	r = enqueue(w);
	pthread_mutex_unlock(&mutex);
	if (!r)
		l->submitted++;
	else if (!l->submitted)
		forget(l);
	return r;
}
