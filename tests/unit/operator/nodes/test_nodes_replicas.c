/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes a ProfilingNode when there are several replicas, others that write, and failures. */
#include "tests/unit/operator/nodes/rig.h"

#include "operator/nodes/told.h"
#include "operator/reconcile/condition.h"

static cJSON *status_of(const char *replica, int64_t reported, const char *ready)
{
	cJSON *status = cJSON_CreateObject(), *list, *c = cJSON_CreateObject();
	char time[32];

	format_time(reported, time);
	if (replica)
		cJSON_AddStringToObject(status, "operator", replica);
	cJSON_AddStringToObject(status, "lastReportTime", time);
	list = cJSON_AddArrayToObject(status, "conditions");
	cJSON_AddStringToObject(c, "type", "Ready");
	cJSON_AddStringToObject(c, "status", ready);
	cJSON_AddStringToObject(c, "lastTransitionTime", "2001-09-09T01:46:40Z");
	cJSON_AddItemToArray(list, c);
	return status;
}

static void test_a_node_that_went_to_another_replica_is_its(void **state)
{
	say("n1", 1, true);
	run(6000);
	leave("n1");
	run(1000);
	rig.peer = 2;
	hello("n1");
	say("n1", 2, true);
	run(6000);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("\"operator\":\"another\""));
	/* The late report of the first stream's end must not end the second one. */
	rig.peer = 1;
	leave("n1");
	run(NODES_BEAT_MS / 2);
	assert_true(last_has("\"operator\":\"another\""));
}

/* Two replicas claim the node: one of the streams is dead, but its replica has not noticed. */
static void test_of_two_claims_the_one_that_heard_last_counts(void **state)
{
	int64_t then;

	say("n1", 1, true);
	run(6000);
	then = (int64_t)fakes.now_ms;
	rig.peer = 2;
	say("n1", 2, true);
	run(6000);
	assert_true(last_has("\"operator\":\"another\""));
	rig.peer = 1;
	rig.heard_ms = then - 5000; /* repeated with its old time, as after a new connection */
	say("n1", 1, true);
	run(60000);
	assert_int_equal(rig.writes, 2);
	rig.heard_ms = 0;
	say("n1", 3, true);
	run(6000);
	assert_true(last_has("\"operator\":\"me\""));
}

static void test_all_of_a_replica_that_went_are_away(void **state)
{
	say("n1", 1, true);
	say("n2", 1, true);
	rig.peer = 2;
	say("n3", 1, true);
	run(6000);
	nodes_peer_gone(rig.nodes, 1);
	run(NODES_GRACE_MS + 1000);
	assert_int_equal(rig.writes, 5);
	assert_true(last_has("Disconnected"));
	nodes_peer_gone(rig.nodes, 1);
	run(NODES_BEAT_MS / 2);
	assert_int_equal(rig.writes, 5);
}

static void test_only_who_leads_writes(void **state)
{
	rig.leads = false;
	say("n1", 1, true);
	run(60000);
	assert_int_equal(rig.writes + rig.objects, 0);
	rig.leads = true;
	run(1000);
	assert_int_equal(rig.writes, 1);
}

static void test_what_somebody_else_writes_is_written_over(void **state)
{
	say("n1", 1, true);
	run(6000);
	show("n1", status_of("thief", clock_s(), "True"));
	run(6000);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("\"operator\":\"me\""));
}

static void test_events_of_anybody_do_no_harm(void **state)
{
	static const uint8_t damaged[] = {0x12, 0x05, 0x0a, 0x09, 'n'};
	static char huge[TOLD_BYTES_MAX + 1];
	Kiln__Node__V1__Report r = KILN__NODE__V1__REPORT__INIT;
	struct nodes_stats stats;
	bool whole;

	assert_int_equal(nodes_take(rig.nodes, 1, damaged, sizeof(damaged), &whole), -EBADMSG);
	assert_int_equal(nodes_take(rig.nodes, 1, NULL, 0, &whole), 0);
	tell("a/b", true, &r);
	tell("", true, &r);
	memset(huge, 'a', 3000);
	r.config_hash = huge;
	tell("n1", true, &r); /* too long a text is cut when it is written */
	run(6000);
	nodes_read(rig.nodes, &stats);
	assert_int_equal(stats.refused, 2);
	assert_int_equal(rig.writes, 1);
	/* Many empty parts fit into one message, and each takes memory once decoded. */
	{
		size_t n = 200000;
		uint8_t *bytes = malloc(n);

		for (size_t i = 0; i < n; i += 2)
			memcpy(bytes + i, "\x12", 2);
		assert_int_equal(nodes_take(rig.nodes, 1, bytes, n, &whole), -EBADMSG);
		free(bytes);
	}
}

static void test_conditions_of_another_replica_keep_their_times(void **state)
{
	show("n1", status_of("another", clock_s(), "True"));
	say("n1", 1, true);
	run(1000);
	assert_int_equal(rig.writes, 1);
	assert_true(last_has("\"type\":\"Ready\",\"status\":\"True\"") &&
		    last_has("\"lastTransitionTime\":\"2001-09-09T01:46:40Z\""));
}

static void test_a_deleted_object_comes_again_while_there_is_its_node(void **state)
{
	cJSON *o = cJSON_Parse("{\"metadata\":{\"name\":\"n1\"}}");

	say("n1", 1, true);
	run(6000);
	fake_gone(KUBE_PROFILING_NODES, o);
	run(6000);
	assert_int_equal(rig.objects, 2);
	assert_int_equal(rig.writes, 2);
	/* With its Node it does not. */
	rig.has_node = false;
	fake_gone(KUBE_PROFILING_NODES, o);
	run(60000);
	assert_int_equal(rig.objects, 2);
	assert_int_equal(rig.writes, 2);
	cJSON_Delete(o);
}

static void test_a_status_of_what_just_went_is_no_failure(void **state)
{
	struct nodes_stats stats;

	say("n1", 1, true);
	run(6000);
	say("n1", 1, false);
	rig.answer = 404;
	run(NODES_TICK_MS);
	nodes_read(rig.nodes, &stats);
	assert_int_equal(stats.failures, 0);
	rig.answer = 200;
	run(NODES_RETRY_MS + 500);
	assert_int_equal(rig.writes, 2);
}

static void test_failures_are_tried_again_later(void **state)
{
	struct nodes_stats stats;

	rig.answer = 500;
	say("n1", 1, true);
	run(60000);
	nodes_read(rig.nodes, &stats);
	assert_in_range(stats.failures, 20, 31);
	rig.answer = 200;
	run(NODES_RETRY_MS + 500);
	assert_int_equal(rig.writes, 1);
}

static void test_an_agent_of_no_node_is_not_written(void **state)
{
	struct nodes_stats stats;

	rig.has_node = false;
	say("n1", 1, true);
	run(60000);
	nodes_read(rig.nodes, &stats);
	assert_true(stats.no_node > 0);
	assert_int_equal(rig.objects + rig.writes, 0);
	rig.has_node = true;
	run(NODES_RETRY_MS + 500);
	assert_int_equal(rig.writes, 1);
}

static void test_nodes_that_no_replica_tells_of_are_marked(void **state)
{
	rig.leads = false;
	show("n1", status_of("gone", clock_s(), "True"));
	show("n2", status_of("gone", clock_s(), "True"));
	show("n3", status_of(NULL, clock_s(), "Unknown")); /* already marked */
	run((NODES_STALE_S + 120) * 1000ULL);
	assert_int_equal(rig.writes, 0); /* another replica leads */
	show("n4", status_of("alive", clock_s(), "True"));
	rig.leads = true;
	run(120000);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("Disconnected"));
	run(120000);
	assert_int_equal(rig.writes, 2);
	/*
	 * Once all replicas have reported, nodes without a report are marked after a shorter time.
	 */
	nodes_settled(rig.nodes, true);
	say("n5", 1, true);
	run(NODES_GRACE_MS - 1000);
	assert_int_equal(rig.writes, 3);
	run(20000);
	assert_int_equal(rig.writes, 4);
	assert_true(last_has("Disconnected"));
}

static void test_what_agents_said_is_added_up(void **state)
{
	const struct node_reports *reports = nodes_reports(rig.nodes);
	struct node_totals t;

	say("n1", 1, true);
	say("n2", 1, false);
	say("n3", 1, true);
	run(6000);
	leave("n3");
	run(NODES_GRACE_MS + 1000);
	reports->totals(reports->arg, &t);
	assert_int_equal(t.nodes, 3);
	assert_int_equal(t.applied, 2);
	assert_int_equal(t.degraded, 2);
	assert_int_equal(reports->state(reports->arg, match_node_key("n1"), 7), NODE_APPLIES);
	assert_int_equal(reports->state(reports->arg, match_node_key("n1"), 8), 0);
	assert_int_equal(reports->state(reports->arg, match_node_key("n2"), 7),
			 NODE_APPLIES | NODE_DEGRADED);
	assert_int_equal(reports->state(reports->arg, match_node_key("n9"), 7), 0);
	/* The reports are dropped with the objects. */
	fakes.informers[0].ops.replaced(fakes.informers[0].store, 2);
	reports->totals(reports->arg, &t);
	assert_int_equal(t.nodes + t.applied + t.degraded, 0);
}

static void test_objects_of_anybody_do_no_harm(void **state)
{
	static const char *const texts[] = {
	    "{}",
	    "[]",
	    "{\"metadata\":{\"name\":5}}",
	    "{\"metadata\":{\"name\":\"a/b\"}}",
	    "{\"metadata\":{\"name\":\"n1\"},\"status\":[]}",
	    "{\"metadata\":{\"name\":\"n1\",\"ownerReferences\":{}},\"status\":{\"conditions\":[5,"
	    "{}],\"policies\":[5,{\"id\":\"zz\"},{\"id\":5}],\"operator\":5,\"lastReportTime\":"
	    "\"yesterday\"}}"};
	uint8_t scratch[512];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct kube_item item = {.type = KUBE_ADDED,
					 .encoding = KUBE_JSON,
					 .bytes = (const uint8_t *)texts[i],
					 .len = strlen(texts[i]),
					 .scratch = scratch};
		int r = fakes.informers[0].ops.put(fakes.informers[0].store, &item, 1);

		assert_int_equal(r, i < 4 ? -EBADMSG : 0);
	}
	say("n1", 1, true);
	run(1000);
	assert_int_equal(rig.writes, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_a_node_that_went_to_another_replica_is_its),
	    T(test_of_two_claims_the_one_that_heard_last_counts),
	    T(test_all_of_a_replica_that_went_are_away),
	    T(test_only_who_leads_writes),
	    T(test_what_somebody_else_writes_is_written_over),
	    T(test_events_of_anybody_do_no_harm),
	    T(test_conditions_of_another_replica_keep_their_times),
	    T(test_a_deleted_object_comes_again_while_there_is_its_node),
	    T(test_a_status_of_what_just_went_is_no_failure),
	    T(test_failures_are_tried_again_later),
	    T(test_an_agent_of_no_node_is_not_written),
	    T(test_nodes_that_no_replica_tells_of_are_marked),
	    T(test_what_agents_said_is_added_up),
	    T(test_objects_of_anybody_do_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
