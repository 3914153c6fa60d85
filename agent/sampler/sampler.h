/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sampler: the BPF programs of bpf/profiler.bpf.c, loaded and attached: a timer on every
 * CPU, the ring buffer, and the maps as memory. Owned by the loop thread.
 */
#pragma once

#include "agent/process/container.h"
#include "agent/sampler/kernel_memory.h"
#include "lib/error.h"

struct sampler_options {
	uint32_t hz;	    /* 1..: timers per second and CPU, at first; rate of policy 0 */
	uint32_t max_hz;    /* the highest rate that sampler_set_rate() may get; 0: HZ */
	uint32_t max_depth; /* user frames */
	enum cgroup_mode cgroup_mode;
	const uint32_t *pids; /* only these; NULL: all */
	size_t n_pids;
	/* Inode of the pid namespace whose processes are sampled; 0: the first one, all. */
	uint32_t pid_namespace;
	size_t unwind_bytes;	/* room for unwind tables; 0: 512 MiB; taken when it is needed */
	size_t ring_bytes;	/* 0: by rate and CPUs */
	uint32_t max_processes; /* 0: by the memory of the machine */
	uint32_t max_mappings;	/* room for executable mappings; 0: 4 million, as above */
	uint32_t off_cpu;	/* of policy 0: struct kiln_policy */
	uint32_t target_tid;	/* one timer for this thread, wherever it runs; 0: one a CPU */
	uint32_t max_cpus;	/* room for CPUs; 0: cpus_room() of this machine */
	const char *online;	/* list of the CPUs that are online; NULL: the kernel's */
};

struct sampler;

/*
 * Opens and loads. -EPERM, -ENOSYS or -ENOTSUP with an error that names the capability or the
 * kernel feature that is missing.
 */
int sampler_new(const struct sampler_options *options, struct sampler **ret,
		struct error *err) _must_check_;
struct sampler *sampler_free(struct sampler *s);
DEFINE_CLEANUP(struct sampler *, sampler_free)

/* Loads the program that walks the frames of the runtime ID, and waits for it: see walkers.h. */
int sampler_load_walker(struct sampler *s, uint32_t id, const struct walker_object *walker,
			struct error *err) _must_check_;

/* Is a walker being loaded? */
bool sampler_loads_walkers(struct sampler *s);

/*
 * For programs of other types that share the sampler's maps. sampler_object(): its BPF object.
 * sampler_cpus(): the number of CPUs that the maps have room for. sampler_follow(): WALKERS, at
 * most SAMPLER_FOLLOWERS_MAX of them, get every walker that processes have needed so far or need
 * from now on.
 */
enum { SAMPLER_FOLLOWERS_MAX = 4 };
struct bpf_object;
struct walkers;
const struct bpf_object *sampler_object(const struct sampler *s);
int sampler_cpus(const struct sampler *s);
void sampler_follow(struct sampler *s, struct walkers *walkers);
void sampler_unfollow(struct sampler *s, const struct walkers *walkers);

/* Starts sampling on every CPU that is online. */
int sampler_start(struct sampler *s, struct error *err) _must_check_;
/* Follows CPUs that came or went; to be called every few seconds: see timers_refresh(). */
int sampler_refresh_cpus(struct sampler *s, struct error *err) _must_check_;
/* The CPUs that were online at the last refresh and are not sampled: the maps have no room for
 * them. */
size_t sampler_cpus_beyond(const struct sampler *s);
void sampler_stop(struct sampler *s);

const struct kernel_memory *sampler_memory(struct sampler *s);
/*
 * Becomes readable when the kernel met a process that is not in `processes`, and when the ring is
 * more than half full; stays so until the ring is empty.
 */
int sampler_ring_fd(const struct sampler *s);
/*
 * Gives the records in the ring to CONSUME, in order, for about SAMPLER_DRAIN_MS at most, so that
 * the loop's other work goes on; RECORD is valid during the call. True: there may be more.
 */
enum { SAMPLER_DRAIN_MS = 20, SAMPLER_MAPS_AGE_S = 60 };
bool sampler_drain(struct sampler *s, void (*consume)(const struct kiln_sample *record, void *arg),
		   void *arg);
/* TAKE gets each struct kiln_text of the ring, before the samples with its frame. */
void sampler_on_text(struct sampler *s, void (*take)(const struct kiln_text *text, void *arg),
		     void *arg);
/* From now on TAKE gets the sets of labels, SIZE bytes each, before the samples that have them. */
void sampler_on_labels(struct sampler *s,
		       void (*take)(const struct kiln_labels *labels, size_t size, void *arg),
		       void *arg);

/*
 * Turns off-CPU sampling on or off: samples of the waits of threads whose policy asks for them. The
 * first call that turns it on takes longer, because the kernel has to verify the program. TAKE gets
 * the ends of those waits.
 */
int sampler_set_off_cpu(struct sampler *s, bool on, struct error *err) _must_check_;
void sampler_on_wait_end(struct sampler *s,
			 void (*take)(const struct kiln_wait_end *end, void *arg), void *arg);
/* Is the thread TID still in the wait that began at BEGAN? False also when that is not known. */
bool sampler_thread_waits(const struct sampler *s, uint32_t tid, uint64_t began);
/*
 * off_cpu_due(): the ns that the thread TID has waited until NOW (CLOCK_MONOTONIC), minus those
 * that were reported with sampler_wait_told(), and whether the thread has ended.
 */
bool sampler_wait_due(struct sampler *s, uint32_t tid, uint64_t now, int64_t *ret_ns,
		      bool *ret_ended);
void sampler_wait_told(struct sampler *s, uint32_t tid, uint64_t ns);
/* off_cpu_may_have_sleepers(). False also when off-CPU sampling is off. */
bool sampler_may_have_sleepers(struct sampler *s);
/* off_cpu_listed() */
void sampler_sleepers_listed(struct sampler *s);
/* off_cpu_open_sleepers(). -ENOENT: off-CPU sampling is off. */
int sampler_open_sleepers(struct sampler *s) _must_check_;
/* off_cpu_shown() */
bool sampler_sleeper_shown(struct sampler *s, uint32_t tid, uint64_t began);
/*
 * To be called once a window. If there were more walks at switches than SAMPLER_WALKS_MAX a second
 * and CPU, only half as large a share of waits is walked from now on; if less than a quarter of
 * that, twice as large a share, up to all.
 */
enum { SAMPLER_WALKS_MAX = 2000 };
void sampler_limit_off_cpu(struct sampler *s, uint64_t now);

/* The timers' rate from now on: at least that of every policy. 0 stops them. */
int sampler_set_rate(struct sampler *s, uint32_t hz) _must_check_;
/*
 * How much detail the CPU budget leaves out: 0 none, 1 copies of stacks, 2 also frames beyond
 * KILN_SHORT_DEPTH.
 */
void sampler_set_detail(struct sampler *s, uint32_t less);
int sampler_set_policy(struct sampler *s, uint32_t index,
		       const struct kiln_policy *policy) _must_check_;
/* Gives the policy INDEX the rate HZ, and reduces its off-CPU walks, which the options ask for, by
 * the same factor. */
int sampler_limit_policy(struct sampler *s, uint32_t index, uint32_t hz) _must_check_;
/* The policy of every cgroup without one of its own; policy 0 at first. */
void sampler_set_default_policy(struct sampler *s, uint32_t index);
int sampler_set_cgroup_policy(struct sampler *s, uint64_t cgroup, uint32_t index) _must_check_;
int sampler_delete_cgroup_policy(struct sampler *s, uint64_t cgroup);
/* From now on records carry the cgroup. sampler_set_cgroup_policy() does this, too. */
void sampler_use_cgroups(struct sampler *s);
/* The map from cgroup ids to policies, for bpf/cgroups.bpf.c. */
int sampler_cgroup_policies_fd(const struct sampler *s);
/* What `processes` names: mapsets, and the processes themselves; each sorted. */
struct sampler_named {
	uint32_t *mapsets, *tgids;
	size_t n_mapsets, n_tgids;
};
void sampler_named_done(struct sampler_named *n);
/*
 * RET is released by sampler_named_done(). Removes entries of processes that are gone without an
 * exit having been seen: every process is looked up below PROC_DIRFD once in eight calls.
 */
int sampler_read_named(struct sampler *s, int proc_dirfd, struct sampler_named *ret) _must_check_;
/*
 * Never sample TGID again until it executes another program. EXEC_ID: the program that is meant, as
 * a sample's record has it. -ESRCH: the process has ended, or executes another program already.
 */
int sampler_ignore_process(struct sampler *s, uint32_t tgid, uint64_t exec_id);

struct sampler_stats {
	uint64_t counts[KILN_STAT_COUNT];
	/* run_ns: CPU time of all programs; 0 where the kernel does not count it. runs: of the
	 * sampling program. Both are estimates while off-CPU sampling is on (run_time.h). */
	uint64_t run_ns, runs;
	uint64_t map_bytes; /* sampler_map_bytes() */
	uint64_t processes; /* entries of `processes` at the last sampler_read_named() */
};
/* Limits the memory that unwind tables and mappings take together; tables leave the last eighth of
 * it to mappings. No limit at first. */
void sampler_limit_slabs(struct sampler *s, size_t bytes);
/*
 * Do unwind tables and mappings take half of their limit or more? Then tables that are in use
 * should be touched (unwind_store_touch()).
 */
bool sampler_slabs_are_tight(const struct sampler *s);
void sampler_read_stats(struct sampler *s, struct sampler_stats *ret);
/*
 * The memory of all maps, bytes. RET_SLABS (may be NULL): the part of the slabs (unwind tables and
 * mappings), which is current; the part of other maps may be SAMPLER_MAPS_AGE_S old.
 */
uint64_t sampler_map_bytes(struct sampler *s, uint64_t *ret_slabs);
/* The CPU time of all programs until now, ns; 0 when the kernel does not tell. Cheap. */
uint64_t sampler_run_ns(struct sampler *s);
