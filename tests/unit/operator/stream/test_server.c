/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/stream/server_internal.h"
#include "kiln/node/v1/node.pb-c.h"
#include "lib/grpc_stream.h"
#include "tests/unit/operator/stream/rig.h"

struct world_of_two {
	struct rig rig;
	struct agent a, b;
};

static int setup(void **state)
{
	struct world_of_two *w = calloc(1, sizeof(*w));

	rig_init(&w->rig, NULL);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world_of_two *w = *state;

	if (w->a.stream)
		agent_done(&w->a);
	if (w->b.stream)
		agent_done(&w->b);
	rig_done(&w->rig);
	free(w);
	return 0;
}

static void test_a_node_is_told_its_own_pods_and_no_others(void **state)
{
	struct world_of_two *w = *state;
	const struct seen_policy *policy;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	rig_pod(&w->rig, "prod", "two", 2, "n1", 0);
	rig_pod(&w->rig, "prod", "other", 3, "n2", 'b');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	assert_string_equal(w->a.node, "n1");
	assert_int_equal(w->a.n_pods, 2);
	assert_string_equal(agent_pod(&w->a, 1)->name, "one");
	assert_int_equal(agent_pod(&w->a, 1)->id, 0xaa);
	assert_int_equal(agent_pod(&w->a, 2)->id, 0);
	assert_null(agent_pod(&w->a, 3));
	policy = agent_policy(&w->a, agent_pod(&w->a, 1)->policy);
	assert_non_null(policy);
	assert_true(policy->enabled && policy->hz == 20);
	assert_true(w->a.fallback.enabled && w->a.fallback.hz == 20);
}

static void test_changes_follow_the_snapshot(void **state)
{
	struct world_of_two *w = *state;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 0);
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	rig_pod(&w->rig, "prod", "two", 2, "n1", 'b');
	rig_pod(&w->rig, "prod", "else", 3, "n2", 'b');
	agent_until_pods(&w->a, 2);
	rig_pod(&w->rig, "prod", "one", 1, "n1", 'c');
	agent_until_revision(&w->a, w->a.revision);
	assert_int_equal(agent_pod(&w->a, 1)->id, 0xcc);
	rig_remove_pod(&w->rig, "prod", "two", 2);
	agent_until_pods(&w->a, 1);
	assert_int_equal(w->a.deletes, 1);
	assert_int_equal(w->a.snapshots, 1);
}

static void test_a_pod_that_is_bound_later_or_has_ended_comes_and_goes(void **state)
{
	struct world_of_two *w = *state;

	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	rig_pod(&w->rig, "prod", "one", 1, "", 0);
	rig_turns(&w->rig, 4);
	assert_int_equal(w->a.n_pods, 0);
	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	agent_until_pods(&w->a, 1);
	rig_pod(&w->rig, "prod", "one", 1, "n2", 'a');
	agent_until_pods(&w->a, 0);
}

struct known_policy {
	struct agent *a;
	uint64_t id;
};

static bool has_forgotten(void *arg)
{
	const struct known_policy *k = arg;

	return !agent_policy(k->a, k->id);
}

static void test_a_namespaces_policy_reaches_its_pods_and_the_old_one_goes(void **state)
{
	struct world_of_two *w = *state;
	uint64_t before;

	rig_namespace(&w->rig, "test", NULL);
	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	rig_pod(&w->rig, "test", "two", 2, "n1", 'b');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	before = agent_pod(&w->a, 1)->policy;
	rig_policy(&w->rig, "prod", "{'profile':{'sampling':{'hz':97}}}");
	agent_until_revision(&w->a, w->a.revision);
	assert_int_equal(agent_policy(&w->a, agent_pod(&w->a, 1)->policy)->hz, 97);
	assert_true(agent_pod(&w->a, 1)->policy_known);
	assert_true(agent_pod(&w->a, 2)->policy == before);
	assert_int_equal(w->a.updates, 2); /* the snapshot's and this */
	rig_policy(&w->rig, "", "{'defaults':{'sampling':{'hz':31}}}");
	rig_until(&w->rig, has_forgotten, &(struct known_policy){&w->a, before});
	assert_int_equal(agent_policy(&w->a, agent_pod(&w->a, 2)->policy)->hz, 31);
	assert_int_equal(w->a.fallback.hz, 31);
	assert_int_equal(w->a.n_policies, 2);
}

static void test_a_pod_that_is_cut_does_not_hold_up_the_default_policy(void **state)
{
	struct world_of_two *w = *state;

	rig_pod_cut(&w->rig, "prod", "cut", 1, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	assert_int_equal(w->a.fallback.hz, 20);
	rig_pod_cut(&w->rig, "prod", "cut", 1, "n1", 'b');
	agent_until_revision(&w->a, w->a.revision);
	rig_policy(&w->rig, "", "{'defaults':{'sampling':{'hz':31}}}");
	agent_until_revision(&w->a, w->a.revision);
	assert_int_equal(w->a.fallback.hz, 31);
}

static void test_what_changes_nothing_is_not_sent(void **state)
{
	struct world_of_two *w = *state;
	uint64_t revision;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	rig_turns(&w->rig, 5);
	revision = w->a.revision;
	rig_namespace(&w->rig, "prod", "blue"); /* a label that nobody asked for */
	rig_policy(&w->rig, "", "{'defaults':{'sampling':{'hz':20}}}");
	rig_turns(&w->rig, 20);
	assert_int_equal(w->a.revision, revision);
}

static void test_a_namespaces_label_reaches_its_pods(void **state)
{
	struct world_of_two *w = *state;

	rig_namespace(&w->rig, "prod", "blue");
	rig_policy(&w->rig, "",
		   "{'defaults':{'sampling':{'hz':20}},'metadata':{'namespaceLabels':['team']}}");
	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	assert_string_equal(agent_pod(&w->a, 1)->label, "blue");
	rig_namespace(&w->rig, "prod", "red");
	agent_until_revision(&w->a, w->a.revision);
	assert_string_equal(agent_pod(&w->a, 1)->label, "red");
}

/* ---- coming back ----------------------------------------------------------------------------- */

static void leave(struct agent *a)
{
	grpc_stream_disconnect(a->stream);
	agent_until_closed(a);
	rig_turns(a->rig, 10);
}

static void test_who_comes_back_is_told_only_what_changed(void **state)
{
	struct world_of_two *w = *state;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	rig_pod(&w->rig, "prod", "two", 2, "n1", 'b');
	rig_pod(&w->rig, "prod", "three", 3, "n1", 'c');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	leave(&w->a);
	rig_remove_pod(&w->rig, "prod", "two", 2);
	rig_pod(&w->rig, "prod", "three", 3, "n1", 'd');
	rig_pod(&w->rig, "prod", "four", 4, "n1", 'e');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_revision(&w->a, w->a.revision);
	assert_int_equal(w->a.snapshots, 0);
	assert_int_equal(w->a.n_pods, 3);
	assert_int_equal(agent_pod(&w->a, 3)->id, 0xdd);
	assert_true(agent_pod(&w->a, 1)->in_snapshot); /* as it was told then */
	assert_int_equal(rig_stats(&w->rig).resumes, 1);
}

static void test_who_lost_the_last_updates_gets_them_again(void **state)
{
	struct world_of_two *w = *state;
	uint64_t had;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	had = w->a.revision;
	rig_pod(&w->rig, "prod", "two", 2, "n1", 'b');
	rig_policy(&w->rig, "prod", "{'profile':{'sampling':{'hz':97}}}");
	agent_until_pods(&w->a, 2);
	rig_remove_pod(&w->rig, "prod", "one", 1);
	agent_until_pods(&w->a, 1);
	leave(&w->a);
	/* Forget everything since then, as if it had not arrived. */
	w->a.n_pods = w->a.n_policies = w->a.deletes = 0;
	w->a.revision = had;
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_revision(&w->a, had);
	assert_int_equal(w->a.snapshots, 0);
	assert_int_equal(w->a.n_pods, 1);
	assert_int_equal(w->a.deletes, 1);
	assert_true(agent_pod(&w->a, 2)->policy_known);
}

static void test_another_epoch_or_revision_gets_a_snapshot(void **state)
{
	struct world_of_two *w = *state;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	w->a.epoch = 77;
	w->a.revision = 2;
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_pods(&w->a, 1);
	assert_int_equal(w->a.snapshots, 1);
	assert_true(w->a.epoch != 77);
	leave(&w->a);
	w->a.revision += 1000;
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_snapshot(&w->a);
}

static void test_more_deletions_than_are_kept_need_a_snapshot(void **state)
{
	struct world_of_two *w = *state;
	uint64_t had;

	for (unsigned int i = 0; i < 200; i++)
		rig_pod(&w->rig, "prod", rig_uid(i), i, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_pods(&w->a, 200);
	had = w->a.revision;
	for (unsigned int i = 0; i < 190; i++)
		rig_remove_pod(&w->rig, "prod", rig_uid(i), i);
	agent_until_pods(&w->a, 10);
	leave(&w->a);
	w->a.revision = had;
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_snapshot(&w->a);
	assert_int_equal(w->a.n_pods, 10);
}

static void test_of_two_streams_the_newer_wins(void **state)
{
	struct world_of_two *w = *state;

	rig_pod(&w->rig, "prod", "one", 1, "n1", 'a');
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	agent_connect(&w->rig, &w->b, "node:n1");
	agent_until_live(&w->b);
	agent_until_closed(&w->a);
	assert_int_equal(w->a.status, RPC_ABORTED);
	rig_pod(&w->rig, "prod", "two", 2, "n1", 'b');
	agent_until_pods(&w->b, 2);
	assert_int_equal(rig_stats(&w->rig).cuts[CUT_REPLACED], 1);
	assert_int_equal(rig_stats(&w->rig).live, 1);
}

static bool has_first_report(void *arg)
{
	struct rig *rig = arg;

	return streq(rig->last_event, "n1 9.9.9 6.1.0? 42 ");
}

static bool is_away(void *arg)
{
	struct rig *rig = arg;

	return streq(rig->last_event, "n1 away  -1 ");
}

static bool has_all_reports(void *arg)
{
	struct node_server_stats stats = rig_stats(arg);

	return stats.reports + stats.reports_dropped == 31;
}

static void test_reports_are_passed_on_with_what_the_hello_said(void **state)
{
	struct world_of_two *w = *state;
	struct node_server_stats stats;
	uint64_t begun_ns, seconds;

	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	begun_ns = uv_hrtime();
	agent_report(&w->a, 42);
	rig_until(&w->rig, has_first_report, &w->rig);
	for (unsigned int i = 0; i < 30; i++)
		agent_report(&w->a, i);
	rig_until(&w->rig, has_all_reports, &w->rig);
	seconds = (uv_hrtime() - begun_ns) / 1000000000 + 1;
	stats = rig_stats(&w->rig);
	/* Ten at once, then one for each second that the test took on this machine. */
	assert_in_range(stats.reports, 10, 10 + seconds);
	assert_in_range(w->rig.n_events, 2, stats.reports + 1); /* the hello's too; newest only */
	assert_int_equal(w->rig.whole, 1);
	assert_int_equal(w->a.closes, 0);
	agent_done(&w->a);
	rig_until(&w->rig, is_away, &w->rig);
}

/* ---- the controller -------------------------------------------------------------------------- */

struct controller {
	struct grpc_stream *stream;
	unsigned int events, whole;
	int status; /* -1: it is there */
	bool asked;
	char last[256];
};

static void on_watch_writable(void *arg)
{
	struct controller *c = arg;

	if (!c->asked)
		assert_int_equal(grpc_stream_send(c->stream, "", 0), 0);
	c->asked = true;
}

static void on_watch_message(const uint8_t *data, size_t len, void *arg)
{
	Kiln__Node__V1__NodeEvents *all = kiln__node__v1__node_events__unpack(NULL, len, data);
	struct controller *c = arg;

	assert_non_null(all);
	assert_string_equal(all->replica, "rig-0");
	c->events += (unsigned int)all->n_nodes;
	c->whole += all->whole;
	for (size_t i = 0; i < all->n_nodes; i++)
		snprintf(c->last, sizeof(c->last), "%s %d %lld", all->nodes[i]->node,
			 all->nodes[i]->connected,
			 all->nodes[i]->report ? (long long)all->nodes[i]->report->samples : -1LL);
	kiln__node__v1__node_events__free_unpacked(all, NULL);
}

static void on_watch_closed(int status, const char *message, void *arg)
{
	((struct controller *)arg)->status = status;
}

static void watch_as(struct rig *rig, struct controller *c, const char *token)
{
	struct grpc_stream_events events = {on_watch_writable, on_watch_message, on_watch_closed,
					    c};
	struct grpc_stream_options o = {.method = WATCH_METHOD, .message_max = 1 << 20};
	char endpoint[64], authorization[1024];
	struct grpc_header header = {"authorization", authorization};
	struct error err = {0};

	*c = (struct controller){.status = -1};
	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", node_server_port(rig->server));
	agent_token(token, authorization);
	o.client = (struct grpc_client_options){.endpoint = endpoint,
						.tls = {.ca_file = rig->ca_file},
						.headers = &header,
						.n_headers = 1};
	assert_int_equal(grpc_stream_new(&events, &rig->loop, &c->stream, &err), 0);
	assert_int_equal(grpc_stream_connect(c->stream, &o, &err), 0);
}

static bool is_closed(void *arg)
{
	return ((struct controller *)arg)->status >= 0;
}

static bool is_whole(void *arg)
{
	return ((struct controller *)arg)->whole == 1;
}

static bool has_report(void *arg)
{
	return streq(((struct controller *)arg)->last, "n1 1 7");
}

static bool has_left(void *arg)
{
	return streq(((struct controller *)arg)->last, "n1 0 -1");
}

static void test_a_controller_is_told_what_agents_say(void **state)
{
	struct world_of_two *w = *state;
	struct controller c, late;

	watch_as(&w->rig, &c, "controller");
	rig_until(&w->rig, is_whole, &c);
	assert_int_equal(c.events, 0);
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	agent_connect(&w->rig, &w->b, "node:n2");
	agent_until_live(&w->b);
	agent_report(&w->a, 7);
	rig_until(&w->rig, has_report, &c);
	/* A controller that connects later gets both nodes. */
	watch_as(&w->rig, &late, "controller");
	rig_until(&w->rig, is_whole, &late);
	assert_int_equal(late.events, 2);
	assert_string_equal(late.last, "n1 1 7"); /* in the order of what happened */
	agent_done(&w->a);
	rig_until(&w->rig, has_left, &late);
	rig_until(&w->rig, has_left, &c);
	assert_int_equal(c.status, -1);
	grpc_stream_free(c.stream);
	grpc_stream_free(late.stream);
	rig_turns(&w->rig, 2);
}

static void test_agents_do_not_watch_and_controllers_are_no_agents(void **state)
{
	struct world_of_two *w = *state;
	struct controller c, more[5];
	unsigned int refused = 0;

	watch_as(&w->rig, &c, "node:n1");
	rig_until(&w->rig, is_closed, &c);
	assert_int_equal(c.status, RPC_PERMISSION_DENIED);
	grpc_stream_free(c.stream);
	watch_as(&w->rig, &c, "account:n1");
	rig_until(&w->rig, is_closed, &c);
	assert_int_equal(c.status, RPC_PERMISSION_DENIED);
	grpc_stream_free(c.stream);
	w->a.no_hello = true;
	agent_connect(&w->rig, &w->a, "controller");
	agent_until_closed(&w->a);
	assert_int_equal(w->a.status, RPC_PERMISSION_DENIED);
	assert_int_equal(rig_stats(&w->rig).nodes, 0);
	/* The process's own is one of four. */
	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		watch_as(&w->rig, &more[i], "controller");
		if (i < 3)
			rig_until(&w->rig, is_whole, &more[i]);
		else
			rig_until(&w->rig, is_closed, &more[i]);
		refused += more[i].status == RPC_RESOURCE_EXHAUSTED;
	}
	assert_int_equal(refused, 2);
	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		grpc_stream_free(more[i].stream);
	rig_turns(&w->rig, 2);
}

static void test_in_a_large_cluster_agents_report_more_rarely(void **state)
{
	struct world_of_two *w = *state;
	char name[16];

	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	assert_int_equal(w->a.report_interval_s, 10);
	for (unsigned int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "n%u", i);
		rig_node(&w->rig, name);
	}
	agent_connect(&w->rig, &w->b, "node:n2");
	agent_until_live(&w->b);
	assert_int_equal(w->b.report_interval_s, 30);
}

static void test_ending_tells_every_agent_to_go_elsewhere(void **state)
{
	struct world_of_two *w = *state;

	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	node_server_drain(w->rig.server);
	agent_until_closed(&w->a);
	assert_int_equal(w->a.status, RPC_UNAVAILABLE);
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_closed(&w->a);
	assert_int_equal(w->a.status, RPC_UNAVAILABLE);
}

/* The server is freed right after it was told to drain, as when the operator gets its signal. */
static void test_the_end_is_told_by_a_server_that_is_freed_at_once(void **state)
{
	struct world_of_two *w = *state;

	agent_connect(&w->rig, &w->a, "node:n1");
	agent_connect(&w->rig, &w->b, "node:n2");
	agent_until_live(&w->a);
	agent_until_live(&w->b);
	node_server_drain(w->rig.server);
	w->rig.server = node_server_free(w->rig.server);
	agent_until_closed(&w->a);
	agent_until_closed(&w->b);
	assert_int_equal(w->a.status, RPC_UNAVAILABLE);
	assert_string_equal(w->a.message, "the operator ends");
	assert_string_equal(w->b.message, "the operator ends");
}

static bool has(const struct buf *b, const char *text)
{
	return memmem(b->data, b->cap, text, strlen(text)) != NULL;
}

/* Any message may contain the secrets of a destination. */
static void test_nothing_that_was_sent_stays_in_the_buffers(void **state)
{
	struct world_of_two *w = *state;
	const char *update = w->rig.server->update.data, *message = w->rig.server->message.data;

	for (unsigned int i = 1; i < 100; i++)
		rig_pod(&w->rig, "prod", "one", i, "n1", 0);
	agent_connect(&w->rig, &w->a, "node:n1");
	agent_until_live(&w->a);
	rig_pod(&w->rig, "prod", "two", 200, "n1", 0);
	agent_until_revision(&w->a, w->a.revision);
	assert_true(w->rig.server->update.cap > 0 && w->rig.server->message.cap > 0);
	assert_false(has(&w->rig.server->update, "prod"));
	assert_false(has(&w->rig.server->message, "prod"));
	/* The buffers were not moved, which would have left a copy behind. */
	assert_ptr_equal(w->rig.server->update.data, update);
	assert_ptr_equal(w->rig.server->message.data, message);
}

static void test_metrics_have_a_line_for_each_reason(void **state)
{
	struct world_of_two *w = *state;
	struct buf out;

	buf_init(&out, 1 << 20);
	node_server_metrics(w->rig.server, &out);
	assert_int_equal(buf_error(&out), 0);
	assert_non_null(strstr(out.data, "kiln_stream_cuts_total{reason=\"no_ack\"} 0\n"));
	assert_non_null(strstr(out.data, "kiln_stream_auth_total{result=\"other_account\"} 0\n"));
	assert_non_null(strstr(out.data, "kiln_streams 0\n"));
	assert_non_null(strstr(out.data, "kiln_stream_connections{state=\"opened\"} 0\n"));
	assert_non_null(
	    strstr(out.data, "kiln_stream_connections_ended_total{reason=\"displaced\"} 0\n"));
	buf_done(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_a_node_is_told_its_own_pods_and_no_others),
	    TEST(test_changes_follow_the_snapshot),
	    TEST(test_a_pod_that_is_bound_later_or_has_ended_comes_and_goes),
	    TEST(test_a_namespaces_policy_reaches_its_pods_and_the_old_one_goes),
	    TEST(test_a_pod_that_is_cut_does_not_hold_up_the_default_policy),
	    TEST(test_what_changes_nothing_is_not_sent),
	    TEST(test_a_namespaces_label_reaches_its_pods),
	    TEST(test_who_comes_back_is_told_only_what_changed),
	    TEST(test_who_lost_the_last_updates_gets_them_again),
	    TEST(test_another_epoch_or_revision_gets_a_snapshot),
	    TEST(test_more_deletions_than_are_kept_need_a_snapshot),
	    TEST(test_of_two_streams_the_newer_wins),
	    TEST(test_reports_are_passed_on_with_what_the_hello_said),
	    TEST(test_a_controller_is_told_what_agents_say),
	    TEST(test_agents_do_not_watch_and_controllers_are_no_agents),
	    TEST(test_in_a_large_cluster_agents_report_more_rarely),
	    TEST(test_ending_tells_every_agent_to_go_elsewhere),
	    TEST(test_the_end_is_told_by_a_server_that_is_freed_at_once),
	    TEST(test_nothing_that_was_sent_stays_in_the_buffers),
	    TEST(test_metrics_have_a_line_for_each_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
