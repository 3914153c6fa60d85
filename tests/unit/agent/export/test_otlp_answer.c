/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of receivers: the real ones, and what no receiver should send. */
#include "agent/export/otlp_answer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#define BYTES(text) (text), sizeof(text) - 1

static void test_an_empty_answer_is_a_full_success(void **state)
{
	struct otlp_partial p;

	assert_int_equal(otlp_response_parse(NULL, 0, &p), 0);
	assert_int_equal(p.rejected, 0);
	assert_string_equal(p.message, "");
	assert_int_equal(otlp_response_parse(BYTES("\x0a\x00"), &p), 0);
	assert_int_equal(p.rejected, 0);
}

static void test_partial_success(void **state)
{
	struct otlp_partial p;

	/* {partial_success {rejected_profiles: 300, error_message: "bad"}}, an unknown field around
	 */
	assert_int_equal(otlp_response_parse(BYTES("\x7a\x01z\x0a\x08\x08\xac\x02\x12\x03"
						   "bad"
						   "\x25\x01\x02\x03\x04"),
					     &p),
			 0);
	assert_int_equal(p.rejected, 300);
	assert_string_equal(p.message, "bad");
}

static void test_garbage_is_refused_and_the_output_untouched(void **state)
{
	static const struct {
		const char *data;
		size_t len;
	} rows[] = {
	    {BYTES("\xff\xff\xff")},
	    {BYTES("<html>")},
	    {BYTES("\x0a\x05\x08")},
	    {BYTES("\x0a\x01\x08")},
	    {BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
	    {BYTES("\x00\x01")},
	    {BYTES("\x0b\x0c")},
	    /* rejected_profiles: -1 */
	    {BYTES("\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
	};
	struct otlp_partial p = {.rejected = 42};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(otlp_response_parse(rows[i].data, rows[i].len, &p), -EBADMSG);
		assert_int_equal(p.rejected, 42);
	}
}

static void test_words_are_printable_and_cut_at_a_character(void **state)
{
	char text[OTLP_MESSAGE_MAX * 2], words[OTLP_MESSAGE_MAX];

	otlp_words("a\nb\x1b[31mc\x7f", 10, words);
	assert_string_equal(words, "a b [31mc ");
	memset(text, 'x', sizeof(text));
	memcpy(text + OTLP_MESSAGE_MAX - 3, "\xe2\x82\xac", 3); /* the euro sign, over the edge */
	otlp_words(text, sizeof(text), words);
	assert_int_equal(strlen(words), OTLP_MESSAGE_MAX - 3);
	assert_int_equal(words[OTLP_MESSAGE_MAX - 4], 'x');
	otlp_words(NULL, 0, words);
	assert_string_equal(words, "");
}

/* google.rpc.Status with RetryInfo{retry_delay: DURATION} among other details. */
static int with_retry(const char *duration, size_t len, struct otlp_status *ret)
{
	static const char url[] = "type.googleapis.com/google.rpc.RetryInfo";
	uint8_t any[128], out[256];
	size_t n = 0, o = 0;

	any[n++] = 0x0a;
	any[n++] = sizeof(url) - 1;
	memcpy(any + n, url, sizeof(url) - 1);
	n += sizeof(url) - 1;
	any[n++] = 0x12;
	any[n++] = (uint8_t)(len + 2);
	any[n++] = 0x0a;
	any[n++] = (uint8_t)len;
	memcpy(any + n, duration, len);
	n += len;
	memcpy(out, "\x08\x08\x12\x04slow\x1a\x03\x0a\x01x", 13);
	o = 13;
	out[o++] = 0x1a;
	out[o++] = (uint8_t)n;
	memcpy(out + o, any, n);
	return otlp_status_parse(out, o + n, ret);
}

static void test_retry_info(void **state)
{
	static const struct {
		const char *duration;
		size_t len;
		bool has;
		uint64_t ms;
	} rows[] = {
	    {BYTES("\x08\x05"), true, 5000},
	    {BYTES("\x08\x01\x10\x80\xca\xb5\xee\x01"), true, 1500},
	    {BYTES("\x10\x01"), true, 1}, /* rounded up */
	    {BYTES(""), true, 0},
	    {BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), true, 0}, /* -1 s */
	    {BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), false, 0},
	    {BYTES("\x08"), false, 0},
	};
	struct otlp_status s;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(with_retry(rows[i].duration, rows[i].len, &s), 0);
		assert_int_equal(s.code, 8);
		assert_string_equal(s.message, "slow");
		assert_int_equal(s.has_retry, rows[i].has);
		if (rows[i].has)
			assert_int_equal(s.retry_ms, rows[i].ms);
	}
}

static void test_status_without_retry_info(void **state)
{
	struct otlp_status s;

	/* details: an Any that ends like RetryInfo's name does not, and one of another type */
	assert_int_equal(otlp_status_parse(BYTES("\x08\x08\x1a\x12\x0a\x10google.rpc.Retry"), &s),
			 0);
	assert_false(s.has_retry);
	assert_int_equal(otlp_status_parse(BYTES("<html><body>no</body></html>"), &s), -EBADMSG);
	assert_int_equal(otlp_status_parse(NULL, 0, &s), 0);
	assert_int_equal(s.code, 0);
}

static void test_what_the_body_of_a_failure_says(void **state)
{
	static const struct {
		const char *body;
		size_t len;
		const char *words; /* NULL: nothing */
	} rows[] = {
	    {BYTES("\x08\x03\x12\x03"
		   "bad"),
	     "bad"},
	    {BYTES("\n unsupported profile format\r\n"), "unsupported profile format"},
	    {BYTES("{\"code\":\"invalid\",\n\"message\":\"no\"}"),
	     "{\"code\":\"invalid\", \"message\":\"no\"}"},
	    {BYTES(" <html><body>502</body></html>"), NULL},
	    {BYTES("\x01\x02\x03"), NULL},
	    {BYTES("half\0text"), NULL},
	    {BYTES(" \n"), NULL},
	    {BYTES(""), NULL},
	};
	char words[OTLP_MESSAGE_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool said = otlp_body_words(rows[i].body, rows[i].len, words);

		assert_int_equal(said, rows[i].words != NULL);
		if (said)
			assert_string_equal(words, rows[i].words);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_an_empty_answer_is_a_full_success),
	    cmocka_unit_test(test_partial_success),
	    cmocka_unit_test(test_garbage_is_refused_and_the_output_untouched),
	    cmocka_unit_test(test_words_are_printable_and_cut_at_a_character),
	    cmocka_unit_test(test_retry_info),
	    cmocka_unit_test(test_status_without_retry_info),
	    cmocka_unit_test(test_what_the_body_of_a_failure_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
