/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct cgroup_watch: reports every cgroup of the hierarchy that policies refer to: first those
 * that exist, then each that is made or removed, as it happens. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/process/container.h"
#include "lib/error.h"

struct cgroup_watch_callbacks {
	/* PATH: from the hierarchy's root on. May report a cgroup that is known already. */
	void (*made)(uint64_t id, const char *path, void *arg);
	void (*removed)(uint64_t id, void *arg);
	/* Around a scan of the whole hierarchy: a cgroup that made() does not name in between is
	 * gone. */
	void (*scan_begins)(void *arg);
	void (*scan_ends)(void *arg);
	void *arg;
};

struct cgroup_watch_options {
	enum cgroup_mode mode;
	const char *root; /* where cgroups are mounted; NULL: the host's, /sys/fs/cgroup */
	int policy_map;	  /* the sampler's map of cgroups */
};

struct cgroup_watch;
/*
 * Follows changes with BPF programs; if these do not load, scans every few seconds (*RET_WHY says
 * why, and is empty otherwise). Scans before it returns. -ENOENT with an error when there is no
 * hierarchy to scan.
 */
int cgroup_watch_new(uv_loop_t *loop, const struct cgroup_watch_options *options,
		     const struct cgroup_watch_callbacks *callbacks, struct cgroup_watch **ret,
		     struct error *ret_why, struct error *err) _must_check_;
/* Closes its handles: the loop must run once more. Takes NULL. */
struct cgroup_watch *cgroup_watch_free(struct cgroup_watch *w);
/* Handles the events that are in the ring now; otherwise the loop does this. */
void cgroup_watch_drain(struct cgroup_watch *w);

/* The hierarchy's number in /proc/PID/cgroup and its directory below ROOT (allocated). */
int cgroup_hierarchy(const char *proc_self_cgroup, enum cgroup_mode mode, const char *root,
		     int *ret_id, char **ret_path) _must_check_;
