/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: what they see of random objects is what protobuf-c and cJSON wrote. */
#include "sample.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { PODS = 400, SLICES = 100 };

static struct pod_view pod_view;
static struct meta_view meta_view;
static struct endpoint_slice_view slice_view;

struct texts {
	struct buf bytes, want, saw;
	uint8_t *scratch;
};

static void texts_done(struct texts *t)
{
	buf_done(&t->bytes);
	buf_done(&t->want);
	buf_done(&t->saw);
	free(t->scratch);
}

static struct texts texts_new(void)
{
	struct texts t = {0};

	buf_init(&t.bytes, 64 << 20);
	buf_init(&t.want, 64 << 20);
	buf_init(&t.saw, 64 << 20);
	return t;
}

/* Exactly as long as its bytes, so that ASan sees a read or write past the end. */
static struct kube_item item_of(struct texts *t, enum kube_encoding encoding)
{
	uint8_t *exact = malloc(MAX(t->bytes.len, (size_t)1));

	assert_int_equal(buf_error(&t->bytes), 0);
	memcpy(exact, t->bytes.data, t->bytes.len);
	t->scratch = malloc(MAX(t->bytes.len, (size_t)1));
	return (struct kube_item){
	    .encoding = encoding, .bytes = exact, .len = t->bytes.len, .scratch = t->scratch};
}

static void same_text(struct texts *t)
{
	assert_int_equal(buf_error(&t->want), 0);
	assert_int_equal(buf_error(&t->saw), 0);
	assert_string_equal(t->saw.data, t->want.data);
}

static void check_pod(const K8s__Pod *pod, enum kube_encoding encoding, bool pretty)
{
	_cleanup_(texts_done) struct texts t = texts_new();
	struct kube_item item;

	if (encoding == KUBE_JSON)
		sample_pod_json(pod, pretty, &t.bytes);
	else
		sample_pack(pod, &t.bytes);
	item = item_of(&t, encoding);
	/* The meta first: the pod must come out the same after another decoder has been there. */
	assert_int_equal(kube_decode_meta(&item, &meta_view), 0);
	assert_int_equal(kube_decode_pod(&item, &pod_view), 0);
	assert_memory_equal(item.bytes, t.bytes.data, t.bytes.len);
	sample_expect_pod(pod, &t.want);
	sample_saw_pod(&pod_view, &t.saw);
	same_text(&t);
	buf_reset(&t.want);
	buf_reset(&t.saw);
	pod_view.meta.cut = meta_view.cut; /* of the pod's containers too */
	sample_saw_meta(&pod_view.meta, &t.want);
	sample_saw_meta(&meta_view, &t.saw);
	same_text(&t);
	free((void *)item.bytes);
}

static void test_pods_are_seen_alike_in_both_encodings(void **state)
{
	struct sample_random r = {.state = 1};

	(void)state;
	for (int i = 0; i < PODS; i++) {
		K8s__Pod *pod = sample_pod(&r);

		check_pod(pod, KUBE_PROTOBUF, false);
		check_pod(pod, KUBE_JSON, false);
		check_pod(pod, KUBE_JSON, true);
		k8s__pod__free_unpacked(pod, NULL);
	}
}

static void test_endpoint_slices_are_seen_alike_in_both_encodings(void **state)
{
	struct sample_random r = {.state = 2};

	(void)state;
	for (int i = 0; i < SLICES * 3; i++) {
		_cleanup_(texts_done) struct texts t = texts_new();
		K8s__EndpointSlice *slice = sample_endpoint_slice(&r);
		struct kube_item item;

		if (i % 3)
			sample_endpoint_slice_json(slice, i % 3 == 2, &t.bytes);
		else
			sample_pack(slice, &t.bytes);
		item = item_of(&t, i % 3 ? KUBE_JSON : KUBE_PROTOBUF);
		assert_int_equal(kube_decode_endpoint_slice(&item, &slice_view), 0);
		sample_expect_endpoint_slice(slice, &t.want);
		sample_saw_endpoint_slice(&slice_view, &t.saw);
		same_text(&t);
		free((void *)item.bytes);
		k8s__endpoint_slice__free_unpacked(slice, NULL);
	}
}

/* Every prefix is refused or decoded, never read past; a protobuf one may be a shorter message. */
static void test_truncated_pods_are_survived(void **state)
{
	struct sample_random r = {.state = 3};

	(void)state;
	for (int i = 0; i < 6; i++) {
		_cleanup_(texts_done) struct texts t = texts_new();
		K8s__Pod *pod = sample_pod(&r);
		size_t whole;

		if (i % 2)
			sample_pod_json(pod, false, &t.bytes);
		else
			sample_pack(pod, &t.bytes);
		k8s__pod__free_unpacked(pod, NULL);
		whole = t.bytes.len;
		for (size_t n = 0; n < whole; n++) {
			struct kube_item item;
			int result;

			t.bytes.len = n;
			item = item_of(&t, i % 2 ? KUBE_JSON : KUBE_PROTOBUF);
			result = kube_decode_pod(&item, &pod_view);
			if (i % 2)
				assert_int_equal(result, -EBADMSG);
			free(TAKE_PTR(t.scratch));
			free((void *)item.bytes);
		}
	}
}

static struct kube_item json_item(const char *s, uint8_t *scratch)
{
	return (struct kube_item){.encoding = KUBE_JSON,
				  .bytes = (const uint8_t *)s,
				  .len = strlen(s),
				  .scratch = scratch};
}

static void assert_slice(struct slice s, const char *want)
{
	assert_int_equal(s.n, strlen(want));
	assert_memory_equal(s.p, want, s.n);
}

static void test_status_before_spec_meets_its_containers(void **state)
{
	uint8_t scratch[1024];
	struct kube_item item = json_item(
	    "{\"status\":{\"phase\":\"Running\",\"initContainerStatuses\":[{\"name\":\"proxy\","
	    "\"containerID\":\"containerd:\\/\\/11\",\"restartCount\":3}]},\"spec\":{"
	    "\"initContainers\":[{\"name\":\"proxy\",\"restartPolicy\":\"Always\"}]},\"metadata\":{"
	    "}}",
	    scratch);

	(void)state;
	assert_int_equal(kube_decode_pod(&item, &pod_view), 0);
	assert_int_equal(pod_view.n_containers, 1);
	assert_int_equal(pod_view.containers[0].type, CONTAINER_INIT);
	assert_slice(pod_view.containers[0].id, "containerd://11");
	assert_int_equal(pod_view.containers[0].restart_count, 3);
	assert_slice(pod_view.phase, "Running");

	/* In protobuf: the status's field first. */
	item = (struct kube_item){
	    .encoding = KUBE_PROTOBUF,
	    .bytes = (const uint8_t *)"\x1a\x0a\x42\x08\x0a\x01"
				      "a\x42\x03"
				      "id1\x12\x05\x12\x03\x0a\x01"
				      "a",
	    .len = 19,
	};
	assert_int_equal(kube_decode_pod(&item, &pod_view), 0);
	assert_int_equal(pod_view.n_containers, 1);
	assert_slice(pod_view.containers[0].id, "id1");
}

static void test_an_error_is_read(void **state)
{
	uint8_t scratch[256], bytes[256];
	struct status_view v = {.code = 7};
	struct kube_item item = json_item(
	    "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\","
	    "\"message\":\"pods \\\"a\\\" not found\",\"reason\":\"NotFound\",\"code\":404}\n",
	    scratch);
	K8s__Status status = K8S__STATUS__INIT;

	(void)state;
	assert_int_equal(kube_decode_status(&item, &v), 0);
	assert_slice(v.message, "pods \"a\" not found");
	assert_slice(v.status, "Failure");
	assert_slice(v.reason, "NotFound");
	assert_int_equal(v.code, 404);

	status.status = (char *)"Failure";
	status.message = (char *)"too old resource version: 1 (2)";
	status.reason = (char *)"Expired";
	status.has_code = true;
	status.code = 410;
	item = (struct kube_item){.encoding = KUBE_PROTOBUF, .bytes = bytes};
	item.len = k8s__status__pack(&status, bytes);
	assert_int_equal(kube_decode_status(&item, &v), 0);
	assert_slice(v.message, status.message);
	assert_slice(v.reason, "Expired");
	assert_int_equal(v.code, 410);

	/* Untouched on failure. */
	item.len--;
	v.code = 7;
	assert_int_equal(kube_decode_status(&item, &v), -EBADMSG);
	assert_int_equal(v.code, 7);
}

static void test_bookmarks_say_where_the_initial_events_end(void **state)
{
	static const struct {
		const char *annotations;
		bool end;
	} cases[] = {
	    {"", false},
	    {",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}", true},
	    {",\"annotations\":{\"k8s.io/initial-events-end\":\"false\"}", false},
	    {",\"annotations\":{\"a\":\"true\",\"k8s.io\\/initial-events-end\":\"true\"}", true},
	    {",\"annotations\":null", false},
	};
	uint8_t scratch[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char s[256];
		struct kube_item item;
		struct slice rv;
		bool end = !cases[i].end;

		snprintf(s, sizeof(s),
			 "{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"12746\"%s},"
			 "\"spec\":{\"containers\":null},\"status\":{}}",
			 cases[i].annotations);
		item = json_item(s, scratch);
		assert_int_equal(kube_decode_bookmark(&item, &rv, &end), 0);
		assert_slice(rv, "12746");
		assert_int_equal(end, cases[i].end);
	}
}

static void test_a_bookmark_in_protobuf(void **state)
{
	K8s__Pair pair = K8S__PAIR__INIT, *pairs[] = {&pair};
	K8s__ObjectMeta meta = K8S__OBJECT_META__INIT;
	K8s__Pod pod = K8S__POD__INIT;
	struct kube_item item = {.encoding = KUBE_PROTOBUF};
	uint8_t bytes[256];
	struct slice rv;
	bool end = false;

	(void)state;
	pair.key = (char *)"k8s.io/initial-events-end";
	pair.value = (char *)"true";
	meta.resource_version = (char *)"99";
	meta.n_annotations = 1;
	meta.annotations = pairs;
	pod.metadata = &meta;
	item.bytes = bytes;
	item.len = k8s__pod__pack(&pod, bytes);
	assert_int_equal(kube_decode_bookmark(&item, &rv, &end), 0);
	assert_slice(rv, "99");
	assert_true(end);
	meta.n_annotations = 0;
	item.len = k8s__pod__pack(&pod, bytes);
	assert_int_equal(kube_decode_bookmark(&item, &rv, &end), 0);
	assert_false(end);
}

static void test_what_is_no_such_object_is_refused(void **state)
{
	static const char *const json[] = {
	    "",
	    "null",
	    "[]",
	    "\"a\"",
	    "{\"metadata\":[]}",
	    "{\"metadata\":{\"name\":5}}",
	    "{\"metadata\":{\"labels\":{\"a\":{}}}}",
	    "{\"metadata\":{\"labels\":{\"a\":\"b\"}",
	    "{\"metadata\":{\"creationTimestamp\":\"yesterday\"}}",
	    "{\"metadata\":{\"creationTimestamp\":\"2026-13-01T00:00:00Z\"}}",
	    "{\"metadata\":{\"generation\":\"1\"}}",
	    "{\"metadata\":{\"generation\":99999999999999999999}}",
	    "{\"metadata\":{\"name\":\"\\x\"}}",
	    "{\"metadata\":{\"name\":\"\\u12g4\"}}",
	    "{\"metadata\" {}}",
	    "{\"metadata\":{} \"spec\":{}}",
	    "{\"metadata\":{},\"spec\":{\"containers\":{}}}",
	};
	static const struct {
		const char *p;
		size_t n;
	} proto[] = {
	    {"\x0a", 1},	     /* no length */
	    {"\x0a\x02\x0a", 3},     /* longer than what is there */
	    {"\x08\x01", 2},	     /* metadata that is a number */
	    {"\x0a\x02\x08\x01", 4}, /* a name that is a number */
	    {"\x00\x01", 2},	     /* field 0 */
	    {"\x0b\x0c", 2},	     /* a group */
	    {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
	    {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
	    {"\x12\x04\x12\x02\x0a\x05", 6}, /* in a container of the spec */
	    {"\x1a\x04\x42\x02\x0a\x05", 6}, /* in a container's status */
	};
	uint8_t scratch[256];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(json); i++) {
		struct kube_item item = json_item(json[i], scratch);

		if (kube_decode_pod(&item, &pod_view) != -EBADMSG)
			fail_msg("taken: %s", json[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(proto); i++) {
		struct kube_item item = {.encoding = KUBE_PROTOBUF,
					 .bytes = (const uint8_t *)proto[i].p,
					 .len = proto[i].n};

		if (kube_decode_pod(&item, &pod_view) != -EBADMSG)
			fail_msg("protobuf %zu was taken", i);
	}
}

static void test_an_escape_without_scratch_is_refused(void **state)
{
	struct kube_item plain = json_item("{\"metadata\":{\"name\":\"a\"},\"x\":\"\\\"\"}", NULL);
	struct kube_item item = json_item("{\"metadata\":{\"name\":\"a\\u0062\"}}", NULL);
	uint8_t scratch[64];

	(void)state;
	assert_int_equal(kube_decode_meta(&plain, &meta_view), 0);
	assert_int_equal(kube_decode_meta(&item, &meta_view), -ENOBUFS);
	item.scratch = scratch;
	assert_int_equal(kube_decode_meta(&item, &meta_view), 0);
	assert_slice(meta_view.name, "ab");
}

static void test_a_body_is_one_object(void **state)
{
	static const char json[] = "{\"metadata\":{\"name\":\"a\"}}\n";
	_cleanup_(buf_done) struct buf envelope;
	struct kube_item item;

	(void)state;
	buf_init(&envelope, 1024);
	sample_envelope("Pod",
			"\x0a\x03\x0a\x01"
			"a",
			5, &envelope);
	assert_int_equal(kube_item_of("application/vnd.kubernetes.protobuf",
				      (const uint8_t *)envelope.data, envelope.len, NULL, &item),
			 0);
	assert_int_equal(item.encoding, KUBE_PROTOBUF);
	assert_int_equal(item.len, 5);
	assert_int_equal(kube_decode_meta(&item, &meta_view), 0);
	assert_slice(meta_view.name, "a");
	assert_int_equal(kube_item_of("application/json; charset=utf-8", (const uint8_t *)json,
				      sizeof(json) - 1, NULL, &item),
			 0);
	assert_int_equal(kube_decode_meta(&item, &meta_view), 0);
	assert_slice(meta_view.name, "a");
	assert_int_equal(kube_item_of("application/vnd.kubernetes.protobuf", (const uint8_t *)json,
				      sizeof(json) - 1, NULL, &item),
			 -EBADMSG);
	assert_int_equal(
	    kube_item_of("text/plain", (const uint8_t *)"404 page not found", 18, NULL, &item),
	    -EBADMSG);
	assert_int_equal(kube_item_of(NULL, (const uint8_t *)json, 2, NULL, &item), -EBADMSG);
	/* With a content encoding, and without an object. */
	assert_int_equal(kube_item_of("application/vnd.kubernetes.protobuf",
				      (const uint8_t *)"k8s\0\x12\x01x\x1a\x04gzip", 13, NULL,
				      &item),
			 -EBADMSG);
	assert_int_equal(kube_item_of("application/vnd.kubernetes.protobuf",
				      (const uint8_t *)"k8s\0\x1a\0", 6, NULL, &item),
			 -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_pods_are_seen_alike_in_both_encodings),
	    cmocka_unit_test(test_endpoint_slices_are_seen_alike_in_both_encodings),
	    cmocka_unit_test(test_truncated_pods_are_survived),
	    cmocka_unit_test(test_status_before_spec_meets_its_containers),
	    cmocka_unit_test(test_an_error_is_read),
	    cmocka_unit_test(test_bookmarks_say_where_the_initial_events_end),
	    cmocka_unit_test(test_a_bookmark_in_protobuf),
	    cmocka_unit_test(test_what_is_no_such_object_is_refused),
	    cmocka_unit_test(test_an_escape_without_scratch_is_refused),
	    cmocka_unit_test(test_a_body_is_one_object),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
