/* SPDX-License-Identifier: Apache-2.0 */
/*
 * render(): decides which objects there are, and makes their metadata and hashes; the other files
 * make their contents. A DaemonSet and a ConfigMap for each node group and for the nodes of no
 * group; one ServiceAccount, Service and NetworkPolicy. When no policy can ask for samples (max_hz
 * 0) agents have nothing to do, and neither DaemonSets nor ConfigMaps are made.
 *
 * A hash is that of the compact text of an object without its own hash. Pure; any thread.
 */
#include "operator/render/internal.h"

enum { STREAM_HZ = 20 }; /* the API's own default */

const enum kube_kind render_kinds[] = {KUBE_SERVICE_ACCOUNTS, KUBE_ROLES,    KUBE_ROLE_BINDINGS,
				       KUBE_NETWORK_POLICIES, KUBE_SERVICES, KUBE_CONFIG_MAPS,
				       KUBE_DAEMON_SETS};
const size_t n_render_kinds = ARRAY_SIZE(render_kinds);

struct targets {
	struct agent_target items[CONFIG_GROUPS_MAX + 1];
	size_t n;
};

static void targets_done(struct targets *t)
{
	for (size_t i = 0; i < t->n; i++) {
		cJSON_Delete(t->items[i].terms);
		free(t->items[i].yaml);
	}
}

static void format_hash(char ret[static HASH_MAX], const void *data, size_t len)
{
	snprintf(ret, HASH_MAX, "%016llx", (unsigned long long)hash_bytes(data, len, 0));
}

/* The group's fields that are set replace the cluster's. */
static struct agent_spec merge_agent(const struct agent_spec *base, const struct agent_spec *over)
{
	struct agent_spec a = *base;

#define OVER(member)                                                                               \
	do {                                                                                       \
		if (over->member)                                                                  \
			a.member = over->member;                                                   \
	} while (0)
	OVER(image);
	OVER(image_pull_policy);
	OVER(priority_class);
	OVER(log_level);
	OVER(when_unknown);
	OVER(max_unavailable);
	OVER(security_mode);
	OVER(metrics_service);
	OVER(network_policy);
	OVER(image_pull_secrets);
	OVER(node_selector);
	OVER(tolerations);
	OVER(resources);
	OVER(pod_labels);
	OVER(pod_annotations);
#undef OVER
	if (over->report_interval_s != NUMBER_ABSENT)
		a.report_interval_s = over->report_interval_s;
	return a;
}

/*
 * A group's own rate, within the guard-rails; else the rate that policies can ask for. With the
 * node stream the agent gets its rates from there, and this one is used only until the first
 * snapshot: it does not depend on policies, so that a change of a policy restarts no agent.
 */
static int target_hz(const struct render_input *in, size_t index)
{
	const struct guardrails *g = &in->config->guardrails;
	int group_hz = index < in->config->n_groups ? in->config->groups[index].hz : NUMBER_ABSENT;

	if (in->stream)
		return g->max_hz > 0 ? MIN(MAX(STREAM_HZ, g->min_hz), g->max_hz) : STREAM_HZ;
	if (index < in->config->n_groups && in->group_hz[index] > 0)
		return in->group_hz[index];
	if (group_hz == NUMBER_ABSENT)
		return in->max_hz;
	if (g->max_hz > 0)
		group_hz = MIN(group_hz, g->max_hz);
	return g->min_hz > 0 ? MAX(group_hz, g->min_hz) : group_hz;
}

static int fill_target(const struct render_input *in, size_t index, struct agent_target *t,
		       struct error *err)
{
	const struct cluster_config *c = in->config;
	int r = node_terms(c->groups, c->n_groups, index, &t->terms, err);

	if (r == 0)
		r = agent_config_text(in, t, &t->yaml, err);
	if (r < 0)
		return r;
	if (!t->agent.image && !in->image)
		return error_set(err, -EINVAL,
				 "spec.agent.image: want an image, since the operator was started "
				 "without --agent-image");
	format_hash(t->config_hash, t->yaml, strlen(t->yaml));
	return 0;
}

static int make_targets(const struct render_input *in, struct targets *ret, struct error *err)
{
	const struct cluster_config *c = in->config;
	int r = 0;

	if (c->n_groups > CONFIG_GROUPS_MAX)
		return error_set(err, -EINVAL, "spec.nodeGroups: more than %d", CONFIG_GROUPS_MAX);
	for (size_t i = 0; r == 0 && i < c->n_destinations; i++)
		r = destination_check(&c->destinations[i], err);
	for (size_t i = 0; r == 0 && in->max_hz > 0 && i <= c->n_groups; i++) {
		const struct node_group *g = i < c->n_groups ? &c->groups[i] : NULL;
		struct agent_target *t = &ret->items[ret->n++];

		*t = (struct agent_target){
		    .group = g ? g->name : "",
		    .agent = g ? merge_agent(&c->agent, &g->agent) : c->agent,
		    .hz = target_hz(in, i),
		};
		snprintf(t->name, sizeof(t->name), KILN_AGENT_NAME "%s%.200s", g ? "-" : "",
			 t->group);
		r = fill_target(in, i, t, err);
	}
	return r;
}

static const char *const api_versions[KUBE_KIND_COUNT] = {
#define X(id, group, version, plural, kind, namespaced) [KUBE_##id] = group "/" version,
    KUBE_RESOURCES(X)
#undef X
};
static const char *const kind_names[KUBE_KIND_COUNT] = {
#define X(id, group, version, plural, kind, namespaced) [KUBE_##id] = kind,
    KUBE_RESOURCES(X)
#undef X
};

/* The config owns what is made of it: when it goes, the garbage collector removes the rest. */
static int make_owners(const struct object_id *id, cJSON **ret)
{
	if (!id->uid || !*id->uid) /* a file that was never applied */
		return 0;
	return json_make(ret,
			 "[{'apiVersion': %s, 'kind': %s, 'name': %s, 'uid': %s,"
			 "  'controller': true, 'blockOwnerDeletion': true}]",
			 api_versions[KUBE_CLUSTER_CONFIGS], kind_names[KUBE_CLUSTER_CONFIGS],
			 id->name, id->uid);
}

static int make_object(const struct render_input *in, enum kube_kind kind, const char *name,
		       const struct agent_target *target, cJSON *contents, cJSON **ret)
{
	const char *version = api_versions[kind];
	const bool has_config = target && kind == KUBE_CONFIG_MAPS;
	const bool of_stream = kind == KUBE_ROLES || kind == KUBE_ROLE_BINDINGS;
	_cleanup_json_ cJSON *owners = NULL, *annotations = NULL, *object = NULL;
	int r = make_owners(&in->config->id, &owners);

	if (r == 0)
		r = json_make(&annotations, "{'" KILN_CONFIG_HASH "': %s}",
			      has_config ? target->config_hash : NULL);
	if (r == 0)
		r = json_make(&object,
			      "{'apiVersion': %s, 'kind': %s, 'metadata': {"
			      "  'name': %s, 'namespace': %s,"
			      "  'labels': {"
			      "    'app.kubernetes.io/name': %s,"
			      "    'app.kubernetes.io/part-of': 'kiln',"
			      "    'app.kubernetes.io/managed-by': 'kiln-operator',"
			      "    'app.kubernetes.io/component': %s,"
			      "    '" KILN_LABEL_GROUP "': %s},"
			      "  'annotations': %j,"
			      "  'ownerReferences': %j}}",
			      *version == '/' ? version + 1 : version, kind_names[kind], name,
			      in->ns, of_stream ? KILN_STREAM_ACCOUNT : KILN_AGENT_NAME,
			      of_stream ? "stream" : "agent", target ? target->group : NULL,
			      annotations, owners);
	if (r < 0)
		return r;
	while (contents->child) {
		cJSON *item = cJSON_DetachItemViaPointer(contents, contents->child);
		_cleanup_(freep) char *key = TAKE_PTR(item->string);

		if (!key || !cJSON_AddItemToObject(object, key, item)) {
			cJSON_Delete(item);
			return -ENOMEM;
		}
	}
	*ret = TAKE_PTR(object);
	return 0;
}

/* Adds an object to R. CONTENTS, its members besides metadata, is consumed. */
static int add_object(struct rendered *r, const struct render_input *in, enum kube_kind kind,
		      const char *name, const struct agent_target *target, cJSON *contents)
{
	_cleanup_json_ cJSON *taken = contents, *object = NULL;
	struct rendered_object *o = &r->objects[r->n];
	_cleanup_(freep) char *text = NULL;
	cJSON *annotations;
	int e;

	if (r->n == RENDER_OBJECTS_MAX)
		return -E2BIG;
	e = make_object(in, kind, name, target, taken, &object);
	if (e < 0)
		return e;
	*o = (struct rendered_object){.kind = kind, .ns = strdup(in->ns), .name = strdup(name)};
	r->n++;
	text = json_text(object);
	if (!text || !o->ns || !o->name)
		return -ENOMEM;
	format_hash(o->hash, text, strlen(text));
	annotations = cJSON_GetObjectItemCaseSensitive(
	    cJSON_GetObjectItemCaseSensitive(object, "metadata"), "annotations");
	if (!cJSON_AddStringToObject(annotations, KILN_APPLIED_HASH, o->hash))
		return -ENOMEM;
	o->object = TAKE_PTR(object);
	return 0;
}

static int add_target(struct rendered *r, const struct render_input *in,
		      const struct agent_target *t)
{
	cJSON *contents = NULL;
	int e = json_make(&contents, "{'data': {'agent.yaml': %s}}", t->yaml);

	if (e == 0)
		e = add_object(r, in, KUBE_CONFIG_MAPS, t->name, t, TAKE_PTR(contents));
	if (e == 0)
		e = daemon_set_make(in, t, &contents);
	return e < 0 ? e : add_object(r, in, KUBE_DAEMON_SETS, t->name, t, contents);
}

/*
 * True when the toggle at OFFSET of any target's agent is not disabled. Without targets CLUSTER,
 * the toggle of the cluster's agents, decides.
 */
static bool any_enabled(const struct targets *t, enum toggle cluster, size_t offset)
{
	bool any = !t->n && cluster != TOGGLE_DISABLED;

	for (size_t i = 0; i < t->n; i++)
		any |= *(const enum toggle *)((const char *)&t->items[i].agent + offset) !=
		       TOGGLE_DISABLED;
	return any;
}

static int add_secret_role(struct rendered *r, const struct render_input *in)
{
	cJSON *contents = NULL;
	int e = in->stream ? secret_role_make(in->config, &contents) : 0;

	if (e < 0 || !contents)
		return e;
	e = add_object(r, in, KUBE_ROLES, KILN_SECRET_ROLE, NULL, TAKE_PTR(contents));
	if (e == 0)
		e = secret_binding_make(in->ns, &contents);
	return e < 0 ? e : add_object(r, in, KUBE_ROLE_BINDINGS, KILN_SECRET_ROLE, NULL, contents);
}

static int add_all(struct rendered *r, const struct render_input *in, const struct targets *t)
{
	const struct agent_spec *a = &in->config->agent;
	cJSON *contents = NULL;
	int e = service_account_make(&contents);

	if (e == 0)
		e = add_object(r, in, KUBE_SERVICE_ACCOUNTS, KILN_AGENT_NAME, NULL,
			       TAKE_PTR(contents));
	if (e == 0)
		e = add_secret_role(r, in);
	if (e == 0 &&
	    any_enabled(t, a->network_policy, offsetof(struct agent_spec, network_policy))) {
		e = network_policy_make(t->items, t->n, &contents);
		if (e == 0)
			e = add_object(r, in, KUBE_NETWORK_POLICIES, KILN_AGENT_NAME, NULL,
				       TAKE_PTR(contents));
	}
	if (e == 0 &&
	    any_enabled(t, a->metrics_service, offsetof(struct agent_spec, metrics_service))) {
		e = service_make(&contents);
		if (e == 0)
			e = add_object(r, in, KUBE_SERVICES, KILN_AGENT_NAME "-metrics", NULL,
				       TAKE_PTR(contents));
	}
	for (size_t i = 0; e == 0 && i < t->n; i++)
		e = add_target(r, in, &t->items[i]);
	return e;
}

/* Names count too: the same settings for another group are another configuration. */
static void hash_configs(const struct targets *t, char ret[static HASH_MAX])
{
	char text[CONFIG_GROUPS_MAX + 1][AGENT_NAME_MAX + HASH_MAX] = {0};

	for (size_t i = 0; i < t->n; i++)
		snprintf(text[i], sizeof(text[i]), "%s %s", t->items[i].name,
			 t->items[i].config_hash);
	format_hash(ret, text, sizeof(text));
}

int render(const struct render_input *input, struct rendered **ret, struct error *err)
{
	_cleanup_(rendered_freep) struct rendered *r = calloc(1, sizeof(*r));
	_cleanup_(targets_done) struct targets targets = {.n = 0};
	int e;

	if (r)
		r->objects = calloc(RENDER_OBJECTS_MAX, sizeof(*r->objects));
	if (!r || !r->objects)
		return error_set(err, -ENOMEM, "out of memory");
	e = make_targets(input, &targets, err);
	if (e < 0)
		return e;
	e = add_all(r, input, &targets);
	if (e < 0)
		return error_set(err, e, "out of memory");
	hash_configs(&targets, r->config_hash);
	*ret = TAKE_PTR(r);
	return 0;
}

struct rendered *rendered_free(struct rendered *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->n; i++) {
		free(r->objects[i].ns);
		free(r->objects[i].name);
		cJSON_Delete(r->objects[i].object);
	}
	free(r->objects);
	free(r);
	return NULL;
}
