// SPDX-License-Identifier: Apache-2.0
/*
 * The input changes the small .NET runtime of tests/unit/agent/runtime/dotnet/small.h: pieces of
 * {place, 2 bytes; length, 1 byte; that many bytes}. Attaching, walking its stack and naming the
 * frames must end, and names too.
 */
#include "tests/unit/agent/runtime/dotnet/host_walk.h"
#include "tests/unit/agent/runtime/dotnet/small.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	READS_MAX = 1 << 20,
	WALK_READS_MAX = 256 * 1024,
	NAMED_MAX = 16,
	SCRATCH = 256,
	PLACE_UNIT = 4,
};

static void change(struct small *s, const uint8_t *data, size_t size)
{
	struct cursor c = cursor_of(data, size);

	while (cursor_left(&c) > 3) {
		uint64_t at = SMALL_BASE + (uint64_t)cursor_u16(&c) * PLACE_UNIT;
		size_t n = cursor_u8(&c);

		n = MIN(n, cursor_left(&c));
		small_put(s, at, cursor_bytes(&c, n), n);
	}
}

static void name(void *state, const struct target_memory *memory, const uint64_t words[2])
{
	struct symbol_result got = {0};
	char scratch[SCRATCH];
	const char *text;

	if (dotnet_ops.symbolize(state, memory, words, scratch, sizeof(scratch), &got) < 0)
		return;
	if (got.n != 1)
		abort();
	text = got.symbols[0].name;
	if (text >= scratch && text < scratch + SCRATCH &&
	    !memchr(text, 0, SCRATCH - (size_t)(text - scratch)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t places[] = {SMALL_TOTAL, SMALL_TOTAL_EPILOGUE, SMALL_MADE + 0x40,
					  SMALL_AHEAD_HANDLER + 4, SMALL_STUBS};
	static struct small small;
	struct runtime_target target;
	struct kiln_runtime kernel;
	struct error err = {0};
	void *state;

	small_init(&small);
	if (size % 2) { /* the first method is one of a generic type */
		small_generic(&small, 3, 8);
		small_compile(&small, small_method(4));
	}
	change(&small, data, size);
	target = small_target(&small);
	if (dotnet_ops.attach(&small.image.base, &target, &kernel, &state, &err) < 0)
		return 0;
	(void)dotnet_ops.owns(state, &target.memory, SMALL_HEAP, SMALL_HEAP + 0x1000);
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		struct kiln_regs regs = {
		    .pc = places[i], .sp = SMALL_STACK, .fp = SMALL_STACK + 0x40};
		uint32_t n =
		    host_walk(&target.memory, &kernel, &regs, SMALL_BASE, SMALL_STUBS + 0x1000);

		if (host.walk.runtime_frames > KILN_MAX_USER_FRAMES || host.reads > WALK_READS_MAX)
			abort();
		for (uint32_t k = 0, named = 0; k + 1 < n && named < NAMED_MAX;
		     k += kiln_frame_words(host.words[k]), named++)
			if (kiln_frame_runtime(host.words[k]))
				name(state, &target.memory, host.words + k);
	}
	if (small.reads > READS_MAX)
		abort();
	dotnet_ops.detach(state);
	return 0;
}
