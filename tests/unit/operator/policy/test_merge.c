/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of docs/policy.md by a small world of configs and what one pod gets in it. */
#include "operator/policy/merge.h"
#include "tests/unit/operator/policy/support.h"

#define MAIN                                                                                       \
	"'destinations':[{'name':'main','otlp':{'endpoint':'otel:4317'}},{'name':'log','text':{}}" \
	"]"
#define AUTO "tracers=aaaaaaaaaaa"
#define OFF  "off hz=0 off=0 tracers=ddddddddddd to= by="

/* The example of docs/policy.md. */
#define EXAMPLE                                                                                    \
	"{'defaults':{'sampling':{'hz':19},'destinationRefs':['main']},'destinations':[{'name':'"  \
	"main','otlp':{'endpoint':'otel.observability:4317'}},{'name':'archive','otlp':{'"         \
	"endpoint':'archive.observability:4317'}}],'guardrails':{'sampling':{'maxHz':97},'"        \
	"deniedTracers':['perl']}}"
#define EXAMPLE_CONFIGS(ns)                                                                        \
	{                                                                                          \
		{ns, "all", 1, "{'profile':{'tracers':{'python':'Disabled'}}}"},                   \
		{                                                                                  \
			ns, "api", 2,                                                              \
			    "{'podSelector':{'matchLabels':{'app':'api'}},'profile':{'sampling':{" \
			    "'hz':499},'destinationRefs':['main','archive']}}"                     \
		}                                                                                  \
	}

struct config_text {
	const char *ns, *name;
	int64_t created;
	const char *spec;
};
struct rule {
	const char *what, *cluster;
	struct config_text configs[6];
	const char *labels, *ns_labels, *mode, *want; /* the pod is in "prod" */
};

static const struct rule rules[] = {
    {"no cluster config: nothing is profiled",
     NULL,
     {{"prod", "a", 1, "{'profile':{'mode':'Enabled'}}"}},
     .want = OFF "cluster"},
    {"the built-in profile", "{}", .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"built-in destinations are all of the cluster's", "{" MAIN "}",
     .want = "on hz=20 off=0 " AUTO " to=main,log by=cluster"},
    {"the cluster's defaults patch the built-in",
     "{" MAIN ",'defaults':{'sampling':{'hz':97},"
     "'offCPU':{'mode':'Enabled','perMille':10},'tracers':{'python':'Disabled'},'destinationRefs':["
     "'log']}}",
     .want = "on hz=97 off=10 tracers=aaadaaaaaaa to=log by=cluster"},
    {"per mille without mode is nothing", "{'defaults':{'offCPU':{'perMille':10}}}",
     .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"the namespace's default patches the cluster's",
     "{" MAIN ",'defaults':{'sampling':{'hz':97},"
     "'tracers':{'python':'Disabled','go':'Enabled'}}}",
     {{"prod", "a", 1,
       "{'profile':{'tracers':{'python':'Auto'},'offCPU':{'mode':'Enabled','perMille':3}}}"}},
     .want = "on hz=97 off=3 tracers=aeaaaaaaaaa to=main,log by=a"},
    {"a match patches the namespace's default",
     "{" MAIN "}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':50},'destinationRefs':['log']}}"},
      {"prod", "b", 2,
       "{'podSelector':{'matchLabels':{'app':'api'}},'profile':{'tracers':{'jvm':'Disabled'}}}"}},
     .labels = "x=y,app=api",
     .want = "on hz=50 off=0 tracers=aadaaaaaaaa to=log by=b"},
    {"no match: the namespace's default",
     "{}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':50}}}"},
      {"prod", "b", 2,
       "{'podSelector':{'matchLabels':{'app':'api'}},'profile':{'sampling':{'hz':60}}}"}},
     .labels = "app=web",
     .want = "on hz=50 off=0 " AUTO " to= by=a"},
    {"lists replace",
     "{" MAIN ",'defaults':{'destinationRefs':['main','log']}}",
     {{"prod", "a", 1, "{'profile':{'destinationRefs':['log']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=log by=a"},
    {"an empty list replaces too",
     "{" MAIN "}",
     {{"prod", "a", 1, "{'profile':{'destinationRefs':[]}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"zero per mille is set, not absent",
     "{'defaults':{'offCPU':{'mode':'Enabled','perMille':9}}}",
     {{"prod", "a", 1, "{'profile':{'offCPU':{'perMille':0}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"another namespace's configs do not count",
     "{}",
     {{"dev", "a", 1, "{'profile':{'sampling':{'hz':50}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"an empty podSelector matches every pod",
     "{}",
     {{"prod", "a", 1, "{'podSelector':{},'profile':{'sampling':{'hz':50}}}"}},
     .want = "on hz=50 off=0 " AUTO " to= by=a"},
    {"the highest priority wins",
     "{}",
     {{"prod", "a", 1, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':5}}}"},
      {"prod", "b", 2, "{'podSelector':{},'priority':7,'profile':{'sampling':{'hz':7}}}"},
      {"prod", "c", 3, "{'podSelector':{},'profile':{'sampling':{'hz':9}}}"}},
     .want = "on hz=7 off=0 " AUTO " to= by=b"},
    {"of equal priority the older wins",
     "{}",
     {{"prod", "a", 9, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':5}}}"},
      {"prod", "b", 8, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':7}}}"}},
     .want = "on hz=7 off=0 " AUTO " to= by=b"},
    {"of equal age the first by name wins",
     "{}",
     {{"prod", "b", 8, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':5}}}"},
      {"prod", "a", 8, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':7}}}"}},
     .want = "on hz=7 off=0 " AUTO " to= by=a"},
    {"only the best match counts, others do not patch",
     "{}",
     {{"prod", "a", 1, "{'podSelector':{},'priority':5,'profile':{'sampling':{'hz':5}}}"},
      {"prod", "b", 1, "{'podSelector':{},'profile':{'tracers':{'go':'Disabled'}}}"}},
     .want = "on hz=5 off=0 " AUTO " to= by=a"},
    {"of several namespace defaults the oldest counts",
     "{}",
     {{"prod", "a", 9, "{'profile':{'sampling':{'hz':5}}}"},
      {"prod", "b", 3, "{'profile':{'sampling':{'hz':7}}}"},
      {"prod", "c", 5, "{'profile':{'sampling':{'hz':9}}}"}},
     .want = "on hz=7 off=0 " AUTO " to= by=b"},
    {"then the first by name",
     "{}",
     {{"prod", "b", 3, "{'profile':{'sampling':{'hz':5}}}"},
      {"prod", "a", 3, "{'profile':{'sampling':{'hz':7}}}"}},
     .want = "on hz=7 off=0 " AUTO " to= by=a"},
    {"mode Disabled", "{'defaults':{'mode':'Disabled'}}", .want = OFF "cluster"},
    {"the annotation does not enable what is Disabled", "{'defaults':{'mode':'Disabled'}}",
     .mode = "enabled", .want = OFF "cluster"},
    {"a namespace switches on again",
     "{'defaults':{'mode':'Disabled'}}",
     {{"prod", "a", 1, "{'profile':{'mode':'Enabled'}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"OptIn without annotation", "{'defaults':{'mode':'OptIn'}}", .want = OFF "cluster"},
    {"OptIn with the annotation", "{'defaults':{'mode':'OptIn'}}", .mode = "enabled",
     .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"OptIn with another word", "{'defaults':{'mode':'OptIn'}}", .mode = "Enabled",
     .want = OFF "cluster"},
    {"a pod opts out", "{}", .mode = "disabled", .want = OFF "cluster"},
    {"a word that is none is ignored", "{}", .mode = "off",
     .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"opting out is forbidden", "{'guardrails':{'podOptOut':'Forbidden'}}", .mode = "disabled",
     .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"not opting in is no opting out",
     "{'guardrails':{'podOptOut':'Forbidden'},'defaults':{'mode':'OptIn'}}", .mode = "disabled",
     .want = OFF "cluster"},
    {"a namespace that must not be profiled",
     "{'guardrails':{'namespaceSelector':{'matchLabels':{'team':'a'}}}}",
     {{"prod", "a", 1, "{'profile':{'mode':'Enabled'}}"}},
     .ns_labels = "team=b",
     .mode = "enabled",
     .want = OFF "a"},
    {"a namespace that may",
     "{'guardrails':{'namespaceSelector':{'matchExpressions':[{'key':'team','operator':"
     "'NotIn','values':['b','c']}]}}}",
     .ns_labels = "team=a", .want = "on hz=20 off=0 " AUTO " to= by=cluster"},
    {"hz is clamped from above",
     "{'guardrails':{'sampling':{'maxHz':97}}}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':499}}}"}},
     .want = "on hz=97 off=0 " AUTO " to= by=a"},
    {"hz is clamped from below", "{'guardrails':{'sampling':{'minHz':30}}}",
     .want = "on hz=30 off=0 " AUTO " to= by=cluster"},
    {"off-CPU is forbidden",
     "{'guardrails':{'offCPU':{'mode':'Forbidden'}}}",
     {{"prod", "a", 1, "{'profile':{'offCPU':{'mode':'Enabled','perMille':5}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"off-CPU is clamped",
     "{'guardrails':{'offCPU':{'maxPerMille':50}}}",
     {{"prod", "a", 1, "{'profile':{'offCPU':{'mode':'Enabled','perMille':500}}}"}},
     .want = "on hz=20 off=50 " AUTO " to= by=a"},
    {"tracers are denied",
     "{'guardrails':{'deniedTracers':['python','dotnet']}}",
     {{"prod", "a", 1, "{'profile':{'tracers':{'python':'Enabled','go':'Enabled'}}}"}},
     .want = "on hz=20 off=0 tracers=aeadaaaadaa to= by=a"},
    {"destinations that are not allowed fall out",
     "{" MAIN ",'guardrails':{'allowedDestinations':['log']}}",
     {{"prod", "a", 1, "{'profile':{'destinationRefs':['main','log']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=log by=a"},
    {"an empty allowed list allows none",
     "{" MAIN ",'guardrails':{'allowedDestinations':[]}}",
     {{"prod", "a", 1, "{'profile':{'destinationRefs':['main','log']}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"the cluster's own choice is not railed in",
     "{" MAIN ",'guardrails':{'allowedDestinations':['log']},"
     "'defaults':{'destinationRefs':['main']}}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':9}}}"}},
     .want = "on hz=9 off=0 " AUTO " to=main by=a"},
    {"tenant destinations are forbidden unless allowed",
     "{" MAIN "}",
     {{"prod", "a", 1,
       "{'destinations':[{'name':'mine','otlp':{'endpoint':'x:1'}}],"
       "'profile':{'destinationRefs':['mine','main']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=main by=a"},
    {"tenant destinations are allowed",
     "{" MAIN ",'guardrails':{'tenantDestinations':'SameNamespaceSecret',"
     "'allowedDestinations':['log']}}",
     {{"prod", "a", 1,
       "{'destinations':[{'name':'mine','otlp':{'endpoint':'x:1'}}],"
       "'profile':{'destinationRefs':['mine','main']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=prod/mine by=a"},
    {"a tenant's endpoint is one that the admin listed",
     "{" MAIN ",'guardrails':{'tenantDestinations':'SameNamespaceSecret',"
     "'tenantEndpoints':['a.example:4317','*.b.example']}}",
     {{"prod", "a", 1,
       "{'destinations':[{'name':'one','otlp':{'endpoint':'A.example:4317'}},"
       "{'name':'two','otlp':{'endpoint':'a.example:4318'}},"
       "{'name':'three','otlp':{'endpoint':'https://x.b.example','protocol':'HTTP'}},"
       "{'name':'four','otlp':{'endpoint':'b.example:4317'}}],"
       "'profile':{'destinationRefs':['one','two','three','four','main']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=prod/one,prod/three,main by=a"},
    {"a tenant's name comes before the cluster's",
     "{" MAIN ",'guardrails':{'tenantDestinations':'SameNamespaceSecret'}}",
     {{"prod", "a", 1,
       "{'destinations':[{'name':'main','otlp':{'endpoint':'x:1'}}],"
       "'profile':{'destinationRefs':['main']}}"}},
     .want = "on hz=20 off=0 " AUTO " to=prod/main by=a"},
    {"an inherited list means what its author meant",
     "{" MAIN ",'guardrails':{'tenantDestinations':'SameNamespaceSecret'}}",
     {{"prod", "a", 1,
       "{'destinations':[{'name':'mine','otlp':{'endpoint':'x:1'}}],"
       "'profile':{'destinationRefs':['mine']}}"},
      {"prod", "b", 1,
       "{'podSelector':{},'destinations':[{'name':'mine','otlp':{'endpoint':'y:1'}}]}"}},
     .want = "on hz=20 off=0 " AUTO " to=prod/mine by=b"},
    {"a destination that is only declared is not used",
     "{" MAIN ",'guardrails':{'tenantDestinations':'SameNamespaceSecret'}}",
     {{"prod", "a", 1, "{'destinations':[{'name':'mine','otlp':{'endpoint':'x:1'}}]}"}},
     .want = "on hz=20 off=0 " AUTO " to=main,log by=a"},
    {"an unknown destination is left out, the rest of the config holds",
     "{" MAIN "}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':50}}}"},
      {"prod", "b", 1,
       "{'podSelector':{},'profile':{'sampling':{'hz':60},'destinationRefs':['mian','log']}}"}},
     .want = "on hz=60 off=0 " AUTO " to=log by=b"},
    {"labels leave the node where they are allowed, and times are kept where they are asked for",
     "{'defaults':{'labels':{'allow':['tenant']},'timestamps':'Enabled'}}",
     .want = "on hz=20 off=0 " AUTO " to= labels=tenant timed by=cluster"},
    {"a list of labels replaces the inherited one",
     "{'defaults':{'labels':{'allow':['tenant']},'timestamps':'Enabled'}}",
     {{"prod", "a", 1,
       "{'profile':{'labels':{'allow':['route','user id']},'timestamps':'Disabled'}}"}},
     .want = "on hz=20 off=0 " AUTO " to= labels=route,user id by=a"},
    {"an empty list of labels is none",
     "{'defaults':{'labels':{'allow':['tenant']}}}",
     {{"prod", "a", 1, "{'profile':{'labels':{'allow':[]}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"a namespace allows what the guard-rails allow",
     "{'guardrails':{'allowedLabels':['route']}}",
     {{"prod", "a", 1, "{'profile':{'labels':{'allow':['tenant','route']}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= labels=route by=a"},
    {"all labels are those that the guard-rails allow",
     "{'guardrails':{'allowedLabels':['route','tenant']}}",
     {{"prod", "a", 1, "{'profile':{'labels':{'allow':['*']}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= labels=route,tenant by=a"},
    {"guard-rails that allow no label",
     "{'guardrails':{'allowedLabels':[]}}",
     {{"prod", "a", 1, "{'profile':{'labels':{'allow':['*']}}}"}},
     .want = "on hz=20 off=0 " AUTO " to= by=a"},
    {"the example: api in shop", EXAMPLE, EXAMPLE_CONFIGS("prod"), .labels = "app=api",
     .want = "on hz=97 off=0 tracers=aaadaaadaaa to=main,archive by=api"},
    {"the example: web in shop", EXAMPLE, EXAMPLE_CONFIGS("prod"), .labels = "app=web",
     .want = "on hz=19 off=0 tracers=aaadaaadaaa to=main by=all"},
    {"the example: elsewhere", EXAMPLE, EXAMPLE_CONFIGS("shop"), .labels = "app=api",
     .want = "on hz=19 off=0 tracers=aaaaaaadaaa to=main by=cluster"},
    {"also in the namespace's default: samples that may go nowhere else go nowhere",
     "{" MAIN "}",
     {{"prod", "a", 1, "{'profile':{'sampling':{'hz':50},'destinationRefs':['mian']}}"},
      {"prod", "b", 2, "{'profile':{'sampling':{'hz':60}}}"}},
     .want = "on hz=50 off=0 " AUTO " to= by=a"},
};

static void test_every_rule(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct rule *t = &rules[i];
		struct policy_set *set = set_of(t->cluster);
		const char *got;

		for (size_t j = 0; j < ARRAY_SIZE(t->configs) && t->configs[j].ns; j++)
			put(set, t->configs[j].ns, t->configs[j].name, t->configs[j].created,
			    t->configs[j].spec);
		got = resolved(set, "prod", t->labels, t->ns_labels, t->mode);
		if (!streq(got, t->want))
			fail_msg("%s:\nwant %s\ngot  %s", t->what, t->want, got);
		policy_set_free(set);
	}
}

static void test_order_of_arrival_does_not_matter(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct rule *t = &rules[i];
		struct policy_set *set = set_of(NULL);
		const char *got;

		for (size_t j = ARRAY_SIZE(t->configs); j-- > 0;)
			if (t->configs[j].ns)
				put(set, t->configs[j].ns, t->configs[j].name,
				    t->configs[j].created, t->configs[j].spec);
		resolved(set, "prod", t->labels, t->ns_labels, t->mode);
		if (t->cluster)
			assert_int_equal(policy_set_cluster(set, cluster_of(t->cluster)), 0);
		got = resolved(set, "prod", t->labels, t->ns_labels, t->mode);
		if (!streq(got, t->want))
			fail_msg("%s:\nwant %s\ngot  %s", t->what, t->want, got);
		policy_set_free(set);
	}
}

/* selector, labels, does it match? */
static const struct {
	const char *selector, *labels;
	bool want;
} selectors[] = {
    {"{}", "", true},
    {"{}", "a=b", true},
    {"{'matchLabels':{}}", "", true},
    {"{'matchLabels':{'a':'b'}}", "a=b", true},
    {"{'matchLabels':{'a':'b'}}", "a=c", false},
    {"{'matchLabels':{'a':'b'}}", "", false},
    {"{'matchLabels':{'a':'b','c':'d'}}", "c=d,a=b", true},
    {"{'matchLabels':{'a':'b','c':'d'}}", "a=b", false},
    {"{'matchLabels':{'a':''}}", "a=", true},
    {"{'matchLabels':{'a':''}}", "", false},
    {"{'matchExpressions':[{'key':'a','operator':'In','values':['x','y']}]}", "a=y", true},
    {"{'matchExpressions':[{'key':'a','operator':'In','values':['x','y']}]}", "a=z", false},
    {"{'matchExpressions':[{'key':'a','operator':'In','values':['x','y']}]}", "", false},
    {"{'matchExpressions':[{'key':'a','operator':'NotIn','values':['x','y']}]}", "a=y", false},
    {"{'matchExpressions':[{'key':'a','operator':'NotIn','values':['x','y']}]}", "a=z", true},
    {"{'matchExpressions':[{'key':'a','operator':'NotIn','values':['x','y']}]}", "", true},
    {"{'matchExpressions':[{'key':'a','operator':'Exists'}]}", "a=", true},
    {"{'matchExpressions':[{'key':'a','operator':'Exists','values':[]}]}", "b=a", false},
    {"{'matchExpressions':[{'key':'a','operator':'DoesNotExist'}]}", "a=", false},
    {"{'matchExpressions':[{'key':'a','operator':'DoesNotExist'}]}", "b=", true},
    {"{'matchLabels':{'a':'b'},'matchExpressions':[{'key':'c','operator':'Exists'}]}", "a=b,c=d",
     true},
    {"{'matchLabels':{'a':'b'},'matchExpressions':[{'key':'c','operator':'Exists'}]}", "a=b",
     false},
    {"{'matchLabels':{'a':'b'},'matchExpressions':[{'key':'c','operator':'Exists'}]}", "c=d",
     false},
    {"{'matchExpressions':[{'key':'a','operator':'Exists'}],'matchLabels':{'a':'b'}}", "a=c",
     false},
};

static void test_selectors(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(selectors); i++) {
		_cleanup_free_ char *spec = NULL;
		struct namespace_config *c;
		struct pod pod;

		assert_true(asprintf(&spec, "{'podSelector':%s}", selectors[i].selector) > 0);
		c = config_of("prod", "a", 1, spec);
		pod_init(&pod, "prod", selectors[i].labels, NULL, NULL);
		if (selector_matches(&c->pods, pod.labels, pod.subject.n_pod_labels) !=
		    selectors[i].want)
			fail_msg("%s on %s", selectors[i].selector, selectors[i].labels);
		namespace_config_free(c);
	}
}

static void test_endpoints_and_patterns(void **state)
{
	static const struct {
		const char *pattern, *host;
		int port;
		bool matches;
	} rows[] = {
	    {"otel", "otel", 4317, true},
	    {"otel", "OTEL.", 4317, true},
	    {"otel", "otel.evil", 4317, false},
	    {"otel", "xotel", 4317, false},
	    {"otel:4317", "otel", 4317, true},
	    {"otel:4317", "otel", 4318, false},
	    {"*.a.b", "x.A.b", 1, true},
	    {"*.a.b", "y.x.a.b.", 1, true},
	    {"*.a.b", "a.b", 1, false},
	    {"*.a.b", ".a.b", 1, false},
	    {"*.a.b", "xa.b", 1, false},
	    {"*.a.b:80", "x.a.b", 81, false},
	    {"10.0.0.1", "10.0.0.1", 1, true},
	    {"10.0.0.1", "10.0.0.11", 1, false},
	    {"[2001:db8::1]", "2001:db8::1", 1, true},
	    {"[2001:db8::1]:443", "2001:DB8::1", 443, true},
	    {"[2001:db8::1]:443", "2001:db8::1", 80, false},
	    {"[2001:db8::1]", "2001:db8::1:1", 1, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct destination d = {.host = (char *)rows[i].host, .port = rows[i].port};

		if (endpoint_matches(rows[i].pattern, &d) != rows[i].matches)
			fail_msg("%s, %s:%d", rows[i].pattern, rows[i].host, rows[i].port);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_endpoints_and_patterns),
	    cmocka_unit_test(test_every_rule),
	    cmocka_unit_test(test_order_of_arrival_does_not_matter),
	    cmocka_unit_test(test_selectors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
