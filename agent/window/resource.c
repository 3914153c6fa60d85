/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes are in the order in which the text exporter shows them: first the container or the
 * executable, last those that the configuration adds. A later value of a key replaces an earlier
 * one; but a service name from the configuration is only used if the pod has none. A pod's
 * attributes are limited so that the others find room.
 */
#include "agent/window/resource.h"

#include "lib/metrics.h"

struct resource_builder {
	const struct config *config;
	char *host_name, *host_id;
	struct attr attrs[RESOURCE_ATTRS_MAX];
	size_t n;
};

int resource_builder_new(const struct config *config, struct resource_builder **ret)
{
	struct resource_builder *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->config = config;
	r->host_name = host_name();
	r->host_id = host_id();
	*ret = r;
	return 0;
}

struct resource_builder *resource_builder_free(struct resource_builder *r)
{
	if (!r)
		return NULL;
	free(r->host_name);
	free(r->host_id);
	free(r);
	return NULL;
}

static struct attr *find(struct resource_builder *r, const char *key)
{
	for (size_t i = 0; i < r->n; i++)
		if (streq(r->attrs[i].key, key))
			return &r->attrs[i];
	return NULL;
}

static void set_attr(struct resource_builder *r, const struct attr *attr, size_t max)
{
	struct attr *a = find(r, attr->key);

	if (!a && r->n < max)
		a = &r->attrs[r->n++];
	if (a)
		*a = *attr;
	else
		metric_add(M_RESOURCE_ATTRIBUTES_DROPPED, 1);
}

/* Sets KEY; an empty or NULL value sets nothing. */
static void set(struct resource_builder *r, const char *key, const char *value)
{
	const struct attr attr = {.key = key, .type = ATTR_STR, .str = value};

	if (value && value[0])
		set_attr(r, &attr, RESOURCE_ATTRS_MAX);
}

static void remove_key(struct resource_builder *r, const char *key)
{
	struct attr *a = find(r, key);

	if (!a)
		return;
	memmove(a, a + 1, (size_t)(r->attrs + --r->n - a) * sizeof(*a));
}

/*
 * Whether KEY is not one of the names that extract.metadata can list: it comes from labels and
 * annotations, which the operator's configuration selects, or is the Service, which the operator
 * sends when a pod has one.
 */
static bool is_extracted(const char *key)
{
	static const char *const prefixes[] = {"k8s.pod.label.", "k8s.pod.annotation.",
					       "k8s.namespace.label.", "k8s.namespace.annotation."};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (has_prefix(key, prefixes[i]))
			return true;
	if (streq(key, "k8s.service.name"))
		return true;
	return !has_prefix(key, "k8s.") && !has_prefix(key, "container.") &&
	       !has_prefix(key, "service.");
}

/* With a k8sattributes processor, only the metadata that it lists is wanted; else all that is
 * known. */
static bool wants(const struct config *c, const char *key)
{
	if (!c->processors.k8sattributes || !c->processors.k8s_metadata.n || is_extracted(key))
		return true;
	for (size_t i = 0; i < c->processors.k8s_metadata.n; i++)
		if (streq(c->processors.k8s_metadata.items[i], key) ||
		    /* The processor's older name of this list attribute. */
		    (streq(c->processors.k8s_metadata.items[i], "container.image.tag") &&
		     streq(key, "container.image.tags")))
			return true;
	return false;
}

static void apply_action(struct resource_builder *r, const struct attr_action *a)
{
	bool there = find(r, a->key) != NULL;

	if (streq(a->action, "delete"))
		remove_key(r, a->key);
	else if (streq(a->action, "upsert") || (streq(a->action, "insert") && !there) ||
		 (streq(a->action, "update") && there))
		set(r, a->key, a->value);
}

/* How many attributes the host, the configuration and its processors will add. */
static size_t wanted_besides(const struct config *c)
{
	enum { HOST = 4, AT_LEAST_FOR_PODS = 16 };
	size_t n = HOST + c->resource_attributes.n + c->processors.add_attributes.n +
		   c->processors.n_resource + (c->service_name ? 1 : 0);

	return MIN(n, (size_t)(RESOURCE_ATTRS_MAX - AT_LEAST_FOR_PODS));
}

static void set_metadata(struct resource_builder *r, const struct pod_attribute *attributes,
			 size_t n)
{
	size_t max = RESOURCE_ATTRS_MAX - wanted_besides(r->config);

	for (size_t i = 0; i < n; i++) {
		const struct pod_attribute *from = &attributes[i];
		struct attr attr = {.key = from->key, .type = ATTR_STR, .str = from->value};

		if (from->values) {
			attr.type = ATTR_STRS;
			attr.strs = from->values;
			attr.n_strs = from->n_values;
		}
		if (wants(r->config, from->key) && (from->values || from->value[0]))
			set_attr(r, &attr, max);
	}
}

uint32_t resource_of(struct resource_builder *r, struct batch_builder *b, const struct process *p,
		     const struct identity *who)
{
	const struct config *c = r->config;
	const struct container_identity *id = &p->info.container;

	r->n = 0;
	set(r, "container.id", id->container_id);
	if (wants(c, "k8s.pod.uid"))
		set(r, "k8s.pod.uid", id->static_pod ? "" : id->pod_uid);
	/* If both have an attribute, the container's value replaces the pod's. */
	if (who && who->pod)
		set_metadata(r, who->pod->attributes, who->pod->n_attributes);
	if (who && who->container)
		set_metadata(r, who->container->attributes, who->container->n_attributes);
	if (c->node_name && wants(c, "k8s.node.name"))
		set(r, "k8s.node.name", c->node_name);
	if (!id->container_id[0]) {
		set(r, "process.executable.name", p->info.executable_name);
		set(r, "process.executable.path", p->info.executable_path);
	}
	set(r, "host.name", r->host_name);
	set(r, "host.id", r->host_id);
	set(r, "host.arch", host_arch());
	set(r, "os.type", "linux");
	for (size_t i = 0; i < c->resource_attributes.n; i++)
		set(r, c->resource_attributes.items[i].key, c->resource_attributes.items[i].value);
	if (!who || !who->pod || !find(r, "service.name"))
		set(r, "service.name", c->service_name);
	for (size_t i = 0; i < c->processors.add_attributes.n; i++)
		set(r, c->processors.add_attributes.items[i].key,
		    c->processors.add_attributes.items[i].value);
	for (size_t i = 0; i < c->processors.n_resource; i++)
		apply_action(r, &c->processors.resource[i]);
	return batch_add_resource(b, r->attrs, r->n, id->container_id);
}
