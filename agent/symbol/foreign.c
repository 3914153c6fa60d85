/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker thread makes one call at a time. When a call is late, struct foreign abandons the
 * worker (LEFT): the worker frees itself when its call returns, and the next call gets a new one.
 * The mutex guards the state, which the worker's thread and struct foreign share; only that thread
 * frees the worker. A call and its result are signalled after unlocking: the woken thread would
 * block on the mutex otherwise.
 */
#include "agent/symbol/foreign.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "agent/process/remote_file.h"
#include "agent/symbol/root_file.h"
#include "lib/clock.h"
#include "lib/metrics.h"

enum state { IDLE, ASKED, DONE, LEFT };
enum { LATE_ROOTS = 64 };

struct worker {
	pthread_mutex_t mutex;
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	enum state state;
	struct foreign_call call;
	int result;
	bool hung; /* counted in n_hung */
};

struct late_root {
	uint64_t root; /* hash */
	uint64_t until_ms;
};

struct foreign {
	struct worker *worker; /* NULL: none yet, or it was abandoned */
	struct late_root late[LATE_ROOTS];
};

/* Abandoned workers in this process whose call has not returned. */
static _Atomic unsigned int n_hung;

static void worker_free(struct worker *w)
{
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->mutex);
	free(w);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	bool hung;

	pthread_mutex_lock(&w->mutex);
	for (;;) {
		while (w->state == IDLE || w->state == DONE)
			pthread_cond_wait(&w->changed, &w->mutex);
		if (w->state == LEFT) /* abandoned while idle, or before the call began */
			break;
		pthread_mutex_unlock(&w->mutex);
		w->result = w->call.run(&w->call);
		pthread_mutex_lock(&w->mutex);
		if (w->state == LEFT) {
			if (w->result > 0)
				close(w->result);
			break;
		}
		w->state = DONE;
		pthread_mutex_unlock(&w->mutex);
		/* Only this thread frees W. */
		pthread_cond_signal(&w->changed);
		pthread_mutex_lock(&w->mutex);
	}
	hung = w->hung;
	pthread_mutex_unlock(&w->mutex);
	worker_free(w);
	if (hung)
		atomic_fetch_sub(&n_hung, 1);
	return NULL;
}

static int worker_new(struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	pthread_condattr_t monotonic;
	pthread_attr_t detached;
	pthread_t thread;
	int r;

	if (!w)
		return -ENOMEM;
	pthread_mutex_init(&w->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &detached, work, w);
	pthread_attr_destroy(&detached);
	if (r) {
		worker_free(w);
		return -r;
	}
	*ret = w;
	return 0;
}

int foreign_new(struct foreign **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

/* Abandons W, which its thread will free. Called with the mutex held; unlocks it. */
static void leave(struct worker *w)
{
	w->state = LEFT;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->mutex);
}

struct foreign *foreign_free(struct foreign *f)
{
	if (f && f->worker) {
		pthread_mutex_lock(&f->worker->mutex);
		leave(f->worker);
	}
	free(f);
	return NULL;
}

static struct late_root *place_of(struct foreign *f, const char *root, uint64_t *ret_hash)
{
	*ret_hash = hash_bytes(root, strlen(root), 1) | 1;
	return &f->late[*ret_hash >> 32 & (LATE_ROOTS - 1)];
}

static bool may_ask(struct foreign *f, const char *root)
{
	uint64_t hash;
	const struct late_root *late = place_of(f, root, &hash);

	return atomic_load(&n_hung) < FOREIGN_HUNG_MAX &&
	       (late->root != hash || monotonic_ms() >= late->until_ms);
}

/*
 * Waits for W's result and returns it. -EHOSTDOWN: it is late, and W is abandoned. Called with the
 * mutex held; unlocks it.
 */
static int wait_for(struct foreign *f, struct worker *w, struct foreign_call *call)
{
	struct timespec end;
	struct late_root *late;
	uint64_t hash;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += FOREIGN_DEADLINE_MS / 1000;
	while (w->state != DONE && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&w->changed, &w->mutex, &end);
	if (w->state == DONE) {
		call->stat = w->call.stat;
		r = w->result;
		w->state = IDLE;
		pthread_mutex_unlock(&w->mutex);
		return r;
	}
	late = place_of(f, call->root, &hash);
	*late = (struct late_root){hash, monotonic_ms() + FOREIGN_LATE_KEEP_MS};
	atomic_fetch_add(&n_hung, 1);
	w->hung = true;
	f->worker = NULL;
	leave(w);
	return -EHOSTDOWN;
}

int foreign_run(struct foreign *f, struct foreign_call *call)
{
	struct worker *w;
	int r = 0;

	if (!may_ask(f, call->root)) {
		metric_add(M_FOREIGN_FILES_REFUSED, 1);
		return -EHOSTDOWN;
	}
	if (!f->worker)
		r = worker_new(&f->worker);
	if (r < 0)
		return r;
	w = f->worker;
	pthread_mutex_lock(&w->mutex);
	w->call = *call;
	w->state = ASKED;
	pthread_mutex_unlock(&w->mutex);
	pthread_cond_signal(&w->changed);
	pthread_mutex_lock(&w->mutex);
	r = wait_for(f, w, call);
	if (r == -EHOSTDOWN)
		metric_add(M_FOREIGN_FILES_LATE, 1);
	return r;
}

static int run_open(struct foreign_call *call)
{
	_cleanup_close_ int root = root_open(call->root), fd = -1;

	if (root < 0)
		return root;
	fd = root_open_file(root, call->path, call->nofollow);
	if (fd >= 0 && remote_file_is(fd))
		return -EREMOTE;
	return TAKE_FD(fd);
}

int foreign_open(struct foreign *f, const char *root, const char *path, bool nofollow)
{
	struct foreign_call call = {.run = run_open, .nofollow = nofollow};

	if (strlen(root) >= sizeof(call.root) || strlen(path) >= sizeof(call.path))
		return -ENAMETOOLONG;
	strcpy(call.root, root);
	strcpy(call.path, path);
	return foreign_run(f, &call);
}

static int run_stat(struct foreign_call *call)
{
	return stat(call->root, &call->stat) < 0 ? -errno : 0;
}

int foreign_stat_root(struct foreign *f, const char *root, struct stat *ret)
{
	struct foreign_call call = {.run = run_stat};
	int r;

	if (strlen(root) >= sizeof(call.root))
		return -ENAMETOOLONG;
	strcpy(call.root, root);
	r = foreign_run(f, &call);
	if (!r)
		*ret = call.stat;
	return r;
}
