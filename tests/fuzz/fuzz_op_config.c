/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the JSON of a config: the parser returns a config within its bounds, or -EINVAL with
 * a message of one line; no crash, no leak. The config is then put into a set, a pod is resolved,
 * and the config's verdict is read. The first byte chooses the kind of config.
 */
#include "operator/policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char cluster_text[] =
    "{\"metadata\":{\"name\":\"cluster\"},\"spec\":{\"destinations\":[{\"name\":\"main\",\"text\":{"
    "}}],"
    "\"guardrails\":{\"sampling\":{\"maxHz\":97},\"tenantDestinations\":\"SameNamespaceSecret\"}}}";

static void check_error(int r, const struct error *err)
{
	if (r < 0 && (r != -EINVAL || !err->message[0] || strpbrk(err->message, "\n\r\t")))
		abort();
}

static void check_policy(struct policy_set *set, const char *ns, const char *name)
{
	static const struct label labels[] = {{"app", "api"}, {"team", "a"}};
	const struct policy_subject subject = {
	    .ns = ns,
	    .namespace_labels = labels,
	    .n_namespace_labels = ARRAY_SIZE(labels),
	    .pod_labels = labels,
	    .n_pod_labels = ARRAY_SIZE(labels),
	    .mode_annotation = "enabled",
	    .group = policy_node_group(set, labels, ARRAY_SIZE(labels))};
	const struct effective_policy *p;
	struct policy_verdict v;

	if (policy_resolve(set, &subject, &p, NULL) < 0 || !p->id ||
	    p->n_destinations > CONFIG_DESTINATIONS_MAX ||
	    (p->enabled && (p->hz < 1 || p->hz > policy_set_max_hz(set))) ||
	    p->off_cpu_per_mille < 0 || p->off_cpu_per_mille > 1000)
		abort();
	if (policy_verdict(set, ns, name, &v) < 0 || !v.message[0] ||
	    v.n_clamped > POLICY_CLAMPED_MAX)
		abort();
}

static void fuzz_cluster(const cJSON *object)
{
	_cleanup_(policy_set_freep) struct policy_set *set = NULL;
	struct cluster_config *c = NULL;
	struct error err = {0};
	int r = cluster_config_parse(object, &c, &err);

	check_error(r, &err);
	if (r < 0 || policy_set_new(&set) < 0)
		return;
	if (policy_set_cluster(set, c) < 0)
		abort();
	check_policy(set, "", "cluster");
}

static void fuzz_namespace(const cJSON *object)
{
	_cleanup_(policy_set_freep) struct policy_set *set = NULL;
	struct cluster_config *cluster = NULL;
	struct namespace_config *c = NULL;
	struct error err = {0};
	_cleanup_free_ char *ns = NULL, *name = NULL;
	int r = namespace_config_parse(object, &c, &err);
	bool disabled = false;
	cJSON *json;

	check_error(r, &err);
	if (r < 0 && namespace_config_salvage(object, &c, &disabled) < 0)
		return;
	json = cJSON_Parse(cluster_text);
	ns = strdup(c->id.ns);
	name = strdup(c->id.name);
	if (policy_set_new(&set) < 0 || cluster_config_parse(json, &cluster, NULL) < 0 ||
	    policy_set_cluster(set, cluster) < 0 ||
	    (r < 0 ? policy_set_refuse(set, c, disabled, "why") : policy_set_put(set, c)) < 0)
		abort();
	cJSON_Delete(json);
	check_policy(set, ns, name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cJSON *object;

	if (size < 1)
		return 0;
	object = cJSON_ParseWithLength((const char *)data + 1, size - 1);
	if (!object)
		return 0;
	if (data[0] % 2)
		fuzz_cluster(object);
	else
		fuzz_namespace(object);
	cJSON_Delete(object);
	return 0;
}
