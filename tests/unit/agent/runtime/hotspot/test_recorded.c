/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk and the names over recordings of HotspotWork.java: VERSION-KIND.rec was made by
 * hack/record-hotspot, and must give what is written here. Then the same with bytes of it changed:
 * whatever comes of it, it ends, and within its bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bpf/arch.h"
#include "tests/unit/agent/runtime/hotspot/world.h"

enum { CHANGES = 3000, OUT_BYTES = 1 << 16 };

static char out[OUT_BYTES];

/* Innermost first, each line the beginning of one of those printed. Stubs have no names here: which
 * there are is not recorded. */
static const char calls[] = "kiln.HotspotWork.burn HotspotWork.java:4\n"
			    "kiln.HotspotWork$Circle.twice HotspotWork.java:106\n"
			    "kiln.HotspotWork$Circle.area HotspotWork.java:102\n"
			    "kiln.HotspotWork.calls HotspotWork.java:129\n"
			    "kiln.HotspotWork.once HotspotWork.java:331\n"
			    "kiln.HotspotWork.run HotspotWork.java:360\n"
			    "kiln.HotspotWork$Worker.run HotspotWork.java:80\n"
			    "?\n"
			    "native\n";

/* Through C and back. */
#define BACK                                                                                       \
	"kiln.HotspotWork.callBack HotspotWork.java:211\n"                                         \
	"?\n"                                                                                      \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"native\n"                                                                                 \
	"kiln.HotspotWork.call HotspotWork.java:0\n"

static const char jni[] = "kiln.HotspotWork.burn HotspotWork.java:4\n" BACK BACK BACK BACK
			  "kiln.HotspotWork.jni HotspotWork.java:215\n"
			  "kiln.HotspotWork.once HotspotWork.java:341\n"
			  "kiln.HotspotWork.run HotspotWork.java:360\n"
			  "kiln.HotspotWork$Worker.run HotspotWork.java:80\n"
			  "?\n"
			  "native\n";

static const struct {
	const char *name, *stack;
} recordings[] = {
    {"8-compiled", calls},  {"8-interpreted", calls},  {"8-native", jni},
    {"28-compiled", calls}, {"28-interpreted", calls}, {"28-native", jni},
};

static struct world *load(const char *name)
{
	char path[256];
	struct world *w;

	snprintf(path, sizeof(path), "%s/hotspot/%s.rec", TEST_DATA, name);
	assert_int_equal(world_load(path, &w), 0);
	return w;
}

/* Do the lines of TEXT begin as those of WANT do? */
static void assert_stack(const char *text, const char *want)
{
	while (*want) {
		size_t n = strcspn(want, "\n");

		if (strncmp(text, want, n) != 0)
			fail_msg("want: %.*s, got: %.80s", (int)n, want, text);
		text += strcspn(text, "\n") + 1;
		want += n + 1;
	}
}

static void test_recorded_stacks(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		struct world *w = load(recordings[i].name);

		world_stack(w, out, sizeof(out));
		assert_int_equal(w->walk.end, KILN_END_ROOT);
		assert_stack(out, recordings[i].stack);
		world_free(w);
	}
}

/* As long as the kernel knows nothing of the process there is no frame, and a word about it. */
static void test_what_is_not_attached_to_is_said(void **state)
{
	struct world *w = load("28-compiled");

	w->walk.unread = true;
	world_stack(w, out, sizeof(out));
	assert_non_null(strstr(out, "missing "));
	assert_null(strstr(out, "kiln."));
	world_free(w);
}

/* A method whose cookie, or code whose id, is another by now has no name. */
static void test_what_has_changed_has_no_name(void **state)
{
	const struct target_memory nothing = {.read = recorded_walk_memory};
	static char scratch[OUT_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		struct world *w = load(recordings[i].name);
		struct target_memory memory = nothing;
		struct symbol_result symbols = {.n = 0};
		uint64_t frame[2];

		memory.arg = &w->walk;
		world_walk(w);
		assert_int_equal(KILN_FRAME_KIND(w->words[0]),
				 KILN_FRAME_RUNTIME(KILN_RUNTIME_HOTSPOT));
		memcpy(frame, w->words, sizeof(frame));
		assert_int_equal(hotspot_ops.symbolize(&w->process, &memory, frame, scratch,
						       sizeof(scratch), &symbols),
				 0);
		assert_string_equal(symbols.symbols[0].name, "kiln.HotspotWork.burn");
		/* The id in its lowest bits, or the cookie in its highest. */
		frame[1] ^= 1 | 1ULL << 48;
		symbols.n = 0;
		assert_int_not_equal(hotspot_ops.symbolize(&w->process, &memory, frame, scratch,
							   sizeof(scratch), &symbols),
				     0);
		world_free(w);
	}
}

static void test_changed_bytes_end(void **state)
{
	uint32_t seed = 1;

	for (size_t i = 0; i < ARRAY_SIZE(recordings); i++) {
		for (int k = 0; k < CHANGES / (int)ARRAY_SIZE(recordings); k++) {
			struct world *w = load(recordings[i].name);

			for (int n = 0; n < 1 + k % 16 && w->walk.n_bytes; n++) {
				seed = seed * 1664525 + 1013904223;
				w->walk.bytes[(seed >> 4) % w->walk.n_bytes] ^=
				    (uint8_t)(1U << (seed >> 29));
			}
			/* Offsets too: what a process's own tables say. */
			if (k % 4 == 3)
				((uint8_t *)&w->process
				     .layout)[(seed >> 8) % sizeof(w->process.layout)] ^=
				    (uint8_t)seed;
			if (k % 4 == 2)
				((uint8_t *)&w->process
				     .kernel)[(seed >> 8) % sizeof(w->process.kernel)] ^=
				    (uint8_t)seed;
			world_stack(w, out, sizeof(out));
			assert_true(w->n_words <= KILN_MAX_USER_WORDS);
			world_free(w);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_recorded_stacks),
	    cmocka_unit_test(test_what_is_not_attached_to_is_said),
	    cmocka_unit_test(test_what_has_changed_has_no_name),
	    cmocka_unit_test(test_changed_bytes_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
