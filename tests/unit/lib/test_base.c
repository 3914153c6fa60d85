/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base.h"
#include "tests/support/test.h"

enum { N = 4 };

static const uint64_t seeds[] = {1, 0x123456789abcdef, 0x8000000000000000, 0x9e3779b97f4a7c15};

/* Whether WORDS[AT] makes a difference to the hash. */
static bool has_effect(uint64_t words[N], size_t at, uint64_t seed)
{
	uint64_t before = hash_words(words, N, seed);
	bool differs;

	words[at] ^= 1;
	differs = hash_words(words, N, seed) != before;
	words[at] ^= 1;
	return differs;
}

/*
 * A word that makes its factor 0 hides the word that it is multiplied with. That word must depend
 * on the seed, so it is none of the constants in hash_words(), alone or with N.
 */
static void no_word_hides_another_for_every_seed(void **state)
{
	static const uint64_t constants[] = {0x3c6ef372fe94f82b, 0x6a09e667f3bcc909,
					     0xa54ff53a5f1d36f1, 0xbb67ae8584caa73b};
	uint64_t words[N] = {};

	for (size_t seed = 0; seed < ARRAY_SIZE(seeds); seed++)
		for (size_t at = 0; at < N; at++)
			for (size_t c = 0; c < ARRAY_SIZE(constants); c++)
				for (size_t flip = 0; flip <= N; flip += N) {
					words[at] = constants[c] ^ flip;
					assert_true(has_effect(words, at ^ 1, seeds[seed]));
					words[at] = 0;
				}
}

static void every_word_and_the_seed_have_an_effect(void **state)
{
	uint64_t words[N] = {1, 2, 3, 4};

	for (size_t at = 0; at < N; at++)
		assert_true(has_effect(words, at, seeds[0]));
	assert_int_not_equal(hash_words(words, N, seeds[0]), hash_words(words, N, seeds[1]));
	assert_int_not_equal(hash_words(words, N, 0), hash_words(words, N - 1, 0));
	assert_int_not_equal(hash_words(words, 0, 0), hash_words(words, 0, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(no_word_hides_another_for_every_seed),
	    cmocka_unit_test(every_word_and_the_seed_have_an_effect),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
