/* SPDX-License-Identifier: Apache-2.0 */
/* What the front end is made of: where a ClientHello ends, who has the most, how many there may be.
 */
#include <arpa/inet.h>
#include <netinet/in.h>

#include "operator/frontend/hello.h"
#include "operator/frontend/internal.h"
#include "tests/support/test.h"

static void a_client_hello_says_how_long_it_is(void **state)
{
	const uint8_t hello[HELLO_START] = {22, 3, 1, 2, 0, 1, 0, 1, 0xfc};
	size_t n = 0;

	assert_int_equal(hello_length(hello, &n), 0);
	assert_int_equal(n, 5 + 512);
}

static void what_is_no_client_hello_in_one_record_is_refused(void **state)
{
	static const struct {
		uint8_t start[HELLO_START];
		int r;
	} rows[] = {
	    {{'G', 'E', 'T', ' ', '/', ' ', 'H', 'T', 'T'}, -EBADMSG},
	    {{23, 3, 1, 2, 0, 1, 0, 1, 0xfc}, -EBADMSG}, /* application data */
	    {{22, 2, 1, 2, 0, 1, 0, 1, 0xfc}, -EBADMSG}, /* SSL 2 */
	    {{22, 3, 1, 2, 0, 2, 0, 1, 0xfc}, -EBADMSG}, /* ServerHello */
	    {{22, 3, 1, 2, 0, 1, 0, 1, 0xfd}, -EBADMSG}, /* goes on in the next record */
	    {{22, 3, 1, 2, 0, 1, 0, 1, 0xfb}, -EBADMSG}, /* and one more message */
	    {{22, 3, 1, 0x1f, 0xfc, 1, 0, 0x1f, 0xf8}, -EMSGSIZE},
	    {{22, 3, 1, 0x10, 0, 1, 1, 0, 0}, -EMSGSIZE}, /* 64 KiB in many records */
	};
	size_t n = 7;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(hello_length(rows[i].start, &n), rows[i].r);
		assert_int_equal(n, 7);
	}
}

static void the_largest_client_hello_is_taken(void **state)
{
	const uint8_t hello[HELLO_START] = {22, 3, 3, 0x1f, 0xfb, 1, 0, 0x1f, 0xf7};
	size_t n = 0;

	assert_int_equal(hello_length(hello, &n), 0);
	assert_int_equal(n, HELLO_MAX);
}

static void frames_are_counted_wherever_they_are_cut(void **state)
{
	static const uint8_t wire[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
				      "\0\0\0\4\0\0\0\0\0"
				      "\0\0\3\1\4\0\0\0\1"
				      "abc"
				      "\0\0\1\11\4\0\0\0\1"
				      "d"
				      "\0\0\4\0\1\0\0\0\1"
				      "\1\1\1\1";
	size_t len = sizeof(wire) - 1;

	for (size_t step = 1; step <= len; step++) {
		struct frames f = {0};

		for (size_t at = 0; at < len; at += step)
			assert_int_equal(frames_read(&f, wire + at, MIN(step, len - at)), 0);
		assert_int_equal(f.all, 4);
		assert_int_equal(f.calls, 2);
		assert_int_equal(f.left + f.n_header, 0);
	}
}

static void another_protocol_is_no_http2(void **state)
{
	struct frames f = {0}, g = {0};

	assert_int_equal(frames_read(&f, (const uint8_t *)"PRI * HTTP/2.1", 14), -EPROTO);
	assert_int_equal(frames_read(&g, (const uint8_t *)"\0\0\0\4\0", 5), -EPROTO);
}

static void a_frame_has_a_largest_length(void **state)
{
	const uint8_t fits[] = {0, 0x40, 0, 0, 0, 0, 0, 0, 0},
		      larger[] = {0, 0x40, 1, 0, 0, 0, 0, 0, 0};
	struct frames f = {.preface = FRAMES_PREFACE}, g = {.preface = FRAMES_PREFACE};

	assert_int_equal(frames_read(&f, fits, sizeof(fits)), 0);
	assert_int_equal(f.left, FRAMES_LENGTH_MAX);
	assert_int_equal(frames_read(&g, larger, sizeof(larger)), -EPROTO);
}

static void trusted_addresses_are_forgotten_in_time_and_when_there_are_too_many(void **state)
{
	uint8_t key[SOURCE_KEY] = {0}, first[SOURCE_KEY] = {0}, again[SOURCE_KEY] = {1};
	struct trusted f = {0};

	trusted_add(&f, first, 1000);
	trusted_add(&f, again, 1000);
	assert_true(trusted_have(&f, first, 1000 + TRUSTED_MS - 1));
	assert_false(trusted_have(&f, first, 1000 + TRUSTED_MS));
	for (uint32_t i = 2; i < TRUSTED_MAX; i++) {
		memcpy(key, &i, sizeof(i));
		trusted_add(&f, key, 2000);
	}
	trusted_add(&f, again, 2000); /* later than the first */
	key[SOURCE_KEY - 1] = 1;
	trusted_add(&f, key, 2000);
	assert_false(trusted_have(&f, first, 2000));
	assert_true(trusted_have(&f, again, 2000));
	assert_true(trusted_have(&f, key, 2000));
	trusted_done(&f);
}

static void key_of(const char *text, uint8_t ret[SOURCE_KEY])
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};

	if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
		source_key((struct sockaddr *)&in, ret);
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
		source_key((struct sockaddr *)&in6, ret);
	}
}

static bool same_source(const char *a, const char *b)
{
	uint8_t key_a[SOURCE_KEY], key_b[SOURCE_KEY];

	key_of(a, key_a);
	key_of(b, key_b);
	return same_bytes(key_a, key_b, SOURCE_KEY);
}

static void sources_are_ipv4_addresses_and_ipv6_networks(void **state)
{
	assert_true(same_source("10.0.0.1", "::ffff:10.0.0.1"));
	assert_false(same_source("10.0.0.1", "10.0.0.2"));
	assert_false(same_source("::ffff:10.0.0.1", "::ffff:10.0.0.2"));
	assert_true(same_source("2001:db8:1:2::1", "2001:db8:1:2:ffff::2"));
	assert_false(same_source("2001:db8:1:2::1", "2001:db8:1:3::1"));
}

static void the_source_with_the_most_connections_is_found(void **state)
{
	uint8_t a[SOURCE_KEY] = {1}, b[SOURCE_KEY] = {2};
	struct source_table t;

	assert_int_equal(source_table_init(&t, 4), 0);
	assert_null(source_most(&t));
	for (int i = 0; i < 2; i++)
		assert_non_null(source_add(&t, a));
	assert_non_null(source_add(&t, b));
	assert_ptr_equal(source_most(&t), source_find(&t, a));
	for (int i = 0; i < 6; i++) /* beyond the table, as those that were granted may be */
		assert_non_null(source_add(&t, b));
	assert_ptr_equal(source_most(&t), source_find(&t, b));
	for (int i = 0; i < 6; i++)
		source_remove(&t, source_find(&t, b));
	assert_ptr_equal(source_most(&t), source_find(&t, a));
	source_remove(&t, source_find(&t, b));
	assert_null(source_find(&t, b));
	source_table_done(&t);
}

static void unauthenticated_connections_get_a_share_of_the_memory_limit(void **state)
{
	struct frontend_limits small, usual, none;

	frontend_limits_of(128 << 20, &small);
	frontend_limits_of(1 << 30, &usual);
	frontend_limits_of(UINT64_MAX, &none);
	assert_int_equal(usual.opened, 512);
	assert_int_equal(usual.outside, 2048);
	assert_true(small.opened < usual.opened / 5 && small.opened > 64);
	assert_int_equal(none.opened, usual.opened);
}

static void the_memory_limit_is_read_where_there_is_one(void **state)
{
	static const struct {
		const char *text;
		uint64_t limit;
	} rows[] = {{"1073741824\n", 1 << 30}, {"max\n", UINT64_MAX}, {"", UINT64_MAX}};
	char name[] = "/tmp/kiln-test-limit-XXXXXX";
	int fd = mkstemp(name);

	assert_true(fd >= 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_int_equal(ftruncate(fd, 0), 0);
		assert_int_equal(pwrite(fd, rows[i].text, strlen(rows[i].text), 0),
				 strlen(rows[i].text));
		assert_true(frontend_memory_limit(name) == rows[i].limit);
	}
	close(fd);
	unlink(name);
	assert_true(frontend_memory_limit(name) == UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_client_hello_says_how_long_it_is),
	    cmocka_unit_test(what_is_no_client_hello_in_one_record_is_refused),
	    cmocka_unit_test(the_largest_client_hello_is_taken),
	    cmocka_unit_test(frames_are_counted_wherever_they_are_cut),
	    cmocka_unit_test(another_protocol_is_no_http2),
	    cmocka_unit_test(a_frame_has_a_largest_length),
	    cmocka_unit_test(trusted_addresses_are_forgotten_in_time_and_when_there_are_too_many),
	    cmocka_unit_test(sources_are_ipv4_addresses_and_ipv6_networks),
	    cmocka_unit_test(the_source_with_the_most_connections_is_found),
	    cmocka_unit_test(unauthenticated_connections_get_a_share_of_the_memory_limit),
	    cmocka_unit_test(the_memory_limit_is_read_where_there_is_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
