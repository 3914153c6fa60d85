/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same objects as JSON, by cJSON, and as texts to compare: one from the protobuf-c message, one
 * from a decoder's view.
 */
#include "sample.h"

#include <time.h>

#include <cjson/cJSON.h>

/* Empty strings are left out, as Go does with omitempty. */
static void put(cJSON *o, const char *key, const char *value)
{
	if (value && *value)
		cJSON_AddStringToObject(o, key, value);
}

static void put_time(cJSON *o, const char *key, const K8s__Time *t)
{
	char s[32];
	time_t at;
	struct tm tm;

	if (!t)
		return;
	if (!t->has_seconds) {
		cJSON_AddNullToObject(o, key);
		return;
	}
	at = t->seconds;
	gmtime_r(&at, &tm);
	strftime(s, sizeof(s), "%Y-%m-%dT%H:%M:%SZ", &tm);
	cJSON_AddStringToObject(o, key, s);
}

static void put_pairs(cJSON *o, const char *key, K8s__Pair **pairs, size_t n)
{
	cJSON *map = n ? cJSON_AddObjectToObject(o, key) : NULL;

	for (size_t i = 0; i < n; i++)
		cJSON_AddStringToObject(map, pairs[i]->key, pairs[i]->value);
}

static void put_meta(cJSON *o, const K8s__ObjectMeta *m)
{
	cJSON *meta = cJSON_AddObjectToObject(o, "metadata"), *list;

	put(meta, "name", m->name);
	put(meta, "namespace", m->namespace_);
	put(meta, "uid", m->uid);
	put(meta, "resourceVersion", m->resource_version);
	if (m->generation)
		cJSON_AddNumberToObject(meta, "generation", (double)m->generation);
	put_time(meta, "creationTimestamp", m->creation_timestamp);
	put_time(meta, "deletionTimestamp", m->deletion_timestamp);
	put_pairs(meta, "labels", m->labels, m->n_labels);
	put_pairs(meta, "annotations", m->annotations, m->n_annotations);
	list = cJSON_AddArrayToObject(meta, "ownerReferences");
	for (size_t i = 0; i < m->n_owner_references; i++) {
		const K8s__OwnerReference *r = m->owner_references[i];
		cJSON *owner = cJSON_CreateObject();

		put(owner, "apiVersion", r->api_version);
		put(owner, "kind", r->kind);
		put(owner, "name", r->name);
		put(owner, "uid", r->uid);
		if (r->has_controller)
			cJSON_AddBoolToObject(owner, "controller", r->controller);
		cJSON_AddItemToArray(list, owner);
	}
	list = cJSON_AddArrayToObject(meta, "managedFields");
	for (size_t i = 0; i < m->n_managed_fields; i++) {
		const ProtobufCBinaryData *raw = &m->managed_fields[i]->fields_v1->raw;
		cJSON *entry = cJSON_CreateObject();

		put(entry, "manager", m->managed_fields[i]->manager);
		cJSON_AddItemToObject(entry, "fieldsV1",
				      cJSON_ParseWithLength((const char *)raw->data, raw->len));
		cJSON_AddItemToArray(list, entry);
	}
}

static cJSON *container_json(const K8s__Container *c)
{
	cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "env");

	for (size_t i = 0; i < c->n_env; i++) {
		cJSON *env = cJSON_CreateObject();

		put(env, "name", c->env[i]->name);
		put(env, "value", c->env[i]->value);
		cJSON_AddItemToArray(list, env);
	}
	put(o, "image", c->image);
	put(o, "name", c->name);
	put(o, "restartPolicy", c->restart_policy);
	return o;
}

static void put_statuses(cJSON *o, const char *key, K8s__ContainerStatus **s, size_t n)
{
	cJSON *list = n ? cJSON_AddArrayToObject(o, key) : NULL;

	for (size_t i = 0; i < n; i++) {
		cJSON *status = cJSON_CreateObject();

		cJSON_AddStringToObject(status, "containerID", s[i]->container_id);
		cJSON_AddStringToObject(status, "image", s[i]->image);
		cJSON_AddStringToObject(status, "imageID", s[i]->image_id);
		put(status, "name", s[i]->name);
		cJSON_AddBoolToObject(status, "ready", s[i]->ready);
		cJSON_AddNumberToObject(status, "restartCount", s[i]->restart_count);
		cJSON_AddItemToArray(list, status);
	}
}

/* Prints O, with '<' and the emoji's four bytes as Go and JavaScript may escape them. */
static void print(cJSON *o, bool pretty, struct buf *out)
{
	_cleanup_free_ char *s = pretty ? cJSON_Print(o) : cJSON_PrintUnformatted(o);

	for (const char *p = s; *p; p++) {
		if (*p == '<') {
			buf_puts(out, "\\u003c");
		} else if (*p == '/') {
			buf_puts(out, "\\/");
		} else if (has_prefix(p, "\xf0\x9f\x94\xa5")) {
			buf_puts(out, "\\uD83d\\udD25");
			p += 3;
		} else if (has_prefix(p, "\xe2\x80\xa8")) {
			buf_puts(out, "\\u2028");
			p += 2;
		} else if (has_prefix(p, "\xc3\xa9")) {
			buf_puts(out, "\\u00e9");
			p++;
		} else {
			buf_append(out, p, 1);
		}
	}
	cJSON_Delete(o);
}

void sample_pod_json(const K8s__Pod *pod, bool pretty, struct buf *out)
{
	cJSON *o = cJSON_CreateObject(), *spec, *status, *list;

	put_meta(o, pod->metadata);
	spec = cJSON_AddObjectToObject(o, "spec");
	/* In the order of the fields of Go's structs. */
	list = cJSON_AddArrayToObject(spec, "initContainers");
	for (size_t i = 0; i < pod->spec->n_init_containers; i++)
		cJSON_AddItemToArray(list, container_json(pod->spec->init_containers[i]));
	list = cJSON_AddArrayToObject(spec, "containers");
	for (size_t i = 0; i < pod->spec->n_containers; i++)
		cJSON_AddItemToArray(list, container_json(pod->spec->containers[i]));
	if (pod->spec->host_network)
		cJSON_AddTrueToObject(spec, "hostNetwork");
	put(spec, "hostname", pod->spec->hostname);
	list = cJSON_AddArrayToObject(spec, "ephemeralContainers");
	for (size_t i = 0; i < pod->spec->n_ephemeral_containers; i++)
		cJSON_AddItemToArray(list,
				     container_json(pod->spec->ephemeral_containers[i]->common));
	put(spec, "nodeName", pod->spec->node_name);
	cJSON_AddNullToObject(spec, "securityContext");
	status = cJSON_AddObjectToObject(o, "status");
	put_statuses(status, "containerStatuses", pod->status->container_statuses,
		     pod->status->n_container_statuses);
	put_statuses(status, "ephemeralContainerStatuses",
		     pod->status->ephemeral_container_statuses,
		     pod->status->n_ephemeral_container_statuses);
	put_statuses(status, "initContainerStatuses", pod->status->init_container_statuses,
		     pod->status->n_init_container_statuses);
	put(status, "phase", pod->status->phase);
	put(status, "podIP", pod->status->pod_ip);
	print(o, pretty, out);
}

void sample_endpoint_slice_json(const K8s__EndpointSlice *slice, bool pretty, struct buf *out)
{
	cJSON *o = cJSON_CreateObject(), *list;

	put_meta(o, slice->metadata);
	list = cJSON_AddArrayToObject(o, "endpoints");
	for (size_t i = 0; i < slice->n_endpoints; i++) {
		const K8s__ObjectReference *ref = slice->endpoints[i]->target_ref;
		cJSON *e = cJSON_CreateObject(), *target;

		put(e, "hostname", slice->endpoints[i]->hostname);
		target = ref ? cJSON_AddObjectToObject(e, "targetRef") : NULL;
		if (ref) {
			put(target, "kind", ref->kind);
			put(target, "name", ref->name);
			put(target, "uid", ref->uid);
		}
		cJSON_AddItemToArray(list, e);
	}
	print(o, pretty, out);
}

/* One line of a text: absent and empty are the same, but for pairs, which are counted. */
static void line(struct buf *out, const char *what, const void *p, size_t n)
{
	buf_printf(out, "%s=[%zu]", what, n);
	buf_append(out, n ? p : "", n);
	buf_puts(out, "\n");
}

static void line_str(struct buf *out, const char *what, const char *s)
{
	line(out, what, s, s ? strlen(s) : 0);
}

static void line_slice(struct buf *out, const char *what, struct slice s)
{
	line(out, what, s.p, s.n);
}

static void expect_pairs(struct buf *out, K8s__Pair **pairs, size_t n)
{
	buf_printf(out, "pairs %zu\n", MIN(n, (size_t)VIEW_PAIRS_MAX));
	for (size_t i = 0; i < MIN(n, (size_t)VIEW_PAIRS_MAX); i++) {
		line_str(out, "key", pairs[i]->key);
		line_str(out, "value", pairs[i]->value);
	}
}

static void expect_meta(const K8s__ObjectMeta *m, bool cut, struct buf *out)
{
	cut |= m->n_labels > VIEW_PAIRS_MAX || m->n_annotations > VIEW_PAIRS_MAX ||
	       m->n_owner_references > VIEW_OWNERS_MAX;
	line_str(out, "name", m->name);
	line_str(out, "ns", m->namespace_);
	line_str(out, "uid", m->uid);
	line_str(out, "rv", m->resource_version);
	buf_printf(out, "generation %lld created %lld deleting %d cut %d\n",
		   (long long)m->generation, (long long)m->creation_timestamp->seconds,
		   m->deletion_timestamp != NULL, cut);
	expect_pairs(out, m->labels, m->n_labels);
	expect_pairs(out, m->annotations, m->n_annotations);
	for (size_t i = 0; i < MIN(m->n_owner_references, (size_t)VIEW_OWNERS_MAX); i++) {
		line_str(out, "owner kind", m->owner_references[i]->kind);
		line_str(out, "owner name", m->owner_references[i]->name);
		line_str(out, "owner uid", m->owner_references[i]->uid);
		buf_printf(out, "controller %d\n", m->owner_references[i]->controller);
	}
}

static void expect_container(enum container_type type, const K8s__Container *c,
			     K8s__ContainerStatus **statuses, size_t n, struct buf *out)
{
	const K8s__ContainerStatus *s = NULL;

	for (size_t i = 0; i < n; i++) {
		if (streq(statuses[i]->name, c->name))
			s = statuses[i];
	}
	buf_printf(out, "container %d\n", type);
	line_str(out, "name", c->name);
	line_str(out, "image", c->image);
	line_str(out, "id", s ? s->container_id : NULL);
	line_str(out, "image id", s ? s->image_id : NULL);
	buf_printf(out, "restarts %d\n", s ? s->restart_count : 0);
}

void sample_expect_pod(const K8s__Pod *pod, struct buf *out)
{
	const K8s__PodSpec *spec = pod->spec;
	const K8s__PodStatus *st = pod->status;
	size_t n = spec->n_containers + spec->n_init_containers + spec->n_ephemeral_containers;
	size_t left = VIEW_CONTAINERS_MAX;

	expect_meta(pod->metadata, n > VIEW_CONTAINERS_MAX, out);
	line_str(out, "node", spec->node_name);
	line_str(out, "phase", st->phase);
	line_str(out, "ip", st->pod_ip);
	line_str(out, "hostname", spec->hostname);
	buf_printf(out, "host network %d containers %zu\n", spec->host_network,
		   MIN(n, (size_t)VIEW_CONTAINERS_MAX));
	for (size_t i = 0; i < spec->n_containers && left; i++, left--)
		expect_container(CONTAINER_APP, spec->containers[i], st->container_statuses,
				 st->n_container_statuses, out);
	for (size_t i = 0; i < spec->n_init_containers && left; i++, left--)
		expect_container(CONTAINER_INIT, spec->init_containers[i],
				 st->init_container_statuses, st->n_init_container_statuses, out);
	for (size_t i = 0; i < spec->n_ephemeral_containers && left; i++, left--)
		expect_container(CONTAINER_EPHEMERAL, spec->ephemeral_containers[i]->common,
				 st->ephemeral_container_statuses,
				 st->n_ephemeral_container_statuses, out);
}

void sample_expect_endpoint_slice(const K8s__EndpointSlice *slice, struct buf *out)
{
	size_t n = 0;

	for (size_t i = 0; i < slice->n_endpoints; i++) {
		const K8s__ObjectReference *ref = slice->endpoints[i]->target_ref;

		n += ref && streq(ref->kind, "Pod");
	}
	expect_meta(slice->metadata, n > VIEW_ENDPOINTS_MAX, out);
	n = 0;
	for (size_t i = 0; i < slice->n_endpoints; i++) {
		const K8s__ObjectReference *ref = slice->endpoints[i]->target_ref;

		if (!ref || !streq(ref->kind, "Pod") || n++ >= VIEW_ENDPOINTS_MAX)
			continue;
		line_str(out, "target uid", ref->uid);
		line_str(out, "target name", ref->name);
	}
}

static void saw_pairs(struct buf *out, const struct slice_pair *pairs, size_t n)
{
	buf_printf(out, "pairs %zu\n", n);
	for (size_t i = 0; i < n; i++) {
		line_slice(out, "key", pairs[i].key);
		line_slice(out, "value", pairs[i].value);
		if (!pairs[i].value.p)
			buf_puts(out, "a value that is NULL\n");
	}
}

void sample_saw_meta(const struct meta_view *m, struct buf *out)
{
	line_slice(out, "name", m->name);
	line_slice(out, "ns", m->ns);
	line_slice(out, "uid", m->uid);
	line_slice(out, "rv", m->resource_version);
	buf_printf(out, "generation %lld created %lld deleting %d cut %d\n",
		   (long long)m->generation, (long long)m->created, m->deleting, m->cut);
	saw_pairs(out, m->labels, m->n_labels);
	saw_pairs(out, m->annotations, m->n_annotations);
	for (size_t i = 0; i < m->n_owners; i++) {
		line_slice(out, "owner kind", m->owners[i].kind);
		line_slice(out, "owner name", m->owners[i].name);
		line_slice(out, "owner uid", m->owners[i].uid);
		buf_printf(out, "controller %d\n", m->owners[i].controller);
	}
}

void sample_saw_pod(const struct pod_view *v, struct buf *out)
{
	sample_saw_meta(&v->meta, out);
	line_slice(out, "node", v->node_name);
	line_slice(out, "phase", v->phase);
	line_slice(out, "ip", v->pod_ip);
	line_slice(out, "hostname", v->hostname);
	buf_printf(out, "host network %d containers %zu\n", v->host_network, v->n_containers);
	for (size_t i = 0; i < v->n_containers; i++) {
		buf_printf(out, "container %d\n", v->containers[i].type);
		line_slice(out, "name", v->containers[i].name);
		line_slice(out, "image", v->containers[i].image);
		line_slice(out, "id", v->containers[i].id);
		line_slice(out, "image id", v->containers[i].image_id);
		buf_printf(out, "restarts %u\n", v->containers[i].restart_count);
	}
}

void sample_saw_endpoint_slice(const struct endpoint_slice_view *v, struct buf *out)
{
	sample_saw_meta(&v->meta, out);
	for (size_t i = 0; i < v->n_pods; i++) {
		line_slice(out, "target uid", v->pod_uids[i]);
		line_slice(out, "target name", v->pod_names[i]);
	}
}
