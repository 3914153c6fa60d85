/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtime_frames: makes sure that the frames of runtimes have names when the window is
 * closed. Names are read when a stack is first met in a window, as many as one drain may read; the
 * rest at the next drains and at the end of the window. Owned by the loop thread.
 */
#pragma once

#include "agent/runtime/runtimes.h"
#include "agent/window/stack_table.h"

enum {
	RUNTIME_FRAMES_PER_DRAIN = 1000, /* names that are read from processes */
	/* At the end of a window, for all that are left; further frames stay without a name. */
	RUNTIME_FRAMES_PER_END = 5000,
};

struct runtime_frames;
/* RT outlives it. */
int runtime_frames_new(struct runtimes *rt, struct runtime_frames **ret) _must_check_;
struct runtime_frames *runtime_frames_free(struct runtime_frames *f);

/* Begins a drain: first reads names that the last one has left. */
void runtime_frames_begin(struct runtime_frames *f, uint32_t window);
/* A sample of the process TGID has STACK, which has frames of runtimes. */
void runtime_frames_see(struct runtime_frames *f, struct stack *stack, struct mapset *mapset,
			uint32_t tgid, uint32_t window, uint64_t now_ns);
/* Whether unknown functions were met since the drain began, or names are left to read. */
bool runtime_frames_met_new(const struct runtime_frames *f);
/* Whether names are left to read. */
bool runtime_frames_left_names(const struct runtime_frames *f);
/* Whether a name could not be read since the drain began: the function may be gone from memory. */
bool runtime_frames_lost_names(const struct runtime_frames *f);
/* WINDOW is about to be named. */
void runtime_frames_finish(struct runtime_frames *f, uint32_t window);
void runtime_frames_sweep(struct runtime_frames *f, uint32_t before_window);
