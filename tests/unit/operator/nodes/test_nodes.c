/* SPDX-License-Identifier: Apache-2.0 */
/* When and how often ProfilingNodes are written, from what replicas report, against an API
 * server that the test plays. */
#include "operator/nodes/nodes.h"

#include "operator/reconcile/condition.h"
#include "operator/nodes/node_store.h"
#include "operator/nodes/told.h"
#include "kiln/node/v1/node.pb-c.h"
#include "tests/support/test.h"
#include "tests/unit/operator/reconcile/fakes.h"

static struct {
	struct nodes *nodes;
	uint64_t started_ms;
	bool leads, has_node;
	char wanted[17];
	unsigned int turned;
	unsigned int writes, objects;	  /* answered */
	int answer;			  /* of the API server, to writes */
	const char *node_object;	  /* NULL: node_answer */
	int node_answer;		  /* its status; 403: nobody may read nodes */
	unsigned int asked;		  /* reads of it */
	Kiln__Node__V1__LeftOut left_out; /* in every node's report; without a name: none */
	uint64_t peer;			  /* the replica that reports */
	int64_t heard_ms;		  /* 0: now */
	char last[8192];		  /* the newest status, as text */
} rig;

static const char *uid_of(void *arg, const char *node)
{
	static char uid[300];

	snprintf(uid, sizeof(uid), "uid-%s", node);
	return rig.has_node ? uid : NULL;
}

static void wanted_of(void *arg, const char *node, char ret[static 17])
{
	memcpy(ret, rig.wanted, 17);
}

static bool leads(void *arg)
{
	return rig.leads;
}

static void turned(void *arg)
{
	rig.turned++;
}

static int64_t clock_s(void)
{
	return (int64_t)(fakes.now_ms / 1000);
}

static int setup(void **state)
{
	struct nodes_options o = {
	    .uid = uid_of, .wanted = wanted_of, .leads = leads, .turned = turned, .now = clock_s};
	struct error err;

	fakes_reset();
	memset(&rig, 0, sizeof(rig));
	rig.has_node = rig.leads = true;
	rig.peer = 1;
	rig.left_out = (Kiln__Node__V1__LeftOut)KILN__NODE__V1__LEFT_OUT__INIT;
	rig.answer = 200;
	rig.node_answer = 403;
	memcpy(rig.wanted, "00ff", 5);
	assert_int_equal(nodes_new(&o, &rig.nodes, &err), 0);
	fakes.informers[0].stats.synced = true;
	return 0;
}

static int teardown(void **state)
{
	nodes_free(rig.nodes);
	fakes_reset();
	return 0;
}

/* ---- the API server -------------------------------------------------------------------------- */

/* A node as it is there. STATUS is taken; NULL: none yet. */
static void show(const char *name, cJSON *status)
{
	cJSON *o = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(o, "metadata"), *owner;
	char uid[300];

	snprintf(uid, sizeof(uid), "uid-%s", name);
	cJSON_AddStringToObject(meta, "name", name);
	owner = cJSON_CreateObject();
	cJSON_AddStringToObject(owner, "uid", uid);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(meta, "ownerReferences"), owner);
	if (status)
		cJSON_AddItemToObject(o, "status", status);
	fake_show(KUBE_PROFILING_NODES, o);
	cJSON_Delete(o);
}

static void answer_one(struct kube_call *call)
{
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(call->object, "status");

	if (streq(call->verb, "get")) {
		assert_int_equal(call->kind, KUBE_NODES);
		rig.asked++;
		if (rig.node_object)
			fake_found(call, rig.node_object);
		else
			fake_done(call, rig.node_answer, "no");
		return;
	}
	assert_int_equal(call->kind, KUBE_PROFILING_NODES);
	if (rig.answer != 200) {
		fake_done(call, rig.answer, "no");
		return;
	}
	if (status) {
		_cleanup_free_ char *text = cJSON_PrintUnformatted(status);

		snprintf(rig.last, sizeof(rig.last), "%s", text);
		rig.writes++;
		show(call->name, cJSON_Duplicate(status, true));
	} else {
		rig.objects++;
		show(call->name, NULL);
	}
	fake_done(call, 200, "");
}

static void answer_all(void)
{
	for (size_t i = 0; i < fakes.n_writes; i++)
		if (!fakes.writes[i].over)
			answer_one(&fakes.writes[i]);
	for (size_t i = 0; i < fakes.n_writes; i++) {
		cJSON_Delete(fakes.writes[i].object);
		fakes.writes[i] = (struct kube_call){NULL};
	}
	fakes.n_writes = 0;
}

/* MS go by; what is asked for is answered at once. */
static void run(uint64_t ms)
{
	for (uint64_t until = fakes.now_ms + ms; fakes.now_ms < until;) {
		fakes.now_ms += NODES_TICK_MS;
		nodes_tick(rig.nodes);
		answer_all();
	}
}

/* ---- agents ---------------------------------------------------------------------------------- */

/* Replica 1 is "me", 2 is "another". */
static void tell(const char *node, bool connected, Kiln__Node__V1__Report *report)
{
	Kiln__Node__V1__NodeEvent e = KILN__NODE__V1__NODE_EVENT__INIT, *list[] = {&e};
	Kiln__Node__V1__NodeEvents all = KILN__NODE__V1__NODE_EVENTS__INIT;
	Kiln__Node__V1__LeftOut *left_out[] = {&rig.left_out};
	static uint8_t bytes[4096];
	bool whole = true;
	size_t n;

	e.node = (char *)node;
	e.connected = connected;
	if (connected) {
		e.agent_version = (char *)"1";
		e.kernel = (char *)"6";
		e.cgroup_mode = (char *)"v2";
		e.heard = rig.heard_ms ? rig.heard_ms : (int64_t)fakes.now_ms;
		e.report = report;
		e.left_out = left_out;
		e.n_left_out = rig.left_out.name[0] ? 1 : 0;
	}
	all.replica = (char *)(rig.peer == 1 ? "me" : "another");
	all.nodes = list;
	all.n_nodes = 1;
	n = kiln__node__v1__node_events__pack(&all, bytes);
	assert_int_equal(nodes_take(rig.nodes, rig.peer, bytes, n, &whole), 0);
	assert_false(whole);
}

static void say(const char *node, uint64_t samples, bool healthy)
{
	Kiln__Node__V1__Exporter e = KILN__NODE__V1__EXPORTER__INIT, *list[] = {&e};
	Kiln__Node__V1__AppliedPolicy p = KILN__NODE__V1__APPLIED_POLICY__INIT, *policies[] = {&p};
	Kiln__Node__V1__Report r = KILN__NODE__V1__REPORT__INIT;

	e.destination = (char *)"main";
	e.healthy = healthy;
	e.error = (char *)(healthy ? "" : "connection refused");
	p.id = 7;
	r.config_hash = (char *)"00ff";
	r.samples = samples;
	r.exporters = list;
	r.policies = policies;
	r.n_exporters = r.n_policies = 1;
	tell(node, true, &r);
}

static void hello(const char *node)
{
	tell(node, true, NULL);
}

static void leave(const char *node)
{
	tell(node, false, NULL);
}

static bool last_has(const char *text)
{
	return strstr(rig.last, text) != NULL;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_a_node_is_made_with_its_owner_and_then_told_of(void **state)
{
	const cJSON *meta, *owner;

	hello("n1");
	fakes.now_ms += NODES_TICK_MS;
	nodes_tick(rig.nodes);
	assert_int_equal(fakes.n_writes, 0); /* its report is awaited */
	say("n1", 1, true);
	nodes_tick(rig.nodes);
	assert_int_equal(fakes.n_writes, 1);
	assert_string_equal(fakes.writes[0].verb, "apply");
	meta = cJSON_GetObjectItemCaseSensitive(fakes.writes[0].object, "metadata");
	owner = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(meta, "ownerReferences"), 0);
	assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(owner, "uid")), "uid-n1");
	assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(owner, "kind")), "Node");
	assert_null(cJSON_GetObjectItemCaseSensitive(owner, "blockOwnerDeletion"));
	answer_all();
	run(NODES_TICK_MS);
	assert_int_equal(rig.objects, 1);
	assert_int_equal(rig.writes, 1);
	assert_true(last_has("\"operator\":\"me\"") && last_has("\"configHash\":\"00ff\""));
	assert_true(rig.turned > 0);
}

/* Told at once, with each cause, and taken back; of an agent that went nobody knows. */
static void test_a_destination_that_is_left_out_is_told(void **state)
{
	const struct node_reports *reports = nodes_reports(rig.nodes);
	struct status_cause cause;

	say("n1", 1, true);
	run(2 * NODES_TICK_MS);
	assert_false(last_has("leftOut"));
	assert_false(reports->left_out(reports->arg, "shop", "x", &cause));
	rig.left_out.name = (char *)"shop/x";
	rig.left_out.reason = (char *)"SecretMissing";
	rig.left_out.message = (char *)"make it";
	say("n1", 1, true);
	run(NODES_TURN_MS + NODES_TICK_MS);
	assert_true(last_has("\"leftOut\":[{\"name\":\"shop/x\",\"reason\":\"SecretMissing\","
			     "\"message\":\"make it\"}]"));
	assert_true(reports->left_out(reports->arg, "shop", "x", &cause));
	assert_string_equal(cause.reason, "SecretMissing");
	assert_string_equal(cause.text, "make it");
	assert_false(reports->left_out(reports->arg, "", "x", &cause));
	rig.turned = 0;
	rig.left_out.reason = (char *)"SecretKeyMissing";
	rig.left_out.message = (char *)"put it there";
	say("n1", 1, true);
	run(NODES_TURN_MS + NODES_TICK_MS);
	assert_int_equal(rig.turned, 1);
	assert_true(reports->left_out(reports->arg, "shop", "x", &cause));
	assert_string_equal(cause.text, "put it there");
	leave("n1");
	run(NODES_GRACE_MS + NODES_TURN_MS);
	assert_false(last_has("leftOut"));
	assert_false(reports->left_out(reports->arg, "shop", "x", &cause));
}

static void test_the_runtime_is_the_nodes_word_when_the_agent_has_none(void **state)
{
	rig.node_object =
	    "{\"status\":{\"nodeInfo\":{\"containerRuntimeVersion\":\"containerd://1.7.24\"}}}";
	for (unsigned int i = 0; i < 100; i++) {
		say("n1", i, i % 2);
		run(1000);
	}
	assert_true(rig.writes > 2);
	assert_true(last_has("\"runtime\":\"containerd://1.7.24\""));
	assert_int_equal(rig.asked, 1);
}

/* A Node that cannot be read, or whose JSON is bad, only lacks the runtime's name. */
static void test_a_node_that_tells_no_runtime_is_asked_once(void **state)
{
	static const char *const objects[] = {NULL, "{", "{}", "{\"status\":{\"nodeInfo\":[]}}"};
	char name[8];

	for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
		snprintf(name, sizeof(name), "n%zu", i);
		rig.node_object = objects[i];
		rig.asked = 0;
		for (unsigned int k = 0; k < 20; k++) {
			say(name, k, k % 2);
			run(1000);
		}
		assert_int_equal(rig.asked, 1);
		assert_true(last_has("\"kernel\"") && !last_has("\"runtime\""));
	}
}

static void test_a_node_is_asked_again_when_the_server_was_busy(void **state)
{
	static const int answers[] = {0, 429, 503};

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		rig.node_answer = answers[i];
		say("n1", 3 * i, true);
		run(70000);
		assert_true(last_has("\"kernel\"") && !last_has("\"runtime\""));
	}
	rig.node_object = "{\"status\":{\"nodeInfo\":{\"containerRuntimeVersion\":\"cri-o://1\"}}}";
	rig.asked = 0;
	for (unsigned int i = 0; i < 20; i++) {
		say("n1", 100 + i, i % 2);
		run(1000);
	}
	assert_true(last_has("\"runtime\":\"cri-o://1\""));
	assert_int_equal(rig.asked, 1);
}

static void test_a_node_that_is_there_is_not_made_again(void **state)
{
	show("n1", NULL);
	say("n1", 1, true);
	run(1000);
	assert_int_equal(rig.objects, 0);
	assert_int_equal(rig.writes, 1);
}

static void test_an_agent_that_only_said_hello_is_told_of_later(void **state)
{
	hello("n1");
	run(NODES_SILENT_MS - NODES_TICK_MS);
	assert_int_equal(rig.writes, 0);
	run(1000);
	assert_int_equal(rig.writes, 1);
	assert_true(last_has("NotKnown"));
}

static void test_a_thousand_unchanged_reports_are_no_write(void **state)
{
	unsigned int turns;

	say("n1", 1, true);
	run(1000);
	assert_int_equal(rig.writes, 1);
	turns = rig.turned;
	for (unsigned int i = 0; i < 1000; i++) {
		say("n1", 1, true);
		run(500);
	}
	assert_int_equal(rig.writes, 1);
	assert_int_equal(rig.turned, turns);
	/* After ten minutes they are told to be there still. */
	for (unsigned int i = 0; i < 200; i++) {
		say("n1", 1, true);
		run(1000);
	}
	assert_int_equal(rig.writes, 2);
}

static void test_counters_are_written_once_a_minute(void **state)
{
	for (unsigned int i = 0; i < 600; i++) {
		say("n1", i, true);
		run(1000);
	}
	assert_in_range(rig.writes, 9, 11);
	assert_int_equal(rig.objects, 1);
}

static void test_what_turns_is_written_at_once_and_not_more_often_than_agreed(void **state)
{
	say("n1", 1, true);
	run(10000);
	assert_int_equal(rig.writes, 1);
	say("n1", 1, false);
	run(NODES_TICK_MS);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("ExportFailing") && last_has("connection refused"));
	for (unsigned int i = 0; i < 100; i++) { /* up and down, a second each */
		say("n1", 1, i % 2);
		run(1000);
	}
	assert_in_range(rig.writes, 10, 23);
}

static void test_the_configuration_that_nodes_should_have_turns_them(void **state)
{
	say("n1", 1, true);
	run(10000);
	assert_true(last_has("\"reason\":\"Applied\""));
	memcpy(rig.wanted, "00fe", 5);
	run(1000);
	assert_int_equal(rig.writes, 1);
	nodes_config_changed(rig.nodes);
	run(1000);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("OldConfig"));
}

/* All of a large cluster, with counters that always grow. */
static void test_five_thousand_nodes_are_fifty_writes_a_second(void **state)
{
	enum { NODES = 5000, SECONDS = 110 };
	struct nodes_stats stats;
	unsigned int before, most = 0;
	char name[32];

	for (unsigned int s = 0; s < 2 * SECONDS; s++) {
		for (unsigned int i = 0; i < NODES; i++)
			if (i % 10 == s % 10) { /* a report in ten seconds of each */
				snprintf(name, sizeof(name), "node-%u", i);
				say(name, s, true);
			}
		before = rig.writes;
		run(1000);
		if (s >= SECONDS)
			most = MAX(most, rig.writes - before);
		if (s + 1 == SECONDS)
			rig.writes = 0;
	}
	nodes_read(rig.nodes, &stats);
	assert_int_equal(stats.objects, NODES);
	assert_int_equal(rig.objects, NODES);
	assert_true(most <= 80);
	/* And they are written: each of them once in 100 s. */
	assert_in_range(rig.writes, 40 * SECONDS, 51 * SECONDS);
}

/* Every node is written in the end, though all of them change all the time. */
static void test_the_pace_is_shared_in_turn(void **state)
{
	enum { NODES = 1000 };
	static unsigned int seen[NODES];
	unsigned int missing = 0, node;
	char name[32];

	memset(seen, 0, sizeof(seen));
	for (unsigned int s = 0; s < 60; s++) {
		for (unsigned int i = 0; i < NODES; i++) {
			snprintf(name, sizeof(name), "node-%u", i);
			say(name, s, s % 2);
		}
		for (unsigned int t = 0; t < 4; t++) {
			fakes.now_ms += NODES_TICK_MS;
			nodes_tick(rig.nodes);
			for (size_t i = 0; i < fakes.n_writes; i++)
				if (sscanf(fakes.writes[i].name, "node-%u", &node) == 1)
					seen[node]++;
			answer_all();
		}
	}
	for (unsigned int i = 0; i < NODES; i++)
		missing += !seen[i];
	assert_int_equal(missing, 0);
}

static void test_a_node_without_a_stream_is_away_after_a_while(void **state)
{
	say("n1", 1, true);
	run(6000);
	leave("n1");
	run(NODES_GRACE_MS - 1000);
	assert_int_equal(rig.writes, 1);
	run(2000);
	assert_int_equal(rig.writes, 2);
	assert_true(last_has("Disconnected") && !last_has("\"operator\""));
	assert_true(last_has("\"samples\":1")); /* the values of its last report stay */
	run(NODES_BEAT_MS * 2);
	assert_int_equal(rig.writes, 2);
	/* And back again. */
	say("n1", 2, true);
	run(1000);
	assert_int_equal(rig.writes, 3);
	assert_true(last_has("\"operator\":\"me\""));
}

static void test_a_short_absence_is_no_news(void **state)
{
	say("n1", 1, true);
	run(6000);
	for (unsigned int i = 0; i < 20; i++) {
		leave("n1");
		run(NODES_GRACE_MS / 2);
		hello("n1");
		say("n1", 1, true);
		run(1000);
	}
	assert_int_equal(rig.writes, 1);
}

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

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_a_node_is_made_with_its_owner_and_then_told_of),
	    T(test_a_destination_that_is_left_out_is_told),
	    T(test_the_runtime_is_the_nodes_word_when_the_agent_has_none),
	    T(test_a_node_that_tells_no_runtime_is_asked_once),
	    T(test_a_node_is_asked_again_when_the_server_was_busy),
	    T(test_a_node_that_is_there_is_not_made_again),
	    T(test_an_agent_that_only_said_hello_is_told_of_later),
	    T(test_a_thousand_unchanged_reports_are_no_write),
	    T(test_counters_are_written_once_a_minute),
	    T(test_what_turns_is_written_at_once_and_not_more_often_than_agreed),
	    T(test_the_configuration_that_nodes_should_have_turns_them),
	    T(test_five_thousand_nodes_are_fifty_writes_a_second),
	    T(test_the_pace_is_shared_in_turn),
	    T(test_a_node_without_a_stream_is_away_after_a_while),
	    T(test_a_short_absence_is_no_news),
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
