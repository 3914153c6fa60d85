/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Everything that the program of a runtime's walker includes. The source of such a program is
 *
 *   #define KILN_WALKER name_walk
 *   #include "bpf/walker.h"
 *   #include "walker.h"          the function itself: see runtime_frames.h
 *   KILN_WALKER_PROGRAM(name)
 *
 * and walker_object(name source) of cmake/bpf_object.cmake compiles it. It shares the maps of
 * profiler.bpf.c with the same names.
 */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "bpf/types.h"
#include "bpf/unwind.h"
#include "bpf/maps.h"
#include "bpf/env.h"
#include "bpf/switch.h"

#define KILN_WALKER_PROGRAM(name)                                                                  \
	SEC("perf_event")                                                                          \
	int name(struct bpf_perf_event_data *ctx)                                                  \
	{                                                                                          \
		uint32_t slot = bpf_get_smp_processor_id();                                        \
		struct kiln_walk *w = env_walk(slot);                                              \
                                                                                                   \
		if (!w)                                                                            \
			return 0;                                                                  \
		walk_on(ctx, slot, w);                                                             \
		bpf_tail_call_static(ctx, &walkers, END_SAMPLE);                                   \
		return 0;                                                                          \
	}                                                                                          \
	char LICENSE[] SEC("license") = "GPL"
