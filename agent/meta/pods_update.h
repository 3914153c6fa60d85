/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a pod table changes: what the operator sends, and what the last known good snapshot has, as
 * decoded messages. Loop thread.
 */
#pragma once

#include "agent/meta/pod_content.h"

/*
 * Applies one Update; outside of a snapshot it changes the current state. -EPROTO (with words): its
 * revision is older than the state, or there is no state to change; nothing was applied. -ENOMEM: a
 * part was applied, and the revision has not changed; apply it again.
 */
int pod_table_apply(struct pod_table *t, const Kiln__Node__V1__Update *u, uint64_t now_ms,
		    struct error *err) _must_check_;

/*
 * A snapshot. Until its end the table answers as before; then the snapshot replaces the content,
 * and objects that it did not name are deleted. A second begin starts over. -EPROTO: an end without
 * its begin.
 */
void pod_table_snapshot_begin(struct pod_table *t, uint64_t epoch);
int pod_table_snapshot_end(struct pod_table *t, uint64_t epoch, uint64_t revision, uint64_t now_ms,
			   struct error *err) _must_check_;
void pod_table_snapshot_abort(struct pod_table *t); /* the rest will not come */
bool pod_table_in_snapshot(const struct pod_table *t);

/* One object of a snapshot from disk, in between begin and end. -EINVAL: left out and counted. */
int pod_table_load(struct pod_table *t, struct pod_object *o, bool is_default) _must_check_;
void pod_table_set_budget(struct pod_table *t, const struct pod_table_budget *budget);
struct pod_counters *pod_table_counting(struct pod_table *t);

/* Some destination from disk still lacks its secrets: the state cannot be resumed. */
bool pod_table_incomplete(const struct pod_table *t);

/* Every live object as it goes to disk, the default policy with IS_DEFAULT. Stops at false. */
bool pod_table_objects(const struct pod_table *t,
		       bool (*fn)(const struct pod_object *o, bool is_default, void *arg),
		       void *arg);
