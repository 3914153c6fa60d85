/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real agent accepts every rendered configuration without a warning of unknown keys. kiln-agent
 * --check exits with 2 for a bad configuration, before it looks at the kernel: here 3 (no
 * privileges) counts as 0.
 */
#include "tests/support/test.h"

#include <sys/wait.h>

#include "load.h"

static char directory[] = "/tmp/kiln-render-XXXXXX";

/* Runs the agent's check of YAML. SAYS gets its output; returns its exit code. */
static int check(const char *yaml, char *says, size_t size)
{
	char path[64], command[1024];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/agent.yaml", directory);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(yaml, f) >= 0);
	fclose(f);
	snprintf(command, sizeof(command),
		 "NODE_NAME=n KILN_MAIN_HEADER_0=a KILN_MAIN_HEADER_1=b %s --config %s --check "
		 "2>&1 < /dev/null | grep -v ' debug '; exit ${PIPESTATUS[0]}",
		 KILN_AGENT, path);
	setenv("KILN_COMMAND", command, 1);
	f = popen("bash -c \"$KILN_COMMAND\"", "re");
	assert_non_null(f);
	n = fread(says, 1, size - 1, f);
	says[n] = 0;
	unlink(path);
	return WEXITSTATUS(pclose(f));
}

/* Fails for any warning but those of the two features that this agent does not have yet. */
static void expect_no_warning(char *says)
{
	char *rest = says, *line;

	while ((line = strsep(&rest, "\n"))) {
		if (strstr(line, " warn config") &&
		    !strstr(line, "processors.k8sattributes: pod") &&
		    !strstr(line, "off-CPU profiling is not"))
			fail_msg("%s", line);
	}
}

static void expect_accepted(const cJSON *object)
{
	struct cluster_config *config = load_config(object);
	struct rendered *r = render_config(config);
	unsigned int n = 0;

	for (size_t i = 0; i < r->n; i++) {
		static char says[1 << 16];
		int code;

		if (r->objects[i].kind != KUBE_CONFIG_MAPS)
			continue;
		code = check(agent_yaml(r, r->objects[i].name), says, sizeof(says));
		if (code != 0 && code != 3)
			fail_msg("%s: %d: %s", r->objects[i].name, code, says);
		expect_no_warning(says);
		n++;
	}
	assert_true(n > 0);
	rendered_free(r);
	cluster_config_free(config);
}

static void agent_takes_the_minimal_config(void **state)
{
	cJSON *object = load_json(RENDER_DATA "minimal.json");

	expect_accepted(object);
	cJSON_Delete(object);
}

static void agent_takes_the_full_config(void **state)
{
	cJSON *object = load_json(RENDER_DATA "full.json");

	expect_accepted(object);
	cJSON_Delete(object);
}

static void agent_takes_the_probes(void **state)
{
	cJSON *object = load_json(RENDER_DATA "minimal.json");
	cJSON *probes = cJSON_Parse("[{\"probe\":\"uprobe:/opt/a\\\\b/$HOME:f\\\"g\",\"rate\":7},"
				    "{\"probe\":\"tracepoint:sched:sched_process_exec\"}]");
	struct cluster_config *config;
	struct rendered *r;

	assert_non_null(probes);
	cJSON_AddItemToObject(cJSON_GetObjectItem(object, "spec"), "probes", probes);
	config = load_config(object);
	r = render_config(config);
	assert_non_null(strstr(agent_yaml(r, "kiln-agent"),
			       "    probes:\n"
			       "      - \"uprobe:/opt/a\\\\b/$$HOME:f\\\"g,rate=7\"\n"
			       "      - \"tracepoint:sched:sched_process_exec,rate=100\"\n"));
	rendered_free(r);
	cluster_config_free(config);
	expect_accepted(object);
	cJSON_Delete(object);
}

/* Without a stream the agent's configuration is all that it hears of labels. */
static void labels_without_a_stream_are_in_the_configuration(void **state)
{
	cJSON *object = load_json(RENDER_DATA "minimal.json"),
	      *defaults = cJSON_Parse("{\"labels\":{\"allow\":[\"tenant\",\"a b\",\"secret\"]},"
				      "\"timestamps\":\"Enabled\"}"),
	      *rails = cJSON_Parse("{\"allowedLabels\":[\"tenant\",\"a b\"]}"),
	      *spec = cJSON_GetObjectItem(object, "spec");
	struct render_input in = {
	    .ns = "kiln-system", .image = "registry.example/a:1", .max_hz = 20};
	struct cluster_config *config;
	struct rendered *r;
	struct error err = {0};
	static char says[1 << 16];
	const char *yaml;

	cJSON_DeleteItemFromObject(spec, "defaults");
	cJSON_AddItemToObject(spec, "defaults", defaults);
	cJSON_DeleteItemFromObject(spec, "guardrails");
	cJSON_AddItemToObject(spec, "guardrails", rails);
	in.config = config = load_config(object);
	assert_int_equal(render(&in, &r, &err), 0);
	yaml = agent_yaml(r, "kiln-agent");
	assert_non_null(strstr(yaml, "    labels: [\"tenant\", \"a b\"]\n"));
	assert_non_null(strstr(yaml, "    timestamps: true\n"));
	assert_int_not_equal(check(yaml, says, sizeof(says)), 2);
	rendered_free(r);
	in.stream = true;
	assert_int_equal(render(&in, &r, &err), 0);
	yaml = agent_yaml(r, "kiln-agent");
	assert_null(strstr(yaml, "labels:"));
	rendered_free(r);
	cluster_config_free(config);
	cJSON_Delete(object);
}

/* What users write is text, whatever is in it. */
static void agent_takes_hostile_text(void **state)
{
	static const char *const texts[] = {
	    "${env:HOME}", "$$",   "$",
	    "${",	   "\\",   "\"",
	    "'",	   "a: b", "# no comment",
	    "{}",	   "[x]",  "&a",
	    "*a",	   "!x",   "%",
	    "|",	   ">",	   "@",
	    "`",	   "~",	   "null",
	    "true",	   "yes",  "1e3",
	    "0x10",	   "",	   " ",
	    "- a",	   "? a",  "\xc3\xa9\xe2\x82\xac\xf0\x9f\x94\xa5",
	    "a,b=c",	   "</x>",
	};
	cJSON *object = load_json(RENDER_DATA "full.json");
	cJSON *spec = cJSON_GetObjectItem(object, "spec");
	cJSON *otlp = cJSON_GetObjectItem(
	    cJSON_GetArrayItem(cJSON_GetObjectItem(spec, "destinations"), 0), "otlp");
	cJSON *headers = cJSON_CreateArray();
	struct cluster_config *config;
	struct rendered *r;

	cJSON_DeleteItemFromObject(spec, "nodeGroups");
	cJSON_DeleteItemFromObject(otlp, "headers");
	cJSON_AddItemToObject(otlp, "headers", headers);
	config = load_config(object);
	/* Past the parser's limits: render() is the last line of defence. */
	for (size_t i = 0; i < ARRAY_SIZE(texts); i += CONFIG_HEADERS_MAX) {
		struct destination_header some[CONFIG_HEADERS_MAX] = {0};
		struct destination_header *before = config->destinations[0].headers;
		size_t n_before = config->destinations[0].n_headers, n = 0;
		static char names[CONFIG_HEADERS_MAX][8], says[1 << 16];
		int code;

		for (; n < CONFIG_HEADERS_MAX && i + n < ARRAY_SIZE(texts); n++) {
			snprintf(names[n], sizeof(names[n]), "x-%zu", n);
			some[n].name = names[n];
			some[n].value = (char *)texts[i + n];
		}
		config->destinations[0].headers = some;
		config->destinations[0].n_headers = n;
		r = render_config(config);
		code = check(agent_yaml(r, "kiln-agent"), says, sizeof(says));
		if (code != 0 && code != 3)
			fail_msg("from %s: %d: %s", texts[i], code, says);
		expect_no_warning(says);
		rendered_free(r);
		config->destinations[0].headers = before;
		config->destinations[0].n_headers = n_before;
	}
	cluster_config_free(config);
	cJSON_Delete(object);
}

/* The test can fail. */
static void agent_refuses_a_bad_config(void **state)
{
	static char says[1 << 16];

	assert_int_equal(
	    check("receivers: {profiling: {sampels_per_second: 1}}\n", says, sizeof(says)), 2);
	assert_non_null(strstr(says, "kiln-agent: "));
}

static int set_up(void **state)
{
	return mkdtemp(directory) ? 0 : -1;
}

static int tear_down(void **state)
{
	return rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(agent_takes_the_minimal_config),
	    cmocka_unit_test(agent_takes_the_full_config),
	    cmocka_unit_test(agent_takes_the_probes),
	    cmocka_unit_test(labels_without_a_stream_are_in_the_configuration),
	    cmocka_unit_test(agent_takes_hostile_text),
	    cmocka_unit_test(agent_refuses_a_bad_config),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
