// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a Ruby process, recorded or forged (the text format of record.c): attaching to it,
 * walking it and naming its frames do bounded work, and names end within their buffer.
 */
#include "tests/unit/agent/runtime/ruby/host_walk.h"
#include "tests/unit/agent/runtime/ruby/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 40 * KILN_RUBY_STEPS_MAX, NAMED_MAX = 64, SCRATCH = 8 * RUBY_NAME_MAX };

static void check(bool good)
{
	if (!good)
		abort();
}

static void check_text(const char *text, const char *scratch)
{
	if (*text)
		check(text >= scratch && text < scratch + SCRATCH &&
		      memchr(text, 0, SCRATCH - (size_t)(text - scratch)));
}

static void walk(struct recording *r, const struct kiln_runtime *kernel, void *state)
{
	struct target_memory memory = recorded_memory_target(&r->memory);
	uint32_t n = host_walk(&memory, kernel, r->thread);
	static char scratch[SCRATCH];

	check(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
	check(host.reads <= READS_MAX);
	for (size_t i = 0; i < sent.n_texts; i++) {
		struct symbol_result got;

		(void)ruby_read_text(state, &sent.texts[i], scratch, sizeof(scratch), &got);
	}
	for (uint32_t i = 0, named = 0; i < n && named < NAMED_MAX;
	     i += kiln_frame_words(host.words[i]), named++) {
		struct symbol_result got = {0};

		if (!kiln_frame_runtime(host.words[i]) ||
		    ruby_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch), &got) <
			0)
			continue;
		check(got.n == 1);
		check_text(got.symbols[0].name, scratch);
		check_text(got.symbols[0].file, scratch);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct recording *r = recording_parse(f);
	struct runtime_target target;
	struct kiln_runtime kernel;
	void *state;

	if (f)
		fclose(f);
	if (!r)
		return 0;
	target = recording_target(r);
	if (ruby_ops.attach(&r->image.base, &target, &kernel, &state, NULL) == 0) {
		walk(r, &kernel, state);
		ruby_ops.detach(state);
	}
	recording_free(r);
	return 0;
}
