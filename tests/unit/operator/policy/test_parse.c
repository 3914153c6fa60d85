/* SPDX-License-Identifier: Apache-2.0 */
/* What is accepted ends in the struct: every field once, and what absent fields look like. */
#include "tests/unit/operator/policy/support.h"

static const char full_cluster[] =
    "{'defaults':{'mode':'OptIn','sampling':{'hz':97},'offCPU':{'mode':'Enabled','perMille':10},"
    "'tracers':{'native':'Enabled','go':'Disabled','jvm':'Auto','python':'Enabled','v8':'Disabled',"
    "'ruby':'Auto','php':'Enabled','perl':'Disabled','dotnet':'Enabled',"
    "'beam':'Disabled','luajit':'Auto'},"
    "'destinationRefs':['main','log']},"
    "'metadata':{'clusterName':'gke_a_b:c/"
    "d','wellKnownLabels':'Enabled','otelAnnotations':'Disabled','podLabels':['team'],"
    "'podAnnotations':['a/b','c'],'namespaceLabels':['d'],'namespaceAnnotations':[]},"
    "'destinations':[{'name':'main','otlp':{'endpoint':'otel.obs:4317','protocol':'GRPC',"
    "'compression':'Zstd','timeoutSeconds':9,'tls':{'mode':'Verify','serverName':'otel',"
    "'caSecretRef':{'name':'ca','key':'ca.crt'},'clientCertificateSecretRef':{'name':'client'}},"
    "'headers':[{'name':'x-tenant','value':'a b'}],"
    "'headersFrom':[{'name':'authorization','secretRef':{'name':'token','key':'t'}}],"
    "'protoGeneration':'G5'}},{'name':'log','text':{}},"
    "{'name':'web','otlp':{'endpoint':'http://x/p','protocol':'HTTP','compression':'None'}}],"
    "'guardrails':{'namespaceSelector':{'matchLabels':{'kiln':'yes'},'matchExpressions':[{'key':'"
    "env',"
    "'operator':'NotIn','values':['a','b']},{'key':'x','operator':'Exists'}]},"
    "'sampling':{'minHz':5,'maxHz':500},'offCPU':{'mode':'Forbidden','maxPerMille':50},"
    "'deniedTracers':['go','dotnet'],'allowedDestinations':['log'],"
    "'tenantDestinations':'SameNamespaceSecret','tenantEndpoints':['a.b','*.c:1','[::1]:65535'],"
    "'podOptOut':'Forbidden'},"
    "'agent':{'image':'r/kiln:1','imagePullPolicy':'Never','imagePullSecrets':[{'name':'s'}],"
    "'securityMode':'Privileged','nodeSelector':{'a':'b'},"
    "'tolerations':[{'operator':'Exists'},{'key':'k','value':'v','effect':'NoExecute','"
    "tolerationSeconds':5}],"
    "'resources':{'requests':{'cpu':'100m','memory':'64Mi'},'limits':{'cpu':2}},"
    "'priorityClassName':'high','updateStrategy':{'maxUnavailable':'5%'},'logLevel':'Warn',"
    "'reportIntervalSeconds':7,'podLabels':{'l':'m'},'podAnnotations':{'n':'any thing'},"
    "'metricsService':'Disabled','networkPolicy':'Enabled'},"
    "'nodeGroups':[{'name':'gpu','nodeSelector':{'matchLabels':{'pool':'gpu'}},'sampling':{'hz':50}"
    ","
    "'agent':{'updateStrategy':{'maxUnavailable':3}}},"
    "{'name':'arm','nodeSelector':{'matchLabels':{'arch':'arm64','pool':'x'}}}],"
    "'probes':[{'probe':'uprobe:/lib/c:malloc','rate':250},{'probe':'kprobe:vfs_read'}]}";

static void check_destinations(const struct cluster_config *c)
{
	const struct destination *d = c->destinations;

	assert_int_equal(c->n_destinations, 3);
	assert_string_equal(d->name, "main");
	assert_int_equal(d->type, DESTINATION_OTLP);
	assert_string_equal(d->endpoint, "otel.obs:4317");
	assert_int_equal(d->protocol, OTLP_GRPC);
	assert_string_equal(d->compression, "zstd");
	assert_int_equal(d->timeout_s, 9);
	assert_int_equal(d->tls, TLS_VERIFY);
	assert_string_equal(d->server_name, "otel");
	assert_string_equal(d->ca.name, "ca");
	assert_string_equal(d->ca.key, "ca.crt");
	assert_string_equal(d->client_certificate_secret, "client");
	assert_int_equal(d->n_headers, 2);
	assert_string_equal(d->headers[0].name, "x-tenant");
	assert_string_equal(d->headers[0].value, "a b");
	assert_null(d->headers[0].ref.name);
	assert_string_equal(d->headers[1].name, "authorization");
	assert_null(d->headers[1].value);
	assert_string_equal(d->headers[1].ref.name, "token");
	assert_string_equal(d->headers[1].ref.key, "t");
	assert_string_equal(d->proto_generation, "g5");
	assert_int_equal(d[1].type, DESTINATION_TEXT);
	assert_null(d[1].endpoint);
	assert_int_equal(d[2].protocol, OTLP_HTTP);
	assert_string_equal(d[2].compression, "none");
	assert_int_equal(d[2].timeout_s, NUMBER_ABSENT);
	/* http:// says it. */
	assert_int_equal(d[2].tls, TLS_PLAINTEXT);
}

static void check_guardrails(const struct guardrails *g)
{
	const struct selector_requirement *q = g->namespaces.requirements;

	assert_true(g->namespaces.set);
	assert_int_equal(g->namespaces.n, 3);
	assert_string_equal(q[0].key, "kiln");
	assert_int_equal(q[0].op, SELECTOR_IN);
	assert_int_equal(q[0].n_values, 1);
	assert_string_equal(q[0].values[0], "yes");
	assert_int_equal(q[1].op, SELECTOR_NOT_IN);
	assert_int_equal(q[1].n_values, 2);
	assert_string_equal(q[1].values[1], "b");
	assert_int_equal(q[2].op, SELECTOR_EXISTS);
	assert_int_equal(q[2].n_values, 0);
	assert_int_equal(g->min_hz, 5);
	assert_int_equal(g->max_hz, 500);
	assert_true(g->off_cpu_forbidden);
	assert_int_equal(g->max_off_cpu_per_mille, 50);
	for (size_t i = 0; i < TRACER_COUNT; i++)
		assert_int_equal(g->tracer_denied[i], i == TRACER_GO || i == TRACER_DOTNET);
	assert_true(g->allowed_destinations.set);
	assert_string_equal(g->allowed_destinations.items[0], "log");
	assert_true(g->tenant_destinations);
	assert_true(g->pod_opt_out_forbidden);
}

static void check_agent(const struct cluster_config *c)
{
	const struct agent_spec *a = &c->agent;
	char *text;

	assert_string_equal(a->image, "r/kiln:1");
	assert_string_equal(a->image_pull_policy, "Never");
	assert_string_equal(a->security_mode, "Privileged");
	assert_string_equal(a->priority_class, "high");
	assert_string_equal(a->max_unavailable, "5%");
	assert_string_equal(a->log_level, "Warn");
	assert_int_equal(a->report_interval_s, 7);
	assert_int_equal(a->metrics_service, TOGGLE_DISABLED);
	assert_int_equal(a->network_policy, TOGGLE_ENABLED);
	text = cJSON_PrintUnformatted(a->tolerations);
	assert_string_equal(text, "[{\"operator\":\"Exists\"},{\"key\":\"k\",\"value\":\"v\","
				  "\"effect\":\"NoExecute\",\"tolerationSeconds\":5}]");
	cJSON_free(text);
	text = cJSON_PrintUnformatted(a->resources);
	assert_string_equal(text, "{\"requests\":{\"cpu\":\"100m\",\"memory\":\"64Mi\"},"
				  "\"limits\":{\"cpu\":2}}");
	cJSON_free(text);
	assert_non_null(cJSON_GetObjectItem(a->node_selector, "a"));
	assert_non_null(cJSON_GetObjectItem(a->pod_labels, "l"));
	assert_non_null(cJSON_GetObjectItem(a->pod_annotations, "n"));
	assert_int_equal(cJSON_GetArraySize(a->image_pull_secrets), 1);
	assert_int_equal(c->n_groups, 2);
	assert_string_equal(c->groups[0].name, "gpu");
	assert_int_equal(c->groups[0].hz, 50);
	assert_string_equal(c->groups[0].nodes.requirements[0].values[0], "gpu");
	assert_string_equal(c->groups[0].agent.max_unavailable, "3");
	assert_int_equal(c->groups[1].hz, NUMBER_ABSENT);
	assert_int_equal(c->groups[1].nodes.n, 2);
	assert_int_equal(c->groups[1].agent.report_interval_s, NUMBER_ABSENT);
	assert_null(c->groups[1].agent.image);
}

static void test_every_field(void **state)
{
	static const enum toggle tracers[] = {TOGGLE_ENABLED,  TOGGLE_DISABLED, TOGGLE_AUTO,
					      TOGGLE_ENABLED,  TOGGLE_DISABLED, TOGGLE_AUTO,
					      TOGGLE_ENABLED,  TOGGLE_DISABLED, TOGGLE_ENABLED,
					      TOGGLE_DISABLED, TOGGLE_AUTO};
	struct cluster_config *c = cluster_of(full_cluster);

	assert_string_equal(c->id.name, "cluster");
	assert_string_equal(c->id.ns, "");
	assert_string_equal(c->id.uid, "");
	assert_int_equal(c->defaults.mode, MODE_OPT_IN);
	assert_int_equal(c->defaults.hz, 97);
	assert_int_equal(c->defaults.off_cpu, TOGGLE_ENABLED);
	assert_int_equal(c->defaults.off_cpu_per_mille, 10);
	for (size_t i = 0; i < TRACER_COUNT; i++)
		assert_int_equal(c->defaults.tracers[i], tracers[i]);
	assert_true(c->defaults.destination_refs.set);
	assert_int_equal(c->defaults.destination_refs.n, 2);
	assert_string_equal(c->defaults.destination_refs.items[1], "log");
	assert_string_equal(c->metadata.cluster_name, "gke_a_b:c/d");
	assert_int_equal(c->metadata.well_known_labels, TOGGLE_ENABLED);
	assert_int_equal(c->metadata.otel_annotations, TOGGLE_DISABLED);
	assert_string_equal(c->metadata.pod_labels.items[0], "team");
	assert_string_equal(c->metadata.pod_annotations.items[1], "c");
	assert_string_equal(c->metadata.namespace_labels.items[0], "d");
	assert_true(c->metadata.namespace_annotations.set);
	assert_int_equal(c->metadata.namespace_annotations.n, 0);
	assert_int_equal(c->n_probes, 2);
	assert_string_equal(c->probes[0].probe, "uprobe:/lib/c:malloc");
	assert_int_equal(c->probes[0].rate, 250);
	assert_int_equal(c->probes[1].rate, NUMBER_ABSENT);
	check_destinations(c);
	check_guardrails(&c->guardrails);
	check_agent(c);
	cluster_config_free(c);
}

static void test_absent_fields(void **state)
{
	struct cluster_config *c = cluster_of("{}");
	struct namespace_config *n = config_of("prod", "a", 0, "{}");

	assert_int_equal(c->defaults.mode, MODE_ABSENT);
	assert_int_equal(c->defaults.hz, NUMBER_ABSENT);
	assert_int_equal(c->defaults.off_cpu_per_mille, NUMBER_ABSENT);
	assert_false(c->defaults.destination_refs.set);
	assert_null(c->metadata.cluster_name);
	assert_int_equal(c->metadata.well_known_labels, TOGGLE_DISABLED);
	assert_int_equal(c->metadata.otel_annotations, TOGGLE_ENABLED);
	assert_int_equal(c->guardrails.min_hz, 1);
	assert_int_equal(c->guardrails.max_hz, 1000);
	assert_int_equal(c->guardrails.max_off_cpu_per_mille, 1000);
	assert_false(c->guardrails.allowed_destinations.set);
	assert_int_equal(c->agent.report_interval_s, NUMBER_ABSENT);
	assert_false(n->pods.set);
	assert_int_equal(n->priority, 0);
	cluster_config_free(c);
	namespace_config_free(n);
}

static void test_identity(void **state)
{
	static const struct {
		const char *when;
		int64_t want;
	} times[] = {
	    {"1970-01-01T00:00:00Z", 0},	  {"1970-03-01T00:00:01Z", 5097601},
	    {"2000-02-29T12:00:00Z", 951825600},  {"2000-03-01T00:00:00Z", 951868800},
	    {"2024-12-31T23:59:59Z", 1735689599}, {"2026-11-21T11:15:02Z", 1795259702},
	    {"2100-03-01T00:00:00Z", 4107542400}, {"1969-12-31T23:59:59Z", -1},
	};

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		_cleanup_free_ char *text = NULL;
		struct namespace_config *c = NULL;
		struct error err = {0};
		cJSON *object;

		assert_true(asprintf(&text,
				     "{'metadata':{'name':'a','namespace':'prod','uid':'u-1',"
				     "'generation':9007199254740991,'creationTimestamp':'%s'},"
				     "'spec':{}}",
				     times[i].when) > 0);
		object = json_of(text);
		assert_int_equal(namespace_config_parse(object, &c, &err), 0);
		assert_string_equal(c->id.ns, "prod");
		assert_string_equal(c->id.uid, "u-1");
		assert_true(c->id.generation == INT64_C(9007199254740991));
		if (c->id.created != times[i].want)
			fail_msg("%s: %ld", times[i].when, (long)c->id.created);
		namespace_config_free(c);
		cJSON_Delete(object);
	}
}

static void test_file_without_namespace_is_of_default(void **state)
{
	cJSON *object = json_of("{'metadata':{'name':'a'},'spec':{}}");
	struct namespace_config *c = NULL;

	assert_int_equal(namespace_config_parse(object, &c, NULL), 0);
	assert_string_equal(c->id.ns, "default");
	namespace_config_free(c);
	cJSON_Delete(object);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_field),
	    cmocka_unit_test(test_absent_fields),
	    cmocka_unit_test(test_identity),
	    cmocka_unit_test(test_file_without_namespace_is_of_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
