/* SPDX-License-Identifier: Apache-2.0 */
/* The outer frames that two stacks share, against a search that tries every pair of places. */
#include "agent/window/outer_frames.h"
#include "tests/support/test.h"

enum { WORDS_MAX = 24, ROUNDS = 30000 };

static uint32_t random_below(uint32_t n)
{
	static uint64_t state = 88172645463325252ULL;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32) % n;
}

static uint64_t native_word(void)
{
	return (uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT | (1 + random_below(3));
}

static uint64_t runtime_word(void)
{
	return (uint64_t)KILN_FRAME_RUNTIME(1) << KILN_FRAME_KIND_SHIFT | random_below(2);
}

/* Frames of one and of two words; second words look like any word. The last frame may be cut. */
static uint32_t make(uint64_t *words, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		words[i] = random_below(2) ? native_word() : runtime_word();
	return n;
}

/* The number of frames from word AT to the end; -1: no frame begins at AT. */
static int frames_from(const uint64_t *words, uint32_t n, uint32_t at)
{
	int frames = 0;

	for (uint32_t i = 0; i < n; i += kiln_frame_words(words[i])) {
		if (i == at)
			frames = 1;
		else if (frames)
			frames++;
	}
	return frames ? frames : at == n ? 0 : -1;
}

static uint32_t first_shared(const uint64_t *a, uint32_t n_a, const uint64_t *b, uint32_t n_b)
{
	for (uint32_t at = n_a > n_b ? n_a - n_b : 0; at < n_a; at++) {
		uint32_t at_b = at + n_b - n_a;

		if (frames_from(a, n_a, at) > 0 && frames_from(b, n_b, at_b) > 0 &&
		    memcmp(a + at, b + at_b, (n_a - at) * sizeof(*a)) == 0)
			return at;
	}
	return n_a;
}

static void the_first_place_from_which_on_both_are_alike(void **state)
{
	uint64_t a[WORDS_MAX], b[WORDS_MAX];
	uint32_t shared = 0;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t n_a = make(a, random_below(WORDS_MAX + 1)),
			 n_b = make(b, random_below(WORDS_MAX + 1)),
			 same = random_below(MIN(n_a, n_b) + 1);
		struct outer_frames got;

		memcpy(b + n_b - same, a + n_a - same, same * sizeof(*a));
		got = outer_frames_shared(a, n_a, b, n_b);
		assert_int_equal(got.at, first_shared(a, n_a, b, n_b));
		if (got.at == n_a)
			continue;
		shared++;
		assert_int_equal(got.frames,
				 frames_from(b, n_b, 0) - frames_from(b, n_b, got.at + n_b - n_a));
	}
	assert_true(shared > ROUNDS / 4);
}

static void nothing_is_shared_with_nothing(void **state)
{
	const uint64_t word = 1;
	struct outer_frames got = outer_frames_shared(&word, 1, NULL, 0);

	assert_int_equal(got.at, 1);
	got = outer_frames_shared(NULL, 0, &word, 1);
	assert_int_equal(got.at, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_first_place_from_which_on_both_are_alike),
	    cmocka_unit_test(nothing_is_shared_with_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
