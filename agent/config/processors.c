/* SPDX-License-Identifier: Apache-2.0 */
/* `processors`: what each of them adds to the one pipeline. */
#include "agent/config/internal.h"

#include "lib/parse.h"

const struct component_type processor_types[] = {
    {"k8sattributes", "k8sattributes"},
    {"k8s_attributes", "k8sattributes"},
    {"batch", "batch"},
    {"memory_limiter", "memory_limiter"},
    {"resource", "resource"},
    {"customprofilesexporter", "customprofilesexporter"},
    {},
};

/* Names of extract.metadata (k8sattributesprocessor, README of v0.130 and later). */
static const char *const metadata_names[] = {
    "k8s.namespace.name",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.pod.hostname",
    "k8s.pod.ip",
    "k8s.pod.start_time",
    "k8s.replicaset.uid",
    "k8s.replicaset.name",
    "k8s.deployment.uid",
    "k8s.deployment.name",
    "k8s.daemonset.uid",
    "k8s.daemonset.name",
    "k8s.statefulset.uid",
    "k8s.statefulset.name",
    "k8s.job.uid",
    "k8s.job.name",
    "k8s.cronjob.uid",
    "k8s.cronjob.name",
    "k8s.node.name",
    "k8s.node.uid",
    "k8s.cluster.uid",
    "k8s.cluster.name",
    "k8s.container.name",
    "container.id",
    "container.image.name",
    "container.image.tag",
    "container.image.tags",
    "container.image.repo_digests",
    "service.namespace",
    "service.name",
    "service.version",
    "service.instance.id",
    NULL,
};

static int add_to_list(struct fields *f, const struct yaml_node *node, struct config_strings *s,
		       const char *text)
{
	int r = config_strings_add(s, text);

	if (r == -E2BIG)
		return fields_error(f, node, "more than %d entries", CONFIG_LIST_MAX);
	return r < 0 ? fields_no_memory(f) : 0;
}

static int decode_metadata(struct fields *f, const struct yaml_node *node, void *out)
{
	int r = node->kind == YAML_NULL ? 0 : fields_want_list(f, node);

	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next) {
		const char *nearest;
		size_t i = 0;

		if (n->kind != YAML_SCALAR)
			return fields_error(f, n, "want the name of an attribute");
		while (metadata_names[i] && !streq(metadata_names[i], n->text))
			i++;
		if (!metadata_names[i]) {
			nearest = nearest_choice(n->text, metadata_names);
			return fields_error(f, n, "unknown attribute %s%s%s%s",
					    quote_text(n->text).text,
					    nearest ? "; did you mean " : "",
					    nearest ? nearest : "", nearest ? "?" : "");
		}
		r = add_to_list(f, n, out, n->text);
	}
	return r;
}

struct extraction {
	char *tag_name, *key, *key_regex, *from;
};

static const char *const extraction_sources[] = {"pod",		"namespace", "node", "deployment",
						 "statefulset", "daemonset", "job",  NULL};
static const struct field extraction_rows[] = {
    {"tag_name", FIELD_STRING, offsetof(struct extraction, tag_name)},
    {"key", FIELD_STRING, offsetof(struct extraction, key)},
    {"key_regex", FIELD_STRING, offsetof(struct extraction, key_regex)},
    {"from", FIELD_CHOICE, offsetof(struct extraction, from), .choices = extraction_sources},
    {"regex", FIELD_IGNORED},
    {},
};

/*
 * labels and annotations: a list of {tag_name, key or key_regex, from}. Checked, but not used: the
 * operator adds the labels to the pods that it streams.
 */
static int decode_extractions(struct fields *f, const struct yaml_node *node, void *out)
{
	int r = node->kind == YAML_NULL ? 0 : fields_want_list(f, node);
	unsigned int i = 0;

	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next, i++) {
		struct extraction x = {0};
		char number[24];
		size_t mark;

		snprintf(number, sizeof(number), "[%u]", i);
		mark = fields_enter(f, number);
		*(bool *)out = true;
		r = fields_want_map(f, n);
		if (r == 0)
			r = fields_decode(f, n, extraction_rows, &x);
		if (r == 0 && !x.key == !x.key_regex)
			r = fields_error(f, n, "want one of key and key_regex");
		if (r == 0 && x.key_regex)
			fields_warn(f, n, "key_regex: accepted, but has no effect");
		free(x.tag_name);
		free(x.key);
		free(x.key_regex);
		free(x.from);
		if (r == 0)
			fields_leave(f, mark);
	}
	return r;
}

#define PROCESSORS(member) offsetof(struct config, processors.member)
static const struct field extract_rows[] = {
    {"metadata", FIELD_CUSTOM, PROCESSORS(k8s_metadata), .decode = decode_metadata},
    {"labels", FIELD_CUSTOM, PROCESSORS(extracts), .decode = decode_extractions},
    {"annotations", FIELD_CUSTOM, PROCESSORS(extracts), .decode = decode_extractions},
    {"otel_annotations", FIELD_QUIET},
    {"deployment_name_from_replicaset", FIELD_QUIET},
    {},
};

static int decode_when_unknown(struct fields *f, const struct yaml_node *node, void *out)
{
	static const char *const choices[] = {"hold", "default", NULL};
	const char *text = node->kind == YAML_SCALAR ? node->text : "";

	if (!streq(text, choices[0]) && !streq(text, choices[1]))
		return fields_error(f, node, "want hold or default");
	*(bool *)out = streq(text, choices[1]);
	return 0;
}

static const struct field operator_rows[] = {
    {"endpoint", FIELD_STRING, PROCESSORS(node_stream.endpoint)},
    {"ca_file", FIELD_STRING, PROCESSORS(node_stream.ca_file)},
    {"token_file", FIELD_STRING, PROCESSORS(node_stream.token_file)},
    {"snapshot_file", FIELD_STRING, PROCESSORS(node_stream.snapshot_file)},
    {"server_name", FIELD_STRING, PROCESSORS(node_stream.server_name)},
    {"when_unknown", FIELD_CUSTOM, PROCESSORS(node_stream.export_untold),
     .decode = decode_when_unknown},
    {},
};

static int decode_operator(struct fields *f, const struct yaml_node *node, void *out)
{
	struct config *c = out;
	struct operator_config *o = &c->processors.node_stream;
	int r = node->kind == YAML_NULL ? 0 : fields_want_map(f, node);

	if (r == 0)
		r = fields_decode(f, node, operator_rows, c);
	if (r < 0)
		return r;
	if (!o->endpoint && !o->snapshot_file)
		return fields_error(f, node, "want endpoint or snapshot_file");
	if (o->endpoint && (!o->ca_file || !o->token_file))
		return fields_error(f, node, "%s: required with endpoint",
				    o->ca_file ? "token_file" : "ca_file");
	o->enabled = true;
	return 0;
}

/* How the Collector finds pods; here the operator streams them, matched by container id. */
static const struct field k8s_rows[] = {
    {"extract", FIELD_MAP, 0, .rows = extract_rows},
    {"operator", FIELD_CUSTOM, 0, .decode = decode_operator},
    {"auth_type", FIELD_QUIET},
    {"context", FIELD_QUIET},
    {"passthrough", FIELD_QUIET},
    {"filter", FIELD_QUIET},
    {"pod_association", FIELD_QUIET},
    {"exclude", FIELD_QUIET},
    {"wait_for_metadata", FIELD_QUIET},
    {"wait_for_metadata_timeout", FIELD_QUIET},
    {},
};

static int decode_k8s(struct fields *f, const struct yaml_node *node, struct config *c)
{
	int r = fields_decode(f, node, k8s_rows, c);

	if (r < 0)
		return r;
	if (!c->processors.k8sattributes && !c->processors.node_stream.enabled)
		fields_warn(f, node,
			    "pod metadata comes from the operator; without it only what the cgroup "
			    "path tells (container.id, k8s.pod.uid) is attached");
	if (c->processors.extracts && !c->processors.node_stream.enabled)
		fields_warn(f, node,
			    "extract.labels and extract.annotations: accepted, but have no effect: "
			    "spec.metadata of the ClusterProfilingConfig says which are attached");
	c->processors.k8sattributes = true;
	return 0;
}

static const char batch_size_note[] =
    "accepted, but requests are split by size in bytes, not by count";
static int decode_batch_timeout(struct fields *f, const struct yaml_node *node, void *out)
{
	static const struct field row = {"timeout", FIELD_DURATION_MS, 0, 0,
					 REPORTER_INTERVAL_MAX_MS};
	uint64_t ms = 0;
	int r = fields_decode_value(f, node, &row, &ms);

	if (r == 0)
		fields_warn(f, node, "accepted, but has no effect: a window is sent at once");
	return r;
}

static const struct field batch_rows[] = {
    {"timeout", FIELD_CUSTOM, 0, .decode = decode_batch_timeout},
    {"send_batch_size", FIELD_IGNORED, .note = batch_size_note},
    {"send_batch_max_size", FIELD_IGNORED, .note = batch_size_note},
    {"metadata_keys", FIELD_IGNORED},
    {"metadata_cardinality_limit", FIELD_IGNORED},
    {},
};

struct limiter {
	uint64_t check_interval_ms, limit_mib, spike_limit_mib, limit_percentage,
	    spike_limit_percentage;
};

enum { LIMIT_MIB_MAX = 1 << 24 };
static const struct field limiter_rows[] = {
    {"check_interval", FIELD_DURATION_MS, offsetof(struct limiter, check_interval_ms), 1,
     REPORTER_INTERVAL_MAX_MS},
    {"limit_mib", FIELD_U64, offsetof(struct limiter, limit_mib), 1, LIMIT_MIB_MAX},
    {"spike_limit_mib", FIELD_U64, offsetof(struct limiter, spike_limit_mib), 1, LIMIT_MIB_MAX},
    {"limit_percentage", FIELD_U64, offsetof(struct limiter, limit_percentage), 1, 100},
    {"spike_limit_percentage", FIELD_U64, offsetof(struct limiter, spike_limit_percentage), 1, 100},
    {"min_gc_interval_when_soft_limited", FIELD_IGNORED},
    {"min_gc_interval_when_hard_limited", FIELD_IGNORED},
    {},
};

static int decode_limiter(struct fields *f, const struct yaml_node *node, struct config *c)
{
	uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct limiter v = {0};
	uint64_t limit, spike;
	int r = fields_decode(f, node, limiter_rows, &v);

	if (r < 0)
		return r;
	if (!v.check_interval_ms)
		return fields_error(f, node, "check_interval: required");
	if (!v.limit_mib && !v.limit_percentage)
		return fields_error(f, node, "limit_mib or limit_percentage: required");
	/* As the Collector: MiB win over percentages; the spike is 20 % when not given. */
	limit = v.limit_mib ? v.limit_mib << 20 : memory / 100 * v.limit_percentage;
	spike = v.limit_mib ? v.spike_limit_mib << 20 : memory / 100 * v.spike_limit_percentage;
	if (!spike)
		spike = limit / 5;
	if (spike >= limit)
		return fields_error(f, node, "spike_limit_%s: must be below limit_%s",
				    v.limit_mib ? "mib" : "percentage",
				    v.limit_mib ? "mib" : "percentage");
	c->processors.memory_limit_bytes = limit;
	c->processors.memory_spike_bytes = spike;
	return 0;
}

static const char *const action_names[] = {"insert", "update", "upsert", "delete", NULL};
static const struct field action_rows[] = {
    {"key", FIELD_STRING, offsetof(struct attr_action, key)},
    {"value", FIELD_STRING, offsetof(struct attr_action, value)},
    {"action", FIELD_CHOICE, offsetof(struct attr_action, action), .choices = action_names},
    {},
};

static int add_action(struct fields *f, const struct yaml_node *node, struct attr_action *a,
		      struct processors_config *p)
{
	struct attr_action *grown;

	if (!a->key || !*a->key)
		return fields_error(f, node, "key: required");
	if (!a->action)
		return fields_error(f, node,
				    "action: required, one of insert, update, upsert, delete");
	if (!a->value && !streq(a->action, "delete"))
		return fields_error(f, node, "value: required for %s", a->action);
	if (p->n_resource >= CONFIG_LIST_MAX)
		return fields_error(f, node, "more than %d actions", CONFIG_LIST_MAX);
	grown = realloc(p->resource, (p->n_resource + 1) * sizeof(*grown));
	if (!grown)
		return fields_no_memory(f);
	p->resource = grown;
	p->resource[p->n_resource++] = *a;
	*a = (struct attr_action){0};
	return 0;
}

static int decode_actions(struct fields *f, const struct yaml_node *node, void *out)
{
	int r = fields_want_list(f, node);
	unsigned int i = 0;

	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next, i++) {
		struct attr_action a = {0};
		char number[24];
		size_t mark;

		snprintf(number, sizeof(number), "[%u]", i);
		mark = fields_enter(f, number);
		r = fields_want_map(f, n);
		if (r == 0)
			r = fields_decode(f, n, action_rows, &a);
		if (r == 0)
			r = add_action(f, n, &a, out);
		free(a.key);
		free(a.value);
		free(a.action);
		if (r == 0)
			fields_leave(f, mark);
	}
	return r;
}

static const struct field resource_rows[] = {
    {"attributes", FIELD_CUSTOM, offsetof(struct config, processors), .decode = decode_actions},
    {},
};

/* Every key is an attribute: {foo: bar}. */
static int decode_additions(struct fields *f, const struct yaml_node *node,
			    struct config_pairs *pairs)
{
	int r = node->kind == YAML_NULL ? 0 : fields_want_map(f, node);

	for (const struct yaml_node *n = node->child; r == 0 && n; n = n->next) {
		size_t mark = fields_enter(f, n->key);

		if (n->kind == YAML_MAP || n->kind == YAML_LIST)
			return fields_error(f, n, "want text, got a %s",
					    n->kind == YAML_MAP ? "map" : "list");
		if (!n->key[0])
			return fields_error(f, n, "an attribute needs a name");
		r = pairs_set(pairs, n->key, n->kind == YAML_NULL ? "" : n->text, CONFIG_LIST_MAX);
		if (r == -E2BIG)
			return fields_error(f, n, "more than %d attributes", CONFIG_LIST_MAX);
		if (r < 0)
			return fields_no_memory(f);
		fields_leave(f, mark);
	}
	return r;
}

int processor_decode(struct fields *f, const struct component_type *type,
		     const struct yaml_node *node, struct loading *l)
{
	struct config *c = l->config;

	if (streq(type->canonical, "k8sattributes"))
		return decode_k8s(f, node, c);
	if (streq(type->canonical, "batch"))
		return fields_decode(f, node, batch_rows, c);
	if (streq(type->canonical, "memory_limiter"))
		return decode_limiter(f, node, c);
	if (streq(type->canonical, "resource")) {
		if (!c->processors.n_resource && !fields_find(node, "attributes"))
			return fields_error(f, node, "attributes: required");
		return fields_decode(f, node, resource_rows, c);
	}
	return decode_additions(f, node, &c->processors.add_attributes);
}
