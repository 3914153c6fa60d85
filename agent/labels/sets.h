/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct label_sets: the sets of labels that the kernel has sent, by the id that samples have, and
 * what of each a policy lets pass. Owned by the loop thread; a struct label_set that was handed out
 * is immutable, and its references are atomic.
 */
#pragma once

#include "agent/labels/allow.h"
#include "agent/profile/batch.h"
#include "agent/runtime/target.h"
#include "bpf/types.h"
#include "lib/uthash.h"

enum {
	LABEL_SETS_MAX = 16384,	   /* as they came; who was not used for longest goes */
	LABEL_RESULTS_MAX = 65536, /* distinct ones that passed a policy */
	LABEL_CONTEXTS_MAX = 1024, /* processes whose keys are known */
	LABEL_KEEP_MS = 20000,	   /* longer than the kernel remembers what it has sent */
	LABEL_CONTEXT_RETRY_MS = 1000,
};

struct label_set {
	uint64_t number; /* no other set has it, while this one lives */
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

/* RECORD has SIZE bytes. */
void label_sets_take(struct label_sets *s, const struct kiln_labels *record, size_t size,
		     uint64_t now_ns);
/*
 * Of the set ID of a sample that was walked by MAPSET: what ALLOW lets pass, and the trace context.
 * NULL: that is nothing, or the set is not known (which is counted). Lives until
 * label_sets_sweep(), or longer by a reference.
 */
struct label_set *label_sets_find(struct label_sets *s, uint32_t mapset, uint64_t id,
				  const struct label_allow *allow, uint64_t now_ns);
/* Forgets what was not used for LABEL_KEEP_MS, and results that nobody has. */
void label_sets_sweep(struct label_sets *s, uint64_t now_ns);
size_t label_sets_bytes(const struct label_sets *s);
