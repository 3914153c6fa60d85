/* SPDX-License-Identifier: Apache-2.0 */
/* The names of V8's frames, and what is kept of a process for them. Loop thread. */
#pragma once

#include "agent/runtime/v8/image.h"
#include "agent/runtime/v8/script.h"

struct v8_state {
	uint32_t refs; /* attachments */
	const struct v8_image *image;
	struct v8_scripts scripts;
	struct v8_types types;
	uint64_t code_map; /* the hint of v8_code_find() */
};

/* As struct interpreter_ops's symbolize(). */
int v8_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		 char *scratch, size_t scratch_size, struct symbol_result *ret);
