/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed messages of others, whole and damaged. */
#include "lib/gzip.h"

#include "tests/support/test.h"

static void test_gzip_of_others(void **state)
{
	char text[5000], packed[6000], broken[6000];
	uint8_t *plain = NULL;
	size_t len = 0, n = 0;

	memset(text, 'x', sizeof(text));
	assert_int_equal(gzip_compress(GZIP_FAST, text, sizeof(text), packed, sizeof(packed), &len),
			 0);
	assert_int_equal(gzip_expand(packed, len, sizeof(text), &plain, &n), 0);
	assert_int_equal(n, sizeof(text));
	assert_memory_equal(plain, text, n);
	free(plain);
	plain = NULL;
	assert_int_equal(gzip_expand(packed, len, sizeof(text) - 1, &plain, &n), -E2BIG);
	for (size_t i = 0; i < len; i++) { /* every cut; one flipped bit in each byte */
		assert_true(gzip_expand(packed, i, sizeof(text), &plain, &n) < 0);
		memcpy(broken, packed, len);
		broken[i] ^= 1;
		/* Some bits have no effect: in the header, and behind the last symbol. */
		if (gzip_expand(broken, len, sizeof(text), &plain, &n) == 0) {
			assert_int_equal(n, sizeof(text));
			assert_memory_equal(plain, text, n);
		}
		free(plain);
		plain = NULL;
	}
	packed[len] = 0;
	assert_int_equal(gzip_expand(packed, len + 1, sizeof(text), &plain, &n), -EBADMSG);
	/* The trailer tells a smaller size than the data has. */
	memcpy(broken, packed, len);
	memset(broken + len - 4, 0, 4);
	assert_int_equal(gzip_expand(broken, len, sizeof(text), &plain, &n), -EBADMSG);
	assert_null(plain);
	/* Data that is no gzip is refused as such, whatever size its last bytes tell. */
	assert_int_equal(gzip_expand("this is no gzip", 15, 100, &plain, &n), -EBADMSG);
	assert_int_equal(gzip_expand("", 0, 100, &plain, &n), -EBADMSG);
	/* Nothing, packed. */
	assert_int_equal(gzip_compress(GZIP_FAST, "", 0, packed, sizeof(packed), &len), 0);
	assert_int_equal(gzip_expand(packed, len, 0, &plain, &n), 0);
	assert_int_equal(n, 0);
	free(plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_gzip_of_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
