/* SPDX-License-Identifier: Apache-2.0 */
/* The pod store, one rule a test: what is kept, what is reported, what is found. */
#include "tests/unit/operator/cache/pod_store_rig.h"

static void only_asked_annotations_are_kept(void **unused)
{
	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_annotation(&view, "zzz", "not kept");
	view_annotation(&view, "profiling.kiln.dev/mode", "disabled");
	view_annotation(&view, "resource.opentelemetry.io/service.name", "api");
	view_annotation(&view, "kubernetes.io/config.mirror", "x");
	view_annotation(&view, "kubernetes.io/config.mirror.not", "x");
	view_annotation(&view, "team/owner", "blue");
	view_annotation(&view, "note", "");
	view_annotation(&view, "note/more", "not kept");
	put();
	assert_int_equal(get("shop", "web")->n_annotations, 5);
	/* Sorted, so that equal sets are one string in any order. */
	assert_string_equal(info.annotations[0].key, "kubernetes.io/config.mirror");
	assert_string_equal(info.annotations[1].key, "note");
	assert_string_equal(info.annotations[1].value, "");
	assert_string_equal(info.annotations[2].value, "disabled");
	assert_string_equal(info.annotations[3].value, "api");
	assert_string_equal(info.annotations[4].value, "blue");
	assert_int_equal(pod_store_dropped(store), 0);
}

static void only_changes_of_kept_fields_are_told(void **unused)
{
	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_label(&view, "b", "2");
	view_label(&view, "a", "1");
	view_container(&view, "app", "image:1", ID("aa"));
	put();
	assert_int_equal(told, 1);
	view.meta.resource_version = text("77");
	view.meta.generation = 5;
	view_annotation(&view, "unknown", "other");
	view.phase = text("Unknown");
	put();
	view.meta.labels[0] = (struct slice_pair){text("a"), text("1")}; /* another order */
	view.meta.labels[1] = (struct slice_pair){text("b"), text("2")};
	put();
	assert_int_equal(told, 1);
	assert_int_equal(stats().unchanged, 2);
	view.containers[0].restart_count = 1;
	put();
	assert_int_equal(told, 2);
	view.phase = text("Succeeded");
	put();
	assert_int_equal(told, 3);
	assert_true(get("shop", "web")->terminated);
}

static void equal_sets_are_one_string(void **unused)
{
	size_t before;

	(void)unused;
	view_pod(&view, "shop", "web-1", UID("01"), "n1");
	view_label(&view, "app", "web");
	view_label(&view, "tier", "front");
	view_container(&view, "app", "image:1", NULL);
	view_owner(&view.meta, "ReplicaSet", "web", UID("99"));
	put();
	before = intern_count(in);
	view.meta.name = text("web-2");
	view.meta.uid = text(UID("02"));
	put();
	assert_int_equal(intern_count(in), before);
	view.meta.labels[0].value = text("other");
	put();
	assert_int_equal(intern_count(in), before + 1);
}

static void restarted_containers_keep_one_former_id(void **unused)
{
	uint8_t id[32];
	size_t container;

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_container(&view, "init", "image:1", ID("01"));
	view_container(&view, "app", "image:1", ID("aa"));
	put();
	view.containers[1].id = text(ID("bb"));
	view.containers[1].restart_count = 1;
	put();
	id_of(0xaa, id);
	assert_non_null(pod_store_find_container(store, id, &container));
	assert_int_equal(container, 1);
	view.containers[1].image = text("image:2"); /* the images are another set now */
	put();
	assert_non_null(pod_store_find_container(store, id, NULL));
	view.containers[1].id = text(NULL); /* the kubelet does not report it for a while */
	put();
	id_of(0xbb, id);
	assert_non_null(pod_store_find_container(store, id, &container));
	assert_int_equal(container, 1);
	view.containers[1].id = text(ID("cc"));
	put();
	assert_non_null(pod_store_find_container(store, id, NULL));
	id_of(0xaa, id);
	assert_null(pod_store_find_container(store, id, NULL));
	/* A container may be inserted before it: an ephemeral one, or in a reordered list. */
	view.containers[2] = view.containers[1];
	view.containers[1] = (struct container_view){
	    .type = CONTAINER_EPHEMERAL, .name = text("debug"), .id = text(ID("dd"))};
	view.n_containers = 3;
	put();
	id_of(0xbb, id);
	assert_non_null(pod_store_find_container(store, id, &container));
	assert_int_equal(container, 2);
}

static void an_id_that_comes_back_is_no_former_one(void **unused)
{
	static const uint8_t none[32];

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_container(&view, "app", "image:1", ID("aa"));
	put();
	view.containers[0].id = text(NULL);
	put();
	assert_memory_equal(get("shop", "web")->containers[0].id, none, 32);
	assert_int_equal(info.containers[0].previous_id[0], 0xaa);
	view.containers[0].id = text(ID("aa"));
	put();
	assert_int_equal(get("shop", "web")->containers[0].id[0], 0xaa);
	assert_memory_equal(info.containers[0].previous_id, none, 32);
}

static void another_pod_of_the_same_name_is_another_pod(void **unused)
{
	uint8_t id[32];

	(void)unused;
	view_pod(&view, "shop", "db-0", UID("01"), "n1");
	view_container(&view, "app", "image:1", ID("aa"));
	put();
	view.meta.uid = text(UID("02"));
	view.containers[0].id = text(ID("bb"));
	put();
	assert_int_equal(told, 3); /* new, gone, new */
	id_of(0xaa, id);
	assert_null(pod_store_find_container(store, id, NULL));
	/* The deletion of the first pod comes late. */
	view.meta.uid = text(UID("01"));
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	assert_int_equal(pod_store_count(store), 1);
	view.meta.uid = text(UID("02"));
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	assert_int_equal(pod_store_count(store), 0);
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
}

static int count(void *arg, const struct pod *pod)
{
	(void)pod;
	++*(size_t *)arg;
	return 0;
}

static void a_pod_moves_between_nodes(void **unused)
{
	size_t a = 0, b = 0, none = 0;

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), NULL);
	put();
	view.node_name = text("n1");
	put();
	assert_int_equal(pod_store_each_on_node(store, "n1", count, &a), 0);
	assert_int_equal(a, 1);
	view.node_name = text("n2");
	put();
	a = 0;
	(void)pod_store_each_on_node(store, "n1", count, &a);
	(void)pod_store_each_on_node(store, "n2", count, &b);
	(void)pod_store_each_on_node(store, "", count, &none);
	assert_int_equal(a, 0);
	assert_int_equal(b, 1);
	assert_int_equal(none, 0);
	assert_int_equal(told, 3);
}

static int stop(void *arg, const struct pod *pod)
{
	(void)arg;
	(void)pod;
	return 42;
}

static void walks_stop_when_told(void **unused)
{
	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	put();
	assert_int_equal(pod_store_each(store, stop, NULL), 42);
	assert_int_equal(pod_store_each_on_node(store, "n1", stop, NULL), 42);
	assert_int_equal(pod_store_each_in_namespace(store, "shop", stop, NULL), 42);
}

static void an_opt_out_is_kept_whatever_else_there_is(void **unused)
{
	static char many[40][48];

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	for (size_t i = 0; i < ARRAY_SIZE(many); i++) {
		(void)snprintf(many[i], sizeof(many[i]), "a.first/%zu", i);
		view_annotation(&view, many[i], "x");
	}
	view_annotation(&view, "profiling.kiln.dev/mode", "disabled");
	view_annotation(&view, "profiling.kiln.dev/other", "not kept");
	put();
	assert_int_equal(get("shop", "web")->n_annotations, ARRAY_SIZE(info.annotations));
	assert_string_equal(info.annotations[info.n_annotations - 1].key,
			    "profiling.kiln.dev/mode");
}

static void uids_need_not_be_uuids(void **unused)
{
	static const char *const uids[] = {
	    "AAAAAAAA-0000-0000-0000-000000000001",
	    "0123456789abcdef0123456789abcdef",
	    "odd",
	    "",
	    "aaaaaaaa-0000-0000-0000-00000000000z",
	    "bbbbbbbb-0000_0000-0000-000000000001",
	};
	char name[24];
	uint8_t uid[16] = {0xaa, 0xaa, 0xaa, 0xaa};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(uids); i++) {
		(void)snprintf(name, sizeof(name), "p%zu", i);
		view_pod(&view, "shop", name, uids[i], "n1");
		put();
		assert_string_equal(get("shop", name)->uid_text,
				    *uids[i] ? uids[i] : info.uid_text);
		assert_non_null(pod_store_find_uid(store, info.uid));
		put();
	}
	assert_int_equal(told, ARRAY_SIZE(uids));
	uid[15] = 1;
	assert_non_null(pod_store_find_uid(store, uid));
}

static void addresses_come_back_as_they_were(void **unused)
{
	static const char *const ips[] = {"0.9.10.99", "100.199.200.255", "10.0.0.1", "fd00::1",
					  "::ffff:10.0.0.1"};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(ips); i++) {
		view_pod(&view, "shop", "web", UID("01"), "n1");
		view.pod_ip = text(ips[i]);
		put();
		assert_string_equal(get("shop", "web")->ip, ips[i]);
	}
}

static void static_pods_are_found_by_their_config_hash(void **unused)
{
	uint8_t hash[16];

	(void)unused;
	view_pod(&view, "kube-system", "etcd-n1", UID("01"), "n1");
	view_annotation(&view, "kubernetes.io/config.mirror", "abababababababababababababababab");
	put();
	memset(hash, 0xab, sizeof(hash));
	assert_ptr_equal(pod_store_find_uid(store, hash),
			 pod_store_find(store, "kube-system", "etcd-n1"));
	/* A pod with that uid is preferred to one with that config hash. */
	view_pod(&view, "shop", "real", "abababab-abab-abab-abab-abababababab", "n1");
	put();
	assert_ptr_equal(pod_store_find_uid(store, hash), pod_store_find(store, "shop", "real"));
}

static void one_container_id_in_two_pods(void **unused)
{
	uint8_t id[32];

	(void)unused;
	id_of(0xaa, id);
	view_pod(&view, "shop", "old", UID("01"), "n1");
	view.meta.created = 100;
	view_container(&view, "app", "i", ID("aa"));
	put();
	view_pod(&view, "shop", "young", UID("02"), "n2");
	view.meta.created = 200;
	view_container(&view, "app", "i", ID("aa"));
	put();
	assert_ptr_equal(pod_store_find_container(store, id, NULL),
			 pod_store_find(store, "shop", "young"));
	view.phase = text("Failed");
	put();
	assert_ptr_equal(pod_store_find_container(store, id, NULL),
			 pod_store_find(store, "shop", "old"));
	/* Removing a pod must not remove the index entry of another one. */
	assert_int_equal(pod_store_remove_view(store, &view.meta), 0);
	assert_ptr_equal(pod_store_find_container(store, id, NULL),
			 pod_store_find(store, "shop", "old"));
}

static void unknown_ids_find_nothing(void **unused)
{
	uint8_t id[32] = {0};

	(void)unused;
	assert_null(pod_store_find_container(store, id, NULL));
	assert_null(pod_store_find_uid(store, id));
	assert_null(pod_store_find(store, "", ""));
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_container(&view, "app", "i", NULL);
	put();
	assert_null(pod_store_find_container(store, id, NULL));
	assert_null(pod_store_find(store, "shop", "we"));
	assert_null(pod_store_find(store, "sho", "web"));
}

static void asked_annotations_can_change(void **unused)
{
	static const char *const other[] = {"zzz", NULL};
	const char *many[66];

	(void)unused;
	view_pod(&view, "shop", "web", UID("01"), "n1");
	view_annotation(&view, "zzz", "1");
	view_annotation(&view, "note", "2");
	put();
	assert_string_equal(get("shop", "web")->annotations[0].key, "note");
	assert_int_equal(pod_store_keep_annotations(store, other), 1);
	assert_int_equal(pod_store_keep_annotations(store, other), 0);
	put();
	assert_int_equal(get("shop", "web")->n_annotations, 1);
	assert_string_equal(info.annotations[0].key, "zzz");
	for (size_t i = 0; i < 65; i++)
		many[i] = "k";
	many[65] = NULL;
	assert_int_equal(pod_store_keep_annotations(store, many), -E2BIG);
	put();
	assert_int_equal(get("shop", "web")->n_annotations, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(only_asked_annotations_are_kept),
	    TEST(only_changes_of_kept_fields_are_told),
	    TEST(equal_sets_are_one_string),
	    TEST(restarted_containers_keep_one_former_id),
	    TEST(an_id_that_comes_back_is_no_former_one),
	    TEST(another_pod_of_the_same_name_is_another_pod),
	    TEST(a_pod_moves_between_nodes),
	    TEST(walks_stop_when_told),
	    TEST(an_opt_out_is_kept_whatever_else_there_is),
	    TEST(uids_need_not_be_uuids),
	    TEST(addresses_come_back_as_they_were),
	    TEST(static_pods_are_found_by_their_config_hash),
	    TEST(one_container_id_in_two_pods),
	    TEST(unknown_ids_find_nothing),
	    TEST(asked_annotations_can_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
