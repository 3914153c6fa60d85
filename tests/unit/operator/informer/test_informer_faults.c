/* SPDX-License-Identifier: Apache-2.0 */
/* The informer and objects that are too large, stalls, noise, and a want of memory. */
#include "tests/unit/operator/informer/rig.h"

#include "tests/support/failalloc.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
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
