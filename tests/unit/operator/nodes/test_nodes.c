/* SPDX-License-Identifier: Apache-2.0 */
/* When and how often ProfilingNodes are written, from what agents report. */
#include "tests/unit/operator/nodes/rig.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
