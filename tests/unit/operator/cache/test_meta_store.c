/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of objects: what is kept and what is reported. */
#include "tests/unit/operator/cache/intern_rig.h"

#include "operator/cache/meta_store.h"
#include "tests/unit/operator/cache/views.h"

static uint64_t told, removed;
static struct meta_view meta;

static int setup(void **unused)
{
	told = removed = 0;
	memset(&meta, 0, sizeof(meta));
	return intern_setup(unused);
}

static void on_meta(void *arg, const struct meta_object *object, bool gone)
{
	(void)arg;
	assert_true(*object->name);
	told++;
	removed += gone;
}

static void name_it(const char *ns, const char *name, const char *uid)
{
	meta.ns = text(ns);
	meta.name = text(name);
	meta.uid = text(uid);
}

static void metadata_is_kept_and_told(void **unused)
{
	static const char *const keys[] = {"note", NULL};
	const struct meta_store_options options = {
	    .intern = in, .max_objects = 3, .annotations = keys, .changed = on_meta};
	_cleanup_(meta_store_freep) struct meta_store *store = NULL;
	struct meta_object object;

	(void)unused;
	assert_int_equal(meta_store_new(&options, &store), 0);
	name_it("shop", "web-7d9c", UID("0a"));
	meta.created = 77;
	meta.labels[0] = (struct slice_pair){text("app"), text("web")};
	meta.annotations[0] = (struct slice_pair){text("note"), text("x")};
	meta.annotations[1] = (struct slice_pair){text("other"), text("y")};
	meta.n_labels = 1;
	meta.n_annotations = 2;
	view_owner(&meta, "Deployment", "web", UID("99"));
	assert_int_equal(meta_store_put_view(store, &meta, 1), 0);
	assert_int_equal(meta_store_find(store, "shop", "web-7d9c", &object), 0);
	assert_string_equal(object.ns, "shop");
	assert_string_equal(object.uid, UID("0a"));
	assert_string_equal(object.owner_kind, "Deployment");
	assert_string_equal(object.owner_name, "web");
	assert_string_equal(object.owner_uid, UID("99"));
	assert_int_equal(object.created, 77);
	assert_int_equal(object.n_labels, 1);
	assert_int_equal(object.n_annotations, 1);
	assert_string_equal(object.annotations[0].value, "x");
	meta.annotations[1].value = text("z"); /* not kept */
	assert_int_equal(meta_store_put_view(store, &meta, 1), 0);
	assert_int_equal(told, 1);
	meta.labels[0].value = text("api");
	assert_int_equal(meta_store_put_view(store, &meta, 1), 0);
	assert_int_equal(told, 2);
	meta.owners[0].uid = text("odd uid");
	meta.owners[0].uid = text("odd-uid");
	assert_int_equal(meta_store_put_view(store, &meta, 1), 0);
	assert_int_equal(meta_store_find(store, "shop", "web-7d9c", &object), 0);
	assert_string_equal(object.owner_uid, "odd-uid");
	assert_int_equal(meta_store_find(store, "", "web-7d9c", &object), -ENOENT);
	assert_int_equal(meta_store_find(store, "shop", "web", &object), -ENOENT);
	assert_int_equal(meta_store_remove_view(store, &meta), 0);
	assert_int_equal(removed, 1);
	assert_int_equal(meta_store_count(store), 0);
}

static void cluster_objects_have_no_namespace(void **unused)
{
	const struct meta_store_options options = {
	    .intern = in, .max_objects = 3, .no_labels = true, .changed = on_meta};
	_cleanup_(meta_store_freep) struct meta_store *store = NULL;
	struct meta_object object;

	(void)unused;
	assert_int_equal(meta_store_new(&options, &store), 0);
	for (int i = 0; i < 5; i++) {
		char name[24];

		(void)snprintf(name, sizeof(name), "node-%d", i);
		name_it(NULL, name, "not-a-uuid");
		meta.labels[0] = (struct slice_pair){text("a"), text("b")};
		meta.n_labels = 1;
		assert_int_equal(meta_store_put_view(store, &meta, (uint32_t)i), 0);
	}
	assert_int_equal(meta_store_count(store), 3);
	assert_int_equal(meta_store_dropped(store), 2);
	assert_int_equal(meta_store_find(store, NULL, "node-1", &object), 0);
	assert_string_equal(object.ns, "");
	assert_string_equal(object.uid, "not-a-uuid");
	assert_int_equal(object.n_labels, 0);
	name_it(NULL, "a/b", NULL);
	assert_int_equal(meta_store_put_view(store, &meta, 1), -EBADMSG);
	meta_store_replaced(store, 2);
	assert_int_equal(meta_store_count(store), 1);
	assert_int_equal(removed, 2);
	assert_int_equal(meta_store_find(store, "", "node-2", &object), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, intern_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(metadata_is_kept_and_told),
	    TEST(cluster_objects_have_no_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
