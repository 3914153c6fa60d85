/* SPDX-License-Identifier: Apache-2.0 */
/* Random objects as protobuf-c messages and their bytes; see the header. */
#include "sample.h"

#include <time.h>

#include <cjson/cJSON.h>

uint32_t sample_below(struct sample_random *r, uint32_t n)
{
	r->state += 0x9e3779b97f4a7c15ULL;
	return n ? (uint32_t)(mix64(r->state) % n) : 0;
}

static void *zalloc(size_t n)
{
	void *p = calloc(1, n ? n : 1);

	if (!p)
		abort();
	return p;
}

#define NEW(type, init)                                                                            \
	({                                                                                         \
		K8s__##type *new_ = zalloc(sizeof(*new_));                                         \
		k8s__##init##__init(new_);                                                         \
		new_;                                                                              \
	})
#define LIST(field, count) (field = zalloc(((count) + 1) * sizeof(*(field))))
#define SET(m, f, v)	   ((m)->has_##f = true, (m)->f = (v))

/* Plain text most of the time; otherwise what JSON must escape, or more than ASCII, or nothing. */
static char *text(struct sample_random *r, const char *stem)
{
	static const char *const odd[] = {
	    "",
	    "{\"kubectl\": \"<last> & \\\\applied\"}\n",
	    "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\xa5 \xe2\x80\xa8",
	    "\"",
	    "\\",
	    "a\tb\x01\x1f\x7f\b\f\r/",
	    "]}],{[",
	    "\\u0041\\",
	};
	char s[128];

	if (sample_below(r, 4) == 0)
		return strdup(odd[sample_below(r, ARRAY_SIZE(odd))]);
	snprintf(s, sizeof(s), "%s-%u", stem, sample_below(r, 1000000));
	return strdup(s);
}

static char *plain(struct sample_random *r, const char *stem)
{
	char s[128];

	snprintf(s, sizeof(s), "%s-%u", stem, sample_below(r, 1000000));
	return strdup(s);
}

static K8s__Pair **pairs(struct sample_random *r, size_t n, bool odd)
{
	K8s__Pair **list = zalloc((n + 1) * sizeof(*list));

	for (size_t i = 0; i < n; i++) {
		char key[64];

		snprintf(key, sizeof(key), "example.com/key-%zu", i);
		list[i] = NEW(Pair, pair);
		list[i]->key = strdup(key);
		list[i]->value = odd ? text(r, "value") : plain(r, "value");
	}
	return list;
}

static K8s__Time *now(struct sample_random *r)
{
	K8s__Time *t = NEW(Time, time);

	SET(t, seconds, (int64_t)sample_below(r, UINT32_MAX) - 100000000);
	SET(t, nanos, 0);
	return t;
}

static K8s__ObjectMeta *meta(struct sample_random *r)
{
	K8s__ObjectMeta *m = NEW(ObjectMeta, object_meta);
	/* Now and then more than a view holds. */
	uint32_t many = sample_below(r, 40) == 0 ? VIEW_PAIRS_MAX + 3 : sample_below(r, 12);

	m->name = plain(r, "web");
	m->generate_name = strdup("");
	m->namespace_ = sample_below(r, 8) ? plain(r, "shop") : strdup("");
	m->uid = plain(r, "7c1c8a63-9e36-4d3a-a6b1");
	m->resource_version = plain(r, "rv");
	SET(m, generation, (int64_t)sample_below(r, 100));
	m->creation_timestamp = sample_below(r, 10) ? now(r) : NEW(Time, time);
	if (sample_below(r, 4) == 0)
		m->deletion_timestamp = now(r);
	m->n_labels = sample_below(r, 8);
	m->labels = pairs(r, m->n_labels, false);
	m->n_annotations = many;
	m->annotations = pairs(r, many, true);
	m->n_owner_references = sample_below(r, 30) == 0 ? VIEW_OWNERS_MAX + 2 : sample_below(r, 3);
	LIST(m->owner_references, m->n_owner_references);
	for (size_t i = 0; i < m->n_owner_references; i++) {
		K8s__OwnerReference *o = m->owner_references[i] =
		    NEW(OwnerReference, owner_reference);

		o->kind = strdup("ReplicaSet");
		o->name = plain(r, "web-5d4f8c7b9");
		o->uid = plain(r, "uid");
		o->api_version = strdup("apps/v1");
		if (sample_below(r, 3))
			SET(o, controller, sample_below(r, 2));
	}
	m->n_managed_fields = sample_below(r, 3);
	LIST(m->managed_fields, m->n_managed_fields);
	for (size_t i = 0; i < m->n_managed_fields; i++) {
		static const char fields[] =
		    "{\"f:metadata\":{\"k:{\\\"type\\\":\\\"]}\\\"}\":{}}}";
		K8s__ManagedFieldsEntry *e = m->managed_fields[i] =
		    NEW(ManagedFieldsEntry, managed_fields_entry);

		e->manager = strdup("kubelet");
		e->time = now(r);
		e->fields_v1 = NEW(FieldsV1, fields_v1);
		e->fields_v1->has_raw = true;
		e->fields_v1->raw.len = sizeof(fields) - 1;
		e->fields_v1->raw.data = (uint8_t *)strdup(fields);
	}
	return m;
}

static K8s__Container *container(struct sample_random *r, const char *stem, size_t i)
{
	K8s__Container *c = NEW(Container, container);
	char name[64];

	snprintf(name, sizeof(name), "%s-%zu", stem, i);
	c->name = strdup(name);
	c->image = text(r, "registry.example.com/team/web:v1");
	c->n_env = sample_below(r, 4);
	LIST(c->env, c->n_env);
	for (size_t k = 0; k < c->n_env; k++) {
		c->env[k] = NEW(EnvVar, env_var);
		c->env[k]->name = plain(r, "NAME");
		c->env[k]->value = text(r, "value");
	}
	if (sample_below(r, 4) == 0)
		c->restart_policy = strdup("Always");
	return c;
}

static K8s__ContainerStatus *container_status(struct sample_random *r, const char *name)
{
	K8s__ContainerStatus *s = NEW(ContainerStatus, container_status);

	s->name = strdup(name);
	SET(s, ready, true);
	SET(s, restart_count, (int32_t)sample_below(r, 1000));
	s->image = strdup("the runtime's name of it");
	s->image_id = text(r, "registry.example.com/team/web@sha256:00");
	s->container_id =
	    sample_below(r, 5) ? plain(r, "containerd://0123456789abcdef") : strdup("");
	return s;
}

/* Statuses of most of N containers, in another order than theirs, and one of nobody. */
static K8s__ContainerStatus **statuses(struct sample_random *r, K8s__Container **of, size_t n,
				       size_t *ret_n)
{
	K8s__ContainerStatus **list = zalloc((n + 2) * sizeof(*list));
	size_t k = 0;

	for (size_t i = n; i-- > 0;) {
		if (sample_below(r, 5))
			list[k++] = container_status(r, of[i]->name);
	}
	if (sample_below(r, 3) == 0)
		list[k++] = container_status(r, "nobody");
	*ret_n = k;
	return list;
}

static void containers(struct sample_random *r, K8s__PodSpec *spec, K8s__PodStatus *status)
{
	K8s__Container *common[4];
	uint32_t few;

	spec->n_containers =
	    sample_below(r, 30) == 0 ? VIEW_CONTAINERS_MAX + 2 : 1 + sample_below(r, 4);
	LIST(spec->containers, spec->n_containers);
	for (size_t i = 0; i < spec->n_containers; i++)
		spec->containers[i] = container(r, "app", i);
	/* Which are cut depends on the order of the bytes: only one type then. */
	few = spec->n_containers < VIEW_CONTAINERS_MAX ? 3 : 1;
	spec->n_init_containers = sample_below(r, few);
	LIST(spec->init_containers, spec->n_init_containers);
	for (size_t i = 0; i < spec->n_init_containers; i++) /* the name of an app container too */
		spec->init_containers[i] = container(r, sample_below(r, 2) ? "init" : "app", i);
	spec->n_ephemeral_containers = sample_below(r, few);
	LIST(spec->ephemeral_containers, spec->n_ephemeral_containers);
	for (size_t i = 0; i < spec->n_ephemeral_containers; i++) {
		spec->ephemeral_containers[i] = NEW(EphemeralContainer, ephemeral_container);
		common[i] = spec->ephemeral_containers[i]->common = container(r, "debug", i);
	}
	if (sample_below(r, 6) == 0)
		return; /* the kubelet has not told */
	status->container_statuses =
	    statuses(r, spec->containers, spec->n_containers, &status->n_container_statuses);
	status->init_container_statuses = statuses(
	    r, spec->init_containers, spec->n_init_containers, &status->n_init_container_statuses);
	status->ephemeral_container_statuses = statuses(r, common, spec->n_ephemeral_containers,
							&status->n_ephemeral_container_statuses);
}

K8s__Pod *sample_pod(struct sample_random *r)
{
	K8s__Pod *pod = NEW(Pod, pod);

	pod->metadata = meta(r);
	pod->spec = NEW(PodSpec, pod_spec);
	pod->status = NEW(PodStatus, pod_status);
	pod->spec->restart_policy = strdup("Always");
	SET(pod->spec, termination_grace_period_seconds, -1);
	pod->spec->node_name = sample_below(r, 5) ? plain(r, "node") : strdup("");
	SET(pod->spec, host_network, sample_below(r, 2));
	pod->spec->hostname = sample_below(r, 2) ? plain(r, "host") : NULL;
	pod->status->phase = strdup(sample_below(r, 2) ? "Running" : "Pending");
	pod->status->pod_ip = sample_below(r, 4) ? strdup("10.1.2.3") : strdup("");
	containers(r, pod->spec, pod->status);
	return pod;
}

K8s__EndpointSlice *sample_endpoint_slice(struct sample_random *r)
{
	K8s__EndpointSlice *s = NEW(EndpointSlice, endpoint_slice);

	s->metadata = meta(r);
	s->address_type = strdup("IPv4");
	s->n_endpoints = sample_below(r, 20) == 0 ? VIEW_ENDPOINTS_MAX + 2 : sample_below(r, 10);
	LIST(s->endpoints, s->n_endpoints);
	for (size_t i = 0; i < s->n_endpoints; i++) {
		K8s__Endpoint *e = s->endpoints[i] = NEW(Endpoint, endpoint);

		e->hostname = plain(r, "host");
		if (sample_below(r, 5) == 0)
			continue;
		e->target_ref = NEW(ObjectReference, object_reference);
		e->target_ref->kind = strdup(sample_below(r, 6) ? "Pod" : "Node");
		e->target_ref->name = plain(r, "web");
		e->target_ref->uid = plain(r, "uid");
	}
	return s;
}

void sample_pack(const void *message, struct buf *out)
{
	uint8_t *p = buf_extend(out, protobuf_c_message_get_packed_size(message));

	if (!p)
		abort();
	protobuf_c_message_pack(message, p);
}

void sample_envelope(const char *kind, const void *raw, size_t len, struct buf *out)
{
	K8s__TypeMeta type = K8S__TYPE_META__INIT;
	K8s__Unknown u = K8S__UNKNOWN__INIT;

	type.api_version = (char *)"v1";
	type.kind = (char *)kind;
	u.type_meta = &type;
	u.has_raw = true;
	u.raw = (ProtobufCBinaryData){.data = (uint8_t *)raw, .len = len};
	u.content_encoding = u.content_type = (char *)"";
	buf_append(out, "k8s", 4);
	sample_pack(&u, out);
}

void sample_frame(const char *type, const char *kind, const void *raw, size_t len, struct buf *out)
{
	K8s__RawExtension object = K8S__RAW_EXTENSION__INIT;
	K8s__WatchEvent event = K8S__WATCH_EVENT__INIT;
	_cleanup_(buf_done) struct buf envelope;
	size_t n;

	buf_init(&envelope, 64 << 20);
	sample_envelope(kind, raw, len, &envelope);
	object.has_raw = true;
	object.raw = (ProtobufCBinaryData){.data = (uint8_t *)envelope.data, .len = envelope.len};
	event.type = (char *)type;
	event.object = &object;
	n = k8s__watch_event__get_packed_size(&event);
	buf_append(out, (uint8_t[]){n >> 24, n >> 16 & 0xff, n >> 8 & 0xff, n & 0xff}, 4);
	sample_pack(&event, out);
}
