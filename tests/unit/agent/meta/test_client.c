/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's client of the node stream against a fake operator on loopback: state, faults,
 * credentials.
 */
#include "agent/meta/client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "agent/meta/snapshot.h"
#include "lib/log.h"
#include "tests/support/grpc_fake.h"
#include "tests/support/test.h"
#include "tests/unit/agent/meta/sample_node.h"

enum { WAIT_S = 30, UNAVAILABLE = 14, UNAUTHENTICATED = 16 };

struct test {
	uv_loop_t loop;
	struct fake_server *server;
	struct meta_client *client;
	struct meta_options options;
	char dir[64], endpoint[64], token[96], snapshot[96], ca[96];
	unsigned int settled;
	uint64_t want; /* the count that the condition waits for */
};

static void on_settled(void *arg)
{
	((struct test *)arg)->settled++;
}

static void on_report(struct meta_report *r, void *arg)
{
	r->samples = 42;
	r->tracers[0].name = "python";
	r->tracers[0].state = META_TRACER_UNAVAILABLE;
	r->tracers[0].reason = "no kernel";
	r->tracers[0].versions[0] = "3.11";
	r->tracers[0].n_versions = 1;
	r->n_tracers = 1;
	r->policies[0].id = 5;
	r->policies[0].containers = 3;
	r->n_policies = 1;
}

static double half(void *arg)
{
	return 0.5;
}

static void write_file(const char *path, const void *data, size_t len)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
}

static void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

/* Writes a JWT that has nothing but its expiry; RANK makes two of them differ. */
static void write_token(struct test *t, int64_t expires, int rank)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	char json[64], out[160] = "h.", *p = out + 2;
	int i, n = snprintf(json, sizeof(json), "{\"exp\":%lld}", (long long)expires);

	for (i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)json[i] << 16 |
			     (i + 1 < n ? (uint32_t)json[i + 1] << 8 : 0) |
			     (i + 2 < n ? (uint32_t)json[i + 2] : 0);

		*p++ = digits[v >> 18];
		*p++ = digits[v >> 12 & 63];
		if (i + 1 < n)
			*p++ = digits[v >> 6 & 63];
		if (i + 2 < n)
			*p++ = digits[v & 63];
	}
	snprintf(p, sizeof(out) - (size_t)(p - out), ".s%d", rank);
	write_text(t->token, out);
}

static void serve(struct test *t, const struct fake_options *o)
{
	assert_int_equal(fake_server_start(o, &t->server), 0);
	snprintf(t->endpoint, sizeof(t->endpoint), "127.0.0.1:%d", fake_server_port(t->server));
}

static void setup(struct test *t, const struct fake_options *o)
{
	*t = (struct test){.dir = "/tmp/kiln-test-meta-XXXXXX"};
	assert_non_null(mkdtemp(t->dir));
	snprintf(t->token, sizeof(t->token), "%s/token", t->dir);
	snprintf(t->snapshot, sizeof(t->snapshot), "%s/pods", t->dir);
	snprintf(t->ca, sizeof(t->ca), "%s/ca", t->dir);
	write_text(t->token, "first-token\n");
	uv_loop_init(&t->loop);
	serve(t, o ? o : &(struct fake_options){0});
	t->options = (struct meta_options){
	    .endpoint = t->endpoint,
	    .insecure = true,
	    .token_file = t->token,
	    .snapshot_file = t->snapshot,
	    .agent_version = "0.1.0",
	    .kernel = "6.1",
	    .config_hash = "abc",
	    .retry_initial_ms = 20,
	    .retry_max_ms = 100,
	    .answer_ms = 20000,
	    .snapshot_ms = 50,
	    .tick_ms = 20,
	    .random = half,
	};
}

static void begin(struct test *t)
{
	struct meta_events events = {
	    .pods = {.settled = on_settled, .arg = t}, .report = on_report, .arg = t};
	struct error err;

	assert_int_equal(meta_client_new(&t->options, &events, &t->loop, &t->client, &err), 0);
}

static void stop_client(struct test *t)
{
	t->client = meta_client_free(t->client);
	uv_run(&t->loop, UV_RUN_DEFAULT);
}

static void teardown(struct test *t)
{
	stop_client(t);
	assert_int_equal(uv_loop_close(&t->loop), 0);
	t->server = fake_server_stop(t->server);
	unlink(t->token);
	unlink(t->snapshot);
	unlink(t->ca);
	assert_int_equal(rmdir(t->dir), 0); /* the client left no other file */
}

static struct meta_status status_of(const struct test *t)
{
	struct meta_status s;

	meta_client_status(t->client, &s);
	return s;
}

/* ---- the operator's words -------------------------------------------------------------------- */

static void say(struct fake_call *c, const Kiln__Node__V1__OperatorMessage *m)
{
	uint8_t *bytes = malloc(kiln__node__v1__operator_message__get_packed_size(m) + 1);

	fake_send(c, bytes, kiln__node__v1__operator_message__pack(m, bytes));
	free(bytes);
}

static void say_welcome(struct fake_call *c)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;
	Kiln__Node__V1__Welcome w = KILN__NODE__V1__WELCOME__INIT;

	w.protocol = 1;
	w.node_name = (char *)"node-1";
	w.cluster_uid = (char *)"cluster";
	w.report_interval_s = 1;
	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_WELCOME;
	m.welcome = &w;
	say(c, &m);
}

static void say_begin(struct fake_call *c, uint64_t epoch)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;
	Kiln__Node__V1__SnapshotBegin b = KILN__NODE__V1__SNAPSHOT_BEGIN__INIT;

	b.epoch = epoch;
	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN;
	m.snapshot_begin = &b;
	say(c, &m);
}

static void say_end(struct fake_call *c, uint64_t epoch, uint64_t revision)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;
	Kiln__Node__V1__SnapshotEnd e = KILN__NODE__V1__SNAPSHOT_END__INIT;

	e.epoch = epoch;
	e.revision = revision;
	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END;
	m.snapshot_end = &e;
	say(c, &m);
}

static void say_update(struct fake_call *c, Kiln__Node__V1__Update *u)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;

	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE;
	m.update = u;
	say(c, &m);
}

static void say_pod(struct fake_call *c, uint64_t revision, const char *name)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	struct sample_pod p;

	u.revision = revision;
	u.n_pods = 1;
	u.pods = sample_pod(&p, name, 5, 0, 0);
	say_update(c, &u);
}

/* The state of epoch 7, revision 10: one pod. */
static void say_all(struct fake_call *c, const char *name)
{
	say_welcome(c);
	say_begin(c, 7);
	say_pod(c, 0, name);
	say_end(c, 7, 10);
}

/* ---- the agent's words ----------------------------------------------------------------------- */

static Kiln__Node__V1__AgentMessage *heard(const struct fake_call *c, size_t i)
{
	Kiln__Node__V1__AgentMessage *m;

	assert_true(i < c->n_messages);
	m = kiln__node__v1__agent_message__unpack(NULL, c->messages[i].len, c->messages[i].data);
	assert_non_null(m);
	return m;
}

static void assert_hello(const struct fake_call *c, uint64_t epoch, uint64_t revision)
{
	Kiln__Node__V1__AgentMessage *m = heard(c, 0);

	assert_int_equal(m->message_case, KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO);
	assert_int_equal(m->hello->protocol, 1);
	assert_string_equal(m->hello->agent_version, "0.1.0");
	assert_string_equal(m->hello->kernel, "6.1");
	assert_int_equal(m->hello->epoch, epoch);
	assert_int_equal(m->hello->revision, revision);
	kiln__node__v1__agent_message__free_unpacked(m, NULL);
}

/* The newest ack that came; 0 when there is none. */
static uint64_t acked(const struct fake_call *c)
{
	uint64_t revision = 0;
	size_t i;

	for (i = 0; i < c->n_messages; i++) {
		Kiln__Node__V1__AgentMessage *m = heard(c, i);

		if (m->message_case == KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK)
			revision = m->ack->revision;
		kiln__node__v1__agent_message__free_unpacked(m, NULL);
	}
	return revision;
}

static bool call_said_hello(void *arg)
{
	struct test *t = arg;
	struct fake_call *c = fake_server_call(t->server, t->want);

	return c && c->n_messages > 0;
}

static struct fake_call *expect_call(struct test *t, size_t i)
{
	t->want = i;
	assert_true(fake_pump(t->server, &t->loop, call_said_hello, t, WAIT_S));
	return fake_server_call(t->server, i);
}

static bool is_acked(void *arg)
{
	struct test *t = arg;

	return acked(fake_server_call(t->server, fake_server_calls(t->server) - 1)) == t->want;
}

static void expect_ack(struct test *t, uint64_t revision)
{
	t->want = revision;
	assert_true(fake_pump(t->server, &t->loop, is_acked, t, WAIT_S));
}

static bool is_connected(void *arg)
{
	return status_of(arg).connected;
}

static bool is_disconnected(void *arg)
{
	return !status_of(arg).connected;
}

static const struct pod_entry *pod(const struct test *t, const char *name)
{
	char uid[64];

	snprintf(uid, sizeof(uid), "uid-%s", name);
	return pod_table_find_uid(meta_client_table(t->client), uid);
}

/* ---- state ----------------------------------------------------------------------------------- */

static bool has_report(void *arg)
{
	struct test *t = arg;

	return status_of(t).reports >= t->want && status_of(t).acks > 0;
}

static void test_snapshot_deltas_acks_and_reports(void **state)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	char *gone[] = {(char *)"uid-a"};
	Kiln__Node__V1__AgentMessage *m;
	struct fake_call *c;
	bool found = false;
	struct test t;
	size_t i;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	assert_string_equal(c->method, "/kiln.node.v1.NodeService/Connect");
	assert_string_equal(c->authorization, "Bearer first-token");
	assert_hello(c, 0, 0);
	say_all(c, "a");
	expect_ack(&t, 10);
	assert_string_equal(pod(&t, "a")->attributes[0].value, "a");
	assert_true(status_of(&t).connected);
	assert_string_equal(status_of(&t).node_name, "node-1");
	say_pod(c, 12, "b");
	expect_ack(&t, 12);
	assert_non_null(pod(&t, "b"));
	u.revision = 13;
	u.n_deleted_pods = 1;
	u.deleted_pods = gone;
	say_update(c, &u);
	expect_ack(&t, 13);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 1);
	assert_non_null(pod(&t, "a")); /* lingers */
	assert_int_equal(t.settled, 3);
	t.want = 2;
	assert_true(fake_pump(t.server, &t.loop, has_report, &t, WAIT_S));
	for (i = 0; i < c->n_messages; i++) {
		m = heard(c, i);
		if (m->message_case == KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT) {
			found = true;
			assert_int_equal(m->report->samples, 42);
			assert_string_equal(m->report->config_hash, "abc");
			assert_string_equal(m->report->tracers[0]->reason, "no kernel");
			assert_int_equal(m->report->tracers[0]->n_versions, 1);
			assert_string_equal(m->report->tracers[0]->versions[0], "3.11");
			assert_int_equal(m->report->policies[0]->containers, 3);
		}
		kiln__node__v1__agent_message__free_unpacked(m, NULL);
	}
	assert_true(found);
	teardown(&t);
}

static void test_resumes_where_it_was(void **state)
{
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	fake_finish(fake_server_call(t.server, 0), UNAVAILABLE, "moving on");
	c = expect_call(&t, 1);
	assert_hello(c, 7, 10);
	say_welcome(c);
	/*
	 * Nothing has changed, so the operator sends no snapshot: the client counts as connected.
	 */
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	say_pod(c, 11, "b");
	expect_ack(&t, 11);
	assert_non_null(pod(&t, "a"));
	fake_finish(c, UNAVAILABLE, "again");
	/* An operator that does not know this state any more sends a snapshot. */
	c = expect_call(&t, 2);
	assert_hello(c, 7, 11);
	say_welcome(c);
	say_begin(c, 8);
	say_pod(c, 0, "c");
	say_end(c, 8, 1);
	expect_ack(&t, 1);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 1);
	assert_int_equal(status_of(&t).epoch, 8);
	teardown(&t);
}

static bool staged(void *arg)
{
	struct test *t = arg;

	return pod_table_counters(meta_client_table(t->client))->updates >= t->want;
}

static void test_killed_in_the_middle_of_a_snapshot_the_old_state_stays(void **state)
{
	struct fake_options o = {0};
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	c = fake_server_call(t.server, 0);
	say_begin(c, 9);
	say_pod(c, 0, "b");
	t.want = 2;
	assert_true(fake_pump(t.server, &t.loop, staged, &t, WAIT_S));
	o.port = fake_server_port(t.server);
	t.server = fake_server_stop(t.server);
	assert_true(fake_pump(NULL, &t.loop, is_disconnected, &t, WAIT_S));
	assert_non_null(pod(&t, "a"));
	assert_null(pod(&t, "b"));
	serve(&t, &o);
	c = expect_call(&t, 0);
	assert_hello(c, 7, 10);
	/* This update continues the old state, not the snapshot that was cut off. */
	say_welcome(c);
	say_pod(c, 11, "c");
	expect_ack(&t, 11);
	assert_non_null(pod(&t, "c"));
	teardown(&t);
}

static void test_starts_from_disk_while_the_operator_is_away(void **state)
{
	struct fake_options o = {0};
	struct stat st;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	stop_client(&t);
	assert_int_equal(stat(t.snapshot, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	o.port = fake_server_port(t.server);
	t.server = fake_server_stop(t.server);
	t.settled = 0;
	begin(&t);
	assert_non_null(pod(&t, "a"));
	assert_int_equal(t.settled, 1);
	assert_int_equal(status_of(&t).source, META_FROM_DISK);
	assert_false(status_of(&t).connected);
	serve(&t, &o);
	assert_hello(expect_call(&t, 0), 7, 10);
	teardown(&t);
}

static bool has_written(void *arg)
{
	struct test *t = arg;

	return status_of(t).snapshots_written >= t->want;
}

static void test_the_copy_is_written_while_it_runs_and_only_when_it_changed(void **state)
{
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	t.want = 1;
	assert_true(fake_pump(t.server, &t.loop, has_written, &t, WAIT_S));
	t.want = 2; /* reports go by, nothing changes */
	assert_true(fake_pump(t.server, &t.loop, has_report, &t, WAIT_S));
	assert_int_equal(status_of(&t).snapshots_written, 1);
	say_pod(fake_server_call(t.server, 0), 11, "b");
	assert_true(fake_pump(t.server, &t.loop, has_written, &t, WAIT_S));
	teardown(&t);
}

static void test_a_damaged_copy_is_ignored_and_counted(void **state)
{
	struct test t;

	setup(&t, NULL);
	write_text(t.snapshot, "KILNPOD1 and then nothing of use at all, really nothing");
	begin(&t);
	assert_int_equal(status_of(&t).snapshots_corrupt, 1);
	assert_int_equal(status_of(&t).source, META_NOTHING);
	assert_hello(expect_call(&t, 0), 0, 0);
	say_all(fake_server_call(t.server, 0), "a");
	expect_ack(&t, 10);
	teardown(&t);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void say_garbage(struct fake_call *c)
{
	fake_send(c, "\xff\xff\xff\xff\xff\xff", 6);
}

static void say_early(struct fake_call *c)
{
	say_begin(c, 7);
}

static void say_update_without_state(struct fake_call *c)
{
	say_welcome(c);
	say_pod(c, 3, "x");
}

static void say_lonely_end(struct fake_call *c)
{
	say_welcome(c);
	say_end(c, 7, 1);
}

static void say_welcome_twice(struct fake_call *c)
{
	say_welcome(c);
	say_welcome(c);
}

static void say_backwards(struct fake_call *c)
{
	say_all(c, "x");
	say_pod(c, 9, "y");
}

/* 500,000 empty pods: 1 MB on the wire, 60 MB decoded. */
static void say_bomb(struct fake_call *c)
{
	enum { PODS = 500000, LEN = 2 * PODS };
	static uint8_t bytes[LEN + 16];
	size_t n = 0, i;

	say_welcome(c);
	say_begin(c, 7);
	bytes[n++] = 3 << 3 | 2; /* update */
	bytes[n++] = (LEN & 0x7f) | 0x80;
	bytes[n++] = (LEN >> 7 & 0x7f) | 0x80;
	bytes[n++] = LEN >> 14;
	for (i = 0; i < PODS; i++) {
		bytes[n++] = 4 << 3 | 2;
		bytes[n++] = 0;
	}
	fake_send(c, bytes, n);
}

static void test_nonsense_ends_the_connection_and_starts_over(void **state)
{
	static void (*const says[])(struct fake_call *) = {
	    say_garbage, say_early,    say_update_without_state, say_lonely_end, say_welcome_twice,
	    say_bomb,	 say_backwards};
	struct test t;
	size_t i;

	setup(&t, NULL);
	begin(&t);
	for (i = 0; i < ARRAY_SIZE(says); i++) {
		says[i](expect_call(&t, i));
		assert_hello(expect_call(&t, i + 1), 0, 0);
		assert_int_equal(status_of(&t).malformed, i + 1);
		assert_non_null(strstr(status_of(&t).error, "makes no sense"));
	}
	assert_non_null(pod(&t, "x"));
	say_all(fake_server_call(t.server, i), "a");
	expect_ack(&t, 10);
	assert_string_equal(status_of(&t).error, "");
	teardown(&t);
}

static void test_a_message_above_1_mib_is_not_taken(void **state)
{
	static char huge[(1 << 20) + 1];
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	say_all(c, "a");
	expect_ack(&t, 10);
	fake_send(c, huge, sizeof(huge));
	assert_hello(expect_call(&t, 1), 7, 10);
	assert_non_null(pod(&t, "a"));
	teardown(&t);
}

static void test_what_a_newer_operator_adds_is_skipped(void **state)
{
	/* Field 99 alone; and a welcome with a field 99 in it. */
	static const uint8_t other[] = {0x9a, 0x06, 0x01, 'x'};
	static const uint8_t welcome[] = {0x0a, 0x06, 0x08, 0x01, 0x9a, 0x06, 0x01, 'x'};
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	fake_send(c, welcome, sizeof(welcome));
	fake_send(c, other, sizeof(other));
	say_begin(c, 7);
	say_pod(c, 0, "a");
	fake_send(c, other, sizeof(other));
	say_end(c, 7, 10);
	expect_ack(&t, 10);
	assert_int_equal(status_of(&t).malformed, 0);
	teardown(&t);
}

static void say_nothing(struct fake_call *c)
{
}

static void say_welcome_and_begin(struct fake_call *c)
{
	say_welcome(c);
	say_begin(c, 7);
}

static bool newest_said_hello(void *arg)
{
	struct test *t = arg;
	size_t n = fake_server_calls(t->server);

	return n > t->want && fake_server_call(t->server, n - 1)->n_messages > 0;
}

/* Waits for a call after the first N, and for its hello. Returns the newest call. */
static struct fake_call *expect_newest(struct test *t, size_t n)
{
	t->want = n;
	assert_true(fake_pump(t->server, &t->loop, newest_said_hello, t, WAIT_S));
	return fake_server_call(t->server, fake_server_calls(t->server) - 1);
}

/*
 * Waits until a call was left with ERROR. On a busy machine the client may leave a call for another
 * reason, before its hello or the answer to it was read: then it tries again.
 */
static void expect_left(struct test *t, void (*say_first)(struct fake_call *), const char *error)
{
	int i;

	for (i = 0; i < 8; i++) {
		say_first(expect_newest(t, 0));
		(void)expect_newest(t, fake_server_calls(t->server));
		if (strstr(status_of(t).error, error))
			return;
	}
	fail_msg("%s instead of: %s", status_of(t).error, error);
}

static void test_an_operator_that_says_nothing_is_left(void **state)
{
	struct test t;

	setup(&t, NULL);
	t.options.answer_ms = 200;
	begin(&t);
	expect_left(&t, say_nothing, "no answer");
	/* The same after the beginning of a snapshot, and before it. */
	expect_left(&t, say_welcome_and_begin, "does not go on");
	expect_left(&t, say_welcome, "does not go on");
	teardown(&t);
}

static bool one_message_later(void *arg)
{
	struct test *t = arg;

	return uv_hrtime() >= t->want;
}

static void test_a_slow_operator_is_waited_for(void **state)
{
	struct fake_call *c;
	char name[16];
	struct test t;
	int i;

	setup(&t, NULL);
	t.options.answer_ms = 2000;
	begin(&t);
	c = expect_call(&t, 0);
	say_welcome(c);
	say_begin(c, 7);
	for (i = 0; i < 20; i++) { /* longer than answer_ms */
		snprintf(name, sizeof(name), "p%d", i);
		say_pod(c, 0, name);
		t.want = uv_hrtime() + 110000000;
		fake_pump(t.server, &t.loop, one_message_later, &t, 1);
	}
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 0);
	say_end(c, 7, 10);
	expect_ack(&t, 10);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 20);
	assert_int_equal(fake_server_calls(t.server), 1);
	teardown(&t);
}

static void test_an_operator_that_reads_nothing_holds_nothing_up(void **state)
{
	struct test t;

	setup(&t, &(struct fake_options){.read_nothing = true});
	begin(&t);
	t.want = 0;
	while (!fake_server_call(t.server, 0)) {
		t.want = uv_hrtime() + 20000000;
		fake_pump(t.server, &t.loop, one_message_later, &t, 1);
	}
	say_all(fake_server_call(t.server, 0), "a");
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	assert_non_null(pod(&t, "a"));
	teardown(&t);
}

/* ---- credentials ----------------------------------------------------------------------------- */

static bool refused_six_times(void *arg)
{
	return status_of(arg).refused >= 6;
}

static size_t count_lines(const char *path, const char *what)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[1024];
	size_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		assert_null(strstr(line, "first-token"));
		n += strstr(line, what) != NULL;
	}
	return n;
}

static void test_unauthenticated_backs_off_and_logs_once_a_minute(void **state)
{
	char log[96];
	struct test t;
	int fd, saved;

	setup(&t, &(struct fake_options){.refuse_status = UNAUTHENTICATED});
	snprintf(log, sizeof(log), "%s/log", t.dir);
	fd = open(log, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	saved = dup(STDERR_FILENO);
	dup2(fd, STDERR_FILENO);
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, refused_six_times, &t, WAIT_S));
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(fd);
	/*
	 * With a random factor of one half the waits are 10, 20, 40, then 50: half of the limit of
	 * 100.
	 */
	assert_int_equal(status_of(&t).retry_ms, 50);
	assert_string_equal(status_of(&t).error, "refused: not with this token");
	assert_int_equal(count_lines(log, "refused"), 1);
	unlink(log);
	teardown(&t);
}

static bool three_attempts(void *arg)
{
	return status_of(arg).attempts >= 3;
}

static void test_the_token_is_read_for_each_attempt(void **state)
{
	struct test t;

	setup(&t, NULL);
	unlink(t.token);
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, three_attempts, &t, WAIT_S));
	assert_int_equal(fake_server_calls(t.server), 0);
	assert_non_null(strstr(status_of(&t).error, "token"));
	write_text(t.token, "second-token");
	assert_string_equal(expect_call(&t, 0)->authorization, "Bearer second-token");
	write_text(t.token, "third-token");
	fake_finish(fake_server_call(t.server, 0), UNAVAILABLE, "");
	assert_string_equal(expect_call(&t, 1)->authorization, "Bearer third-token");
	teardown(&t);
}

static void test_a_newer_token_is_used_before_the_old_one_expires(void **state)
{
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	write_token(&t, time(NULL) + 100, 1);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	t.want = uv_hrtime() + 500000000;
	fake_pump(t.server, &t.loop, one_message_later, &t, 2);
	assert_int_equal(fake_server_calls(t.server), 1); /* the token in the file is not newer */
	write_token(&t, time(NULL) + 3600, 2);
	c = expect_call(&t, 1);
	assert_non_null(strstr(c->authorization, ".s2"));
	assert_hello(c, 7, 10);
	assert_int_equal(status_of(&t).renewals, 1);
	say_welcome(c);
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	/* A token that is valid for an hour is not replaced. */
	write_token(&t, time(NULL) + 7200, 3);
	t.want = uv_hrtime() + 500000000;
	fake_pump(t.server, &t.loop, one_message_later, &t, 2);
	assert_int_equal(fake_server_calls(t.server), 2);
	teardown(&t);
}

static void test_a_ca_that_changed_is_used_for_the_next_attempt(void **state)
{
	struct fake_pki old, new;
	struct test t;

	assert_int_equal(fake_pki_make("kiln.example", &old), 0);
	assert_int_equal(fake_pki_make("kiln.example", &new), 0);
	setup(&t, &(struct fake_options){.cert_pem = new.cert_pem, .key_pem = new.key_pem});
	write_text(t.ca, old.ca_pem);
	t.options.insecure = false;
	t.options.ca_file = t.ca;
	t.options.server_name = "kiln.example";
	begin(&t);
	assert_true(fake_pump(t.server, &t.loop, three_attempts, &t, WAIT_S));
	assert_int_equal(fake_server_calls(t.server), 0);
	write_text(t.ca, new.ca_pem);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	teardown(&t);
	fake_pki_done(&old);
	fake_pki_done(&new);
}

static void test_options_that_cannot_work(void **state)
{
	struct meta_events events = {0};
	struct meta_options o = {.endpoint = "nowhere"};
	struct meta_client *c;
	struct error err;
	uv_loop_t loop;

	uv_loop_init(&loop);
	assert_int_equal(meta_client_new(&o, &events, &loop, &c, &err), -EINVAL);
	o.endpoint = NULL;
	assert_int_equal(meta_client_new(&o, &events, &loop, &c, &err), -EINVAL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_snapshot_deltas_acks_and_reports),
	    cmocka_unit_test(test_resumes_where_it_was),
	    cmocka_unit_test(test_killed_in_the_middle_of_a_snapshot_the_old_state_stays),
	    cmocka_unit_test(test_starts_from_disk_while_the_operator_is_away),
	    cmocka_unit_test(test_the_copy_is_written_while_it_runs_and_only_when_it_changed),
	    cmocka_unit_test(test_a_damaged_copy_is_ignored_and_counted),
	    cmocka_unit_test(test_nonsense_ends_the_connection_and_starts_over),
	    cmocka_unit_test(test_a_message_above_1_mib_is_not_taken),
	    cmocka_unit_test(test_what_a_newer_operator_adds_is_skipped),
	    cmocka_unit_test(test_an_operator_that_says_nothing_is_left),
	    cmocka_unit_test(test_a_slow_operator_is_waited_for),
	    cmocka_unit_test(test_an_operator_that_reads_nothing_holds_nothing_up),
	    cmocka_unit_test(test_unauthenticated_backs_off_and_logs_once_a_minute),
	    cmocka_unit_test(test_the_token_is_read_for_each_attempt),
	    cmocka_unit_test(test_a_newer_token_is_used_before_the_old_one_expires),
	    cmocka_unit_test(test_a_ca_that_changed_is_used_for_the_next_attempt),
	    cmocka_unit_test(test_options_that_cannot_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
