/* SPDX-License-Identifier: Apache-2.0 */
/* The end at any moment: calls cancelled, made and the client freed from inside callbacks. */
#include "harness.h"

#include "tests/support/failalloc.h"

static void never(void *arg, const struct kube_answer *answer)
{
	fail_msg("a cancelled call was answered");
}

static void test_cancel_after_any_number_of_turns(void **state)
{
	static const char *const paths[] = {"/slow?ms=90000", "/stream?n=1&end=hang",
					    "/storm?id=x&n=99&after=20"};
	struct kube_request r = {.method = "GET", .done = never, .data = NULL};
	struct kube_call *calls[3];
	struct world w;
	int turns, i, k;

	for (turns = 0; turns < 12; turns++) {
		world_init(&w);
		world_connect(&w, NULL);
		for (i = 0; i < 3; i++) {
			r.path = paths[i];
			assert_int_equal(kube_call(w.client, &r, &calls[i]), 0);
		}
		for (k = 0; k < turns; k++)
			uv_run(&w.loop, UV_RUN_NOWAIT);
		for (i = 0; i < 3; i++)
			if ((turns >> i) & 1)
				kube_cancel(calls[i]);
		world_done(&w);
	}
}

/* The action of a callback; the same set for data() and done(). */
enum deed { CANCEL_SELF, CANCEL_OTHER, CANCEL_ALL, FREE_CLIENT, FREE_IN_ORDER, CALL_MORE, DEEDS };

struct scene {
	struct world w;
	enum deed deed;
	bool in_done;
	struct kube_call *self, *other;
	struct got other_got, more_got;
	int data_calls, done_calls;
	bool acted;
};

static void act(struct scene *s)
{
	static const struct kube_request more = {.method = "GET", .path = "/x", .done = on_answer};
	struct kube_request r = more;

	if (s->acted)
		return;
	s->acted = true;
	switch (s->deed) {
	case CANCEL_SELF:
		kube_cancel(s->self);
		break;
	case CANCEL_OTHER:
		kube_cancel(s->other);
		break;
	case CANCEL_ALL:
		kube_cancel(s->other);
		kube_cancel(s->self);
		break;
	case FREE_IN_ORDER:
		kube_cancel(s->self);
		s->w.client = kube_client_free(s->w.client);
		break;
	case FREE_CLIENT:
		s->w.client = kube_client_free(s->w.client);
		break;
	default:
		r.arg = &s->more_got;
		assert_int_equal(kube_call(s->w.client, &r, NULL), 0);
	}
}

static int scene_data(void *arg, const char *type, const void *bytes, size_t len)
{
	struct scene *s = arg;

	s->data_calls++;
	if (!s->in_done)
		act(s);
	return 0;
}

static void scene_done(void *arg, const struct kube_answer *answer)
{
	struct scene *s = arg;

	s->done_calls++;
	if (s->in_done)
		act(s);
	/* The message of the answer is still valid. */
	assert_true(strlen(answer->message) < 1024);
}

static void play(enum deed deed, bool in_done, bool http1, bool bulk)
{
	bool gone = deed == CANCEL_SELF || deed == CANCEL_ALL || deed == FREE_CLIENT ||
		    deed == FREE_IN_ORDER;
	bool other_gone = deed != CANCEL_SELF && deed != CALL_MORE;
	struct scene s = {.deed = deed, .in_done = in_done};

	world_init(&s.w);
	if (http1)
		snprintf(s.w.server, sizeof(s.w.server), "https://127.0.0.1:%d", fake.http1_port);
	world_connect(&s.w, NULL);
	assert_int_equal(kube_call(s.w.client,
				   &(struct kube_request){.method = "GET",
							  .path = "/stream?n=40&gap=10&pad=3000",
							  .bulk = bulk,
							  .data = on_data,
							  .done = on_answer,
							  .arg = &s.other_got},
				   &s.other),
			 0);
	assert_int_equal(kube_call(s.w.client,
				   &(struct kube_request){.method = "GET",
							  .path = "/stream?n=4&gap=10&pad=3000",
							  .bulk = bulk,
							  .data = scene_data,
							  .done = scene_done,
							  .arg = &s},
				   &s.self),
			 0);
	world_run_until(&s.w, &s.acted);
	if (deed == CALL_MORE) {
		world_run_until(&s.w, &s.more_got.done);
		assert_int_equal(s.more_got.status, 200);
	}
	if (other_gone) {
		world_run_for(&s.w, 50);
		assert_false(s.other_got.done);
	} else {
		world_run_until(&s.w, &s.other_got.done);
		assert_int_equal(s.other_got.status, 200);
	}
	if (in_done)
		assert_int_equal(s.done_calls, 1);
	else if (gone)
		assert_true(s.data_calls == 1 && s.done_calls == 0);
	got_done(&s.other_got);
	got_done(&s.more_got);
	world_done(&s.w);
}

static void test_callbacks_may_end_anything(void **state)
{
	int deed, how;

	for (deed = 0; deed < DEEDS; deed++)
		for (how = 0; how < 8; how++)
			play((enum deed)deed, how & 1, how & 2, how & 4);
}

static void test_the_server_hears_of_it_with_the_next_request(void **state)
{
	struct kube_request r = {
	    .method = "GET", .path = "/stream?n=1&end=hang", .data = on_data, .done = never};
	struct got g = {0};
	struct kube_call *call;
	struct world w;
	long before = fake_tell("gone");
	int i;

	world_init(&w);
	world_connect(&w, NULL);
	r.arg = &g;
	assert_int_equal(kube_call(w.client, &r, &call), 0);
	for (i = 0; i < 1000 && g.stream_len == 0; i++)
		world_run_for(&w, 10);
	kube_cancel(call);
	/* curl 7.88 sends RST_STREAM together with the next frames on the connection. */
	got_done(&g);
	get(&w, "/x", &g);
	for (i = 0; i < 1000 && fake_tell("gone") == before; i++)
		world_run_for(&w, 10);
	assert_int_equal(fake_tell("gone") - before, 1);
	got_done(&g);
	world_done(&w);
}

static void count_done(void *arg, const struct kube_answer *answer)
{
	int *n = arg;

	++*n;
	assert_true(answer->status == 200 || answer->message[0]);
}

/* Allocation N and all after it fail, from kube_call() on through the first turns of the loop. */
static void test_out_of_memory_at_any_allocation(void **state)
{
	bool failed = true;
	struct world w;
	long n;
	int k, r, calls;

	for (n = 0; failed && n < 150; n++) {
		struct kube_request request = {.method = "POST",
					       .path = "/x",
					       .body = "x",
					       .len = 1,
					       .timeout_ms = 300,
					       .done = count_done,
					       .arg = &calls};

		calls = 0;
		world_init(&w);
		w.credentials.token = (char *)"t";
		world_connect(&w, NULL);
		failalloc_at(n);
		r = kube_call(w.client, &request, NULL);
		for (k = 0; k < 3; k++)
			uv_run(&w.loop, UV_RUN_NOWAIT);
		failed = failalloc_stop();
		assert_true(r == 0 || r == -ENOMEM);
		if (r < 0)
			assert_int_equal(calls, 0);
		for (k = 0; r == 0 && k < 3000 && calls == 0; k++)
			world_run_for(&w, 10);
		assert_int_equal(calls, r == 0);
		world_done(&w);
	}
	assert_true(n > 3); /* our own; those inside curl and libc cannot be made to fail */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_cancel_after_any_number_of_turns),
	    cmocka_unit_test(test_callbacks_may_end_anything),
	    cmocka_unit_test(test_the_server_hears_of_it_with_the_next_request),
	    cmocka_unit_test(test_out_of_memory_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
