/* SPDX-License-Identifier: Apache-2.0 */
/* A recording that record.c made: memory of a process, and what was found in it. */
#pragma once

#include "agent/runtime/ruby/ruby.h"
#include "tests/unit/agent/runtime/recorded_memory.h"

enum { RECORDING_FRAMES_MAX = 64 };

struct recording {
	struct ruby_image image;
	uint64_t bias, thread;
	struct recording_frame {
		unsigned int line, start_line;
		char file[64], name[128];
	} frames[RECORDING_FRAMES_MAX];
	size_t n_frames;
	struct recorded_memory memory;
};

/* NULL when the file is not there or damaged. */
struct recording *recording_read(const char *path);
struct recording *recording_parse(FILE *f); /* takes NULL */
struct recording *recording_free(struct recording *r);
struct runtime_target recording_target(struct recording *r);
