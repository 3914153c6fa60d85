/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stack is looked at once per window, so the cost is one comparison per sample; a stack that
 * lacks a name is looked at again with its next sample in a later drain. The pending list points to
 * stacks of the current window, which no sweep frees; it is empty once the window is closed.
 */
#include "agent/window/runtime_frames.h"

#include "agent/runtime/metrics.h"
#include "lib/metrics.h"

enum { PENDING_MAX = 16384 };

struct pending {
	struct stack *stack;
	uint32_t tgid;
};

struct runtime_frames {
	struct runtimes *runtimes;
	uint32_t budget;
	uint64_t news; /* runtimes_news() when the drain began */
	struct pending *pending;
	size_t n, cap;
	uint32_t round; /* number of the drain; never 0 */
	bool lost;	/* a name could not be read in this round */
};

int runtime_frames_new(struct runtimes *rt, struct runtime_frames **ret)
{
	struct runtime_frames *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->runtimes = rt;
	f->budget = RUNTIME_FRAMES_PER_DRAIN;
	f->round = 1;
	*ret = f;
	return 0;
}

struct runtime_frames *runtime_frames_free(struct runtime_frames *f)
{
	if (!f)
		return NULL;
	free(f->pending);
	free(f);
	return NULL;
}

static bool see(struct runtime_frames *f, struct stack *s, uint32_t tgid, uint32_t window)
{
	bool failed = false;
	bool done =
	    !s->mapset || runtimes_see(f->runtimes, s->mapset, tgid, s->key.words + s->key.n_kernel,
				       s->key.n_user, window, &f->budget, &failed);

	s->runtime_window = window;
	s->runtime_round = failed ? f->round : 0;
	f->lost |= failed;
	return done;
}

static void work(struct runtime_frames *f, uint32_t window)
{
	size_t done = 0;

	while (done < f->n && see(f, f->pending[done].stack, f->pending[done].tgid, window))
		done++;
	f->n -= done;
	if (done && f->n)
		memmove(f->pending, f->pending + done, f->n * sizeof(*f->pending));
}

void runtime_frames_begin(struct runtime_frames *f, uint32_t window)
{
	f->budget = RUNTIME_FRAMES_PER_DRAIN;
	f->news = runtimes_news(f->runtimes);
	f->lost = false;
	if (!++f->round)
		f->round = 1;
	runtime_names_next_round(runtimes_names(f->runtimes));
	if (f->n)
		work(f, window);
}

bool runtime_frames_met_new(const struct runtime_frames *f)
{
	return f->n || runtimes_news(f->runtimes) != f->news;
}

bool runtime_frames_left_names(const struct runtime_frames *f)
{
	return f->n > 0;
}

bool runtime_frames_lost_names(const struct runtime_frames *f)
{
	return f->lost;
}

static void count(const struct stack *s)
{
	for (size_t i = 0; i < STACK_RUNTIMES && s->runtimes[i].id; i++) {
		const struct stack_runtime *of = &s->runtimes[i];

		if (of->frames)
			runtime_metrics_frames(of->id, of->frames);
		if (of->missing)
			runtime_metrics_missing(of->id, of->missing);
	}
}

void runtime_frames_see(struct runtime_frames *f, struct stack *stack, struct mapset *mapset,
			uint32_t tgid, uint32_t window, uint64_t now_ns)
{
	count(stack);
	for (size_t i = 0; mapset && i < STACK_RUNTIMES; i++)
		if (stack->runtimes[i].missing == KILN_MISSING_UNKNOWN)
			runtimes_missed(f->runtimes, mapset, stack->runtimes[i].id, now_ns);
	if (stack->runtime_window == window &&
	    (!stack->runtime_round || stack->runtime_round == f->round))
		return;
	for (size_t i = 0; mapset && i < STACK_RUNTIMES; i++)
		if (stack->runtimes[i].frames)
			runtimes_met(f->runtimes, mapset, stack->runtimes[i].id, now_ns);
	if (see(f, stack, tgid, window))
		return;
	metric_add(M_RUNTIME_NAMES_LATE, 1);
	if (grow_array((void **)&f->pending, &f->cap, f->n + 1, sizeof(*f->pending), PENDING_MAX) <
	    0) {
		metric_add(M_RUNTIME_NAMES_FULL, 1);
		return;
	}
	f->pending[f->n++] = (struct pending){stack, tgid};
}

void runtime_frames_finish(struct runtime_frames *f, uint32_t window)
{
	f->budget = RUNTIME_FRAMES_PER_END;
	work(f, window);
	metric_add(M_RUNTIME_NAMES_FULL, (int64_t)f->n);
	f->n = 0;
}

void runtime_frames_sweep(struct runtime_frames *f, uint32_t before_window)
{
	runtimes_sweep(f->runtimes, before_window);
}
