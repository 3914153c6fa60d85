/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct label_sets: the sets of labels that the kernel has sent, by the id in the samples, and the
 * labels of each that a policy allows. Owned by the loop thread; a struct label_set that was handed
 * out is immutable, and its reference count is atomic.
 */
#pragma once

#include "agent/labels/allow.h"
#include "agent/profile/batch.h"
#include "agent/runtime/target.h"
#include "bpf/types.h"
#include "lib/uthash.h"

enum {
	/* Sets as sent by the kernel; the least recently used one is removed. */
	LABEL_SETS_MAX = 16384,
	LABEL_RESULTS_MAX = 65536, /* distinct results of filtering by a policy */
	LABEL_CONTEXTS_MAX = 1024, /* processes whose names of keys are stored */
	LABEL_KEEP_MS = 20000,	   /* longer than the kernel remembers that it has sent a set */
	LABEL_CONTEXT_RETRY_MS = 1000,
};

struct label_set {
	uint64_t number; /* unique while this set lives */
	_Atomic int refs;
	UT_hash_handle hh;
	size_t key_len, n;
	/* Behind it: n of these, then their strings, each with its NUL (the key of HH). */
	struct batch_label labels[];
};

struct label_set *label_set_ref(struct label_set *s);
struct label_set *label_set_unref(struct label_set *s); /* takes NULL, returns NULL */

struct label_sets;
int label_sets_new(const struct target_source *source, struct label_sets **ret) _must_check_;
struct label_sets *label_sets_free(struct label_sets *s);
DEFINE_CLEANUP(struct label_sets *, label_sets_free)

/* Stores the set in RECORD, which has SIZE bytes. */
void label_sets_take(struct label_sets *s, const struct kiln_labels *record, size_t size,
		     uint64_t now_ns);
/*
 * The labels that ALLOW permits, and the trace context, of the set ID of a sample that was walked
 * by MAPSET. NULL: there are none, or the set is not known (which is counted). Valid until
 * label_sets_sweep(), or as long as the caller holds a reference.
 */
struct label_set *label_sets_find(struct label_sets *s, uint32_t mapset, uint64_t id,
				  const struct label_allow *allow, uint64_t now_ns);
/* Removes sets that were not used for LABEL_KEEP_MS, and results that nobody references. */
void label_sets_sweep(struct label_sets *s, uint64_t now_ns);
size_t label_sets_bytes(const struct label_sets *s);
