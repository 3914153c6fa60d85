/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk requests: a connection of their own, whose TLS reads ahead. No socket event comes for bytes
 * that OpenSSL has read already. So these servers fall silent after their response, in all sizes.
 */
#include "harness.h"

struct flood {
	size_t bytes;
	bool whole, done;
	size_t want;
	int status;
};

static int flood_data(void *arg, const char *type, const void *bytes, size_t len)
{
	struct flood *f = arg;

	f->bytes += len;
	f->whole = f->want && f->bytes >= f->want;
	return 0;
}

static void flood_done(void *arg, const struct kube_answer *answer)
{
	struct flood *f = arg;

	f->done = true;
	f->status = answer->status;
}

/* "line I", padding and a newline. */
static size_t lines_size(int n, int pad)
{
	size_t size = 0;

	for (int i = 0; i < n; i++)
		size += (size_t)snprintf(NULL, 0, "line %d\n", i) + (size_t)pad;
	return size;
}

static struct kube_call *flood_begin(struct world *w, struct flood *f, int n, int pad,
				     const char *end)
{
	struct kube_request r = {.method = "GET",
				 .bulk = true,
				 .unlimited = true,
				 .data = flood_data,
				 .done = flood_done,
				 .arg = f};
	struct kube_call *call;
	char path[64];

	snprintf(path, sizeof(path), "/stream?n=%d&pad=%d&end=%s", n, pad, end);
	r.path = path;
	*f = (struct flood){.want = lines_size(n, pad)};
	assert_int_equal(kube_call(w->client, &r, &call), 0);
	return call;
}

static void connect_to(struct world *w, bool http1)
{
	world_init(w);
	if (http1)
		snprintf(w->server, sizeof(w->server), "https://127.0.0.1:%d", fake.http1_port);
	world_connect(w, NULL);
}

static void silence_after_any_size(bool http1)
{
	struct kube_call *call;
	struct flood f;
	struct world w;

	connect_to(&w, http1);
	for (int i = 0; i < 60; i++) {
		call = flood_begin(&w, &f, 1 + i * 7 % 50, i * i * 977 % 20000, "hang");
		world_run_until(&w, &f.whole);
		assert_int_equal(f.bytes, f.want);
		assert_false(f.done);
		kube_cancel(call);
	}
	world_done(&w);
}

static void test_all_of_it_comes_before_the_server_says_more(void **state)
{
	silence_after_any_size(false);
	silence_after_any_size(true);
}

/*
 * Four requests at once with more than 32 MiB, the windows of the streams and the connection
 * together.
 */
static void test_windows_open_again(void **state)
{
	struct kube_call *calls[4];
	struct flood f[4];
	struct world w;
	long before = fake_tell("accepted");

	connect_to(&w, false);
	for (int i = 0; i < 4; i++)
		calls[i] = flood_begin(&w, &f[i], 1500 + i, 13000 + 900 * i, "hang");
	for (int i = 0; i < 4; i++) {
		world_run_until(&w, &f[i].whole);
		assert_int_equal(f[i].bytes, f[i].want);
	}
	for (int i = 0; i < 4; i++) {
		assert_false(f[i].done);
		kube_cancel(calls[i]);
	}
	assert_int_equal(fake_tell("accepted") - before, 1);
	world_done(&w);
}

static void test_ends_are_seen(void **state)
{
	struct flood f;
	struct world w;

	for (int i = 0; i < 30; i++) {
		connect_to(&w, i % 2);
		flood_begin(&w, &f, 1 + i * 5 % 40, i * i * 611 % 17000, i < 20 ? "" : "abort");
		world_run_until(&w, &f.done);
		assert_int_equal(f.status, i < 20 ? 200 : 0);
		if (i < 20)
			assert_int_equal(f.bytes, f.want);
		world_done(&w);
	}
}

static void test_others_have_their_own_connection(void **state)
{
	struct got g = {0};
	struct kube_call *call;
	struct flood f;
	struct world w;
	long before = fake_tell("accepted");

	connect_to(&w, false);
	call = flood_begin(&w, &f, 10, 16000, "hang");
	for (int i = 0; i < 5; i++) {
		get(&w, "/x", &g);
		assert_int_equal(g.status, 200);
		got_done(&g);
	}
	world_run_until(&w, &f.whole);
	kube_cancel(call);
	call = flood_begin(&w, &f, 10, 16000, "hang");
	world_run_until(&w, &f.whole);
	assert_int_equal(fake_tell("accepted") - before, 2);
	kube_cancel(call);
	world_done(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_all_of_it_comes_before_the_server_says_more),
	    cmocka_unit_test(test_windows_open_again),
	    cmocka_unit_test(test_ends_are_seen),
	    cmocka_unit_test(test_others_have_their_own_connection),
	};

	return cmocka_run_group_tests(tests, fake_start, fake_stop);
}
