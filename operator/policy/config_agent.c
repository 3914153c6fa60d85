/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the agents run, and node groups, from JSON. Parts that only pass through to the DaemonSet
 * (tolerations, resources, maps) are checked for shape and copied as JSON: the depth and the
 * number of what is copied are bounded by the check before. Pure.
 */
#include "operator/policy/config_internal.h"

#include "lib/fields.h"
#include "lib/parse.h"

#define AT(member) offsetof(struct agent_spec, member)

enum {
	TOLERATIONS_MAX = 32,
	PULL_SECRETS_MAX = 8,
	NODE_LABELS_MAX = 16,
	GROUP_LABELS_MAX = 4,
	TERMS_MAX = 64, /* each DaemonSet excludes the nodes of the groups before it */
};

static int copy_json(struct json_fields *f, const cJSON *node, cJSON **out)
{
	*out = cJSON_Duplicate(node, true);
	return *out ? 0 : json_no_memory(f);
}

static bool is_image(const char *s)
{
	if (!is_alnum(*s))
		return false;
	for (; *s; s++)
		if (!is_alnum(*s) && !strchr("-_.:/@", *s))
			return false;
	return true;
}

/* Digits and one point, then a suffix of apimachinery's resource.Quantity. Signs are refused. */
static bool is_quantity(const char *s)
{
	static const char *const suffixes[] = {"",  "n", "u",  "m",  "k",  "M",	 "G",  "T",
					       "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
	size_t whole = strspn(s, "0123456789"), fraction = 0;

	s += whole;
	if (*s == '.') {
		fraction = strspn(s + 1, "0123456789");
		s += 1 + fraction;
	}
	if (!whole && !fraction)
		return false;
	if ((*s == 'e' || *s == 'E') && s[1]) {
		s += s[1] == '-' || s[1] == '+' ? 2 : 1;
		return *s && strspn(s, "0123456789") == strlen(s);
	}
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++)
		if (streq(s, suffixes[i]))
			return true;
	return false;
}

static const struct json_syntax image_syntax = {"an image reference", is_image};

static int check_quantity(struct json_fields *f, const cJSON *node, _unused_ void *out)
{
	static const char want[] = "a quantity of 0 or more";
	double v = cJSON_IsNumber(node) ? node->valuedouble : -1;

	if (cJSON_IsString(node) ? strlen(node->valuestring) <= 32 && is_quantity(node->valuestring)
				 : v >= 0 && v < 9e15 && v == (double)(int64_t)v)
		return 0;
	return json_want(f, node, want);
}

static const struct json_row quantity_rows[] = {{"cpu", JSON_CUSTOM, .decode = check_quantity},
						{"memory", JSON_CUSTOM, .decode = check_quantity},
						{}};
static const struct json_row resource_rows[] = {{"requests", JSON_OBJECT, .rows = quantity_rows},
						{"limits", JSON_OBJECT, .rows = quantity_rows},
						{}};

static int decode_resources(struct json_fields *f, const cJSON *node, void *out)
{
	char unused;
	int r = json_decode(f, node, resource_rows, &unused);

	return r < 0 ? r : copy_json(f, node, out);
}

struct toleration {
	char *key, *value;
	unsigned int exists, effect;
	int seconds;
};
static const struct json_choice toleration_operators[] = {
    {"Equal", 0, NULL}, {"Exists", 1, NULL}, {}};
enum { EFFECT_NO_EXECUTE = 3 };
static const struct json_choice effects[] = {{"NoSchedule", 1, NULL},
					     {"PreferNoSchedule", 2, NULL},
					     {"NoExecute", EFFECT_NO_EXECUTE, NULL},
					     {}};
static const struct json_row toleration_rows[] = {
    {"key", JSON_STRING, offsetof(struct toleration, key), .min = 0, .max = 317},
    {"operator", JSON_CHOICE, offsetof(struct toleration, exists), .choices = toleration_operators},
    {"value", JSON_STRING, offsetof(struct toleration, value), .min = 0, .max = 63,
     .syntax = &syntax_label_value},
    {"effect", JSON_CHOICE, offsetof(struct toleration, effect), .choices = effects},
    {"tolerationSeconds", JSON_INT, offsetof(struct toleration, seconds), .min = 0,
     .max = INT32_MAX},
    {}};

static int check_toleration(struct json_fields *f, const cJSON *node, _unused_ void *out)
{
	struct toleration t = {.seconds = NUMBER_ABSENT};
	_cleanup_free_ char *key = NULL, *value = NULL;
	int r = json_decode(f, node, toleration_rows, &t);

	key = t.key;
	value = t.value;
	if (r < 0)
		return r;
	if ((!key || !*key) && !t.exists) {
		json_path_enter(f, "operator");
		return json_error(f, "want Exists without a key");
	}
	if (key && *key && !syntax_label_key.ok(key)) {
		json_path_enter(f, "key");
		return json_error(f, "want %s, got %s", syntax_label_key.want,
				  quote_text(key).text);
	}
	if (t.exists && value && *value) {
		json_path_enter(f, "value");
		return json_error(f, "want no value with operator Exists, got %s",
				  quote_text(value).text);
	}
	if (t.seconds != NUMBER_ABSENT && t.effect != EFFECT_NO_EXECUTE) {
		json_path_enter(f, "tolerationSeconds");
		return json_error(f, "want effect NoExecute with tolerationSeconds");
	}
	return 0;
}

static int decode_tolerations(struct json_fields *f, const cJSON *node, void *out)
{
	_cleanup_free_ void *unused = NULL;
	size_t n = 0;
	int r = json_list(f, node, TOLERATIONS_MAX, 1, check_toleration, &unused, &n);

	return r < 0 ? r : copy_json(f, node, out);
}

static int check_pull_secret(struct json_fields *f, const cJSON *node, _unused_ void *out)
{
	static const struct json_row rows[] = {{"name", JSON_STRING, 0, .min = 1, .max = 253,
						.syntax = &syntax_dns_subdomain, .required = true},
					       {}};
	_cleanup_free_ char *name = NULL;

	return json_decode(f, node, rows, &name);
}

static int decode_pull_secrets(struct json_fields *f, const cJSON *node, void *out)
{
	_cleanup_free_ void *unused = NULL;
	size_t n = 0, i = 0;
	const cJSON *a, *b;
	int r = json_list(f, node, PULL_SECRETS_MAX, 1, check_pull_secret, &unused, &n);

	if (r < 0)
		return r;
	for (a = node->child; a; a = a->next, i++)
		for (b = node->child; b != a; b = b->next)
			if (streq(json_get(a, "name")->valuestring,
				  json_get(b, "name")->valuestring)) {
				json_enter_index(f, i);
				json_path_enter(f, "name");
				return json_error(
				    f, "%s is given twice",
				    quote_text(json_get(a, "name")->valuestring).text);
			}
	return copy_json(f, node, out);
}

static int decode_node_selector(struct json_fields *f, const cJSON *node, void *out)
{
	const struct json_row value = {.max = 63, .syntax = &syntax_label_value};
	int r = json_check_map(f, node, 0, NODE_LABELS_MAX, &value);

	return r < 0 ? r : copy_json(f, node, out);
}

static int no_node_selector(struct json_fields *f, _unused_ const cJSON *node, _unused_ void *out)
{
	return json_error(f, "only in spec.agent: the group has its own nodeSelector");
}

/* Refuses labels and annotations that the operator sets itself. */
static int decode_pod_map(struct json_fields *f, const cJSON *node, const struct json_row *value,
			  cJSON **out)
{
	static const char *const own[] = {"app.kubernetes.io/name", "app.kubernetes.io/part-of",
					  "app.kubernetes.io/managed-by",
					  "app.kubernetes.io/component"};
	const cJSON *child;
	int r = json_check_map(f, node, 0, CONFIG_KEYS_MAX, value);

	if (r < 0)
		return r;
	cJSON_ArrayForEach(child, node)
	{
		bool taken = has_prefix(child->string, "profiling.kiln.dev/");

		for (size_t i = 0; i < ARRAY_SIZE(own); i++)
			taken = taken || streq(child->string, own[i]);
		if (taken)
			return json_error(
			    f, "want none of the keys that the operator sets itself, got %s",
			    quote_text(child->string).text);
	}
	return copy_json(f, node, out);
}

static int decode_pod_labels(struct json_fields *f, const cJSON *node, void *out)
{
	const struct json_row value = {.max = 63, .syntax = &syntax_label_value};

	return decode_pod_map(f, node, &value, out);
}

static int decode_pod_annotations(struct json_fields *f, const cJSON *node, void *out)
{
	const struct json_row value = {.max = 4096};

	return decode_pod_map(f, node, &value, out);
}

static int decode_max_unavailable(struct json_fields *f, const cJSON *node, void *out)
{
	static const char want[] = "1..100000 or 1%..100%";
	char text[16] = "";
	uint64_t n;

	if (cJSON_IsNumber(node)) {
		double v = node->valuedouble;

		if (!(v >= 1 && v <= 100000) || v != (double)(int)v)
			return json_want(f, node, want);
		snprintf(text, sizeof(text), "%d", (int)v);
	} else {
		size_t len = cJSON_IsString(node) ? strlen(node->valuestring) : 0;

		if (len < 2 || len > 4 || node->valuestring[len - 1] != '%')
			return json_want(f, node, want);
		memcpy(text, node->valuestring, len - 1);
		if (strspn(text, "0123456789") != len - 1 || parse_u64(text, &n) < 0 || n < 1 ||
		    n > 100)
			return json_want(f, node, want);
		strcpy(text, node->valuestring);
	}
	*(char **)out = strdup(text);
	return *(char **)out ? 0 : json_no_memory(f);
}

static const struct json_row update_rows[] = {
    {"maxUnavailable", JSON_CUSTOM, AT(max_unavailable), .decode = decode_max_unavailable}, {}};
static const struct json_choice pull_policies[] = {
    {"Always", 0, NULL}, {"IfNotPresent", 0, NULL}, {"Never", 0, NULL}, {}};
static const struct json_choice security_modes[] = {
    {"Capabilities", 0, NULL}, {"Privileged", 0, NULL}, {}};
static const struct json_choice log_levels[] = {
    {"Debug", 0, NULL}, {"Info", 0, NULL}, {"Warn", 0, NULL}, {"Error", 0, NULL}, {}};
static const struct json_choice unknown_choices[] = {
    {"Hold", 0, "hold"}, {"Default", 0, "default"}, {}};

#define AGENT_ROWS(node_selector_decoder)                                                          \
	{                                                                                          \
		{"image", JSON_STRING, AT(image), .min = 1, .max = 512, .syntax = &image_syntax},  \
		    {"imagePullPolicy", JSON_TEXT, AT(image_pull_policy),                          \
		     .choices = pull_policies},                                                    \
		    {"imagePullSecrets", JSON_CUSTOM, AT(image_pull_secrets),                      \
		     .decode = decode_pull_secrets},                                               \
		    {"securityMode", JSON_TEXT, AT(security_mode), .choices = security_modes},     \
		    {"nodeSelector", JSON_CUSTOM, AT(node_selector),                               \
		     .decode = node_selector_decoder},                                             \
		    {"tolerations", JSON_CUSTOM, AT(tolerations), .decode = decode_tolerations},   \
		    {"resources", JSON_CUSTOM, AT(resources), .decode = decode_resources},         \
		    {"priorityClassName", JSON_STRING,                                             \
		     AT(priority_class),  .min = 1,                                                \
		     .max = 253,	  .syntax = &syntax_dns_subdomain},                        \
		    {"updateStrategy", JSON_OBJECT, .rows = update_rows},                          \
		    {"logLevel", JSON_TEXT, AT(log_level), .choices = log_levels},                 \
		    {"whenUnknown", JSON_TEXT, AT(when_unknown), .choices = unknown_choices},      \
		    {"reportIntervalSeconds", JSON_INT, AT(report_interval_s), .min = 1,           \
		     .max = 60},                                                                   \
		    {"podLabels", JSON_CUSTOM, AT(pod_labels), .decode = decode_pod_labels},       \
		    {"podAnnotations", JSON_CUSTOM, AT(pod_annotations),                           \
		     .decode = decode_pod_annotations},                                            \
		    {"metricsService", JSON_CHOICE, AT(metrics_service),                           \
		     .choices = enabled_choices},                                                  \
		    {"networkPolicy", JSON_CHOICE, AT(network_policy),                             \
		     .choices = enabled_choices},                                                  \
		{                                                                                  \
		}                                                                                  \
	}
static const struct json_row agent_rows[] = AGENT_ROWS(decode_node_selector);
static const struct json_row group_agent_rows[] = AGENT_ROWS(no_node_selector);

int agent_decode(struct json_fields *f, const cJSON *node, void *out)
{
	return json_decode(f, node, agent_rows, out);
}

static int decode_group_nodes(struct json_fields *f, const cJSON *node, void *out)
{
	return label_selector_decode(f, node, GROUP_LABELS_MAX, out);
}

static const struct json_row sampling_rows[] = {
    {"hz", JSON_INT, offsetof(struct node_group, hz), .min = 1, .max = 1000}, {}};
static const struct json_row group_rows[] = {
    {"name", JSON_STRING, offsetof(struct node_group, name), .min = 1, .max = 40,
     .syntax = &syntax_dns_label, .required = true},
    {"nodeSelector", JSON_CUSTOM, offsetof(struct node_group, nodes), .decode = decode_group_nodes,
     .required = true},
    {"sampling", JSON_OBJECT, .rows = sampling_rows},
    {"agent", JSON_OBJECT, offsetof(struct node_group, agent), .rows = group_agent_rows},
    {}};

static int decode_group(struct json_fields *f, const cJSON *node, void *out)
{
	struct node_group *g = out;

	g->hz = NUMBER_ABSENT;
	agent_spec_init(&g->agent);
	return json_decode(f, node, group_rows, g);
}

int groups_decode(struct json_fields *f, const cJSON *node, void *out)
{
	struct cluster_config *c = out;
	void *items = NULL;
	size_t terms = 1;
	int r = json_list(f, node, CONFIG_GROUPS_MAX, sizeof(*c->groups), decode_group, &items,
			  &c->n_groups);

	c->groups = items;
	for (size_t i = 0; r == 0 && i < c->n_groups; i++) {
		terms *= c->groups[i].nodes.n;
		for (size_t j = 0; j < i; j++)
			if (streq(c->groups[i].name, c->groups[j].name)) {
				json_enter_index(f, i);
				json_path_enter(f, "name");
				return json_error(f, "%s is given twice",
						  quote_text(c->groups[i].name).text);
			}
	}
	if (r == 0 && terms > TERMS_MAX)
		return json_error(f,
				  "want at most %d as the product of the groups' counts of "
				  "matchLabels, got %zu",
				  TERMS_MAX, terms);
	return r;
}
