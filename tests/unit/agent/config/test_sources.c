/* SPDX-License-Identifier: Apache-2.0 */
/* Flags, environment, file, defaults: who wins, and what each of them does alone. */
#include "tests/unit/agent/config/load.h"

/* Where a value comes from, as the bits of a test case. */
enum { IN_FILE = 1, IN_ENV = 2, IN_FLAG = 4 };

static void write_file(const char *receiver)
{
	char yaml[1024];

	snprintf(yaml, sizeof(yaml),
		 "receivers:\n  profiling:\n%sexporters:\n  otlp:\n    endpoint: file:1\n"
		 "    headers: {from: file}\n    timeout: 11s\n    compression: zstd\n"
		 "service:\n  pipelines:\n    profiles:\n      receivers: [profiling]\n"
		 "      exporters: [otlp]\n",
		 receiver);
	load_write("c.yaml", yaml);
}

static void load_from(struct load *l, unsigned int from)
{
	const char *args[LOAD_ARGS_MAX] = {NULL}, *env[16] = {NULL};
	unsigned int n = 0, m = 0;

	write_file(from & IN_FILE ? "    samples_per_second: 30\n    max_stack_depth: 33\n"
				    "    reporter_interval: 3s\n    tracers: perl\n"
				    "    process_filter: file\n"
				  : "");
	args[n++] = "--config=c.yaml";
	if (from & IN_FLAG) {
		args[n++] = "--samples-per-second=50";
		args[n++] = "-reporter-interval";
		args[n++] = "9s";
		args[n++] = "-t";
		args[n++] = "ruby";
		args[n++] = "--process-filter=flag";
		args[n++] = "--service-name=flag";
		args[n++] = "--collection-agent=flag:3";
		args[n++] = "--tags=k=flag,l=flag";
	}
	if (from & IN_ENV) {
		env[m++] = "OTEL_PROFILER_SAMPLING_FREQUENCY=40";
		env[m++] = "OTEL_PROFILER_MAX_STACK_DEPTH=44";
		env[m++] = "OTEL_SERVICE_NAME=env";
		env[m++] = "OTEL_RESOURCE_ATTRIBUTES=k=env,m=env";
		env[m++] = "OTEL_EXPORTER_OTLP_ENDPOINT=http://env:2";
		env[m++] = "OTEL_EXPORTER_OTLP_TIMEOUT=12000";
	}
	load_ok(l, args, env);
}

static void test_flags_win_over_environment_over_file_over_defaults(void **state)
{
	static const uint32_t rates[] = {20, 30, 40, 40, 50, 50, 50, 50};
	static const uint32_t depths[] = {1024, 33, 44, 44, 1024, 33, 44, 44};
	static const char *const endpoints[] = {"file:1", "file:1", "http://env:2", "http://env:2",
						"flag:3", "flag:3", "flag:3",	    "flag:3"};

	for (unsigned int from = 0; from < 8; from++) {
		const char *name = from & IN_FLAG ? "flag" : "env";
		const struct config *c;
		struct load l;

		load_from(&l, from);
		c = l.config;
		assert_int_equal(c->receiver.samples_per_second, rates[from]);
		assert_int_equal(c->receiver.max_stack_depth, depths[from]);
		assert_int_equal(c->receiver.reporter_interval_ms, from & IN_FLAG   ? 9000
								   : from & IN_FILE ? 3000
										    : 5000);
		assert_int_equal(!!(c->receiver.tracers & 1 << LOAD_PERL),
				 !(from & IN_FLAG)); /* all, or perl */
		assert_int_equal(!!(c->receiver.tracers & 1 << LOAD_RUBY),
				 from == 0 || from == IN_ENV || from & IN_FLAG);
		if (from & (IN_FLAG | IN_FILE))
			assert_string_equal(c->receiver.process_filter,
					    from & IN_FLAG ? "flag" : "file");
		if (from & (IN_FLAG | IN_ENV)) {
			assert_string_equal(c->service_name, name);
			assert_string_equal(pairs_get(&c->resource_attributes, "k"), name);
		} else {
			assert_null(c->service_name);
		}
		assert_int_equal(c->n_exporters, 1);
		assert_string_equal(c->exporters[0].id, "otlp");
		assert_string_equal(c->exporters[0].endpoint, endpoints[from]);
		assert_int_equal(c->exporters[0].timeout_ms, from & IN_ENV ? 12000 : 11000);
		assert_string_equal(pairs_get(&c->exporters[0].headers, "from"), "file");
		assert_string_equal(c->exporters[0].compression, "zstd");
		/* http:// of the variable is gone with the endpoint that a flag replaces. */
		assert_int_equal(c->exporters[0].tls.insecure,
				 from == IN_ENV || from == (IN_ENV | IN_FILE));
		load_done(&l);
	}
}

static void test_nothing_given_is_the_embedded_pipeline(void **state)
{
	static const char *const args[] = {"--duration", "10s", "--live", "--tracers=all", NULL};
	struct load l;

	load_ok(&l, args, NULL);
	assert_true(l.config->embedded);
	assert_int_equal(l.config->n_exporters, 2);
	assert_string_equal(l.config->exporters[0].type, "top");
	assert_int_equal(l.config->exporters[0].top_rows, 20);
	assert_string_equal(l.config->exporters[1].type, "pprof_file");
	assert_string_equal(l.config->exporters[1].path, "kiln.pb.gz");
	assert_int_equal(l.config->duration_ms, 10000);
	assert_true(l.config->live.enabled);
	assert_int_equal(l.config->live.port, 7070);
	assert_false(l.config->pprof.enabled || l.config->health_check.enabled);
	load_done(&l);
}

static void test_a_tracer_that_does_nothing_is_told(void **state)
{
	static const char *const some[] = {"--duration=1s", "-t", "python,ruby,go", NULL};
	static const char *const all[] = {"--duration=1s", "-t", "all", NULL};
	struct load l;

	load_ok(&l, some, NULL);
	assert_int_equal(l.n_warnings, 1);
	assert_non_null(
	    strstr(l.warnings, "tracers: this version does not walk the stacks of ruby;"));
	load_done(&l);
	load_ok(&l, all, NULL);
	assert_int_equal(l.n_warnings, 0);
	load_done(&l);
}

static void test_destinations_given_by_flag_replace_the_embedded_ones(void **state)
{
	static const char *const args[] = {
	    "-stdout", "--folded-file", "f.txt", "--pprof-file=p.gz", "-v", NULL};
	static const char *const env[] = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317", NULL};
	struct load l;

	load_ok(&l, args, env); /* --stdout: asked to print, the variable does not make it send */
	assert_false(l.config->embedded);
	assert_true(l.config->verbose);
	assert_int_equal(l.config->n_exporters, 3);
	assert_string_equal(l.config->exporters[0].type, "customprofilesexporter");
	assert_false(l.config->exporters[0].ignore_profiles_without_container_id);
	assert_string_equal(l.config->exporters[1].path, "p.gz");
	assert_string_equal(l.config->exporters[2].path, "f.txt");
	load_done(&l);
}

static void test_a_flag_hides_the_variable_that_it_replaces(void **state)
{
	static const char *const args[] = {"--collection-agent", "flag:1", NULL};
	static const char *const env[] = {"OTEL_EXPORTER_OTLP_ENDPOINT=not an endpoint",
					  "OTEL_EXPORTER_OTLP_HEADERS=a=b", NULL};
	struct load l;

	load_ok(&l, args, env);
	assert_int_equal(l.config->n_exporters, 1);
	assert_string_equal(l.config->exporters[0].endpoint, "flag:1");
	assert_string_equal(pairs_get(&l.config->exporters[0].headers, "a"), "b");
	load_done(&l);
}

/* Seed 003: the systemd unit and the process filter, as written there. */
static void test_the_standalone_profilers_command_line_is_taken(void **state)
{
	static const char *const args[] = {"-collection-agent",
					   "localhost:4317",
					   "-reporter-interval",
					   "60s",
					   "-samples-per-second",
					   "20",
					   "-service-name",
					   "my-application",
					   "-tags",
					   "environment=production,region=us-east-1",
					   "-process-filter",
					   "java|python|go",
					   "-map-scale-factor",
					   "2",
					   "-send-error-frames",
					   "--feature-gates=+service.profilesSupport",
					   "-disable-tls",
					   NULL};
	struct load l;

	load_ok(&l, args, NULL);
	assert_int_equal(l.config->n_exporters, 1);
	assert_string_equal(l.config->exporters[0].type, "otlp_grpc");
	assert_string_equal(l.config->exporters[0].endpoint, "localhost:4317");
	assert_true(l.config->exporters[0].tls.insecure);
	assert_int_equal(l.config->receiver.reporter_interval_ms, 60000);
	assert_string_equal(l.config->service_name, "my-application");
	assert_string_equal(pairs_get(&l.config->resource_attributes, "region"), "us-east-1");
	assert_string_equal(l.config->receiver.process_filter, "java|python|go");
	assert_int_equal(l.n_warnings, 2);
	assert_string_equal(l.warnings,
			    "-map-scale-factor: accepted, but has no effect in this agent\n"
			    "-send-error-frames: accepted, but has no effect in this agent\n");
	load_done(&l);
}

/* Seed 002: the DaemonSet's environment. */
static void test_the_standalone_profilers_environment_is_taken(void **state)
{
	static const char *const env[] = {
	    "OTEL_EXPORTER_OTLP_ENDPOINT=http://otel-collector-gateway.observability:4317",
	    "OTEL_PROFILER_SAMPLING_FREQUENCY=19",
	    "OTEL_PROFILER_MAX_STACK_DEPTH=64",
	    "NODE_NAME=node-7",
	    "OTEL_RESOURCE_ATTRIBUTES=host.name=node-7",
	    NULL};
	struct load l;

	load_ok(&l, NULL, env);
	assert_int_equal(l.config->n_exporters, 1);
	assert_string_equal(l.config->exporters[0].type, "otlp_grpc");
	assert_true(l.config->exporters[0].tls.insecure);
	assert_int_equal(l.config->receiver.samples_per_second, 19);
	assert_int_equal(l.config->receiver.max_stack_depth, 64);
	assert_string_equal(l.config->node_name, "node-7");
	assert_string_equal(pairs_get(&l.config->resource_attributes, "host.name"), "node-7");
	load_done(&l);
}

static void test_otlp_variables_mean_what_the_specification_says(void **state)
{
	static const struct {
		const char *env[4], *type, *endpoint, *profiles;
		bool insecure;
	} cases[] = {
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=h:4317"}, "otlp_grpc", "h:4317", NULL, false},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=h:4317", "OTEL_EXPORTER_OTLP_INSECURE=True"},
	     "otlp_grpc",
	     "h:4317",
	     NULL,
	     true},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=https://h:4317", "OTEL_EXPORTER_OTLP_INSECURE=true"},
	     "otlp_grpc",
	     "https://h:4317",
	     NULL,
	     false},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318"},
	     "otlp_http",
	     "http://h:4318",
	     "http://h:4318/v1development/profiles",
	     true},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4318", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	     "otlp_grpc",
	     "http://h:4318",
	     NULL,
	     true},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=https://h/base/",
	      "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
	     "otlp_http",
	     "https://h/base/",
	     "https://h/base/v1development/profiles",
	     false},
	    {{"OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT=http://p:1/as/it/is",
	      "OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317",
	      "OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL=http/protobuf"},
	     "otlp_http",
	     "http://p:1/as/it/is",
	     "http://p:1/as/it/is",
	     true},
	    {{"OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT=", "OTEL_EXPORTER_OTLP_ENDPOINT=http://h:1"},
	     "otlp_grpc",
	     "http://h:1",
	     NULL,
	     true},
	    {{"OTEL_EXPORTER_OTLP_ENDPOINT=http://[::1]:4317/"},
	     "otlp_grpc",
	     "http://[::1]:4317/",
	     NULL,
	     true},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct exporter_config *e;
		struct load l;

		load_ok(&l, NULL, cases[i].env);
		assert_int_equal(l.config->n_exporters, 1);
		e = &l.config->exporters[0];
		assert_string_equal(e->type, cases[i].type);
		assert_string_equal(e->endpoint, cases[i].endpoint);
		if (cases[i].profiles)
			assert_string_equal(e->profiles_endpoint, cases[i].profiles);
		else
			assert_null(e->profiles_endpoint);
		assert_int_equal(e->tls.insecure, cases[i].insecure);
		load_done(&l);
	}
}

static void test_otlp_variables_set_the_rest_of_the_exporter(void **state)
{
	static const char *const env[] = {
	    "OTEL_EXPORTER_OTLP_ENDPOINT=h:1",
	    "OTEL_EXPORTER_OTLP_HEADERS=a=b%20c%2C, X-T = 0, x-t = 1=2",
	    "OTEL_EXPORTER_OTLP_CERTIFICATE=/ca",
	    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=/cert",
	    "OTEL_EXPORTER_OTLP_CLIENT_KEY=/key",
	    "OTEL_EXPORTER_OTLP_COMPRESSION=none",
	    "OTEL_EXPORTER_OTLP_PROFILES_COMPRESSION=zstd",
	    "OTEL_EXPORTER_OTLP_TIMEOUT=2500",
	    NULL};
	const struct exporter_config *e;
	struct load l;

	load_ok(&l, NULL, env);
	e = &l.config->exporters[0];
	assert_string_equal(pairs_get(&e->headers, "a"), "b c,");
	assert_string_equal(pairs_get(&e->headers, "X-T"), "1=2");
	assert_string_equal(e->tls.ca_file, "/ca");
	assert_string_equal(e->tls.cert_file, "/cert");
	assert_string_equal(e->tls.key_file, "/key");
	assert_string_equal(e->compression, "zstd");
	assert_int_equal(e->timeout_ms, 2500);
	load_done(&l);
}

/* A file says where to; a variable of the node must not add a destination. */
static void test_an_endpoint_variable_adds_nothing_to_a_file_without_otlp(void **state)
{
	static const char *const env[] = {"OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317", NULL};
	struct load l;

	load_yaml(&l,
		  "receivers: {profiling: }\nexporters: {debug: }\nservice:\n  pipelines:\n"
		  "    profiles: {receivers: [profiling], exporters: [debug]}\n",
		  env);
	assert_int_equal(l.r, 0);
	assert_int_equal(l.config->n_exporters, 1);
	assert_string_equal(l.warnings,
			    "OTEL_EXPORTER_OTLP_ENDPOINT: not used: the file's pipeline "
			    "has no OTLP exporter\n");
	load_done(&l);
}

static void test_the_service_name_is_in_one_place(void **state)
{
	static const char *const env[] = {"OTEL_RESOURCE_ATTRIBUTES=service.name=a%2Fb,x=1", NULL};
	static const char *const both[] = {"OTEL_RESOURCE_ATTRIBUTES=service.name=a",
					   "OTEL_SERVICE_NAME=b", "KUBERNETES_NODE_NAME=n", NULL};
	struct load l;

	load_ok(&l, NULL, env);
	assert_string_equal(l.config->service_name, "a/b");
	assert_null(pairs_get(&l.config->resource_attributes, "service.name"));
	assert_string_equal(pairs_get(&l.config->resource_attributes, "x"), "1");
	load_done(&l);
	load_ok(&l, NULL, both);
	assert_string_equal(l.config->service_name, "b");
	assert_string_equal(l.config->node_name, "n");
	load_done(&l);
}

static void test_pids_come_in_every_form(void **state)
{
	static const char *const args[] = {"--pid", "1", "2", "3,4", "-pid=5", "--check", NULL};
	struct load l;

	load_ok(&l, args, NULL);
	assert_int_equal(l.config->receiver.n_pids, 5);
	for (uint32_t i = 0; i < 5; i++)
		assert_int_equal(l.config->receiver.pids[i], i + 1);
	assert_true(l.config->check);
	load_done(&l);
}

static void test_live_takes_an_address_only_when_one_follows(void **state)
{
	static const char *const with[] = {"--live", "[::1]:80", NULL};
	static const char *const without[] = {"--live", "--stdout=false", NULL};
	struct load l;

	load_ok(&l, with, NULL);
	assert_string_equal(l.config->live.host, "::1");
	assert_int_equal(l.config->live.port, 80);
	load_done(&l);
	load_ok(&l, without, NULL);
	assert_string_equal(l.config->live.host, "127.0.0.1");
	assert_true(l.config->embedded); /* --stdout=false asks for nothing */
	load_done(&l);
}

static void test_help_and_version_come_before_mistakes_that_follow(void **state)
{
	static const char *const help[] = {"-h", "--nonsense", NULL};
	static const char *const version[] = {"--version", NULL};
	struct load l;

	load_ok(&l, help, NULL);
	assert_int_equal(l.action, CONFIG_SHOW_HELP);
	load_done(&l);
	load_ok(&l, version, NULL);
	assert_int_equal(l.action, CONFIG_SHOW_VERSION);
	load_done(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_flags_win_over_environment_over_file_over_defaults),
	    cmocka_unit_test(test_nothing_given_is_the_embedded_pipeline),
	    cmocka_unit_test(test_a_tracer_that_does_nothing_is_told),
	    cmocka_unit_test(test_destinations_given_by_flag_replace_the_embedded_ones),
	    cmocka_unit_test(test_a_flag_hides_the_variable_that_it_replaces),
	    cmocka_unit_test(test_the_standalone_profilers_command_line_is_taken),
	    cmocka_unit_test(test_the_standalone_profilers_environment_is_taken),
	    cmocka_unit_test(test_otlp_variables_mean_what_the_specification_says),
	    cmocka_unit_test(test_otlp_variables_set_the_rest_of_the_exporter),
	    cmocka_unit_test(test_an_endpoint_variable_adds_nothing_to_a_file_without_otlp),
	    cmocka_unit_test(test_the_service_name_is_in_one_place),
	    cmocka_unit_test(test_pids_come_in_every_form),
	    cmocka_unit_test(test_live_takes_an_address_only_when_one_follows),
	    cmocka_unit_test(test_help_and_version_come_before_mistakes_that_follow),
	};

	return cmocka_run_group_tests(tests, load_setup, load_teardown);
}
