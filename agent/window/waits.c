/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread has one wait at a time, so waits are found by thread. A sample may arrive here late,
 * because it had to wait for a table: the end of a wait whose sample is not here yet is kept for
 * two windows.
 */
#include "agent/window/waits.h"

struct wait {
	uint32_t tid;
	uint64_t began, counted_until;
	bool long_lived;     /* it lasted over the end of a window */
	unsigned int missed; /* windows at whose end the thread was no longer in this wait */
	struct window_sample sample;
	char comm[KILN_COMM_LEN];
	UT_hash_handle hh;
};

/* The end of a wait whose sample is not here yet. */
struct early {
	struct {
		uint64_t tid, began;
	} key;
	uint64_t ns;
	unsigned int windows; /* windows that have ended since */
	UT_hash_handle hh;
};

struct waits {
	struct wait *waiting;
	struct early *early;
};

int waits_new(struct waits **ret)
{
	struct waits *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*ret = w;
	return 0;
}

static void forget(struct waits *w, struct wait *x)
{
	HASH_DEL(w->waiting, x);
	free((char *)x->sample.thread_name);
	label_set_unref(x->sample.labels);
	free(x);
}

static void forget_early(struct waits *w, struct early *e)
{
	HASH_DEL(w->early, e);
	free(e);
}

struct waits *waits_free(struct waits *w)
{
	struct wait *x, *next;
	struct early *e, *next_early;

	if (!w)
		return NULL;
	HASH_ITER (hh, w->waiting, x, next)
		forget(w, x);
	HASH_ITER (hh, w->early, e, next_early)
		forget_early(w, e);
	free(w);
	return NULL;
}

uint64_t waits_weigh(uint64_t ns, uint64_t chance)
{
	unsigned __int128 value = (unsigned __int128)ns * KILN_OFF_CPU_CERTAIN;

	if (!chance)
		return 0;
	value = (value + chance / 2) / chance;
	return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

/* Counts NS of the wait of S, scaled by the CHANCE that it was walked. */
static int count_as(const struct window_sample *s, uint64_t ns, uint64_t chance,
		    struct window *window)
{
	struct window_sample counted = *s;

	counted.value = MIN(waits_weigh(ns, chance), (uint64_t)INT64_MAX);
	return counted.value ? window_add(window, &counted) : 0;
}

/*
 * A wait that lasts over the end of a window is the thread's only one at that time, so it is
 * counted as measured, not scaled up for other waits.
 */
static int count(const struct wait *x, uint64_t ns, struct window *window)
{
	return count_as(&x->sample, ns, x->long_lived ? KILN_OFF_CPU_CERTAIN : x->sample.value,
			window);
}

int waits_begin(struct waits *w, const struct window_sample *s, uint64_t began,
		struct window *window)
{
	struct early *e, find = {.key = {s->tid, began}};
	struct wait *x;
	int r;

	HASH_FIND(hh, w->early, &find.key, sizeof(find.key), e);
	if (e) {
		r = count_as(s, e->ns, s->value, window);
		forget_early(w, e);
		return r;
	}
	HASH_FIND(hh, w->waiting, &s->tid, sizeof(s->tid), x);
	if (x) {
		/* This wait is an older one whose sample came late and whose end was lost. */
		if (x->began > began)
			return 0;
		forget(w, x);
	}
	if (HASH_COUNT(w->waiting) >= WAITS_MAX)
		return -ENOSPC;
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->tid = s->tid;
	x->began = x->counted_until = began;
	x->sample = *s;
	memcpy(x->comm, s->comm, strnlen(s->comm, sizeof(x->comm) - 1));
	x->sample.comm = x->comm;
	x->sample.thread_name = s->thread_name ? strdup(s->thread_name) : NULL;
	x->sample.labels = label_set_ref(s->labels);
	HASH_ADD(hh, w->waiting, tid, sizeof(x->tid), x);
	return 0;
}

static int keep_early(struct waits *w, const struct kiln_wait_end *end)
{
	struct early *e;

	if (HASH_COUNT(w->early) >= WAITS_MAX)
		return -ENOSPC;
	e = calloc(1, sizeof(*e));
	if (!e)
		return -ENOMEM;
	e->key.tid = end->tid;
	e->key.began = end->began;
	e->ns = end->ns;
	HASH_ADD(hh, w->early, key, sizeof(e->key), e);
	return 0;
}

int waits_end(struct waits *w, const struct kiln_wait_end *end, struct window *window)
{
	uint64_t until = end->began + end->ns;
	struct wait *x;
	int r;

	HASH_FIND(hh, w->waiting, &end->tid, sizeof(end->tid), x);
	if (!x || x->began != end->began)
		return keep_early(w, end);
	r = until > x->counted_until ? count(x, until - x->counted_until, window) : 0;
	forget(w, x);
	return r;
}

int waits_credit(struct waits *w, uint64_t now, struct window *window,
		 bool (*waits)(void *arg, uint32_t tid, uint64_t began), void *arg)
{
	struct early *e, *next_early;
	struct wait *x, *next;
	int r = 0, result = 0;

	HASH_ITER (hh, w->waiting, x, next) {
		/* Its end may still be in the ring, so it is forgotten the second time. */
		if (!waits(arg, x->tid, x->began) && x->missed++) {
			forget(w, x);
			continue;
		}
		x->sample.stack->last_window = x->sample.process->last_window = window->number;
		if (x->missed || now <= x->counted_until)
			continue;
		x->long_lived = true;
		r = count(x, now - x->counted_until, window);
		x->counted_until = now;
		result = result ? result : r;
	}
	HASH_ITER (hh, w->early, e, next_early)
		if (e->windows++)
			forget_early(w, e);
	return result;
}

#define ESTIMATE_MAX (UINT64_MAX / 4)

struct total {
	uint32_t tid;
	uint64_t estimate, exact;
	UT_hash_handle hh;
};

static struct total *find_total(struct total *all, const struct count *c)
{
	struct total *t = NULL;

	if (c->key.origin == KILN_ORIGIN_OFF_CPU)
		HASH_FIND(hh, all, &c->key.tid, sizeof(c->key.tid), t);
	return t;
}

/* The totals of the threads of W that waited. Without memory some are left out: their values stay
 * estimates. */
static struct total *sum_totals(const struct window *w)
{
	struct total *all = NULL, *t;

	for (const struct count *c = w->list; c; c = c->next) {
		if (c->key.origin != KILN_ORIGIN_OFF_CPU || c->value == c->settled)
			continue;
		t = find_total(all, c);
		if (!t) {
			t = calloc(1, sizeof(*t));
			if (!t)
				continue;
			t->tid = c->key.tid;
			HASH_ADD(hh, all, tid, sizeof(t->tid), t);
		}
		t->estimate =
		    MIN(t->estimate + MIN(c->value - c->settled, ESTIMATE_MAX), ESTIMATE_MAX);
	}
	return all;
}

/* The value that T's sum is corrected to. */
static uint64_t calibrated(const struct total *t, uint64_t now, const struct waits_truth *truth)
{
	bool ended = false;
	int64_t due;

	if (!truth->due(truth->arg, t->tid, now, &due, &ended))
		return t->estimate;
	due = MAX(due, 0);
	if (ended)
		return (uint64_t)due;
	return MIN(MAX((uint64_t)due, t->estimate / 2), t->estimate * 2);
}

void waits_calibrate(struct window *window, uint64_t now, const struct waits_truth *truth)
{
	struct total *all = sum_totals(window), *t, *next;

	HASH_ITER (hh, all, t, next)
		t->exact = calibrated(t, now, truth);
	for (struct count *c = window->list; all && c; c = c->next) {
		t = find_total(all, c);
		if (t && t->estimate)
			c->value =
			    c->settled + (uint64_t)((unsigned __int128)(c->value - c->settled) *
						    t->exact / t->estimate);
	}
	HASH_ITER (hh, all, t, next) {
		truth->told(truth->arg, t->tid, t->exact);
		HASH_DEL(all, t);
		free(t);
	}
}

size_t waits_count(const struct waits *w)
{
	return HASH_COUNT(w->waiting);
}
