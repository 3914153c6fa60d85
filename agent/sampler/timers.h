/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct timers: what makes the sampling program run: one CPU clock event for each CPU that is
 * online, at one rate. Owned by the loop thread.
 */
#pragma once

#include "bpf/types.h"
#include "lib/error.h"

struct bpf_program;

struct timers_options {
	struct bpf_program *program; /* loaded; outlives the timers */
	struct kiln_cpu *cpus;	     /* `cpus`, shared with the kernel; n_cpus */
	uint64_t *timer_ns;	     /* the program's variable: ns that a hit stands for */
	int n_cpus;		     /* only CPUs with a number below get a timer */
	uint32_t hz;		     /* 0: stopped */
	uint32_t target_tid;	     /* one timer for this thread, wherever it runs; 0: one a CPU */
	const char *online;	     /* the list of CPUs; NULL: the kernel's */
};

struct timers;
/* -EPERM names the missing capability, -ENOTSUP: no CPU has a timer. */
int timers_new(const struct timers_options *options, struct timers **ret,
	       struct error *err) _must_check_;
struct timers *timers_free(struct timers *t);
DEFINE_CLEANUP(struct timers *, timers_free)

/* Sets the rate of all timers. The time since a timer's last hit is counted with its next hit. */
int timers_set_rate(struct timers *t, uint32_t hz) _must_check_;
/*
 * Starts timers of CPUs that came online and frees those of CPUs that went. To be called every few
 * seconds. Returns the number of timers started, or the first error; the other CPUs are tried all
 * the same.
 */
int timers_refresh(struct timers *t, struct error *err) _must_check_;
/* The CPUs that timers_refresh() found online last and whose numbers are too high for a timer. */
size_t timers_beyond(const struct timers *t);
