/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that lie: they are not read for ever, and nothing is taken from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/hotspot/hotspot.h"

enum { WORDS = 8192, BASE = 0x10000, TABLE = BASE + 1024, ROUNDS = 200 };

static uint64_t words[WORDS];
static uint64_t reads;
static struct error err;

static int read_words(void *arg, uint64_t address, void *dst, size_t len)
{
	reads++;
	if (address < BASE || address - BASE > sizeof(words) ||
	    len > sizeof(words) - (address - BASE))
		return -EFAULT;
	memcpy(dst, (const uint8_t *)words + (address - BASE), len);
	return 0;
}

static const struct target_memory memory = {.read = read_words};

/* Variable I is at BASE + 8 * I. */
static struct hotspot_image image_of(void)
{
	struct hotspot_image image = {0};

	for (size_t i = 0; i < HOTSPOT_SYMBOLS; i++)
		image.symbols[i] = BASE + i * 8;
	return image;
}

static int read_layout(struct hotspot_layout *ret)
{
	const struct hotspot_image image = image_of();
	int r;

	err = (struct error){0};
	reads = 0;
	r = hotspot_layout_read(&image, 0, &memory, ret, &err);
	assert_true(r != -ENOTSUP || err.message[0]);
	return r;
}

static void lie(uint64_t stride, uint64_t at)
{
	memset(words, 0, sizeof(words));
	words[HOTSPOT_STRUCTS] = words[HOTSPOT_TYPES] = words[HOTSPOT_INTS] = at;
	words[HOTSPOT_STRUCT_STRIDE] = words[HOTSPOT_TYPE_STRIDE] = words[HOTSPOT_INT_STRIDE] =
	    stride;
	words[HOTSPOT_STRUCT_FIELD] = 8;
	words[HOTSPOT_STRUCT_STATIC] = 24;
	words[HOTSPOT_STRUCT_OFFSET] = 32;
	words[HOTSPOT_STRUCT_ADDRESS] = 40;
	words[HOTSPOT_TYPE_SIZE] = 32;
	words[HOTSPOT_INT_VALUE] = 8;
}

static void test_a_library_that_is_being_loaded_is_tried_again(void **state)
{
	struct hotspot_layout layout;

	lie(0, 0);
	assert_int_equal(read_layout(&layout), -EAGAIN);
	lie(56, 0);
	assert_int_equal(read_layout(&layout), -EAGAIN);
}

static void test_strides_that_make_no_sense_are_refused(void **state)
{
	static const uint64_t strides[] = {1, 7, 257, 1 << 20, UINT64_MAX, UINT64_MAX - 7};
	struct hotspot_layout layout;

	for (size_t i = 0; i < ARRAY_SIZE(strides); i++) {
		lie(strides[i], TABLE);
		assert_int_equal(read_layout(&layout), -ENOTSUP);
		assert_non_null(strstr(err.message, "make no sense"));
	}
	lie(56, TABLE);
	words[HOTSPOT_STRUCT_ADDRESS] = UINT64_MAX - 3;
	assert_int_equal(read_layout(&layout), -ENOTSUP);
}

static void test_empty_tables_say_what_is_missing(void **state)
{
	struct hotspot_layout layout;

	lie(56, TABLE);
	assert_int_equal(read_layout(&layout), -ENOTSUP);
}

/* Each entry's name points to the entry itself: a text without an end. */
static void test_tables_without_an_end_are_left(void **state)
{
	struct hotspot_layout layout;

	lie(8, TABLE);
	for (size_t i = (TABLE - BASE) / 8; i < WORDS; i++)
		words[i] = BASE + i * 8;
	assert_int_equal(read_layout(&layout), -ENOTSUP);
	assert_true(reads < 100000);
}

static void test_random_tables_end(void **state)
{
	struct hotspot_layout layout;
	uint64_t seed = 1;

	for (int k = 0; k < ROUNDS; k++) {
		lie(8 + (uint64_t)k % 64 * 4, k % 7 ? TABLE : BASE);
		for (size_t i = k % 5 ? (TABLE - BASE) / 8 : 0; i < WORDS; i++) {
			seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
			words[i] = seed >> 62 ? BASE + (seed >> 32) % sizeof(words) : seed;
		}
		assert_true(read_layout(&layout) < 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_library_that_is_being_loaded_is_tried_again),
	    cmocka_unit_test(test_strides_that_make_no_sense_are_refused),
	    cmocka_unit_test(test_empty_tables_say_what_is_missing),
	    cmocka_unit_test(test_tables_without_an_end_are_left),
	    cmocka_unit_test(test_random_tables_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
