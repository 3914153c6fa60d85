/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner itself: where objects end, escapes, and numbers. */
#include "operator/kube/json_scan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void check_string(const char *json, const char *want, size_t n)
{
	uint8_t scratch[128];
	struct json j = json_of((const uint8_t *)json, strlen(json), scratch);
	struct slice s = json_string(&j);

	if (j.c.bad || s.n != n || memcmp(s.p, want, n) != 0)
		fail_msg("%s became %.*s", json, (int)s.n, s.p ? s.p : "nothing");
	assert_int_equal(j.c.pos, strlen(json));
}

static void test_strings_lose_their_escapes(void **state)
{
	(void)state;
	check_string("\"\"", "", 0);
	check_string("\"plain and long enough for words\"", "plain and long enough for words", 31);
	check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
	check_string("\"a\\u0041\\u00e9\\u20ac\\ud83d\\udd25z\"",
		     "aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5z", 12);
	check_string("\"\\u0000\"", "\0", 1);
	/* Halves of a pair stand for nothing: U+FFFD each, and what follows is read as itself. */
	check_string("\"\\ud83d\"", "\xef\xbf\xbd", 3);
	check_string("\"\\udd25x\"", "\xef\xbf\xbdx", 4);
	check_string("\"\\ud83d\\u0041\"",
		     "\xef\xbf\xbd"
		     "A",
		     4);
	check_string("\"\\ud83d\\n\"", "\xef\xbf\xbd\n", 4);
	check_string("\"\\ud83d\\ud83d\\udd25\"", "\xef\xbf\xbd\xf0\x9f\x94\xa5", 7);
}

static void test_broken_strings_are_bad(void **state)
{
	static const char *const broken[] = {
	    "\"",	 "\"a",		"\"\\\"",	    "\"\\", "\"\\q\"",
	    "\"\\u12\"", "\"\\u00g0\"", "\"\\ud83d\\u12\"", "a",    ""};
	uint8_t scratch[32];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
		struct json j = json_of((const uint8_t *)broken[i], strlen(broken[i]), scratch);

		(void)json_string(&j);
		if (!j.c.bad)
			fail_msg("taken: %s", broken[i]);
	}
}

static int64_t integer(const char *s, bool *bad)
{
	struct json j = json_of((const uint8_t *)s, strlen(s), NULL);
	int64_t v = json_int(&j);

	*bad = j.c.bad;
	return v;
}

static void test_integers(void **state)
{
	bool bad;

	(void)state;
	assert_int_equal(integer("0", &bad), 0);
	assert_int_equal(integer(" -17", &bad), -17);
	assert_true(integer("9223372036854775807", &bad) == INT64_MAX && !bad);
	assert_int_equal(integer("null", &bad), 0);
	assert_false(bad);
	assert_int_equal(integer("9223372036854775808", &bad), 0);
	assert_true(bad);
	assert_int_equal(integer("18446744073709551617", &bad), 0);
	assert_true(bad);
	assert_int_equal(integer("-", &bad), 0);
	assert_true(bad);
}

/* A document of pieces that matter to the cutter, at random. Always one object. */
static size_t random_object(uint64_t seed, char *out, size_t max)
{
	static const char *const inner[] = {"\"a\":\"\\\"\"",
					    "\"]}\":1",
					    "\"\\\\\":[]",
					    "\"x\":{\"y\":[{},[]]}",
					    "\"long one, without any\":null",
					    "\"\\\\\\\"\":\"{[\"",
					    "\"e\":\"\""};
	char stack[32];
	size_t n = 0, depth = 1;

	out[n++] = '{';
	for (int i = 0; i < 40; i++) {
		uint64_t r = mix64(seed * 1000 + (uint64_t)i);

		if (n + 64 > max)
			break;
		if (r % 5 == 0 && depth < sizeof(stack)) {
			n += (size_t)sprintf(out + n, "\"k\":{");
			depth++;
		} else if (r % 5 == 1 && depth > 1) {
			n += (size_t)sprintf(out + n, "},");
			depth--;
		} else {
			n += (size_t)sprintf(out + n, "%s,", inner[r / 5 % ARRAY_SIZE(inner)]);
		}
	}
	while (depth--)
		out[n++] = '}';
	return n;
}

static void test_objects_are_cut_alike_in_any_pieces(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		char doc[2048 + 8];
		size_t n = random_object(seed, doc, 2048);

		memcpy(doc + n, "}\"{]", 4); /* what follows is not looked at */
		for (size_t split = 0; split <= n; split++) {
			struct json_cut k = {0};
			size_t first = json_cut(&k, (const uint8_t *)doc, split), second = 0;

			if (first < split)
				fail_msg("seed %d: ends at %zu", (int)seed, first);
			if (split < n)
				second = json_cut(&k, (const uint8_t *)doc + split, n + 4 - split);
			if (first + second != n || k.depth || k.in_string)
				fail_msg("seed %d, split %zu: %zu of %zu", (int)seed, split,
					 first + second, n);
		}
	}
}

static void test_members_are_walked(void **state)
{
	static const char doc[] =
	    " { \"a\" : 1 , \"b\":[ 1, \"x\" ,{}, [] ,null,true ] ,\"c\":{} , \"d\":\"\"}";
	struct json j = json_of((const uint8_t *)doc, sizeof(doc) - 1, NULL);
	char keys[8] = "";
	struct slice key;
	int elements = 0;

	(void)state;
	assert_true(json_enter(&j, JSON_OBJECT));
	while (json_key(&j, &key)) {
		strncat(keys, key.p, key.n);
		if (SLICE_IS(key, "b")) {
			assert_true(json_enter(&j, JSON_ARRAY));
			for (; json_element(&j); elements++)
				json_skip(&j);
		} else {
			json_skip(&j);
		}
	}
	assert_int_equal(json_error(&j), 0);
	assert_string_equal(keys, "abcd");
	assert_int_equal(elements, 6);
	assert_int_equal(cursor_left(&j.c), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_strings_lose_their_escapes),
	    cmocka_unit_test(test_broken_strings_are_bad),
	    cmocka_unit_test(test_integers),
	    cmocka_unit_test(test_objects_are_cut_alike_in_any_pieces),
	    cmocka_unit_test(test_members_are_walked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
