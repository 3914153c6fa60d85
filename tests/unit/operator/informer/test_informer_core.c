/* SPDX-License-Identifier: Apache-2.0 */
/* The next request and its time, after every way in which a request can end. */
#include "operator/cache/informer_core.h"

#include "tests/support/test.h"

static double dice_value;
static double dice(void)
{
	return dice_value;
}

struct world {
	struct informer_core c;
	struct buf query;
	uint64_t now;
};

static int set_up_with(void **state, bool classic)
{
	const struct informer_core_options options = {.no_watch_list = classic, .random = dice};
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	dice_value = 0;
	w->now = 1000;
	informer_core_init(&w->c, &options, w->now);
	buf_init(&w->query, 8192);
	*state = w;
	return 0;
}

static int set_up(void **state)
{
	return set_up_with(state, false);
}

static int set_up_classic(void **state)
{
	return set_up_with(state, true);
}

static int tear_down(void **state)
{
	struct world *w = *state;

	informer_core_done(&w->c);
	buf_done(&w->query);
	free(w);
	return 0;
}

/* Asserts that STEP with QUERY is due now. */
static void expect(struct world *w, enum informer_step step, const char *query)
{
	uint64_t ms;

	assert_int_equal(informer_core_next(&w->c, w->now, &ms), step);
	buf_reset(&w->query);
	assert_int_equal(informer_core_query(&w->c, &w->query), 0);
	assert_string_equal(w->query.data ? w->query.data : "", query);
}

/* Asserts that nothing is due for WANT ms; then lets that time pass. */
static void expect_wait(struct world *w, uint64_t want)
{
	uint64_t ms = 0;

	assert_int_equal(informer_core_next(&w->c, w->now, &ms), INFORMER_WAIT);
	assert_int_equal(ms, want);
	w->now += ms;
}

static bool end(struct world *w, enum informer_end how)
{
	return informer_core_ended(&w->c, how, 0, w->now);
}

static void page(struct world *w, const char *version, const char *token)
{
	assert_int_equal(informer_core_list_meta(&w->c, version, token), 0);
}

static void version(struct world *w, const char *text)
{
	assert_int_equal(informer_core_version(&w->c, text, strlen(text)), 0);
}

#define WATCH_LIST(rv)                                                                             \
	"?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&"                             \
	"resourceVersionMatch=NotOlderThan&resourceVersion=" rv "&timeoutSeconds=300"
#define WATCH(rv) "?watch=true&allowWatchBookmarks=true&resourceVersion=" rv "&timeoutSeconds=300"

/* A watch from version 50, that has been open for a minute. */
static void watching(struct world *w)
{
	if (w->c.options.no_watch_list) {
		expect(w, INFORMER_LIST, "?limit=500");
		page(w, "50", "");
		assert_true(end(w, INFORMER_END_CLEAN));
		expect(w, INFORMER_WATCH, WATCH("50"));
	} else {
		expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
		version(w, "50");
		assert_true(informer_core_initial_end(&w->c));
	}
	w->now += 60000;
}

static void test_begins_with_a_watch_of_what_is_there(void **state)
{
	struct world *w = *state;

	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
	assert_int_equal(w->c.generation, 1);
	version(w, "10");
	assert_true(informer_core_initial_end(&w->c));
	assert_false(informer_core_initial_end(&w->c)); /* only once */
	version(w, "12");
	/* It continues as a watch; when that ends, the next one starts at its last version. */
	w->now += 300000;
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("12"));
	assert_int_equal(w->c.generation, 1);
}

static void test_pages_when_the_server_knows_no_watch_list(void **state)
{
	struct world *w = *state;

	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
	assert_false(end(w, INFORMER_END_UNSUPPORTED));
	expect(w, INFORMER_LIST, "?limit=500");
	page(w, "7", "a/b c+");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_LIST, "?limit=500&continue=a%2Fb%20c%2B");
	page(w, "7", "second");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_LIST, "?limit=500&continue=second");
	page(w, "7", "");
	assert_int_equal(w->c.generation, 2); /* one for all pages */
	assert_true(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("7"));
	/* The server is never asked for a watch list again. */
	w->now += 60000;
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_LIST, "?resourceVersion=7&resourceVersionMatch=NotOlderThan");
}

static void test_watch_timeouts_are_5_to_10_minutes(void **state)
{
	struct world *w = *state;

	watching(w);
	dice_value = 0.999999;
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH,
	       "?watch=true&allowWatchBookmarks=true&resourceVersion=50&timeoutSeconds=599");
}

static void test_a_cut_watch_goes_on_from_the_last_version(void **state)
{
	struct world *w = *state;

	watching(w);
	version(w, "61");
	assert_false(end(w, INFORMER_END_CUT));
	expect(w, INFORMER_WATCH, WATCH("61"));
}

static void test_watches_that_end_at_once_are_not_asked_for_in_a_circle(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("50"));
	assert_false(end(w, INFORMER_END_CLEAN));
	expect_wait(w, 800);
	expect(w, INFORMER_WATCH, WATCH("50"));
	assert_false(end(w, INFORMER_END_CUT));
	expect_wait(w, 1000);
}

static void test_a_server_that_is_away_is_asked_at_least_every_2_s(void **state)
{
	static const enum informer_end ends[] = {INFORMER_END_NO_ANSWER, INFORMER_END_SERVER};

	for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
		struct world *w = *state;

		watching(w);
		dice_value = 0.999999;
		for (int n = 0; n < 50; n++) {
			uint64_t ms;

			assert_false(end(w, ends[i]));
			assert_int_equal(informer_core_next(&w->c, w->now, &ms), INFORMER_WAIT);
			assert_in_range(ms, 800, 2000);
			w->now += ms;
			dice_value = 0;
			expect(w, INFORMER_WATCH, WATCH("50")); /* the version stays */
			dice_value = 0.999999;
		}
		tear_down(state);
		set_up(state);
	}
}

static void test_other_waits_double_to_30_s_and_as_much_again_at_random(void **state)
{
	static const uint64_t want[] = {800, 1600, 3200, 6400, 12800, 25600, 30000, 30000};
	struct world *w = *state;

	watching(w);
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_false(end(w, INFORMER_END_BUSY));
		expect_wait(w, want[i]);
		expect(w, INFORMER_WATCH, WATCH("50"));
	}
	dice_value = 0.5;
	assert_false(end(w, INFORMER_END_REFUSED));
	expect_wait(w, 45000);
	dice_value = 0;
	expect(w, INFORMER_WATCH, WATCH("50"));
	/* After two minutes without a failure the waits start from the beginning. */
	w->now += 120001;
	assert_false(end(w, INFORMER_END_BUSY));
	expect_wait(w, 800);
}

static void test_retry_after_is_obeyed(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_false(informer_core_ended(&w->c, INFORMER_END_BUSY, 17000, w->now));
	expect_wait(w, 17000);
	expect(w, INFORMER_WATCH, WATCH("50"));
	/* A Retry-After of 1 s is obeyed a hundred times; the wait does not grow. */
	for (int i = 0; i < 100; i++) {
		assert_false(informer_core_ended(&w->c, INFORMER_END_BUSY, 1000, w->now));
		expect_wait(w, 1000);
		expect(w, INFORMER_WATCH, WATCH("50"));
	}
	/* A Retry-After is capped. */
	assert_false(informer_core_ended(&w->c, INFORMER_END_BUSY, UINT64_MAX, w->now));
	expect_wait(w, 300000);
}

static void test_an_expired_version_asks_for_no_older_and_then_for_the_newest(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST("50"));
	assert_int_equal(w->c.generation, 2);
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
	/* "Expired" for a request without a version: wait before the next one. */
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect_wait(w, 800);
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
	version(w, "90");
	assert_true(informer_core_initial_end(&w->c));
	w->now += 200000;
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST("90")); /* the new one is believed again */
	version(w, "91");
	assert_true(informer_core_initial_end(&w->c));
	/* A version that expires right after the list was complete: wait, too. */
	w->now += 9999;
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect_wait(w, 800);
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST("91"));
}

static void test_the_same_in_pages(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_LIST, "?resourceVersion=50&resourceVersionMatch=NotOlderThan");
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_LIST, "?limit=500");
	page(w, "90", "");
	assert_true(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("90"));
}

/* E.g. an etcd that was restored from a backup. */
static void test_a_server_that_is_behind_is_asked_for_what_it_has(void **state)
{
	struct world *w = *state;

	watching(w);
	assert_false(informer_core_ended(&w->c, INFORMER_END_TOO_NEW, 1000, w->now));
	expect_wait(w, 1000); /* what it asked for */
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
}

static void test_pages_that_expire_begin_again_as_one(void **state)
{
	struct world *w = *state;

	expect(w, INFORMER_LIST, "?limit=500");
	page(w, "7", "next");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_LIST, "?limit=500&continue=next");
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_LIST, "");
	/* The server pages nevertheless, and its pages expire again. */
	page(w, "7", "next");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_LIST, "?limit=500&continue=next");
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect_wait(w, 800);
	expect(w, INFORMER_LIST, "");
}

static void test_a_cut_page_is_asked_for_again(void **state)
{
	struct world *w = *state;

	expect(w, INFORMER_LIST, "?limit=500");
	page(w, "7", "next");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_LIST, "?limit=500&continue=next");
	page(w, "7", "third");
	assert_false(end(w, INFORMER_END_CUT)); /* after its metadata, in the middle of items */
	expect_wait(w, 800);
	expect(w, INFORMER_LIST, "?limit=500&continue=next");
	assert_int_equal(w->c.generation, 1);
	page(w, "7", "");
	assert_true(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("7"));
}

static void test_a_list_without_metadata_is_none(void **state)
{
	struct world *w = *state;

	expect(w, INFORMER_LIST, "?limit=500");
	assert_false(end(w, INFORMER_END_CLEAN));
	expect_wait(w, 800);
	expect(w, INFORMER_LIST, "?limit=500");
	assert_int_equal(informer_core_list_meta(&w->c, "", ""), -EBADMSG);
}

static void test_a_watch_list_that_stalls_is_given_up_for_pages_this_time(void **state)
{
	struct world *w = *state;
	uint64_t ms;

	expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
	w->now += 20000;
	informer_core_bytes(&w->c, w->now);
	assert_int_equal(informer_core_next(&w->c, w->now, &ms), INFORMER_WAIT);
	assert_int_equal(ms, 30000);
	w->now += ms;
	assert_int_equal(informer_core_next(&w->c, w->now, &ms), INFORMER_WAIT);
	assert_int_equal(ms, 0);
	assert_false(end(w, INFORMER_END_STALLED));
	expect(w, INFORMER_LIST, "?limit=500");
	page(w, "7", "");
	assert_true(end(w, INFORMER_END_CLEAN));
	expect(w, INFORMER_WATCH, WATCH("7"));
	assert_int_equal(informer_core_next(&w->c, w->now, &ms), INFORMER_WAIT);
	assert_int_equal(ms, UINT64_MAX);
	w->now += 60000;
	assert_false(end(w, INFORMER_END_EXPIRED));
	expect(w, INFORMER_WATCH_LIST, WATCH_LIST("7"));
}

static void test_watch_lists_that_break_off_three_times_are_given_up_for_pages(void **state)
{
	struct world *w = *state;

	for (int i = 0; i < 3; i++) {
		expect(w, INFORMER_WATCH_LIST, WATCH_LIST(""));
		w->now += 5000;
		assert_false(end(w, i % 2 ? INFORMER_END_CLEAN : INFORMER_END_CUT));
		w->now = w->c.next_ms;
	}
	expect(w, INFORMER_LIST, "?limit=500");
}

static void test_a_too_large_object_in_a_watch_leads_to_a_list_without_haste(void **state)
{
	struct world *w = *state;

	watching(w);
	for (int i = 0; i < 8; i++) {
		static const uint64_t want[] = {800, 1600, 3200, 6400, 12800, 25600, 30000, 30000};

		assert_false(end(w, INFORMER_END_TOO_LARGE));
		expect_wait(w, want[i]);
		expect(w, INFORMER_LIST, "?limit=500");
		page(w, "60", "");
		assert_true(end(w, INFORMER_END_CLEAN));
		expect(w, INFORMER_WATCH, WATCH("60"));
	}
}

static void test_versions_that_are_none_are_refused(void **state)
{
	struct world *w = *state;
	char text[INFORMER_VERSION_MAX + 1];

	memset(text, 'v', sizeof(text));
	watching(w);
	assert_int_equal(informer_core_version(&w->c, text, INFORMER_VERSION_MAX), -EBADMSG);
	assert_int_equal(informer_core_version(&w->c, "", 0), -EBADMSG);
	assert_int_equal(informer_core_version(&w->c, "a\0b", 3), -EBADMSG);
	assert_string_equal(w->c.version, "50");
	assert_int_equal(informer_core_version(&w->c, text, INFORMER_VERSION_MAX - 1), 0);
	text[INFORMER_VERSION_MAX] = '\0';
	assert_int_equal(informer_core_list_meta(&w->c, text, ""), -EBADMSG);
}

/*
 * Whatever the order of ends: the next request comes within the longest wait, requests do not
 * follow each other endlessly without a wait, and a watch starts at a version that the server has
 * sent.
 */
static void test_random_ends_always_lead_on(void **state)
{
	unsigned int seed = 5;

	for (int run = 0; run < 200; run++) {
		struct world *w = *state;
		unsigned int requests = 0, told = 0;
		uint64_t began = w->now;

		while (requests < 500) {
			enum informer_step step;
			uint64_t ms = 0;
			char text[16];

			dice_value = (double)(rand_r(&seed) % 1000) / 1000;
			step = informer_core_next(&w->c, w->now, &ms);
			if (step == INFORMER_WAIT && w->c.in_flight) {
				assert_true(ms == 0 || w->c.initial);
				(void)end(w, INFORMER_END_STALLED);
				continue;
			}
			if (step == INFORMER_WAIT) {
				assert_in_range(ms, 1, 60000);
				w->now += ms;
				continue;
			}
			requests++;
			buf_reset(&w->query);
			assert_int_equal(informer_core_query(&w->c, &w->query), 0);
			if (step == INFORMER_WATCH)
				assert_true(w->c.version[0] != '\0');
			w->now += (uint64_t)rand_r(&seed) % 20000;
			informer_core_bytes(&w->c, w->now);
			snprintf(text, sizeof(text), "v%u", ++told);
			if (rand_r(&seed) % 2 && step == INFORMER_LIST)
				page(w, text, rand_r(&seed) % 3 ? "" : "more");
			if (rand_r(&seed) % 2 && step != INFORMER_LIST) {
				version(w, text);
				if (rand_r(&seed) % 2)
					(void)informer_core_initial_end(&w->c);
			}
			(void)end(w,
				  (enum informer_end)((unsigned int)rand_r(&seed) % INFORMER_ENDS));
		}
		assert_true(w->now - began > 500 * 400);
		tear_down(state);
		set_up_with(state, run % 2);
	}
}

#define TEST(name)    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define CLASSIC(name) cmocka_unit_test_setup_teardown(name, set_up_classic, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_begins_with_a_watch_of_what_is_there),
	    TEST(test_pages_when_the_server_knows_no_watch_list),
	    TEST(test_watch_timeouts_are_5_to_10_minutes),
	    CLASSIC(test_watch_timeouts_are_5_to_10_minutes),
	    TEST(test_a_cut_watch_goes_on_from_the_last_version),
	    CLASSIC(test_a_cut_watch_goes_on_from_the_last_version),
	    CLASSIC(test_watches_that_end_at_once_are_not_asked_for_in_a_circle),
	    TEST(test_a_server_that_is_away_is_asked_at_least_every_2_s),
	    TEST(test_other_waits_double_to_30_s_and_as_much_again_at_random),
	    TEST(test_retry_after_is_obeyed),
	    TEST(test_an_expired_version_asks_for_no_older_and_then_for_the_newest),
	    CLASSIC(test_the_same_in_pages),
	    TEST(test_a_server_that_is_behind_is_asked_for_what_it_has),
	    CLASSIC(test_pages_that_expire_begin_again_as_one),
	    CLASSIC(test_a_cut_page_is_asked_for_again),
	    CLASSIC(test_a_list_without_metadata_is_none),
	    TEST(test_a_watch_list_that_stalls_is_given_up_for_pages_this_time),
	    TEST(test_watch_lists_that_break_off_three_times_are_given_up_for_pages),
	    TEST(test_a_too_large_object_in_a_watch_leads_to_a_list_without_haste),
	    TEST(test_versions_that_are_none_are_refused),
	    TEST(test_random_ends_always_lead_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
