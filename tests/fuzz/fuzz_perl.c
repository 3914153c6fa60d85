// SPDX-License-Identifier: Apache-2.0
/*
 * The memory of a Perl process, recorded or forged (the text format of record.c), and any bytes as
 * the text of a frame: walking and naming do bounded work, and names are UTF-8 that ends.
 */
#include "tests/unit/agent/runtime/perl/host_walk.h"
#include "tests/unit/agent/runtime/perl/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 8 * KILN_PERL_CONTEXTS_MAX + 64 * KILN_MAX_USER_FRAMES, NAMED_MAX = 64 };

static void check(bool good)
{
	if (!good)
		abort();
}

/* Names are UTF-8 and end within SCRATCH, or are constants. */
static void check_text(const char *text, const char *scratch, size_t size)
{
	const uint8_t *p = (const uint8_t *)text;

	if (text < scratch || text >= scratch + size)
		return;
	check(memchr(text, 0, size - (size_t)(text - scratch)) != NULL);
	while (*p) {
		size_t more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;

		check(*p < 0x80 || *p >= 0xc2);
		for (p++; more; more--)
			check((*p++ & 0xc0) == 0x80);
	}
}

static void check_symbol(const struct symbol_result *got, const char *scratch, size_t size)
{
	check(got->n == 1);
	check_text(got->symbols[0].name, scratch, size);
	check_text(got->symbols[0].file, scratch, size);
}

static void walk(struct recording *r, const struct kiln_runtime *kernel, void *state)
{
	struct target_memory memory = recorded_memory_target(&r->memory);
	uint32_t n = host_walk(&memory, kernel, r->state);

	check(host.walk.runtime_frames <= KILN_MAX_USER_FRAMES);
	check(host.reads <= READS_MAX);
	for (uint32_t i = 0, named = 0; i + 1 < n && named < NAMED_MAX;
	     i += kiln_frame_words(host.words[i]), named++) {
		const struct kiln_text *text;
		struct symbol_result got = {0};
		char scratch[256];

		if (!kiln_frame_runtime(host.words[i]))
			continue;
		text = host_text(host.words + i);
		if (text && perl_read_text(state, text, scratch, sizeof(scratch), &got) == 0)
			check_symbol(&got, scratch, sizeof(scratch));
		if (perl_symbolize(state, &memory, host.words + i, scratch, sizeof(scratch),
				   &got) == 0)
			check_symbol(&got, scratch, sizeof(scratch));
	}
}

static void read_any_text(const uint8_t *data, size_t size)
{
	struct kiln_text text = {.type = KILN_RECORD_TEXT};
	struct symbol_result got = {0};
	char scratch[200];

	memcpy(text.words, data, MIN(size, sizeof(text.words)));
	memcpy(text.bytes, data, MIN(size, sizeof(text.bytes)));
	if (perl_read_text(NULL, &text, scratch, sizeof(scratch), &got) == 0)
		check_symbol(&got, scratch, sizeof(scratch));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
	struct recording *r = recording_parse(f);
	struct runtime_target target;
	struct kiln_runtime kernel;
	void *state;

	read_any_text(data, size);
	if (f)
		fclose(f);
	if (!r)
		return 0;
	target = recording_target(r);
	if (perl_attach(&r->image.base, &target, &kernel, &state, NULL) == 0) {
		walk(r, &kernel, state);
		perl_detach(state);
	}
	recording_free(r);
	return 0;
}
