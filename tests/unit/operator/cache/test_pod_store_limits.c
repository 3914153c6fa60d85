/* SPDX-License-Identifier: Apache-2.0 */
/* The pod store: its limits, and malicious input. */
#include "tests/unit/operator/cache/pod_store_rig.h"

static void pods_beyond_the_cap_are_counted(void **unused)
{
	char name[24];

	(void)unused;
	restart(1 << 20, 3);
	for (int i = 0; i < 5; i++) {
		(void)snprintf(name, sizeof(name), "web-%d", i);
		view_pod(&view, "shop", name, UID("01"), "n1");
		put();
	}
	assert_int_equal(pod_store_count(store), 3);
	assert_int_equal(stats().beyond_max, 2);
	assert_int_equal(pod_store_dropped(store), 2);
	/* Pods in the store can still change, and freed room is used. */
	view_pod(&view, "shop", "web-1", UID("01"), "n2");
	put();
	assert_string_equal(get("shop", "web-1")->node, "n2");
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	view_pod(&view, "shop", "web-4", UID("01"), "n1");
	put();
	assert_int_equal(pod_store_count(store), 3);
}

static void without_room_for_strings_a_pod_is_forgotten(void **unused)
{
	uint64_t before = 0;
	char value[4000];

	(void)unused;
	restart(160 << 10, 100);
	memset(value, 'v', sizeof(value));
	value[sizeof(value) - 1] = 0;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	put();
	view_label(&view, "a", value);
	for (int i = 0; i < 100 && !stats().no_room; i++) {
		value[0] = (char)('A' + i % 50);
		value[1] = (char)('A' + i / 50);
		view.meta.n_annotations = 0;
		for (int k = 0; k < 30; k++) {
			static char many[30][24];

			(void)snprintf(many[k], sizeof(many[k]), "team/%d", k);
			view_annotation(&view, many[k], value);
		}
		before = told;
		put();
	}
	/*
	 * The old version must not stay either: it might be profiled by labels that the pod has no
	 * more.
	 */
	assert_int_equal(stats().no_room, 1);
	assert_int_equal(pod_store_count(store), 0);
	assert_int_equal(told, before + 1);
	view.meta.n_annotations = 0;
	assert_int_equal(pod_store_put_view(store, &view, 2), 0);
	assert_string_equal(get("shop", "web")->node, "n1");
}

/* 64 MiB of labels and annotations; other namespaces' pods are as they were. */
static void a_namespace_has_room_for_so_much_text(void **unused)
{
	enum { TEXT = 4000, EACH = 16, PODS = POD_NS_TEXT_MAX / (TEXT * EACH) + 10 };
	static char keys_of[EACH][16], value[TEXT + 1];
	char name[16];
	int with = 0;

	(void)unused;
	restart(POD_NS_TEXT_MAX * 2, PODS + 10);
	memset(value, 'v', TEXT);
	for (int i = 0; i < PODS; i++) {
		(void)snprintf(name, sizeof(name), "p%d", i);
		(void)snprintf(value, 10, "%09d", i);
		value[9] = 'v';
		view_pod(&view, "evil", name, UID("01"), "n1");
		for (int k = 0; k < EACH; k++) {
			(void)snprintf(keys_of[k], sizeof(keys_of[k]), "team/%d", k);
			view_annotation(&view, keys_of[k], value);
		}
		put();
		with += !get("evil", name)->cut;
		assert_int_equal(info.n_annotations, info.cut ? 0 : EACH);
	}
	assert_in_range(with, PODS * 9 / 10, PODS - 1);
	assert_int_equal(stats().no_room, 0);
	view_pod(&view, "shop", "web", UID("02"), "n1");
	view_label(&view, "app", "web");
	put();
	assert_false(get("shop", "web")->cut);
	/* There is room again once another pod has gone. */
	view_pod(&view, "evil", "p0", UID("01"), "n1");
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	view_pod(&view, "evil", name, UID("01"), "n1");
	view_annotation(&view, "note", "x");
	put();
	assert_false(get("evil", name)->cut);
}

/* A pod with as many containers as there may be, and images of IMAGE bytes that no other pod has.
 */
enum { IMAGE = 1000, POD_IMAGES = POD_CONTAINERS_MAX * 2 * IMAGE };
static void view_large_pod(const char *name, int number)
{
	static char images[POD_CONTAINERS_MAX][IMAGE + 1], ids[POD_CONTAINERS_MAX][80];

	view_pod(&view, "evil", name, UID("01"), "n1");
	view_label(&view, "app", "web");
	for (int i = 0; i < POD_CONTAINERS_MAX; i++) {
		memset(images[i], 'i', IMAGE);
		(void)snprintf(images[i], 20, "%09d/%09d", number, i);
		images[i][19] = '/';
		(void)snprintf(ids[i], sizeof(ids[i]), "containerd://%02x%062d", i + 1, number);
		view_container(&view, images[i] + IMAGE - 9, images[i], ids[i]);
		view.containers[i].image_id = text(images[i] + 1);
	}
}

/* Their ids stay, also the former ones. */
static void a_namespace_has_room_for_so_many_containers(void **unused)
{
	enum { PODS = POD_NS_TEXT_MAX / POD_IMAGES + 10 };
	uint8_t id[32];
	size_t container;
	char name[16];
	int with = 0;

	(void)unused;
	restart(POD_NS_TEXT_MAX * 2, PODS + 10);
	for (int i = 0; i < PODS; i++) {
		(void)snprintf(name, sizeof(name), "p%d", i);
		view_large_pod(name, i);
		put();
		with += !get("evil", name)->cut;
		assert_int_equal(info.n_labels, !info.cut);
		assert_int_equal(info.n_containers, POD_CONTAINERS_MAX);
		assert_int_equal(!info.containers[5].name, info.cut);
		assert_int_equal(!info.containers[5].image, info.cut);
		assert_int_equal(!info.containers[5].image_id, info.cut);
	}
	assert_in_range(with, PODS * 9 / 10, PODS - 1);
	assert_int_equal(stats().cut_pods, PODS - with);
	assert_int_equal(stats().no_room, 0);
	/* The last one is cut: a container restarts, and is found by both ids. */
	assert_true(get("evil", name)->cut);
	view.containers[5].id = text(ID("ff"));
	for (int i = 0; i < 2; i++) {
		put();
		id_of(0xff, id);
		assert_memory_equal(get("evil", name)->containers[5].id, id, sizeof(id));
		assert_ptr_equal(pod_store_find_container(store, id, &container),
				 pod_store_find(store, "evil", name));
		assert_int_equal(container, 5);
		assert_int_equal(info.containers[5].previous_id[0], 6);
	}
	view_pod(&view, "shop", "web", UID("02"), "n1");
	view_container(&view, "app", "image:1", ID("aa"));
	put();
	assert_false(get("shop", "web")->cut);
	/* There is room again once another pod has gone. */
	view_pod(&view, "evil", "p0", UID("01"), "n1");
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	view_large_pod(name, PODS - 1);
	put();
	assert_false(get("evil", name)->cut);
	assert_string_equal(intern_text(in, info.containers[5].image, NULL),
			    view.containers[5].image.p);
}

static void a_pod_that_changes_takes_the_room_of_one(void **unused)
{
	enum { PODS = POD_NS_TEXT_MAX / POD_IMAGES };
	int with = 0;

	(void)unused;
	for (int round = 0; round < PODS * 2; round++) {
		view_large_pod("same", round);
		put();
		with += !get("evil", "same")->cut;
	}
	assert_int_equal(with, PODS * 2);
}

static void a_pod_with_too_many_labels_says_so(void **unused)
{
	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	put();
	assert_false(get("shop", "web")->cut);
	view.meta.cut = true;
	put();
	assert_true(get("shop", "web")->cut);
}

static void hostile_names_are_no_pods(void **unused)
{
	static char long_name[300];
	const struct {
		struct slice s;
	} table[] = {
	    {{NULL, 0}},   {{"", 0}},	       {{"a b", 3}},	 {{"a/b", 3}},
	    {{"a\0b", 3}}, {{"a\nb", 3}},      {{"a\x7f", 2}},	 {{"\xc3\xa9", 2}},
	    {{"\xff", 1}}, {{long_name, 254}}, {{"../../x", 7}},
	};

	(void)unused;
	memset(long_name, 'x', sizeof(long_name));
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		view_pod(&view, "shop", "web", UID("01"), "n1");
		view.meta.name = table[i].s;
		assert_int_equal(pod_store_put_view(store, &view, 1), -EBADMSG);
		assert_int_equal(pod_store_remove_view(store, &view.meta), -EBADMSG);
		view.meta.name = text("web");
		view.meta.ns = table[i].s;
		assert_int_equal(pod_store_put_view(store, &view, 1), -EBADMSG);
	}
	assert_int_equal(pod_store_count(store), 0);
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view.meta.name = (struct slice){long_name, 253};
	view.node_name = (struct slice){"a\0b", 3};
	put();
	assert_int_equal(pod_store_count(store), 1);
	assert_int_equal(stats().cut_values, 1);
}

static void hostile_values_are_left_out(void **unused)
{
	static char mib[1 << 20];

	(void)unused;
	memset(mib, 'm', sizeof(mib));
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){text("resource.opentelemetry.io/big"), {mib, sizeof(mib)}};
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){{mib, sizeof(mib)}, text("x")};
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){text("resource.opentelemetry.io/nul"), {"a\0b", 3}};
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){text("resource.opentelemetry.io/latin1"), {"\xe9", 1}};
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){text("resource.opentelemetry.io/surrogate"), {"\xed\xa0\x80", 3}};
	view.meta.annotations[view.meta.n_annotations++] =
	    (struct slice_pair){text("resource.opentelemetry.io/overlong"), {"\xe0\x80\x80", 3}};
	view_annotation(&view, "resource.opentelemetry.io/utf8",
			"gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\xa5\n");
	view.meta.labels[view.meta.n_labels++] = (struct slice_pair){{NULL, 0}, text("no key")};
	view_label(&view, "same", "first");
	view_label(&view, "same", "last");
	view_container(&view, "app", "", "containerd://tooshort");
	view.containers[0].image = (struct slice){mib, sizeof(mib)};
	view.hostname = text("bad name");
	view.pod_ip = text("10.0.0.256");
	put();
	assert_int_equal(get("shop", "web")->n_annotations, 1);
	assert_string_equal(info.annotations[0].value, "gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\xa5\n");
	assert_int_equal(info.n_labels, 1);
	assert_string_equal(info.labels[0].value, "last");
	assert_string_equal(info.ip, "");
	assert_string_equal(info.hostname, "");
	assert_int_equal(info.containers[0].image, 0);
	assert_int_equal(stats().cut_values, 5 + 1 + 1 + 2);
	assert_true(intern_bytes(in) + pod_store_bytes(store) < 400 << 10);
}

static void a_pod_of_everything_fits(void **unused)
{
	static char names[VIEW_PAIRS_MAX][16], ids[POD_CONTAINERS_MAX][2][80];
	uint8_t id[32] = {0};
	size_t container;

	(void)unused;
	view_pod(&view, "shop", "web", "not-a-uuid-but-thirty-six-characters", "n1");
	view.hostname = text("another");
	view.pod_ip = text("fd00:1:2:3:4:5:6:7");
	for (size_t i = 0; i < VIEW_PAIRS_MAX; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "team/%zu", i);
		view_label(&view, names[i], names[i]);
		view_annotation(&view, names[i], names[i]);
	}
	for (size_t k = 0; k < 2; k++) {
		view.n_containers = 0;
		for (size_t i = 0; i < POD_CONTAINERS_MAX; i++) {
			(void)snprintf(ids[i][k], sizeof(ids[i][k]), "containerd://%02zx%062zx",
				       i + 1, k);
			view_container(&view, names[i], names[i], ids[i][k]);
			view.containers[i].restart_count = UINT32_MAX;
		}
		view.meta.cut = true;
		put();
	}
	assert_int_equal(get("shop", "web")->n_labels, VIEW_PAIRS_MAX);
	assert_int_equal(info.n_annotations, 32);
	assert_int_equal(stats().cut_values, 2 * (VIEW_PAIRS_MAX - 32));
	assert_int_equal(stats().cut_pods, 2);
	assert_int_equal(info.n_containers, POD_CONTAINERS_MAX);
	assert_int_equal(info.containers[63].restart_count, UINT32_MAX);
	assert_string_equal(info.uid_text, "not-a-uuid-but-thirty-six-characters");
	assert_string_equal(info.ip, "fd00:1:2:3:4:5:6:7");
	for (size_t i = 0; i < POD_CONTAINERS_MAX; i++)
		for (id[31] = 0; id[31] < 2; id[31]++) {
			id[0] = (uint8_t)(i + 1);
			assert_non_null(pod_store_find_container(store, id, &container));
			assert_int_equal(container, i);
		}
}

/* Neighbours of the hexadecimal digits in ASCII, and bytes that bit masks could take for digits. */
static void what_is_no_digit_makes_no_container_id(void **unused)
{
	static const char bad[] = "/:@G`g\x10\x01\x7f\xb0\xe1 ";
	static const uint8_t digits[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
					 0xab, 0xcd, 0xef, 0x0a, 0xff, 0xf0, 0x9a, 0x90};
	char id[] = "cri-o://0123456789abcdefABCDEF0aFff09A90"
		    "00000000000000000000000000000000";

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_container(&view, "app", "", id);
	put();
	assert_memory_equal(get("shop", "web")->containers[0].id, digits, sizeof(digits));
	for (size_t at = 8; id[at]; at++)
		for (size_t i = 0; i < sizeof(bad); i++) { /* the NUL of BAD too */
			char digit = id[at];

			id[at] = bad[i];
			view_pod(&view, "shop", "bad", UID("02"), "n1");
			view_container(&view, "app", "", "");
			view.containers[0].id = (struct slice){id, sizeof(id) - 1};
			put();
			id[at] = digit;
			for (size_t k = 0; k < 32; k++)
				assert_int_equal(get("shop", "bad")->containers[0].id[k], 0);
		}
}

static void a_thousand_pods_with_one_id_cost_little(void **unused)
{
	char name[24], uid[40];
	uint8_t id[32];

	(void)unused;
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "p%d", i);
		(void)snprintf(uid, sizeof(uid), "00000000-0000-0000-0000-%012d", i);
		view_pod(&view, "shop", name, uid, "n1");
		view_container(&view, "app", "i", ID("aa"));
		put();
	}
	id_of(0xaa, id);
	assert_non_null(pod_store_find_container(store, id, NULL));
	assert_int_equal(stats().unindexed, 1000 - 32);
	assert_int_equal(pod_store_count(store), 1000);
	pod_store_replaced(store, 2);
	assert_null(pod_store_find_container(store, id, NULL));
	assert_true(pod_store_bytes(store) < 100 << 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(pods_beyond_the_cap_are_counted),
	    TEST(without_room_for_strings_a_pod_is_forgotten),
	    TEST(a_namespace_has_room_for_so_much_text),
	    TEST(a_namespace_has_room_for_so_many_containers),
	    TEST(a_pod_that_changes_takes_the_room_of_one),
	    TEST(a_pod_with_too_many_labels_says_so),
	    TEST(hostile_names_are_no_pods),
	    TEST(hostile_values_are_left_out),
	    TEST(a_pod_of_everything_fits),
	    TEST(what_is_no_digit_makes_no_container_id),
	    TEST(a_thousand_pods_with_one_id_cost_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
