/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused, with the exact message as it reaches Accepted=False. */
#include "tests/unit/operator/policy/support.h"

struct bad {
	const char *spec, *want; /* NULL: accepted */
};

static const struct bad cluster_specs[] = {
    {"{}", NULL},
    {"{'defaults':null,'guardrails':{'sampling':null}}", NULL},
    {"[]", "spec: want an object, got a list"},
    {"{'default':{}}", "spec.default: unknown field; did you mean defaults?"},
    {"{'zzzzzzzzzz':{}}", "spec.zzzzzzzzzz: unknown field"},
    {"{'a b\\n':{}}", "spec.\"a b?\": unknown field"},
    {"{'defaults':{},'defaults':{}}", "spec.defaults: given twice"},
    {"{'defaults':null,'defaults':{}}", "spec.defaults: given twice"},
    {"{'defaults':{'sampling':{'Hz':20}}}",
     "spec.defaults.sampling.Hz: unknown field; did you mean hz?"},
    {"{'defaults':{'sampling':{'hz':0}}}", "spec.defaults.sampling.hz: want 1..1000, got 0"},
    {"{'defaults':{'sampling':{'hz':5000}}}", "spec.defaults.sampling.hz: want 1..1000, got 5000"},
    {"{'defaults':{'sampling':{'hz':-1}}}", "spec.defaults.sampling.hz: want 1..1000, got -1"},
    {"{'defaults':{'sampling':{'hz':1e30}}}", "spec.defaults.sampling.hz: want 1..1000, got 1e+30"},
    {"{'defaults':{'sampling':{'hz':1e999}}}",
     "spec.defaults.sampling.hz: want a whole number, got inf"},
    {"{'defaults':{'sampling':{'hz':19.5}}}",
     "spec.defaults.sampling.hz: want a whole number, got 19.5"},
    {"{'defaults':{'sampling':{'hz':'20'}}}",
     "spec.defaults.sampling.hz: want a whole number, got \"20\""},
    {"{'defaults':{'sampling':[]}}", "spec.defaults.sampling: want an object, got a list"},
    {"{'defaults':{'mode':'Enable'}}",
     "spec.defaults.mode: want Enabled, Disabled or OptIn, got \"Enable\"; did you mean Enabled?"},
    {"{'defaults':{'mode':true}}", "spec.defaults.mode: want Enabled, Disabled or OptIn, got true"},
    {"{'defaults':{'offCPU':{'mode':'Auto'}}}",
     "spec.defaults.offCPU.mode: want Enabled or Disabled, got \"Auto\""},
    {"{'defaults':{'offCPU':{'perMille':1001}}}",
     "spec.defaults.offCPU.perMille: want 0..1000, got 1001"},
    {"{'defaults':{'tracers':{'pyton':'Auto'}}}",
     "spec.defaults.tracers.pyton: unknown field; did you mean python?"},
    {"{'defaults':{'tracers':{'go':'On'}}}",
     "spec.defaults.tracers.go: want Auto, Enabled or Disabled, got \"On\""},
    {"{'defaults':{'destinationRefs':'main'}}",
     "spec.defaults.destinationRefs: want a list, got \"main\""},
    {"{'defaults':{'destinationRefs':[1]}}",
     "spec.defaults.destinationRefs[0]: want a string, got 1"},
    {"{'defaults':{'destinationRefs':[null]}}",
     "spec.defaults.destinationRefs[0]: want a string, got null"},
    {"{'defaults':{'destinationRefs':['a','b','a']}}",
     "spec.defaults.destinationRefs[2]: \"a\" is given twice"},
    {"{'defaults':{'destinationRefs':['a','b','c','d','e','f','g','h','i']}}",
     "spec.defaults.destinationRefs: want at most 8, got 9"},
    {"{'defaults':{'destinationRefs':['mian']},'destinations':[{'name':'main','text':{}}]}",
     "spec.defaults.destinationRefs[0]: want a name of spec.destinations, got \"mian\"; did you "
     "mean main?"},
    {"{'defaults':{'destinationRefs':['x']}}",
     "spec.defaults.destinationRefs[0]: want a name of spec.destinations, got \"x\""},
    {"{'guardrails':{'allowedDestinations':['x']}}",
     "spec.guardrails.allowedDestinations[0]: want a name of spec.destinations, got \"x\""},
    {"{'metadata':{'clusterName':'the cluster'}}",
     "spec.metadata.clusterName: want letters and digits, \"-_.:/\" between them, got \"the "
     "cluster\""},
    {"{'metadata':{'podLabels':['a b']}}",
     "spec.metadata.podLabels[0]: want a key such as team or example.com/team, got \"a b\""},
    {"{'metadata':{'podLabels':['example.com/team','-x']}}",
     "spec.metadata.podLabels[1]: want a key such as team or example.com/team, got \"-x\""},
    {"{'metadata':{'otelAnnotations':'Auto'}}",
     "spec.metadata.otelAnnotations: want Enabled or Disabled, got \"Auto\""},
    {"{'guardrails':{'sampling':{'minHz':50,'maxHz':10}}}",
     "spec.guardrails.sampling.minHz: want at most maxHz, 10, got 50"},
    {"{'guardrails':{'sampling':{'maxHz':1001}}}",
     "spec.guardrails.sampling.maxHz: want 1..1000, got 1001"},
    {"{'guardrails':{'deniedTracers':['pyhton']}}",
     "spec.guardrails.deniedTracers[0]: want the name of a tracer, got \"pyhton\"; did you mean "
     "python?"},
    {"{'guardrails':{'deniedTracers':[7]}}",
     "spec.guardrails.deniedTracers[0]: want the name of a tracer, got 7"},
    {"{'guardrails':{'deniedTracers':['go','go']}}",
     "spec.guardrails.deniedTracers[1]: \"go\" is given twice"},
    {"{'guardrails':{'offCPU':{'mode':'Enabled'}}}",
     "spec.guardrails.offCPU.mode: want Allowed or Forbidden, got \"Enabled\""},
    {"{'guardrails':{'tenantDestinations':'Allowed'}}",
     "spec.guardrails.tenantDestinations: want Forbidden or SameNamespaceSecret, got \"Allowed\""},
    {"{'guardrails':{'tenantEndpoints':['a','http://b']}}",
     "spec.guardrails.tenantEndpoints[1]: want HOST, *.DOMAIN or [IPv6], each with or without "
     ":PORT, "
     "got \"http://b\""},
    {"{'guardrails':{'tenantEndpoints':['*']}}", "spec.guardrails.tenantEndpoints[0]: want HOST, "
						 "*.DOMAIN or [IPv6], each with or without :PORT, "
						 "got \"*\""},
    {"{'guardrails':{'tenantEndpoints':['[::1']}}",
     "spec.guardrails.tenantEndpoints[0]: want HOST, *.DOMAIN or [IPv6], each with or without "
     ":PORT, "
     "got \"[::1\""},
    {"{'guardrails':{'tenantEndpoints':['a:']}}", "spec.guardrails.tenantEndpoints[0]: want HOST, "
						  "*.DOMAIN or [IPv6], each with or without :PORT, "
						  "got \"a:\""},
    {"{'guardrails':{'tenantEndpoints':['a:65535','a:65536']}}",
     "spec.guardrails.tenantEndpoints[1]: want HOST, *.DOMAIN or [IPv6], each with or without "
     ":PORT, "
     "got \"a:65536\""},
    {"{'guardrails':{'tenantEndpoints':['a:0']}}",
     "spec.guardrails.tenantEndpoints[0]: want HOST, "
     "*.DOMAIN or [IPv6], each with or without :PORT, "
     "got \"a:0\""},
    {"{'guardrails':{'namespaceSelector':{'matchLabel':{}}}}",
     "spec.guardrails.namespaceSelector.matchLabel: unknown field; did you mean matchLabels?"},
    {"{'guardrails':{'namespaceSelector':{'matchLabels':{'a':'b c'}}}}",
     "spec.guardrails.namespaceSelector.matchLabels.a: want a label value, got \"b c\""},
    {"{'guardrails':{'namespaceSelector':{'matchLabels':{'a':1}}}}",
     "spec.guardrails.namespaceSelector.matchLabels.a: want a string, got 1"},
    {"{'guardrails':{'namespaceSelector':{'matchLabels':{'a':'b','a':'c'}}}}",
     "spec.guardrails.namespaceSelector.matchLabels.a: given twice"},
    {"{'guardrails':{'namespaceSelector':{'matchLabels':{'':'b'}}}}",
     "spec.guardrails.namespaceSelector.matchLabels: want keys such as team or example.com/team, "
     "got \"\""},

    {"{'destinations':[{'text':{}}]}", "spec.destinations[0].name: required"},
    {"{'destinations':[{'name':null,'text':{}}]}", "spec.destinations[0].name: required"},
    {"{'destinations':[{'name':'Main','text':{}}]}",
     "spec.destinations[0].name: want lower case letters, digits and \"-\", got \"Main\""},
    {"{'destinations':[{'name':'main'}]}",
     "spec.destinations[0]: want one of otlp and text, got none"},
    {"{'destinations':[{'name':'main','text':{},'otlp':{'endpoint':'x:1'}}]}",
     "spec.destinations[0]: want one of otlp and text, got both"},
    {"{'destinations':[{'name':'a','text':{}},{'name':'a','text':{}}]}",
     "spec.destinations[1].name: \"a\" is given twice"},
    {"{'destinations':[{'name':'a','text':{'x':1}}]}",
     "spec.destinations[0].text.x: unknown field"},
    {"{'destinations':[7]}", "spec.destinations[0]: want an object, got 7"},
    {"{'destinations':[null]}", "spec.destinations[0]: want an object, got null"},
    {"{'destinations':{}}", "spec.destinations: want a list, got an object"},
    {"{'destinations':[1,2,3,4,5,6,7,8,9]}", "spec.destinations: want at most 8, got 9"},
#define OTLP(x) "{'destinations':[{'name':'a','otlp':{" x "}}]}"
#define AT	"spec.destinations[0].otlp."
#define HOSTS	"want HOST:PORT, http://HOST[:PORT] or https://HOST[:PORT]"
    {OTLP(""), AT "endpoint: required"},
    {OTLP("'endpoint':'x:1'"), NULL},
    {OTLP("'endpoint':'[::1]:4317'"), NULL},
    {OTLP("'endpoint':'http://x:4317'"), NULL},
    {OTLP("'endpoint':'https://x:4317/'"), NULL},
    {OTLP("'endpoint':'https://x/a/b','protocol':'HTTP'"), NULL},
    {OTLP("'endpoint':''"), AT "endpoint: want 1..512 characters, got 0"},
    {OTLP("'endpoint':'x'"), AT "endpoint: want HOST:PORT with protocol GRPC, got \"x\""},
    {OTLP("'endpoint':'https://x'"),
     AT "endpoint: want HOST:PORT with protocol GRPC, got \"https://x\""},
    {OTLP("'endpoint':':4317'"), AT "endpoint: " HOSTS ", got \":4317\""},
    {OTLP("'endpoint':'x:0'"), AT "endpoint: want a port of 1..65535, got \"x:0\""},
    {OTLP("'endpoint':'x:65536'"), AT "endpoint: want a port of 1..65535, got \"x:65536\""},
    {OTLP("'endpoint':'x y:1'"), AT "endpoint: want no blanks and only ASCII, got \"x y:1\""},
    {OTLP("'endpoint':'x:1/a'"), AT "endpoint: " HOSTS ", got \"x:1/a\""},
    {OTLP("'endpoint':'ftp://x:1'"), AT "endpoint: " HOSTS ", got \"ftp://x:1\""},
    {OTLP("'endpoint':'http://x:1/a'"),
     AT "endpoint: want no path with protocol GRPC, got \"http://x:1/a\""},
    {OTLP("'endpoint':'x:1','protocol':'HTTP'"),
     AT "endpoint: want http:// or https:// with protocol HTTP, got \"x:1\""},
    {OTLP("'endpoint':'http://u:secret@x:1'"),
     AT "endpoint: " HOSTS ", got a URL with a user (not shown)"},
    {OTLP("'endpoint':'x:1','protocol':'grpc'"),
     AT "protocol: want GRPC or HTTP, got \"grpc\"; did you mean GRPC?"},
    {OTLP("'endpoint':'x:1','compression':'gzip'"),
     AT "compression: want Gzip, Zstd or None, got \"gzip\"; did you mean Gzip?"},
    {OTLP("'endpoint':'x:1','timeoutSeconds':601"), AT "timeoutSeconds: want 1..600, got 601"},
    {OTLP("'endpoint':'x:1','protoGeneration':'G3'"),
     AT "protoGeneration: want G4, G5 or G6, got \"G3\"; did you mean G4?"},
    {OTLP("'endpoint':'http://x:1','tls':{}"),
     AT "tls: want mode Plaintext or no tls with an http:// endpoint"},
    {OTLP("'endpoint':'http://x:1','tls':{'mode':'Plaintext'}"), NULL},
    {OTLP("'endpoint':'https://x:1','tls':{'mode':'Plaintext'}"),
     AT "tls.mode: want Verify or SkipVerify with an https:// endpoint, got Plaintext"},
    {OTLP("'endpoint':'x:1','tls':{'mode':'Plaintext','serverName':'y'}"),
     AT "tls: want no serverName, caSecretRef or clientCertificateSecretRef with mode Plaintext"},
    {OTLP("'endpoint':'x:1','tls':{'mode':'SkipVerify','caSecretRef':{'name':'s','key':'k'}}"),
     AT "tls.caSecretRef: want no CA with mode SkipVerify, which does not verify"},
    {OTLP("'endpoint':'x:1','tls':{'caSecretRef':{'name':'s'}}"),
     AT "tls.caSecretRef.key: required"},
    {OTLP("'endpoint':'x:1','tls':{'caSecretRef':{'name':'S','key':'k'}}"),
     AT "tls.caSecretRef.name: want lower case letters, digits, \"-\" and \".\", got \"S\""},
    {OTLP("'endpoint':'x:1','tls':{'caSecretRef':{'name':'s','key':'../k'}}"),
     AT "tls.caSecretRef.key: want letters, digits, \"-\", \"_\" and \".\", got \"../k\""},
    {OTLP("'endpoint':'x:1','tls':{'serverName':'-'}"),
     AT "tls.serverName: want a host name or an IP address, got \"-\""},
    {OTLP("'endpoint':'x:1','tls':{'clientCertificateSecretRef':{}}"),
     AT "tls.clientCertificateSecretRef.name: required"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a'}]"), AT "headers[0].value: required"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a:b','value':'c'}]"),
     AT "headers[0].name: want a header name, got \"a:b\""},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a','value':'secret\\n'}]"),
     AT "headers[0].value: want printable ASCII without blanks at the ends"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a','value':42}]"),
     AT "headers[0].value: want a string"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a','value':'b'},{'name':'A','value':'c'}]"),
     AT "headers[1].name: \"A\" is given twice"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'a','value':'b'}],'headersFrom':[{'name':'A','"
	  "secretRef':"
	  "{'name':'s','key':'k'}}]"),
     AT "headersFrom[0].name: \"A\" is given twice"},
    {OTLP("'endpoint':'x:1','headersFrom':[{'name':'a','value':'b'}]"),
     AT "headersFrom[0].value: unknown field"},
    {OTLP("'endpoint':'x:1','headers':[{'name':'Content-Type','value':'b'}]"),
     AT "headers[0].name: want none of the headers that the exporter sets itself, got "
	"\"Content-Type\""},
    {OTLP("'endpoint':'x:1','headers':[{'name':'grpc-timeout','value':'b'}]"),
     AT "headers[0].name: want none of the headers that the exporter sets itself, got "
	"\"grpc-timeout\""},

#define AGENT(x) "{'agent':{" x "}}"
    {AGENT("'image':'a b'"), "spec.agent.image: want an image reference, got \"a b\""},
    {AGENT("'imagePullPolicy':'always'"), "spec.agent.imagePullPolicy: want Always, IfNotPresent "
					  "or Never, got \"always\"; did you mean Always?"},
    {AGENT("'imagePullSecrets':[{'name':'a'},{'name':'a'}]"),
     "spec.agent.imagePullSecrets[1].name: \"a\" is given twice"},
    {AGENT("'imagePullSecrets':['a']"),
     "spec.agent.imagePullSecrets[0]: want an object, got \"a\""},
    {AGENT("'securityMode':'privileged'"),
     "spec.agent.securityMode: want Capabilities or Privileged, got \"privileged\"; did you mean "
     "Privileged?"},
    {AGENT("'nodeSelector':{'a':true}"), "spec.agent.nodeSelector.a: want a string, got true"},
    {AGENT("'tolerations':[{}]"), "spec.agent.tolerations[0].operator: want Exists without a key"},
    {AGENT("'tolerations':[{'operator':'Exists'}]"), NULL},
    {AGENT("'tolerations':[{'key':'a b'}]"),
     "spec.agent.tolerations[0].key: want a key such as team or example.com/team, got \"a b\""},
    {AGENT("'tolerations':[{'key':'a','operator':'Exists','value':'b'}]"),
     "spec.agent.tolerations[0].value: want no value with operator Exists, got \"b\""},
    {AGENT("'tolerations':[{'key':'a','tolerationSeconds':5}]"),
     "spec.agent.tolerations[0].tolerationSeconds: want effect NoExecute with tolerationSeconds"},
    {AGENT("'tolerations':[{'key':'a','effect':'NoExec'}]"),
     "spec.agent.tolerations[0].effect: want NoSchedule, PreferNoSchedule or NoExecute, got "
     "\"NoExec\"; did you mean "
     "NoExecute?"},
    {AGENT("'resources':{'limits':{'cpu':'1x'}}"),
     "spec.agent.resources.limits.cpu: want a quantity of 0 or more, got \"1x\""},
    {AGENT("'resources':{'limits':{'cpu':-1}}"),
     "spec.agent.resources.limits.cpu: want a quantity of 0 or more, got -1"},
    {AGENT("'resources':{'limits':{'cpu':1,'memory':'1.5Gi'},'requests':{'cpu':'100m','memory':'"
	   "1e6'}}"),
     NULL},
    {AGENT("'resources':{'limits':{'gpu':1}}"),
     "spec.agent.resources.limits.gpu: unknown field; did you mean cpu?"},
    {AGENT("'updateStrategy':{'maxUnavailable':0}"),
     "spec.agent.updateStrategy.maxUnavailable: want 1..100000 or 1%..100%, got 0"},
    {AGENT("'updateStrategy':{'maxUnavailable':'101%'}"),
     "spec.agent.updateStrategy.maxUnavailable: want 1..100000 or 1%..100%, got \"101%\""},
    {AGENT("'updateStrategy':{'maxUnavailable':'100%'}"), NULL},
    {AGENT("'reportIntervalSeconds':61"), "spec.agent.reportIntervalSeconds: want 1..60, got 61"},
    {AGENT("'podLabels':{'app.kubernetes.io/name':'x'}"),
     "spec.agent.podLabels: want none of the keys that the operator sets itself, got "
     "\"app.kubernetes.io/name\""},
    {AGENT("'podAnnotations':{'profiling.kiln.dev/x':'x'}"),
     "spec.agent.podAnnotations: want none of the keys that the operator sets itself, got "
     "\"profiling.kiln.dev/x\""},

    {"{'probes':[{'probe':'kprobe:vfs_read'},{'probe':'uprobe:/a:f','rate':10000}]}", NULL},
    {"{'probes':[{'rate':1}]}", "spec.probes[0].probe: required"},
    {"{'probes':[{'probe':'malloc'}]}",
     "spec.probes[0].probe: want uprobe:PATH:FUNCTION, uretprobe:PATH:FUNCTION, kprobe:FUNCTION or "
     "tracepoint:SUBSYSTEM:NAME, got \"malloc\""},
    {"{'probes':[{'probe':'kprobe:a'},{'probe':'uprobe:a:f'}]}",
     "spec.probes[1].probe: want an absolute path after uprobe:, got \"a\""},
    {"{'probes':[{'probe':'kprobe:a,rate=5'}]}",
     "spec.probes[0].probe: want the rate in the field rate"},
    {"{'probes':[{'probe':'kprobe:a','rate':0}]}", "spec.probes[0].rate: want 1..10000, got 0"},
    {"{'probes':[{'probe':'kprobe:a'},{'probe':'kprobe:a','rate':5}]}",
     "spec.probes[1].probe: \"kprobe:a\" is given twice"},

    {"{'nodeGroups':[{'name':'a'}]}", "spec.nodeGroups[0].nodeSelector: required"},
    {"{'nodeGroups':[{'name':'a','nodeSelector':{}}]}",
     "spec.nodeGroups[0].nodeSelector.matchLabels: required"},
    {"{'nodeGroups':[{'name':'a','nodeSelector':{'matchLabels':{}}}]}",
     "spec.nodeGroups[0].nodeSelector.matchLabels: want 1..4 entries, got 0"},
    {"{'nodeGroups':[{'name':'a','nodeSelector':{'matchLabels':{'a':'b'}},'agent':{'nodeSelector':{"
     "}}}]}",
     "spec.nodeGroups[0].agent.nodeSelector: only in spec.agent: the group has its own "
     "nodeSelector"},
    {"{'nodeGroups':[{'name':'a','nodeSelector':{'matchLabels':{'a':'b'}}},{'name':'a','"
     "nodeSelector':"
     "{'matchLabels':{'a':'c'}}}]}",
     "spec.nodeGroups[1].name: \"a\" is given twice"},
#define FOUR(name)                                                                                 \
	"{'name':'" name "','nodeSelector':{'matchLabels':{'a':'','b':'','c':'','d':''}}}"
    {"{'nodeGroups':[" FOUR("a") "," FOUR("b") "," FOUR("c") "]}", NULL},
    {"{'nodeGroups':[" FOUR("a") "," FOUR("b") "," FOUR("c") "," FOUR("d") "]}",
     "spec.nodeGroups: want at most 64 as the product of the groups' counts of matchLabels, got "
     "256"},
};

static const struct bad namespace_specs[] = {
    {"{}", NULL},
    {"{'probes':[{'probe':'kprobe:vfs_read'}]}", "spec.probes: unknown field"},
    {"{'priority':1}", "spec.priority: want a priority only with podSelector, got 1"},
    {"{'podSelector':{},'priority':1001}", "spec.priority: want 0..1000, got 1001"},
    {"{'podselector':{}}", "spec.podselector: unknown field; did you mean podSelector?"},
    {"{'podSelector':'app=api'}", "spec.podSelector: want an object, got \"app=api\""},
    {"{'podSelector':{'matchExpressions':[{'key':'a'}]}}",
     "spec.podSelector.matchExpressions[0].operator: required"},
    {"{'podSelector':{'matchExpressions':[{'key':'a','operator':'in','values':['b']}]}}",
     "spec.podSelector.matchExpressions[0].operator: want In, NotIn, Exists or DoesNotExist, got "
     "\"in\"; did you mean In?"},
    {"{'podSelector':{'matchExpressions':[{'key':'a','operator':'In'}]}}",
     "spec.podSelector.matchExpressions[0].values: want values with operator In, got none"},
    {"{'podSelector':{'matchExpressions':[{'key':'a','operator':'Exists','values':['b']}]}}",
     "spec.podSelector.matchExpressions[0].values: want no values with operator Exists, got 1"},
    {"{'podSelector':{'matchExpressions':[{'key':'a','operator':'In','values':['b','c d']}]}}",
     "spec.podSelector.matchExpressions[0].values[1]: want a label value, got \"c d\""},
    {"{'profile':{'sampling':{'hz':5000}}}", "spec.profile.sampling.hz: want 1..1000, got 5000"},
    {"{'profile':{'destinationRefs':['Main']}}",
     "spec.profile.destinationRefs[0]: want lower case letters, digits and \"-\", got \"Main\""},
    {"{'destinations':[{'name':'a','text':{}}]}", "spec.destinations[0].text: unknown field"},
    {"{'destinations':[{'name':'a'}]}", "spec.destinations[0].otlp: required"},
    {"{'destinations':[1,2,3,4,5]}", "spec.destinations: want at most 4, got 5"},
    {"{'guardrails':{}}", "spec.guardrails: unknown field"},
};

static const struct bad objects[] = {
    {"[]", "want an object, got a list"},
    {"{}", "metadata: required"},
    {"{'metadata':{}}", "metadata.name: required"},
    {"{'metadata':{'name':'a'}}", "spec: required"},
    {"{'metadata':{'name':'A'},'spec':{}}",
     "metadata.name: want lower case letters, digits, \"-\" and \".\", got \"A\""},
    {"{'metadata':[],'spec':{}}", "metadata: want an object, got a list"},
    {"{'metadata':{'name':'a','generation':-1},'spec':{}}",
     "metadata.generation: want a whole number, got -1"},
    {"{'metadata':{'name':'a','creationTimestamp':'today'},'spec':{}}",
     "metadata.creationTimestamp: want a time such as 2026-11-21T11:15:02Z, got \"today\""},
    {"{'metadata':{'name':'a','creationTimestamp':'2026-13-21T11:15:02Z'},'spec':{}}",
     "metadata.creationTimestamp: want a time such as 2026-11-21T11:15:02Z, got "
     "\"2026-13-21T11:15:02Z\""},
    {"{'metadata':{'name':'a','managedFields':[{'x':1}],'labels':{'a':'b'},'creationTimestamp':"
     "null},'spec':{},"
     "'status':{'anything':1}}",
     NULL},
    {"{'metadata':{'name':'a'},'spec':{},'specs':{}}", "specs: unknown field; did you mean spec?"},
    {"{'apiVersion':'v1','metadata':{'name':'a'},'spec':{}}",
     "apiVersion: want profiling.kiln.dev/v1alpha1, got \"v1\""},
    {"{'apiVersion':'profiling.kiln.dev/"
     "v1alpha1','kind':'ProfilingConfig','metadata':{'name':'a'},'spec':{}}",
     NULL},
    {"{'kind':'ProfillingConfig','metadata':{'name':'a'},'spec':{}}",
     "kind: want ProfilingConfig, got \"ProfillingConfig\"; did you mean ProfilingConfig?"},
    {"{'kind':'ClusterProfilingConfig','metadata':{'name':'cluster'},'spec':{}}",
     "kind: want ProfilingConfig, got \"ClusterProfilingConfig\""},
};

static void check(const char *text, bool cluster, const char *want, const char *shown)
{
	struct cluster_config *c = NULL;
	struct namespace_config *n = NULL;
	struct error err = {0};
	cJSON *object = json_of(text);
	int r = cluster ? cluster_config_parse(object, &c, &err)
			: namespace_config_parse(object, &n, &err);

	const char *ignored = c ? c->id.ignored : n ? n->id.ignored : NULL;

	/* An unknown field is noted, and everything else read. */
	if (want && r == 0 && strstr(want, ": unknown field")) {
		if (!ignored || !streq(ignored, want))
			fail_msg("%s:\nwant %s\ngot  %d %s", shown, want, r,
				 ignored ? ignored : err.message);
		want = NULL;
	} else if (want && (r != -EINVAL || !streq(err.message, want))) {
		fail_msg("%s:\nwant %s\ngot  %d %s", shown, want, r, err.message);
	}
	if (!want && r < 0)
		fail_msg("%s: %s", shown, err.message);
	if (want && (c || n))
		fail_msg("%s: the output was touched", shown);
	/* The same without anyone who wants to know why. */
	cluster_config_free(c);
	namespace_config_free(n);
	c = NULL;
	n = NULL;
	assert_int_equal(cluster ? cluster_config_parse(object, &c, NULL)
				 : namespace_config_parse(object, &n, NULL),
			 r);
	cluster_config_free(c);
	namespace_config_free(n);
	cJSON_Delete(object);
}

static void check_specs(const struct bad *table, size_t n, bool cluster)
{
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *text = NULL;

		assert_true(asprintf(&text, "{'metadata':{'name':'cluster'},'spec':%s}",
				     table[i].spec) > 0);
		check(text, cluster, table[i].want, table[i].spec);
	}
}

static void test_cluster_specs(void **state)
{
	check_specs(cluster_specs, ARRAY_SIZE(cluster_specs), true);
}

static void test_namespace_specs(void **state)
{
	check_specs(namespace_specs, ARRAY_SIZE(namespace_specs), false);
}

static void test_objects(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(objects); i++)
		check(objects[i].spec, false, objects[i].want, objects[i].spec);
	check("{'metadata':{'name':'other'},'spec':{}}", true,
	      "metadata.name: want \"cluster\", got \"other\"", "another name");
}

/* N times TEXT between BEFORE and AFTER. */
static char *repeated(const char *before, const char *text, size_t n, const char *after)
{
	size_t len = strlen(text);
	char *s = malloc(strlen(before) + n * len + strlen(after) + 1), *p = s;

	assert_non_null(s);
	p = stpcpy(p, before);
	for (size_t i = 0; i < n; i++)
		p = stpcpy(p, text);
	strcpy(p, after);
	return s;
}

static void test_hostile_sizes(void **state)
{
	static const struct {
		const char *before, *text;
		size_t n;
		const char *after, *want;
	} table[] = {
	    {"{'metadata':{'name':'a'},'spec':", "{'podSelector':", 900, "1", NULL},
	    {"{'metadata':{'name':'a'},'spec':{'podSelector':", "[", 900, "1", NULL},
	    {"{'metadata':{'name':'a'},'spec':{'profile':{'mode':'", "x", 1 << 20, "'}}}",
	     "spec.profile.mode: want Enabled, Disabled or OptIn, got "
	     "\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
	     "xxxxxxxxxxxxxxxxxxxxx...\""},
	    {"{'metadata':{'name':'a'},'spec':{'", "x", 1 << 20, "':1}}",
	     "spec.\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": "
	     "unknown field"},
	    {"{'metadata':{'name':'", "x", 1 << 20, "'},'spec':{}}",
	     "metadata.name: want 1..253 characters, got 1048576"},
	    {"{'metadata':{'name':'a'},'spec':{'profile':{'destinationRefs':[", "'a',", 100000,
	     "'b']}}}", "spec.profile.destinationRefs: want at most 8, got 100001"},
	    {"{'metadata':{'name':'a'},'spec':{'podSelector':{'matchLabels':{", "'a':'b',", 100000,
	     "'a':'b'}}}}", "spec.podSelector.matchLabels: want 0..16 entries, got 100001"},
	    {"{'metadata':{'name':'a'},'spec':{'podSelector':{'matchLabels':{'", "x", 5000,
	     "':'b'}}}}",
	     "spec.podSelector.matchLabels: want keys such as team or example.com/team, got "
	     "\"xxxxxxxxxxxxxxxxxxxxxxxxxx"
	     "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		_cleanup_free_ char *text =
		    repeated(table[i].before, table[i].text, table[i].n, table[i].after);

		if (table[i].want) {
			check(text, false, table[i].want, table[i].before);
			continue;
		}
		/* Nesting: closed by what it was opened with. */
		_cleanup_free_ char *closed =
		    repeated(text, strchr(table[i].text, '{') ? "}" : "]", table[i].n,
			     strchr(table[i].text, '{') ? "}" : "}}");
		struct namespace_config *c = NULL;
		struct error err = {0};
		cJSON *object = json_of(closed);

		/* The first is an unknown field in a selector, however deep. */
		assert_int_equal(namespace_config_parse(object, &c, &err), i ? -EINVAL : 0);
		assert_true(strlen(err.message) < 100);
		cJSON_Delete(object);
		namespace_config_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_cluster_specs),
	    cmocka_unit_test(test_namespace_specs),
	    cmocka_unit_test(test_objects),
	    cmocka_unit_test(test_hostile_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
