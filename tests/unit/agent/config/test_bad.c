/* SPDX-License-Identifier: Apache-2.0 */
/* Each mistake gives one exact line that names place and cause. */
#include "lib/buf.h"
#include "tests/unit/agent/config/load.h"

#define RECEIVER "receivers:\n  profiling:\n"
#define TEXT	 "exporters:\n  debug:\n"
#define PIPELINE(processors, exporter)                                                             \
	"service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n" processors         \
	"      exporters: [" exporter "]\n"
#define TAIL	     PIPELINE("", "debug")
/* One key, in the component named ID, of a receiver, exporter, processor, extension. */
#define RX(body)     RECEIVER "    " body "\n" TEXT TAIL
#define EX(id, body) RECEIVER "exporters:\n  " id ":\n    " body "\n" PIPELINE("", id)
#define PR(id, body)                                                                               \
	RECEIVER TEXT "processors:\n  " id ":\n    " body                                          \
		      "\n" PIPELINE("      processors: [" id "]\n", "debug")
#define XT(id, body)                                                                               \
	RECEIVER TEXT "extensions:\n  " id ":\n    " body "\nservice:\n  extensions: [" id         \
		      "]\n  pipelines:\n    profiles:\n"                                           \
		      "      receivers: [profiling]\n      exporters: [debug]\n"

/* clang-format off */
static const struct {
	const char *yaml, *message;
} files[] = {
	{"",
	 "c.yaml:1: the file is empty"},
	{"# nothing\n",
	 "c.yaml:1: the file is empty"},
	{"just text\n",
	 "c.yaml:1: want a map, got text"},
	{"- a\n- b\n",
	 "c.yaml:1: want a map, got a list"},
	{"a: 1\nb: [\n",
	 "c.yaml:3: not valid YAML: while parsing a flow node, did not find expected node content"},
	{"receivers: {a: 1\n",
	 "c.yaml:2: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'"},
	{"receivers:\n\tprofiling:\n",
	 "c.yaml:2: not valid YAML: while scanning for the next token, found character that cannot start any token"},
	{"receivers:\n  profiling:\n  profiling:\n",
	 "c.yaml:3: the key profiling is already at line 2"},
	{"a: 1\n---\nb: 1\n",
	 "c.yaml:2: want one YAML document, got several"},
	{"receivers: *nothing\n",
	 "c.yaml:1: an alias without its anchor"},
	{"x: &x [*x]\n",
	 "c.yaml:1: an alias inside the value that it names"},
	{"receivers: !mine {}\n",
	 "c.yaml:1: tags of one's own are not supported"},
	{"? [a]\n: b\n",
	 "c.yaml:1: a key must be plain text"},
	{"receivers: \"a\\0b\"\n",
	 "c.yaml:1: a NUL character"},
	{"receivers:\n  profiling: \"\\xff\n",
	 "c.yaml:3: not valid YAML: while scanning a quoted scalar, found unexpected end of stream"},
	{"reciever:\n  profiling:\n",
	 "c.yaml:1: reciever: unknown key; did you mean receivers?"},
	{"something: 1\n",
	 "c.yaml:1: something: unknown key"},
	{"receivers: [profiling]\n",
	 "c.yaml:1: receivers: want a map, got a list"},
	{RECEIVER TEXT,
	 "c.yaml:1: service: required: it names the pipeline that is to run"},
	{RECEIVER TEXT "service:\n",
	 "c.yaml:5: service.pipelines: a pipeline named profiles is required"},
	{RECEIVER TEXT "service: [a]\n",
	 "c.yaml:5: service: want a map, got a list"},
	{"a: b: c\n",
	 "c.yaml:1: not valid YAML: mapping values are not allowed in this context"},
	{"<<: 5\n",
	 "c.yaml:1: <<: want a map or a list of maps"},
	{"receivers:\n  profilling:\n" TEXT TAIL,
	 "c.yaml:2: receivers.profilling: a receiver type that this agent does not have; did you mean profiling?"},
	{"receivers:\n  zipkin:\n" TEXT TAIL,
	 "c.yaml:2: receivers.zipkin: a receiver type that this agent does not have"},
	{"receivers:\n  profiling/:\n" TEXT TAIL,
	 "c.yaml:2: receivers.profiling/: the name after the / is missing"},
	{"receivers:\n  /x:\n" TEXT TAIL,
	 "c.yaml:2: receivers./x: want an id such as TYPE or TYPE/NAME"},
	{RECEIVER "exporters:\n  otlp_grcp:\n    endpoint: h:1\n" TAIL,
	 "c.yaml:4: exporters.otlp_grcp: an exporter type that this agent does not have; did you mean otlp_grpc?"},
	{RECEIVER "exporters:\n  kafka:\n" TAIL,
	 "c.yaml:4: exporters.kafka: an exporter type that this agent does not have"},
	{RECEIVER TEXT "processors:\n  bach:\n" TAIL,
	 "c.yaml:6: processors.bach: a processor type that this agent does not have; did you mean batch?"},
	{RECEIVER TEXT "extensions:\n  zpages:\n" TAIL,
	 "c.yaml:6: extensions.zpages: an extension type that this agent does not have"},
	{"receivers:\n  otlp:\n    protocols:\n      grpc:\nexporters:\n  debug:\nservice:\n  pipelines:\n    profiles:\n      receivers: [otlp]\n      exporters: [debug]\n",
	 "c.yaml:10: service.pipelines.profiles.receivers: kiln-agent is an agent: it takes samples with the profiling receiver and cannot receive profiles from \"otlp\"; run an OpenTelemetry Collector for that"},
	{"receivers:\n  customprofilesreceiver:\nexporters:\n  debug:\nservice:\n  pipelines:\n    profiles:\n      receivers: [customprofilesreceiver]\n      exporters: [debug]\n",
	 "c.yaml:8: service.pipelines.profiles.receivers: the profiling receiver is missing"},
	{"receivers:\n  profiling:\n  profiling/b:\nexporters:\n  debug:\nservice:\n  pipelines:\n    profiles:\n      receivers: [profiling, profiling/b]\n      exporters: [debug]\n",
	 "c.yaml:3: receivers.profiling/b: only one profiling receiver can be used"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiler]\n      exporters: [debug]\n",
	 "c.yaml:8: service.pipelines.profiles.receivers: \"profiler\" is not declared under receivers; did you mean profiling?"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: [otlp]\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: \"otlp\" is not declared under exporters; add it there"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: [debug/2]\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: \"debug/2\" is not declared under exporters; did you mean debug?"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: [debug, debug]\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: \"debug\" is listed twice"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: []\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: at least one is required"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: debug\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: want a list, got text"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporters: [{a: b}]\n",
	 "c.yaml:9: service.pipelines.profiles.exporters: want the id of a component"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      exporters: [debug]\n",
	 "c.yaml:7: service.pipelines.profiles.receivers: at least one is required"},
	{RECEIVER TEXT "service:\n  pipelines:\n    traces:\n      receivers: [profiling]\n      exporters: [debug]\n",
	 "c.yaml:7: service.pipelines.traces: this agent has only profiles pipelines (profiles, profiles/NAME)"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles: 5\n    x:\n      receivers: [profiling]\n      exporters: [debug]\n",
	 "c.yaml:7: service.pipelines.profiles: want a map, got text"},
	{RECEIVER TEXT "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n      exporter: [debug]\n",
	 "c.yaml:9: service.pipelines.profiles.exporter: unknown key; did you mean exporters?"},
	{RECEIVER TEXT "service:\n  pipelines:\n",
	 "c.yaml:6: service.pipelines: a pipeline named profiles is required"},
	{RECEIVER TEXT "service:\n  pipelines: {}\n",
	 "c.yaml:6: service.pipelines: a pipeline named profiles is required"},
	{RECEIVER TEXT "service:\n  pipeline:\n    profiles:\n",
	 "c.yaml:6: service.pipeline: unknown key; did you mean pipelines?"},
	{RECEIVER TEXT "service:\n  extensions: [pprof]\n  pipelines:\n    profiles: {receivers: [profiling], exporters: [debug]}\n",
	 "c.yaml:6: service.extensions: \"pprof\" is not declared under extensions; add it there"},
	{RECEIVER TEXT "processors:\n  batch:\nservice:\n  pipelines:\n    profiles: {receivers: [profiling], exporters: [debug]}\n    profiles/b: {receivers: [profiling], processors: [batch], exporters: [debug]}\n",
	 "c.yaml:10: service.pipelines.profiles/b: all profiles pipelines must have the same processors"},
	{RX("sampels_per_second: 20"),
	 "c.yaml:3: receivers.profiling.sampels_per_second: unknown key; did you mean samples_per_second?"},
	{RX("samples_per_second: 5000"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want 1..1000, got 5000"},
	{RX("SamplesPerSecond: 0"),
	 "c.yaml:3: receivers.profiling.SamplesPerSecond: want 1..1000, got 0"},
	{RX("samples_per_second: -5"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want 1..1000, got -5"},
	{RX("samples_per_second: fast"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want a whole number, got \"fast\""},
	{RX("samples_per_second: 20.5"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want a whole number, got \"20.5\""},
	{RX("samples_per_second: [20]"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want a whole number, got a list"},
	{RX("samples_per_second: 99999999999999999999999"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want 1..1000, got 99999999999999999999999"},
	{RX("samples_per_second: 010"),
	 "c.yaml:3: receivers.profiling.samples_per_second: want a whole number, got \"010\""},
	{RX("samples_per_second: 5\n    SamplesPerSecond: 6"),
	 "c.yaml:4: receivers.profiling.SamplesPerSecond: given twice, in two spellings"},
	{RX("tracers: \"perl,pyton\""),
	 "c.yaml:3: receivers.profiling.tracers: unknown tracer \"pyton\"; did you mean python?"},
	{RX("tracers: \"\""),
	 "c.yaml:3: receivers.profiling.tracers: want names of tracers, or all"},
	{RX("tracers: [go, cobol]"),
	 "c.yaml:3: receivers.profiling.tracers: unknown tracer \"cobol\""},
	{RX("tracers: {go: true}"),
	 "c.yaml:3: receivers.profiling.tracers: want names of tracers, got a map"},
	{RX("reporter_interval: 5"),
	 "c.yaml:3: receivers.profiling.reporter_interval: want a duration such as 5s or 1m30s, got \"5\""},
	{RX("reporter_interval: 1ms"),
	 "c.yaml:3: receivers.profiling.reporter_interval: want 100ms..1h, got \"1ms\""},
	{RX("reporter_interval: 2h"),
	 "c.yaml:3: receivers.profiling.reporter_interval: want 100ms..1h, got \"2h\""},
	{RX("reporter_interval: 5 s"),
	 "c.yaml:3: receivers.profiling.reporter_interval: want a duration such as 5s or 1m30s, got \"5 s\""},
	{RX("reporter_interval: -5s"),
	 "c.yaml:3: receivers.profiling.reporter_interval: want a duration such as 5s or 1m30s, got \"-5s\""},
	{RX("max_stack_depth: 1025"),
	 "c.yaml:3: receivers.profiling.max_stack_depth: want 1..1024, got 1025"},
	{RX("memory_budget_mib: 96"),
	 "c.yaml:3: receivers.profiling.memory_budget_mib: is now budget: {memory: 96MiB}"},
	{RX("budget: {memory: 15MiB}"),
	 "c.yaml:3: receivers.profiling.budget.memory: want 16MiB..64GiB, got \"15MiB\""},
	{RX("budget: {memory: lots}"),
	 "c.yaml:3: receivers.profiling.budget.memory: want a size such as 128MiB, got \"lots\""},
	{RX("budget: {memory: [1]}"),
	 "c.yaml:3: receivers.profiling.budget.memory: want a size such as 128MiB"},
	{RX("budget: {cpu: 0.5}"),
	 "c.yaml:3: receivers.profiling.budget.cpu: want a share of all CPUs such as 0.5%, got \"0.5\""},
	{RX("budget: {cpu: 101%}"),
	 "c.yaml:3: receivers.profiling.budget.cpu: want 0.01%..100%, got \"101%\""},
	{RX("budget: {cpu: {}}"),
	 "c.yaml:3: receivers.profiling.budget.cpu: want a share of all CPUs such as 0.5%"},
	{RX("budget: 5"),
	 "c.yaml:3: receivers.profiling.budget: want a map, got text"},
	{RX("unwind_table_memory_mib: 3"),
	 "c.yaml:3: receivers.profiling.unwind_table_memory_mib: want 4..1024, got 3"},
	{RX("off_cpu_threshold: 1.5"),
	 "c.yaml:3: receivers.profiling.off_cpu_threshold: want 0..1, got 1.5"},
	{RX("off_cpu_threshold: high"),
	 "c.yaml:3: receivers.profiling.off_cpu_threshold: want a number, got \"high\""},
	{RX("process_filter: \"(java\""),
	 "c.yaml:3: receivers.profiling.process_filter: not a regular expression: Unmatched ( or \\("},
	{RX("process_filter: \"((a{99}){99}){99}\""),
	 "c.yaml:3: receivers.profiling.process_filter: repetitions add up to more than 1000"},
	{RX("process_filter: [a]"),
	 "c.yaml:3: receivers.profiling.process_filter: want text, got a list"},
	{RX("timestamps: yes"),
	 "c.yaml:3: receivers.profiling.timestamps: want true or false, got \"yes\""},
	{RX("verbose_mode: 1"),
	 "c.yaml:3: receivers.profiling.verbose_mode: want true or false, got \"1\""},
	{RX("interpreters: {cobol: {disabled: true}}"),
	 "c.yaml:3: receivers.profiling.interpreters.cobol: unknown key"},
	{RX("interpreters: {v8: {disabled: 5}}"),
	 "c.yaml:3: receivers.profiling.interpreters.v8.disabled: want true or false, got \"5\""},
	{RX("interpreters: {v8: {disable: true}}"),
	 "c.yaml:3: receivers.profiling.interpreters.v8.disable: unknown key; did you mean disabled?"},
	{RX("xyzzy: 1"),
	 "c.yaml:3: receivers.profiling.xyzzy: unknown key"},
	{RX("\"a\\nb\\e[31m\": 1"),
	 "c.yaml:3: receivers.profiling.a?b?[31m: unknown key"},
	{RX("samples_per_second: ${file:/etc/x}"),
	 "c.yaml:3: receivers.profiling.samples_per_second: ${file:...}: only ${env:NAME} is supported"},
	{RX("samples_per_second: ${env:RATE"),
	 "c.yaml:3: receivers.profiling.samples_per_second: ${ without }"},
	{RX("samples_per_second: ${1X}"),
	 "c.yaml:3: receivers.profiling.samples_per_second: ${1X}: not the name of an environment variable"},
	{RX("samples_per_second: ${env:A:-${env:B}}"),
	 "c.yaml:3: receivers.profiling.samples_per_second: ${} inside ${} is not supported"},
	{"receivers:\n  profiling:\n  customprofilesreceiver:\n    report_interval: soon\nexporters:\n  debug:\nservice:\n  pipelines:\n    profiles:\n      receivers: [profiling, customprofilesreceiver]\n      exporters: [debug]\n",
	 "c.yaml:4: receivers.customprofilesreceiver.report_interval: want a duration such as 5s or 1m30s, got \"soon\""},
	{PR("batch", "timeout: 10"),
	 "c.yaml:7: processors.batch.timeout: want a duration such as 5s or 1m30s, got \"10\""},
	{PR("batch", "timeot: 10s"),
	 "c.yaml:7: processors.batch.timeot: unknown key; did you mean timeout?"},
	{PR("memory_limiter", "check_interval: 1s"),
	 "c.yaml:6: processors.memory_limiter: limit_mib or limit_percentage: required"},
	{PR("memory_limiter", "limit_mib: 100"),
	 "c.yaml:6: processors.memory_limiter: check_interval: required"},
	{PR("memory_limiter", "{check_interval: 1s, limit_mib: 100, spike_limit_mib: 100}"),
	 "c.yaml:6: processors.memory_limiter: spike_limit_mib: must be below limit_mib"},
	{PR("memory_limiter", "{check_interval: 1s, limit_percentage: 101}"),
	 "c.yaml:7: processors.memory_limiter.limit_percentage: want 1..100, got 101"},
	{PR("memory_limiter", "limit_mib: 1GiB"),
	 "c.yaml:7: processors.memory_limiter.limit_mib: want a whole number, got \"1GiB\""},
	{PR("resource", "attribute: []"),
	 "c.yaml:6: processors.resource: attributes: required"},
	{PR("resource", "attributes: {a: b}"),
	 "c.yaml:7: processors.resource.attributes: want a list, got a map"},
	{PR("resource", "attributes: [{key: a, value: b}]"),
	 "c.yaml:7: processors.resource.attributes[0]: action: required, one of insert, update, upsert, delete"},
	{PR("resource", "attributes: [{value: b, action: insert}]"),
	 "c.yaml:7: processors.resource.attributes[0]: key: required"},
	{PR("resource", "attributes: [{key: a, action: insert}]"),
	 "c.yaml:7: processors.resource.attributes[0]: value: required for insert"},
	{PR("resource", "attributes: [{key: a, action: hash}]"),
	 "c.yaml:7: processors.resource.attributes[0].action: want insert, update, upsert or delete, got \"hash\""},
	{PR("resource", "attributes: [a]"),
	 "c.yaml:7: processors.resource.attributes[0]: want a map, got text"},
	{PR("k8sattributes", "extract: {metadata: [k8s.pod.nam]}"),
	 "c.yaml:7: processors.k8sattributes.extract.metadata: unknown attribute \"k8s.pod.nam\"; did you mean k8s.pod.name?"},
	{PR("k8sattributes", "extract: {metadata: k8s.pod.name}"),
	 "c.yaml:7: processors.k8sattributes.extract.metadata: want a list, got text"},
	{PR("k8sattributes", "extract: {labels: [{tag_name: a}]}"),
	 "c.yaml:7: processors.k8sattributes.extract.labels[0]: want one of key and key_regex"},
	{PR("k8sattributes", "extract: {labels: [{key: a, from: node2}]}"),
	 "c.yaml:7: processors.k8sattributes.extract.labels[0].from: want pod, namespace, node, deployment, statefulset, daemonset or job, got \"node2\""},
	{PR("k8sattributes", "extract: {annotations: [{key: a, key_regex: b}]}"),
	 "c.yaml:7: processors.k8sattributes.extract.annotations[0]: want one of key and key_regex"},
	{PR("k8sattributes", "extract: {label: []}"),
	 "c.yaml:7: processors.k8sattributes.extract.label: unknown key; did you mean labels?"},
	{PR("k8sattributes", "pod_asociation: []"),
	 "c.yaml:7: processors.k8sattributes.pod_asociation: unknown key; did you mean pod_association?"},
	{PR("customprofilesexporter", "foo: {a: b}"),
	 "c.yaml:7: processors.customprofilesexporter.foo: want text, got a map"},
	{EX("otlp", "compression: gzip"),
	 "c.yaml:4: exporters.otlp.endpoint: required"},
	{EX("otlp", "endpoint: localhost"),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \"localhost\""},
	{EX("otlp", "endpoint: localhost:port"),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \"localhost:port\""},
	{EX("otlp", "endpoint: localhost:70000"),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \"localhost:70000\""},
	{EX("otlp", "endpoint: http://host/path"),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \"http://host/path\""},
	{EX("otlp", "endpoint: \"::1:4317\""),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \"::1:4317\""},
	{EX("otlp", "endpoint: \":4317\""),
	 "c.yaml:5: exporters.otlp.endpoint: want HOST:PORT, got \":4317\""},
	{EX("otlp", "endpoint: {}"),
	 "c.yaml:5: exporters.otlp.endpoint: want text, got a map"},
	{EX("otlphttp", "endpoint: localhost:4318"),
	 "c.yaml:5: exporters.otlphttp.endpoint: want a URL such as http://HOST:4318, got \"localhost:4318\""},
	{EX("otlp_http", "endpoint: ftp://host"),
	 "c.yaml:5: exporters.otlp_http.endpoint: want a URL such as http://HOST:4318, got \"ftp://host\""},
	{EX("otlp_http", "endpoint: \"http://u:secret@ho st\""),
	 "c.yaml:5: exporters.otlp_http.endpoint: want a URL such as http://HOST:4318, got a URL with a user (not shown)"},
	{EX("otlp_http", "endpoint: \"http:///x\""),
	 "c.yaml:5: exporters.otlp_http.endpoint: want a URL such as http://HOST:4318, got \"http:///x\""},
	{EX("otlp", "endpoint: h:1\n    compression: snappy"),
	 "c.yaml:6: exporters.otlp.compression: want gzip, zstd or none, got \"snappy\""},
	{EX("otlp", "endpoint: h:1\n    timeout: 0s"),
	 "c.yaml:6: exporters.otlp.timeout: want 1ms..24h, got \"0s\""},
	{EX("otlp", "endpoint: h:1\n    timeout: 5"),
	 "c.yaml:6: exporters.otlp.timeout: want a duration such as 5s or 1m30s, got \"5\""},
	{EX("otlp", "endpoint: h:1\n    tls: {insecur: true}"),
	 "c.yaml:6: exporters.otlp.tls.insecur: unknown key; did you mean insecure?"},
	{EX("otlp", "endpoint: h:1\n    tls: {insecure: maybe}"),
	 "c.yaml:6: exporters.otlp.tls.insecure: want true or false, got \"maybe\""},
	{EX("otlp", "endpoint: h:1\n    tls: true"),
	 "c.yaml:6: exporters.otlp.tls: want a map, got text"},
	{EX("otlp", "endpoint: h:1\n    tls: {cert_file: /x}"),
	 "c.yaml:4: exporters.otlp.tls: cert_file and key_file go together"},
	{EX("otlp", "endpoint: h:1\n    tls: {min_version: 1.4}"),
	 "c.yaml:6: exporters.otlp.tls.min_version: want 1.0, 1.1, 1.2 or 1.3, got \"1.4\""},
	{EX("otlp", "endpoint: h:1\n    headers: {\"a b\": secret}"),
	 "c.yaml:6: exporters.otlp.headers: want a header's name of letters, digits and "
	 "!#$%&'*+-.^_`|~"},
	{EX("otlp", "endpoint: h:1\n    headers: {X-a: b, x-A: c}"),
	 "c.yaml:6: exporters.otlp.headers: the header x-A is given twice"},
	{EX("otlp", "endpoint: h:1\n    headers: {a: [secret]}"),
	 "c.yaml:6: exporters.otlp.headers: the header's value must be text"},
	{EX("otlp", "endpoint: h:1\n    headers: secret"),
	 "c.yaml:6: exporters.otlp.headers: want a map of headers, got text"},
	{EX("otlp", "endpoint: h:1\n    headers: [{name: a}]"),
	 "c.yaml:6: exporters.otlp.headers: want {name: NAME, value: VALUE}"},
	{EX("otlp", "endpoint: h:1\n    headers: {a: \"sec\\nret\"}"),
	 "c.yaml:6: exporters.otlp.headers: the header's value has control characters"},
	{EX("otlp", "endpoint: h:1\n    headers: [{name: a, value: s1}, {name: a, value: s2}]"),
	 "c.yaml:6: exporters.otlp.headers: the header a is given twice"},
	{EX("otlp", "endpoint: h:1\n    retry_on_failure: {initial_interval: 1m, max_interval: 5s}"),
	 "c.yaml:4: exporters.otlp.retry_on_failure: initial_interval is above max_interval"},
	{EX("otlp", "endpoint: h:1\n    retry_on_failure: {multiplier: 0.5}"),
	 "c.yaml:6: exporters.otlp.retry_on_failure.multiplier: want 1..100, got 0.5"},
	{EX("otlp", "endpoint: h:1\n    retry_on_failure: {randomization_factor: 2}"),
	 "c.yaml:6: exporters.otlp.retry_on_failure.randomization_factor: want 0..1, got 2"},
	{EX("otlp", "endpoint: h:1\n    retry_on_failure: {enable: true}"),
	 "c.yaml:6: exporters.otlp.retry_on_failure.enable: unknown key; did you mean enabled?"},
	{EX("otlp", "endpoint: h:1\n    sending_queue: {queue_size: 0}"),
	 "c.yaml:6: exporters.otlp.sending_queue.queue_size: want 1..1000000, got 0"},
	{EX("otlp", "endpoint: h:1\n    sending_queue: {storage: file_storage}"),
	 "c.yaml:6: exporters.otlp.sending_queue.storage: want the absolute path of a directory, got \"file_storage\""},
	{EX("otlp", "endpoint: h:1\n    sending_queue: {max_bytes: lots}"),
	 "c.yaml:6: exporters.otlp.sending_queue.max_bytes: want a size such as 512MiB, got \"lots\""},
	{EX("otlp", "endpoint: h:1\n    sending_queue: {max_bytes: 1KiB}"),
	 "c.yaml:6: exporters.otlp.sending_queue.max_bytes: want 1MiB..1TiB, got \"1KiB\""},
	{EX("otlp", "endpoint: h:1\n    proto_generation: v2"),
	 "c.yaml:6: exporters.otlp.proto_generation: want auto, v1.8, v1.9, v1.10, v1.11, g4, g5 or g6, got \"v2\""},
	{EX("otlp", "endpoint: h:1\n    encoding: json"),
	 "c.yaml:6: exporters.otlp.encoding: unknown key"},
	{EX("debug", "export_stack_frame: true"),
	 "c.yaml:5: exporters.debug.export_stack_frame: unknown key; did you mean export_stack_frames?"},
	{EX("debug", "export_stack_frames: yes"),
	 "c.yaml:5: exporters.debug.export_stack_frames: want true or false, got \"yes\""},
	{EX("debug", "export_stack_frame_types: [nativ]"),
	 "c.yaml:5: exporters.debug.export_stack_frame_types: unknown frame type \"nativ\"; did you mean native?"},
	{EX("debug", "export_stack_frame_types: {a: b}"),
	 "c.yaml:5: exporters.debug.export_stack_frame_types: want a list of names, got a map"},
	{EX("pprof_file", "rotation: 1m"),
	 "c.yaml:4: exporters.pprof_file: path: required"},
	{EX("pprof_file", "path: a%d"),
	 "c.yaml:5: exporters.pprof_file.path: only one %s (the start time) may stand in it, got \"a%d\""},
	{EX("folded_file", "path: \"\""),
	 "c.yaml:5: exporters.folded_file.path: want the path of a file"},
	{EX("top", "rows: 0"),
	 "c.yaml:5: exporters.top.rows: want 1..1000, got 0"},
	{XT("pprof", "endpoint: 1777"),
	 "c.yaml:7: extensions.pprof.endpoint: want HOST:PORT or :PORT, got \"1777\""},
	{XT("pprof", "endpoint: \":99999\""),
	 "c.yaml:7: extensions.pprof.endpoint: want HOST:PORT or :PORT, got \":99999\""},
	{XT("pprof", "endpoints: \":1777\""),
	 "c.yaml:7: extensions.pprof.endpoints: unknown key; did you mean endpoint?"},
	{XT("health_check", "path: health"),
	 "c.yaml:7: extensions.health_check.path: want a path such as /health, got \"health\""},
	{XT("live", "endpoint: \"[::1]\""),
	 "c.yaml:7: extensions.live.endpoint: want HOST:PORT or :PORT, got \"[::1]\""},
	{XT("live", "port: 7070"),
	 "c.yaml:7: extensions.live.port: unknown key"},	{RX("samples_per_second: \"${e\\n}\""),
	 "c.yaml:3: receivers.profiling.samples_per_second: ${e?}: not the name of an environment variable"},
	{"\"a\\nb\": 1\n\"a\\nb\": 2\n",
	 "c.yaml:2: the key a?b is already at line 1"},
	{"receivers:\n  profiling: \"\377\"\n",
	 "c.yaml:2: not valid YAML: invalid leading UTF-8 octet"},
};

static const struct {
	const char *args[6], *message;
} lines[] = {
	{{"stray"},
	 "unexpected argument \"stray\"; see --help"},
	{{"--config"},
	 "--config: a value is missing"},
	{{"--config=a", "--config=b"},
	 "--config: only one file can be given"},
	{{"--config", "missing.yaml"},
	 "missing.yaml: cannot open: No such file or directory"},
	{{"--config", "new\nline"},
	 "new?line: cannot open: No such file or directory"},
	{{"--config", "."},
	 ".: neither a regular file nor a pipe"},
	{{"--sampels-per-second", "5"},
	 "--sampels-per-second: unknown option; did you mean --samples-per-second?"},
	{{"--zzz"},
	 "--zzz: unknown option; see --help"},
	{{"--samples-per-second", "5000"},
	 "--samples-per-second: want 1..1000, got 5000"},
	{{"--samples-per-second", "abc"},
	 "--samples-per-second: want a whole number, got \"abc\""},
	{{"--samples-per-second"},
	 "--samples-per-second: a value is missing"},
	{{"-reporter-interval", "5"},
	 "-reporter-interval: want a duration such as 5s or 1m30s, got \"5\""},
	{{"--reporter-interval=2h"},
	 "--reporter-interval: want 100ms..1h, got \"2h\""},
	{{"--tracers", "pearl"},
	 "--tracers: unknown tracer \"pearl\"; did you mean perl?"},
	{{"-t=,"},
	 "-t: want names of tracers, or all"},
	{{"--process-filter", "*["},
	 "--process-filter: not a regular expression: Invalid preceding regular expression"},
	{{"--collection-agent", "localhost"},
	 "--collection-agent: want HOST:PORT, got \"localhost\""},
	{{"--collection-agent="},
	 "--collection-agent: a value is missing"},
	{{"--disable-tls=maybe"},
	 "--disable-tls: want true or false, got \"maybe\""},
	{{"--disable-tls", "--collection-agent", "https://h:1"},
	 "--disable-tls: the endpoint of otlp_grpc says https"},
	{{"--tags", "a"},
	 "--tags: want KEY=VALUE,..., but pair 1 is not one"},
	{{"--tags", "a=1,=2"},
	 "--tags: want KEY=VALUE,..., but pair 2 is not one"},
	{{"--off-cpu-threshold", "2"},
	 "--off-cpu-threshold: want 0..1, got 2"},
	{{"--off-cpu-threshold", "x"},
	 "--off-cpu-threshold: want a number, got \"x\""},
	{{"--duration", "0s"},
	 "--duration: want more than nothing, got \"0s\""},
	{{"--duration", "soon"},
	 "--duration: want a duration such as 5s or 1m30s, got \"soon\""},
	{{"--pid", "abc"},
	 "--pid: want process ids, got \"abc\""},
	{{"--pid", "1,,2"},
	 "--pid: want process ids, got \"1,,2\""},
	{{"--pid", "0"},
	 "--pid: want process ids, got \"0\""},
	{{"--live", "0.0.0.0:80"},
	 "--live: 0.0.0.0:80 is not an address of this machine alone: extensions.live.token_file "
	 "or tls.client_ca_file is required, in a file (--config)"},
	{{"--live=here"},
	 "--live: want HOST:PORT or :PORT, got \"here\""},
	{{"--pprof-file", "%d.gz"},
	 "--pprof-file: only one %s (the start time) may stand in it, got \"%d.gz\""},
	{{"-"},
	 "unexpected argument \"-\"; see --help"},
	{{"--"},
	 "unexpected argument \"--\"; see --help"},
	{{"--=x"},
	 "--: unknown option; see --help"},
	{{"--check", "now"},
	 "unexpected argument \"now\"; see --help"},
	{{"--stdot"},
	 "--stdot: unknown option; did you mean --stdout?"},
	{{"--\033[31m"},
	 "--?[31m: unknown option; see --help"},};

/*
 * Each variable is set beside OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317, unless it sets an
 * endpoint.
 */
static const struct {
	const char *variable, *message;
} variables[] = {
	{"OTEL_PROFILER_SAMPLING_FREQUENCY=fast",
	 "OTEL_PROFILER_SAMPLING_FREQUENCY: want a whole number, got \"fast\""},
	{"OTEL_PROFILER_SAMPLING_FREQUENCY=0",
	 "OTEL_PROFILER_SAMPLING_FREQUENCY: want 1..1000, got 0"},
	{"OTEL_PROFILER_MAX_STACK_DEPTH=2000",
	 "OTEL_PROFILER_MAX_STACK_DEPTH: want 1..1024, got 2000"},
	{"OTEL_RESOURCE_ATTRIBUTES=novalue",
	 "OTEL_RESOURCE_ATTRIBUTES: want KEY=VALUE,..., but pair 1 is not one"},
	{"OTEL_RESOURCE_ATTRIBUTES=a=%zz",
	 "OTEL_RESOURCE_ATTRIBUTES: pair 1 has a broken %XX escape"},
	{"OTEL_EXPORTER_OTLP_ENDPOINT=nowhere",
	 "OTEL_EXPORTER_OTLP_ENDPOINT: want HOST:PORT, got \"nowhere\""},
	{"OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT=http://",
	 "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT: want HOST:PORT, got \"http://\""},
	{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json",
	 "OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf, got \"http/json\""},
	{"OTEL_EXPORTER_OTLP_HEADERS=secret",
	 "OTEL_EXPORTER_OTLP_HEADERS: want KEY=VALUE,..., but pair 1 is not one"},
	{"OTEL_EXPORTER_OTLP_PROFILES_HEADERS=a=1,b c=secret",
	 "OTEL_EXPORTER_OTLP_PROFILES_HEADERS: pair 2: want a header's name of letters, digits and "
	 "!#$%&'*+-.^_`|~"},
	{"OTEL_EXPORTER_OTLP_HEADERS=Authorization: Basic dXNlcjpzZWNyZXQ=",
	 "OTEL_EXPORTER_OTLP_HEADERS: pair 1: want a header's name of letters, digits and "
	 "!#$%&'*+-.^_`|~"},
	{"OTEL_EXPORTER_OTLP_HEADERS=a=secret%0a",
	 "OTEL_EXPORTER_OTLP_HEADERS: pair 1: the header's value has control characters"},
	{"OTEL_EXPORTER_OTLP_COMPRESSION=lz4",
	 "OTEL_EXPORTER_OTLP_COMPRESSION: want gzip, zstd or none, got \"lz4\""},
	{"OTEL_EXPORTER_OTLP_TIMEOUT=5s",
	 "OTEL_EXPORTER_OTLP_TIMEOUT: want milliseconds, 1..86400000, got \"5s\""},
	{"OTEL_EXPORTER_OTLP_INSECURE=1",
	 "OTEL_EXPORTER_OTLP_INSECURE: want true or false, got \"1\""},
	{"OTEL_EXPORTER_OTLP_CLIENT_KEY=/k",
	 "otlp_grpc: tls: cert_file and key_file go together"},};
/* clang-format on */

static void check(const struct load *l, const char *input, const char *message)
{
	if (l->r != -EINVAL || !streq(l->err.message, message))
		fail_msg("%s\n  want: %s\n  got:  %d %s", input, message, l->r, l->err.message);
	assert_int_equal(l->err.code, -EINVAL);
	/* No message may show the value of a header. */
	assert_null(strstr(l->err.message, "secret"));
	assert_null(strstr(l->warnings, "secret"));
}

static void test_each_bad_file_names_place_and_cause(void **state)
{
	assert_true(ARRAY_SIZE(files) >= 80);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct load l;

		load_yaml(&l, files[i].yaml, NULL);
		check(&l, files[i].yaml, files[i].message);
		load_done(&l);
	}
}

static void test_each_bad_flag_names_itself(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct load l;

		load_run(&l, lines[i].args, NULL);
		check(&l, lines[i].args[0], lines[i].message);
		load_done(&l);
	}
}

static void test_each_bad_variable_names_itself(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const char *env[] = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317",
				     variables[i].variable, NULL};
		struct load l;

		if (strstr(variables[i].variable, "ENDPOINT="))
			env[0] = "HOME=/";
		load_run(&l, NULL, env);
		check(&l, variables[i].variable, variables[i].message);
		load_done(&l);
	}
}

static void test_a_file_above_the_cap_is_refused(void **state)
{
	static const char *const args[] = {"--config", "c.yaml", NULL};
	_cleanup_free_ char *big = malloc(CONFIG_FILE_MAX + 2);
	struct load l;

	assert_non_null(big);
	memset(big, '#', CONFIG_FILE_MAX + 1);
	big[CONFIG_FILE_MAX + 1] = 0;
	load_write("c.yaml", big);
	load_run(&l, args, NULL);
	check(&l, "1 MiB and a byte", "c.yaml: larger than 1048576 bytes");
	load_done(&l);
}

/* The path's buffer is smaller than what a user can write. */
static void test_long_names_are_cut(void **state)
{
	char yaml[8192] = "receivers:\n  profiling:\n    ";
	size_t n = strlen(yaml);
	struct load l;

	memset(yaml + n, 'k', 1000);
	strcpy(yaml + n + 1000, ": 1\n" TEXT TAIL);
	load_yaml(&l, yaml, NULL);
	assert_int_equal(l.r, -EINVAL);
	assert_non_null(strstr(l.err.message, "c.yaml:3: receivers.profiling.kkk"));
	assert_non_null(strstr(l.err.message, ": unknown key"));
	load_done(&l);
}

/* Checks a file that has START, N times ITEM with its number in it, and END. */
static void check_many(const char *start, const char *item, unsigned int n, const char *end,
		       const char *message)
{
	_cleanup_(buf_done) struct buf b;
	struct load l;

	buf_init(&b, 1 << 18);
	buf_puts(&b, start);
	for (unsigned int i = 0; i < n; i++) {
		char one[128];

		snprintf(one, sizeof(one), "%.*s%u%s", (int)strcspn(item, "#"), item, i,
			 strchr(item, '#') + 1);
		buf_puts(&b, one);
	}
	buf_puts(&b, end);
	assert_int_equal(buf_error(&b), 0);
	load_yaml(&l, b.data, NULL);
	if (message)
		check(&l, start, message);
	else
		assert_int_equal(l.r, 0);
	load_done(&l);
}

static void test_lists_are_capped(void **state)
{
	static const struct {
		const char *start, *item, *end, *message;
		unsigned int max;
	} cases[] = {
	    {RECEIVER "exporters:\n  debug:\n    export_sample_types: [", "t#, ", "x]\n" TAIL,
	     "c.yaml:5: exporters.debug.export_sample_types: more than 256 names",
	     CONFIG_LIST_MAX - 1},
	    {RECEIVER "exporters:\n  otlp:\n    endpoint: h:1\n    headers:\n",
	     "      h#: secret\n", PIPELINE("", "otlp"),
	     "c.yaml:71: exporters.otlp.headers: more than 64 headers", CONFIG_HEADERS_MAX},
	    {RECEIVER TEXT "processors:\n  customprofilesexporter:\n", "    a#: b\n",
	     PIPELINE("      processors: [customprofilesexporter]\n", "debug"),
	     "c.yaml:263: processors.customprofilesexporter.a256: more than 256 attributes",
	     CONFIG_LIST_MAX},
	    {RECEIVER TEXT "processors:\n  resource:\n    attributes:\n",
	     "      - {key: k#, action: delete}\n",
	     PIPELINE("      processors: [resource]\n", "debug"),
	     "c.yaml:264: processors.resource.attributes[256]: more than 256 actions",
	     CONFIG_LIST_MAX},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		check_many(cases[i].start, cases[i].item, cases[i].max, cases[i].end, NULL);
		check_many(cases[i].start, cases[i].item, cases[i].max + 1, cases[i].end,
			   cases[i].message);
	}
}

static void test_components_of_a_pipeline_are_capped(void **state)
{
	for (unsigned int n = CONFIG_COMPONENTS_MAX; n <= CONFIG_COMPONENTS_MAX + 1; n++) {
		char start[4096] =
		    RECEIVER "service:\n  pipelines:\n    profiles:\n"
			     "      receivers: [profiling]\n      exporters: [debug/0";

		for (unsigned int i = 1; i < n; i++)
			sprintf(start + strlen(start), ", debug/%u", i);
		strcat(start, "]\nexporters:\n");
		check_many(start, "  debug/#:\n", n, "",
			   n > CONFIG_COMPONENTS_MAX
			       ? "c.yaml:7: service.pipelines.profiles.exporters: "
				 "more than 64 components are used"
			       : NULL);
	}
}

/* The file has used up all components, and the exporter of --stdout is one more. */
static void test_a_flag_cannot_exceed_the_cap_either(void **state)
{
	static const char *const args[] = {"--config", "c.yaml", "--stdout", NULL};
	_cleanup_(buf_done) struct buf b;
	struct load l;

	buf_init(&b, 1 << 16);
	buf_puts(&b, RECEIVER "exporters: {top/0: ");
	for (int i = 1; i < CONFIG_COMPONENTS_MAX; i++)
		buf_printf(&b, ", top/%d: ", i);
	buf_puts(&b,
		 "}\nservice: {pipelines: {profiles: {receivers: [profiling], exporters: [top/0");
	for (int i = 1; i < CONFIG_COMPONENTS_MAX; i++)
		buf_printf(&b, ", top/%d", i);
	buf_puts(&b, "]}}}\n");
	load_write("c.yaml", b.data);
	load_run(&l, args, NULL);
	check(&l, "--stdout", "--stdout: more than 64 exporters");
	load_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_bad_file_names_place_and_cause),
	    cmocka_unit_test(test_each_bad_flag_names_itself),
	    cmocka_unit_test(test_each_bad_variable_names_itself),
	    cmocka_unit_test(test_a_file_above_the_cap_is_refused),
	    cmocka_unit_test(test_long_names_are_cut),
	    cmocka_unit_test(test_lists_are_capped),
	    cmocka_unit_test(test_components_of_a_pipeline_are_capped),
	    cmocka_unit_test(test_a_flag_cannot_exceed_the_cap_either),
	};

	return cmocka_run_group_tests(tests, load_setup, load_teardown);
}
