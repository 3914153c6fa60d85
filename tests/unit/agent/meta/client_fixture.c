/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/meta/client_fixture.h"

#include "tests/unit/agent/meta/sample_node.h"

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

double half(void *arg)
{
	return 0.5;
}

static void write_file(const char *path, const void *data, size_t len)
{
	_cleanup_fclose_ FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
}

void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

void write_token(struct test *t, int64_t expires, int rank)
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

void serve(struct test *t, const struct fake_options *o)
{
	assert_int_equal(fake_server_start(o, &t->server), 0);
	snprintf(t->endpoint, sizeof(t->endpoint), "127.0.0.1:%d", fake_server_port(t->server));
}

void setup(struct test *t, const struct fake_options *o)
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

void begin(struct test *t)
{
	struct meta_events events = {
	    .pods = {.settled = on_settled, .arg = t}, .report = on_report, .arg = t};
	struct error err;

	assert_int_equal(meta_client_new(&t->options, &events, &t->loop, &t->client, &err), 0);
}

void stop_client(struct test *t)
{
	t->client = meta_client_free(t->client);
	uv_run(&t->loop, UV_RUN_DEFAULT);
}

void teardown(struct test *t)
{
	stop_client(t);
	assert_int_equal(uv_loop_close(&t->loop), 0);
	t->server = fake_server_stop(t->server);
	unlink(t->token);
	unlink(t->snapshot);
	unlink(t->ca);
	assert_int_equal(rmdir(t->dir), 0); /* the client left no other file */
}

struct meta_status status_of(const struct test *t)
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

void say_welcome(struct fake_call *c)
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

void say_begin(struct fake_call *c, uint64_t epoch)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;
	Kiln__Node__V1__SnapshotBegin b = KILN__NODE__V1__SNAPSHOT_BEGIN__INIT;

	b.epoch = epoch;
	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN;
	m.snapshot_begin = &b;
	say(c, &m);
}

void say_end(struct fake_call *c, uint64_t epoch, uint64_t revision)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;
	Kiln__Node__V1__SnapshotEnd e = KILN__NODE__V1__SNAPSHOT_END__INIT;

	e.epoch = epoch;
	e.revision = revision;
	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END;
	m.snapshot_end = &e;
	say(c, &m);
}

void say_update(struct fake_call *c, Kiln__Node__V1__Update *u)
{
	Kiln__Node__V1__OperatorMessage m = KILN__NODE__V1__OPERATOR_MESSAGE__INIT;

	m.message_case = KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE;
	m.update = u;
	say(c, &m);
}

void say_pod(struct fake_call *c, uint64_t revision, const char *name)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	struct sample_pod p;

	u.revision = revision;
	u.n_pods = 1;
	u.pods = sample_pod(&p, name, 5, 0, 0);
	say_update(c, &u);
}

void say_all(struct fake_call *c, const char *name)
{
	say_welcome(c);
	say_begin(c, 7);
	say_pod(c, 0, name);
	say_end(c, 7, 10);
}

/* ---- the agent's words ----------------------------------------------------------------------- */

Kiln__Node__V1__AgentMessage *heard(const struct fake_call *c, size_t i)
{
	Kiln__Node__V1__AgentMessage *m;

	assert_true(i < c->n_messages);
	m = kiln__node__v1__agent_message__unpack(NULL, c->messages[i].len, c->messages[i].data);
	assert_non_null(m);
	return m;
}

void assert_hello(const struct fake_call *c, uint64_t epoch, uint64_t revision)
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

struct fake_call *expect_call(struct test *t, size_t i)
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

void expect_ack(struct test *t, uint64_t revision)
{
	t->want = revision;
	assert_true(fake_pump(t->server, &t->loop, is_acked, t, WAIT_S));
}

bool is_connected(void *arg)
{
	return status_of(arg).connected;
}

bool is_disconnected(void *arg)
{
	return !status_of(arg).connected;
}

const struct pod_entry *pod(const struct test *t, const char *name)
{
	char uid[64];

	snprintf(uid, sizeof(uid), "uid-%s", name);
	return pod_table_find_uid(meta_client_table(t->client), uid);
}

bool is_time(void *arg)
{
	struct test *t = arg;

	return uv_hrtime() >= t->want;
}
