// SPDX-License-Identifier: Apache-2.0
/* Metadata, whole objects of our own kinds, and services by endpoint slice. */
#include "lib/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include "operator/cache/kept.h"
#include "operator/cache/meta_store.h"
#include "operator/cache/service_index.h"
#include "tests/unit/operator/cache/views.h"

#define UID(n) "00000000-0000-0000-0000-0000000000" n

static struct intern *in;
static uint64_t told, removed;
static struct meta_view meta;
static struct endpoint_slice_view slices;

static int setup(void **unused)
{
	(void)unused;
	told = removed = 0;
	memset(&meta, 0, sizeof(meta));
	return intern_new(4 << 20, &in);
}

static int teardown(void **unused)
{
	(void)unused;
	assert_int_equal(intern_count(in), 0);
	in = intern_free(in);
	return 0;
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

static struct {
	char name[64];
	bool there;
	int hz;
} json_told;

static void on_json(void *arg, const char *ns, const char *name, const cJSON *object)
{
	(void)arg;
	told++;
	(void)snprintf(json_told.name, sizeof(json_told.name), "%s/%s", ns, name);
	json_told.there = object != NULL;
	json_told.hz = object ? cJSON_GetObjectItem(object, "hz")->valueint : 0;
}

static int put_json(struct json_store *store, const char *s, uint32_t generation)
{
	/* Without the NUL: the item ends where it ends. */
	_cleanup_free_ uint8_t *bytes = malloc(strlen(s) + 1);
	struct kube_item item = {.encoding = KUBE_JSON, .bytes = bytes, .len = strlen(s)};

	memcpy(bytes, s, item.len);
	return json_store_put(store, &item, generation);
}

static void json_objects_are_kept_whole(void **unused)
{
	const struct json_store_options options = {.max_objects = 2, .changed = on_json};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	const char *a = "{\"metadata\":{\"name\":\"a\",\"namespace\":\"shop\","
			"\"managedFields\":[1]},\"hz\":19}";
	struct kube_item item = {.encoding = KUBE_JSON, .bytes = (const uint8_t *)a};

	(void)unused;
	assert_int_equal(json_store_new(&options, &store), 0);
	assert_int_equal(put_json(store, a, 1), 0);
	assert_string_equal(json_told.name, "shop/a");
	assert_int_equal(json_told.hz, 19);
	assert_int_equal(put_json(store, a, 1), 0);
	assert_int_equal(told, 1);
	assert_int_equal(
	    put_json(store, "{\"metadata\":{\"name\":\"a\",\"namespace\":\"shop\"},\"hz\":20}", 1),
	    0);
	assert_int_equal(json_told.hz, 20);
	assert_int_equal(put_json(store, "{\"metadata\":{\"name\":\"cluster\"},\"hz\":1}", 2), 0);
	assert_string_equal(json_told.name, "/cluster");
	assert_non_null(json_store_find(store, "shop", "a"));
	assert_non_null(json_store_find(store, NULL, "cluster"));
	assert_null(json_store_find(store, "shop", "cluster"));
	assert_int_equal(put_json(store, "{\"metadata\":{\"name\":\"third\"},\"hz\":1}", 2), 0);
	assert_int_equal(json_store_refused(store), 1);
	assert_int_equal(json_store_count(store), 2);
	/*
	 * The list does not have shop/a, so there is room for the third object: another list is
	 * asked for.
	 */
	assert_int_equal(json_store_replaced(store, 2), -ESTALE);
	assert_string_equal(json_told.name, "shop/a");
	assert_false(json_told.there);
	item.len = strlen(a);
	assert_int_equal(json_store_remove(store, &item), -ESTALE);
	assert_int_equal(json_store_count(store), 1);
}

static struct {
	char ns[64];
	bool over;
	unsigned int calls;
} quota_told;

static void on_over(void *arg, const char *ns, bool over)
{
	(void)arg;
	(void)snprintf(quota_told.ns, sizeof(quota_told.ns), "%s", ns);
	quota_told.over = over;
	quota_told.calls++;
}

/* An object of NS with LEN bytes of TEXT in its metadata (an annotation) or its spec. */
static int put_sized(struct json_store *store, const char *ns, const char *name, size_t len,
		     bool in_spec, uint32_t generation)
{
	_cleanup_free_ char *filler = calloc(1, len + 1), *s = NULL;

	assert_non_null(filler);
	memset(filler, 'x', len);
	assert_true(
	    asprintf(&s,
		     "{\"metadata\":{\"namespace\":\"%s\",\"name\":\"%s\",\"labels\":{"
		     "\"a\":\"b\"},\"annotations\":{\"a\":\"%s\"}},\"hz\":1,\"spec\":\"%s\"}",
		     ns, name, in_spec ? "" : filler, in_spec ? filler : "") > 0);
	return put_json(store, s, generation);
}

static int remove_named(struct json_store *store, const char *ns, const char *name)
{
	char s[256];
	struct kube_item item = {.encoding = KUBE_JSON, .bytes = (const uint8_t *)s};

	item.len = (size_t)snprintf(
	    s, sizeof(s), "{\"metadata\":{\"namespace\":\"%s\",\"name\":\"%s\"}}", ns, name);
	return json_store_remove(store, &item);
}

/* Annotations do not count: 150 objects with 256 KiB each stay within the namespace's quota. */
static void annotations_take_no_room(void **unused)
{
	const struct json_store_options options = {
	    .max_objects = 1000, .max_ns_cost = 1 << 20, .lean = true, .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	const cJSON *metadata;
	char name[16];

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	assert_int_equal(json_store_new(&options, &store), 0);
	for (int i = 0; i < 150; i++) {
		(void)snprintf(name, sizeof(name), "c%d", i);
		assert_int_equal(put_sized(store, "evil", name, 256 << 10, false, 1), 0);
	}
	assert_int_equal(json_store_count(store), 150);
	assert_int_equal(quota_told.calls, 0);
	metadata = cJSON_GetObjectItem(json_store_find(store, "evil", "c7"), "metadata");
	assert_int_equal(cJSON_GetArraySize(metadata), 2);
}

static void a_namespace_has_a_quota(void **unused)
{
	const struct json_store_options options = {.max_objects = 1000,
						   .max_ns_objects = 3,
						   .max_ns_cost = 64 << 10,
						   .lean = true,
						   .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	assert_int_equal(json_store_new(&options, &store), 0);
	assert_int_equal(put_sized(store, "evil", "a", 30 << 10, true, 1), 0);
	assert_int_equal(put_sized(store, "evil", "b", 30 << 10, true, 1), 0);
	assert_int_equal(quota_told.calls, 0);
	assert_int_equal(put_sized(store, "evil", "c", 30 << 10, true, 1), 0);
	assert_int_equal(put_sized(store, "evil", "d", 30 << 10, true, 1), 0);
	assert_int_equal(quota_told.calls, 1);
	assert_string_equal(quota_told.ns, "evil");
	assert_true(quota_told.over);
	assert_int_equal(json_store_refused(store), 2);
	/* Other namespaces are not affected. */
	assert_int_equal(put_sized(store, "shop", "a", 30 << 10, true, 1), 0);
	assert_int_equal(remove_named(store, "shop", "a"), 0);
	/* Without d, a, b and c still exceed the quota; with a smaller a they fit. */
	assert_int_equal(remove_named(store, "evil", "d"), 0);
	assert_int_equal(put_sized(store, "evil", "a", 30 << 10, true, 2), 0);
	assert_int_equal(put_sized(store, "evil", "b", 30 << 10, true, 2), 0);
	assert_int_equal(put_sized(store, "evil", "c", 30 << 10, true, 2), 0);
	assert_int_equal(json_store_replaced(store, 2), 0);
	assert_int_equal(quota_told.calls, 1);
	assert_int_equal(put_sized(store, "evil", "a", 1, true, 2), -ESTALE);
	assert_int_equal(put_sized(store, "evil", "a", 1, true, 3), 0);
	assert_int_equal(put_sized(store, "evil", "b", 30 << 10, true, 3), 0);
	assert_int_equal(put_sized(store, "evil", "c", 30 << 10, true, 3), 0);
	assert_int_equal(json_store_replaced(store, 3), 0);
	assert_int_equal(quota_told.calls, 2);
	assert_false(quota_told.over);
	assert_int_equal(remove_named(store, "evil", "a"), 0);
	/* The limit of the number of objects. */
	assert_int_equal(put_sized(store, "evil", "a", 1, true, 3), 0);
	assert_int_equal(put_sized(store, "evil", "d", 1, true, 3), 0);
	assert_true(quota_told.over);
}

static const char *status_of(const struct json_store *store, const char *ns, const char *name)
{
	const cJSON *object = json_store_find(store, ns, name);

	return cJSON_GetStringValue(cJSON_GetObjectItem(object, "status"));
}

/*
 * The status is written by the operator. It must not use up a namespace's quota, and it must be
 * stored even if the version that it belongs to has no room: otherwise it would be written again
 * and again.
 */
static void a_status_takes_no_room(void **unused)
{
	enum { LEN = 60 << 10 };
	const struct json_store_options options = {
	    .max_objects = 10, .max_ns_cost = 64 << 10, .lean = true, .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	_cleanup_free_ char *filler = calloc(1, LEN + 1), *s = NULL;

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	memset(filler, 'x', LEN);
	assert_int_equal(json_store_new(&options, &store), 0);
	for (int i = 0; i < 3; i++) {
		free(s);
		assert_true(asprintf(&s,
				     "{\"metadata\":{\"namespace\":\"shop\",\"name\":\"%c\"},"
				     "\"hz\":1,\"status\":\"%s\"}",
				     'a' + i, filler) > 0);
		assert_int_equal(put_json(store, s, 1), 0);
	}
	assert_int_equal(quota_told.calls, 0);
	free(s);
	assert_true(asprintf(&s,
			     "{\"metadata\":{\"namespace\":\"shop\",\"name\":\"a\"},\"hz\":2,"
			     "\"spec\":[\"%s\",\"%s\"],\"status\":\"too large\"}",
			     filler, filler) > 0);
	assert_int_equal(put_json(store, s, 1), 0);
	assert_true(quota_told.over);
	assert_int_equal(cJSON_GetObjectItem(json_store_find(store, "shop", "a"), "hz")->valueint,
			 1);
	assert_string_equal(status_of(store, "shop", "a"), "too large");
}

static struct {
	char name[64];
	unsigned int calls;
} left_out_told;

static void on_left_out(void *arg, const char *ns, const char *name, const cJSON *object)
{
	(void)arg;
	assert_non_null(object);
	(void)snprintf(left_out_told.name, sizeof(left_out_told.name), "%s/%s", ns, name);
	left_out_told.calls++;
}

static int put_generation(struct json_store *store, const char *name, int generation, size_t len)
{
	_cleanup_free_ char *filler = calloc(1, len + 1), *s = NULL;

	assert_non_null(filler);
	memset(filler, 'x', len);
	assert_true(asprintf(&s,
			     "{\"metadata\":{\"namespace\":\"evil\",\"name\":\"%s\","
			     "\"generation\":%d},\"hz\":1,\"spec\":\"%s\"}",
			     name, generation, filler) > 0);
	return put_json(store, s, 1);
}

/* An object without room is known by name and generation, but is neither counted nor visited. */
static void what_does_not_fit_is_known(void **unused)
{
	const struct json_store_options options = {.max_objects = 1000,
						   .max_ns_cost = 64 << 10,
						   .lean = true,
						   .changed = on_json,
						   .over = on_over,
						   .left_out = on_left_out};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	int64_t generation = 0;

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	memset(&left_out_told, 0, sizeof(left_out_told));
	assert_int_equal(json_store_new(&options, &store), 0);
	assert_int_equal(put_generation(store, "a", 1, 40 << 10), 0);
	assert_int_equal(put_generation(store, "b", 7, 40 << 10), 0);
	assert_string_equal(left_out_told.name, "evil/b");
	assert_int_equal(left_out_told.calls, 1);
	assert_int_equal(json_store_count(store), 1);
	assert_null(json_store_find(store, "evil", "b"));
	assert_true(json_store_left_out(store, "evil", "b", &generation));
	assert_int_equal(generation, 7);
	assert_false(json_store_left_out(store, "evil", "a", &generation));
	assert_false(json_store_left_out(store, "evil", "c", &generation));
	/* Its next version does not fit either. */
	assert_int_equal(put_generation(store, "b", 8, 39 << 10), 0);
	assert_int_equal(left_out_told.calls, 2);
	assert_true(json_store_left_out(store, "evil", "b", &generation));
	assert_int_equal(generation, 8);
	/* A larger version of a has no room: the old one stays in the store. Then a is as before,
	 * and at last so small that b fits. */
	assert_int_equal(put_generation(store, "a", 2, 70 << 10), 0);
	assert_non_null(json_store_find(store, "evil", "a"));
	assert_int_equal(left_out_told.calls, 2);
	assert_int_equal(put_generation(store, "a", 1, 40 << 10), 0);
	assert_int_equal(put_generation(store, "a", 3, 10 << 10), -ESTALE);
	assert_int_equal(put_generation(store, "b", 8, 39 << 10), 0);
	assert_int_equal(json_store_count(store), 2);
	assert_false(json_store_left_out(store, "evil", "b", &generation));
}

static void what_goes_unseen_is_forgotten(void **unused)
{
	const struct json_store_options options = {.max_objects = 1000,
						   .max_ns_objects = 2,
						   .lean = true,
						   .changed = on_json,
						   .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	int64_t generation;
	char name[16];

	(void)unused;
	assert_int_equal(json_store_new(&options, &store), 0);
	for (int i = 0; i < 4; i++) {
		(void)snprintf(name, sizeof(name), "c%d", i);
		assert_int_equal(put_sized(store, "evil", name, 1, true, 1), 0);
	}
	assert_true(json_store_left_out(store, "evil", "c3", &generation));
	/* Two of the four objects are over the quota; after one was removed, one still is. */
	assert_int_equal(remove_named(store, "evil", "c3"), 0);
	assert_int_equal(remove_named(store, "evil", "c0"), -ESTALE);
	told = 0;
	assert_int_equal(put_sized(store, "evil", "c1", 1, true, 2), 0);
	assert_int_equal(json_store_replaced(store, 2), 0);
	assert_int_equal(told, 0); /* c2 was never reported as stored */
	assert_false(json_store_left_out(store, "evil", "c2", &generation));
	assert_false(quota_told.over);
	/*
	 * Once more are over the quota than are known by name, any deleted one may have been one of
	 * them.
	 */
	for (int i = 2; i < 7; i++) {
		(void)snprintf(name, sizeof(name), "c%d", i);
		assert_int_equal(put_sized(store, "evil", name, 1, true, 3), 0);
	}
	assert_true(json_store_left_out(store, "evil", "c4", &generation));
	assert_false(json_store_left_out(store, "evil", "c6", &generation));
	assert_int_equal(remove_named(store, "evil", "c6"), -ESTALE);
}

/* Objects that were deleted without an open watch still take room when the next list arrives. */
static void room_of_what_a_list_does_not_have_any_more_heals(void **unused)
{
	const struct json_store_options options = {
	    .max_objects = 100, .max_ns_objects = 2, .lean = true, .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	assert_int_equal(json_store_new(&options, &store), 0);
	assert_int_equal(put_sized(store, "shop", "a", 1, true, 1), 0);
	assert_int_equal(put_sized(store, "shop", "b", 1, true, 1), 0);
	assert_int_equal(put_sized(store, "shop", "c", 1, true, 2), 0);
	assert_int_equal(put_sized(store, "shop", "d", 1, true, 2), 0);
	assert_true(quota_told.over);
	assert_int_equal(json_store_replaced(store, 2), -ESTALE);
	assert_int_equal(put_sized(store, "shop", "c", 1, true, 3), 0);
	assert_int_equal(put_sized(store, "shop", "d", 1, true, 3), 0);
	assert_int_equal(json_store_replaced(store, 3), 0);
	assert_false(quota_told.over);
	assert_int_equal(json_store_count(store), 2);
	/* Two of the three fit once c and d are forgotten: one more list is asked for. The third
	 * never fits, and no further list is asked for. */
	for (uint32_t generation = 4; generation < 7; generation++) {
		assert_int_equal(put_sized(store, "shop", "e", 1, true, generation), 0);
		assert_int_equal(put_sized(store, "shop", "f", 1, true, generation), 0);
		assert_int_equal(put_sized(store, "shop", "g", 1, true, generation), 0);
		assert_int_equal(json_store_replaced(store, generation),
				 generation == 4 ? -ESTALE : 0);
		assert_true(quota_told.over);
	}
	assert_int_equal(json_store_count(store), 2);
}

/* No namespace is over its quota, but together they are over the store's. */
static void room_that_another_gives_back_heals(void **unused)
{
	const struct json_store_options options = {.max_objects = 2, .lean = true, .over = on_over};
	_cleanup_(json_store_freep) struct json_store *store = NULL;

	(void)unused;
	memset(&quota_told, 0, sizeof(quota_told));
	assert_int_equal(json_store_new(&options, &store), 0);
	assert_int_equal(put_sized(store, "one", "a", 1, true, 1), 0);
	assert_int_equal(put_sized(store, "two", "a", 1, true, 1), 0);
	assert_int_equal(put_sized(store, "three", "a", 1, true, 1), 0);
	assert_string_equal(quota_told.ns, "three");
	assert_int_equal(remove_named(store, "one", "a"), -ESTALE);
	assert_int_equal(put_sized(store, "two", "a", 1, true, 2), 0);
	assert_int_equal(put_sized(store, "three", "a", 1, true, 2), 0);
	assert_int_equal(json_store_replaced(store, 2), 0);
	assert_false(quota_told.over);
	assert_int_equal(remove_named(store, "two", "a"), 0);
}

static void bad_json_is_refused(void **unused)
{
	static const char *const table[] = {
	    "",
	    "{",
	    "[]",
	    "null",
	    "{}",
	    "{\"metadata\":{}}",
	    "{\"metadata\":{\"name\":1}}",
	    "{\"metadata\":{\"name\":\"\"}}",
	    "{\"metadata\":{\"name\":\"a b\"}}",
	    "{\"metadata\":{\"name\":\"a\",\"namespace\":\"../x\"}}",
	    "{\"metadata\":{\"name\":\"a\"",
	};
	const struct json_store_options options = {.max_objects = 2};
	_cleanup_(json_store_freep) struct json_store *store = NULL;
	_cleanup_free_ char *deep = malloc(100001), *big = malloc(JSON_OBJECT_MAX + 2);
	struct kube_item item = {
	    .encoding = KUBE_PROTOBUF, .bytes = (const uint8_t *)"x", .len = 1};

	(void)unused;
	assert_int_equal(json_store_new(&options, &store), 0);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		assert_int_equal(put_json(store, table[i], 1), -EBADMSG);
	memset(deep, '[', 100000);
	deep[100000] = 0;
	assert_int_equal(put_json(store, deep, 1), -EBADMSG);
	memset(big, ' ', JSON_OBJECT_MAX + 1);
	big[JSON_OBJECT_MAX + 1] = 0;
	assert_int_equal(put_json(store, big, 1), 0);
	assert_int_equal(json_store_refused(store), 1);
	assert_int_equal(json_store_put(store, &item, 1), -EBADMSG);
	assert_int_equal(json_store_count(store), 0);
}

static uint8_t uid_told[64];
static size_t n_uid_told;

static void on_service(void *arg, const uint8_t uid[16])
{
	(void)arg;
	assert_true(n_uid_told < sizeof(uid_told));
	uid_told[n_uid_told++] = uid[15];
}

static void endpoint_slice(const char *ns, const char *name, const char *service)
{
	memset(&slices, 0, sizeof(slices));
	slices.meta.ns = text(ns);
	slices.meta.name = text(name);
	if (service) {
		slices.meta.labels[0] =
		    (struct slice_pair){text("kubernetes.io/service-name"), text(service)};
		slices.meta.n_labels = 1;
	}
}

static void endpoint(const char *uid)
{
	slices.pod_uids[slices.n_pods++] = text(uid);
}

static void expect_services(const struct service_index *index, const char *ns, uint8_t last,
			    const char *want)
{
	const char *names[SERVICE_NAMES_MAX];
	uint8_t uid[16] = {[15] = last};
	char got[256] = "";
	size_t n = service_index_find(index, ns, uid, names, SERVICE_NAMES_MAX);

	for (size_t i = 0; i < n; i++) {
		(void)strncat(got, names[i], 64);
		(void)strncat(got, " ", 2);
	}
	assert_string_equal(got, want);
}

static void expect_told(const char *want)
{
	char got[256] = "";

	for (size_t i = 0; i < n_uid_told; i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%02x ", uid_told[i]);
	assert_string_equal(got, want);
	n_uid_told = 0;
}

static void services_of_a_pod(void **unused)
{
	const struct service_index_options options = {
	    .intern = in, .max_slices = 10, .max_endpoints = 100, .changed = on_service};
	_cleanup_(service_index_freep) struct service_index *index = NULL;

	(void)unused;
	n_uid_told = 0;
	assert_int_equal(service_index_new(&options, &index), 0);
	endpoint_slice("shop", "web-abc", "web");
	endpoint(UID("02"));
	endpoint(UID("01"));
	endpoint(UID("01")); /* two ports, or a not ready address beside a ready one */
	endpoint(NULL);
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("01 02 ");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("");
	endpoint_slice("shop", "web-ipv6", "web");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	endpoint_slice("shop", "all-xyz", "all");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 2), 0);
	endpoint_slice("shop", "none", NULL);
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 2), 0);
	expect_services(index, "shop", 1, "all web ");
	expect_services(index, "shop", 2, "web ");
	expect_services(index, "shop", 3, "");
	/* A service in another namespace does not change the services of these pods. */
	endpoint_slice("evil", "x", "stolen");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_services(index, "shop", 1, "all web ");
	expect_services(index, "evil", 1, "stolen ");
	n_uid_told = 0;
	/* Only the endpoints that came or went are reported. */
	endpoint_slice("shop", "web-abc", "web");
	endpoint(UID("03"));
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("02 03 ");
	expect_services(index, "shop", 2, "");
	endpoint_slice("shop", "web-abc", "renamed");
	endpoint(UID("03"));
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("01 03 ");
	expect_services(index, "shop", 1, "all renamed web ");
	assert_int_equal(service_index_remove_view(index, &slices.meta), 0);
	expect_told("01 03 ");
	expect_services(index, "shop", 1, "all web ");
	service_index_replaced(index, 2);
	expect_services(index, "shop", 1, "all ");
	endpoint_slice("shop", "a/b", "x");
	assert_int_equal(service_index_put_view(index, &slices, 1), -EBADMSG);
}

static void slices_are_bounded(void **unused)
{
	const struct service_index_options options = {
	    .intern = in, .max_slices = 3, .max_endpoints = 2000};
	_cleanup_(service_index_freep) struct service_index *index = NULL;
	static char uids[VIEW_ENDPOINTS_MAX][40];
	struct service_index_stats stats;
	const char *names[2];
	uint8_t uid[16] = {0};

	(void)unused;
	assert_int_equal(service_index_new(&options, &index), 0);
	endpoint_slice("shop", "big", "web");
	for (int i = 0; i < VIEW_ENDPOINTS_MAX; i++) {
		(void)snprintf(uids[i], sizeof(uids[i]), "00000000-0000-0000-0000-%012x", i);
		endpoint(uids[i]);
	}
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("big2");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("big3"); /* beyond max_endpoints */
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	service_index_read_stats(index, &stats);
	assert_int_equal(stats.slices, 2);
	assert_int_equal(stats.endpoints, 2 * SERVICE_SLICE_PODS_MAX);
	assert_int_equal(stats.refused, 1);
	assert_int_equal(stats.cut, 3 * (VIEW_ENDPOINTS_MAX - SERVICE_SLICE_PODS_MAX));
	for (int i = 0; i < SERVICE_SLICE_PODS_MAX; i++) {
		uid[14] = (uint8_t)(i >> 8);
		uid[15] = (uint8_t)i;
		assert_int_equal(service_index_find(index, "shop", uid, names, 2), 1);
	}
	endpoint_slice("shop", "small", "web");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("small2"); /* beyond max_slices */
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	service_index_read_stats(index, &stats);
	assert_int_equal(stats.slices, 3);
	assert_int_equal(stats.refused, 2);
}

static void random_slices_and_a_naive_model(void **unused)
{
	enum { SLICES = 12, PODS = 20, ROUNDS = 4000 };
	const struct service_index_options options = {
	    .intern = in, .max_slices = 100, .max_endpoints = 1000};
	_cleanup_(service_index_freep) struct service_index *index = NULL;
	static bool has[SLICES][PODS];
	static int service[SLICES];
	const char *names[SERVICE_NAMES_MAX];
	char name[24], label[24], uids[PODS][40], expected[16];
	uint64_t random = 1;

	(void)unused;
	memset(has, 0, sizeof(has));
	assert_int_equal(service_index_new(&options, &index), 0);
	for (int i = 0; i < PODS; i++)
		(void)snprintf(uids[i], sizeof(uids[i]), "00000000-0000-0000-0000-%012x", i);
	for (int round = 0; round < ROUNDS; round++) {
		int s = (int)((random = mix64(random + 1)) % SLICES);
		uint8_t uid[16] = {0};
		size_t n = 0;

		service[s] = (int)((random >> 8) % 4);
		(void)snprintf(name, sizeof(name), "slice%d", s);
		(void)snprintf(label, sizeof(label), "s%d", service[s]);
		endpoint_slice("shop", name, label);
		for (int i = 0; i < PODS; i++) {
			has[s][i] = (random >> 40) % 5 && (mix64(random + (uint64_t)i) & 1);
			if (has[s][i])
				endpoint(uids[i]);
		}
		if ((random >> 40) % 5)
			assert_int_equal(service_index_put_view(index, &slices, 1), 0);
		else
			assert_int_equal(service_index_remove_view(index, &slices.meta), 0);
		for (int i = 0; i < PODS; i++) {
			bool want[4] = {false};

			uid[15] = (uint8_t)i;
			for (int k = 0; k < SLICES; k++)
				want[service[k]] |= has[k][i];
			n = service_index_find(index, "shop", uid, names, SERVICE_NAMES_MAX);
			for (int k = 0, at = 0; k < 4; k++) {
				if (!want[k])
					continue;
				(void)snprintf(expected, sizeof(expected), "s%d", k);
				assert_true((size_t)at < n);
				assert_string_equal(names[at++], expected);
			}
			assert_int_equal(n, want[0] + want[1] + want[2] + want[3]);
		}
	}
	service_index_replaced(index, 2);
	assert_int_equal(intern_count(in), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(metadata_is_kept_and_told),
	    TEST(cluster_objects_have_no_namespace),
	    TEST(json_objects_are_kept_whole),
	    TEST(annotations_take_no_room),
	    TEST(a_namespace_has_a_quota),
	    TEST(a_status_takes_no_room),
	    TEST(what_does_not_fit_is_known),
	    TEST(what_goes_unseen_is_forgotten),
	    TEST(room_that_another_gives_back_heals),
	    TEST(room_of_what_a_list_does_not_have_any_more_heals),
	    cmocka_unit_test(room_of_what_a_list_does_not_have_any_more_heals),
	    TEST(bad_json_is_refused),
	    TEST(services_of_a_pod),
	    TEST(slices_are_bounded),
	    TEST(random_slices_and_a_naive_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
