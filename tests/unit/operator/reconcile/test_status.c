/* SPDX-License-Identifier: Apache-2.0 */
/* What status says in each situation, as a table; conditions and their times; the writer's writes.
 */
#include "operator/reconcile/status.h"

#include "operator/reconcile/condition.h"
#include "tests/support/test.h"

/* "gen=.. pods=.. nodes=d/p/b hash=.. clamped=n | Type Status Reason: message | ..." */
static const char *describe(const cJSON *status)
{
	const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(status, "nodes"), *c;
	const char *hash =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(status, "configHash"));
	static char text[4096];
	size_t n;

#define NUMBER(object, key) (int)cJSON_GetObjectItemCaseSensitive(object, key)->valuedouble
	n = (size_t)snprintf(
	    text, sizeof(text), "gen=%d pods=%d nodes=%d/%d/%d hash=%s clamped=%d",
	    NUMBER(status, "observedGeneration"), NUMBER(status, "matchedPods"),
	    NUMBER(nodes, "desired"), NUMBER(nodes, "programmed"), NUMBER(nodes, "degraded"),
	    hash ? hash : "-",
	    cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(status, "clamped")));
	cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(status, "conditions"))
	{
#define TEXT(key) cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(c, key))
		assert_int_equal(NUMBER(c, "observedGeneration"),
				 NUMBER(status, "observedGeneration"));
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\n%s %s %s: %s", TEXT("type"),
				      TEXT("status"), TEXT("reason"), TEXT("message"));
	}
	return text;
}

#define GOOD                                                                                       \
	{                                                                                          \
		.accepted = true, .reason = "Accepted", .message = "accepted"                      \
	}
#define CLAMPED	 "accepted; the guard-rails changed sampling.hz"
#define ACCEPTED "\nAccepted True Accepted: accepted"

static const struct {
	const char *title;
	bool is_cluster;
	struct policy_verdict verdict;
	struct objects_state objects;
	struct match_result matches;
	struct node_totals agents;
	const char *want;
} rows[] = {
    {"rolled out",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 3, .programmed = 3},
     {.pods = 12, .nodes = 3},
     {0},
     "gen=7 pods=12 nodes=3/3/0 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed True RolledOut: 3 of 3 nodes run this configuration."
     "\nReady True Ready: The configuration is in effect."},
    {"rolling out",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 3, .programmed = 1, .degraded = 1},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=3/1/1 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed False RollingOut: 1 of 3 nodes run this configuration."
     "\nReady False RollingOut: 1 of 3 nodes run this configuration."},
    {"no nodes",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=0/0/0 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed Unknown NoNodes: No node is known to run an agent yet."
     "\nReady Unknown NoNodes: No node is known to run an agent yet."},
    {"being written",
     true,
     GOOD,
     {.desired = 3, .programmed = 3},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=3/3/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed Unknown Applying: The agent's objects are being written."
     "\nReady Unknown Applying: The agent's objects are being written."},
    {"a write failed",
     true,
     GOOD,
     {.error = "apply DaemonSet: no", .applied = false},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=0/0/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed False ApplyFailed: apply DaemonSet: no"
     "\nReady False ApplyFailed: apply DaemonSet: no"},
    {"cannot be rendered",
     true,
     GOOD,
     {.error = "spec.nodeGroups: too many", .invalid = true, .desired = 3, .programmed = 3},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=3/3/0 hash=- clamped=0"
     "\nAccepted False Invalid: spec.nodeGroups: too many"
     "\nProgrammed False NotAccepted: The configuration is not accepted."
     "\nReady False Invalid: spec.nodeGroups: too many"},
    {"cannot be understood",
     true,
     {.reason = "Invalid", .message = "spec.x: want y"},
     {.desired = 0},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=0/0/0 hash=- clamped=0"
     "\nAccepted False Invalid: spec.x: want y"
     "\nProgrammed False NotAccepted: The configuration is not accepted."
     "\nReady False Invalid: spec.x: want y"},
    {"a namespace's without pods",
     false,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 3, .programmed = 3},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=0/0/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed True NoPods: No running pod takes its policy from here."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady True Ready: The configuration is in effect."},
    {"a namespace's: the cluster's failures are not its own",
     false,
     GOOD,
     {.error = "spec.nodeGroups: too many", .invalid = true},
     {.pods = 5, .nodes = 2},
     {0},
     "gen=7 pods=5 nodes=2/0/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed Unknown NoReports: No agent has reported yet."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady Unknown NoReports: No agent has reported yet."},
    {"a namespace's, clamped",
     false,
     {.accepted = true,
      .reason = "Accepted",
      .message = CLAMPED,
      .n_clamped = 1,
      .clamped = {{"sampling.hz", "499", "97", "guardrails.sampling.maxHz is 97"}}},
     {.applied = true},
     {.pods = 5, .nodes = 2},
     {0},
     "gen=7 pods=5 nodes=2/0/0 hash=- clamped=1\nAccepted True Accepted: " CLAMPED
     "\nProgrammed Unknown NoReports: No agent has reported yet."
     "\nOverridden True Clamped: 1 field is limited by the cluster's guard-rails, see "
     "status.clamped."
     "\nReady Unknown NoReports: No agent has reported yet."},
    {"a namespace's in conflict",
     false,
     {.reason = "Conflict", .message = "as in a"},
     {.applied = true},
     {.pods = 0, .nodes = 0},
     {0},
     "gen=7 pods=0 nodes=0/0/0 hash=- clamped=0\nAccepted False Conflict: as in a"
     "\nProgrammed False NotAccepted: The configuration is not accepted."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady False Conflict: as in a"},
    {"agents have reported: all run it",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 3, .programmed = 3},
     {.pods = 12, .nodes = 3},
     {.nodes = 3, .applied = 3},
     "gen=7 pods=12 nodes=3/3/0 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed True RolledOut: 3 of 3 nodes run this configuration."
     "\nReady True Ready: The configuration is in effect."},
    {"pods are new, their agents run the old configuration",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 3, .programmed = 3},
     {.pods = 12, .nodes = 3},
     {.nodes = 3, .applied = 1, .degraded = 2},
     "gen=7 pods=12 nodes=3/1/2 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed False RollingOut: 1 of 3 nodes run this configuration."
     "\nReady False RollingOut: 1 of 3 nodes run this configuration."},
    {"one node is degraded, and one is left of an earlier setting",
     true,
     GOOD,
     {.config_hash = "00ff", .applied = true, .desired = 1, .programmed = 1},
     {.pods = 12, .nodes = 1},
     {.nodes = 2, .applied = 2, .degraded = 2},
     "gen=7 pods=12 nodes=1/1/1 hash=00ff clamped=0" ACCEPTED
     "\nProgrammed True RolledOut: 1 of 1 nodes run this configuration."
     "\nReady False NodesDegraded: 1 of 1 nodes is degraded, see kubectl get profilingnodes."},
    {"a namespace's: one agent applies its policy",
     false,
     GOOD,
     {.applied = true},
     {.pods = 5, .nodes = 2, .programmed = 1},
     {.nodes = 3, .applied = 3, .degraded = 1},
     "gen=7 pods=5 nodes=2/1/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed False RollingOut: 1 of 2 nodes apply this policy to its pods."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady False RollingOut: 1 of 2 nodes apply this policy to its pods."},
    {"a namespace's: all do; another node's trouble is not its own",
     false,
     GOOD,
     {.applied = true},
     {.pods = 5, .nodes = 2, .programmed = 2},
     {.nodes = 3, .applied = 2, .degraded = 1},
     "gen=7 pods=5 nodes=2/2/0 hash=- clamped=0" ACCEPTED
     "\nProgrammed True RolledOut: 2 of 2 nodes apply this policy to its pods."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady True Ready: The configuration is in effect."},
    {"a namespace's: its own nodes' trouble is",
     false,
     GOOD,
     {.applied = true},
     {.pods = 5, .nodes = 2, .programmed = 2, .degraded = 2},
     {.nodes = 3, .applied = 2, .degraded = 2},
     "gen=7 pods=5 nodes=2/2/2 hash=- clamped=0" ACCEPTED
     "\nProgrammed True RolledOut: 2 of 2 nodes apply this policy to its pods."
     "\nOverridden False NotOverridden: Everything is as asked for."
     "\nReady False NodesDegraded: 2 of 2 nodes are degraded, see kubectl get profilingnodes."},
};

/* A destination without its Secret: said, with what to do, and taken back once it is there. */
static void test_a_destination_that_is_left_out(void **state)
{
	static const struct status_cause missing = {"SecretMissing",
						    "there is no Secret a/b: make it"};
	static const struct policy_verdict good = GOOD;
	static const struct objects_state objects = {
	    .config_hash = "00ff", .applied = true, .desired = 1, .programmed = 1};
	struct status_input in = {.verdict = &good,
				  .objects = &objects,
				  .is_cluster = true,
				  .generation = 7,
				  .now = 1000000000,
				  .unresolved = &missing};
	cJSON *before, *after;

	assert_int_equal(status_build(&in, &before), 0);
	assert_non_null(strstr(describe(before),
			       "\nDestinationsResolved False SecretMissing: there "
			       "is no Secret a/b: make it\n"));
	assert_non_null(strstr(describe(before), "\nReady False SecretMissing: there is no"));
	in.unresolved = NULL;
	in.live = before;
	assert_int_equal(status_build(&in, &after), 0);
	assert_non_null(strstr(describe(after), "\nDestinationsResolved True Resolved: "));
	assert_non_null(strstr(describe(after), "\nReady True Ready: "));
	cJSON_Delete(before);
	cJSON_Delete(after);
}

static void test_a_field_without_effect(void **state)
{
	static const struct objects_state objects = {.applied = true};
	struct policy_verdict verdict = GOOD;
	struct status_input in = {.verdict = &verdict, .objects = &objects, .generation = 7};
	cJSON *before, *after;

	strcpy(verdict.ineffective, "Ignored: spec.new: unknown field");
	assert_int_equal(status_build(&in, &before), 0);
	assert_non_null(strstr(describe(before), "\nEffective False PartlyIneffective: Ignored: "
						 "spec.new: unknown field\n"));
	assert_non_null(strstr(describe(before), "\nReady True "));
	verdict.ineffective[0] = 0;
	in.live = before;
	assert_int_equal(status_build(&in, &after), 0);
	assert_non_null(strstr(describe(after), "\nEffective True Effective: "));
	cJSON_Delete(before);
	cJSON_Delete(after);
}

static void test_a_tenants_destination_that_takes_nothing(void **state)
{
	static const struct status_cause failing = {"ExportFailing", "Destination x: 2 nodes"};
	static const struct objects_state objects = {.applied = true};
	struct policy_verdict verdict = GOOD;
	struct status_input in = {
	    .verdict = &verdict, .objects = &objects, .generation = 7, .failing = &failing};
	cJSON *before, *after;

	assert_int_equal(status_build(&in, &before), 0);
	assert_non_null(
	    strstr(describe(before), "\nExporting False ExportFailing: Destination x: "));
	assert_non_null(strstr(describe(before), "\nReady False ExportFailing: Destination x: "));
	in.failing = NULL;
	in.live = before;
	assert_int_equal(status_build(&in, &after), 0);
	assert_non_null(strstr(describe(after), "\nExporting True Exporting: "));
	assert_non_null(strstr(describe(after), "\nReady True Ready: "));
	cJSON_Delete(before);
	cJSON_Delete(after);
}

static void test_a_config_tells_how_many_pods_it_holds_off(void **state)
{
	static const struct objects_state objects = {.applied = true};
	struct policy_verdict verdict = GOOD;
	struct status_input in = {
	    .verdict = &verdict, .objects = &objects, .generation = 7, .matches = {.held_off = 3}};
	cJSON *status;

	assert_int_equal(status_build(&in, &status), 0);
	assert_non_null(strstr(describe(status), "gen=7 pods=3 "));
	assert_non_null(strstr(describe(status), "\nProgrammed True HeldOff: 3 pods are not "
						 "profiled because of this config.\n"));
	cJSON_Delete(status);
}

static void test_counts_alone_are_told_apart(void **state)
{
	static const struct objects_state objects = {.applied = true};
	struct policy_verdict verdict = GOOD;
	struct status_input in = {.verdict = &verdict,
				  .objects = &objects,
				  .generation = 7,
				  .matches = {.pods = 5, .nodes = 2, .programmed = 2},
				  .agents = {.nodes = 9}};
	cJSON *before, *now;

	verdict.effective = 0xab;
	assert_int_equal(status_build(&in, &before), 0);
	assert_string_equal(
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(before, "effectiveHash")),
	    "00000000000000ab");
	in.matches = (struct match_result){.pods = 6, .nodes = 3, .programmed = 3};
	assert_int_equal(status_build(&in, &now), 0);
	assert_false(cJSON_Compare(before, now, true));
	assert_true(status_differs_in_counts(before, now));
	cJSON_Delete(now);
	in.matches.programmed = 2; /* no longer rolled out: that is news */
	assert_int_equal(status_build(&in, &now), 0);
	assert_false(status_differs_in_counts(before, now));
	cJSON_Delete(now);
	in.matches.programmed = 3;
	verdict.effective = 0xac;
	assert_int_equal(status_build(&in, &now), 0);
	assert_false(status_differs_in_counts(before, now));
	assert_false(status_differs_in_counts(NULL, now));
	cJSON_Delete(now);
	cJSON_Delete(before);
}

static void test_what_status_says(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct status_input in = {.verdict = &rows[i].verdict,
						.objects = &rows[i].objects,
						.matches = rows[i].matches,
						.agents = rows[i].agents,
						.is_cluster = rows[i].is_cluster,
						.generation = 7,
						.now = 1000000000};
		cJSON *status;

		assert_int_equal(status_build(&in, &status), 0);
		if (!streq(describe(status), rows[i].want))
			print_error("%s:\n", rows[i].title);
		assert_string_equal(describe(status), rows[i].want);
		cJSON_Delete(status);
	}
}

static void test_what_is_said_already_is_the_same(void **state)
{
	struct policy_verdict verdict = GOOD;
	struct objects_state objects = {.applied = true, .desired = 2, .programmed = 2};
	struct status_input in = {.verdict = &verdict,
				  .objects = &objects,
				  .is_cluster = true,
				  .generation = 1,
				  .now = 1000000000};
	cJSON *first, *second, *third;
	const cJSON *ready;

	assert_int_equal(status_build(&in, &first), 0);
	in.live = first;
	in.now += 3600;
	assert_int_equal(status_build(&in, &second), 0);
	assert_true(cJSON_Compare(first, second, true));
	objects.programmed = 1;
	assert_int_equal(status_build(&in, &third), 0);
	assert_false(cJSON_Compare(first, third, true));
	/* Only what turned has another time. */
	ready = condition_find(cJSON_GetObjectItemCaseSensitive(third, "conditions"), "Ready");
	assert_string_equal(
	    cJSON_GetObjectItemCaseSensitive(ready, "lastTransitionTime")->valuestring,
	    "2001-09-09T02:46:40Z");
	ready = condition_find(cJSON_GetObjectItemCaseSensitive(third, "conditions"), "Accepted");
	assert_string_equal(
	    cJSON_GetObjectItemCaseSensitive(ready, "lastTransitionTime")->valuestring,
	    "2001-09-09T01:46:40Z");
	cJSON_Delete(first);
	cJSON_Delete(second);
	cJSON_Delete(third);
}

static void test_a_foreign_status_does_no_harm(void **state)
{
	static const char *const statuses[] = {
	    "{}",
	    "null",
	    "[]",
	    "{\"conditions\":{}}",
	    "{\"conditions\":[5,null,{}]}",
	    "{\"conditions\":[{\"type\":5},{\"type\":\"Ready\"},{\"type\":\"Ready\",\"status\":1}]"
	    "}",
	    "{\"conditions\":[{\"type\":\"Accepted\",\"status\":\"True\",\"lastTransitionTime\":"
	    "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}]}"};
	struct policy_verdict verdict = GOOD;
	struct objects_state objects = {.applied = true};

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		cJSON *live = cJSON_Parse(statuses[i]), *status;
		struct status_input in = {.verdict = &verdict, .objects = &objects, .live = live};

		assert_non_null(live);
		assert_int_equal(status_build(&in, &status), 0);
		assert_int_equal(
		    cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(status, "conditions")), 4);
		cJSON_Delete(status);
		cJSON_Delete(live);
	}
}

/* A config whose status already says NamespaceOverQuota for its generation is not written again. */
static void test_an_owner_over_quota_is_told_once(void **state)
{
	static const struct {
		const char *generation, *status;
		bool told;
	} table[] = {
	    {"3", "{}", false},
	    {"3", "null", false},
	    {"3", "[\"Accepted\"]", false},
	    {"3",
	     "{\"observedGeneration\":3,\"conditions\":[{\"type\":\"Accepted\","
	     "\"reason\":\"Accepted\"}]}",
	     false},
	    {"3",
	     "{\"observedGeneration\":3,\"conditions\":[{\"type\":\"Accepted\","
	     "\"reason\":\"NamespaceOverQuota\"}]}",
	     true},
	    {"4",
	     "{\"observedGeneration\":3,\"conditions\":[{\"type\":\"Accepted\","
	     "\"reason\":\"NamespaceOverQuota\"}]}",
	     false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char text[512];
		cJSON *object;

		snprintf(text, sizeof(text), "{\"metadata\":{\"generation\":%s},\"status\":%s}",
			 table[i].generation, table[i].status);
		object = cJSON_Parse(text);
		assert_non_null(object);
		assert_int_equal(status_tells_over_quota(object), table[i].told);
		cJSON_Delete(object);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_field_without_effect),
	    cmocka_unit_test(test_a_tenants_destination_that_takes_nothing),
	    cmocka_unit_test(test_a_config_tells_how_many_pods_it_holds_off),
	    cmocka_unit_test(test_counts_alone_are_told_apart),
	    cmocka_unit_test(test_what_status_says),
	    cmocka_unit_test(test_a_destination_that_is_left_out),
	    cmocka_unit_test(test_what_is_said_already_is_the_same),
	    cmocka_unit_test(test_a_foreign_status_does_no_harm),
	    cmocka_unit_test(test_an_owner_over_quota_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
