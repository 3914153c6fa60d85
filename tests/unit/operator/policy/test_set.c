/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a policy set: verdicts with their exact text, ids, revisions, rates, removal. */
#include "tests/unit/operator/policy/support.h"

#define DESTINATIONS                                                                               \
	"'destinations':[{'name':'main','otlp':{'endpoint':'otel:4317'}},{'name':'log','text':{}}" \
	"]"
#define MINE "'destinations':[{'name':'mine','otlp':{'endpoint':'x:1'}}]"

static const struct {
	const char *cluster, *spec, *want;
} verdicts[] = {
    {"{}", "{}", "Accepted: accepted"},
    {NULL, "{}",
     "NoClusterConfig: there is no ClusterProfilingConfig cluster: nothing is profiled"},
    {"{'guardrails':{'sampling':{'maxHz':97}}}", "{'profile':{'sampling':{'hz':97}}}",
     "Accepted: accepted"},
    {"{'guardrails':{'sampling':{'maxHz':97}}}", "{'profile':{'sampling':{'hz':499}}}",
     "Accepted: accepted; the guard-rails changed sampling.hz\n"
     "sampling.hz 499 -> 97: guardrails.sampling.maxHz is 97"},
    {"{'guardrails':{'sampling':{'minHz':10}}}", "{'profile':{'sampling':{'hz':9}}}",
     "Accepted: accepted; the guard-rails changed sampling.hz\n"
     "sampling.hz 9 -> 10: guardrails.sampling.minHz is 10"},
    /* The rate comes from the cluster's defaults, so the config is not told of the change. */
    {"{'defaults':{'sampling':{'hz':200}},'guardrails':{'sampling':{'maxHz':97}}}", "{}",
     "Accepted: accepted"},
    {"{'guardrails':{'offCPU':{'mode':'Forbidden','maxPerMille':50}}}",
     "{'profile':{'offCPU':{'mode':'Enabled','perMille':51}}}",
     "Accepted: accepted; the guard-rails changed 2 fields\n"
     "offCPU.mode Enabled -> Disabled: guardrails.offCPU.mode is Forbidden\n"
     "offCPU.perMille 51 -> 50: guardrails.offCPU.maxPerMille is 50"},
    {"{'guardrails':{'offCPU':{'mode':'Forbidden'}}}",
     "{'profile':{'offCPU':{'mode':'Disabled','perMille':51}}}", "Accepted: accepted"},
    {"{'guardrails':{'deniedTracers':['go','python','perl']}}",
     "{'profile':{'tracers':{'go':'Auto','python':'Enabled','perl':'Disabled','jvm':'Enabled'}}}",
     "Accepted: accepted; the guard-rails changed 2 fields\n"
     "tracers.go Auto -> Disabled: guardrails.deniedTracers has go\n"
     "tracers.python Enabled -> Disabled: guardrails.deniedTracers has python"},
    {"{" DESTINATIONS ",'guardrails':{'allowedDestinations':['log']}}",
     "{'profile':{'destinationRefs':['main','log']}}",
     "Accepted: accepted; the guard-rails changed destinationRefs\n"
     "destinationRefs main, log -> log: main: guardrails.allowedDestinations does not name it"},
    {"{" DESTINATIONS "}", "{" MINE ",'profile':{'destinationRefs':['mine']}}",
     "Accepted: accepted; the guard-rails changed 2 fields\n"
     "destinationRefs mine -> none: mine: guardrails.tenantDestinations is Forbidden\n"
     "destinations mine -> none: mine: guardrails.tenantDestinations is Forbidden"},
    {"{" DESTINATIONS ",'guardrails':{'tenantDestinations':'SameNamespaceSecret'}}",
     "{" MINE ",'profile':{'destinationRefs':['mine','main']}}", "Accepted: accepted"},
    {"{" DESTINATIONS ",'guardrails':{'tenantDestinations':'SameNamespaceSecret',"
     "'tenantEndpoints':['elsewhere','*.elsewhere']}}",
     "{" MINE ",'profile':{'destinationRefs':['mine','main']}}",
     "Accepted: accepted; the guard-rails changed 2 fields\n"
     "destinationRefs mine, main -> main: mine: its endpoint is not in "
     "guardrails.tenantEndpoints\n"
     "destinations mine -> none: mine: its endpoint is not in guardrails.tenantEndpoints"},
    {"{" DESTINATIONS "}", "{" MINE ",'profile':{'destinationRefs':['main','mian']}}",
     "DestinationNotFound: spec.profile.destinationRefs[1]: want the name of a destination of the "
     "cluster's or of spec.destinations, got \"mian\"; did you mean main? Nothing is sent there; "
     "the rest "
     "of the config is in effect"},
    {"{" DESTINATIONS "}", "{'profile':{'destinationRefs':['elsewhere']}}",
     "DestinationNotFound: spec.profile.destinationRefs[0]: want the name of a destination of the "
     "cluster's or of spec.destinations, got \"elsewhere\". Nothing is sent there; the rest of the "
     "config is in effect"},
};

static void test_verdicts(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++) {
		struct policy_set *set = set_of(verdicts[i].cluster);
		const char *got;

		put(set, "prod", "a", 1, verdicts[i].spec);
		got = verdict_of(set, "prod", "a");
		if (!streq(got, verdicts[i].want))
			fail_msg("%s:\nwant %s\ngot  %s", verdicts[i].spec, verdicts[i].want, got);
		policy_set_free(set);
	}
}

static void test_verdict_of_the_cluster(void **state)
{
	struct policy_set *set = set_of(NULL);

	assert_string_equal(verdict_of(set, "", "cluster"), "none");
	assert_int_equal(
	    policy_set_cluster(
		set,
		cluster_of("{'defaults':{'sampling':{'hz':200},'tracers':{'go':'Auto'}},"
			   "'guardrails':{'sampling':{'maxHz':97},'deniedTracers':['go']},"
			   "'nodeGroups':[{'name':'a','nodeSelector':{'matchLabels':{'x':'y'}}},"
			   "{'name':'b','nodeSelector':{'matchLabels':{'x':'z'}},"
			   "'sampling':{'hz':98}}]}")),
	    0);
	assert_string_equal(
	    verdict_of(set, "", "cluster"),
	    "Accepted: accepted; the guard-rails changed 3 fields\n"
	    "defaults.sampling.hz 200 -> 97: guardrails.sampling.maxHz is 97\n"
	    "defaults.tracers.go Auto -> Disabled: guardrails.deniedTracers has go\n"
	    "nodeGroups[1].sampling.hz 98 -> 97: guardrails.sampling.maxHz is 97");
	put(set, "prod", "a", 1, "{}");
	policy_set_remove(set, "", "cluster");
	assert_int_equal(policy_set_refuse_cluster(set, false, "spec.x: no"), 0);
	assert_string_equal(verdict_of(set, "", "cluster"), "Invalid: spec.x: no");
	assert_string_equal(verdict_of(set, "prod", "a"),
			    "NoClusterConfig: ClusterProfilingConfig cluster is not accepted: "
			    "nothing is profiled");
	assert_null(policy_set_get_cluster(set));
	policy_set_remove(set, "", "cluster");
	assert_string_equal(verdict_of(set, "", "cluster"), "none");
	policy_set_free(set);
}

/* Every field beyond the rails at once, with the longest names: all rows fit. */
static void test_clamps_have_an_end(void **state)
{
	char spec[4096], name[CONFIG_DESTINATIONS_MAX][64];
	struct policy_set *set = NULL;
	struct policy_verdict v;
	size_t n = 0;

	n += (size_t)snprintf(spec + n, sizeof(spec) - n, "{'destinations':[");
	for (size_t i = 0; i < CONFIG_DESTINATIONS_MAX; i++) {
		memset(name[i], 'a' + (int)i, 63);
		name[i][63] = 0;
		n += (size_t)snprintf(spec + n, sizeof(spec) - n, "%s{'name':'%s','text':{}}",
				      i ? "," : "", name[i]);
	}
	snprintf(spec + n, sizeof(spec) - n,
		 "],'guardrails':{'sampling':{'maxHz':1},'offCPU':{'mode':'Forbidden',"
		 "'maxPerMille':0},'deniedTracers':['native','go','jvm','python','v8','ruby',"
		 "'php','perl','dotnet','beam','luajit'],'allowedDestinations':['%s']}}",
		 name[7]);
	set = set_of(spec);
	n = (size_t)snprintf(
	    spec, sizeof(spec),
	    "{" MINE ",'profile':{'sampling':{'hz':2},'offCPU':{'mode':'Enabled','perMille':1},"
	    "'tracers':{'native':'Auto','go':'Auto','jvm':'Auto','python':'Auto','v8':'Auto',"
	    "'ruby':'Auto','php':'Auto','perl':'Auto','dotnet':'Auto','beam':'Auto','luajit':'Auto'"
	    "},'"
	    "destinationRefs':[");
	for (size_t i = 0; i < CONFIG_DESTINATIONS_MAX; i++)
		n += (size_t)snprintf(spec + n, sizeof(spec) - n, "%s'%s'", i ? "," : "", name[i]);
	snprintf(spec + n, sizeof(spec) - n, "]}}");
	put(set, "prod", "a", 1, spec);
	assert_int_equal(policy_verdict(set, "prod", "a", &v), 0);
	assert_int_equal(v.n_clamped, 16);
	assert_string_equal(v.clamped[14].field, "destinationRefs");
	assert_int_equal(strlen(v.clamped[14].requested), sizeof(v.clamped[14].requested) - 1);
	assert_string_equal(v.clamped[14].requested + sizeof(v.clamped[14].requested) - 4, "...");
	assert_string_equal(v.clamped[14].effective, name[7]);
	assert_string_equal(v.clamped[15].field, "destinations");
	policy_set_free(set);
}

static void test_conflict_moves_on(void **state)
{
	static const char conflict[] = "Conflict: spec.podSelector: absent, as in b, which is the "
				       "namespace's default: of several the oldest counts";
	struct policy_set *set = set_of("{}");

	put(set, "prod", "a", 9, "{}");
	put(set, "prod", "b", 3, "{'profile':{'sampling':{'hz':7}}}");
	put(set, "prod", "c", 5, "{}");
	put(set, "prod", "d", 1, "{'podSelector':{'matchLabels':{'a':'b'}}}");
	put(set, "dev", "e", 1, "{}");
	assert_string_equal(verdict_of(set, "prod", "a"), conflict);
	assert_string_equal(verdict_of(set, "prod", "b"), "Accepted: accepted");
	assert_string_equal(verdict_of(set, "prod", "c"), conflict);
	assert_string_equal(verdict_of(set, "prod", "d"), "Accepted: accepted");
	assert_string_equal(verdict_of(set, "dev", "e"), "Accepted: accepted");
	policy_set_remove(set, "prod", "b");
	assert_string_equal(verdict_of(set, "prod", "b"), "none");
	assert_string_equal(verdict_of(set, "prod", "c"), "Accepted: accepted");
	policy_set_remove(set, "prod", "c");
	assert_string_equal(verdict_of(set, "prod", "a"), "Accepted: accepted");
	policy_set_free(set);
}

static void test_destinations_that_come_and_go(void **state)
{
	struct policy_set *set = set_of("{}");

	put(set, "prod", "a", 1, "{'profile':{'sampling':{'hz':7},'destinationRefs':['main']}}");
	assert_true(has_prefix(verdict_of(set, "prod", "a"), "DestinationNotFound: "));
	assert_string_equal(resolved(set, "prod", NULL, NULL, NULL),
			    "on hz=7 off=0 tracers=aaaaaaaaaaa to= by=a");
	put(set, "dev", "b", 1, "{'profile':{'mode':'Disabled','destinationRefs':['main']}}");
	assert_true(has_prefix(resolved(set, "dev", NULL, NULL, NULL), "off "));
	assert_int_equal(policy_set_cluster(set, cluster_of("{" DESTINATIONS "}")), 0);
	assert_string_equal(verdict_of(set, "prod", "a"), "Accepted: accepted");
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "on hz=7 "));
	assert_int_equal(policy_set_cluster(set, NULL), 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "off "));
	policy_set_free(set);
}

/* Which pods a refused config keeps from being profiled: results for "app=a" and "app=b". */
static void test_a_refused_config_never_profiles(void **state)
{
#define A "'podSelector':{'matchLabels':{'app':'a'}}"
	static const struct {
		const char *spec, *a, *b;
	} table[] = {
	    {"{" A ",'profile':{'mode':'Disabled','sampling':{'hz':0}}}", "off ", "on "},
	    {"{'profile':{'mode':'Disabled','sampling':{'hz':0}}}", "off ", "off "},
	    {"{" A ",'profile':{'mode':'Enabled','sampling':{'hz':0}}}", "off ", "on "},
	    {"{" A ",'profile':[]}", "off ", "on "},
	    {"{'podSelector':{'matchLabels':{'a b':'c'}},'profile':{'mode':'Disabled'}}", "off ",
	     "off "},
	    {"{'podSelector':{'matchLabels':{'a b':'c'}},'profile':{'mode':'Enabled'}}", "off ",
	     "off "},
	    {"{" A ",'priority':5000,'profile':{'mode':'Disabled'}}", "off ", "off "},
	    {"7", "off ", "off "},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct policy_set *set = set_of("{}");

		put(set, "prod", "all", 9, "{'podSelector':{},'priority':0}");
		put(set, "prod", "young", 9, "{}");
		assert_int_equal(refuse(set, "prod", "x", 1, table[i].spec, "why"), 0);
		if (!has_prefix(resolved(set, "prod", "app=a", NULL, NULL), table[i].a))
			fail_msg("%s: app=a", table[i].spec);
		/*
		 * Without the namespace's default ("all"), which is a lower layer, the config of
		 * the pods may enable.
		 */
		policy_set_remove(set, "prod", "all");
		if (!has_prefix(resolved(set, "prod", "app=b", NULL, NULL), table[i].b))
			fail_msg("%s: app=b", table[i].spec);
		assert_true(has_prefix(resolved(set, "dev", "app=a", NULL, NULL), "on "));
		assert_string_equal(verdict_of(set, "prod", "x"),
				    "Invalid: why; its pods are not profiled");
		policy_set_free(set);
	}
}

static void test_a_refused_config_keeps_its_last_good_version(void **state)
{
	struct policy_set *set = set_of("{}");

	put(set, "prod", "x", 1, "{'profile':{'sampling':{'hz':7}}}");
	assert_int_equal(refuse(set, "prod", "x", 1, "{'profile':{'sampling':{'hz':0}}}", "why"),
			 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "on hz=7 "));
	assert_string_equal(verdict_of(set, "prod", "x"),
			    "Invalid: why; the last accepted version stays in effect");
	assert_int_equal(refuse(set, "prod", "x", 1, "{'profile':{'mode':'Disabled'}}", "worse"),
			 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "off "));
	/* The version before is forgotten; only a good one starts profiling again. */
	assert_int_equal(refuse(set, "prod", "x", 1, "{'profile':{'mode':'Enabled'}}", "bad"), 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "off "));
	put(set, "prod", "x", 1, "{'profile':{'sampling':{'hz':8}}}");
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "on hz=8 "));
	assert_string_equal(verdict_of(set, "prod", "x"), "Accepted: accepted");
	policy_set_free(set);
}

static void test_a_refused_cluster_config(void **state)
{
	struct policy_set *set = set_of("{'defaults':{'sampling':{'hz':7}}}");

	put(set, "dev", "x", 1, "{'profile':{'mode':'Enabled'}}");
	assert_int_equal(policy_set_refuse_cluster(set, false, "why"), 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "on hz=7 "));
	assert_int_equal(policy_set_refuse_cluster(set, true, "why"), 0);
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "off "));
	assert_true(has_prefix(resolved(set, "dev", NULL, NULL, NULL), "on hz=7 "));
	policy_set_free(set);
}

static void test_a_closed_namespace_is_off(void **state)
{
	struct policy_set *set = set_of("{}");

	assert_int_equal(policy_set_close(set, "evil", true), 0);
	assert_true(has_prefix(resolved(set, "evil", NULL, NULL, NULL), "off "));
	put(set, "evil", "a", 1, "{'profile':{'sampling':{'hz':999}}}");
	assert_true(has_prefix(resolved(set, "evil", NULL, NULL, NULL), "off "));
	assert_true(has_prefix(resolved(set, "shop", NULL, NULL, NULL), "on "));
	assert_true(has_prefix(verdict_of(set, "evil", "a"), "NamespaceOverQuota: the "));
	assert_true(has_prefix(verdict_of(set, "evil", "had-no-room"), "NamespaceOverQuota: the "));
	assert_int_equal(policy_set_max_hz(set), 20);
	policy_set_remove(set, "evil", "a");
	assert_true(has_prefix(resolved(set, "evil", NULL, NULL, NULL), "off "));
	assert_int_equal(policy_set_close(set, "evil", false), 0);
	assert_true(has_prefix(resolved(set, "evil", NULL, NULL, NULL), "on "));
	policy_set_free(set);
}

static void test_a_verdict_names_the_effective_policy(void **state)
{
	struct policy_set *set = set_of("{}");
	const struct effective_policy *p;
	struct policy_verdict v;
	struct pod pod;

	put(set, "prod", "all", 1, "{'profile':{'sampling':{'hz':7}}}");
	put(set, "prod", "off", 1,
	    "{'podSelector':{'matchLabels':{'a':'b'}},'profile':{'mode':"
	    "'Disabled'}}");
	put(set, "prod", "opt", 1,
	    "{'podSelector':{'matchLabels':{'a':'c'}},'profile':{'mode':"
	    "'OptIn'}}");
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"all", "off", "opt"};
		static const char *const labels[] = {"a=a", "a=b", "a=c"};

		pod_init(&pod, "prod", labels[i], NULL, i == 2 ? "enabled" : NULL);
		assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
		assert_int_equal(policy_verdict(set, "prod", names[i], &v), 0);
		assert_true(p->id && v.effective == p->id);
	}
	policy_set_free(set);
}

static void test_unknown_fields_are_told(void **state)
{
	struct policy_set *set = set_of("{'defaults':{'new':1,'sampling':{'hz':7}}}");
	struct policy_verdict v;

	assert_int_equal(policy_verdict(set, "", "cluster", &v), 0);
	assert_true(v.accepted);
	assert_string_equal(v.ineffective, "Ignored: spec.defaults.new: unknown field");
	put(set, "prod", "x", 1, "{'profile':{'sampling':{'hz':8},'sampilng':{}},'y':1}");
	assert_true(has_prefix(resolved(set, "prod", NULL, NULL, NULL), "on hz=8 "));
	assert_int_equal(policy_verdict(set, "prod", "x", &v), 0);
	assert_true(v.accepted);
	assert_string_equal(v.ineffective, "Ignored: spec.profile.sampilng: unknown field; did you "
					   "mean sampling? (and more)");
	policy_set_free(set);
}

static void test_what_agents_cannot_do_is_told(void **state)
{
	struct policy_set *set = set_of("{'defaults':{'offCPU':{'mode':'Enabled','perMille':1}},"
					"'guardrails':{'deniedTracers':['go','php']}}");
	struct policy_verdict v;

	assert_int_equal(policy_verdict(set, "", "cluster", &v), 0);
	assert_string_equal(v.ineffective, "spec.guardrails.deniedTracers: go cannot be disabled");
	put(set, "prod", "x", 1,
	    "{'profile':{'tracers':{'dotnet':'Enabled','ruby':'Auto','perl':'Disabled',"
	    "'v8':'Enabled','native':'Disabled'}}}");
	assert_int_equal(policy_verdict(set, "prod", "x", &v), 0);
	assert_string_equal(v.ineffective,
			    "spec.profile.tracers.native: cannot be disabled, use mode: Disabled");
	put(set, "prod", "y", 1, "{'podSelector':{},'profile':{'tracers':{'jvm':'Auto'}}}");
	assert_int_equal(policy_verdict(set, "prod", "y", &v), 0);
	assert_string_equal(v.ineffective, "");
	policy_set_free(set);
}

static void test_revision_goes_up_with_every_change(void **state)
{
	struct policy_set *set = set_of(NULL);
	uint64_t before = policy_set_revision(set);

#define CHANGED (policy_set_revision(set) > before && ((before = policy_set_revision(set)), true))
	assert_int_equal(policy_set_cluster(set, cluster_of("{}")), 0);
	assert_true(CHANGED);
	put(set, "prod", "a", 1, "{}");
	assert_true(CHANGED);
	put(set, "prod", "a", 1, "{}");
	assert_true(CHANGED);
	resolved(set, "prod", NULL, NULL, NULL);
	verdict_of(set, "prod", "a");
	policy_set_remove(set, "prod", "other");
	policy_set_remove(set, "dev", "a");
	assert_false(CHANGED);
	policy_set_remove(set, "prod", "a");
	assert_true(CHANGED);
	assert_int_equal(refuse(set, "prod", "a", 1, "{}", "cause"), 0);
	assert_true(CHANGED);
	policy_set_remove(set, "", "cluster");
	assert_true(CHANGED);
	policy_set_free(set);
}

static uint64_t id_in(struct policy_set *set, const char *ns, const char *labels, const char *mode)
{
	const struct effective_policy *p;
	struct pod pod;

	pod_init(&pod, ns, labels, NULL, mode);
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	return p->id;
}

/* The ids are written down: they must never change between builds, replicas, orders of arrival. */
static void test_ids_are_of_the_contents(void **state)
{
	struct policy_set *a = set_of("{" DESTINATIONS "}"), *b = set_of(NULL);

	put(a, "prod", "x", 1, "{'profile':{'sampling':{'hz':50}}}");
	put(a, "dev", "y", 2, "{'podSelector':{},'priority':3,'profile':{'sampling':{'hz':50}}}");
	put(b, "dev", "other", 7, "{'profile':{'sampling':{'hz':50}}}");
	id_in(b, "dev", NULL, NULL);
	assert_int_equal(policy_set_cluster(b, cluster_of("{" DESTINATIONS "}")), 0);
	/* The same but for its priority. */
	assert_true(id_in(a, "prod", NULL, NULL) != id_in(a, "dev", "k=v", NULL));
	assert_true(id_in(a, "prod", NULL, NULL) == id_in(b, "dev", NULL, NULL));
	assert_true(id_in(a, "prod", NULL, NULL) != id_in(a, "other", NULL, NULL));
	assert_true(id_in(a, "prod", NULL, "disabled") == id_in(b, "other", NULL, "disabled"));
	assert_true(id_in(a, "prod", NULL, NULL) == UINT64_C(0xaa0c2d32972b5339));
	assert_true(id_in(a, "prod", NULL, "disabled") == UINT64_C(0x7a1b0b057bd589b1));
	policy_set_free(a);
	policy_set_free(b);
}

/* Each of these differs from the others: two policies, two ids. */
static const char *const different[] = {
    "{" DESTINATIONS "}",
    "{" DESTINATIONS ",'defaults':{'sampling':{'hz':21}}}",
    "{" DESTINATIONS ",'defaults':{'offCPU':{'mode':'Enabled','perMille':1}}}",
    "{" DESTINATIONS ",'defaults':{'tracers':{'go':'Enabled'}}}",
    "{" DESTINATIONS ",'defaults':{'tracers':{'go':'Disabled'}}}",
    "{" DESTINATIONS ",'defaults':{'tracers':{'jvm':'Enabled'}}}",
    "{" DESTINATIONS ",'defaults':{'destinationRefs':['log']}}",
    "{" DESTINATIONS ",'defaults':{'destinationRefs':['log','main']}}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318'}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','compression':'Gzip'}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','timeoutSeconds':1}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','protoGeneration':'G4'}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','tls':{'mode':'SkipVerify'}}}]"
    "}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','tls':{'serverName':'x'}}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','tls':{'caSecretRef':"
    "{'name':'x','key':'y'}}}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','tls':{'caSecretRef':"
    "{'name':'x','key':'z'}}}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','tls':"
    "{'clientCertificateSecretRef':{'name':'x'}}}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','headers':[{'name':'a',"
    "'value':'b'}]}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','headers':[{'name':'a',"
    "'value':'c'}]}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'otel:4318','headersFrom':[{'name':'a',"
    "'secretRef':{'name':'b','key':'c'}}]}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'http://otel:4318'}}]}",
    "{'destinations':[{'name':'main','otlp':{'endpoint':'http://otel:4318','protocol':'HTTP'}}]}",
    "{'destinations':[{'name':'nain','otlp':{'endpoint':'otel:4318'}}]}",
};

static void test_different_policies_have_different_ids(void **state)
{
	uint64_t ids[ARRAY_SIZE(different)];
	struct policy_set *set = set_of(NULL);

	for (size_t i = 0; i < ARRAY_SIZE(different); i++) {
		assert_int_equal(policy_set_cluster(set, cluster_of(different[i])), 0);
		ids[i] = id_in(set, "prod", NULL, NULL);
		for (size_t j = 0; j < i; j++)
			if (ids[i] == ids[j])
				fail_msg("%s\n%s", different[i], different[j]);
	}
	policy_set_free(set);
}

/* Two namespaces with a destination of one name are not each other's. */
static void test_tenants_do_not_share_destinations(void **state)
{
	struct policy_set *set =
	    set_of("{'guardrails':{'tenantDestinations':'SameNamespaceSecret'}}");

	put(set, "prod", "a", 1, "{" MINE ",'profile':{'destinationRefs':['mine']}}");
	put(set, "dev", "a", 1, "{" MINE ",'profile':{'destinationRefs':['mine']}}");
	assert_true(id_in(set, "prod", NULL, NULL) != id_in(set, "dev", NULL, NULL));
	assert_string_equal(resolved(set, "dev", NULL, NULL, NULL),
			    "on hz=20 off=0 tracers=aaaaaaaaaaa to=dev/mine by=a");
	policy_set_free(set);
}

#define GROUPS                                                                                     \
	"'nodeGroups':[{'name':'a','nodeSelector':{'matchLabels':{'pool':'a'}},'sampling':"        \
	"{'hz':50}},{'name':'b','nodeSelector':{'matchLabels':{'zone':'z'}}}]"

static void test_node_groups_have_their_rate(void **state)
{
	const struct label both[] = {{"zone", "z"}, {"pool", "a"}}, zone[] = {{"zone", "z"}};
	struct policy_set *set = set_of("{'defaults':{'sampling':{'hz':30}}," GROUPS "}");
	const struct node_group *a = policy_node_group(set, both, 2),
				*b = policy_node_group(set, zone, 1);
	const struct effective_policy *p;
	struct pod pod;

	assert_string_equal(a->name, "a");
	assert_string_equal(b->name, "b");
	assert_null(policy_node_group(set, NULL, 0));
	pod_init(&pod, "prod", NULL, NULL, NULL);
	pod.subject.group = a;
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	assert_int_equal(p->hz, 50);
	pod.subject.group = b;
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	assert_int_equal(p->hz, 30);
	assert_int_equal(policy_group_max_hz(set, a), 50);
	assert_int_equal(policy_group_max_hz(set, b), 30);
	assert_int_equal(policy_group_max_hz(set, NULL), 30);
	assert_int_equal(policy_set_max_hz(set), 50);
	/* The rate of a namespace's config replaces the group's. */
	put(set, "prod", "x", 1, "{'profile':{'sampling':{'hz':40}}}");
	pod.subject.group = a;
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	assert_int_equal(p->hz, 40);
	assert_int_equal(policy_group_max_hz(set, NULL), 40);
	/* A group of a config that was replaced counts as no group. */
	struct node_group gone = *a;

	pod.subject.ns = "dev";
	pod.subject.group = &gone;
	assert_int_equal(policy_resolve(set, &pod.subject, &p, NULL), 0);
	assert_int_equal(p->hz, 30);
	policy_set_free(set);
}

static void test_max_hz(void **state)
{
	struct policy_set *set = set_of(NULL);

	put(set, "prod", "a", 1, "{'profile':{'sampling':{'hz':50}}}");
	assert_int_equal(policy_set_max_hz(set), 0);
	assert_int_equal(
	    policy_set_cluster(set, cluster_of("{'guardrails':{'sampling':{'maxHz':97}}}")), 0);
	assert_int_equal(policy_set_max_hz(set), 50);
	put(set, "prod", "b", 1, "{'podSelector':{},'profile':{'sampling':{'hz':60}}}");
	assert_int_equal(policy_set_max_hz(set), 60);
	put(set, "dev", "b", 1, "{'podSelector':{},'profile':{'sampling':{'hz':999}}}");
	assert_int_equal(policy_set_max_hz(set), 97);
	put(set, "dev", "b", 1,
	    "{'podSelector':{},'profile':{'mode':'Disabled','sampling':{'hz':999}}}");
	assert_int_equal(policy_set_max_hz(set), 60);
	put(set, "dev", "b", 1,
	    "{'podSelector':{},'profile':{'mode':'OptIn','sampling':{'hz':70}}}");
	assert_int_equal(policy_set_max_hz(set), 70);
	put(set, "dev", "b", 1, "{'profile':{'destinationRefs':['x'],'sampling':{'hz':90}}}");
	assert_int_equal(policy_set_max_hz(set), 90);
	assert_int_equal(policy_set_cluster(set, cluster_of("{'defaults':{'mode':'Disabled'}}")),
			 0);
	assert_int_equal(policy_set_max_hz(set), 0);
	policy_set_free(set);
}

static void test_namespaces_that_may(void **state)
{
	const struct label yes[] = {{"kiln", "yes"}};
	struct policy_set *set = set_of(NULL);

	assert_false(policy_namespace_allowed(set, yes, 1));
	assert_int_equal(
	    policy_set_cluster(
		set,
		cluster_of("{'guardrails':{'namespaceSelector':{'matchLabels':{'kiln':'yes'}}}}")),
	    0);
	assert_true(policy_namespace_allowed(set, yes, 1));
	assert_false(policy_namespace_allowed(set, NULL, 0));
	policy_set_free(set);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_verdicts),
	    cmocka_unit_test(test_verdict_of_the_cluster),
	    cmocka_unit_test(test_clamps_have_an_end),
	    cmocka_unit_test(test_conflict_moves_on),
	    cmocka_unit_test(test_destinations_that_come_and_go),
	    cmocka_unit_test(test_a_refused_config_never_profiles),
	    cmocka_unit_test(test_a_refused_config_keeps_its_last_good_version),
	    cmocka_unit_test(test_a_refused_cluster_config),
	    cmocka_unit_test(test_a_closed_namespace_is_off),
	    cmocka_unit_test(test_a_verdict_names_the_effective_policy),
	    cmocka_unit_test(test_unknown_fields_are_told),
	    cmocka_unit_test(test_what_agents_cannot_do_is_told),
	    cmocka_unit_test(test_revision_goes_up_with_every_change),
	    cmocka_unit_test(test_ids_are_of_the_contents),
	    cmocka_unit_test(test_different_policies_have_different_ids),
	    cmocka_unit_test(test_tenants_do_not_share_destinations),
	    cmocka_unit_test(test_node_groups_have_their_rate),
	    cmocka_unit_test(test_max_hz),
	    cmocka_unit_test(test_namespaces_that_may),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
