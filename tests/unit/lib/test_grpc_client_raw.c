/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a call, depending on the HTTP/2 bytes from its server. */
#include "lib/grpc_client.h"

#include <nghttp2/nghttp2.h>

#include "lib/grpc_wire.h"
#include "lib/gzip.h"
#include "tests/support/grpc_scene.h"
#include "tests/support/test.h"

enum { LARGE = 5 << 20, BODY_MAX = 4 << 20 };

static void say_data(struct scene *s, uint32_t id, const void *bytes, size_t len)
{
	for (size_t at = 0, n; at < len; at += n) {
		n = MIN(len - at, (size_t)16384);
		h2_peer_frame(&s->p, 0, H2_DATA, 0, id, (const uint8_t *)bytes + at, n);
	}
}

/* A message with its prefix, as DATA. */
static void say_message(struct scene *s, uint32_t id, const void *data, size_t len, bool compressed)
{
	uint8_t *all = malloc(GRPC_PREFIX + len);

	grpc_prefix_write(all, compressed, len);
	memcpy(all + GRPC_PREFIX, data, len);
	say_data(s, id, all, GRPC_PREFIX + len);
	free(all);
}

/* ---- the request -------------------------------------------------------------------------------
 */

/* The fields of a HEADERS frame; "!" before the name: never to be indexed. */
static void decode(const uint8_t *frame, char *out, size_t size)
{
	nghttp2_hd_inflater *inflater;
	const uint8_t *at = frame + H2_FRAME;
	size_t len = h2_length(frame), used = 0;
	nghttp2_nv nv;
	int flags = 0;

	assert_int_equal(nghttp2_hd_inflate_new(&inflater), 0);
	for (;;) {
		ssize_t n = nghttp2_hd_inflate_hd2(inflater, &nv, &flags, at, len, 1);

		assert_true(n >= 0);
		at += n;
		len -= (size_t)n;
		if (flags & NGHTTP2_HD_INFLATE_EMIT)
			used += (size_t)snprintf(out + used, size - used, "%s%s: %s\n",
						 nv.flags & NGHTTP2_NV_FLAG_NO_INDEX ? "!" : "",
						 nv.name, nv.value);
		if (flags & NGHTTP2_HD_INFLATE_FINAL)
			break;
	}
	nghttp2_hd_inflate_del(inflater);
}

static void test_what_a_request_says(void **state)
{
	const struct grpc_header headers[] = {{"Authorization", "Bearer x"}, {"a-bin", "raw"}};
	const struct grpc_client_options o = {
	    .headers = headers, .n_headers = 2, .gzip = true, .user_agent = "test/1"};
	const uint8_t *frame;
	char fields[1024], want[1024];
	struct scene s;

	scene_begin(&s, &o);
	assert_int_equal(grpc_client_call(s.client, SCENE_METHOD, "abc", 3, true, 200000000,
					  scene_done, &s, &s.call),
			 0);
	UNTIL(&s.p, s.p.n == 1 && h2_peer_heard(&s.p, 0, H2_SETTINGS, 0, NULL) == 1);
	assert_memory_equal(s.p.c[0].in, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", H2_PEER_PREFACE);
	/* The client sends nothing else before the server's SETTINGS. */
	for (unsigned int i = 0; i < 100; i++) {
		uv_run(&s.p.loop, UV_RUN_NOWAIT);
		h2_peer_hear(&s.p);
	}
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_HEADERS, 0, NULL), 0);
	h2_peer_greet(&s.p, 0);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_DATA, H2_END_STREAM, &frame) == 1);
	assert_int_equal(h2_length(frame), 8);
	assert_memory_equal(frame + H2_FRAME, "\1\0\0\0\3abc", 8);
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_HEADERS, H2_END_HEADERS, &frame), 1);
	decode(frame, fields, sizeof(fields));
	snprintf(want, sizeof(want),
		 ":method: POST\n:scheme: http\n:path: " SCENE_METHOD "\n:authority: %s\n"
		 "grpc-timeout: ",
		 s.p.endpoint);
	assert_memory_equal(fields, want, strlen(want));
	/* Seconds: as milliseconds it has nine digits. */
	assert_non_null(strstr(fields, "grpc-timeout: 199999S\nte: trailers\n")
			    ?: strstr(fields, "grpc-timeout: 200000S\nte: trailers\n"));
	assert_non_null(strstr(fields, "\nte: trailers\ncontent-type: application/grpc\n"
				       "grpc-encoding: gzip\ngrpc-accept-encoding: identity, gzip\n"
				       "!authorization: Bearer x\n!a-bin: cmF3\nuser-agent: "
				       "test/1\n"));
	assert_int_equal(s.done, 0);
	scene_end(&s);
}

static void test_headers_that_cannot_be_sent(void **state)
{
	static const struct grpc_header rows[] = {
	    {"", "x"},	    {":path", "x"},	 {"grpc-timeout", "x"},
	    {"a b", "x"},   {"a", "new\nline"},	 {"a", "\xc3\xa4"},
	    {"TE", "gzip"}, {"Connection", "x"}, {"content-type", "x"},
	    {"Host", "x"},  {"a\xc3\xa4", "x"},	 {"a:b", "x"}};
	uv_loop_t loop;

	uv_loop_init(&loop);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct grpc_client_options o = {.endpoint = "x:1",
						      .tls = {.insecure = true},
						      .headers = &rows[i],
						      .n_headers = 1};
		struct grpc_client *client = NULL;
		struct error err = {0};

		assert_int_equal(grpc_client_new(&o, &loop, &client, &err), -EINVAL);
		assert_true(has_prefix(err.message, "headers."));
		assert_null(client);
	}
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void test_an_answer(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	say_message(&s, 1, "answer", 6, false);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_OK);
	assert_true(s.connected);
	assert_string_equal(s.words, "");
	assert_int_equal(s.body_len, 6);
	assert_memory_equal(s.body, "answer", 6);
	assert_false(s.has_details);
	assert_int_equal(h2_peer_heard(&s.p, 0, H2_RST_STREAM, 0, NULL), 0);
	scene_end(&s);
}

/* First headers alone or with trailers, and the status and words that the call ends with. */
static void test_ends(void **state)
{
	static const struct {
		const char *first[16], *trailers[8]; /* trailers none: the first ones end it */
		int status;
		const char *words; /* a part of them */
	} rows[] = {
	    {{SCENE_GRPC, "grpc-status", "14", "grpc-message", "no%20room%25"},
	     {0},
	     14,
	     "no room%"},
	    {{SCENE_GRPC, "grpc-status", "8"}, {0}, 8, ""},
	    {{SCENE_GRPC, "grpc-status", "77"}, {0}, 77, ""},
	    {{SCENE_GRPC, "grpc-status", "x"}, {0}, RPC_UNKNOWN, ""},
	    {{SCENE_GRPC, "grpc-status", "0"}, {0}, RPC_OK, ""},
	    {{":status", "200", "grpc-status", "5"}, {0}, 5, ""},
	    {{SCENE_GRPC}, {"grpc-status", "13", "grpc-message", "%zz%41"}, 13, "%zzA"},
	    {{":status", "200", "content-type", "application/grpc+proto"},
	     {"grpc-status", "0"},
	     RPC_OK,
	     ""},
	    {{":status", "200", "content-type", "application/grpc;x=y"},
	     {"grpc-status", "0"},
	     RPC_OK,
	     ""},
	    {{":status", "200"}, {"grpc-status", "0"}, RPC_OK, ""},
	    {{SCENE_GRPC}, {"x", "y"}, RPC_UNKNOWN, "has no status"},
	    {{SCENE_GRPC}, {0}, RPC_UNKNOWN, "has no status"},
	    {{":status", "200", "content-type", "text/html"},
	     {"grpc-status", "0"},
	     RPC_UNKNOWN,
	     "text/html, not gRPC"},
	    {{":status", "200", "content-type", "application/grpcx"}, {"x", "y"}, RPC_UNKNOWN, ""},
	    {{":status", "503", "content-type", "text/plain"}, {0}, RPC_UNAVAILABLE, "HTTP 503"},
	    {{":status", "503"}, {"x", "y"}, RPC_UNAVAILABLE, "HTTP 503"},
	    {{":status", "404"}, {0}, RPC_UNIMPLEMENTED, "HTTP 404"},
	    {{":status", "401"}, {0}, RPC_UNAUTHENTICATED, "HTTP 401"},
	    {{":status", "500"}, {0}, RPC_UNKNOWN, "HTTP 500"},
	    {{":status", "503", "grpc-status", "9", "grpc-message", "it says"}, {0}, 9, "it says"},
	    {{":status", "503", "grpc-status", "9"}, {"grpc-status", "0"}, 9, ""},
	};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		bool more = rows[i].trailers[0];

		scene_begin_call(&s);
		h2_peer_headers(&s.p, 0, more ? 0 : H2_END_STREAM, 1, rows[i].first);
		if (more)
			h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, rows[i].trailers);
		UNTIL(&s.p, s.done == 1);
		if (s.status != rows[i].status || !strstr(s.words, rows[i].words) ||
		    (!rows[i].words[0] && rows[i].status == RPC_OK && s.words[0]))
			fail_msg("row %zu: %d %s", i, s.status, s.words);
		assert_true(s.connected);
		assert_int_equal(s.body_len, 0);
		scene_end(&s);
	}
}

static void test_informational_headers_are_no_answer(void **state)
{
	static const char *const early[] = {
	    ":status", "103", "content-type", "text/html", "grpc-status", "5", NULL};
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, early);
	h2_peer_headers(&s.p, 0, 0, 1, early);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	say_message(&s, 1, "x", 1, false);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_OK);
	assert_int_equal(s.body_len, 1);
	scene_end(&s);
}

static void test_details(void **state)
{
	static const struct {
		const char *text;
		bool has;
		size_t len;
	} rows[] = {
	    {"AAEC", true, 3}, {"AAE", true, 2},    {"AAE=", true, 2}, {"AAEC,/////w", true, 3},
	    {"!", false, 0},   {"AAECA", false, 0}, {"", false, 0}};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const fields[] = {
		    SCENE_GRPC, "grpc-status", "8", "grpc-status-details-bin", rows[i].text, NULL};

		scene_begin_call(&s);
		h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, fields);
		UNTIL(&s.p, s.done == 1);
		assert_int_equal(s.status, 8);
		assert_int_equal(s.has_details, rows[i].has);
		assert_int_equal(s.details_len, rows[i].len);
		assert_memory_equal(s.details, "\0\1\2", rows[i].len);
		scene_end(&s);
	}
}

static void test_an_end_without_trailers(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	h2_peer_frame(&s.p, 0, H2_DATA, H2_END_STREAM, 1, "\0\0\0\0\1x", 6);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_UNKNOWN);
	scene_end(&s);
}

static void test_an_end_within_a_message(void **state)
{
	static const char *const failed[] = {"grpc-status", "10", NULL};
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	say_data(&s, 1, "\0\0\0\0\5abcd", 9);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_INTERNAL);
	assert_non_null(strstr(s.words, "within a message"));
	scene_end(&s);
	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	say_data(&s, 1, "\0\0\0\0\5abcd", 9);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, failed);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, 10);
	scene_end(&s);
}

/* A second message is ignored. */
static void test_more_than_one_message(void **state)
{
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	for (unsigned int i = 0; i < 1000; i++)
		say_message(&s, 1, i ? "second" : "firsts", 6, false);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_OK);
	assert_memory_equal(s.body, "firsts", 6);
	scene_end(&s);
}

static void test_how_large_an_answer_may_be(void **state)
{
	uint8_t *large = calloc(1, BODY_MAX + 1);
	struct scene s;

	large[BODY_MAX - 1] = 1;
	for (size_t more = 0; more < 2; more++) {
		scene_begin_call(&s);
		h2_peer_headers(&s.p, 0, 0, 1, scene_good);
		say_message(&s, 1, large, BODY_MAX + more, false);
		h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
		UNTIL(&s.p, s.done == 1);
		assert_int_equal(s.status, more ? RPC_RESOURCE_EXHAUSTED : RPC_OK);
		assert_int_equal(s.body_len, more ? 0 : BODY_MAX);
		if (!more)
			assert_memory_equal(s.body, large, BODY_MAX);
		scene_end(&s);
	}
	free(large);
}

/* ---- compressed --------------------------------------------------------------------------------
 */

static void compressed(const char *encoding, const void *data, size_t len, int status)
{
	const char *const fields[] = {SCENE_GRPC, encoding ? "grpc-encoding" : "x", encoding ?: "",
				      NULL};
	struct scene s;

	scene_begin_call(&s);
	h2_peer_headers(&s.p, 0, 0, 1, fields);
	say_message(&s, 1, data, len, true);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
	UNTIL(&s.p, s.done == 1);
	if (s.status != status)
		fail_msg("%s: %d %s", encoding ?: "", s.status, s.words);
	if (status == RPC_OK)
		assert_memory_equal(s.body, "hello", s.body_len);
	scene_end(&s);
}

static void test_compressed_answers(void **state)
{
	uint8_t *plain = calloc(1, BODY_MAX + 1), *packed = malloc(gzip_bound(BODY_MAX + 1));
	size_t len = 0;

	assert_int_equal(gzip_compress(GZIP_FAST, "hello", 5, packed, gzip_bound(5), &len), 0);
	compressed("gzip", packed, len, RPC_OK);
	compressed("gzip", packed, len - 1, RPC_INTERNAL);
	compressed("gzip", "hello, this is no gzip", 22, RPC_INTERNAL);
	compressed("gzip", "", 0, RPC_INTERNAL);
	compressed("deflate", packed, len, RPC_INTERNAL);
	compressed("identity", packed, len, RPC_INTERNAL);
	compressed(NULL, packed, len, RPC_INTERNAL);
	/* Small on the wire, but larger than allowed once expanded. */
	assert_int_equal(
	    gzip_compress(GZIP_FAST, plain, BODY_MAX + 1, packed, gzip_bound(BODY_MAX + 1), &len),
	    0);
	compressed("gzip", packed, len, RPC_RESOURCE_EXHAUSTED);
	free(plain);
	free(packed);
}

/* ---- headers -----------------------------------------------------------------------------------
 */

static void test_headers_that_are_too_large(void **state)
{
	char value[9000];
	const char *const fields[] = {SCENE_GRPC, "a", value, NULL}, *const more[] = {"b", value,
										      NULL};
	uint8_t block[16000];
	struct scene s;
	size_t n = 0;

	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	scene_begin_call(&s);
	for (size_t i = 0; fields[i]; i += 2)
		n += h2_field(block + n, fields[i], fields[i + 1]);
	h2_peer_frame(&s.p, 0, H2_HEADERS, 0, 1, block, n);
	n = h2_field(block, more[0], more[1]);
	h2_peer_frame(&s.p, 0, H2_CONTINUATION, H2_END_HEADERS, 1, block, n);
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_RESOURCE_EXHAUSTED);
	/* The connection is as good as before. */
	scene_call(&s, "x", 1, 60000);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_HEADERS, 0, NULL) == 2);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 3,
			(const char *const[]){SCENE_GRPC, "grpc-status", "0", NULL});
	UNTIL(&s.p, s.done == 2);
	assert_int_equal(s.status, RPC_OK);
	assert_int_equal(s.p.n, 1);
	scene_end(&s);
}

/* One field in the dynamic table, and thousands of references of a byte each to it. */
static void test_a_header_bomb(void **state)
{
	uint8_t block[16000];
	struct scene s;
	size_t n;

	scene_begin_call(&s);
	n = h2_field(block, ":status", "200");
	memcpy(block + n, "\x40\1a\x64", 4); /* with incremental indexing, 100 bytes */
	memset(block + n + 4, 'v', 100);
	n += 104;
	memset(block + n, 0x80 | 62, sizeof(block) - n);
	h2_peer_frame(&s.p, 0, H2_HEADERS, H2_END_HEADERS, 1, block, sizeof(block));
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_RESOURCE_EXHAUSTED);
	scene_end(&s);
}

static void test_headers_without_an_end(void **state)
{
	uint8_t first[64], block[16000];
	struct scene s;

	for (size_t i = 0; i < sizeof(block); i += 4)
		memcpy(block + i, "\0\1b\0", 4);
	scene_begin_call(&s);
	h2_peer_frame(&s.p, 0, H2_HEADERS, 0, 1, first, h2_field(first, ":status", "200"));
	for (unsigned int i = 0; i < 200 && !s.p.c[0].over; i++)
		h2_peer_frame(&s.p, 0, H2_CONTINUATION, 0, 1, block, sizeof(block));
	UNTIL(&s.p, s.done == 1 && s.p.c[0].over);
	if (s.status != RPC_UNAVAILABLE && s.status != RPC_RESOURCE_EXHAUSTED)
		fail_msg("%d %s", s.status, s.words);
	scene_end(&s);
}

static void test_a_field_that_http2_forbids(void **state)
{
	static const char *const rows[][8] = {
	    {SCENE_GRPC, "Upper", "x"},		  {SCENE_GRPC, "connection", "close"},
	    {"content-type", "application/grpc"}, {":status", "2000"},
	    {SCENE_GRPC, ":path", "/"},		  {SCENE_GRPC, "a", "new\nline"}};
	struct scene s;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		scene_begin_call(&s);
		h2_peer_headers(&s.p, 0, 0, 1, rows[i]);
		h2_peer_headers(&s.p, 0, H2_END_STREAM, 1, scene_ok);
		UNTIL(&s.p, s.done == 1);
		/*
		 * The last row: nghttp2 ignores a malformed value; for the others it resets the
		 * stream.
		 */
		if (i + 1 < ARRAY_SIZE(rows) && s.status != RPC_INTERNAL)
			fail_msg("row %zu: %d %s", i, s.status, s.words);
		scene_end(&s);
	}
}

/* ---- what the peer does while a request is being sent -----------------------------------------
 */

static uint32_t give_window(struct scene *s, uint32_t id, uint32_t n)
{
	const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
				  (uint8_t)n};

	h2_peer_frame(&s->p, 0, H2_WINDOW_UPDATE, 0, id, bytes, 4);
	return n;
}

/* The payloads of all DATA frames, one after the other. */
static size_t collect(const struct scene *s, uint8_t *out)
{
	const uint8_t *in = s->p.c[0].in + H2_PEER_PREFACE;
	size_t len = s->p.c[0].n_in - H2_PEER_PREFACE, n = 0;

	for (size_t at = 0; at + H2_FRAME <= len; at += H2_FRAME + h2_length(in + at)) {
		if (at + H2_FRAME + h2_length(in + at) > len)
			break;
		if (in[at + 3] != H2_DATA)
			continue;
		if (out)
			memcpy(out + n, in + at + H2_FRAME, h2_length(in + at));
		n += h2_length(in + at);
	}
	return n;
}

static void test_a_message_that_is_larger_than_any_window(void **state)
{
	uint8_t *large = malloc(LARGE), *got = malloc(LARGE + GRPC_PREFIX);
	const uint8_t *frame;
	struct scene s;
	size_t window = 65535;

	for (size_t i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(mix64(i));
	scene_begin(&s, &(struct grpc_client_options){0});
	scene_call(&s, large, LARGE, 60000);
	UNTIL(&s.p, s.p.n == 1);
	h2_peer_greet(&s.p, 0);
	while (window < LARGE + GRPC_PREFIX) {
		UNTIL(&s.p, collect(&s, NULL) == window);
		give_window(&s, 1, 777777);
		window += give_window(&s, 0, 777777);
	}
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_DATA, H2_END_STREAM, &frame) == 1);
	assert_int_equal(collect(&s, got), LARGE + GRPC_PREFIX);
	assert_memory_equal(got, "\0\0\x50\0\0", GRPC_PREFIX);
	assert_memory_equal(got + GRPC_PREFIX, large, LARGE);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1,
			(const char *const[]){SCENE_GRPC, "grpc-status", "0", NULL});
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_OK);
	scene_end(&s);
	free(large);
	free(got);
}

static void test_an_answer_before_the_message_is_out(void **state)
{
	uint8_t *large = calloc(1, LARGE);
	const uint8_t *frame;
	struct scene s;

	scene_begin(&s, &(struct grpc_client_options){0});
	scene_call(&s, large, LARGE, 60000);
	UNTIL(&s.p, s.p.n == 1);
	h2_peer_greet(&s.p, 0);
	UNTIL(&s.p, collect(&s, NULL) == 65535);
	h2_peer_headers(&s.p, 0, H2_END_STREAM, 1,
			(const char *const[]){SCENE_GRPC, "grpc-status", "8", "grpc-message",
					      "too large", NULL});
	UNTIL(&s.p, s.done == 1 && h2_peer_heard(&s.p, 0, H2_RST_STREAM, 0, &frame) == 1);
	assert_int_equal(s.status, RPC_RESOURCE_EXHAUSTED);
	assert_string_equal(s.words, "too large");
	assert_memory_equal(frame + H2_FRAME, "\0\0\0\0", 4); /* NO_ERROR */
	assert_int_equal(collect(&s, NULL), 65535);
	scene_end(&s);
	free(large);
}

static void test_cancel(void **state)
{
	const uint8_t *frame;
	struct scene s;

	scene_begin_call(&s);
	assert_true(grpc_unary_cancel(s.call));
	grpc_unary_cancel(s.call);
	assert_int_equal(s.done, 0);
	UNTIL(&s.p, s.done == 1 && h2_peer_heard(&s.p, 0, H2_RST_STREAM, 0, &frame) == 1);
	assert_int_equal(s.status, RPC_CANCELLED);
	assert_memory_equal(frame + H2_FRAME, "\0\0\0\x8", 4);
	/* Frames that come for the cancelled call are dropped. */
	h2_peer_headers(&s.p, 0, 0, 1, scene_good);
	say_message(&s, 1, "x", 1, false);
	scene_call(&s, "x", 1, 60000);
	UNTIL(&s.p, h2_peer_heard(&s.p, 0, H2_HEADERS, 0, NULL) == 2);
	assert_int_equal(s.done, 1);
	scene_end(&s);
	/* Cancelled before there is a connection. */
	scene_begin(&s, &(struct grpc_client_options){0});
	scene_call(&s, "x", 1, 60000);
	assert_false(grpc_unary_cancel(s.call));
	UNTIL(&s.p, s.done == 1);
	assert_int_equal(s.status, RPC_CANCELLED);
	assert_false(s.connected);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_what_a_request_says),
	    cmocka_unit_test(test_headers_that_cannot_be_sent),
	    cmocka_unit_test(test_an_answer),
	    cmocka_unit_test(test_ends),
	    cmocka_unit_test(test_informational_headers_are_no_answer),
	    cmocka_unit_test(test_details),
	    cmocka_unit_test(test_an_end_without_trailers),
	    cmocka_unit_test(test_an_end_within_a_message),
	    cmocka_unit_test(test_more_than_one_message),
	    cmocka_unit_test(test_how_large_an_answer_may_be),
	    cmocka_unit_test(test_compressed_answers),
	    cmocka_unit_test(test_headers_that_are_too_large),
	    cmocka_unit_test(test_a_header_bomb),
	    cmocka_unit_test(test_headers_without_an_end),
	    cmocka_unit_test(test_a_field_that_http2_forbids),
	    cmocka_unit_test(test_a_message_that_is_larger_than_any_window),
	    cmocka_unit_test(test_an_answer_before_the_message_is_out),
	    cmocka_unit_test(test_cancel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
