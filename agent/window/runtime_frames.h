/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtime_frames: sees to it that frames of runtimes have their names by the time when the
 * window is closed: they are read when a stack is met first in a window, as many as one drain may,
 * the rest at the next drains and at the window's end. Owned by the loop thread.
 */
#pragma once

#include "agent/runtime/runtimes.h"
#include "agent/window/stack_table.h"

enum {
	RUNTIME_FRAMES_PER_DRAIN = 1000, /* names that are read from processes */
	/* At the end of a window, for all that is left: beyond it frames stay without a name. */
	RUNTIME_FRAMES_PER_END = 5000,
};

struct runtime_frames;
/* RT outlives it. */
int runtime_frames_new(struct runtimes *rt, struct runtime_frames **ret) _must_check_;
struct runtime_frames *runtime_frames_free(struct runtime_frames *f);

/* A new drain begins: first what was left by the last. */
void runtime_frames_begin(struct runtime_frames *f, uint32_t window);
/* A sample of the process TGID has STACK, which has frames of runtimes. */
void runtime_frames_see(struct runtime_frames *f, struct stack *stack, struct mapset *mapset,
			uint32_t tgid, uint32_t window, uint64_t now_ns);
/* Since the drain began functions were met that were not known, or there are names left to read. */
bool runtime_frames_met_new(const struct runtime_frames *f);
/* Since then a frame was met whose name could not be read: the function may be gone from memory. */
bool runtime_frames_lost_names(const struct runtime_frames *f);
/* WINDOW is about to be named. */
void runtime_frames_finish(struct runtime_frames *f, uint32_t window);
void runtime_frames_sweep(struct runtime_frames *f, uint32_t before_window);
