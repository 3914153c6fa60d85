/* SPDX-License-Identifier: Apache-2.0 */
/* What the informer's store contains after a list and a watch, and what the informer requests next.
 */
#include "tests/unit/operator/informer/rig.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
