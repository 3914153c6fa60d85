/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections without a valid token, and agents that break the protocol: they are refused or
 * bounded, and counted; other agents are still served.
 */
#include "tests/unit/operator/stream/rig.h"

#include "operator/stream/server_internal.h"

struct scene {
	struct rig rig;
	struct agent a, b;
};

static struct scene *scene_new(const struct node_server_limits *limits)
{
	struct scene *s = calloc(1, sizeof(*s));

	rig_init(&s->rig, limits);
	return s;
}

/* Another node's agent is still served. */
static void scene_end(struct scene *s)
{
	if (!s->b.stream && !s->rig.api_down) {
		s->rig.hold_reviews = false;
		rig_pod(&s->rig, "prod", "witness", 0xffff, "n9", 'f');
		agent_connect(&s->rig, &s->b, "node:n9");
		agent_until_pods(&s->b, 1);
	}
	if (s->a.stream)
		agent_done(&s->a);
	if (s->b.stream)
		agent_done(&s->b);
	rig_done(&s->rig);
	free(s);
}

/* ---- who is let in --------------------------------------------------------------------------- */

static void test_tokens_that_are_refused(void **state)
{
	static const struct {
		const char *token;
		enum stream_refusal refusal;
		int status;
		bool asked;
	} rows[] = {
	    {"", STREAM_NO_TOKEN, RPC_UNAUTHENTICATED, false},
	    {"opaque", STREAM_MALFORMED, RPC_UNAUTHENTICATED, false},
	    {"expired:n1", STREAM_EXPIRED, RPC_UNAUTHENTICATED, false},
	    {"bad", STREAM_REJECTED, RPC_UNAUTHENTICATED, true},
	    {"account:n1", STREAM_OTHER_ACCOUNT, RPC_PERMISSION_DENIED, true},
	    {"unbound", STREAM_NO_NODE, RPC_PERMISSION_DENIED, true},
	    {"pod:agent:0000beef-0000-4000-8000-000000000000", STREAM_UNKNOWN_POD, RPC_UNAVAILABLE,
	     true},
	};
	struct scene *s = scene_new(NULL);
	uint64_t asked = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		asked += rows[i].asked;
		s->a.no_hello = true;
		agent_connect(&s->rig, &s->a, rows[i].token);
		agent_until_closed(&s->a);
		assert_int_equal(s->a.status, rows[i].status);
		assert_string_equal(s->a.message, stream_refusal_text(rows[i].refusal));
		assert_int_equal(rig_stats(&s->rig).refused[rows[i].refusal], 1);
		assert_int_equal(rig_stats(&s->rig).auth.reviews, asked);
		assert_int_equal(s->a.bytes, 0);
	}
	scene_end(s);
}

static void test_a_refused_token_is_not_asked_for_again_at_once(void **state)
{
	struct scene *s = scene_new(NULL);

	s->a.no_hello = true;
	for (unsigned int i = 0; i < 5; i++) {
		agent_connect(&s->rig, &s->a, "bad");
		agent_until_closed(&s->a);
	}
	assert_int_equal(rig_stats(&s->rig).refused[STREAM_REJECTED], 5);
	assert_in_range(rig_stats(&s->rig).auth.reviews, 1, 4); /* "exp" has seconds: may be two */
	scene_end(s);
}

static void test_the_node_is_the_bound_pods_when_the_token_names_none(void **state)
{
	struct scene *s = scene_new(NULL);

	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n1", 'a');
	rig_pod(&s->rig, "prod", "agent-y", 0xcafe, "n2", 'b');
	agent_connect(&s->rig, &s->a, "pod:agent-x:0000beef-0000-4000-8000-000000000000");
	agent_until_pods(&s->a, 1);
	assert_string_equal(s->a.node, "n1");
	agent_done(&s->a);
	/* A pod of another namespace, and a pod whose name does not match: not an agent's pod. */
	agent_connect(&s->rig, &s->a, "pod:agent-y:0000cafe-0000-4000-8000-000000000000");
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_UNAVAILABLE);
	agent_connect(&s->rig, &s->a, "pod:agent-z:0000beef-0000-4000-8000-000000000000");
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_UNAVAILABLE);
	scene_end(s);
}

static void test_an_api_server_that_is_away_lets_nobody_new_in(void **state)
{
	struct scene *s = scene_new(NULL);

	s->rig.api_down = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_UNAVAILABLE);
	assert_int_equal(rig_stats(&s->rig).auth.review_errors, 1);
	s->rig.api_down = false;
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	scene_end(s);
}

#define AGENT_X "pod:agent-x:0000beef-0000-4000-8000-000000000000"

static void test_who_was_let_in_comes_back_while_the_api_server_is_away(void **state)
{
	struct scene *s;

	rig_keep_ms = 1; /* a granted token is asked about again at once */
	s = scene_new(NULL);
	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n1", 'a');
	agent_connect(&s->rig, &s->a, AGENT_X);
	agent_until_live(&s->a);
	s->rig.api_down = true;
	for (unsigned int i = 0; i < 2; i++) { /* asks the API server in vain, then knows */
		grpc_stream_disconnect(s->a.stream);
		agent_until_closed(&s->a);
		agent_connect(&s->rig, &s->a, AGENT_X);
		agent_until_live(&s->a);
		assert_true(rig_stats(&s->rig).auth.stale > i);
	}
	/* An agent that was not granted before is refused. */
	agent_connect(&s->rig, &s->b, "node:n2");
	agent_until_closed(&s->b);
	assert_int_equal(s->b.status, RPC_UNAVAILABLE);
	/* An agent whose pod is gone is refused. */
	grpc_stream_disconnect(s->a.stream);
	agent_until_closed(&s->a);
	rig_remove_pod(&s->rig, "kiln", "agent-x", 0xbeef);
	agent_connect(&s->rig, &s->a, AGENT_X);
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_UNAVAILABLE);
	scene_end(s);
	rig_keep_ms = 0;
}

static void test_a_stream_does_not_grow_old_while_the_api_server_is_away(void **state)
{
	const struct node_server_limits limits = {.age_ms = 3000};
	struct scene *s;

	rig_keep_ms = 1; /* so that each tick asks again */
	s = scene_new(&limits);
	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n1", 'a');
	agent_connect(&s->rig, &s->a, AGENT_X);
	agent_until_live(&s->a);
	s->rig.api_down = true;
	rig_until_stat(&s->rig, auth.review_errors, 4);
	assert_int_equal(s->a.closes, 0);
	s->rig.api_down = false;
	agent_until_closed(&s->a);
	assert_int_equal(rig_stats(&s->rig).cuts[CUT_AGE], 1);
	scene_end(s);
	rig_keep_ms = 0;
}

/* When the pod goes, its token is reviewed at once, not after five minutes. */
static void test_a_stream_ends_with_its_pod(void **state)
{
	struct scene *s = scene_new(NULL);
	uint64_t reviews;

	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n1", 'a');
	agent_connect(&s->rig, &s->a, AGENT_X);
	agent_until_live(&s->a);
	reviews = rig_stats(&s->rig).auth.reviews;
	rig_remove_pod(&s->rig, "kiln", "agent-x", 0xbeef);
	agent_until_closed(&s->a);
	assert_int_equal(rig_stats(&s->rig).auth.reviews, reviews + 1);
	/* The same pod on another node: the agent gets the pods of the new node. */
	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n2", 'a');
	rig_pod(&s->rig, "prod", "two", 2, "n2", 'b');
	agent_connect(&s->rig, &s->a, AGENT_X);
	agent_until_pods(&s->a, 2);
	scene_end(s);
}

static void test_worthless_tokens_hold_up_no_agent(void **state)
{
	enum { JUNK = STREAM_AUTH_OTHERS_RUNNING + 8 };
	struct agent *junk = calloc(JUNK, sizeof(*junk));
	struct scene *s = scene_new(NULL);
	char token[32];

	rig_pod(&s->rig, "kiln", "agent-x", 0xbeef, "n1", 'a');
	s->rig.hold_reviews = true;
	for (unsigned int i = 0; i < JUNK; i++) {
		snprintf(token, sizeof(token), "bad%u", i);
		junk[i].no_hello = true;
		agent_connect(&s->rig, &junk[i], token);
	}
	rig_until_stat(&s->rig, auth.waiting, JUNK - STREAM_AUTH_OTHERS_RUNNING);
	assert_int_equal(rig_stats(&s->rig).auth.running, STREAM_AUTH_OTHERS_RUNNING);
	/* The agent's token is reviewed at once, before the bad ones that came earlier. */
	agent_connect(&s->rig, &s->a, "pod:agent-x:0000beef-0000-4000-8000-000000000000");
	rig_until_stat(&s->rig, auth.running, STREAM_AUTH_OTHERS_RUNNING + 1);
	assert_int_equal(rig_stats(&s->rig).auth.running, STREAM_AUTH_OTHERS_RUNNING + 1);
	rig_release_reviews(&s->rig);
	agent_until_live(&s->a);
	/* The bad ones are all answered in the end. */
	for (unsigned int i = 0; i < JUNK; i++) {
		agent_until_closed(&junk[i]);
		assert_int_equal(junk[i].status, RPC_UNAUTHENTICATED);
		agent_done(&junk[i]);
	}
	free(junk);
	scene_end(s);
}

static void test_who_leaves_while_the_token_is_reviewed_leaves_nothing(void **state)
{
	struct scene *s = scene_new(NULL);

	s->rig.hold_reviews = s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	rig_until_stat(&s->rig, auth.running, 1);
	agent_done(&s->a);
	rig_until_stat(&s->rig, auth.running, 0);
	rig_until_stat(&s->rig, streams.open, 0);
	scene_end(s);
}

/* ---- what is taken --------------------------------------------------------------------------- */

static bool has_cut(void *arg)
{
	struct scene *s = arg;
	struct node_server_stats stats = rig_stats(&s->rig);
	uint64_t n = stats.streams.refused;

	for (unsigned int i = 0; i < STREAM_CUT_COUNT; i++)
		n += stats.cuts[i];
	return n > 0 && s->a.closes;
}

static void until_cut(struct scene *s, enum stream_cut cut, int status)
{
	rig_until(&s->rig, has_cut, s);
	assert_int_equal(rig_stats(&s->rig).cuts[cut], 1);
	assert_int_equal(s->a.status, status);
	assert_int_equal(rig_stats(&s->rig).live, 0);
}

static void test_no_hello_in_time(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.hello_ms = 100});

	s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	until_cut(s, CUT_NO_HELLO, RPC_DEADLINE_EXCEEDED);
	scene_end(s);
}

static void test_a_second_hello(void **state)
{
	struct scene *s = scene_new(NULL);

	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	agent_hello(&s->a);
	until_cut(s, CUT_SECOND_HELLO, RPC_INVALID_ARGUMENT);
	scene_end(s);
}

static void test_an_old_protocol(void **state)
{
	struct scene *s = scene_new(NULL);
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Hello hello = KILN__NODE__V1__HELLO__INIT;

	s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO;
	m.hello = &hello; /* protocol 0 */
	agent_send(&s->a, &m);
	until_cut(s, CUT_OLD_PROTOCOL, RPC_FAILED_PRECONDITION);
	scene_end(s);
}

static void test_a_newer_protocol_is_spoken_to_in_ours(void **state)
{
	struct scene *s = scene_new(NULL);

	s->a.protocol = 7;
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	scene_end(s);
}

static void test_bytes_that_are_no_message(void **state)
{
	struct scene *s = scene_new(NULL);

	s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	assert_true(agent_send_raw(&s->a, "\x0a\xff\xff\xff", 4));
	until_cut(s, CUT_BAD_MESSAGE, RPC_INVALID_ARGUMENT);
	scene_end(s);
}

static void test_an_ack_of_what_was_not_sent(void **state)
{
	struct scene *s = scene_new(NULL);

	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	agent_ack(&s->a, s->a.epoch, s->a.revision + 100);
	until_cut(s, CUT_BAD_ACK, RPC_INVALID_ARGUMENT);
	scene_end(s);
}

static void test_a_message_that_is_too_large(void **state)
{
	struct scene *s = scene_new(NULL);
	char *large = calloc(1, SESSION_MESSAGE_MAX * 8);

	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	while (!agent_send_raw(&s->a, large, SESSION_MESSAGE_MAX * 8))
		rig_turns(&s->rig, 1);
	agent_until_closed(&s->a);
	free(large);
	rig_until_stat(&s->rig, live, 0);
	scene_end(s);
}

/* As long as it may: a report of 64 KiB of text. */
static void test_who_sends_without_end_is_cut_after_a_mebibyte(void **state)
{
	struct scene *s = scene_new(NULL);
	size_t len = 60 << 10, sent = 0;
	char *text = calloc(1, len);

	memset(text, 'x', len);
	text[0] = 0x1a; /* AgentMessage.report: config_hash */
	text[1] = (char)(((len - 4) & 0x7f) | 0x80);
	text[2] = (char)((((len - 4) >> 7) & 0x7f) | 0x80);
	text[3] = (char)((len - 4) >> 14);
	text[4] = 0x4a;
	text[5] = (char)(((len - 8) & 0x7f) | 0x80);
	text[6] = (char)((((len - 8) >> 7) & 0x7f) | 0x80);
	text[7] = (char)((len - 8) >> 14);
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	for (unsigned int i = 0; i < 20000 && !s->a.closes; i++) {
		if (agent_send_raw(&s->a, text, len))
			sent += len;
		uv_run(&s->rig.loop, UV_RUN_NOWAIT);
		usleep(100);
	}
	free(text);
	until_cut(s, CUT_TOO_MUCH, RPC_RESOURCE_EXHAUSTED);
	assert_in_range(sent, 1 << 20, 3 << 20);
	scene_end(s);
}

static void test_many_small_messages(void **state)
{
	struct scene *s = scene_new(NULL);

	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	for (unsigned int i = 0; i < 20000 && !s->a.closes; i++) {
		(void)agent_send_raw(&s->a, "", 0);
		uv_run(&s->rig.loop, UV_RUN_NOWAIT);
		usleep(100);
	}
	until_cut(s, CUT_TOO_MUCH, RPC_RESOURCE_EXHAUSTED);
	scene_end(s);
}

/* ---- what waits ------------------------------------------------------------------------------ */

static void test_who_never_acknowledges_is_cut_and_gets_no_more_than_the_window(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.ack_ms = 2000});
	size_t first;

	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	rig_turns(&s->rig, 10);
	s->a.no_ack = true;
	first = s->a.bytes;
	for (unsigned int round = 0; round < 100; round++) {
		for (unsigned int i = 0; i < 200; i++)
			rig_pod(&s->rig, "prod", rig_uid(i), i, "n1", (char)('a' + round % 6));
		uv_run(&s->rig.loop, UV_RUN_NOWAIT);
	}
	assert_in_range(s->a.bytes - first, 1, SESSION_WINDOW + SESSION_UPDATE_MAX + 4096);
	assert_true(rig_stats(&s->rig).state_bytes < 64 << 10);
	until_cut(s, CUT_NO_ACK, RPC_DEADLINE_EXCEEDED);
	scene_end(s);
}

static void test_what_a_slow_agent_missed_arrives_as_the_latest_only(void **state)
{
	struct scene *s = scene_new(NULL);
	unsigned int updates;

	rig_pod(&s->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	rig_until_stat(&s->rig, acks, 1);
	s->a.no_ack = true;
	for (unsigned int i = 0; i < SESSION_UNACKED_MAX; i++) {
		rig_pod(&s->rig, "prod", "one", 1, "n1", (char)('b' + i % 2));
		agent_until_revision(&s->a, s->a.revision);
	}
	updates = s->a.updates;
	for (unsigned int i = 0; i < 50; i++) {
		rig_pod(&s->rig, "prod", "one", 1, "n1", (char)('a' + i % 6));
		rig_pod(&s->rig, "prod", "brief", 2, "n1", 'a');
		rig_remove_pod(&s->rig, "prod", "brief", 2);
		rig_turns(&s->rig, 1);
	}
	rig_pod(&s->rig, "prod", "one", 1, "n1", 'f');
	rig_turns(&s->rig, 10);
	assert_int_equal(s->a.updates, updates);
	s->a.no_ack = false;
	agent_ack(&s->a, s->a.epoch, s->a.revision);
	agent_until_revision(&s->a, s->a.revision);
	rig_turns(&s->rig, 10);
	assert_int_equal(s->a.updates, updates + 1);
	assert_int_equal(agent_pod(&s->a, 1)->id, 0xff);
	assert_int_equal(s->a.deletes, 0); /* it never heard of the brief one */
	scene_end(s);
}

static bool is_welcome(void *arg)
{
	return ((struct agent *)arg)->welcomes > 0;
}

static void test_snapshots_are_served_one_after_another(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.snapshots = 1});

	rig_pod(&s->rig, "prod", "one", 1, "n1", 'a');
	rig_pod(&s->rig, "prod", "two", 2, "n2", 'b');
	s->a.no_ack = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	agent_connect(&s->rig, &s->b, "node:n2");
	rig_until(&s->rig, is_welcome, &s->b);
	rig_until_stat(&s->rig, snapshots_waiting, 1);
	rig_turns(&s->rig, 10);
	assert_int_equal(s->b.snapshots, 0);
	agent_ack(&s->a, s->a.epoch, s->a.revision);
	agent_until_pods(&s->b, 1);
	rig_until_stat(&s->rig, snapshots_running, 0);
	scene_end(s);
}

static void test_who_leaves_gives_its_snapshots_place_back(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.snapshots = 1});

	rig_pod(&s->rig, "prod", "two", 2, "n2", 'b');
	s->a.no_ack = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	agent_connect(&s->rig, &s->b, "node:n2");
	agent_done(&s->a);
	agent_until_pods(&s->b, 1);
	scene_end(s);
}

static void test_pods_that_go_during_a_snapshot_are_deleted_after_it(void **state)
{
	struct scene *s = scene_new(NULL);
	enum { PODS = 3000 };

	for (unsigned int i = 0; i < PODS; i++)
		rig_pod(&s->rig, "prod", rig_uid(i), i, "n1", 'a');
	agent_connect(&s->rig, &s->a, "node:n1");
	while (s->a.n_pods < 100)
		uv_run(&s->rig.loop, UV_RUN_ONCE);
	assert_true(s->a.in_snapshot);
	for (unsigned int i = 0; i < PODS; i += 2)
		rig_remove_pod(&s->rig, "prod", rig_uid(i), i);
	agent_until_pods(&s->a, PODS / 2);
	assert_true(s->a.deletes > 0);
	assert_in_range(s->a.largest, 1, 1 << 20);
	for (unsigned int i = 0; i < PODS; i++)
		assert_true((agent_pod(&s->a, i) != NULL) == (i % 2 == 1));
	scene_end(s);
}

static void test_more_pods_than_a_node_may_have_are_left_out_and_counted(void **state)
{
	struct scene *s = scene_new(NULL);
	enum { PODS = NODE_PODS_MAX + 50 };

	for (unsigned int i = 0; i < PODS; i++)
		rig_pod(&s->rig, "prod", rig_uid(i), i, "n1", 'a');
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_pods(&s->a, NODE_PODS_MAX);
	assert_int_equal(rig_stats(&s->rig).pods_refused, 50);
	scene_end(s);
}

static void test_more_streams_than_allowed(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.streams = 1});

	agent_connect(&s->rig, &s->b, "node:n1");
	agent_until_live(&s->b);
	s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n2");
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_RESOURCE_EXHAUSTED);
	assert_int_equal(rig_stats(&s->rig).streams.refused, 1);
	assert_int_equal(s->b.closes, 0);
	scene_end(s);
}

/* A node has one stream: once half of the places are taken, a new stream of a node ends that
 * node's streams without a Hello. */
static void test_streams_without_a_hello_give_way(void **state)
{
	struct scene *s = scene_new(&(struct node_server_limits){.streams = 2, .hello_ms = 60000});

	s->a.no_hello = true;
	agent_connect(&s->rig, &s->a, "node:n1");
	rig_until_stat(&s->rig, refused[STREAM_GRANTED], 1);
	agent_connect(&s->rig, &s->b, "node:n1");
	agent_until_closed(&s->a);
	assert_int_equal(s->a.status, RPC_ABORTED);
	agent_until_live(&s->b);
	scene_end(s);
}

static void test_a_streams_time_is_limited(void **state)
{
	/* Long enough that a machine stalled for a second still gets its hello in. */
	struct scene *s = scene_new(&(struct node_server_limits){.age_ms = 3000});

	rig_pod(&s->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	until_cut(s, CUT_AGE, RPC_UNAVAILABLE);
	assert_string_equal(s->a.message, "rebalance");
	agent_connect(&s->rig, &s->a, "node:n1");
	agent_until_live(&s->a);
	assert_int_equal(s->a.snapshots, 0); /* it resumes */
	scene_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_tokens_that_are_refused),
	    cmocka_unit_test(test_a_refused_token_is_not_asked_for_again_at_once),
	    cmocka_unit_test(test_the_node_is_the_bound_pods_when_the_token_names_none),
	    cmocka_unit_test(test_an_api_server_that_is_away_lets_nobody_new_in),
	    cmocka_unit_test(test_who_was_let_in_comes_back_while_the_api_server_is_away),
	    cmocka_unit_test(test_a_stream_does_not_grow_old_while_the_api_server_is_away),
	    cmocka_unit_test(test_a_stream_ends_with_its_pod),
	    cmocka_unit_test(test_worthless_tokens_hold_up_no_agent),
	    cmocka_unit_test(test_who_leaves_while_the_token_is_reviewed_leaves_nothing),
	    cmocka_unit_test(test_no_hello_in_time),
	    cmocka_unit_test(test_a_second_hello),
	    cmocka_unit_test(test_an_old_protocol),
	    cmocka_unit_test(test_a_newer_protocol_is_spoken_to_in_ours),
	    cmocka_unit_test(test_bytes_that_are_no_message),
	    cmocka_unit_test(test_an_ack_of_what_was_not_sent),
	    cmocka_unit_test(test_a_message_that_is_too_large),
	    cmocka_unit_test(test_who_sends_without_end_is_cut_after_a_mebibyte),
	    cmocka_unit_test(test_many_small_messages),
	    cmocka_unit_test(test_who_never_acknowledges_is_cut_and_gets_no_more_than_the_window),
	    cmocka_unit_test(test_what_a_slow_agent_missed_arrives_as_the_latest_only),
	    cmocka_unit_test(test_snapshots_are_served_one_after_another),
	    cmocka_unit_test(test_who_leaves_gives_its_snapshots_place_back),
	    cmocka_unit_test(test_pods_that_go_during_a_snapshot_are_deleted_after_it),
	    cmocka_unit_test(test_more_pods_than_a_node_may_have_are_left_out_and_counted),
	    cmocka_unit_test(test_more_streams_than_allowed),
	    cmocka_unit_test(test_streams_without_a_hello_give_way),
	    cmocka_unit_test(test_a_streams_time_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
