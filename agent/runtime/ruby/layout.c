// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets of the members of Ruby's structures, by version. Stateless.
 *
 * Sources: vm_core.h, iseq.h, internal/class.h of 2.7.4, 3.1.2 and 3.3.8 as a compiler lays them
 * out; for the versions between and beyond the OpenTelemetry eBPF profiler's table (b442421a,
 * interpreter/ruby/ruby.go). Members that differ between patch releases are searched (classes.c).
 */
#include "agent/runtime/ruby/ruby.h"

static const struct ruby_layout layouts[] = {
    /* In 2.5 the table of lines has the positions. */
    {.from = 205,
     .frame_size = 48,
     .context_thread = 56,
     .thread_id = 72,
     .line_size = 12,
     .line_at = 4,
     .lines = 112,
     .lines_size = 200,
     .parent = 168,
     .local = 176,
     .string_embedded = 16},
    {.from = 206,
     .frame_size = 56,
     .context_thread = 56,
     .thread_id = 72,
     .line_size = 8,
     .lines = 120,
     .lines_size = 136,
     .lines_index = 144,
     .parent = 168,
     .local = 176,
     .string_embedded = 16},
    {.from = 207,
     .frame_size = 56,
     .context_thread = 56,
     .thread_id = 72,
     .line_size = 8,
     .lines = 120,
     .lines_size = 136,
     .lines_index = 144,
     .parent = 168,
     .local = 176,
     .string_embedded = 16},
    {.from = 300,
     .frame_size = 56,
     .context_thread = 48,
     .line_size = 8,
     .lines = 120,
     .lines_size = 136,
     .lines_index = 144,
     .parent = 168,
     .local = 176,
     .string_embedded = 16},
    {.from = 301,
     .frame_size = 64,
     .context_thread = 48,
     .line_size = 12,
     .lines = 120,
     .lines_size = 136,
     .lines_index = 144,
     .parent = 168,
     .local = 176,
     .string_embedded = 16},
    {.from = 302,
     .frame_size = 64,
     .context_thread = 48,
     .line_size = 12,
     .lines = 112,
     .lines_size = 128,
     .lines_index = 136,
     .parent = 160,
     .local = 168,
     .string_embedded = 24,
     .class_extension = 32,
     .class_path = 120},
    {.from = 303,
     .frame_size = 56,
     .context_thread = 48,
     .line_size = 12,
     .lines = 112,
     .lines_size = 128,
     .lines_index = 136,
     .parent = 160,
     .local = 168,
     .string_embedded = 24,
     .class_extension = 32,
     .class_path = 120},
    {.from = 400,
     .frame_size = 56,
     .context_thread = 48,
     .line_size = 12,
     .lines = 112,
     .lines_size = 128,
     .lines_index = 136,
     .parent = 168,
     .local = 176,
     .string_embedded = 24,
     .class_extension = 24,
     .class_path = 128},
};

const struct ruby_layout *ruby_layout_of(unsigned int version)
{
	const struct ruby_layout *found = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		if (layouts[i].from <= version)
			found = &layouts[i];
	}
	return found;
}
