/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct window: what was sampled since the last report: how often each stack was seen on each
 * thread under each policy. Filled by the loop thread, then read by the naming worker, then reset.
 *
 * Each entry is charged to an owner, a cgroup. A sample that has an entry is always counted there.
 * From three quarters full on, a sample that would need a new one is counted with less detail, and
 * by that with others in one entry, so that a full window costs detail and seldom a sample:
 *
 *   entries in use     owner has more than an even part   any other owner
 *   less than 12/16    full detail                        full detail
 *   12/16 to 14/16     without labels and thread          full detail
 *   14/16 to 15/16     also without its stack             without labels and thread
 *   the last 16th      also without its stack             also without its stack
 *
 * Off-CPU samples keep their thread always: waits_calibrate() needs it. Where there is no room for
 * the time of a sample, it is counted without it.
 */
#pragma once

#include "agent/labels/sets.h"
#include "agent/policy/policy.h"
#include "agent/process/process_table.h"
#include "agent/window/shares.h"
#include "agent/window/stack_table.h"
#include "lib/probe_spec.h"
#include "lib/uthash.h"

enum { WINDOW_COUNTS_MAX = 262144, WINDOW_TIMES_MAX = 1 << 20 };

/* The names of probes, by the `detail` of their samples. */
struct window_probes {
	char names[KILN_MAX_PROBES][PROBE_TEXT_MAX + 1];
};

/* One sample as it is counted. Units of value and period: struct kiln_sample in bpf/types.h. */
struct window_sample {
	struct stack *stack;
	struct stack *bare; /* stack_table_bare(); NULL: samples are always counted with a stack */
	struct process *process;
	uint32_t tid, policy;
	bool timed; /* its time is kept, if there is room; the same for all samples of a policy */
	enum kiln_origin origin;
	uint8_t detail;		 /* of the origin: see struct kiln_sample */
	const char *comm;	 /* KILN_COMM_LEN bytes at most */
	const char *thread_name; /* the full name; NULL: it is COMM, or not known */
	uint64_t value, period, time_unix_ns;
	struct label_set *labels; /* the labels that its policy allows; NULL: none */
};

/* Samples with equal keys are counted together; so all of an entry have the same period. */
struct count_key {
	struct stack *stack;
	struct process *process;
	uint64_t period, labels; /* number of the set; 0: none */
	uint32_t tid, policy;	 /* tid 0: the thread was left out, and so was its name */
	uint32_t origin;
	uint16_t detail;
	uint16_t timed; /* 1: it has `times` */
	char comm[KILN_COMM_LEN];
};
/* Keys are compared as bytes, so there is no padding. */
_Static_assert(sizeof(struct count_key) == 48 + KILN_COMM_LEN, "struct count_key");

struct count {
	struct count_key key;
	int64_t samples;  /* number of samples: of periods, if the origin has one */
	uint64_t value;	  /* sum of the samples' values */
	uint64_t settled; /* off-CPU: the part of `value` that an earlier window has calibrated */
	uint8_t waits;	/* windows that it has waited for the metadata or policy of its container */
	uint64_t route; /* receivers, as bits; 0: the window's default route */
	struct label_set *labels; /* a reference; NULL: none */
	struct share *share;	  /* of its owner; NULL: it is not charged */
	char *thread_name;	  /* NULL: key.comm */
	uint64_t *times;	  /* UNIX ns of each sample; NULL: not wanted, or no room */
	size_t cap_times;
	struct count *next; /* of the window's list */
	UT_hash_handle hh;
};

struct window {
	uint32_t number;
	uint64_t round; /* unique; changes when the window is reset */
	uint64_t start_unix_ns;
	struct count *counts;	    /* hash */
	struct count *list, *spare; /* used nodes, and nodes kept for reuse */
	size_t n, n_times, max;	    /* max: of `n` */
	struct shares shares;
	uint64_t default_route; /* of counts that no policy routes; kept by window_reset() */
	/* Indexed by process.identity; holds references. [0]: not known. */
	struct identity *identities;
	size_t n_identities, cap_identities;
	struct window_probes *probes; /* NULL: the node has none */
};

static inline uint64_t window_route(const struct window *w, const struct count *c)
{
	return c->route ? c->route : w->default_route;
}

void window_init(struct window *w);
/* Replaces the limit WINDOW_COUNTS_MAX. */
void window_limit(struct window *w, size_t counts);
void window_done(struct window *w);
/* Empties it for the next use; keeps its memory. */
void window_reset(struct window *w, uint32_t number, uint64_t start_unix_ns);
enum window_fate { WINDOW_KEEP, WINDOW_WAIT, WINDOW_DROP };
/*
 * Asks FATE about every count of W: it stays, goes on to NEXT (which is new and empty), or is
 * forgotten.
 */
void window_sort(struct window *w, struct window *next,
		 enum window_fate (*fate)(struct count *c, void *arg), void *arg);
/* Adds WHO and returns its index. W takes a reference to its pod. 0 without memory. */
uint32_t window_add_identity(struct window *w, const struct identity *who);
/* How many samples S counts as: 0 when its value is no multiple of its period, which is malformed.
 */
static inline uint64_t window_sample_count(const struct window_sample *s)
{
	if (!s->period)
		return 1;
	return s->value % s->period ? 0 : s->value / s->period;
}
/*
 * Counts S, with less detail when the window fills up. -ENOSPC when the window is full, -ENOMEM,
 * -EBADMSG when S is malformed: the caller counts the loss.
 */
int window_add(struct window *w, const struct window_sample *s) _must_check_;
