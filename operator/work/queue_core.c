/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states of a key. No clock and no threads: every function is given the time.
 *
 *   ready    on one of two lists; the low one is used only when the other is empty
 *   at work  taken and not yet done; an add meanwhile sets `again`, and done makes it ready
 *   waiting  in the heap of delays; when its delay ends it is added as by a caller
 *
 * A key is ready or at work or neither, and may be waiting in each case, as in client-go, where the
 * queue and its delays are independent. A key in none of the three states is freed. A key that has
 * failed is always waiting, so its count of failures lives as long as needed.
 *
 * Each retry takes a token from a bucket that may go into debt: the debt is the wait. Delays and
 * bucket: client-go v0.34 util/workqueue/default_rate_limiters.go.
 */
#include "operator/work/queue_core.h"

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element)                                                               \
	do {                                                                                       \
		(void)(element);                                                                   \
	} while (0)
#include <utlist.h>

#include "lib/uthash.h"

#define NS_PER_S  1000000000ULL
#define NS_PER_MS 1000000ULL

enum {
	FAILURE_MS = 5,
	FAILURE_MAX_S = 1000,
	FAILURES_MAX = 20, /* 5 ms * 2^18 is above 1000 s: more need not be counted */
	BUCKET_PER_S = 10,
	BUCKET_BURST = 100,
};
#define JITTER	    0.1
#define NOT_IN_HEAP SIZE_MAX

struct work_key {
	UT_hash_handle hh;
	struct work_key *prev, *next; /* ready lists, or at work */
	uint64_t ready_at_ns, ready_seq;
	size_t heap_at;
	uint64_t added_ns, started_ns;
	unsigned int failures;
	bool ready, at_work;
	bool low;   /* its priority while ready or at work */
	bool again; /* added while at work */
	bool again_low;
	bool waiting_low;
	char name[];
};

struct work_core {
	struct work_core_options options;
	struct work_key *keys;
	struct work_key *high, *lows, *working;
	struct work_key **heap; /* a binary heap by (ready_at_ns, ready_seq) */
	size_t n_heap, cap_heap;
	uint64_t seq;
	double tokens;
	uint64_t tokens_at_ns;
	bool paused;
	struct work_queue_stats stats;
};

int work_core_new(const struct work_core_options *options, struct work_core **ret)
{
	struct work_core *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->options = *options;
	c->options.workers = MAX(c->options.workers, 1);
	c->tokens = BUCKET_BURST;
	*ret = c;
	return 0;
}

struct work_core *work_core_free(struct work_core *c)
{
	struct work_key *key, *next;

	if (!c)
		return NULL;
	HASH_ITER (hh, c->keys, key, next) {
		HASH_DEL(c->keys, key);
		free(key);
	}
	free(c->heap);
	free(c);
	return NULL;
}

/* ---- the heap of delays ---------------------------------------------------------------------- */

static bool earlier(const struct work_key *a, const struct work_key *b)
{
	return a->ready_at_ns != b->ready_at_ns ? a->ready_at_ns < b->ready_at_ns
						: a->ready_seq < b->ready_seq;
}

static void heap_set(struct work_core *c, size_t at, struct work_key *key)
{
	c->heap[at] = key;
	key->heap_at = at;
}

static void heap_up(struct work_core *c, size_t at)
{
	struct work_key *key = c->heap[at];

	for (; at > 0 && earlier(key, c->heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap_set(c, at, c->heap[(at - 1) / 2]);
	heap_set(c, at, key);
}

static void heap_down(struct work_core *c, size_t at)
{
	struct work_key *key = c->heap[at];
	size_t child;

	for (; (child = 2 * at + 1) < c->n_heap; at = child) {
		if (child + 1 < c->n_heap && earlier(c->heap[child + 1], c->heap[child]))
			child++;
		if (!earlier(c->heap[child], key))
			break;
		heap_set(c, at, c->heap[child]);
	}
	heap_set(c, at, key);
}

static int heap_push(struct work_core *c, struct work_key *key)
{
	int r = grow_array((void **)&c->heap, &c->cap_heap, c->n_heap + 1, sizeof(*c->heap),
			   c->options.max_keys);

	if (r < 0)
		return r;
	heap_set(c, c->n_heap++, key);
	heap_up(c, key->heap_at);
	return 0;
}

static struct work_key *heap_pop(struct work_core *c)
{
	struct work_key *key = c->heap[0];

	c->n_heap--;
	if (c->n_heap > 0) {
		heap_set(c, 0, c->heap[c->n_heap]);
		heap_down(c, 0);
	}
	key->heap_at = NOT_IN_HEAP;
	return key;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static struct work_key *find(const struct work_core *c, const char *name)
{
	struct work_key *key;

	HASH_FIND_STR(c->keys, name, key);
	return key;
}

static int find_or_make(struct work_core *c, const char *name, struct work_key **ret)
{
	size_t len = strnlen(name, WORK_KEY_MAX);
	struct work_key *key = find(c, name);

	if (key) {
		*ret = key;
		return 0;
	}
	if (len >= WORK_KEY_MAX)
		return -ENAMETOOLONG;
	if (HASH_COUNT(c->keys) >= c->options.max_keys)
		return -ENOBUFS;
	key = calloc(1, sizeof(*key) + len + 1);
	if (!key)
		return -ENOMEM;
	memcpy(key->name, name, len);
	key->heap_at = NOT_IN_HEAP;
	HASH_ADD_KEYPTR(hh, c->keys, key->name, len, key);
	if (!key->hh.tbl) {
		free(key);
		return -ENOMEM;
	}
	*ret = key;
	return 0;
}

static void forget_when_idle(struct work_core *c, struct work_key *key)
{
	if (key->ready || key->at_work || key->heap_at != NOT_IN_HEAP)
		return;
	HASH_DEL(c->keys, key);
	free(key);
}

static void push_ready(struct work_core *c, struct work_key *key, bool low)
{
	key->ready = true;
	key->low = low;
	if (low)
		DL_APPEND(c->lows, key);
	else
		DL_APPEND(c->high, key);
	c->stats.depth++;
}

static void add_key(struct work_core *c, struct work_key *key, bool low, uint64_t now_ns)
{
	if (key->at_work) {
		if (!key->again) {
			key->added_ns = now_ns;
			key->again_low = low;
			c->stats.adds++;
		}
		key->again = true;
		key->again_low &= low;
	} else if (!key->ready) {
		key->added_ns = now_ns;
		c->stats.adds++;
		push_ready(c, key, low);
	} else if (key->low && !low) {
		/* A key with a change does not wait behind the keys of low priority. */
		DL_DELETE(c->lows, key);
		c->stats.depth--;
		push_ready(c, key, false);
	}
}

int work_core_add(struct work_core *c, const char *name, bool low, uint64_t now_ns)
{
	struct work_key *key;
	int r = find_or_make(c, name, &key);

	if (r < 0) {
		c->stats.dropped++;
		return r;
	}
	add_key(c, key, low, now_ns);
	return 0;
}

/* Of two delays of one key the shorter one holds. */
static int wait_until(struct work_core *c, struct work_key *key, bool low, uint64_t at_ns)
{
	if (key->heap_at == NOT_IN_HEAP) {
		key->ready_at_ns = at_ns;
		key->ready_seq = c->seq++;
		key->waiting_low = low;
		return heap_push(c, key);
	}
	key->waiting_low &= low;
	if (at_ns < key->ready_at_ns) {
		key->ready_at_ns = at_ns;
		key->ready_seq = c->seq++;
		heap_up(c, key->heap_at);
	}
	return 0;
}

static uint64_t later(uint64_t now_ns, uint64_t delay_ns)
{
	return delay_ns < WORK_NEVER - 1 - now_ns ? now_ns + delay_ns : WORK_NEVER - 1;
}

int work_core_add_after(struct work_core *c, const char *name, uint64_t delay_ns, uint64_t now_ns)
{
	struct work_key *key;
	int r;

	if (delay_ns == 0)
		return work_core_add(c, name, false, now_ns);
	r = find_or_make(c, name, &key);
	if (r >= 0) {
		r = wait_until(c, key, false, later(now_ns, delay_ns));
		if (r < 0)
			forget_when_idle(c, key);
	}
	if (r < 0)
		c->stats.dropped++;
	return r;
}

/* ---- work ------------------------------------------------------------------------------------ */

static void wake_waiting(struct work_core *c, uint64_t now_ns)
{
	struct work_key *key;

	while (c->n_heap > 0 && c->heap[0]->ready_at_ns <= now_ns) {
		key = heap_pop(c);
		add_key(c, key, key->waiting_low, key->ready_at_ns);
	}
}

static void observe(struct work_histogram *h, uint64_t ns)
{
	uint64_t bound = WORK_BUCKET_FIRST_NS;
	size_t i = 0;

	for (; i < WORK_BUCKETS && ns > bound; i++)
		bound *= 10;
	h->counts[i]++;
	h->sum_s += (double)ns / (double)NS_PER_S;
}

const char *work_core_take(struct work_core *c, uint64_t now_ns)
{
	struct work_key *key;

	wake_waiting(c, now_ns);
	if (c->paused || c->stats.at_work >= c->options.workers)
		return NULL;
	key = c->high ? c->high : c->lows;
	if (!key)
		return NULL;
	if (key->low)
		DL_DELETE(c->lows, key);
	else
		DL_DELETE(c->high, key);
	c->stats.depth--;
	key->ready = false;
	key->at_work = true;
	key->started_ns = now_ns;
	observe(&c->stats.queue_duration, now_ns - key->added_ns);
	DL_APPEND(c->working, key);
	c->stats.at_work++;
	return key->name;
}

static uint64_t failure_delay_ns(const struct work_core *c, unsigned int failures)
{
	uint64_t ns = MIN((FAILURE_MS * NS_PER_MS) << failures, FAILURE_MAX_S * NS_PER_S);

	if (c->options.random)
		ns += (uint64_t)((double)ns * JITTER * c->options.random());
	return ns;
}

static uint64_t bucket_delay_ns(struct work_core *c, uint64_t now_ns)
{
	double seconds = (double)(now_ns - c->tokens_at_ns) / (double)NS_PER_S;

	c->tokens = MIN(c->tokens + seconds * BUCKET_PER_S, BUCKET_BURST) - 1.0;
	c->tokens_at_ns = now_ns;
	return c->tokens >= 0 ? 0 : (uint64_t)(-c->tokens / BUCKET_PER_S * (double)NS_PER_S);
}

static void retry(struct work_core *c, struct work_key *key, uint64_t now_ns)
{
	uint64_t delay = failure_delay_ns(c, key->failures), turn = bucket_delay_ns(c, now_ns);

	key->failures = MIN(key->failures + 1, FAILURES_MAX);
	c->stats.retries++;
	delay = MAX(delay, turn);
	/* Without memory for the delay the key is ready again at once: it must not be lost. */
	if (wait_until(c, key, key->low, later(now_ns, delay)) < 0) {
		key->again_low = key->low && (!key->again || key->again_low);
		key->again = true;
	}
}

int work_core_done(struct work_core *c, const char *name, int result, uint64_t now_ns)
{
	struct work_key *key = find(c, name);
	bool again;

	if (!key || !key->at_work)
		return -ENOENT;
	observe(&c->stats.work_duration, now_ns - key->started_ns);
	DL_DELETE(c->working, key);
	c->stats.at_work--;
	key->at_work = false;
	if (result < 0)
		retry(c, key, now_ns);
	else
		key->failures = 0;
	again = key->again;
	key->again = false;
	if (again)
		push_ready(c, key, key->again_low);
	else
		forget_when_idle(c, key);
	return 0;
}

void work_core_pause(struct work_core *c, bool paused)
{
	c->paused = paused;
}

uint64_t work_core_next_ns(const struct work_core *c, uint64_t now_ns)
{
	if (c->paused || c->stats.at_work >= c->options.workers)
		return WORK_NEVER; /* delays that end meanwhile are seen with the next take */
	if (c->high || c->lows)
		return now_ns;
	return c->n_heap > 0 ? c->heap[0]->ready_at_ns : WORK_NEVER;
}

void work_core_read_stats(const struct work_core *c, uint64_t now_ns, struct work_queue_stats *ret)
{
	struct work_queue_stats stats = c->stats;
	const struct work_key *key;
	double seconds;

	DL_FOREACH (c->working, key) {
		seconds = (double)(now_ns - key->started_ns) / (double)NS_PER_S;
		stats.unfinished_s += seconds;
		stats.longest_running_s = MAX(stats.longest_running_s, seconds);
	}
	stats.waiting = c->n_heap;
	*ret = stats;
}
