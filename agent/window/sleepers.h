/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sleepers: shows threads that wait and that no switch told of: those that slept before the
 * agent came, deadlocked ones among them, and long waits that were not drawn. The kernel lists them
 * (bpf/offcpu.bpf.c), with kernel stack and registers; a worker copies their user stacks from the
 * outside, pages that are there only, so it waits for nobody; and each becomes a record as one
 * whose walk user space has to complete. Frames of runtimes are not found so. Loop thread.
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
