/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct off_cpu: bpf/offcpu.bpf.c, loaded when it is first wanted, and attached to the scheduler
 * only while it is wanted. Owned by the loop thread.
 */
#pragma once

#include "agent/sampler/walkers.h"
#include "bpf/types.h"

struct profiler;

struct off_cpu;
/* MAIN: loaded, outlives this. WALKERS: those of MAIN; the same are loaded for this program. */
int off_cpu_new(struct profiler *main, struct walkers *walkers, struct off_cpu **ret,
		struct error *err) _must_check_;
struct off_cpu *off_cpu_free(struct off_cpu *o);
DEFINE_CLEANUP(struct off_cpu *, off_cpu_free)

/* Attaches the program to sched_switch, or detaches it. */
int off_cpu_attach(struct off_cpu *o, struct error *err) _must_check_;
void off_cpu_detach(struct off_cpu *o);
/* O may be NULL. */
bool off_cpu_is_on(const struct off_cpu *o);

/* Its own set of walkers. */
struct walkers *off_cpu_walkers(struct off_cpu *o);
/*
 * Is the thread TID still in the wait that began at BEGAN? While the program is detached: was it at
 * the moment of the detach?
 */
bool off_cpu_waits(const struct off_cpu *o, uint32_t tid, uint64_t began);
/*
 * *RET_NS: how many ns the thread TID has waited until NOW, since the kernel met it, minus those
 * that were reported with off_cpu_told(). Negative: more were reported. A wait that goes on and was
 * not walked is left out, because its time would be counted to other stacks. *RET_ENDED: the thread
 * has ended. False: the thread is not known.
 */
bool off_cpu_due(struct off_cpu *o, uint32_t tid, uint64_t now, int64_t *ret_ns, bool *ret_ended);
/* NS more of the waiting of TID were reported, in samples. */
void off_cpu_told(struct off_cpu *o, uint32_t tid, uint64_t ns);
/* Clears the slots of all threads: no thread counts as waiting. */
void off_cpu_forget(struct off_cpu *o);
/* The CPU time of its program, ns, while the kernel counted it. */
uint64_t off_cpu_run_ns(const struct off_cpu *o);
/*
 * May a list have threads that the last complete one did not have? To be asked before each list,
 * because a list costs the kernel 650 ns for each thread of the machine, and this only reads the
 * slots. Always true after a change of policies, and when OFF_CPU_LISTS_SKIPPED_MAX lists were
 * skipped: a thread may have had no slot, or its process may not have been sampled.
 */
bool off_cpu_may_have_sleepers(struct off_cpu *o);
enum { OFF_CPU_LISTS_SKIPPED_MAX = 12 };
/* The last list that was opened was read to its end. */
void off_cpu_listed(struct off_cpu *o);
/*
 * Lists the threads that wait without a sample: the wait began before the program was attached, or
 * its stack was not walked and it has lasted for KILN_SLEEP_SHOWN. Returns a file descriptor, which
 * the caller closes, or -errno. Each read(), by any thread, returns whole records of
 * KILN_SLEEPER_BYTES (struct kiln_sleeper), 0 at the end. A thread is listed again until
 * off_cpu_shown().
 */
int off_cpu_open_sleepers(struct off_cpu *o) _must_check_;
/*
 * Marks the wait of TID that began at BEGAN: it has a sample. False: the wait has ended meanwhile.
 */
bool off_cpu_shown(struct off_cpu *o, uint32_t tid, uint64_t began);
/* Bytes of the maps that are its own. */
uint64_t off_cpu_map_bytes(const struct off_cpu *o);
