/* SPDX-License-Identifier: Apache-2.0 */
/* Whole objects of our own kinds: their room in each namespace, and what did not fit. */
#include "tests/unit/operator/cache/intern_rig.h"

#include "operator/cache/meta_store.h"

static uint64_t told;

static int setup(void **unused)
{
	told = 0;
	return intern_setup(unused);
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

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, intern_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(json_objects_are_kept_whole),
	    TEST(annotations_take_no_room),
	    TEST(a_namespace_has_a_quota),
	    TEST(a_status_takes_no_room),
	    TEST(what_does_not_fit_is_known),
	    TEST(what_goes_unseen_is_forgotten),
	    TEST(room_of_what_a_list_does_not_have_any_more_heals),
	    TEST(room_that_another_gives_back_heals),
	    TEST(bad_json_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
