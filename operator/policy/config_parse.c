/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole objects (metadata and spec) into the structs of config.h. Checks the rules of the schema
 * and its CEL rules again, with their wording: the operator may meet objects of another schema's
 * version. Rules that need the other configs (does a name of destinationRefs exist?) are checked by
 * policy_set. Pure functions.
 */
#include "operator/policy/config_internal.h"

#include "lib/fields.h"
#include "lib/parse.h"

#define API_VERSION "profiling.kiln.dev/v1alpha1"

const struct json_choice enabled_choices[] = {
    {"Enabled", TOGGLE_ENABLED, NULL}, {"Disabled", TOGGLE_DISABLED, NULL}, {}};
static const struct json_choice tracer_choices[] = {{"Auto", TOGGLE_AUTO, NULL},
						    {"Enabled", TOGGLE_ENABLED, NULL},
						    {"Disabled", TOGGLE_DISABLED, NULL},
						    {}};
static const struct json_choice modes[] = {{"Enabled", MODE_ENABLED, NULL},
					   {"Disabled", MODE_DISABLED, NULL},
					   {"OptIn", MODE_OPT_IN, NULL},
					   {}};
static const struct json_choice forbidden_choices[] = {
    {"Allowed", false, NULL}, {"Forbidden", true, NULL}, {}};
static const struct json_choice tenant_choices[] = {
    {"Forbidden", false, NULL}, {"SameNamespaceSecret", true, NULL}, {}};

/* Profile */

#define AT(member) offsetof(struct profile_spec, member)
#define TRACER(name, id)                                                                           \
	{                                                                                          \
		name, JSON_CHOICE, AT(tracers) + (id) * sizeof(enum toggle),                       \
		    .choices = tracer_choices                                                      \
	}
static const struct json_row tracer_rows[] = {
    TRACER("native", TRACER_NATIVE), TRACER("go", TRACER_GO),
    TRACER("jvm", TRACER_JVM),	     TRACER("python", TRACER_PYTHON),
    TRACER("v8", TRACER_V8),	     TRACER("ruby", TRACER_RUBY),
    TRACER("php", TRACER_PHP),	     TRACER("perl", TRACER_PERL),
    TRACER("dotnet", TRACER_DOTNET), TRACER("beam", TRACER_BEAM),
    TRACER("luajit", TRACER_LUAJIT), {}};
static const struct json_row hz_rows[] = {{"hz", JSON_INT, AT(hz), .min = 1, .max = 1000}, {}};
static const struct json_row off_cpu_rows[] = {
    {"mode", JSON_CHOICE, AT(off_cpu), .choices = enabled_choices},
    {"perMille", JSON_INT, AT(off_cpu_per_mille), .min = 0, .max = 1000},
    {}};
static const struct json_row label_rows[] = {{"allow", JSON_STRINGS, AT(labels), .min = 127,
					      .max = CONFIG_LABELS_MAX,
					      .syntax = &syntax_sample_label},
					     {}};

static const struct json_row profile_rows[] = {
    {"mode", JSON_CHOICE, AT(mode), .choices = modes},
    {"sampling", JSON_OBJECT, .rows = hz_rows},
    {"offCPU", JSON_OBJECT, .rows = off_cpu_rows},
    {"tracers", JSON_OBJECT, .rows = tracer_rows},
    {"labels", JSON_OBJECT, .rows = label_rows},
    {"timestamps", JSON_CHOICE, AT(timestamps), .choices = enabled_choices},
    {"destinationRefs", JSON_STRINGS, AT(destination_refs), .min = 63,
     .max = CONFIG_DESTINATIONS_MAX, .syntax = &syntax_dns_label},
    {}};
#undef AT

/* Metadata to attach */

#define AT(member) offsetof(struct metadata_spec, member)
#define KEYS(name, member)                                                                         \
	{                                                                                          \
		name, JSON_STRINGS, AT(member), .min = 317, .max = CONFIG_KEYS_MAX,                \
						.syntax = &syntax_label_key                        \
	}
static const struct json_row metadata_rows[] = {
    {"clusterName", JSON_STRING, AT(cluster_name), .min = 1, .max = 253,
     .syntax = &syntax_cluster_name},
    {"wellKnownLabels", JSON_CHOICE, AT(well_known_labels), .choices = enabled_choices},
    {"otelAnnotations", JSON_CHOICE, AT(otel_annotations), .choices = enabled_choices},
    KEYS("podLabels", pod_labels),
    KEYS("podAnnotations", pod_annotations),
    KEYS("namespaceLabels", namespace_labels),
    KEYS("namespaceAnnotations", namespace_annotations),
    {}};
#undef AT

/* Guard-rails */

#define AT(member) offsetof(struct guardrails, member)
static const struct json_row rail_sampling_rows[] = {
    {"minHz", JSON_INT, AT(min_hz), .min = 1, .max = 1000},
    {"maxHz", JSON_INT, AT(max_hz), .min = 1, .max = 1000},
    {}};
static const struct json_row rail_off_cpu_rows[] = {
    {"mode", JSON_CHOICE, AT(off_cpu_forbidden), .choices = forbidden_choices, .flag = true},
    {"maxPerMille", JSON_INT, AT(max_off_cpu_per_mille), .min = 0, .max = 1000},
    {}};

static int decode_denied_tracers(struct json_fields *f, const cJSON *node, void *out)
{
	struct guardrails *g = out;
	const cJSON *child;
	size_t i = 0;

	if (!cJSON_IsArray(node))
		return json_want(f, node, "a list");
	cJSON_ArrayForEach(child, node)
	{
		const char *name = cJSON_IsString(child) ? child->valuestring : "", *nearest;
		size_t mark = json_enter_index(f, i++);
		int t = 0;

		while (t < TRACER_COUNT && !streq(tracer_names[t], name))
			t++;
		if (t == TRACER_COUNT) {
			nearest = *name ? nearest_choice(name, tracer_names) : NULL;
			if (!nearest)
				return json_want(f, child, "the name of a tracer");
			return json_error(f, "want the name of a tracer, got %s; did you mean %s?",
					  quote_text(name).text, nearest);
		}
		if (g->tracer_denied[t])
			return json_error(f, "\"%s\" is given twice", name);
		g->tracer_denied[t] = true;
		json_path_leave(f, mark);
	}
	return 0;
}

static const struct json_row guardrail_rows[] = {
    {"namespaceSelector", JSON_CUSTOM, AT(namespaces), .decode = selector_decode},
    {"sampling", JSON_OBJECT, .rows = rail_sampling_rows},
    {"offCPU", JSON_OBJECT, .rows = rail_off_cpu_rows},
    {"deniedTracers", JSON_CUSTOM, .decode = decode_denied_tracers},
    {"allowedDestinations", JSON_STRINGS, AT(allowed_destinations), .min = 63,
     .max = CONFIG_DESTINATIONS_MAX, .syntax = &syntax_dns_label},
    {"allowedLabels", JSON_STRINGS, AT(allowed_labels), .min = 127, .max = CONFIG_LABELS_MAX,
     .syntax = &syntax_sample_label},
    {"tenantDestinations", JSON_CHOICE, AT(tenant_destinations), .choices = tenant_choices,
     .flag = true},
    {"tenantEndpoints", JSON_STRINGS, AT(tenant_endpoints), .min = 300, .max = CONFIG_ENDPOINTS_MAX,
     .syntax = &syntax_endpoint_pattern},
    {"podOptOut", JSON_CHOICE, AT(pod_opt_out_forbidden), .choices = forbidden_choices,
     .flag = true},
    {}};
#undef AT

/* Destinations of a config, names unique. */
static int decode_destinations(struct json_fields *f, const cJSON *node, size_t max,
			       int (*one)(struct json_fields *f, const cJSON *item, void *out),
			       struct destination **ret, size_t *ret_n)
{
	void *items = NULL;
	int r = json_list(f, node, max, sizeof(**ret), one, &items, ret_n);

	*ret = items;
	for (size_t i = 0; r == 0 && i < *ret_n; i++)
		for (size_t j = 0; r == 0 && j < i; j++)
			if (streq((*ret)[i].name, (*ret)[j].name)) {
				json_enter_index(f, i);
				json_path_enter(f, "name");
				r = json_error(f, "%s is given twice",
					       quote_text((*ret)[i].name).text);
			}
	return r;
}

static int decode_cluster_destinations(struct json_fields *f, const cJSON *node, void *out)
{
	struct cluster_config *c = out;

	return decode_destinations(f, node, CONFIG_DESTINATIONS_MAX, destination_decode,
				   &c->destinations, &c->n_destinations);
}

static int decode_tenant_destinations(struct json_fields *f, const cJSON *node, void *out)
{
	struct namespace_config *c = out;

	return decode_destinations(f, node, CONFIG_TENANT_DESTINATIONS_MAX,
				   tenant_destination_decode, &c->destinations, &c->n_destinations);
}

/* metadata, as the API server wrote it: five of its fields are read. */

static bool two_digits(const char *s, int *ret)
{
	if (s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9')
		return false;
	*ret = (s[0] - '0') * 10 + s[1] - '0';
	return true;
}

/* "2026-11-21T11:15:02Z" (RFC 3339, always UTC in Kubernetes) -> seconds since the epoch. */
static int parse_time(const char *s, int64_t *ret)
{
	static const int before_month[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
	int century, year, month, day, hour, minute, second;
	int64_t years, days;

	if (strlen(s) != 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' ||
	    s[16] != ':' || s[19] != 'Z' || !two_digits(s, &century) || !two_digits(s + 2, &year) ||
	    !two_digits(s + 5, &month) || !two_digits(s + 8, &day) || !two_digits(s + 11, &hour) ||
	    !two_digits(s + 14, &minute) || !two_digits(s + 17, &second) || month < 1 ||
	    month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
		return -EINVAL;
	years = century * 100 + year;
	days = years * 365 + before_month[month - 1] + day - 1;
	/* Leap days before this date; those of this year only once February is over. */
	years -= month <= 2;
	days += years / 4 - years / 100 + years / 400;
	*ret = (days - 719527) * 86400 + hour * 3600 + minute * 60 + second;
	return 0;
}

static int decode_created(struct json_fields *f, const cJSON *node, void *out)
{
	if (!cJSON_IsString(node) || parse_time(node->valuestring, out) < 0)
		return json_want(f, node, "a time such as 2026-11-21T11:15:02Z");
	return 0;
}

static int decode_generation(struct json_fields *f, const cJSON *node, void *out)
{
	double v = cJSON_IsNumber(node) ? node->valuedouble : -1;

	if (!(v >= 0 && v < 9007199254740992.0) || v != (double)(int64_t)v)
		return json_want(f, node, "a whole number");
	*(int64_t *)out = (int64_t)v;
	return 0;
}

static const struct json_row id_rows[] = {
    {"name", JSON_STRING, offsetof(struct object_id, name), .min = 1, .max = 253,
     .syntax = &syntax_dns_subdomain, .required = true},
    {"namespace", JSON_STRING, offsetof(struct object_id, ns), .min = 0, .max = 63},
    {"uid", JSON_STRING, offsetof(struct object_id, uid), .min = 0, .max = 128},
    {"generation", JSON_CUSTOM, offsetof(struct object_id, generation),
     .decode = decode_generation},
    {"creationTimestamp", JSON_CUSTOM, offsetof(struct object_id, created),
     .decode = decode_created},
    {}};

int object_id_decode(struct json_fields *f, const cJSON *node, void *out)
{
	if (!cJSON_IsObject(node))
		return json_want(f, node, "an object");
	for (const struct json_row *row = id_rows; row->type != JSON_END; row++) {
		const cJSON *child = json_get(node, row->name);
		size_t mark = json_path_enter(f, row->name);
		int r = 0;

		if (child)
			r = json_decode_value(f, child, row, (char *)out + row->offset);
		else if (row->required)
			r = json_error(f, "required");
		if (r < 0)
			return r;
		json_path_leave(f, mark);
	}
	return 0;
}

int object_id_finish(struct json_fields *f, struct object_id *id, const char *ns)
{
	if (id->ns && (!*id->ns || !*ns)) {
		free(id->ns);
		id->ns = NULL;
	}
	if (!id->ns)
		id->ns = strdup(ns);
	if (!id->uid)
		id->uid = strdup("");
	if (f->n_unknown &&
	    asprintf(&id->ignored, "%s%s", f->unknown, f->n_unknown > 1 ? " (and more)" : "") < 0) {
		id->ignored = NULL;
		return json_no_memory(f);
	}
	return id->ns && id->uid ? 0 : json_no_memory(f);
}

/* Checks apiVersion and kind if they are there: items of a list may lack them. */
static int check_type(struct json_fields *f, const cJSON *object, const char *kind)
{
	static const char *const kinds[] = {"ClusterProfilingConfig", "ProfilingConfig", NULL};
	const char *const want[] = {API_VERSION, kind}, *const names[] = {"apiVersion", "kind"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const cJSON *node = json_get(object, names[i]);
		const char *nearest = NULL;
		size_t mark = json_path_enter(f, names[i]);

		if (node && (!cJSON_IsString(node) || !streq(node->valuestring, want[i]))) {
			if (i == 1 && cJSON_IsString(node))
				nearest = nearest_choice(node->valuestring, kinds);
			if (nearest && streq(nearest, kind) &&
			    !streq(node->valuestring, kinds[0]) &&
			    !streq(node->valuestring, kinds[1]))
				return json_error(f, "want %s, got %s; did you mean %s?", want[i],
						  quote_text(node->valuestring).text, nearest);
			return json_want(f, node, want[i]);
		}
		json_path_leave(f, mark);
	}
	return 0;
}

/* "0.5%" */
static int decode_budget_cpu(struct json_fields *f, const cJSON *node, void *out)
{
	static const char want[] = "a share of all CPUs, 0.01%..100%";
	size_t n = cJSON_IsString(node) ? strlen(node->valuestring) : 0;
	char number[16];
	double v;

	if (n < 2 || n > sizeof(number) || node->valuestring[n - 1] != '%')
		return json_want(f, node, want);
	memcpy(number, node->valuestring, n - 1);
	number[n - 1] = 0;
	if (strspn(number, "0123456789.") != n - 1 || parse_double(number, &v) < 0 || v < 0.01 ||
	    v > 100)
		return json_want(f, node, want);
	*(int *)out = (int)(v * 10000 + 0.5);
	return 0;
}

/* "128Mi" */
static int decode_budget_memory(struct json_fields *f, const cJSON *node, void *out)
{
	static const char want[] = "a size in Mi or Gi, 16Mi..64Gi";
	const char *text = cJSON_IsString(node) ? node->valuestring : "";
	size_t n = strspn(text, "0123456789");
	uint64_t bytes;

	if (!n || n > 5 || (!streq(text + n, "Mi") && !streq(text + n, "Gi")) ||
	    parse_size(text, &bytes) < 0 || bytes < 16ULL << 20 || bytes > 64ULL << 30)
		return json_want(f, node, want);
	*(int64_t *)out = (int64_t)bytes;
	return 0;
}

static const struct json_row budget_rows[] = {
    {"cpu", JSON_CUSTOM, offsetof(struct budget_spec, cpu), .decode = decode_budget_cpu},
    {"memory", JSON_CUSTOM, offsetof(struct budget_spec, memory), .decode = decode_budget_memory},
    {}};

#define AT(member) offsetof(struct cluster_config, member)
static const struct json_row cluster_spec_rows[] = {
    {"defaults", JSON_OBJECT, AT(defaults), .rows = profile_rows},
    {"metadata", JSON_OBJECT, AT(metadata), .rows = metadata_rows},
    {"destinations", JSON_CUSTOM, .decode = decode_cluster_destinations},
    {"guardrails", JSON_OBJECT, AT(guardrails), .rows = guardrail_rows},
    {"agent", JSON_CUSTOM, AT(agent), .decode = agent_decode},
    {"budget", JSON_OBJECT, AT(budget), .rows = budget_rows},
    {"nodeGroups", JSON_CUSTOM, .decode = groups_decode},
    {"probes", JSON_CUSTOM, .decode = probes_decode},
    {}};
static const struct json_row cluster_rows[] = {
    {"apiVersion", .type = JSON_IGNORED},
    {"kind", .type = JSON_IGNORED},
    {"metadata", JSON_CUSTOM, AT(id), .decode = object_id_decode, .required = true},
    {"spec", JSON_OBJECT, .rows = cluster_spec_rows, .required = true},
    {"status", .type = JSON_IGNORED},
    {}};
#undef AT

/* Checks that each name of LIST, at PATH, is one of the cluster's destinations. */
static int check_names(struct json_fields *f, const struct cluster_config *c, const char *path,
		       const struct string_list *list)
{
	const char *names[CONFIG_DESTINATIONS_MAX + 1] = {NULL};

	for (size_t i = 0; i < c->n_destinations; i++)
		names[i] = c->destinations[i].name;
	for (size_t i = 0; i < list->n; i++) {
		const char *nearest;
		size_t j = 0;

		while (names[j] && !streq(names[j], list->items[i]))
			j++;
		if (names[j])
			continue;
		json_path_enter(f, path);
		json_enter_index(f, i);
		nearest = nearest_choice(list->items[i], names);
		if (nearest)
			return json_error(
			    f, "want a name of spec.destinations, got %s; did you mean %s?",
			    quote_text(list->items[i]).text, nearest);
		return json_error(f, "want a name of spec.destinations, got %s",
				  quote_text(list->items[i]).text);
	}
	return 0;
}

static int check_cluster(struct json_fields *f, const struct cluster_config *c)
{
	const struct guardrails *g = &c->guardrails;
	int r;

	if (!streq(c->id.name, "cluster")) {
		json_path_enter(f, "metadata.name");
		return json_error(f, "want \"cluster\", got %s", quote_text(c->id.name).text);
	}
	if (g->min_hz > g->max_hz) {
		json_path_enter(f, "spec.guardrails.sampling.minHz");
		return json_error(f, "want at most maxHz, %d, got %d", g->max_hz, g->min_hz);
	}
	r = check_names(f, c, "spec.defaults.destinationRefs", &c->defaults.destination_refs);
	if (r < 0)
		return r;
	return check_names(f, c, "spec.guardrails.allowedDestinations", &g->allowed_destinations);
}

int cluster_config_parse(const cJSON *object, struct cluster_config **ret, struct error *err)
{
	_cleanup_(cluster_config_freep) struct cluster_config *c = calloc(1, sizeof(*c));
	struct json_fields f = {.err = err};
	int r;

	if (!c)
		return json_no_memory(&f);
	profile_spec_init(&c->defaults);
	agent_spec_init(&c->agent);
	c->metadata.well_known_labels = TOGGLE_DISABLED;
	c->metadata.otel_annotations = TOGGLE_ENABLED;
	c->guardrails.min_hz = 1;
	c->guardrails.max_hz = 1000;
	c->guardrails.max_off_cpu_per_mille = 1000;
	r = check_type(&f, object, "ClusterProfilingConfig");
	if (r == 0)
		r = json_decode(&f, object, cluster_rows, c);
	if (r == 0)
		r = object_id_finish(&f, &c->id, "");
	if (r == 0)
		r = check_cluster(&f, c);
	if (r == 0)
		*ret = TAKE_PTR(c);
	return r;
}

#define AT(member) offsetof(struct namespace_config, member)
static const struct json_row namespace_spec_rows[] = {
    {"podSelector", JSON_CUSTOM, AT(pods), .decode = selector_decode},
    {"priority", JSON_INT, AT(priority), .min = CONFIG_PRIORITY_MIN, .max = CONFIG_PRIORITY_MAX},
    {"profile", JSON_OBJECT, AT(profile), .rows = profile_rows},
    {"destinations", JSON_CUSTOM, .decode = decode_tenant_destinations},
    {}};
static const struct json_row namespace_rows[] = {
    {"apiVersion", .type = JSON_IGNORED},
    {"kind", .type = JSON_IGNORED},
    {"metadata", JSON_CUSTOM, AT(id), .decode = object_id_decode, .required = true},
    {"spec", JSON_OBJECT, .rows = namespace_spec_rows, .required = true},
    {"status", .type = JSON_IGNORED},
    {}};
#undef AT

int namespace_config_parse(const cJSON *object, struct namespace_config **ret, struct error *err)
{
	_cleanup_(namespace_config_freep) struct namespace_config *c = calloc(1, sizeof(*c));
	struct json_fields f = {.err = err};
	int r;

	if (!c)
		return json_no_memory(&f);
	profile_spec_init(&c->profile);
	c->priority = NUMBER_ABSENT;
	r = check_type(&f, object, "ProfilingConfig");
	if (r == 0)
		r = json_decode(&f, object, namespace_rows, c);
	if (r == 0)
		r = object_id_finish(&f, &c->id, "default");
	if (r == 0 && c->priority != NUMBER_ABSENT && !c->pods.set) {
		json_path_enter(&f, "spec.priority");
		r = json_error(&f, "want a priority only with podSelector, got %d", c->priority);
	}
	if (r < 0)
		return r;
	c->priority = MAX(c->priority, 0);
	*ret = TAKE_PTR(c);
	return 0;
}
