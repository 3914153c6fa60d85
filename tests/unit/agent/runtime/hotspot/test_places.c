/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of compiled code has a place in the CPU's rule cache and another one in the cache that
 * processes share. Frames that collide in the first cache must not collide in the second one. */
#include "agent/runtime/hotspot/walker_data.h"
#include "tests/support/test.h"

enum { FRAMES = 400 };

static uint64_t first_place(uint64_t pc, uint64_t tag)
{
	return KILN_CACHE_PLACE(pc + tag, KILN_CACHE_ENTRIES);
}

static uint64_t second_place(uint64_t pc, uint64_t tag)
{
	return KILN_CACHE_PLACE(KILN_HOTSPOT_SECOND_KEY(pc) + ~tag, KILN_SHARED_ENTRIES);
}

/* Return addresses of methods that were compiled one after the other. */
static void fill(uint64_t pcs[FRAMES], uint32_t seed)
{
	uint64_t at = 0x7f6a4c000000 + (uint64_t)seed * 0x1357940;

	for (size_t i = 0; i < FRAMES; i++) {
		seed = seed * 1664525 + 1013904223;
		at += 0x180 + (seed >> 24) * 8;
		pcs[i] = at + (seed >> 16 & 0x7f);
	}
}

static void frames_that_share_a_place_have_different_second_ones(void **state)
{
	unsigned int crowded = 0, both = 0;
	uint64_t pcs[FRAMES];

	for (uint32_t seed = 1; seed <= 20; seed++) {
		uint64_t tag = (uint64_t)seed << 32 | (seed * 7);

		fill(pcs, seed);
		for (size_t i = 0; i < FRAMES; i++) {
			for (size_t j = 0; j < i; j++) {
				if (first_place(pcs[i], tag) != first_place(pcs[j], tag))
					continue;
				crowded++;
				both += second_place(pcs[i], tag) == second_place(pcs[j], tag);
			}
		}
	}
	assert_true(crowded > 200);
	/* By chance one of KILN_SHARED_ENTRIES pairs. */
	assert_true(both <= crowded / 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(frames_that_share_a_place_have_different_second_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
