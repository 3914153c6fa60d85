/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cgroup_table: the cgroups of pods and containers, by the id that BPF programs see, and the
 * pod and container that each belongs to. Pure; the loop thread's.
 */
#pragma once

#include "agent/process/container.h"
#include "bpf/types.h"
#include "lib/uthash.h"

enum {
	CGROUPS_MAX = KILN_MAX_CGROUPS,
	CGROUPS_POD_MAX = 512, /* of one pod: a container may make cgroups of its own */
	CGROUPS_OTHERS_MAX = 65536,
	CGROUPS_KEEP_MS = 60000 /* after removal: samples of them may still be on their way */
};

/* What the cgroups of one pod have in common. */
struct pod_cgroups {
	char uid[40];	 /* as in struct container_identity: the manifest's hash for static pods */
	uint32_t policy; /* for the caller's use; 0 at first */
	uint32_t n;
	struct cgroup *cgroups; /* linked by pod_next */
	UT_hash_handle hh;
};

struct cgroup {
	uint64_t id;
	struct container_identity identity;
	struct pod_cgroups *pod; /* NULL: a container outside of pods */
	struct cgroup *pod_prev, *pod_next;
	uint64_t removed_ms; /* 0: it is there */
	bool seen;	     /* seen by the current scan */
	UT_hash_handle hh;
};

struct cgroup_table;
int cgroup_table_new(struct cgroup_table **ret) _must_check_;
struct cgroup_table *cgroup_table_free(struct cgroup_table *t);
DEFINE_CLEANUP(struct cgroup_table *, cgroup_table_free)

/*
 * PATH: from the hierarchy's root on. Positive with *RET set for a cgroup of a pod or container; 0
 * for any other, of which only the id is stored; -E2BIG when a cap is reached (counted), -ENOMEM.
 */
int cgroup_table_add(struct cgroup_table *t, uint64_t id, const char *path,
		     struct cgroup **ret) _must_check_;
/* Marks the cgroup ID as removed; it can be found for another CGROUPS_KEEP_MS. Returns it; NULL: it
 * is not one of a pod or container. */
struct cgroup *cgroup_table_remove(struct cgroup_table *t, uint64_t id, uint64_t now_ms);
struct cgroup *cgroup_table_find(const struct cgroup_table *t, uint64_t id);
/* Whether the cgroup belongs, or belonged a while ago, to no pod and no container. */
bool cgroup_table_is_other(const struct cgroup_table *t, uint64_t id);
/* Call these before and after a scan of all cgroups. The second forgets the other cgroups that the
 * scan did not add. Cgroups of pods and containers are removed by the caller (struct cgroup, seen).
 */
void cgroup_table_begin_scan(struct cgroup_table *t);
void cgroup_table_end_scan(struct cgroup_table *t, uint64_t now_ms);
struct pod_cgroups *cgroup_table_find_pod(const struct cgroup_table *t, const char *uid);
/* Forgets the cgroups that were removed CGROUPS_KEEP_MS ago or earlier. */
void cgroup_table_sweep(struct cgroup_table *t, uint64_t now_ms);
size_t cgroup_table_count(const struct cgroup_table *t);
/* All cgroups of pods and containers, and all pods, for iteration: HASH_ITER over hh. */
struct cgroup *cgroup_table_all(const struct cgroup_table *t);
struct pod_cgroups *cgroup_table_pods(const struct cgroup_table *t);
