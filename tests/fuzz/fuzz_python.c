// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a Python process, recorded or forged (the text format of record.c): attaching to
 * it, walking it and naming its frames do bounded work, and names are UTF-8 that ends.
 */
#include "tests/unit/agent/runtime/python/host_walk.h"
#include "tests/unit/agent/runtime/python/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 4 * KILN_PYTHON_STEPS_MAX };

static void check(bool good)
{
	if (!good)
		abort();
}

/* Every byte of the text, which ends within SCRATCH. */
static void check_text(const char *text, const char *scratch, size_t size)
{
	const uint8_t *p = (const uint8_t *)text;

	if (!*text)
		return;
	check(text >= scratch && memchr(text, 0, size - (size_t)(text - scratch)));
	while (*p) {
		size_t more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;

		check(*p < 0x80 || *p >= 0xc2);
		for (p++; more; more--)
			check((*p++ & 0xc0) == 0x80);
	}
}

static void walk(struct recording *r, const struct kiln_runtime *kernel, void *state)
{
	struct target_memory memory = recorded_memory_target(&r->memory);
	uint32_t n = host_walk(&memory, kernel, r->thread);

	check(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
	check(host.reads <= READS_MAX);
	for (uint32_t i = 0, named = 0; i < n && named < 64;
	     i += kiln_frame_words(host.words[i]), named++) {
		struct symbol_result got = {0};
		char scratch[256];

		if (!kiln_frame_runtime(host.words[i]) ||
		    python_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch),
				     &got) < 0)
			continue;
		check(got.n == 1);
		check_text(got.symbols[0].name, scratch, sizeof(scratch));
		check_text(got.symbols[0].file, scratch, sizeof(scratch));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct recording *r = recording_parse(f);
	struct runtime_target target;
	struct kiln_runtime kernel;
	void *state;

	/* Any bytes as a table of lines, too. */
	for (unsigned int minor = 9; minor < 12; minor++)
		(void)python_line(minor, cursor_of(data, size), 1, (int32_t)size);
	if (f)
		fclose(f);
	if (!r)
		return 0;
	target = recording_target(r);
	if (python_attach(&r->image.base, &target, &kernel, &state, NULL) == 0) {
		walk(r, &kernel, state);
		python_detach(state);
	}
	recording_free(r);
	return 0;
}
