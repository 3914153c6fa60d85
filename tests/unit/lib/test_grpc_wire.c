/* SPDX-License-Identifier: Apache-2.0 */
/* Prefixes, texts and numbers of gRPC, whole and broken. */
#include "lib/grpc_wire.h"

#include "tests/support/test.h"

static void test_status_names(void **state)
{
	assert_string_equal(rpc_status_name(RPC_OK), "OK");
	assert_string_equal(rpc_status_name(RPC_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
	assert_string_equal(rpc_status_name(RPC_UNAUTHENTICATED), "UNAUTHENTICATED");
	assert_string_equal(rpc_status_name(17), "UNKNOWN");
	assert_string_equal(rpc_status_name(-1), "UNKNOWN");
}

static void test_status_numbers(void **state)
{
	static const struct {
		const char *text;
		int status;
	} rows[] = {{"0", 0},
		    {"14", 14},
		    {"16", 16},
		    {"99", 99},
		    {"999999999", 999999999},
		    {"", 2},
		    {"1000000000000000000", 2},
		    {"-1", 2},
		    {"1 ", 2},
		    {"ok", 2},
		    {"0x1", 2}};
	/* doc/http-grpc-status-mapping.md */
	static const int http[][2] = {
	    {400, RPC_INTERNAL},      {401, RPC_UNAUTHENTICATED}, {403, RPC_PERMISSION_DENIED},
	    {404, RPC_UNIMPLEMENTED}, {429, RPC_UNAVAILABLE},	  {431, RPC_INTERNAL},
	    {502, RPC_UNAVAILABLE},   {503, RPC_UNAVAILABLE},	  {504, RPC_UNAVAILABLE},
	    {200, RPC_UNKNOWN},	      {301, RPC_UNKNOWN},	  {500, RPC_UNKNOWN},
	    {0, RPC_UNKNOWN}};
	/* doc/PROTOCOL-HTTP2.md, "Errors": by HTTP/2's code. */
	static const int reset[] = {RPC_INTERNAL,	   RPC_INTERNAL,    RPC_INTERNAL,
				    RPC_INTERNAL,	   RPC_INTERNAL,    RPC_INTERNAL,
				    RPC_INTERNAL,	   RPC_UNAVAILABLE, RPC_CANCELLED,
				    RPC_INTERNAL,	   RPC_INTERNAL,    RPC_RESOURCE_EXHAUSTED,
				    RPC_PERMISSION_DENIED, RPC_INTERNAL};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(
		    grpc_status_parse((const uint8_t *)rows[i].text, strlen(rows[i].text)),
		    rows[i].status);
	for (size_t i = 0; i < ARRAY_SIZE(http); i++)
		assert_int_equal(grpc_status_of_http(http[i][0]), http[i][1]);
	for (size_t i = 0; i < ARRAY_SIZE(reset); i++)
		assert_int_equal(grpc_status_of_reset((uint32_t)i), reset[i]);
}

static void test_texts(void **state)
{
	static const char *const rows[][2] = {
	    {"", ""},
	    {"plain words", "plain words"},
	    {"%E2%82%AC 100%25", "\xe2\x82\xac 100%"},
	    {"%e2%82%ac", "\xe2\x82\xac"},
	    {"a%0Ab", "a\nb"},
	    {"cut %", "cut %"},
	    {"cut %4", "cut %4"},
	    {"%4x %x4 %%41", "%4x %x4 %A"},
	    {"nul%00here", "nul here"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *text = grpc_text_decode((const uint8_t *)rows[i][0], strlen(rows[i][0]));

		assert_string_equal(text, rows[i][1]);
		free(text);
	}
}

static void test_base64(void **state)
{
	/* RFC 4648 §10 */
	static const char *const rows[][2] = {{"", ""},
					      {"f", "Zg=="},
					      {"fo", "Zm8="},
					      {"foo", "Zm9v"},
					      {"foob", "Zm9vYg=="},
					      {"fooba", "Zm9vYmE="},
					      {"foobar", "Zm9vYmFy"}};
	static const char *const broken[] = {
	    "Z", "Zm9vY", "Zm9v!", "Zg=", "Zg===", "====", "Z===", "Zm 9v", "Zm9v-_"};
	uint8_t out[64];
	size_t len;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t whole = strlen(rows[i][1]), bare = strcspn(rows[i][1], "=");
		char *text = grpc_base64_encode(rows[i][0], strlen(rows[i][0]));

		assert_int_equal(strlen(text), bare);
		assert_memory_equal(text, rows[i][1], bare);
		free(text);
		for (unsigned int padded = 0; padded < 2; padded++) {
			len = 99;
			assert_int_equal(grpc_base64_decode((const uint8_t *)rows[i][1],
							    padded ? whole : bare, out, &len),
					 0);
			assert_int_equal(len, strlen(rows[i][0]));
			assert_memory_equal(out, rows[i][0], len);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(broken); i++)
		assert_int_equal(
		    grpc_base64_decode((const uint8_t *)broken[i], strlen(broken[i]), out, &len),
		    -EINVAL);
}

/* Whatever pieces the bytes come in. */
static void test_messages_in_pieces(void **state)
{
	static const size_t lengths[] = {0, 1, 5, 1000, 3, 0, 0, 700};
	uint8_t bytes[2000];
	size_t total = 0;

	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		grpc_prefix_write(bytes + total, i == 2, lengths[i]);
		memset(bytes + total + GRPC_PREFIX, (int)i, lengths[i]);
		total += GRPC_PREFIX + lengths[i];
	}
	for (size_t step = 1; step < total; step += 1 + step / 3) {
		struct grpc_inbox in;
		struct grpc_received m;
		size_t told = 0;

		grpc_inbox_init(&in, 1000, step);
		for (size_t at = 0; at < total; at += step) {
			assert_int_equal(grpc_inbox_add(&in, bytes + at, MIN(step, total - at)), 0);
			while (grpc_inbox_next(&in, 1000, &m) == 1) {
				assert_int_equal(m.len, lengths[told]);
				assert_int_equal(m.compressed, told == 2);
				for (size_t i = 0; i < m.len; i++)
					assert_int_equal(m.data[i], told);
				told++;
			}
		}
		assert_int_equal(told, ARRAY_SIZE(lengths));
		assert_int_equal(grpc_inbox_left(&in), 0);
		grpc_inbox_clear(&in);
	}
}

static void test_a_message_that_is_too_large(void **state)
{
	struct grpc_inbox in;
	struct grpc_received m;
	uint8_t bytes[GRPC_PREFIX];

	grpc_inbox_init(&in, 1000, 10);
	grpc_prefix_write(bytes, true, 1001);
	assert_int_equal(grpc_inbox_add(&in, bytes, 4), 0);
	assert_int_equal(grpc_inbox_next(&in, 1000, &m), 0);
	assert_int_equal(grpc_inbox_add(&in, bytes + 4, 1), 0);
	assert_int_equal(grpc_inbox_next(&in, 1000, &m), -E2BIG);
	grpc_inbox_clear(&in);
	memset(bytes, 0xff, sizeof(bytes));
	assert_int_equal(grpc_inbox_add(&in, bytes, 5), 0);
	assert_int_equal(grpc_inbox_next(&in, 1000, &m), -E2BIG);
	grpc_inbox_clear(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_status_names),
	    cmocka_unit_test(test_status_numbers),
	    cmocka_unit_test(test_texts),
	    cmocka_unit_test(test_base64),
	    cmocka_unit_test(test_messages_in_pieces),
	    cmocka_unit_test(test_a_message_that_is_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
