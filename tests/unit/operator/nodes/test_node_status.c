/* SPDX-License-Identifier: Apache-2.0 */
/* What a ProfilingNode says of a report, and what foreign words become in it. */
#include "operator/nodes/node_status.h"
#include "operator/nodes/node_store.h"

#include "operator/reconcile/condition.h"
#include "tests/support/test.h"

#define LOADED	    KILN__NODE__V1__TRACER__STATE__LOADED
#define UNAVAILABLE KILN__NODE__V1__TRACER__STATE__UNAVAILABLE

static struct {
	Kiln__Node__V1__NodeEvent event;
	Kiln__Node__V1__Report report;
	Kiln__Node__V1__Tracer tracer[2], *tracers[2];
	Kiln__Node__V1__Exporter exporter[2], *exporters[2];
	Kiln__Node__V1__AppliedPolicy policy[2], *policies[2];
} parts;

/* A node on which all is well. */
static struct node_status_input good(void)
{
	static const char *const names[] = {"native", "python"}, *const to[] = {"main",
										"shop/x@0badcafe"};

	memset(&parts, 0, sizeof(parts));
	parts.event = (Kiln__Node__V1__NodeEvent)KILN__NODE__V1__NODE_EVENT__INIT;
	parts.event.node = (char *)"n1";
	parts.event.connected = true;
	parts.event.agent_version = (char *)"0.1.0";
	parts.event.kernel = (char *)"6.1.0";
	parts.event.cgroup_mode = (char *)"v2";
	parts.event.container_runtime = (char *)"containerd";
	parts.event.report = &parts.report;
	parts.report = (Kiln__Node__V1__Report)KILN__NODE__V1__REPORT__INIT;
	for (size_t i = 0; i < 2; i++) {
		parts.tracer[i] = (Kiln__Node__V1__Tracer)KILN__NODE__V1__TRACER__INIT;
		parts.tracer[i].name = (char *)names[i];
		parts.tracer[i].state = LOADED;
		parts.tracers[i] = &parts.tracer[i];
		parts.exporter[i] = (Kiln__Node__V1__Exporter)KILN__NODE__V1__EXPORTER__INIT;
		parts.exporter[i].destination = (char *)to[i];
		parts.exporter[i].healthy = true;
		parts.exporters[i] = &parts.exporter[i];
		parts.policy[i] =
		    (Kiln__Node__V1__AppliedPolicy)KILN__NODE__V1__APPLIED_POLICY__INIT;
		parts.policy[i].id = 0xfedcba9876543210 + i;
		parts.policies[i] = &parts.policy[i];
	}
	parts.policy[0].containers = 3;
	parts.report.tracers = parts.tracers;
	parts.report.exporters = parts.exporters;
	parts.report.policies = parts.policies;
	parts.report.n_tracers = parts.report.n_exporters = parts.report.n_policies = 2;
	parts.report.samples = 12;
	parts.report.config_hash = (char *)"00ff";
	return (struct node_status_input){.event = &parts.event,
					  .connected = true,
					  .wanted_hash = "00ff",
					  .replica = "operator-0_1",
					  .reported = 1000000000,
					  .now = 1000000007};
}

static cJSON *build(const struct node_status_input *in)
{
	struct node_turns turns = {.status = {0}};
	cJSON *status;

	assert_int_equal(node_status_build(in, &turns, &status), 0);
	return status;
}

/* "Ready True Ready|ConfigApplied ..." */
static void expect_conditions(const struct node_status_input *in, const char *want)
{
	cJSON *status = build(in), *c;
	char text[1024];
	size_t n = 0;

	cJSON_ArrayForEach(c, cJSON_GetObjectItemCaseSensitive(status, "conditions"))
	{
#define TEXT(key) cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(c, key))
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s %s %s", n ? "|" : "",
				      TEXT("type"), TEXT("status"), TEXT("reason"));
		assert_true(strlen(TEXT("message")) > 0);
	}
	assert_string_equal(text, want);
	cJSON_Delete(status);
}

#define WELL                                                                                       \
	"Ready True Ready|ConfigApplied True Applied|TracersLoaded True Loaded|"                   \
	"Exporting True Exporting|MetadataSynced True Synced|WithinBudget True NoBudget"

/* An agent may say what it likes: what is written is what the CRD allows. */
static void test_versions_of_a_runtime(void **state)
{
	const struct node_status_input in = good();
	char many[] = "17.0.9\n and more than thirty-two characters", *versions[12];
	cJSON *status, *list;

	for (size_t i = 0; i < ARRAY_SIZE(versions); i++)
		versions[i] = many;
	parts.tracer[1].versions = versions;
	parts.tracer[1].n_versions = ARRAY_SIZE(versions);
	status = build(&in);
	list = cJSON_GetObjectItemCaseSensitive(status, "tracers");
	assert_null(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(list, 0), "versions"));
	list = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(list, 1), "versions");
	assert_int_equal(cJSON_GetArraySize(list), 8);
	assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(list, 7)),
			    "17.0.9? and more than thirty-two");
	cJSON_Delete(status);
}

static void test_who_was_cut_by_the_budget(void **state)
{
	const struct node_status_input in = good();
	Kiln__Node__V1__BudgetState budget = KILN__NODE__V1__BUDGET_STATE__INIT;
	Kiln__Node__V1__CutPolicy cut[2] = {KILN__NODE__V1__CUT_POLICY__INIT,
					    KILN__NODE__V1__CUT_POLICY__INIT};
	Kiln__Node__V1__CutPolicy *list[] = {&cut[0], &cut[1], &cut[1]};
	char text[256], *printed;
	cJSON *status;

	budget.cpu = 5000;
	budget.policies = 7;
	parts.report.budget = &budget;
	node_status_budget_text(in.event, text, sizeof(text));
	assert_string_equal(text, "Every policy samples as it asks, within 0.5 % of all CPUs.");
	cut[0] = (Kiln__Node__V1__CutPolicy)KILN__NODE__V1__CUT_POLICY__INIT;
	cut[0].id = 0xa;
	cut[0].hz = 97;
	cut[0].hz_now = 12;
	cut[0].since = 1000000001;
	cut[1].id = 0xb;
	cut[1].hz = 20000;
	budget.policy = list;
	budget.n_policy = 3;
	budget.cut = 2;
	budget.detail = 77;
	status = build(&in);
	printed = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(status, "budget"));
	assert_string_equal(printed, "{\"cpu\":\"0.5%\",\"detail\":\"Short\",\"cut\":["
				     "{\"id\":\"000000000000000a\",\"hz\":97,\"hzNow\":12,"
				     "\"since\":\"2001-09-09T01:46:41Z\"},"
				     "{\"id\":\"000000000000000b\",\"hz\":1000,\"hzNow\":0}]}");
	free(printed);
	cJSON_Delete(status);
	expect_conditions(&in, "Ready True Ready|ConfigApplied True Applied|TracersLoaded True "
			       "Loaded|Exporting True Exporting|MetadataSynced True Synced|"
			       "WithinBudget False RatesCut");
	node_status_budget_text(in.event, text, sizeof(text));
	assert_string_equal(text, "Within 0.5 % of all CPUs 2 of 7 policies sample less than they "
				  "ask, some of them not at all.");
	budget.exhausted = true;
	expect_conditions(&in, "Ready True Ready|ConfigApplied True Applied|TracersLoaded True "
			       "Loaded|Exporting True Exporting|MetadataSynced True Synced|"
			       "WithinBudget False BudgetExhausted");
	parts.report.budget = NULL;
}

static void test_a_probe_says_why_it_is_not_attached(void **state)
{
	const struct node_status_input in = good();
	Kiln__Node__V1__Probe probe[2] = {KILN__NODE__V1__PROBE__INIT, KILN__NODE__V1__PROBE__INIT},
			      *probes[] = {&probe[0], &probe[1]};
	cJSON *status;
	char *text;

	probe[0].name = (char *)"uprobe:/lib/libc.so.6:malloc";
	probe[0].attached = true;
	probe[1].name = (char *)"kprobe:vfs_read";
	probe[1].reason = (char *)"this kernel has no\nkprobes";
	parts.report.probes = probes;
	parts.report.n_probes = 2;
	status = build(&in);
	text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(status, "probes"));
	assert_string_equal(text,
			    "[{\"name\":\"uprobe:/lib/libc.so.6:malloc\",\"state\":\"Attached\"},"
			    "{\"name\":\"kprobe:vfs_read\",\"state\":\"Failing\","
			    "\"reason\":\"this kernel has no?kprobes\"}]");
	free(text);
	cJSON_Delete(status);
}

static void test_a_status_is_all_that_was_reported(void **state)
{
	const struct node_status_input in = good();
	cJSON *status = build(&in);
	char *text;

	cJSON_DeleteItemFromObject(status, "conditions");
	text = cJSON_PrintUnformatted(status);
	assert_string_equal(
	    text, "{\"cgroupMode\":\"v2\",\"agentVersion\":\"0.1.0\",\"kernel\":\"6.1.0\","
		  "\"runtime\":\"containerd\",\"operator\":\"operator-0_1\","
		  "\"lastReportTime\":\"2001-09-09T01:46:40Z\",\"configHash\":\"00ff\","
		  "\"samples\":12,\"dropped\":0,\"truncated\":0,\"exported\":0,"
		  "\"unresolvedContainers\":0,"
		  "\"tracers\":[{\"name\":\"native\",\"state\":\"Loaded\"},"
		  "{\"name\":\"python\",\"state\":\"Loaded\"}],"
		  "\"exporters\":[{\"name\":\"main\",\"state\":\"Healthy\"},"
		  "{\"name\":\"shop/x\",\"state\":\"Healthy\"}],"
		  "\"policies\":[{\"id\":\"fedcba9876543210\",\"containers\":3},"
		  "{\"id\":\"fedcba9876543211\",\"containers\":0}]}");
	free(text);
	cJSON_Delete(status);
	expect_conditions(&in, WELL);
}

static void test_each_condition_has_its_cause(void **state)
{
	struct node_status_input in = good();

	parts.exporter[1].healthy = false; /* a tenant's: that is no fault of the node */
	expect_conditions(&in, WELL);
	in = good();
	parts.exporter[0].healthy = false;
	expect_conditions(&in, "Ready False ExportFailing|ConfigApplied True Applied|TracersLoaded "
			       "True Loaded|Exporting False ExportFailing|MetadataSynced True "
			       "Synced|WithinBudget True NoBudget");
	in = good();
	in.wanted_hash = "00fe";
	expect_conditions(&in, "Ready False OldConfig|ConfigApplied False OldConfig|TracersLoaded "
			       "True Loaded|Exporting True Exporting|MetadataSynced True "
			       "Synced|WithinBudget True NoBudget");
	in = good();
	parts.tracer[1].state = UNAVAILABLE; /* tells, and keeps nobody from profiling */
	expect_conditions(&in, "Ready True Ready|ConfigApplied True Applied|TracersLoaded False "
			       "TracersUnavailable|Exporting True Exporting|MetadataSynced True "
			       "Synced|WithinBudget True NoBudget");
	in = good();
	in.connected = false;
	expect_conditions(&in, "Ready Unknown Disconnected|ConfigApplied True Applied|"
			       "TracersLoaded True Loaded|Exporting True Exporting|"
			       "MetadataSynced Unknown Disconnected|WithinBudget True NoBudget");
	in = good();
	parts.event.report = NULL;
	expect_conditions(&in, "Ready Unknown NotKnown|ConfigApplied Unknown NotKnown|"
			       "TracersLoaded Unknown NotKnown|Exporting Unknown NotKnown|"
			       "MetadataSynced Unknown NotKnown|WithinBudget Unknown NotKnown");
	in = good(); /* an agent that cannot tell its hash is not degraded for that */
	parts.report.config_hash = (char *)"";
	expect_conditions(&in, "Ready True Ready|ConfigApplied Unknown NotKnown|TracersLoaded True "
			       "Loaded|Exporting True Exporting|MetadataSynced True "
			       "Synced|WithinBudget True NoBudget");
}

#define STRING(o, key) cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, key))

/* "shop/x" with two settings is one destination, which fails when either does. */
static void test_a_tenants_settings_are_told_as_one(void **state)
{
	for (int bad = -1; bad < 2; bad++) {
		struct node_status_input in = good();
		cJSON *status, *list;

		for (int i = 0; i < 2; i++) {
			parts.exporter[i].destination =
			    (char *)(i ? "shop/x@0badcafe" : "shop/x@00000001");
			parts.exporter[i].healthy = i != bad;
			parts.exporter[i].error = (char *)"refused";
		}
		status = build(&in);
		list = cJSON_GetObjectItemCaseSensitive(status, "exporters");
		assert_int_equal(cJSON_GetArraySize(list), 1);
		assert_string_equal(STRING(cJSON_GetArrayItem(list, 0), "name"), "shop/x");
		assert_string_equal(STRING(cJSON_GetArrayItem(list, 0), "state"),
				    bad < 0 ? "Healthy" : "Failing");
		cJSON_Delete(status);
	}
}

static void put_node(struct node_store *store, const char *name, const char *exporters)
{
	_cleanup_free_ char *text = NULL;
	struct kube_item item = {.encoding = KUBE_JSON};

	assert_true(asprintf(&text,
			     "{\"metadata\":{\"name\":\"%s\"},\"status\":{\"exporters\":[%s]}}",
			     name, exporters) > 0);
	item.bytes = (const uint8_t *)text;
	item.len = strlen(text);
	assert_int_equal(node_store_put(store, &item, 1), 0);
}

static void count_turn(void *arg)
{
	(*(unsigned int *)arg)++;
}

static void test_failing_destinations_of_tenants_are_counted(void **state)
{
#define FAILING(name) "{\"name\":\"" name "\",\"state\":\"Failing\"}"
#define HEALTHY(name) "{\"name\":\"" name "\",\"state\":\"Healthy\"}"
	unsigned int turns = 0;
	const struct node_store_options options = {
	    .max_nodes = 9, .turned = count_turn, .arg = &turns};
	struct node_store *store;

	assert_int_equal(node_store_new(&options, &store), 0);
	put_node(store, "a", FAILING("shop/x") "," HEALTHY("shop/y") "," FAILING("main"));
	put_node(store, "b", FAILING("shop/x"));
	assert_int_equal(turns, 2);
	assert_int_equal(node_store_failing(store, "shop", "x"), 2);
	assert_int_equal(node_store_failing(store, "shop", "y"), 0);
	assert_int_equal(node_store_failing(store, "other", "x"), 0);
	put_node(store, "b", HEALTHY("shop/x"));
	assert_int_equal(turns, 3);
	assert_int_equal(node_store_failing(store, "shop", "x"), 1);
	node_store_replaced(store, 2);
	assert_int_equal(node_store_failing(store, "shop", "x"), 0);
	node_store_free(store);
}

static void test_a_condition_keeps_its_time_until_it_turns(void **state)
{
	struct node_status_input in = good();
	struct node_turns turns = {.status = {0}};
	cJSON *status;

	assert_int_equal(node_status_build(&in, &turns, &status), 0);
	cJSON_Delete(status);
	assert_int_equal(turns.since[NODE_READY], 1000000007);
	in.now += 60;
	parts.exporter[0].healthy = false;
	assert_int_equal(node_status_build(&in, &turns, &status), 0);
	cJSON_Delete(status);
	assert_int_equal(turns.since[NODE_READY], 1000000067);
	assert_int_equal(turns.since[NODE_CONFIG_APPLIED], 1000000007);
	assert_int_equal(turns.status[NODE_READY], CONDITION_FALSE);
}

/* What the API server would refuse, an agent may say. */
static void test_foreign_words_are_cut_and_cleaned(void **state)
{
	struct node_status_input in = good();
	char longest[2000], wild[] = "x\n\x1b[31m\xff\xc3\xa9";
	const cJSON *item, *list;
	cJSON *status;

	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	parts.event.kernel = longest;
	parts.event.agent_version = longest;
	parts.event.cgroup_mode = (char *)"v3";
	parts.report.samples = UINT64_MAX;
	parts.tracer[0].name = longest;
	parts.tracer[0].reason = wild;
	parts.tracer[1].name = longest; /* the same once it is cut: a list-map takes one */
	parts.exporter[0].destination = (char *)"";
	parts.exporter[1].healthy = false;
	parts.exporter[1].error = longest;
	parts.policy[1].id = parts.policy[0].id;
	status = build(&in);
	assert_int_equal(strlen(STRING(status, "kernel")), 128);
	assert_int_equal(strlen(STRING(status, "agentVersion")), 64);
	assert_null(cJSON_GetObjectItemCaseSensitive(status, "cgroupMode"));
	assert_true(cJSON_GetObjectItemCaseSensitive(status, "samples")->valuedouble ==
		    9007199254740991.0);
	list = cJSON_GetObjectItemCaseSensitive(status, "tracers");
	assert_int_equal(cJSON_GetArraySize(list), 1);
	item = cJSON_GetArrayItem(list, 0);
	assert_int_equal(strlen(STRING(item, "name")), 16);
	assert_string_equal(STRING(item, "reason"), "x??[31m???");
	list = cJSON_GetObjectItemCaseSensitive(status, "exporters");
	assert_int_equal(cJSON_GetArraySize(list), 1);
	assert_int_equal(strlen(STRING(cJSON_GetArrayItem(list, 0), "error")), 256);
	list = cJSON_GetObjectItemCaseSensitive(status, "policies");
	assert_int_equal(cJSON_GetArraySize(list), 1);
	cJSON_Delete(status);
}

static void test_a_report_is_told_from_its_counters(void **state)
{
	struct told k = {NULL};
	Kiln__Node__V1__NodeEvent *got;
	uint64_t facts, counters;

	good();
	assert_int_equal(told_set(&k, &parts.event), 0);
	facts = k.facts;
	counters = k.counters;
	assert_int_equal(told_set(&k, &parts.event), 0);
	assert_true(k.facts == facts && k.counters == counters);
	parts.report.samples++;
	parts.policy[1].containers++;
	parts.event.heard++;
	assert_int_equal(told_set(&k, &parts.event), 0);
	assert_true(k.facts == facts && k.counters != counters);
	parts.exporter[0].healthy = false;
	assert_int_equal(told_set(&k, &parts.event), 0);
	assert_true(k.facts != facts);
	got = told_get(&k);
	assert_int_equal(got->report->samples, 13);
	assert_int_equal(got->report->policies[1]->containers, 1);
	kiln__node__v1__node_event__free_unpacked(got, NULL);
	told_done(&k);
}

static void test_a_report_that_is_too_large_changes_nothing(void **state)
{
	static char huge[TOLD_BYTES_MAX + 1];
	Kiln__Node__V1__AppliedPolicy *many[1000];
	struct told k = {NULL};
	Kiln__Node__V1__NodeEvent *got;
	size_t len;

	good();
	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = &parts.policy[0];
	parts.report.policies = many;
	parts.report.n_policies = ARRAY_SIZE(many);
	assert_int_equal(told_set(&k, &parts.event), 0);
	got = told_get(&k);
	assert_int_equal(got->report->n_policies, TOLD_POLICIES_MAX);
	kiln__node__v1__node_event__free_unpacked(got, NULL);
	len = k.len;
	memset(huge, 'a', sizeof(huge) - 1);
	parts.exporter[0].error = huge;
	assert_int_equal(told_set(&k, &parts.event), -E2BIG);
	assert_int_equal(k.len, len);
	told_done(&k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_who_was_cut_by_the_budget),
	    cmocka_unit_test(test_a_status_is_all_that_was_reported),
	    cmocka_unit_test(test_a_probe_says_why_it_is_not_attached),
	    cmocka_unit_test(test_versions_of_a_runtime),
	    cmocka_unit_test(test_each_condition_has_its_cause),
	    cmocka_unit_test(test_a_tenants_settings_are_told_as_one),
	    cmocka_unit_test(test_failing_destinations_of_tenants_are_counted),
	    cmocka_unit_test(test_a_condition_keeps_its_time_until_it_turns),
	    cmocka_unit_test(test_foreign_words_are_cut_and_cleaned),
	    cmocka_unit_test(test_a_report_is_told_from_its_counters),
	    cmocka_unit_test(test_a_report_that_is_too_large_changes_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
