/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/labels/decode.h"
#include "tests/support/test.h"

static struct label_list list;
static struct {
	struct kiln_labels head;
	uint8_t bytes[KILN_LABEL_BYTES];
} record;

static void clear(void)
{
	memset(&record, 0, sizeof(record));
}

static int decode(const struct label_context *context)
{
	return label_decode(&record.head,
			    sizeof(record.head) + record.head.n_attributes + record.head.n_pairs,
			    context, &list);
}

static void add_pair(const char *key, const char *value)
{
	uint8_t *to = record.bytes + record.head.n_attributes + record.head.n_pairs;
	size_t k = strlen(key), v = strlen(value);

	to[0] = (uint8_t)k;
	to[1] = (uint8_t)v;
	memcpy(to + 2, key, k);
	memcpy(to + 2 + k, value, v);
	record.head.n_pairs += (uint32_t)(2 + k + v);
}

static void add_attribute(uint8_t key, const char *value)
{
	uint8_t *to = record.bytes + record.head.n_attributes;
	size_t v = strlen(value);

	to[0] = key;
	to[1] = (uint8_t)v;
	memcpy(to + 2, value, v);
	record.head.n_attributes += (uint32_t)(2 + v);
}

static void expect(size_t i, const char *key, const char *value)
{
	assert_true(i < list.n);
	assert_string_equal(list.labels[i].key, key);
	assert_string_equal(list.labels[i].value, value);
}

static void a_trace_is_hex(void **state)
{
	clear();
	for (uint8_t i = 0; i < 16; i++)
		record.head.trace_id[i] = (uint8_t)(0x10 + i);
	record.head.span_id[7] = 0xab;
	assert_int_equal(decode(NULL), 0);
	assert_int_equal(list.n, 2);
	assert_true(list.has_trace);
	expect(0, "trace_id", "101112131415161718191a1b1c1d1e1f");
	expect(1, "span_id", "00000000000000ab");
}

static void half_a_trace_is_none(void **state)
{
	clear();
	record.head.span_id[7] = 0xab;
	assert_int_equal(decode(NULL), 0);
	assert_int_equal(list.n, 0);
	assert_false(list.has_trace);
}

static void attributes_have_the_names_of_the_context(void **state)
{
	struct label_context c = {.n = 2, .keys = {(char *)"tenant", (char *)"route"}};

	clear();
	add_attribute(1, "/pay");
	add_attribute(0, "A");
	add_attribute(2, "later");
	assert_int_equal(decode(&c), 0);
	assert_int_equal(list.n, 2);
	expect(0, "route", "/pay");
	expect(1, "tenant", "A");
	assert_true(list.unresolved);
	c.n = 3;
	c.keys[2] = (char *)"more";
	assert_int_equal(decode(&c), 0);
	assert_int_equal(list.n, 3);
	assert_false(list.unresolved);
}

static void an_entry_that_is_not_all_there_ends_the_attributes(void **state)
{
	struct label_context c = {.n = 1, .keys = {(char *)"tenant"}};

	clear();
	add_attribute(0, "A");
	add_attribute(0, "B");
	record.head.n_attributes--;
	assert_int_equal(decode(&c), -EBADMSG);
	assert_int_equal(list.n, 1);
	expect(0, "tenant", "A");
}

static void the_first_of_two_with_one_key_counts(void **state)
{
	clear();
	add_pair("tenant", "A");
	add_pair("tenant", "B");
	add_pair("", "no key");
	add_pair("process.pid", "1");
	assert_int_equal(decode(NULL), 0);
	assert_int_equal(list.n, 1);
	expect(0, "tenant", "A");
}

static void pairs_that_are_ids_are_the_trace(void **state)
{
	clear();
	add_pair("tenant", "A");
	add_pair("span_id", "00000000000000ab");
	add_pair("trace_id", "101112131415161718191a1b1c1d1e1f");
	assert_int_equal(decode(NULL), 0);
	assert_int_equal(list.n, 3);
	assert_true(list.has_trace);
	expect(0, "trace_id", "101112131415161718191a1b1c1d1e1f");
	expect(1, "span_id", "00000000000000ab");
	expect(2, "tenant", "A");
}

static void pairs_that_only_have_their_names_are_not(void **state)
{
	static const char *const values[] = {"1011", "101112131415161718191A1B1C1D1E1F",
					     "00000000000000000000000000000000",
					     "101112131415161718191a1b1c1d1e1fff"};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		clear();
		add_pair("trace_id", values[i]);
		add_pair("span_id", "00000000000000ab");
		assert_int_equal(decode(NULL), 0);
		assert_false(list.has_trace);
	}
}

static void lengths_beyond_the_record_are_refused(void **state)
{
	clear();
	record.head.n_pairs = 100;
	assert_int_equal(label_decode(&record.head, sizeof(record.head) + 99, NULL, &list),
			 -EBADMSG);
	record.head.n_attributes = UINT32_MAX;
	record.head.n_pairs = 2;
	assert_int_equal(label_decode(&record.head, sizeof(record.head) + 1, NULL, &list),
			 -EBADMSG);
	assert_int_equal(label_decode(&record.head, sizeof(record.head) - 1, NULL, &list),
			 -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_trace_is_hex),
	    cmocka_unit_test(half_a_trace_is_none),
	    cmocka_unit_test(attributes_have_the_names_of_the_context),
	    cmocka_unit_test(an_entry_that_is_not_all_there_ends_the_attributes),
	    cmocka_unit_test(the_first_of_two_with_one_key_counts),
	    cmocka_unit_test(pairs_that_are_ids_are_the_trace),
	    cmocka_unit_test(pairs_that_only_have_their_names_are_not),
	    cmocka_unit_test(lengths_beyond_the_record_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
