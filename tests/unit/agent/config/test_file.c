/* SPDX-License-Identifier: Apache-2.0 */
/* What good files mean: defaults, every key's destination, the documents that users start from. */
#include "tests/unit/agent/config/load.h"

#define SEEDS TEST_DATA "/../../../shared/seeds/"

static void load_data(struct load *l, const char *name, const char *const *env)
{
	char path[512];
	const char *args[] = {"--config", path, NULL};

	snprintf(path, sizeof(path), "%s/config/%s", TEST_DATA, name);
	load_ok(l, args, env);
}

#define MINIMAL                                                                                    \
	"receivers: {profiling: }\nexporters: {debug: }\n"                                         \
	"service: {pipelines: {profiles: {receivers: [profiling], exporters: [debug]}}}\n"

static void test_null_maps_give_the_documented_defaults(void **state)
{
	struct load l;

	load_yaml(&l, MINIMAL, NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.samples_per_second, 20);
	assert_int_equal(l.config->receiver.tracers, TRACERS_ALL);
	assert_int_equal(l.config->receiver.reporter_interval_ms, 5000);
	assert_int_equal(l.config->receiver.max_stack_depth, 1024);
	assert_int_equal(l.config->receiver.unwind_table_mib, 512);
	assert_null(l.config->receiver.process_filter);
	assert_int_equal(l.config->n_exporters, 1);
	assert_string_equal(l.config->exporters[0].type, "customprofilesexporter");
	assert_string_equal(l.config->exporters[0].id, "debug");
	assert_true(l.config->exporters[0].export_resource_attributes);
	assert_true(l.config->exporters[0].export_profile_attributes);
	assert_true(l.config->exporters[0].export_sample_attributes);
	assert_true(l.config->exporters[0].export_stack_frames);
	assert_true(l.config->exporters[0].ignore_profiles_without_container_id);
	assert_false(l.config->exporters[0].export_function_file);
	assert_false(l.config->pprof.enabled || l.config->health_check.enabled ||
		     l.config->live.enabled);
	assert_false(l.config->embedded);
	assert_int_equal(l.n_warnings, 0);
	load_done(&l);
}

#define OPERATOR(map)                                                                              \
	"receivers: {profiling: }\nexporters: {debug: }\n"                                         \
	"processors: {k8sattributes: {operator: " map "}}\n"                                       \
	"service: {pipelines: {profiles: {receivers: [profiling], processors: [k8sattributes], "   \
	"exporters: [debug]}}}\n"

static void test_the_operator_is_named_by_the_k8sattributes_processor(void **state)
{
	const struct operator_config *o;
	struct load l;

	load_yaml(&l,
		  OPERATOR("{endpoint: 'h:1', ca_file: /c, token_file: /t, snapshot_file: /s, "
			   "server_name: n}"),
		  NULL);
	assert_int_equal(l.r, 0);
	o = &l.config->processors.node_stream;
	assert_true(o->enabled);
	assert_string_equal(o->endpoint, "h:1");
	assert_string_equal(o->ca_file, "/c");
	assert_string_equal(o->token_file, "/t");
	assert_string_equal(o->snapshot_file, "/s");
	assert_string_equal(o->server_name, "n");
	assert_false(o->export_untold);
	assert_int_equal(l.n_warnings, 0);
	load_done(&l);
	load_yaml(&l, OPERATOR("{snapshot_file: /s, when_unknown: default}"), NULL);
	assert_int_equal(l.r, 0);
	assert_true(l.config->processors.node_stream.export_untold);
	load_done(&l);
	load_yaml(&l, OPERATOR("{snapshot_file: /s}"), NULL);
	assert_int_equal(l.r, 0);
	assert_null(l.config->processors.node_stream.endpoint);
	load_done(&l);
}

static void test_an_operator_without_proof_of_who_it_is_is_refused(void **state)
{
	static const char *const bad[][2] = {
	    {OPERATOR("{endpoint: 'h:1', token_file: /t}"), "ca_file: required"},
	    {OPERATOR("{endpoint: 'h:1', ca_file: /c}"), "token_file: required"},
	    {OPERATOR("{}"), "want endpoint or snapshot_file"},
	    {OPERATOR("{endpint: x}"), "did you mean endpoint"},
	    {OPERATOR("{snapshot_file: /s, when_unknown: drop}"), "want hold or default"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct load l;

		load_yaml(&l, bad[i][0], NULL);
		assert_int_equal(l.r, -EINVAL);
		assert_non_null(strstr(l.err.message, bad[i][1]));
		load_done(&l);
	}
}

static void check_text(const struct config *c)
{
	const struct exporter_config *e = &c->exporters[0];

	assert_int_equal(c->receiver.tracers, 1U << LOAD_PYTHON | 1U << LOAD_V8 | 1U << LOAD_RUBY |
						  1U << LOAD_PERL | 1U << LOAD_HOTSPOT |
						  1U << LOAD_PHP | 1U << LOAD_DOTNET);
	assert_int_equal(c->processors.add_attributes.n, 1);
	assert_int_equal(c->n_exporters, 1);
	assert_string_equal(e->type, "customprofilesexporter");
	assert_int_equal(e->export_stack_frame_types.n, 6);
	assert_string_equal(e->export_stack_frame_types.items[5], "cpython");
	assert_true(e->export_function_file);
}

static void test_the_text_pipeline_is_read(void **state)
{
	struct load l;

	load_data(&l, "text.yaml", NULL);
	check_text(l.config);
	assert_int_equal(l.config->receiver.samples_per_second, 25);
	assert_int_equal(l.config->receiver.reporter_interval_ms, 7000);
	assert_string_equal(pairs_get(&l.config->processors.add_attributes, "team"), "blue");
	assert_false(l.config->exporters[0].ignore_profiles_without_container_id);
	assert_false(l.config->exporters[0].export_profile_attributes);
	assert_int_equal(l.n_warnings, 1);
	assert_non_null(strstr(l.warnings, "does not walk the stacks of"));
	load_done(&l);
}

static void test_the_kubernetes_pipeline_is_read(void **state)
{
	const struct processors_config *p;
	struct load l;

	load_data(&l, "kubernetes.yaml", NULL);
	p = &l.config->processors;
	assert_int_equal(l.config->receiver.tracers, 1U << LOAD_PYTHON);
	assert_true(p->k8sattributes);
	assert_int_equal(p->k8s_metadata.n, 3);
	assert_string_equal(p->k8s_metadata.items[2], "container.image.repo_digests");
	assert_true(p->extracts);
	assert_true(l.config->pprof.enabled);
	assert_string_equal(l.config->pprof.host, "");
	assert_int_equal(l.config->pprof.port, 1777);
	/* What needs the operator, and what it alone can say. */
	assert_int_equal(l.n_warnings, 2);
	assert_non_null(strstr(l.warnings, "kubernetes.yaml:7: processors.k8sattributes: "));
	assert_non_null(
	    strstr(l.warnings, "extract.labels and extract.annotations: accepted, but"));
	load_done(&l);
}

static void check_grpc(const struct exporter_config *e)
{
	assert_string_equal(e->id, "otlp_grpc/backend");
	assert_string_equal(e->type, "otlp_grpc");
	assert_string_equal(e->endpoint, "pyroscope:4040");
	assert_false(e->tls.insecure);
	assert_string_equal(e->tls.ca_file, "/etc/kiln/ca.pem");
	assert_string_equal(e->tls.cert_file, "/etc/kiln/client.pem");
	assert_string_equal(e->tls.key_file, "/etc/kiln/client.key");
	assert_string_equal(e->tls.server_name_override, "backend.example");
	assert_string_equal(pairs_get(&e->headers, "X-Scope-OrgID"), "nobody");
	assert_string_equal(e->compression, "zstd");
	assert_int_equal(e->timeout_ms, 10000);
	assert_string_equal(e->proto_generation, "v1.9");
	assert_true(e->retry.enabled);
	assert_int_equal(e->retry.initial_interval_ms, 5000);
	assert_int_equal(e->retry.max_elapsed_time_ms, 300000);
	assert_true(e->retry.multiplier == 1.5 && e->retry.randomization_factor == 0.5);
	assert_int_equal(e->queue.max_bytes, 64 << 20);
	assert_null(e->queue.storage);
}

static void check_http(const struct exporter_config *e)
{
	assert_string_equal(e->type, "otlp_http");
	assert_string_equal(e->id, "otlphttp");
	assert_string_equal(e->endpoint, "https://collector.example:4318/base");
	assert_null(e->profiles_endpoint);
	assert_false(e->tls.insecure);
	assert_string_equal(e->tls.ca_file, "/etc/kiln/ca.pem");
	assert_string_equal(pairs_get(&e->headers, "Authorization"), "Bearer a$b");
	assert_string_equal(e->compression, "none");
	assert_int_equal(e->timeout_ms, 30000);
	assert_int_equal(e->retry.initial_interval_ms, 1000);
	assert_int_equal(e->retry.max_interval_ms, 60000);
	assert_int_equal(e->retry.max_elapsed_time_ms, 0);
	assert_int_equal(e->queue.queue_size, 50);
	assert_int_equal(e->queue.max_bytes, 32 << 20);
	assert_string_equal(e->queue.storage, "/var/lib/kiln/spool");
	assert_int_equal(e->queue.storage_max_bytes, 2ULL << 30);
}

#define PROFILING(keys)                                                                            \
	"receivers: {profiling: {" keys "}}\nexporters: {debug: }\n"                               \
	"service: {pipelines: {profiles: {receivers: [profiling], exporters: [debug]}}}\n"

#define NATIVE_6_TIMES "native,native,native,native,native,native,"
#define NATIVE_60_TIMES                                                                            \
	NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES  \
	    NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES NATIVE_6_TIMES
#define NATIVE_240_TIMES NATIVE_60_TIMES NATIVE_60_TIMES NATIVE_60_TIMES NATIVE_60_TIMES

/* No file of the configuration knows "toy": it comes from the caller's list. */
static void test_names_of_runtimes_are_those_of_the_list(void **state)
{
	struct load l;

	load_yaml(&l, PROFILING("tracers: [native, toy]"), NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.tracers, 1U << LOAD_LAST);
	assert_true(l.config->receiver.runtimes[LOAD_LAST].native_frames);
	load_done(&l);
	load_yaml(&l, PROFILING("interpreters: {toy: {disabled: true}, go: {disabled: true}}"),
		  NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.tracers, ~(1U << LOAD_LAST));
	assert_int_equal(l.n_warnings, 1);
	assert_non_null(strstr(l.warnings, "go.disabled: accepted, but has no effect"));
	load_done(&l);
	load_yaml(&l, PROFILING("tracers: [" NATIVE_240_TIMES "toy]"), NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.tracers, 1U << LOAD_LAST);
	load_done(&l);
	load_yaml(&l, PROFILING("toy: {native_frames: false}"), NULL);
	assert_int_equal(l.r, 0);
	assert_false(l.config->receiver.runtimes[LOAD_LAST].native_frames);
	assert_true(l.config->receiver.runtimes[LOAD_PYTHON].native_frames);
	load_done(&l);
	/* A runtime that is not walked has no settings. */
	load_yaml(&l, PROFILING("ruby: {native_frames: false}"), NULL);
	assert_int_equal(l.r, -EINVAL);
}

static void test_the_otlp_pipeline_is_read(void **state)
{
	/* What a variable brings in is not expanded again. */
	static const char *const env[] = {"TOKEN=a$b", NULL};
	const struct config *c;
	struct load l;

	load_data(&l, "otlp.yaml", env);
	c = l.config;
	assert_int_equal(c->receiver.samples_per_second, 97);
	assert_int_equal(c->receiver.reporter_interval_ms, 90000);
	assert_int_equal(c->receiver.max_stack_depth, 64);
	assert_int_equal(c->receiver.unwind_table_mib, 48);
	assert_int_equal(c->receiver.budget.memory_bytes, 96ULL << 20);
	assert_string_equal(c->receiver.process_filter, "^(java|node)$");
	assert_int_equal(c->receiver.tracers, 1U << LOAD_HOTSPOT);
	assert_int_equal(c->processors.memory_limit_bytes, 1024 << 20);
	assert_int_equal(c->processors.memory_spike_bytes, 256 << 20);
	assert_int_equal(c->processors.n_resource, 2);
	assert_string_equal(c->processors.resource[0].value, "east");
	assert_string_equal(c->processors.resource[1].action, "delete");
	assert_null(c->processors.resource[1].value);
	assert_int_equal(c->n_exporters, 3); /* in pipeline order, the unused one is not there */
	check_grpc(&c->exporters[0]);
	check_http(&c->exporters[1]);
	assert_string_equal(c->exporters[2].path, "/tmp/kiln-%s.pb.gz");
	assert_int_equal(c->exporters[2].rotation_ms, 60000);
	assert_string_equal(c->health_check.host, "::1");
	assert_string_equal(c->health_check.path, "/health");
	assert_true(c->live.enabled && c->health_check.enabled && !c->pprof.enabled);
	assert_string_equal(c->live.host, "127.0.0.1");
	assert_int_equal(l.n_warnings, 2);
	assert_non_null(strstr(l.warnings, "does not walk the stacks of"));
	assert_non_null(strstr(l.warnings, "otlp.yaml:19: processors.batch.timeout: accepted, but "
					   "has no effect: a window is sent at once"));
	load_done(&l);
}

static void test_known_keys_without_effect_warn_once_each(void **state)
{
	struct load l;

	load_yaml(
	    &l,
	    "receivers:\n  profiling:\n    probabilistic_threshold: 50\n"
	    "    MapScaleFactor: 2\n    off_cpu_threshold: 0.1\n    verbose_mode: true\n"
	    "  otlp: {protocols: {grpc: }}\n"
	    "exporters:\n  otlp:\n    endpoint: h:1\n    balancer_name: x\n    keepalive: {}\n"
	    "service:\n  telemetry: {logs: {level: WARN, encoding: json}, metrics: {level: none}}\n"
	    "  pipelines:\n    profiles:\n"
	    "      receivers: [profiling]\n      exporters: [otlp]\n",
	    NULL);
	assert_int_equal(l.r, 0);
	assert_true(l.config->verbose);
	assert_int_equal(l.config->log_level, LOG_WARN);
	assert_string_equal(
	    l.warnings,
	    "c.yaml:14: service.telemetry.logs.encoding: accepted, but has no effect in this "
	    "agent\n"
	    "c.yaml:14: service.telemetry.metrics: accepted, but has no effect in this agent; its "
	    "metrics are at /metrics of the health_check extension\n"
	    "c.yaml:3: receivers.profiling.probabilistic_threshold: accepted, but has no effect "
	    "in this agent\n"
	    "c.yaml:4: receivers.profiling.MapScaleFactor: accepted, but has no effect in this "
	    "agent\n"
	    "c.yaml:11: exporters.otlp.balancer_name: accepted, but has no effect in this agent\n"
	    "c.yaml:12: exporters.otlp.keepalive: accepted, but has no effect in this agent\n");
	load_done(&l);
}

static void test_variables_expand_as_the_collector_does(void **state)
{
	static const struct {
		const char *written, *value;
	} cases[] = {
	    {"${env:A}", "one"},
	    {"${A}", "one"},
	    {"x${A}y${B}z", "xoneytwoz"},
	    {"$$A", "$A"},
	    {"$${A}", "${A}"},
	    {"$A", "$A"},
	    {"${env:NO:-def}", "def"},
	    {"${NO:-}", ""},
	    {"${env:A:-def}", "one"},
	    {"${EMPTY:-def}", "def"},
	    {"'${env:A}'", "one"},
	    {"${NO}", ""},
	    {"a$", "a$"},
	    {"\"${A}${env:B}\"", "onetwo"},
	};
	static const char *const env[] = {"A=one", "B=two", "EMPTY=", "AB=no", NULL};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char yaml[512];
		struct load l;

		snprintf(yaml, sizeof(yaml),
			 "receivers: {profiling: }\nexporters: {debug: }\n"
			 "processors:\n  customprofilesexporter:\n    k: %s\n"
			 "service: {pipelines: {profiles: {receivers: [profiling], exporters: "
			 "[debug], processors: [customprofilesexporter]}}}\n",
			 cases[i].written);
		load_yaml(&l, yaml, env);
		assert_int_equal(l.r, 0);
		assert_string_equal(pairs_get(&l.config->processors.add_attributes, "k"),
				    cases[i].value);
		assert_int_equal(l.n_warnings, streq(cases[i].written, "${NO}"));
		load_done(&l);
	}
}

static void test_several_profiles_pipelines_join_their_exporters(void **state)
{
	struct load l;

	load_yaml(&l,
		  "receivers: {profiling: }\nexporters: {debug/a: , debug/b: }\nservice:\n"
		  "  pipelines:\n    profiles/1: {receivers: [profiling], exporters: [debug/a]}\n"
		  "    profiles/2: {receivers: [profiling], exporters: [debug/a, debug/b]}\n",
		  NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->n_exporters, 2);
	assert_string_equal(l.config->exporters[1].id, "debug/b");
	load_done(&l);
}

/* One sampler is there; what another receiver would bring is missing, and that is said. */
static void test_a_receiver_beside_profiling_is_accepted_with_a_warning(void **state)
{
	struct load l;

	load_yaml(
	    &l,
	    "receivers:\n  otlp: {protocols: {grpc: }}\n  profiling: {samples_per_second: 7}\n"
	    "exporters: {debug: }\nservice:\n  pipelines:\n    profiles:\n"
	    "      receivers: [otlp, profiling]\n      exporters: [debug]\n",
	    NULL);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.samples_per_second, 7);
	assert_string_equal(l.warnings, "c.yaml:2: receivers.otlp: accepted, but an agent receives "
					"nothing: it takes samples\n");
	load_done(&l);
}

/* Whichever stands first in the pipeline. */
static void test_the_custom_receivers_window_wins_in_any_order(void **state)
{
	static const char *const orders[] = {"[profiling, customprofilesreceiver]",
					     "[customprofilesreceiver, profiling]"};

	for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
		char yaml[512];
		struct load l;

		snprintf(yaml, sizeof(yaml),
			 "receivers:\n  profiling: {reporter_interval: 3s}\n"
			 "  customprofilesreceiver: {ReportInterval: 8s}\nexporters: {debug: }\n"
			 "service: {pipelines: {profiles: {receivers: %s, exporters: [debug]}}}\n",
			 orders[i]);
		load_yaml(&l, yaml, NULL);
		assert_int_equal(l.r, 0);
		assert_int_equal(l.config->receiver.reporter_interval_ms, 8000);
		load_done(&l);
	}
}

static void test_merged_and_aliased_values_are_read(void **state)
{
	struct load l;

	load_yaml(&l,
		  "receivers: {profiling: }\nexporters:\n"
		  "  otlp/a: &a {endpoint: 'a:1', tls: {insecure: true}, timeout: 1s}\n"
		  "  otlp/b: {<<: *a, endpoint: 'b:1'}\nservice:\n  pipelines:\n    profiles:\n"
		  "      receivers: [profiling]\n      exporters: [otlp/a, otlp/b]\n",
		  NULL);
	assert_int_equal(l.r, 0);
	assert_string_equal(l.config->exporters[1].endpoint, "b:1");
	assert_int_equal(l.config->exporters[1].timeout_ms, 1000);
	assert_true(l.config->exporters[1].tls.insecure);
	load_done(&l);
}

/* The Nth fenced block of a document that has `receivers:` or `processors:`, without its
 * indentation. */
static char *fenced_block(const char *document, unsigned int wanted)
{
	_cleanup_fclose_ FILE *f = fopen(document, "re");
	_cleanup_free_ char *line = NULL;
	char *text = calloc(1, 1 << 16);
	size_t cap = 0, indent = 0;
	bool inside = false;

	if (!f || !text) {
		free(text);
		return NULL;
	}
	while (getline(&line, &cap, f) > 0) {
		size_t lead = strspn(line, " ");

		if (strncmp(line + lead, "```", 3) == 0) {
			if (inside && (strstr(text, "receivers:") || strstr(text, "processors:")) &&
			    wanted-- == 0)
				return text;
			inside = !inside && strstr(line, "yaml");
			indent = lead;
			text[0] = 0;
		} else if (inside && strlen(text) + strlen(line) < (1 << 16) - 1) {
			strcat(text, line + MIN(lead, indent));
		}
	}
	free(text);
	return NULL;
}

static char *seed_block(const char *name, unsigned int wanted)
{
	char path[512];

	snprintf(path, sizeof(path), SEEDS "%s", name);
	if (access(path, R_OK) < 0) {
		print_message("skipped: no %s\n", name);
		skip();
	}
	return fenced_block(path, wanted);
}

static const char *const no_env[] = {NULL};

static void test_seed_000_first_configuration(void **state)
{
	_cleanup_free_ char *yaml = seed_block("000_22c39708b3a50501.txt", 0);
	struct load l;

	assert_non_null(yaml);
	load_yaml(&l, yaml, no_env);
	assert_int_equal(l.r, 0);
	check_text(l.config);
	assert_int_equal(l.config->receiver.samples_per_second, 20);
	assert_int_equal(l.config->receiver.reporter_interval_ms, 5000);
	assert_string_equal(pairs_get(&l.config->processors.add_attributes, "foo"), "bar");
	assert_int_equal(l.n_warnings, 1);
	assert_non_null(strstr(l.warnings, "does not walk the stacks of"));
	load_done(&l);
}

static void test_seed_000_kubernetes_configuration(void **state)
{
	_cleanup_free_ char *yaml = seed_block("000_22c39708b3a50501.txt", 1);
	struct load l;

	assert_non_null(yaml);
	load_yaml(&l, yaml, no_env);
	assert_int_equal(l.r, 0);
	assert_true(l.config->processors.k8sattributes);
	assert_int_equal(l.config->processors.k8s_metadata.n, 14);
	assert_true(l.config->pprof.enabled);
	assert_string_equal(l.config->pprof.host, "");
	assert_true(l.config->exporters[0].ignore_profiles_without_container_id);
	assert_int_equal(l.n_warnings, 2);
	load_done(&l);
}

static void test_seed_001_otlp_grpc_configuration(void **state)
{
	_cleanup_free_ char *yaml = seed_block("001_331b9e9a432addb7.txt", 0);
	_cleanup_free_ char *fragment = seed_block("001_331b9e9a432addb7.txt", 1);
	char both[8192], *service;
	struct load l;

	assert_true(yaml && fragment);
	load_yaml(&l, yaml, no_env);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->receiver.samples_per_second, 97);
	assert_string_equal(l.config->exporters[0].type, "otlp_grpc");
	assert_string_equal(l.config->exporters[0].endpoint, "pyroscope:4040");
	assert_true(l.config->exporters[0].tls.insecure);
	load_done(&l);

	/* The page's second block replaces the first one's service section. */
	service = strstr(yaml, "service:");
	assert_non_null(service);
	*service = 0;
	snprintf(both, sizeof(both), "%s%s", yaml, fragment);
	load_yaml(&l, both, no_env);
	assert_int_equal(l.r, 0);
	assert_true(l.config->processors.k8sattributes);
	assert_int_equal(l.config->processors.k8s_metadata.n, 11);
	load_done(&l);
}

static void check_gateway(const char *yaml)
{
	struct load l;

	assert_non_null(yaml);
	load_yaml(&l, yaml, no_env);
	assert_int_equal(l.r, -EINVAL);
	assert_non_null(strstr(l.err.message, "service.pipelines.profiles.receivers: kiln-agent is "
					      "an agent"));
	load_done(&l);
}

static void test_gateways_of_the_seeds_are_refused_with_the_reason(void **state)
{
	_cleanup_free_ char *a = seed_block("002_181b13327d79c564.txt", 0);
	_cleanup_free_ char *b = seed_block("003_c452dceb0a03f70d.txt", 0);

	check_gateway(a);
	check_gateway(b);
}

/* YAML in a pipe whose writer has gone; the reading end. */
static int pipe_with(const char *yaml)
{
	size_t len = strlen(yaml);
	int ends[2];

	assert_return_code(pipe(ends), errno);
	assert_int_equal(write(ends[1], yaml, len), len);
	close(ends[1]);
	return ends[0];
}

static void test_a_pipe_is_as_good_as_a_file(void **state)
{
	int saved = dup(STDIN_FILENO), fd = pipe_with(PROFILING("tracers: [toy, dotnet]"));
	const char *input[] = {"--config", "-", NULL};
	char path[32];
	const char *substituted[] = {"--config", path, NULL};
	struct load l;

	snprintf(path, sizeof(path), "/dev/fd/%d", fd);
	load_ok(&l, substituted, NULL);
	assert_int_equal(l.config->receiver.tracers, 1U << LOAD_LAST | 1U << LOAD_DOTNET);
	assert_non_null(
	    strstr(l.warnings, "tracers: this version does not walk the stacks of dotnet;"));
	load_done(&l);
	close(fd);

	fd = pipe_with("receivers: [");
	assert_return_code(dup2(fd, STDIN_FILENO), errno);
	load_run(&l, input, NULL);
	assert_int_equal(l.r, -EINVAL);
	assert_non_null(strstr(l.err.message, "standard input:"));
	load_done(&l);
	assert_return_code(dup2(saved, STDIN_FILENO), errno);
	close(saved);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_null_maps_give_the_documented_defaults),
	    cmocka_unit_test(test_the_operator_is_named_by_the_k8sattributes_processor),
	    cmocka_unit_test(test_an_operator_without_proof_of_who_it_is_is_refused),
	    cmocka_unit_test(test_the_text_pipeline_is_read),
	    cmocka_unit_test(test_the_kubernetes_pipeline_is_read),
	    cmocka_unit_test(test_names_of_runtimes_are_those_of_the_list),
	    cmocka_unit_test(test_the_otlp_pipeline_is_read),
	    cmocka_unit_test(test_known_keys_without_effect_warn_once_each),
	    cmocka_unit_test(test_variables_expand_as_the_collector_does),
	    cmocka_unit_test(test_several_profiles_pipelines_join_their_exporters),
	    cmocka_unit_test(test_a_receiver_beside_profiling_is_accepted_with_a_warning),
	    cmocka_unit_test(test_the_custom_receivers_window_wins_in_any_order),
	    cmocka_unit_test(test_merged_and_aliased_values_are_read),
	    cmocka_unit_test(test_seed_000_first_configuration),
	    cmocka_unit_test(test_seed_000_kubernetes_configuration),
	    cmocka_unit_test(test_seed_001_otlp_grpc_configuration),
	    cmocka_unit_test(test_a_pipe_is_as_good_as_a_file),
	    cmocka_unit_test(test_gateways_of_the_seeds_are_refused_with_the_reason),
	};

	return cmocka_run_group_tests(tests, load_setup, load_teardown);
}
