/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/text.h"
#include "tests/support/test.h"

static void expect(const char *bytes, size_t len, const char *want)
{
	char text[64];

	label_text_copy(text, bytes, len);
	assert_string_equal(text, want);
}

static void utf8_is_copied(void **state)
{
	expect("tenant", 6, "tenant");
	expect("", 0, "");
	expect("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
}

static void what_is_no_utf8_is_marked(void **state)
{
	expect("a\0b", 3, "a?b");
	expect("\xff\xfe", 2, "??");
	expect("\xc0\xaf", 2, "??");	       /* overlong */
	expect("\xe0\x80\x80", 3, "???");      /* overlong */
	expect("\xed\xa0\x80", 3, "???");      /* a surrogate */
	expect("\xf5\x80\x80\x80", 4, "????"); /* beyond U+10FFFF */
	expect("\xc3(", 2, "?(");
}

static void a_character_that_is_cut_off_is_left_out(void **state)
{
	expect("a\xc3", 2, "a");
	expect("a\xe2\x82", 3, "a");
	expect("a\xf0\x9f\x98", 4, "a");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(utf8_is_copied),
	    cmocka_unit_test(what_is_no_utf8_is_marked),
	    cmocka_unit_test(a_character_that_is_cut_off_is_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
