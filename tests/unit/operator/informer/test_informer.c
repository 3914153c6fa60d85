/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An informer with made-up server responses: what is in the store afterwards, and the next request.
 * The test controls time: libuv's timers and clock are replaced below, so nothing sleeps.
 */
#include "operator/cache/informer.h"

#include "tests/support/failalloc.h"
#include "tests/support/test.h"
#include "tests/unit/operator/informer/fake_kube.h"

/* ---- libuv ----------------------------------------------------------------------------------- */

enum { TIMERS = 2 }; /* of an informer */

static struct {
	uint64_t now;
	struct fake_timer {
		uv_timer_t *timer;
		uv_timer_cb due; /* NULL: stopped */
		uint64_t due_ms;
		uv_close_cb closed;
	} timers[TIMERS];
} fake;

uint64_t uv_now(const uv_loop_t *loop)
{
	return fake.now;
}

static struct fake_timer *timer_of(const void *handle)
{
	for (int i = 0; i < TIMERS; i++)
		if (fake.timers[i].timer == handle)
			return &fake.timers[i];
	fail_msg("no timer of the informer");
	return NULL;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *timer)
{
	timer_of(NULL)->timer = timer;
	return 0;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t ms, uint64_t repeat)
{
	struct fake_timer *t = timer_of(timer);

	t->due = cb;
	t->due_ms = fake.now + ms;
	return 0;
}

int uv_timer_stop(uv_timer_t *timer)
{
	timer_of(timer)->due = NULL;
	return 0;
}

void uv_close(uv_handle_t *handle, uv_close_cb cb)
{
	struct fake_timer *t = timer_of(handle);

	t->due = NULL;
	t->closed = cb;
}

static void pass(uint64_t ms)
{
	fake.now += ms;
	for (int i = 0; i < TIMERS; i++) {
		struct fake_timer *t = &fake.timers[i];
		uv_timer_cb due = t->due;

		if (!due || fake.now < t->due_ms)
			continue;
		t->due = NULL;
		due(t->timer);
	}
}

/* ---- store ----------------------------------------------------------------------------------- */

struct world {
	struct informer_options options;
	struct informer *informer;
	char seen[4096]; /* what the store was told, in order */
	int put_result;
	bool free_when_synced;
	unsigned int replaced, synced;
	int replaced_result;
	uint32_t generation;
};

static void note(struct world *w, const char *what, const struct slice *name)
{
	size_t len = strlen(w->seen);

	snprintf(w->seen + len, sizeof(w->seen) - len, "%s%.*s ", what, name ? (int)name->n : 0,
		 name ? name->p : "");
}

static int put(void *arg, const struct kube_item *item, uint32_t generation)
{
	static struct meta_view view;
	struct world *w = arg;
	int r;

	if (w->put_result < 0)
		return w->put_result;
	r = kube_decode_meta(item, &view);
	if (r < 0)
		return r;
	w->generation = generation;
	note(w, "+", &view.name);
	return 0;
}

static int take_out(void *arg, const struct kube_item *item)
{
	static struct meta_view view;
	int r = kube_decode_meta(item, &view);

	if (r == 0)
		note(arg, "-", &view.name);
	return r;
}

static int replaced(void *arg, uint32_t generation)
{
	struct world *w = arg;

	w->replaced++;
	note(w, "replaced", NULL);
	assert_true(generation >= w->generation);
	return w->replaced_result;
}

static void synced(void *arg)
{
	struct world *w = arg;

	w->synced++;
	note(w, "synced", NULL);
	if (w->free_when_synced)
		w->informer = informer_free(w->informer);
}

static const struct informer_ops ops = {
    .put = put, .remove = take_out, .replaced = replaced, .synced = synced};

static double zero(void)
{
	return 0;
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	fake_reset();
	memset(&fake, 0, sizeof(fake));
	fake.now = 1000;
	w->options = (struct informer_options){.kind = KUBE_CONFIG_MAPS, .random = zero};
	*state = w;
	return 0;
}

static void end(struct world *w)
{
	w->informer = informer_free(w->informer);
	for (int i = 0; i < TIMERS; i++)
		if (fake.timers[i].closed)
			fake.timers[i].closed((uv_handle_t *)fake.timers[i].timer);
	assert_true(fake_idle());
	fake_reset();
	memset(&fake, 0, sizeof(fake));
	fake.now = 1000;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	end(w);
	free(w);
	return 0;
}

static void start(struct world *w)
{
	struct error err;

	assert_int_equal(informer_new(NULL, NULL, &w->options, &ops, w, &w->informer, &err), 0);
	informer_start(w->informer);
}

static void start_classic(struct world *w)
{
	w->options.no_watch_list = true;
	start(w);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static int say(const char *text)
{
	return fake_data(fake_live(), text, strlen(text));
}

static int event(const char *type, const char *name, const char *version)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"%s\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\","
		 "\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"u\","
		 "\"resourceVersion\":\"%s\"}}}\n",
		 type, name, version);
	return say(text);
}

static int bookmark(const char *version, bool initial_end)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\","
		 "\"metadata\":{\"resourceVersion\":\"%s\"%s}}}\n",
		 version,
		 initial_end ? ",\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}" : "");
	return say(text);
}

static int error_event(int code, const char *message)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\","
		 "\"metadata\":{},\"status\":\"Failure\",\"message\":\"%s\",\"reason\":\"x\","
		 "\"code\":%d}}\n",
		 message, code);
	return say(text);
}

static void list(const char *version, const char *token, const char *items)
{
	char text[1024];

	snprintf(text, sizeof(text),
		 "{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{"
		 "\"resourceVersion\":\"%s\",\"continue\":\"%s\"},\"items\":[%s]}",
		 version, token, items);
	assert_int_equal(say(text), 0);
	fake_answer(fake_live(), 200, NULL);
}

#define ITEM(name)                                                                                 \
	"{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"n\",\"resourceVersion\":\"3\"}}"

static void expect_path(const char *want)
{
	assert_string_equal(fake_live()->path, want);
}

#define BASE "/api/v1/configmaps"
#define WATCH_LIST(rv)                                                                             \
	BASE "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&"                        \
	     "resourceVersionMatch=NotOlderThan&resourceVersion=" rv "&timeoutSeconds=300"
#define WATCH(rv)                                                                                  \
	BASE "?watch=true&allowWatchBookmarks=true&resourceVersion=" rv "&timeoutSeconds=300"

static void watching(struct world *w)
{
	start(w);
	assert_int_equal(bookmark("50", true), 0);
	w->seen[0] = '\0';
	pass(60000);
}

static const struct informer_stats *stats(const struct world *w)
{
	return informer_stats(w->informer);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_a_watch_list_fills_the_store_and_syncs_at_its_bookmark(void **state)
{
	struct world *w = *state;

	start(w);
	expect_path(WATCH_LIST(""));
	assert_string_equal(fake_live()->accept, KUBE_PROTOBUF_OR_JSON);
	assert_int_equal(fake_live()->request.idle_ms, 330000);
	assert_true(fake_live()->request.unlimited && fake_live()->request.no_retry);
	assert_int_equal(event("ADDED", "b", "9"), 0);
	assert_int_equal(event("ADDED", "a", "7"), 0);
	assert_false(stats(w)->synced);
	assert_int_equal(bookmark("10", false), 0); /* not the bookmark that ends the list */
	assert_false(stats(w)->synced);
	assert_int_equal(bookmark("12", true), 0);
	assert_true(stats(w)->synced);
	assert_string_equal(w->seen, "+b +a replaced synced ");
	/* The same request goes on as a watch. */
	assert_int_equal(event("MODIFIED", "a", "13"), 0);
	assert_int_equal(event("DELETED", "b", "14"), 0);
	assert_string_equal(w->seen, "+b +a replaced synced +a -b ");
	assert_int_equal(fake_count(), 1);
	assert_int_equal(stats(w)->events, 4);
	assert_int_equal(stats(w)->bookmarks, 2);
	assert_int_equal(stats(w)->last_event_ms, 1000);
	/* It ends, as all watches do. */
	pass(300000);
	fake_answer(fake_live(), 200, NULL);
	expect_path(WATCH("14"));
	assert_int_equal(bookmark("20", false), 0);
	pass(300000);
	fake_answer(fake_live(), 200, NULL);
	expect_path(WATCH("20"));
	assert_int_equal(w->replaced, 1);
	assert_int_equal(stats(w)->errors, 0);
	assert_int_equal(stats(w)->lists, 1);
	assert_int_equal(stats(w)->watches, 3);
}

static void test_a_server_without_watch_list_is_asked_for_pages(void **state)
{
	struct world *w = *state;

	w->options.ns = "kube-system";
	w->options.label_selector = "a=b,c";
	w->options.field_selector = "metadata.name=x";
	w->options.page = 2;
	start(w);
	fake_answer(fake_live(), 422, NULL);
	expect_path("/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dx&"
		    "labelSelector=a%3Db%2Cc&limit=2");
	list("30", "t1", ITEM("a") "," ITEM("b"));
	expect_path("/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dx&"
		    "labelSelector=a%3Db%2Cc&limit=2&continue=t1");
	assert_false(stats(w)->synced);
	list("30", "", ITEM("c"));
	assert_string_equal(w->seen, "+a +b +c replaced synced ");
	expect_path("/api/v1/namespaces/kube-system/configmaps?fieldSelector=metadata.name%3Dx&"
		    "labelSelector=a%3Db%2Cc&watch=true&allowWatchBookmarks=true&"
		    "resourceVersion=30&timeoutSeconds=300");
	assert_int_equal(stats(w)->lists, 2);
}

static void test_partial_objects_have_two_names(void **state)
{
	struct world *w = *state;

	w->options.metadata_only = true;
	start(w);
	assert_string_equal(fake_live()->accept, KUBE_PARTIAL);
	fake_answer(fake_live(), 400, NULL);
	assert_string_equal(fake_live()->accept, KUBE_PARTIAL_LIST);
}

static void test_an_expired_watch_lists_again_and_removes_what_is_gone(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_int_equal(event("MODIFIED", "a", "51"), 0);
	assert_true(error_event(410, "too old resource version: 51 (99)") < 0);
	expect_path(WATCH_LIST("51"));
	fake_answer(fake_live(), 410, NULL);
	expect_path(WATCH_LIST(""));
	assert_int_equal(event("ADDED", "c", "70"), 0);
	assert_int_equal(bookmark("99", true), 0);
	assert_string_equal(w->seen, "+a +c replaced ");
	assert_int_equal(w->synced, 1);
	assert_int_equal(w->generation, 3);
	assert_int_equal(stats(w)->expired, 2);
}

static void test_what_each_answer_to_a_watch_leads_to(void **state)
{
	static const struct {
		int status;
		const char *message;
		uint64_t retry_after_ms, wait_ms;
		const char *path;
	} rows[] = {
	    {0, "connection refused", 0, 800, WATCH("50")},
	    {429, "", 0, 800, WATCH("50")},
	    {429, "", 7000, 7000, WATCH("50")},
	    {500, "", 0, 800, WATCH("50")},
	    {503, "", 3000, 3000, WATCH("50")},
	    {504, "the server timed out", 0, 800, WATCH("50")},
	    {504, "Timeout: Too large resource version: 50, current: 7", 1000, 1000,
	     WATCH_LIST("")},
	    {401, "", 0, 800, WATCH("50")},
	    {403, "", 0, 800, WATCH("50")},
	    {404, "", 0, 800, WATCH("50")},
	    {410, "", 0, 0, WATCH_LIST("50")},
	    {400, "", 0, 800, WATCH_LIST("")},
	    {302, "", 0, 800, WATCH("50")},
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct kube_answer answer = {.status = rows[i].status,
						   .message = rows[i].message,
						   .reason = "",
						   .retry_after_ms = rows[i].retry_after_ms};

		watching(w);
		fake_answer(fake_live(), 200, NULL);
		expect_path(WATCH("50"));
		fake_answer_with(fake_live(), &answer);
		if (rows[i].wait_ms > 0) {
			pass(rows[i].wait_ms - 1);
			assert_true(fake_idle());
			assert_false(stats(w)->connected);
			pass(1);
		}
		expect_path(rows[i].path);
		assert_int_equal(w->replaced, i + 1); /* nothing was thrown away */
		end(w);
	}
}

static void test_errors_inside_a_watch_are_the_same(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_true(error_event(429, "slow down") < 0);
	pass(800);
	expect_path(WATCH("50"));
	assert_true(error_event(500, "etcdserver: no leader") < 0);
	pass(1000);
	expect_path(WATCH("50"));
	assert_true(error_event(504, "Too large resource version: 50, current: 7") < 0);
	expect_path(WATCH_LIST(""));
	assert_true(say("{\"type\":\"ERROR\",\"object\":{\"kind\":7}}") < 0);
	assert_true(fake_idle());
	pass(1000);
	expect_path(WATCH_LIST(""));
	assert_int_equal(stats(w)->errors, 4);
}

static void test_a_watch_cut_inside_an_object_goes_on_before_it(void **state)
{
	const struct kube_answer reset = {
	    .message = "reset", .reason = "", .connection_reset = true};
	struct world *w = *state;

	watching(w);
	assert_int_equal(event("ADDED", "a", "51"), 0);
	assert_int_equal(say("{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"b\","
			     "\"resourceVersion\":\"52\"}"),
			 0);
	fake_answer_with(fake_live(), &reset);
	expect_path(WATCH("51"));
	/* The next response begins with a whole object. */
	assert_int_equal(event("ADDED", "b", "52"), 0);
	assert_string_equal(w->seen, "+a +b ");
	/* The same with a clean end of the response. */
	assert_int_equal(say("{\"type\":\"ADDED\","), 0);
	pass(2000);
	fake_answer(fake_live(), 200, NULL);
	expect_path(WATCH("52"));
	assert_int_equal(stats(w)->errors, 2);
}

static void test_a_cut_page_is_asked_for_again_and_removes_nothing(void **state)
{
	struct world *w = *state;

	start_classic(w);
	list("30", "t1", ITEM("a"));
	assert_int_equal(say("{\"kind\":\"ConfigMapList\",\"metadata\":{\"resourceVersion\":\"30\","
			     "\"continue\":\"t2\"},\"items\":[" ITEM("b") ","),
			 0);
	fake_answer(fake_live(), 200, NULL);
	assert_int_equal(w->replaced, 0);
	pass(800);
	expect_path(BASE "?limit=500&continue=t1");
	list("30", "", ITEM("b"));
	assert_string_equal(w->seen, "+a +b +b replaced synced ");
}

static void test_an_undecodable_object_is_counted_and_left_out(void **state)
{
	struct world *w = *state;

	watching(w);
	w->put_result = -EBADMSG;
	assert_int_equal(event("ADDED", "bad", "51"), 0);
	w->put_result = 0;
	assert_int_equal(event("ADDED", "good", "52"), 0);
	assert_string_equal(w->seen, "+good ");
	assert_int_equal(stats(w)->undecodable, 1);
	fake_answer(fake_live(), 200, NULL);
	expect_path(WATCH("52"));
}

static void test_what_the_store_could_not_take_comes_again(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_int_equal(event("ADDED", "a", "51"), 0);
	w->put_result = -ENOMEM;
	assert_int_equal(event("ADDED", "b", "52"), -ENOMEM);
	w->put_result = 0;
	pass(800);
	expect_path(WATCH("51"));
	assert_int_equal(stats(w)->undecodable, 0);
	assert_int_equal(stats(w)->errors, 1);
}

/* A namespace over quota can make the store ask for a list as often as it likes. */
static void test_what_the_store_wishes_for_cuts_nothing_short_and_waits(void **state)
{
	struct world *w = *state;

	start(w);
	w->put_result = -ESTALE;
	assert_int_equal(event("ADDED", "a", "7"), 0);
	w->put_result = 0;
	assert_int_equal(event("ADDED", "b", "8"), 0);
	assert_int_equal(bookmark("50", true), 0);
	assert_string_equal(w->seen, "+b replaced synced ");
	pass(9000);
	w->put_result = -ESTALE;
	assert_int_equal(event("MODIFIED", "a", "51"), 0);
	w->put_result = 0;
	assert_int_equal(event("MODIFIED", "b", "52"), 0);
	assert_int_equal(stats(w)->lists, 1);
	pass(1000);
	expect_path(WATCH_LIST("52"));
	assert_int_equal(stats(w)->lists, 2);
	assert_int_equal(bookmark("60", true), 0);
	pass(60000);
	assert_int_equal(stats(w)->lists, 2);
	/* A list that is due in the middle of another list waits for its end. */
	w->put_result = -ESTALE;
	assert_int_equal(event("MODIFIED", "a", "61"), 0);
	w->put_result = 0;
	assert_true(error_event(410, "too old") < 0);
	assert_int_equal(stats(w)->lists, 3);
	pass(10000);
	assert_int_equal(event("ADDED", "b", "62"), 0);
	assert_int_equal(bookmark("70", true), 0);
	assert_int_equal(stats(w)->lists, 3);
	(void)event("MODIFIED", "b", "71");
	assert_int_equal(stats(w)->expired, 3);
}

/* Objects that a list no longer had took the room of objects that it has. */
static void test_a_store_may_wish_for_a_list_at_the_end_of_one(void **state)
{
	struct world *w = *state;

	start(w);
	w->replaced_result = -ESTALE;
	assert_int_equal(event("ADDED", "a", "7"), 0);
	assert_int_equal(bookmark("50", true), 0);
	w->replaced_result = 0;
	assert_int_equal(stats(w)->lists, 1);
	assert_true(stats(w)->synced);
	pass(9000);
	(void)event("MODIFIED", "a", "51");
	assert_int_equal(stats(w)->lists, 1);
	pass(1000);
	(void)event("MODIFIED", "a", "52");
	assert_int_equal(stats(w)->lists, 2);
	assert_int_equal(bookmark("60", true), 0);
	pass(60000);
	assert_int_equal(stats(w)->lists, 2);
}

/* More than KUBE_OBJECT_MAX, in pieces. */
static int say_large(const char *before, const char *after)
{
	enum { PIECE = 1 << 20 };
	_cleanup_free_ char *piece = malloc(PIECE);
	int r = say(before);

	assert_non_null(piece);
	memset(piece, 'x', PIECE);
	for (int i = 0; i < KUBE_OBJECT_MAX / PIECE + 1 && r == 0; i++)
		r = fake_data(fake_live(), piece, PIECE);
	return r < 0 ? r : say(after);
}

static void test_a_too_large_object_is_left_out_and_all_others_are_there(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_int_equal(say_large("{\"type\":\"ADDED\",\"object\":{\"a\":\"", "\"}}"), -E2BIG);
	assert_int_equal(stats(w)->too_large, 1);
	assert_true(fake_idle());
	pass(800);
	expect_path(BASE "?limit=500");
	assert_int_equal(say_large("{\"kind\":\"ConfigMapList\",\"metadata\":{\"resourceVersion\":"
				   "\"60\"},\"items\":[" ITEM("a") ",{\"data\":{\"k\":\"",
				   "\"}}," ITEM("b") "]}"),
			 0);
	fake_answer(fake_live(), 200, NULL);
	assert_string_equal(w->seen, "+a +b replaced ");
	assert_int_equal(stats(w)->too_large, 2);
	expect_path(WATCH("60"));
}

static void test_a_watch_list_that_stalls_is_cancelled_and_pages_come_instead(void **state)
{
	struct world *w = *state;
	struct kube_call *call;

	start(w);
	assert_int_equal(event("ADDED", "a", "7"), 0);
	call = fake_live();
	pass(29999);
	assert_false(call->over);
	assert_int_equal(say(" "), 0); /* a byte is a sign of life */
	pass(1);
	assert_false(call->over);
	pass(29999);
	assert_true(call->cancelled);
	expect_path(BASE "?limit=500");
	list("9", "", ITEM("a"));
	assert_string_equal(w->seen, "+a +a replaced synced ");
	expect_path(WATCH("9"));
	/* After that the client's timeout for silent connections applies. */
	pass(320000);
	expect_path(WATCH("9"));
}

static void test_a_client_that_takes_no_calls_is_tried_again(void **state)
{
	struct world *w = *state;

	fake_refuse = -EBUSY;
	start(w);
	assert_int_equal(fake_count(), 0);
	assert_false(stats(w)->connected);
	pass(800);
	fake_refuse = 0;
	pass(1600);
	expect_path(WATCH_LIST(""));
	assert_int_equal(stats(w)->errors, 2);
}

static void test_freed_when_synced_inside_its_own_bytes(void **state)
{
	struct world *w = *state;

	w->free_when_synced = true;
	start(w);
	(void)bookmark("9", true);
	assert_null(w->informer);
	assert_true(fake_calls->cancelled);
}

static void test_freed_when_synced_at_the_end_of_a_list(void **state)
{
	struct world *w = *state;

	w->free_when_synced = true;
	start_classic(w);
	list("9", "", "");
	assert_null(w->informer);
	assert_int_equal(fake_count(), 1);
}

static void test_a_namespace_of_what_has_none_is_refused(void **state)
{
	struct world *w = *state;
	struct error err = {0};

	w->options.kind = KUBE_NODES;
	w->options.ns = "n";
	assert_int_equal(informer_new(NULL, NULL, &w->options, &ops, w, &w->informer, &err),
			 -EINVAL);
	assert_string_equal(err.message, "nodes are in no namespace");
}

/* Whatever the server sends: the informer goes on, and never repeats a request without a wait. */
static void test_noise_is_survived_and_never_answered_in_haste(void **state)
{
	static const char *const words[] = {
	    "{",
	    "}",
	    "[",
	    "]",
	    "\"items\":",
	    "\"type\":\"ADDED\",",
	    "\"object\":{",
	    "\\",
	    "\"",
	    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{}}}",
	    "{\"type\":\"BOGUS\",\"object\":{}}",
	    "null",
	    "{\"kind\":\"Status\",\"code\":410}",
	    "\"metadata\":{\"resourceVersion\":\"5\"},",
	    "{\"kind\":\"XList\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[",
	    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\"}}}"};
	struct world *w = *state;
	unsigned int seed = 3;
	uint64_t began = fake.now;

	start(w);
	for (int i = 0; i < 20000; i++) {
		char bytes[64];

		if (fake_idle()) {
			pass(1000);
			continue;
		}
		switch (rand_r(&seed) % 8) {
		case 0:
			for (size_t n = 0; n < sizeof(bytes); n++)
				bytes[n] = (char)rand_r(&seed);
			(void)fake_data(fake_live(), bytes, sizeof(bytes));
			break;
		case 1:
			fake_answer(fake_live(), rand_r(&seed) % 2 ? 200 : rand_r(&seed) % 600, "");
			break;
		default:
			(void)say(words[(unsigned int)rand_r(&seed) % ARRAY_SIZE(words)]);
		}
		if (fake_count() > 1000) { /* forget them, or the list gets long */
			assert_true(fake.now - began > 1000 * 100);
			end(w);
			began = fake.now;
			start(w);
		}
	}
}

static void test_every_failed_allocation_is_survived(void **state)
{
	struct world *w = *state;
	bool failed = true;
	struct error err;
	int r;

	for (long n = 0; failed; n++) {
		failalloc_at(n);
		w->options.ns = "n";
		r = informer_new(NULL, NULL, &w->options, &ops, w, &w->informer, &err);
		if (r == 0) {
			informer_start(w->informer);
			if (!fake_idle())
				(void)event("ADDED", "a", "7");
			if (!fake_idle())
				(void)bookmark("9", true);
			if (!fake_idle())
				fake_answer(fake_live(), 410, NULL);
		}
		failed = failalloc_stop();
		if (r < 0) {
			assert_int_equal(r, -ENOMEM);
			memset(&fake, 0, sizeof(fake));
			continue;
		}
		/* With memory again, all is there. */
		for (int i = 0; i < 10 && fake_idle(); i++)
			pass(60000);
		(void)event("ADDED", "a", "7");
		(void)bookmark("9", true);
		assert_true(stats(w)->synced);
		end(w);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_a_watch_list_fills_the_store_and_syncs_at_its_bookmark),
	    TEST(test_a_server_without_watch_list_is_asked_for_pages),
	    TEST(test_partial_objects_have_two_names),
	    TEST(test_an_expired_watch_lists_again_and_removes_what_is_gone),
	    TEST(test_what_each_answer_to_a_watch_leads_to),
	    TEST(test_errors_inside_a_watch_are_the_same),
	    TEST(test_a_watch_cut_inside_an_object_goes_on_before_it),
	    TEST(test_a_cut_page_is_asked_for_again_and_removes_nothing),
	    TEST(test_an_undecodable_object_is_counted_and_left_out),
	    TEST(test_what_the_store_could_not_take_comes_again),
	    TEST(test_what_the_store_wishes_for_cuts_nothing_short_and_waits),
	    TEST(test_a_store_may_wish_for_a_list_at_the_end_of_one),
	    TEST(test_a_too_large_object_is_left_out_and_all_others_are_there),
	    TEST(test_a_watch_list_that_stalls_is_cancelled_and_pages_come_instead),
	    TEST(test_a_client_that_takes_no_calls_is_tried_again),
	    TEST(test_freed_when_synced_inside_its_own_bytes),
	    TEST(test_freed_when_synced_at_the_end_of_a_list),
	    TEST(test_a_namespace_of_what_has_none_is_refused),
	    TEST(test_noise_is_survived_and_never_answered_in_haste),
	    TEST(test_every_failed_allocation_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
