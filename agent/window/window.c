/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes are kept over windows, so a busy machine in steady state allocates nothing here. */
#include "agent/window/window.h"

#include <stdatomic.h>

#include "lib/metrics.h"

static uint64_t next_round(void)
{
	static atomic_uint_fast64_t last;

	return atomic_fetch_add(&last, 1) + 1;
}

void window_init(struct window *w)
{
	*w = (struct window){.round = next_round(), .max = WINDOW_COUNTS_MAX};
}

void window_limit(struct window *w, size_t counts)
{
	w->max = counts;
}

static void free_list(struct count *c)
{
	while (c) {
		struct count *next = c->next;

		free(c->times);
		free(c->thread_name);
		label_set_unref(c->labels);
		free(c);
		c = next;
	}
}

static void forget_identities(struct window *w)
{
	for (size_t i = 0; i < w->n_identities; i++)
		pod_entry_unref(w->identities[i].pod);
	w->n_identities = 0;
}

void window_done(struct window *w)
{
	HASH_CLEAR(hh, w->counts);
	free_list(w->list);
	free_list(w->spare);
	shares_done(&w->shares);
	forget_identities(w);
	free(w->identities);
	free(w->probes);
	*w = (struct window){};
}

/* Keeps the memory of C for a later count. */
static void keep_spare(struct window *w, struct count *c)
{
	free(TAKE_PTR(c->times));
	free(TAKE_PTR(c->thread_name));
	c->labels = label_set_unref(c->labels);
	c->cap_times = 0;
	c->next = w->spare;
	w->spare = c;
}

void window_reset(struct window *w, uint32_t number, uint64_t start_unix_ns)
{
	size_t kept = 0;

	HASH_CLEAR(hh, w->counts);
	shares_reset(&w->shares);
	forget_identities(w);
	/* Frees entries that were not used in this window, so that one unusual window does not keep
	 * its memory forever. */
	free_list(w->spare);
	w->spare = NULL;
	while (w->list) {
		struct count *c = w->list;

		w->list = c->next;
		keep_spare(w, c);
		kept++;
	}
	w->n = w->n_times = 0;
	w->number = number;
	w->round = next_round();
	w->start_unix_ns = start_unix_ns;
}

/* Appends TIME_UNIX_NS to the times of C, once for each of the N samples, for which W has room. */
static int add_times(struct window *w, struct count *c, uint64_t time_unix_ns, uint64_t n)
{
	int r;

	r = grow_array((void **)&c->times, &c->cap_times, (size_t)c->samples + n, sizeof(*c->times),
		       WINDOW_TIMES_MAX);
	if (r < 0)
		return r;
	for (uint64_t i = 0; i < n; i++)
		c->times[(size_t)c->samples + i] = time_unix_ns;
	w->n_times += n;
	return 0;
}

/* Adds an entry for KEY, in memory of a spare entry if there is one. */
static int add_count(struct window *w, const struct count_key *key, struct count **ret)
{
	struct count *c = w->spare;

	if (w->n >= w->max)
		return -ENOSPC;
	if (c)
		w->spare = c->next;
	else
		c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->key = *key;
	c->samples = 0;
	c->value = c->settled = 0;
	c->waits = 0;
	c->route = 0;
	c->thread_name = NULL;
	c->labels = NULL;
	c->share = shares_add(&w->shares, process_owner(key->process));
	c->next = w->list;
	w->list = c;
	w->n++;
	HASH_ADD(hh, w->counts, key, sizeof(c->key), c);
	*ret = c;
	return 0;
}

/* Forgets C, which add_count() has just made. */
static void forget_new(struct window *w, struct count *c)
{
	w->list = c->next;
	HASH_DEL(w->counts, c);
	shares_subtract(&w->shares, TAKE_PTR(c->share));
	w->n--;
	keep_spare(w, c);
}

/* Most samples of a stack are of the same thread as its last one: no lookup is needed then. */
static struct count *find_count(struct window *w, const struct count_key *key)
{
	const struct stack *stack = key->stack;
	struct count *c = stack->counted_round == w->round ? stack->counted : NULL;

	if (c && !memcmp(&c->key, key, sizeof(*key)))
		return c;
	HASH_FIND(hh, w->counts, key, sizeof(*key), c);
	return c;
}

/* What is left out of a sample; each includes the ones before it. */
enum shed { SHED_NOTHING, SHED_THREAD, SHED_ALL };

/* What a sample of OWNER loses if it needs a new entry. */
static enum shed shed_of(const struct window *w, uint64_t owner)
{
	size_t full = w->n * 16 / w->max;
	bool over;

	if (full < 12)
		return SHED_NOTHING;
	if (full >= 15)
		return SHED_ALL;
	over = shares_is_over(&w->shares, owner, w->max);
	if (full >= 14)
		return over ? SHED_ALL : SHED_THREAD;
	return over ? SHED_THREAD : SHED_NOTHING;
}

static void shed(struct count_key *key, enum shed what, struct stack *bare)
{
	if (what >= SHED_THREAD) {
		key->labels = 0;
		if (key->origin != KILN_ORIGIN_OFF_CPU) {
			key->tid = 0;
			memset(key->comm, 0, sizeof(key->comm));
		}
	}
	if (what == SHED_ALL && bare)
		key->stack = bare;
}

static void count_shed(const struct count *c, const struct window_sample *s)
{
	if (s->timed && !c->key.timed)
		metric_add(M_COUNTS_WITHOUT_TIME, 1);
	if (c->key.stack != s->stack)
		metric_add(M_COUNTS_BARE, 1);
	else if (c->key.tid != s->tid || (s->labels && !c->key.labels))
		metric_add(M_COUNTS_WITHOUT_THREAD, 1);
}

/*
 * The entry for a sample of KEY; or, if it has none and the window fills up, the one with the most
 * detail that there is or may be.
 */
static int get_count(struct window *w, const struct count_key *key, struct stack *bare,
		     struct count **ret)
{
	struct count_key less = *key;
	enum shed most;

	*ret = find_count(w, key);
	if (*ret)
		return 0;
	most = shed_of(w, process_owner(key->process));
	for (int what = SHED_THREAD; what <= (int)most; what++) {
		shed(&less, (enum shed)what, bare);
		*ret = find_count(w, &less);
		if (*ret)
			return 0;
	}
	return add_count(w, &less, ret);
}

static struct count_key key_of(const struct window_sample *s)
{
	struct count_key key;

	memset(&key, 0, sizeof(key));
	key.stack = s->stack;
	key.process = s->process;
	key.period = s->period;
	key.labels = s->labels ? s->labels->number : 0;
	key.tid = s->tid;
	key.policy = s->policy;
	key.origin = s->origin;
	key.detail = s->detail;
	/* The rest of key.comm stays zero: bytes after the NUL would make equal names differ. */
	memcpy(key.comm, s->comm, strnlen(s->comm, sizeof(key.comm) - 1));
	return key;
}

int window_add(struct window *w, const struct window_sample *s)
{
	uint64_t n = window_sample_count(s);
	struct count_key key = key_of(s);
	struct count *c;
	int r;

	if (!n || n > INT64_MAX)
		return -EBADMSG;
	key.timed = s->timed && n <= WINDOW_TIMES_MAX - w->n_times;
	r = get_count(w, &key, s->bare, &c);
	if (key.timed && (r < 0 || add_times(w, c, s->time_unix_ns, n) < 0)) {
		/* An entry without times may exist, or gets the memory of this one. */
		if (!r && !c->samples)
			forget_new(w, c);
		key.timed = 0;
		r = get_count(w, &key, s->bare, &c);
	}
	if (r < 0)
		return r;
	c->key.stack->counted_round = w->round;
	c->key.stack->counted = c;
	if (c->key.labels && !c->labels)
		c->labels = label_set_ref(s->labels);
	/* Without memory the kernel's name is used. */
	if (s->thread_name && !c->thread_name && c->key.tid == s->tid)
		c->thread_name = strdup(s->thread_name);
	count_shed(c, s);
	if (__builtin_add_overflow(c->samples, (int64_t)n, &c->samples))
		c->samples = INT64_MAX;
	if (__builtin_add_overflow(c->value, s->value, &c->value))
		c->value = UINT64_MAX;
	return 0;
}

void window_sort(struct window *w, struct window *next,
		 enum window_fate (*fate)(struct count *c, void *arg), void *arg)
{
	struct count **at = &w->list, *c;

	while ((c = *at)) {
		enum window_fate f = fate(c, arg);
		size_t times = c->times ? (size_t)c->samples : 0;

		if (f == WINDOW_KEEP) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		c->key.stack->counted = NULL;
		HASH_DEL(w->counts, c);
		shares_subtract(&w->shares, TAKE_PTR(c->share));
		w->n--;
		w->n_times -= times;
		if (f == WINDOW_DROP) {
			keep_spare(w, c);
			continue;
		}
		c->settled = c->value;
		c->waits += c->waits < UINT8_MAX;
		/* Used in NEXT: the sweep between the two windows must leave them. */
		c->key.stack->last_window = c->key.process->last_window = next->number;
		c->share = shares_add(&next->shares, process_owner(c->key.process));
		c->next = next->list;
		next->list = c;
		next->n++;
		next->n_times += times;
		HASH_ADD(hh, next->counts, key, sizeof(c->key), c);
	}
}

uint32_t window_add_identity(struct window *w, const struct identity *who)
{
	size_t want = MAX(w->n_identities, 1) + 1;

	if (grow_array((void **)&w->identities, &w->cap_identities, want, sizeof(*who),
		       PROCESS_TABLE_MAX + 1) < 0)
		return 0;
	if (!w->n_identities)
		w->identities[w->n_identities++] = (struct identity){};
	w->identities[w->n_identities] = *who;
	if (who->pod)
		pod_entry_ref(who->pod);
	return (uint32_t)w->n_identities++;
}
