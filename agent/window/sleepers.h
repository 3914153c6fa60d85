/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sleepers: finds threads that are asleep and have no off-CPU sample: those that slept
 * before the agent was started (deadlocked ones too), and long waits that were not selected for a
 * walk. A BPF iterator lists them with kernel stack and registers (bpf/offcpu.bpf.c). A worker
 * thread copies their user stacks with process_vm_readv(), resident pages only, so that it never
 * waits for a filesystem. Each becomes a record with a stack dump, whose walk is completed in user
 * space as for any other (finisher.h), without frames of runtimes. Loop thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "agent/sampler/sampler.h"

enum { SLEEPERS_AT_ONCE = 1000 }; /* of one look; the rest is in the next ones */

struct sleepers;
/* TAKE is called with each record, which it may not keep. PROC_DIRFD outlives this. */
int sleepers_new(uv_loop_t *loop, struct sampler *sampler, int proc_dirfd,
		 void (*take)(const struct kiln_sample *record, void *arg), void *arg,
		 struct sleepers **ret) _must_check_;
/* Only when it is not busy. */
struct sleepers *sleepers_free(struct sleepers *s);
DEFINE_CLEANUP(struct sleepers *, sleepers_free)

/* Looks, unless a look is under way or off-CPU is off. */
void sleepers_look(struct sleepers *s);
bool sleepers_busy(const struct sleepers *s);
