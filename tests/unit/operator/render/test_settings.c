/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects a setting changes: each row sets one field of full.json or minimal.json and names
 * the objects that must change; all others must not. And which configs cannot be rendered.
 */
#include "tests/support/test.h"

#include "load.h"

enum {
	NOTHING = 0,
	CONFIG_HASH = 1 << 0,
	CONFIG_MAPS = 1 << 1, /* all of them; SOME_: at least one, not all */
	SOME_CONFIG_MAPS = 1 << 2,
	DAEMON_SETS = 1 << 3,
	SOME_DAEMON_SETS = 1 << 4,
	SERVICE = 1 << 5,
	POLICY = 1 << 6,
	ACCOUNT = 1 << 7,
	AGENTS = CONFIG_HASH | CONFIG_MAPS | DAEMON_SETS,
	SOME_AGENTS = CONFIG_HASH | SOME_CONFIG_MAPS | SOME_DAEMON_SETS,
	EVERYTHING = AGENTS | SERVICE | POLICY | ACCOUNT, /* with the YAML's hash */
};

/* Sets PATH, such as "spec.nodeGroups[0].name", to VALUE (JSON; NULL: removes it) in place. */
static void set_path(cJSON *root, const char *path, const char *value)
{
	_cleanup_free_ char *copy = strdup(path);
	char *rest = copy, *part;
	cJSON *at = root;

	while ((part = strsep(&rest, "."))) {
		char *index = strchr(part, '[');
		cJSON *next;

		if (index)
			*index++ = 0;
		next = cJSON_GetObjectItemCaseSensitive(at, part);
		if (!rest && !index) {
			if (next)
				cJSON_DeleteItemFromObjectCaseSensitive(at, part);
			if (value)
				cJSON_AddItemToObject(at, part, cJSON_Parse(value));
			return;
		}
		if (!next)
			next = cJSON_AddObjectToObject(at, part);
		if (index)
			next = cJSON_GetArrayItem(next, atoi(index));
		assert_non_null(next);
		at = next;
	}
}

static struct cluster_config *config_with(const char *file, const char *path, const char *value)
{
	cJSON *object = load_json(file);
	struct cluster_config *c;

	if (path)
		set_path(object, path, value);
	c = load_config(object);
	cJSON_Delete(object);
	return c;
}

static bool stream; /* whether agents come to the operator */

static struct rendered *rendered_with(const char *file, const char *path, const char *value,
				      int max_hz)
{
	struct cluster_config *c = config_with(file, path, value);
	const struct render_input in = {.config = c,
					.ns = "kiln-system",
					.image = "agent:1",
					.stream = stream,
					.max_hz = max_hz};
	struct error err = {0};
	struct rendered *r;

	if (render(&in, &r, &err) < 0)
		fail_msg("%s: %s", path, err.message);
	cluster_config_free(c);
	return r;
}

static unsigned int count(const struct rendered *r, enum kube_kind kind)
{
	unsigned int n = 0;

	for (size_t i = 0; i < r->n; i++)
		n += r->objects[i].kind == kind;
	return n;
}

static unsigned int changed(const struct rendered *a, const struct rendered *b, enum kube_kind kind)
{
	unsigned int n = 0;

	for (size_t i = 0; i < a->n; i++) {
		const struct rendered_object *o =
		    a->objects[i].kind == kind ? find_object(b, kind, a->objects[i].name) : NULL;

		if (a->objects[i].kind != kind)
			continue;
		n += !o || !streq(o->hash, a->objects[i].hash);
		/* The hashes are equal exactly if the objects are. */
		if (o)
			assert_int_equal(streq(o->hash, a->objects[i].hash),
					 cJSON_Compare(o->object, a->objects[i].object, true));
	}
	for (size_t i = 0; i < b->n; i++)
		n += b->objects[i].kind == kind && !find_object(a, kind, b->objects[i].name);
	return n;
}

static unsigned int difference(const struct rendered *a, const struct rendered *b)
{
	unsigned int maps = changed(a, b, KUBE_CONFIG_MAPS), sets = changed(a, b, KUBE_DAEMON_SETS);
	unsigned int d = 0;

	d |= streq(a->config_hash, b->config_hash) ? 0 : CONFIG_HASH;
	if (maps)
		d |= maps == count(b, KUBE_CONFIG_MAPS) ? CONFIG_MAPS : SOME_CONFIG_MAPS;
	if (sets)
		d |= sets == count(b, KUBE_DAEMON_SETS) ? DAEMON_SETS : SOME_DAEMON_SETS;
	d |= changed(a, b, KUBE_SERVICES) ? SERVICE : 0;
	d |= changed(a, b, KUBE_NETWORK_POLICIES) ? POLICY : 0;
	d |= changed(a, b, KUBE_SERVICE_ACCOUNTS) ? ACCOUNT : 0;
	return d;
}

static const struct row {
	const char *path, *value;
	unsigned int want;
} rows[] = {
    /* What agents are told by the node stream, or the status writer alone looks at. */
    {"metadata.generation", "8", NOTHING},
    {"metadata.labels", "{\"a\":\"b\"}", NOTHING},
    {"spec.guardrails.podOptOut", "\"Forbidden\"", NOTHING},
    {"spec.guardrails.tenantDestinations", "\"SameNamespaceSecret\"", NOTHING},
    {"spec.guardrails.tenantEndpoints", "[\"a.example\"]", NOTHING},
    {"spec.guardrails.allowedDestinations", "[\"main\"]", NOTHING},
    {"spec.guardrails.namespaceSelector", "{\"matchLabels\":{\"a\":\"b\"}}", NOTHING},
    {"spec.defaults.mode", "\"OptIn\"", NOTHING},
    {"spec.defaults.tracers.go", "\"Auto\"", NOTHING},
    {"spec.defaults.tracers.jvm", "\"Enabled\"", NOTHING},
    {"spec.metadata.wellKnownLabels", "\"Disabled\"", NOTHING},
    /* The agents' configuration: the pods' annotation follows. */
    {"spec.defaults.tracers.python", "\"Auto\"", AGENTS},
    {"spec.defaults.tracers.jvm", "\"Disabled\"", AGENTS},
    {"spec.defaults.offCPU.mode", "\"Disabled\"", AGENTS},
    {"spec.defaults.offCPU.perMille", "5", AGENTS},
    {"spec.defaults.destinationRefs", "[\"main\"]", AGENTS},
    {"spec.guardrails.offCPU.mode", "\"Forbidden\"", AGENTS},
    {"spec.guardrails.offCPU.maxPerMille", "11", AGENTS},
    {"spec.guardrails.deniedTracers", "[]", AGENTS},
    {"spec.guardrails.sampling.maxHz", "150", SOME_AGENTS}, /* the group that asks for more */
    {"spec.metadata.otelAnnotations", "\"Disabled\"", AGENTS},
    {"spec.metadata.clusterName", "\"prod\"", AGENTS},
    {"spec.metadata.podLabels", "[]", AGENTS},
    {"spec.metadata.podAnnotations", "[\"a\"]", AGENTS},
    {"spec.metadata.namespaceLabels", "[\"a\"]", AGENTS},
    {"spec.metadata.namespaceAnnotations", "[\"a\"]", AGENTS},
    {"spec.destinations[0].otlp.endpoint", "\"otel:4317\"", AGENTS},
    {"spec.destinations[0].otlp.compression", "\"None\"", AGENTS},
    {"spec.destinations[0].otlp.timeoutSeconds", "21", AGENTS},
    {"spec.destinations[0].otlp.protoGeneration", "\"G6\"", AGENTS},
    {"spec.destinations[0].otlp.tls.serverName", "\"a\"", AGENTS},
    {"spec.destinations[0].otlp.headers[0].value", "\"b\"", AGENTS},
    {"spec.destinations[0].otlp.headers[0].name", "\"x-b\"", AGENTS},
    {"spec.destinations[0].otlp.headersFrom[0].name", "\"x-b\"", AGENTS},
    {"spec.destinations[1].name", "\"other\"", AGENTS},
    {"spec.destinations[2].otlp.protocol", "\"HTTP\"", AGENTS},
    {"spec.destinations[2].otlp.tls.mode", "\"Verify\"", AGENTS},
    {"spec.agent.reportIntervalSeconds", "11", AGENTS},
    {"spec.agent.logLevel", "\"Warn\"", AGENTS},
    {"spec.nodeGroups[0].sampling.hz", "100", SOME_AGENTS},
    {"spec.nodeGroups[1].agent.logLevel", "\"Info\"", SOME_AGENTS},
    /* Which Secret: the pods only, the agent sees the same file and variable. */
    {"spec.destinations[0].otlp.tls.caSecretRef.name", "\"other\"", DAEMON_SETS},
    {"spec.destinations[0].otlp.tls.caSecretRef.key", "\"other\"", DAEMON_SETS},
    {"spec.destinations[0].otlp.tls.clientCertificateSecretRef.name", "\"other\"", DAEMON_SETS},
    {"spec.destinations[0].otlp.headersFrom[0].secretRef.name", "\"other\"", DAEMON_SETS},
    {"spec.destinations[0].otlp.headersFrom[0].secretRef.key", "\"other\"", DAEMON_SETS},
    /* How they run. */
    {"spec.agent.image", "\"agent:2\"", DAEMON_SETS},
    {"spec.agent.image", NULL, DAEMON_SETS},
    {"spec.agent.imagePullPolicy", "\"Always\"", DAEMON_SETS},
    {"spec.agent.imagePullSecrets", "[]", DAEMON_SETS},
    {"spec.agent.nodeSelector", "{\"a\":\"b\"}", DAEMON_SETS},
    {"spec.agent.priorityClassName", "\"other\"", DAEMON_SETS},
    {"spec.agent.podLabels", "{}", DAEMON_SETS},
    {"spec.agent.podAnnotations", "{}", DAEMON_SETS},
    {"spec.agent.securityMode", "\"Privileged\"", SOME_DAEMON_SETS},
    {"spec.agent.updateStrategy.maxUnavailable", "3", SOME_DAEMON_SETS},
    {"spec.agent.tolerations", "[]", SOME_DAEMON_SETS},
    {"spec.agent.resources.requests.cpu", "\"0.2\"", SOME_DAEMON_SETS},
    {"spec.nodeGroups[1].agent.tolerations", NULL, SOME_DAEMON_SETS},
    {"spec.nodeGroups[1].nodeSelector.matchLabels.pool", "\"x\"", SOME_DAEMON_SETS},
    /* The agent's own limit is a share of the container's. */
    {"spec.agent.resources.limits.memory", "\"1Gi\"", SOME_AGENTS},
    {"spec.agent.metricsService", "\"Disabled\"", SERVICE | SOME_DAEMON_SETS},
    {"spec.agent.networkPolicy", "\"Disabled\"", POLICY},
    {"spec.nodeGroups[0].agent.networkPolicy", NULL, POLICY},
    {"spec.nodeGroups[0].agent.metricsService", NULL, SOME_DAEMON_SETS},
    {"spec.nodeGroups", "[]", SOME_AGENTS | POLICY},
};

static void each_setting_changes_what_it_is_about(void **state)
{
	struct rendered *base = rendered_with(RENDER_DATA "full.json", NULL, NULL, 97);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rendered *r =
		    rendered_with(RENDER_DATA "full.json", rows[i].path, rows[i].value, 97);
		unsigned int got = difference(base, r);

		if (got != rows[i].want)
			fail_msg("%s = %s: got %#x, want %#x", rows[i].path,
				 rows[i].value ? rows[i].value : "(none)", got, rows[i].want);
		rendered_free(r);
	}
	rendered_free(base);
}

/* Every object has the owner's uid, but the agents' configuration does not. */
static void another_owner_changes_all_objects(void **state)
{
	struct rendered *a = rendered_with(RENDER_DATA "full.json", NULL, NULL, 97);
	struct rendered *b =
	    rendered_with(RENDER_DATA "full.json", "metadata.uid", "\"other\"", 97);

	assert_int_equal(difference(a, b), EVERYTHING & ~CONFIG_HASH);
	rendered_free(a);
	rendered_free(b);
}

static void the_rate_changes_the_agents(void **state)
{
	struct rendered *a = rendered_with(RENDER_DATA "minimal.json", NULL, NULL, 20);
	struct rendered *b = rendered_with(RENDER_DATA "minimal.json", NULL, NULL, 21);

	assert_int_equal(difference(a, b), AGENTS);
	assert_non_null(strstr(agent_yaml(b, "kiln-agent"), "samples_per_second: 21\n"));
	rendered_free(a);
	rendered_free(b);
}

static void group_rates_keep_to_the_guard_rails(void **state)
{
	struct rendered *r = rendered_with(RENDER_DATA "full.json", NULL, NULL, 97);

	/* 499 asked for, 199 allowed; 19 asked for; nothing asked for. */
	assert_non_null(strstr(agent_yaml(r, "kiln-agent-gpu"), "samples_per_second: 199\n"));
	assert_non_null(strstr(agent_yaml(r, "kiln-agent-batch"), "samples_per_second: 19\n"));
	assert_non_null(strstr(agent_yaml(r, "kiln-agent-zone-a"), "samples_per_second: 97\n"));
	rendered_free(r);
}

/* A setting that the node stream changes at run time must not restart an agent. */
static void with_the_stream_rates_and_tracers_are_not_in_the_configuration(void **state)
{
	static const struct {
		const char *path, *value;
		int max_hz;
		bool same;
	} cases[] = {
	    {NULL, NULL, 499, true},
	    {"spec.defaults.sampling", "{\"hz\":97}", 97, true},
	    {"spec.defaults.tracers", "{\"python\":\"Disabled\"}", 20, true},
	    {"spec.defaults.mode", "\"Disabled\"", 20, true},
	    {"spec.guardrails", "{\"sampling\":{\"maxHz\":19}}", 19, false},
	    {"spec.agent", "{\"reportIntervalSeconds\":7}", 20, false},
	};
	struct rendered *before;

	stream = true;
	before = rendered_with(RENDER_DATA "minimal.json", NULL, NULL, 20);
	assert_non_null(strstr(agent_yaml(before, "kiln-agent"), "samples_per_second: 20\n"));
	assert_non_null(strstr(agent_yaml(before, "kiln-agent"), "go, hotspot, python, "));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rendered *r = rendered_with(RENDER_DATA "minimal.json", cases[i].path,
						   cases[i].value, cases[i].max_hz);

		assert_int_equal(changed(before, r, KUBE_DAEMON_SETS) == 0, cases[i].same);
		assert_int_equal(streq(r->config_hash, before->config_hash), cases[i].same);
		rendered_free(r);
	}
	rendered_free(before);
	stream = false;
}

static void what_is_not_known_is_for_agents_with_a_stream(void **state)
{
	struct rendered *before, *after;

	before = rendered_with(RENDER_DATA "full.json", NULL, NULL, 199);
	after =
	    rendered_with(RENDER_DATA "full.json", "spec.agent.whenUnknown", "\"Default\"", 199);
	assert_int_equal(difference(before, after), NOTHING);
	rendered_free(before);
	rendered_free(after);
	stream = true;
	before = rendered_with(RENDER_DATA "full.json", NULL, NULL, 199);
	after =
	    rendered_with(RENDER_DATA "full.json", "spec.agent.whenUnknown", "\"Default\"", 199);
	stream = false;
	assert_int_equal(difference(before, after), AGENTS);
	rendered_free(before);
	rendered_free(after);
}

static void an_agent_gets_token_and_ca_only_with_the_stream(void **state)
{
	struct rendered *without = rendered_with(RENDER_DATA "minimal.json", NULL, NULL, 20), *with;
	const struct rendered_object *set = find_object(without, KUBE_DAEMON_SETS, "kiln-agent");
	char *text = cJSON_Print(set->object);

	assert_null(strstr(text, "serviceAccountToken"));
	assert_null(strstr(agent_yaml(without, "kiln-agent"), "snapshot_file"));
	assert_null(strstr(agent_yaml(without, "kiln-agent"), "operator:"));
	cJSON_free(text);
	stream = true;
	with = rendered_with(RENDER_DATA "minimal.json", NULL, NULL, 20);
	stream = false;
	text = cJSON_Print(find_object(with, KUBE_DAEMON_SETS, "kiln-agent")->object);
	assert_non_null(strstr(text, "kiln.dev/node-stream"));
	assert_non_null(strstr(text, "kiln-stream-ca"));
	/* The kubelet refreshes neither through a subPath. */
	assert_null(strstr(text, "subPath"));
	assert_non_null(strstr(agent_yaml(with, "kiln-agent"),
			       "endpoint: kiln-operator-stream.kiln-system.svc:8443\n"));
	cJSON_free(text);
	rendered_free(with);
	rendered_free(without);
}

/* ---- what cannot be rendered ----------------------------------------------------------------- */

static void mistakes_are_named(void **state)
{
	struct cluster_config *c = config_with(RENDER_DATA "full.json", NULL, NULL);
	struct render_input in = {.config = c, .ns = "n", .image = "i", .max_hz = 1};
	struct destination *d = &c->destinations[0];
	char *endpoint = d->endpoint, *name = d->headers[0].name, *value = d->headers[0].value;
	struct rendered *r = NULL;
	struct error err = {0};
	static const struct {
		const char *endpoint;
		enum otlp_protocol protocol;
		enum tls_mode tls;
		bool good;
	} endpoints[] = {
	    {"otel:4317", OTLP_GRPC, TLS_VERIFY, true},
	    {"https://otel", OTLP_GRPC, TLS_VERIFY, false},
	    {"http://otel:4317/", OTLP_GRPC, TLS_VERIFY, true},
	    {"https://[::1]:4318/base", OTLP_HTTP, TLS_VERIFY, true},
	    {"https://otel", OTLP_HTTP, TLS_VERIFY, true},
	    {"otel", OTLP_GRPC, TLS_VERIFY, false},
	    {"otel:0", OTLP_GRPC, TLS_VERIFY, false},
	    {"otel:4317/x", OTLP_GRPC, TLS_VERIFY, false},
	    {"http://otel:4317/x", OTLP_GRPC, TLS_VERIFY, false},
	    {"otel:4318", OTLP_HTTP, TLS_VERIFY, false},
	    {"https://otel:4317", OTLP_GRPC, TLS_PLAINTEXT, false},
	    {"https://user:secret@otel:4318", OTLP_HTTP, TLS_VERIFY, false},
	    {"http://:4318", OTLP_HTTP, TLS_VERIFY, false},
	    {"otel\n:4317", OTLP_GRPC, TLS_VERIFY, false},
	    {"", OTLP_GRPC, TLS_VERIFY, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(endpoints); i++) {
		int e;

		d->endpoint = (char *)endpoints[i].endpoint;
		d->protocol = endpoints[i].protocol;
		d->tls = endpoints[i].tls;
		e = render(&in, &r, &err);
		if ((e == 0) != endpoints[i].good)
			fail_msg("%s: %d %s", endpoints[i].endpoint, e, err.message);
		if (e < 0) {
			assert_int_equal(e, -EINVAL);
			assert_non_null(strstr(err.message, "spec.destinations[main].otlp"));
			assert_null(strstr(err.message, "secret"));
			err = (struct error){0};
		} else {
			r = rendered_free(r);
		}
	}
	d->endpoint = endpoint;
	d->protocol = OTLP_GRPC;
	d->tls = TLS_VERIFY;
	d->headers[0].name = (char *)"a b";
	assert_int_equal(render(&in, &r, &err), -EINVAL);
	d->headers[0].name = (char *)"Authorization"; /* from a Secret already */
	assert_int_equal(render(&in, &r, &err), -EINVAL);
	assert_non_null(strstr(err.message, "given twice"));
	d->headers[0].name = name;
	d->headers[0].value = (char *)"a\nb";
	assert_int_equal(render(&in, &r, &err), -EINVAL);
	d->headers[0].value = value;
	free(c->agent.image);
	c->agent.image = NULL;
	in.image = NULL;
	assert_int_equal(render(&in, &r, &err), -EINVAL);
	assert_non_null(strstr(err.message, "spec.agent.image"));
	in.image = "i";
	free(c->defaults.destination_refs.items[0]);
	c->defaults.destination_refs.items[0] = strdup("nowhere");
	assert_int_equal(render(&in, &r, &err), -EINVAL);
	assert_non_null(strstr(err.message, "\"nowhere\""));
	assert_null(r);
	cluster_config_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(each_setting_changes_what_it_is_about),
	    cmocka_unit_test(another_owner_changes_all_objects),
	    cmocka_unit_test(the_rate_changes_the_agents),
	    cmocka_unit_test(group_rates_keep_to_the_guard_rails),
	    cmocka_unit_test(with_the_stream_rates_and_tracers_are_not_in_the_configuration),
	    cmocka_unit_test(what_is_not_known_is_for_agents_with_a_stream),
	    cmocka_unit_test(an_agent_gets_token_and_ca_only_with_the_stream),
	    cmocka_unit_test(mistakes_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
