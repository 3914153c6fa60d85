// SPDX-License-Identifier: Apache-2.0
/*
 * Any file may export gHotSpotVMStructs. The input changes words of a small JVM's memory
 * (tests/unit/agent/runtime/hotspot/forged.h), ten bytes for each: where, and the word. Attaching
 * to it, reading its code and naming its frames is bounded.
 */
#include "tests/unit/agent/runtime/hotspot/forged.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { READS_MAX = 1 << 18 };

static void name_frames(struct runtime_target *target, void *state)
{
	static char scratch[1 << 16];
	static const uint64_t frames[][2] = {
	    {FORGED_COMPILED_PC,
	     KILN_HOTSPOT_CODE(FORGED_COMPILED_ID, FORGED_COMPILED_PC - FORGED_COMPILED_BLOB)},
	    {(uint64_t)KILN_HOTSPOT_STUB << KILN_FRAME_FLAG_SHIFT | FORGED_STUB_PC,
	     KILN_HOTSPOT_CODE(0, KILN_HOTSPOT_DISTANCE_MAX)},
	    {(uint64_t)KILN_HOTSPOT_INTERPRETED << KILN_FRAME_FLAG_SHIFT | FORGED_METHOD, 0},
	};
	const struct hotspot_process *p = state;

	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		struct symbol_result got = {0};
		uint64_t words[2] = {frames[i][0], frames[i][1]}, own[HOTSPOT_OWN_N];
		uint32_t cookie;

		if (i == 2 &&
		    hotspot_method_cookie(p, &target->memory, FORGED_METHOD, own, &cookie) == 0)
			words[1] = (uint64_t)cookie << 48;
		if (hotspot_ops.symbolize(state, &target->memory, words, scratch, sizeof(scratch),
					  &got) == 0)
			for (uint32_t k = 0; k < got.n; k++)
				if (strlen(got.symbols[k].name) + strlen(got.symbols[k].file) >
				    sizeof(scratch))
					abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct forged f;
	struct cursor c = cursor_of(data, size);
	struct runtime_target target = forged_target(&f);
	struct kiln_runtime kernel;
	struct error err = {0};
	void *state;
	int r;

	forged_init(&f);
	while (cursor_left(&c) >= 10) {
		uint64_t at = cursor_u16(&c), word = cursor_u64(&c);

		forged_word(&f, FORGED_BASE + MIN(at, (uint64_t)FORGED_BYTES - 8), word);
	}
	r = hotspot_ops.attach(&f.image.base, &target, &kernel, &state, &err);
	if (r == -ENOTSUP && !err.message[0])
		abort();
	if (r < 0)
		return 0;
	for (int lost = 0; lost < 2; lost++) {
		struct unwind_table *t = NULL;

		if (hotspot_ops.read_code(state, &target.memory, lost, &kernel, &t) == 0)
			unwind_table_free(t);
	}
	name_frames(&target, state);
	hotspot_ops.detach(state);
	if (f.reads > READS_MAX)
		abort();
	return 0;
}
