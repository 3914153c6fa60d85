/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a real API server answered (tests/data/kube/capture, version.json): both encodings are cut
 * into the same objects, and decode to the same views, in any pieces.
 */
#include "sample.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static struct pod_view pod_view;
static struct meta_view meta_view;
static struct endpoint_slice_view slice_view;

enum { PODS, METAS, SLICES };

struct seen {
	struct buf text;
	int what;
	int events[KUBE_ERROR + 1];
};

static void seen_done(struct seen *s)
{
	buf_done(&s->text);
}

static void file(const char *name, struct buf *ret)
{
	char path[512], block[4096];
	_cleanup_fclose_ FILE *f = NULL;
	size_t n;

	snprintf(path, sizeof(path), "%s/kube/%s", TEST_DATA, name);
	f = fopen(path, "rbe");
	if (!f)
		fail_msg("%s: %s", path, strerror(errno));
	buf_init(ret, 16 << 20);
	while ((n = fread(block, 1, sizeof(block), f)) > 0)
		buf_append(ret, block, n);
}

static void see_error(struct seen *s, const struct kube_item *item)
{
	struct status_view v;

	assert_int_equal(kube_decode_status(item, &v), 0);
	buf_printf(&s->text, "%.*s %.*s %.*s %d\n", (int)v.status.n, v.status.p, (int)v.reason.n,
		   v.reason.p, (int)v.message.n, v.message.p, v.code);
}

static int on_item(void *arg, const struct kube_item *item)
{
	struct seen *s = arg;
	struct slice rv;
	bool end;

	s->events[item->type]++;
	buf_printf(&s->text, "event %d\n", item->type);
	if (item->type == KUBE_ERROR) {
		see_error(s, item);
	} else if (item->type == KUBE_BOOKMARK) {
		assert_int_equal(kube_decode_bookmark(item, &rv, &end), 0);
		/* Both encodings were captured one after the other, so the version may differ. */
		assert_true(rv.n > 0 && strspn(rv.p, "0123456789") >= rv.n);
		buf_printf(&s->text, "bookmark, the end: %d\n", end);
	} else if (s->what == PODS) {
		assert_int_equal(kube_decode_pod(item, &pod_view), 0);
		sample_saw_pod(&pod_view, &s->text);
	} else if (s->what == METAS) {
		assert_int_equal(kube_decode_meta(item, &meta_view), 0);
		sample_saw_meta(&meta_view, &s->text);
	} else {
		assert_int_equal(kube_decode_endpoint_slice(item, &slice_view), 0);
		sample_saw_endpoint_slice(&slice_view, &s->text);
	}
	return 0;
}

static int on_list_meta(void *arg, const char *rv, const char *token)
{
	struct seen *s = arg;

	(void)s;
	assert_true(*rv != 0);
	(void)token;
	return 0;
}

static const struct kube_stream_ops ops = {.item = on_item, .list_meta = on_list_meta};

static void see(enum kube_stream_mode mode, const char *name, const char *type, int what,
		size_t step, struct seen *ret)
{
	_cleanup_(kube_stream_freep) struct kube_stream *s = NULL;
	_cleanup_(buf_done) struct buf body;

	*ret = (struct seen){.what = what};
	buf_init(&ret->text, 16 << 20);
	buf_puts(&ret->text, ""); /* never NULL */
	file(name, &body);
	assert_int_equal(kube_stream_new(mode, &ops, ret, &s), 0);
	for (size_t at = 0; at < body.len; at += step) {
		size_t n = MIN(step, body.len - at);

		assert_int_equal(kube_stream_feed(s, type, body.data + at, n), 0);
	}
	assert_int_equal(kube_stream_end(s), 0);
	assert_int_equal(buf_error(&ret->text), 0);
}

/* Asserts that NAME.json and all pieces give the views of NAME.pb. */
static void check(enum kube_stream_mode mode, const char *name, int what, struct seen *ret)
{
	static const size_t steps[] = {SIZE_MAX / 2, 1, 7, 2048};
	char pb[64], json[64];

	snprintf(pb, sizeof(pb), "%s.pb", name);
	snprintf(json, sizeof(json), "%s.json", name);
	see(mode, pb, "application/vnd.kubernetes.protobuf", what, steps[0], ret);
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		_cleanup_(seen_done) struct seen p, j;

		see(mode, pb, "application/vnd.kubernetes.protobuf", what, steps[i], &p);
		assert_string_equal(p.text.data, ret->text.data);
		see(mode, json, "application/json", what, steps[i], &j);
		assert_string_equal(j.text.data, ret->text.data);
	}
}

static bool has(const struct seen *s, const char *text)
{
	return strstr(s->text.data, text) != NULL;
}

static void test_a_list_of_pods(void **state)
{
	_cleanup_(seen_done) struct seen s, pretty;

	(void)state;
	check(KUBE_LIST, "pods", PODS, &s);
	assert_int_equal(s.events[KUBE_ADDED], 3);
	assert_true(has(&s, "name=[19]web-5d4f8c7b9-x2x4z\n"));
	assert_true(has(&s, "key=[5]empty\nvalue=[0]\n"));
	assert_true(has(&s, "a \"quoted\" <tag> & a back\\slash,\n\ta new line, caf\xc3\xa9 "
			    "\xf0\x9f\x94\xa5 \xe2\x80\xa8\n"));
	assert_true(has(&s, "owner name=[13]web-5d4f8c7b9\n"));
	assert_true(has(&s, "controller 1\n"));
	assert_true(has(&s, "hostname=[5]web-0\nhost network 0 containers 5\n"));
	/* The native sidecar is an init container, with its own status. */
	assert_true(has(&s,
			"container 1\nname=[5]proxy\nimage=[33]registry.example.com/mesh/proxy:2\n"
			"id=[77]containerd://00000000000000000000000000000000000000000000000000"
			"00000000000004\n"));
	assert_true(has(&s, "container 2\nname=[5]debug\n"));
	assert_true(has(&s, "restarts 12\n"));
	assert_true(has(&s, "deleting 1"));
	assert_true(has(&s, "host network 1 containers 1\n"));
	see(KUBE_LIST, "pods.pretty.json", "application/json", PODS, 100, &pretty);
	assert_string_equal(pretty.text.data, s.text.data);
}

static void test_a_page_and_an_empty_list(void **state)
{
	_cleanup_(seen_done) struct seen page, empty;

	(void)state;
	check(KUBE_LIST, "pods.page", PODS, &page);
	assert_int_equal(page.events[KUBE_ADDED], 1);
	check(KUBE_LIST, "pods.empty", PODS, &empty);
	assert_int_equal(empty.events[KUBE_ADDED], 0);
}

static void test_partial_metadata(void **state)
{
	_cleanup_(seen_done) struct seen list, watch;

	(void)state;
	check(KUBE_LIST, "pods.partial", METAS, &list);
	assert_int_equal(list.events[KUBE_ADDED], 3);
	assert_true(has(&list, "name=[19]web-5d4f8c7b9-x2x4z\n"));
	check(KUBE_WATCH, "watch.partial", METAS, &watch);
	assert_int_equal(watch.events[KUBE_ADDED], 1);
	assert_int_equal(watch.events[KUBE_DELETED], 1);
}

static void test_endpoint_slices(void **state)
{
	_cleanup_(seen_done) struct seen s;

	(void)state;
	check(KUBE_LIST, "slices", SLICES, &s);
	assert_true(has(&s, "key=[26]kubernetes.io/service-name\nvalue=[3]web\n"));
	assert_true(has(&s, "target uid=[36]7c1c8a63-9e36-4d3a-a6b1-0242ac120002\n"
			    "target name=[19]web-5d4f8c7b9-x2x4z\n"));
	assert_false(has(&s, "target name=[6]node-2"));
}

static void test_watches(void **state)
{
	_cleanup_(seen_done) struct seen s, initial;

	(void)state;
	check(KUBE_WATCH, "watch", PODS, &s);
	assert_int_equal(s.events[KUBE_ADDED], 1);
	assert_true(s.events[KUBE_MODIFIED] >= 1);
	assert_int_equal(s.events[KUBE_DELETED], 1);
	assert_true(s.events[KUBE_BOOKMARK] >= 1);
	assert_true(has(&s, "the end: 0\n"));
	assert_false(has(&s, "the end: 1\n"));
	check(KUBE_WATCH, "watch.initial", PODS, &initial);
	assert_int_equal(initial.events[KUBE_ADDED], 3);
	assert_int_equal(initial.events[KUBE_BOOKMARK], 1);
	assert_true(has(&initial, "bookmark, the end: 1\n"));
}

static void test_errors(void **state)
{
	_cleanup_(seen_done) struct seen list, watch;
	static const char *const types[] = {"application/vnd.kubernetes.protobuf",
					    "application/json"};
	static const char *const files[] = {"error.404.pb", "error.404.json"};

	(void)state;
	check(KUBE_WATCH, "watch.410", PODS, &watch);
	assert_true(has(&watch, "Failure Expired "));
	assert_true(has(&watch, " 410\n"));
	check(KUBE_LIST, "error.410", PODS, &list);
	assert_int_equal(list.events[KUBE_ERROR], 1);
	assert_true(has(&list, "Failure Expired "));
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_(buf_done) struct buf body;
		uint8_t scratch[1024];
		struct kube_item item;
		struct status_view v;

		file(files[i], &body);
		assert_true(body.len < sizeof(scratch));
		assert_int_equal(
		    kube_item_of(types[i], (const uint8_t *)body.data, body.len, scratch, &item),
		    0);
		assert_int_equal(kube_decode_status(&item, &v), 0);
		assert_int_equal(v.code, 404);
		assert_int_equal(v.message.n, strlen("pods \"no\\\"one\" not found"));
		assert_memory_equal(v.message.p, "pods \"no\\\"one\" not found", v.message.n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_list_of_pods),
	    cmocka_unit_test(test_a_page_and_an_empty_list),
	    cmocka_unit_test(test_partial_metadata),
	    cmocka_unit_test(test_endpoint_slices),
	    cmocka_unit_test(test_watches),
	    cmocka_unit_test(test_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
