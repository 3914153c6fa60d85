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

/* From now on switches are looked at, or not. */
int off_cpu_attach(struct off_cpu *o, struct error *err) _must_check_;
void off_cpu_detach(struct off_cpu *o);
/* O may be NULL. */
bool off_cpu_is_on(const struct off_cpu *o);

/* Its own set of walkers. */
struct walkers *off_cpu_walkers(struct off_cpu *o);
/* Does the thread TID still wait as it did since BEGAN, or did when the program was detached? */
bool off_cpu_waits(const struct off_cpu *o, uint32_t tid, uint64_t began);
/*
 * The ns that the thread TID has waited until NOW, since the kernel met it, and that were not told.
 * Negative: more was told. False: not known.
 */
bool off_cpu_due(struct off_cpu *o, uint32_t tid, uint64_t now, int64_t *ret_ns);
/* NS more of TID's waiting were told. */
void off_cpu_told(struct off_cpu *o, uint32_t tid, uint64_t ns);
/* What the slots say is void: nobody is to be taken for waiting. */
void off_cpu_forget(struct off_cpu *o);
/* The CPU time of its program, ns, while the kernel counted it. */
uint64_t off_cpu_run_ns(const struct off_cpu *o);
/*
 * Who waits, and whose stack nobody walked: because it waits since before switches were looked at,
 * or was not drawn, and that is long ago. A file descriptor that the caller closes; each read() of
 * any thread returns whole records of KILN_SLEEPER_BYTES, struct kiln_sleeper; 0: that is all. Each
 * thread is told again until off_cpu_shown().
 */
int off_cpu_open_sleepers(struct off_cpu *o) _must_check_;
/* The wait of TID since BEGAN has a sample. False: it has ended meanwhile. */
bool off_cpu_shown(struct off_cpu *o, uint32_t tid, uint64_t began);
/* Bytes of the maps that are its own. */
uint64_t off_cpu_map_bytes(const struct off_cpu *o);
