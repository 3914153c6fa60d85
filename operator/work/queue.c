/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue on its loop: one timer, set to the time at which the core has the next key, and stopped
 * while it has none. Work is started from that timer only, so that it never runs inside a call of a
 * caller that adds keys. Loop thread throughout.
 */
#include "operator/work/queue.h"

#include "operator/work/queue_core.h"

#define NS_PER_MS 1000000ULL

/* Keys a turn: work that ends at once must not keep the loop from its sockets. */
enum { STARTS_A_TURN = 64 };

struct work_queue {
	uv_timer_t timer;
	struct work_core *core;
	char *name;
	void (*work)(void *arg, const char *key);
	void *arg;
	bool starting, closing;
};

static void set_timer(struct work_queue *q, uint64_t floor_ms);

static void on_timer(uv_timer_t *timer)
{
	struct work_queue *q = timer->data;
	const char *key = NULL;
	int i;

	q->starting = true;
	for (i = 0; i < STARTS_A_TURN && !q->closing; i++) {
		key = work_core_take(q->core, uv_hrtime());
		if (!key)
			break;
		q->work(q->arg, key);
	}
	q->starting = false;
	if (!q->closing)
		set_timer(q, 1);
}

/* libuv 1.44 runs a timer of 0 ms again in the same turn, so the timer's own callback asks for 1 */
static void set_timer(struct work_queue *q, uint64_t floor_ms)
{
	uint64_t now = uv_hrtime(), next = work_core_next_ns(q->core, now), ms;

	if (q->starting)
		return;
	if (next == WORK_NEVER) {
		uv_timer_stop(&q->timer);
		return;
	}
	ms = next > now ? (next - now + NS_PER_MS - 1) / NS_PER_MS : 0;
	if (ms > 0) /* uv_now() stands still during callbacks */
		ms += now / NS_PER_MS - MIN(uv_now(q->timer.loop), now / NS_PER_MS);
	uv_timer_start(&q->timer, on_timer, MAX(ms, floor_ms), 0);
}

int work_queue_new(uv_loop_t *loop, const struct work_queue_options *options,
		   struct work_queue **ret)
{
	const struct work_core_options core = {
	    .workers = options->workers, .max_keys = options->max_keys, .random = options->random};
	_cleanup_free_ char *name = strdup(options->name);
	_cleanup_free_ struct work_queue *q = calloc(1, sizeof(*q));
	int r;

	if (!q || !name)
		return -ENOMEM;
	r = work_core_new(&core, &q->core);
	if (r < 0)
		return r;
	q->name = TAKE_PTR(name);
	q->work = options->work;
	q->arg = options->arg;
	(void)uv_timer_init(loop, &q->timer);
	q->timer.data = q;
	*ret = TAKE_PTR(q);
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct work_queue *q = handle->data;

	work_core_free(q->core);
	free(q->name);
	free(q);
}

struct work_queue *work_queue_free(struct work_queue *q)
{
	if (!q)
		return NULL;
	q->closing = true;
	uv_close((uv_handle_t *)&q->timer, on_closed);
	return NULL;
}

const char *work_queue_name(const struct work_queue *q)
{
	return q->name;
}

int work_queue_add(struct work_queue *q, const char *key)
{
	int r = work_core_add(q->core, key, false, uv_hrtime());

	set_timer(q, 0);
	return r;
}

int work_queue_add_low(struct work_queue *q, const char *key)
{
	int r = work_core_add(q->core, key, true, uv_hrtime());

	set_timer(q, 0);
	return r;
}

int work_queue_add_after(struct work_queue *q, const char *key, uint64_t delay_ms)
{
	uint64_t ns = delay_ms < UINT64_MAX / NS_PER_MS ? delay_ms * NS_PER_MS : UINT64_MAX;
	int r = work_core_add_after(q->core, key, ns, uv_hrtime());

	set_timer(q, 0);
	return r;
}

void work_queue_done(struct work_queue *q, const char *key, int result)
{
	(void)work_core_done(q->core, key, result, uv_hrtime());
	set_timer(q, 0);
}

void work_queue_pause(struct work_queue *q, bool paused)
{
	work_core_pause(q->core, paused);
	set_timer(q, 0);
}

void work_queue_read_stats(struct work_queue *q, struct work_queue_stats *ret)
{
	work_core_read_stats(q->core, uv_hrtime(), ret);
}
