/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: the same objects come out whatever pieces the body arrives in; other bodies are refused.
 */
#include "sample.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define PROTOBUF "application/vnd.kubernetes.protobuf"
#define JSON	 "application/json"

/* The items and metadata of a stream as a text, one line each. */
struct log {
	struct buf text;
	int fail_at; /* the item that fails, from 1; 0: none */
	int items;
	size_t longest;
};

static void log_done(struct log *l)
{
	buf_done(&l->text);
}

static int on_item(void *arg, const struct kube_item *item)
{
	struct log *l = arg;

	if (++l->items == l->fail_at)
		return -ECANCELED;
	l->longest = MAX(l->longest, item->len);
	buf_printf(&l->text, "%d %d %zu:", item->type, item->encoding, item->len);
	buf_append(&l->text, item->bytes, item->len);
	buf_puts(&l->text, "\n");
	if (item->scratch)
		memset(item->scratch, 0x55, item->len); /* the item's scratch may be written */
	return 0;
}

static int on_list_meta(void *arg, const char *rv, const char *token)
{
	struct log *l = arg;

	buf_printf(&l->text, "list rv=%s continue=%s\n", rv, token);
	return 0;
}

static const struct kube_stream_ops ops = {.item = on_item, .list_meta = on_list_meta};

/* Feeds each piece from memory of its own, of exactly its length. */
static int feed(struct kube_stream *s, const char *type, const char *p, size_t n)
{
	_cleanup_free_ char *exact = malloc(MAX(n, (size_t)1));

	memcpy(exact, p, n);
	return kube_stream_feed(s, type, exact, n);
}

/* Feeds the body in pieces: up to FIRST, then of STEP each (0: all the rest). Ends the stream. */
static int run(enum kube_stream_mode mode, const char *type, const struct buf *body, size_t first,
	       size_t step, struct log *l)
{
	_cleanup_(kube_stream_freep) struct kube_stream *s = NULL;
	size_t at = 0, n = first;
	int r;

	*l = (struct log){.fail_at = l->fail_at};
	buf_init(&l->text, 64 << 20);
	assert_int_equal(kube_stream_new(mode, &ops, l, &s), 0);
	while (at < body->len || n == 0) {
		n = MIN(n, body->len - at);
		r = feed(s, type, body->data + at, n);
		if (r < 0) {
			assert_int_equal(kube_stream_feed(s, type, "x", 1), r);
			assert_int_equal(kube_stream_end(s), r);
			return r;
		}
		at += n;
		n = step ? step : body->len;
	}
	return kube_stream_end(s);
}

static void check_splits(enum kube_stream_mode mode, const char *type, const struct buf *body,
			 const char *want)
{
	assert_int_equal(buf_error(body), 0);
	for (size_t split = 0; split <= body->len; split++) {
		_cleanup_(log_done) struct log l = {0};

		if (run(mode, type, body, split, 0, &l) != 0)
			fail_msg("refused when split at %zu of %zu", split, body->len);
		assert_string_equal(l.text.data, want);
	}
	for (size_t step = 1; step < 20; step++) {
		_cleanup_(log_done) struct log l = {0};

		assert_int_equal(run(mode, type, body, step, step, &l), 0);
		assert_string_equal(l.text.data, want);
	}
}

/* A body that ends anywhere but where WHOLE is true must give an error. */
static void check_truncated(enum kube_stream_mode mode, const char *type, const struct buf *body,
			    bool (*whole)(const struct buf *body, size_t n))
{
	for (size_t n = 0; n < body->len; n++) {
		_cleanup_(log_done) struct log l = {0};
		struct buf cut = *body;
		int r;

		cut.len = n;
		r = run(mode, type, &cut, n ? n : 1, 0, &l);
		if (whole && whole(body, n))
			assert_int_equal(r, 0);
		else if (r != -EBADMSG)
			fail_msg("ends at %zu of %zu: %d", n, body->len, r);
	}
}

/* A list with three pods and fields that nobody knows, before and behind. */
static void proto_list(struct buf *body, struct buf *want, bool with_items)
{
	struct sample_random r = {.state = 7};
	_cleanup_(buf_done) struct buf list, item;
	K8s__ListMeta meta = K8S__LIST_META__INIT;
	uint8_t head[64];
	size_t n;

	buf_init(&list, 1 << 20);
	buf_init(&item, 1 << 20);
	buf_init(body, 1 << 20);
	buf_init(want, 1 << 20);
	meta.self_link = (char *)"";
	meta.resource_version = (char *)"12746";
	meta.continue_ = (char *)"eyJ2Ijoi";
	meta.has_remaining_item_count = true;
	meta.remaining_item_count = 1499;
	n = k8s__list_meta__pack(&meta, head);
	buf_append(&list, "\x38\x96\x01", 3);			     /* 7: a varint */
	buf_append(&list, "\x31\1\2\3\4\5\6\7\x08\x3d\1\2\3\4", 14); /* fixed 64 and 32 */
	buf_append(&list, "\x4a\x05hello", 7);			     /* 9: bytes */
	buf_append(&list, (uint8_t[]){0x0a, (uint8_t)n}, 2);
	buf_append(&list, head, n);
	buf_puts(want, "list rv=12746 continue=eyJ2Ijoi\n");
	for (int i = 0; with_items && i < 3; i++) {
		K8s__Pod *pod = sample_pod(&r);

		buf_reset(&item);
		if (i != 1) /* an item of no bytes is an object too */
			sample_pack(pod, &item);
		buf_append(&list, "\x12", 1);
		for (n = item.len; n >= 0x80; n >>= 7)
			buf_append(&list, (uint8_t[]){(uint8_t)(n | 0x80)}, 1);
		buf_append(&list, (uint8_t[]){(uint8_t)n}, 1);
		buf_append(&list, item.data, item.len);
		buf_printf(want, "%d %d %zu:", KUBE_ADDED, KUBE_PROTOBUF, item.len);
		buf_append(want, item.data, item.len);
		buf_puts(want, "\n");
		k8s__pod__free_unpacked(pod, NULL);
	}
	sample_envelope("PodList", list.data, list.len, body);
}

static void test_a_protobuf_list_in_any_pieces(void **state)
{
	_cleanup_(buf_done) struct buf body, want;

	(void)state;
	proto_list(&body, &want, true);
	check_splits(KUBE_LIST, PROTOBUF, &body, want.data);
}

static void test_an_empty_protobuf_list(void **state)
{
	_cleanup_(buf_done) struct buf body, want;

	(void)state;
	proto_list(&body, &want, false);
	check_splits(KUBE_LIST, PROTOBUF, &body, want.data);
}

/* Unknown's last two fields are empty strings: without them the list is whole as well. */
static bool list_is_whole(const struct buf *body, size_t n)
{
	return n == body->len - 2 || n == body->len - 4;
}

static void test_a_protobuf_list_must_be_whole(void **state)
{
	_cleanup_(buf_done) struct buf body, want;

	(void)state;
	proto_list(&body, &want, true);
	check_truncated(KUBE_LIST, PROTOBUF, &body, list_is_whole);
}

static void add_event(struct buf *body, struct buf *want, const char *type,
		      enum kube_event_type event, const char *kind, const struct buf *object)
{
	sample_frame(type, kind, object->data, object->len, body);
	buf_printf(want, "%d %d %zu:", event, KUBE_PROTOBUF, object->len);
	buf_append(want, object->data, object->len);
	buf_puts(want, "\n");
}

static void proto_watch(struct buf *body, struct buf *want)
{
	struct sample_random r = {.state = 8};
	_cleanup_(buf_done) struct buf object;
	K8s__Pod *pod = sample_pod(&r);

	buf_init(&object, 1 << 20);
	buf_init(body, 1 << 20);
	buf_init(want, 1 << 20);
	sample_pack(pod, &object);
	k8s__pod__free_unpacked(pod, NULL);
	add_event(body, want, "ADDED", KUBE_ADDED, "Pod", &object);
	buf_reset(&object);
	buf_append(&object, "\x0a\x03\x0a\x01x", 5);
	add_event(body, want, "MODIFIED", KUBE_MODIFIED, "PartialObjectMetadata", &object);
	add_event(body, want, "DELETED", KUBE_DELETED, "Pod", &object);
	buf_reset(&object);
	buf_append(&object, "\x0a\x04\x32\x02\x39\x39", 6);
	add_event(body, want, "BOOKMARK", KUBE_BOOKMARK, "Pod", &object);
	buf_reset(&object);
	buf_append(&object, "\x30\x9a\x03", 3);
	add_event(body, want, "ERROR", KUBE_ERROR, "Status", &object);
}

static size_t frame_end(const struct buf *body, size_t at)
{
	const uint8_t *p = (const uint8_t *)body->data + at;

	return at + 4 + ((size_t)p[2] << 8 | p[3]);
}

static bool watch_is_whole(const struct buf *body, size_t n)
{
	size_t at = 0;

	while (at < n)
		at = frame_end(body, at);
	return at == n;
}

static void test_a_protobuf_watch_in_any_pieces(void **state)
{
	_cleanup_(buf_done) struct buf body, want;

	(void)state;
	proto_watch(&body, &want);
	check_splits(KUBE_WATCH, PROTOBUF ";stream=watch", &body, want.data);
	check_truncated(KUBE_WATCH, PROTOBUF ";stream=watch", &body, watch_is_whole);
}

static void string_buf(struct buf *b, const char *s)
{
	buf_init(b, 16 << 20);
	buf_puts(b, s);
}

static void json_list_want(struct buf *want, const char *rv, const char *token)
{
	static const char *const items[] = {
	    "{\"a\":{\"x\":[1,{}]}}", "{\"b\":\"]},{\\\"items\\\":[{\\\\\",\"c\":\"\"}", "{}"};

	buf_init(want, 1 << 20);
	for (size_t i = 0; i < ARRAY_SIZE(items); i++)
		buf_printf(want, "%d %d %zu:%s\n", KUBE_ADDED, KUBE_JSON, strlen(items[i]),
			   items[i]);
	buf_printf(want, "list rv=%s continue=%s\n", rv, token);
}

#define ITEMS "{\"a\":{\"x\":[1,{}]}},{\"b\":\"]},{\\\"items\\\":[{\\\\\",\"c\":\"\"} ,\n\t{} "

static void test_a_json_list_in_any_pieces(void **state)
{
	static const char *const bodies[] = {
	    "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"77\","
	    "\"continue\":\"ab\\u002fc\"},\"items\":[" ITEMS "]}\n",
	    "\n{\"items\" : [ " ITEMS "]\n,\"metadata\":{\"x\":{\"items\":[1,[2]]},"
	    "\"continue\":\"ab/c\",\"resourceVersion\":\"77\"},\"kind\":\"PodList\"}",
	    "{\"a\":\"items\",\"b\":[],\"items\":[" ITEMS
	    "],\"kind\":\"PartialObjectMetadataList\","
	    "\"c\":{\"items\":[{}]},\"metadata\":{\"continue\":\"ab/"
	    "c\",\"resourceVersion\":\"77\"}}",
	    "{\"a \\\"items\":[{}],\"items\":[" ITEMS "],\"kind\":\"List\",\"metadata\":"
	    "{\"continue\":\"ab/c\",\"resourceVersion\":\"77\"},\"items "
	    "\":[],\"d\":[\"items\",[{}]]}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_(buf_done) struct buf body, want;

		string_buf(&body, bodies[i]);
		json_list_want(&want, "77", "ab/c");
		check_splits(KUBE_LIST, JSON, &body, want.data);
	}
}

static void test_empty_json_lists(void **state)
{
	static const char *const bodies[] = {
	    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}",
	    "{\n  \"kind\": \"PodList\",\n  \"metadata\": {\n    \"resourceVersion\": \"1\"\n  },\n"
	    "  \"items\": []\n}\n",
	    "{\"kind\":\"PodList\",\"items\":null,\"metadata\":{\"resourceVersion\":\"1\"}}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_(buf_done) struct buf body;

		string_buf(&body, bodies[i]);
		check_splits(KUBE_LIST, JSON, &body, "list rv=1 continue=\n");
	}
}

static bool only_blanks_follow(const struct buf *body, size_t n)
{
	return strspn(body->data + n, " \n") == body->len - n && n > 0;
}

static void test_a_json_list_must_be_whole(void **state)
{
	_cleanup_(buf_done) struct buf body;

	(void)state;
	string_buf(
	    &body,
	    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[" ITEMS
	    "]} \n");
	check_truncated(KUBE_LIST, JSON, &body, only_blanks_follow);
}

static void test_a_json_watch_in_any_pieces(void **state)
{
	static const char *const bodies[] = {
	    "{\"type\":\"ADDED\",\"object\":{\"a\":\"}\\\"\"}}\n"
	    "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\"}}\n"
	    "{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n",
	    "{\"object\":{\"a\":\"}\\\"\"},\"type\":\"ADDED\"}"
	    "{ \"type\" : \"BOOKMARK\" ,\n \"object\" : {\"kind\":\"Pod\"}\n}"
	    "\n\n{\"x\":[{}],\"type\":\"ERROR\",\"object\":{\"code\":410},\"y\":null}",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_(buf_done) struct buf body;

		string_buf(&body, bodies[i]);
		check_splits(KUBE_WATCH, JSON, &body,
			     "0 0 11:{\"a\":\"}\\\"\"}\n3 0 14:{\"kind\":\"Pod\"}\n"
			     "4 0 12:{\"code\":410}\n");
	}
}

static bool between_events(const struct buf *body, size_t n)
{
	return n == 0 || body->data[n - 1] == '\n' || body->data[n] == '\n';
}

static void test_a_json_watch_ends_between_events(void **state)
{
	_cleanup_(buf_done) struct buf body;

	(void)state;
	string_buf(&body, "{\"type\":\"ADDED\",\"object\":{\"a\":\"}\\\"\"}}\n"
			  "{\"type\":\"DELETED\",\"object\":{}}\n");
	check_truncated(KUBE_WATCH, JSON, &body, between_events);
}

static void test_a_status_in_the_place_of_a_list(void **state)
{
	_cleanup_(buf_done) struct buf body, proto;

	(void)state;
	string_buf(&body, "{\"kind\":\"Status\",\"metadata\":{},\"code\":410}\n");
	check_splits(KUBE_LIST, JSON, &body,
		     "4 0 42:{\"kind\":\"Status\",\"metadata\":{},\"code\":410}\n");
	buf_init(&proto, 1024);
	sample_envelope("Status", "\x30\x9a\x03", 3, &proto);
	check_splits(KUBE_LIST, PROTOBUF, &proto, "4 1 3:\x30\x9a\x03\n");
}

static void test_what_is_no_list_is_refused(void **state)
{
	static const char *const json[] = {
	    "[]",
	    "x",
	    "404 page not found",
	    "{\"kind\":\"Pod\",\"metadata\":{}}",
	    "{\"kind\":\"PodList\",\"items\":[]}",
	    "{\"metadata\":{},\"items\":[]}",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[1]}",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[{} {}]}",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[{},,{}]}",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[,{}]}",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[]}x",
	    "{\"kind\":\"PodList\",\"metadata\":{},\"items\":[]}{}",
	    "{\"kind\":\"PodList\",\"metadata\":[],\"items\":[]}",
	    "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"a\\u0000\"},\"items\":[]}",
	};
	_cleanup_(buf_done) struct buf body;
	struct log l = {0};

	(void)state;
	buf_init(&body, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(json); i++) {
		buf_reset(&body);
		buf_puts(&body, json[i]);
		if (run(KUBE_LIST, JSON, &body, body.len, 0, &l) != -EBADMSG)
			fail_msg("taken: %s", json[i]);
		log_done(&l);
	}
	/* Of another kind, without magic, and of a content type that is neither. */
	buf_reset(&body);
	sample_envelope("Pod", "\x0a\x03\x0a\x01x", 5, &body);
	assert_int_equal(run(KUBE_LIST, PROTOBUF, &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
	body.data[0] = 'K';
	assert_int_equal(run(KUBE_LIST, PROTOBUF, &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
	assert_int_equal(run(KUBE_LIST, "text/html", &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
	assert_int_equal(run(KUBE_LIST, NULL, &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
}

static void test_a_list_that_is_longer_inside_than_outside(void **state)
{
	/* An item that claims more bytes than the list has. */
	static const uint8_t body[] = "k8s\0\x0a\x09\x12\x07PodList\x12\x04\x0a\0\x12\x09xxxxxxxxx";
	const struct buf b = {.data = (char *)body, .len = sizeof(body) - 1};
	_cleanup_(log_done) struct log l = {0};

	(void)state;
	assert_int_equal(run(KUBE_LIST, PROTOBUF, &b, b.len, 0, &l), -EBADMSG);
	assert_int_equal(l.items, 0);
}

static void test_what_is_no_watch_is_refused(void **state)
{
	static const char *const json[] = {
	    "[]",
	    "{}",
	    "{\"type\":\"ADDED\"}",
	    "{\"type\":\"ADDED\",\"object\":null}",
	    "{\"type\":\"RENAMED\",\"object\":{}}",
	    "{\"object\":{}}",
	    "{\"type\":\"ADDED\",\"object\":{}},",
	};
	_cleanup_(buf_done) struct buf body;
	struct log l = {0};

	(void)state;
	buf_init(&body, 1024);
	for (size_t i = 0; i < ARRAY_SIZE(json); i++) {
		buf_reset(&body);
		buf_puts(&body, json[i]);
		if (run(KUBE_WATCH, JSON, &body, body.len, 0, &l) != -EBADMSG)
			fail_msg("taken: %s", json[i]);
		log_done(&l);
	}
	buf_reset(&body);
	sample_frame("RENAMED", "Pod", "", 0, &body);
	assert_int_equal(run(KUBE_WATCH, PROTOBUF, &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
	buf_reset(&body);
	buf_append(&body, "\0\0\0\0", 4);
	assert_int_equal(run(KUBE_WATCH, PROTOBUF, &body, body.len, 0, &l), -EBADMSG);
	log_done(&l);
}

static void test_objects_have_a_cap(void **state)
{
	static const uint8_t list[] =
	    "k8s\0\x0a\x09\x12\x07PodList\x12\xff\xff\xff\xff\x0f\x12\x81\x80\x80\x04";
	static const uint8_t frame[] = {0x7f, 0xff, 0xff, 0xff};
	struct buf b = {.data = (char *)list, .len = sizeof(list) - 1};
	_cleanup_(kube_stream_freep) struct kube_stream *s = NULL;
	_cleanup_free_ char *many = calloc(1, 1 << 20);
	struct log l = {0};
	int r = 0;

	(void)state;
	/* Refused by what it claims, before it comes. */
	assert_int_equal(run(KUBE_LIST, PROTOBUF, &b, b.len, 0, &l), -E2BIG);
	log_done(&l);
	b = (struct buf){.data = (char *)frame, .len = sizeof(frame)};
	assert_int_equal(run(KUBE_WATCH, PROTOBUF, &b, b.len, 0, &l), -E2BIG);
	log_done(&l);
	/* In JSON by what has come. */
	memset(many, 'a', 1 << 20);
	assert_int_equal(kube_stream_new(KUBE_WATCH, &ops, &l, &s), 0);
	assert_int_equal(feed(s, JSON, "{\"type\":\"", 9), 0);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(r, 0);
		r = feed(s, JSON, many, 1 << 20);
	}
	assert_int_equal(r, 0);
	assert_int_equal(feed(s, JSON, many, 1 << 20), -E2BIG);
	assert_int_equal(l.items, 0);
}

static void test_a_large_object_passes(void **state)
{
	_cleanup_(buf_done) struct buf body, json;
	_cleanup_free_ char *large = calloc(1, 6 << 20);
	struct log l = {0};

	(void)state;
	buf_init(&body, 16 << 20);
	memset(large, '"', 6 << 20);
	sample_frame("ADDED", "Pod", large, 6 << 20, &body);
	assert_int_equal(run(KUBE_WATCH, PROTOBUF, &body, 16384, 16384, &l), 0);
	assert_int_equal(l.longest, 6 << 20);
	log_done(&l);
	buf_init(&json, 16 << 20);
	memset(large, '[', 1 << 20);
	buf_puts(&json, "{\"type\":\"ADDED\",\"object\":{\"\\\\a\":");
	buf_append(&json, large, 1 << 20);
	memset(large, ']', 1 << 20);
	buf_append(&json, large, 1 << 20);
	buf_puts(&json, "}}");
	assert_int_equal(run(KUBE_WATCH, JSON, &json, 16384, 16384, &l), 0);
	assert_int_equal(l.items, 1);
	log_done(&l);
}

static void on_too_large(void *arg)
{
	((struct log *)arg)->items += 100;
}

/* Three items, the second too large: the others come, whatever the pieces. */
static void test_a_list_may_go_around_what_is_too_large(void **state)
{
	static const struct kube_stream_ops around = {
	    .item = on_item, .list_meta = on_list_meta, .too_large = on_too_large};
	static const size_t steps[] = {64 << 20, 100000, 16384};
	_cleanup_(buf_done) struct buf list;
	struct buf bodies[2];
	uint8_t *large;

	(void)state;
	buf_init(&list, 64 << 20);
	for (int i = 0; i < 2; i++)
		buf_init(&bodies[i], 64 << 20);
	buf_append(&list, "\x0a\x03\x12\x01\x31\x12\x01x\x12\x80\x80\x80\x05", 13);
	large = buf_extend(&list, 10 << 20);
	assert_non_null(large);
	memset(large, 'y', 10 << 20);
	buf_append(&list, "\x12\x01z", 3);
	sample_envelope("PodList", list.data, list.len, &bodies[0]);
	buf_puts(&bodies[1], "{\"kind\":\"PodList\",\"items\":[{\"x\":1},{\"y\":\"");
	large = buf_extend(&bodies[1], 10 << 20);
	assert_non_null(large);
	memset(large, 'y', 10 << 20);
	buf_puts(&bodies[1], "\"},{\"z\":1}],\"metadata\":{\"resourceVersion\":\"1\"}}");
	for (size_t i = 0; i < 2 * ARRAY_SIZE(steps); i++) {
		_cleanup_(kube_stream_freep) struct kube_stream *s = NULL;
		_cleanup_(log_done) struct log l = {0};
		const struct buf *body = &bodies[i % 2];

		buf_init(&l.text, 1 << 20);
		assert_int_equal(kube_stream_new(KUBE_LIST, &around, &l, &s), 0);
		for (size_t at = 0; at < body->len; at += steps[i / 2])
			assert_int_equal(feed(s, i % 2 ? JSON : PROTOBUF, body->data + at,
					      MIN(steps[i / 2], body->len - at)),
					 0);
		assert_int_equal(kube_stream_end(s), 0);
		assert_int_equal(l.items, 102);
		assert_string_equal(
		    l.text.data, i % 2 ? "0 0 7:{\"x\":1}\n0 0 7:{\"z\":1}\nlist rv=1 continue=\n"
				       : "list rv=1 continue=\n0 1 1:x\n0 1 1:z\n");
	}
	buf_done(&bodies[0]);
	buf_done(&bodies[1]);
}

static void test_the_items_error_ends_the_stream(void **state)
{
	_cleanup_(buf_done) struct buf body, want, json;
	_cleanup_(log_done) struct log l = {.fail_at = 2}, k = {.fail_at = 2};

	(void)state;
	proto_list(&body, &want, true);
	assert_int_equal(run(KUBE_LIST, PROTOBUF, &body, 16, 16, &l), -ECANCELED);
	assert_int_equal(l.items, 2);
	string_buf(&json, "{\"items\":[{},{},{}]}");
	assert_int_equal(run(KUBE_LIST, JSON, &json, 16, 16, &k), -ECANCELED);
	assert_int_equal(k.items, 2);
}

static void test_nothing_is_a_watch_but_no_list(void **state)
{
	_cleanup_(kube_stream_freep) struct kube_stream *watch = NULL, *list = NULL;
	struct log l = {0};

	(void)state;
	assert_int_equal(kube_stream_new(KUBE_WATCH, &ops, &l, &watch), 0);
	assert_int_equal(kube_stream_end(watch), 0);
	assert_int_equal(kube_stream_new(KUBE_LIST, &ops, &l, &list), 0);
	assert_int_equal(kube_stream_end(list), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_protobuf_list_in_any_pieces),
	    cmocka_unit_test(test_an_empty_protobuf_list),
	    cmocka_unit_test(test_a_protobuf_list_must_be_whole),
	    cmocka_unit_test(test_a_protobuf_watch_in_any_pieces),
	    cmocka_unit_test(test_a_json_list_in_any_pieces),
	    cmocka_unit_test(test_empty_json_lists),
	    cmocka_unit_test(test_a_json_list_must_be_whole),
	    cmocka_unit_test(test_a_json_watch_in_any_pieces),
	    cmocka_unit_test(test_a_json_watch_ends_between_events),
	    cmocka_unit_test(test_a_status_in_the_place_of_a_list),
	    cmocka_unit_test(test_what_is_no_list_is_refused),
	    cmocka_unit_test(test_a_list_that_is_longer_inside_than_outside),
	    cmocka_unit_test(test_what_is_no_watch_is_refused),
	    cmocka_unit_test(test_objects_have_a_cap),
	    cmocka_unit_test(test_a_large_object_passes),
	    cmocka_unit_test(test_a_list_may_go_around_what_is_too_large),
	    cmocka_unit_test(test_the_items_error_ends_the_stream),
	    cmocka_unit_test(test_nothing_is_a_watch_but_no_list),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
