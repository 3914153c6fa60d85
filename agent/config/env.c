/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment: OTEL_EXPORTER_OTLP_* with the meaning that the OpenTelemetry protocol exporter
 * specification gives (the _PROFILES_ form of a variable wins; an empty variable is not set), the
 * sampler's variables, resource attributes. They change one exporter: the one that
 * --collection-agent names, else the file's first OTLP exporter, else a new one. Values of headers
 * are never shown.
 */
#include "agent/config/internal.h"
#include "lib/parse.h"

/* One OTLP setting: NAME is the variable that it came from, so that messages can say it. */
struct setting {
	const char *value; /* NULL: not set */
	char name[64];
	bool generic; /* not the _PROFILES_ form */
};

static struct setting otlp_setting(const struct loading *l, const char *what)
{
	struct setting s = {.value = NULL};

	snprintf(s.name, sizeof(s.name), "OTEL_EXPORTER_OTLP_PROFILES_%s", what);
	s.value = config_getenv(l->envp, s.name);
	if (s.value && *s.value)
		return s;
	snprintf(s.name, sizeof(s.name), "OTEL_EXPORTER_OTLP_%s", what);
	s.value = config_getenv(l->envp, s.name);
	s.generic = true;
	if (s.value && !*s.value)
		s.value = NULL;
	return s;
}

static int env_error(struct error *err, const char *name, int r, struct error *why)
{
	return error_set(err, r, "%s: %s", name, r == -ENOMEM ? "out of memory" : why->message);
}

static int env_number(const struct loading *l, const char *name, uint32_t max, uint32_t *out,
		      struct error *err)
{
	const char *text = config_getenv(l->envp, name);
	uint64_t v;

	if (!text || !*text)
		return 0;
	if (parse_u64(text, &v) == -EINVAL)
		return error_set(err, -EINVAL, "%s: want a whole number, got %s", name,
				 quote_text(text).text);
	if (parse_u64(text, &v) < 0 || v < 1 || v > max)
		return error_set(err, -EINVAL, "%s: want 1..%u, got %.32s", name, max, text);
	*out = (uint32_t)v;
	return 0;
}

static int env_string(const struct loading *l, const char *name, char **out, struct error *err)
{
	const char *text = config_getenv(l->envp, name);

	if (!text || !*text)
		return 0;
	if (set_string(out, text) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	return 0;
}

/* *ret: "otlp_grpc", "otlp_http", or NULL when no variable says it. */
static int env_protocol(const struct setting *s, const char **ret, struct error *err)
{
	if (!s->value)
		*ret = NULL;
	else if (streq(s->value, "grpc"))
		*ret = "otlp_grpc";
	else if (streq(s->value, "http/protobuf"))
		*ret = "otlp_http";
	else
		return error_set(err, -EINVAL, "%s: want grpc or http/protobuf, got %s", s->name,
				 quote_text(s->value).text);
	return 0;
}

/* Port 4318 is OTLP's for HTTP: a plain endpoint there is not gRPC. */
static const char *guess_protocol(const char *endpoint)
{
	const char *scheme = strstr(endpoint, "://"), *host = scheme ? scheme + 3 : endpoint;
	size_t n = strcspn(host, "/?#");

	return scheme && n >= 5 && strncmp(host + n - 5, ":4318", 5) == 0 ? "otlp_http"
									  : "otlp_grpc";
}

static struct exporter_config *find_exporter(struct config *c, const char *type)
{
	for (size_t i = 0; i < c->n_exporters; i++) {
		const char *t = c->exporters[i].type;

		if (type ? streq(t, type) : streq(t, "otlp_grpc") || streq(t, "otlp_http"))
			return &c->exporters[i];
	}
	return NULL;
}

static int target_exporter(struct loading *l, const struct flags *flags, const char *protocol,
			   const struct setting *endpoint, struct exporter_config **ret,
			   struct error *err)
{
	struct config *c = l->config;
	const char *type = flags->collection_agent ? "otlp_grpc" : protocol;

	*ret = find_exporter(c, type);
	if (*ret || (!flags->collection_agent && !endpoint->value))
		return 0;
	if (!flags->collection_agent && l->file) {
		loading_warn(l, "%s: not used: the file's pipeline has no %s exporter",
			     endpoint->name, type ? type : "OTLP");
		return 0;
	}
	if (!flags->collection_agent && flags->use_stdout)
		return 0; /* the output is printed, not sent */
	if (!type)
		type = guess_protocol(endpoint->value);
	if (config_add_exporter(c, type, type, ret) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	return 0;
}

/* The generic variable holds a base URL; the value of the _PROFILES_ variable is the full URL. */
static int set_http_endpoint(struct exporter_config *e, const struct setting *s, struct error *err)
{
	size_t n = strlen(s->value);
	struct error why = {0};
	char *url = NULL;
	int r = check_http_endpoint(s->value, &why);

	if (r < 0)
		return env_error(err, s->name, r, &why);
	if (set_string(&e->endpoint, s->value) < 0 ||
	    asprintf(&url, "%s%s%s", s->value, s->generic && s->value[n - 1] != '/' ? "/" : "",
		     s->generic ? "v1development/profiles" : "") < 0)
		return error_set(err, -ENOMEM, "out of memory");
	free(e->profiles_endpoint);
	e->profiles_endpoint = url;
	return 0;
}

static int set_endpoint(struct exporter_config *e, const struct setting *s, struct error *err)
{
	struct error why = {0};
	int plaintext, r;

	if (streq(e->type, "otlp_http"))
		return set_http_endpoint(e, s, err);
	r = check_grpc_endpoint(s->value, &plaintext, &why);
	if (r < 0)
		return env_error(err, s->name, r, &why);
	if (set_string(&e->endpoint, s->value) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	return 0;
}

static int set_headers(struct exporter_config *e, const struct setting *s, struct error *err)
{
	struct config_pairs pairs = {0};
	struct error why = {0};
	int r = pairs_parse(&pairs, s->value, true, CONFIG_HEADERS_MAX, &why);

	for (size_t i = 0; r == 0 && i < pairs.n; i++) {
		r = check_header(pairs.items[i].key, pairs.items[i].value, &why);
		if (r < 0)
			r = error_wrap(&why, r, "pair %zu", i + 1);
		if (r == 0)
			r = pairs_set(&e->headers, header_spelled(&e->headers, pairs.items[i].key),
				      pairs.items[i].value, CONFIG_HEADERS_MAX);
		if (r == -E2BIG)
			r = error_set(&why, -EINVAL, "more than %d headers", CONFIG_HEADERS_MAX);
	}
	pairs_done(&pairs);
	return r < 0 ? env_error(err, s->name, r, &why) : 0;
}

static int set_choice(char **out, const struct setting *s, const char *const *choices,
		      const char *want, struct error *err)
{
	for (; *choices; choices++) {
		if (!streq(*choices, s->value))
			continue;
		if (set_string(out, s->value) < 0)
			return error_set(err, -ENOMEM, "out of memory");
		return 0;
	}
	return error_set(err, -EINVAL, "%s: want %s, got %s", s->name, want,
			 quote_text(s->value).text);
}

static int set_insecure(struct exporter_config *e, const struct setting *s, struct error *err)
{
	if (strcasecmp(s->value, "true") == 0)
		e->tls.insecure = true;
	else if (strcasecmp(s->value, "false") == 0)
		e->tls.insecure = false;
	else
		return error_set(err, -EINVAL, "%s: want true or false, got %s", s->name,
				 quote_text(s->value).text);
	return 0;
}

static int set_timeout(struct exporter_config *e, const struct setting *s, struct error *err)
{
	uint64_t ms;

	if (parse_u64(s->value, &ms) < 0 || ms < 1 || ms > 86400000)
		return error_set(err, -EINVAL, "%s: want milliseconds, 1..86400000, got %s",
				 s->name, quote_text(s->value).text);
	e->timeout_ms = ms;
	return 0;
}

static int apply_otlp(struct loading *l, const struct flags *flags, struct error *err)
{
	const struct setting endpoint = otlp_setting(l, "ENDPOINT"),
			     protocol = otlp_setting(l, "PROTOCOL"),
			     headers = otlp_setting(l, "HEADERS"),
			     compression = otlp_setting(l, "COMPRESSION"),
			     timeout = otlp_setting(l, "TIMEOUT"),
			     insecure = otlp_setting(l, "INSECURE"),
			     files[] = {otlp_setting(l, "CERTIFICATE"),
					otlp_setting(l, "CLIENT_CERTIFICATE"),
					otlp_setting(l, "CLIENT_KEY")};
	struct exporter_config *e = NULL;
	const char *type = NULL;
	char **to[3];
	int r = env_protocol(&protocol, &type, err);

	if (r == 0)
		r = target_exporter(l, flags, type, &endpoint, &e, err);
	if (r < 0 || !e)
		return r;
	if (endpoint.value && !flags->collection_agent)
		r = set_endpoint(e, &endpoint, err);
	if (r == 0 && headers.value)
		r = set_headers(e, &headers, err);
	if (r == 0 && compression.value)
		r = set_choice(&e->compression, &compression, compression_names,
			       "gzip, zstd or none", err);
	if (r == 0 && timeout.value)
		r = set_timeout(e, &timeout, err);
	if (r == 0 && insecure.value)
		r = set_insecure(e, &insecure, err);
	to[0] = &e->tls.ca_file;
	to[1] = &e->tls.cert_file;
	to[2] = &e->tls.key_file;
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++)
		if (files[i].value && set_string(to[i], files[i].value) < 0)
			r = error_set(err, -ENOMEM, "out of memory");
	return r;
}

int config_apply_env(struct loading *l, const struct flags *flags, struct error *err)
{
	struct config *c = l->config;
	const char *attributes = config_getenv(l->envp, "OTEL_RESOURCE_ATTRIBUTES");
	struct error why = {0};
	int r = apply_otlp(l, flags, err);

	if (r == 0)
		r = env_number(l, "OTEL_PROFILER_SAMPLING_FREQUENCY", SAMPLES_PER_SECOND_MAX,
			       &c->receiver.samples_per_second, err);
	if (r == 0)
		r = env_number(l, "OTEL_PROFILER_MAX_STACK_DEPTH", STACK_DEPTH_MAX,
			       &c->receiver.max_stack_depth, err);
	if (r == 0)
		r = env_string(l, "OTEL_SERVICE_NAME", &c->service_name, err);
	if (r == 0)
		r = env_string(l, "KUBERNETES_NODE_NAME", &c->node_name, err);
	if (r == 0)
		r = env_string(l, "NODE_NAME", &c->node_name, err);
	if (r < 0 || !attributes)
		return r;
	r = pairs_parse(&c->resource_attributes, attributes, true, CONFIG_LIST_MAX, &why);
	return r < 0 ? env_error(err, "OTEL_RESOURCE_ATTRIBUTES", r, &why) : 0;
}
