/* SPDX-License-Identifier: Apache-2.0 */
/* Events: from the leader alone, the same not twice, and not too many. The clock is the test's. */
#include "operator/reconcile/recorder.h"

#include "tests/support/test.h"
#include "tests/unit/operator/reconcile/fakes.h"

static bool leads;

static bool may_write(void *arg)
{
	assert_ptr_equal(arg, &leads);
	return leads;
}

static int setup(void **state)
{
	struct recorder *r;

	fakes_reset();
	leads = true;
	if (recorder_new(NULL, NULL, "pod-0", may_write, &leads, &r) < 0)
		return -1;
	*state = r;
	return 0;
}

static int teardown(void **state)
{
	recorder_free(*state);
	fakes_reset();
	return 0;
}

static void emit(struct recorder *r, const char *uid, const char *note)
{
	recorder_emit(r, (struct kube_event){.kind = KUBE_CONFIGS,
					     .ns = "a",
					     .name = "c",
					     .uid = uid,
					     .type = "Normal",
					     .reason = "Applied",
					     .action = "Reconcile",
					     .note = note});
}

static void test_the_same_is_told_once_in_ten_minutes(void **state)
{
	struct recorder *r = *state;

	emit(r, "u", "note");
	emit(r, "u", "note");
	assert_int_equal(fakes.n_events, 1);
	assert_string_equal(fakes.events[0], "Normal Applied a/c: note");
	emit(r, "u", "another note");
	emit(r, "v", "note");
	assert_int_equal(fakes.n_events, 3);
	fakes.now_ms += 599999;
	emit(r, "u", "note");
	assert_int_equal(fakes.n_events, 3);
	fakes.now_ms += 1;
	emit(r, "u", "note");
	assert_int_equal(fakes.n_events, 4);
	assert_int_equal(recorder_sent(r), 4);
	assert_int_equal(recorder_dropped(r), 0);
}

static void test_at_most_so_many_a_minute(void **state)
{
	struct recorder *r = *state;
	char note[32];

	for (int i = 0; i < 3 * RECORDER_PER_MINUTE; i++) {
		snprintf(note, sizeof(note), "%d", i);
		emit(r, "u", note);
	}
	assert_int_equal(fakes.n_events, RECORDER_PER_MINUTE);
	assert_int_equal(recorder_dropped(r), 2 * RECORDER_PER_MINUTE);
	fakes.now_ms += 60000;
	emit(r, "u", "100"); /* was not told, so it is not taken for told */
	assert_int_equal(fakes.n_events, RECORDER_PER_MINUTE + 1);
	emit(r, "u", "1");
	assert_int_equal(fakes.n_events, RECORDER_PER_MINUTE + 1);
}

static void test_what_cannot_be_sent_is_counted(void **state)
{
	struct recorder *r = *state;

	fakes.event_result = -EBUSY;
	emit(r, "u", "note");
	assert_int_equal(recorder_sent(r), 0);
	assert_int_equal(recorder_dropped(r), 1);
	fakes.event_result = 0;
	emit(r, "u", "note");
	assert_int_equal(recorder_sent(r), 1);
}

static void test_memory_is_bounded(void **state)
{
	struct recorder *r = *state;
	char note[32];

	for (int i = 0; i < RECORDER_REMEMBERED + 1; i++) {
		snprintf(note, sizeof(note), "%d", i);
		fakes.now_ms += i % 50 ? 0 : 60000;
		emit(r, "u", note);
		fakes.n_events = 0;
	}
	fakes.now_ms += 60000;
	emit(r, "u", "1024");
	assert_int_equal(fakes.n_events, 0); /* the newest are remembered */
}

static void test_only_the_leader_sends(void **state)
{
	struct recorder *r = *state;

	leads = false;
	emit(r, "u", "note");
	assert_int_equal(fakes.n_events, 0);
	assert_int_equal(recorder_sent(r), 0);
	assert_int_equal(recorder_dropped(r), 0);
	/* A follower's event was not sent: the new leader sends it. */
	leads = true;
	emit(r, "u", "note");
	assert_int_equal(fakes.n_events, 1);
	leads = false;
	emit(r, "u", "another note");
	assert_int_equal(fakes.n_events, 1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_the_same_is_told_once_in_ten_minutes),
	    TEST(test_at_most_so_many_a_minute),
	    TEST(test_what_cannot_be_sent_is_counted),
	    TEST(test_memory_is_bounded),
	    TEST(test_only_the_leader_sends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
