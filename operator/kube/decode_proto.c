/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in Kubernetes' protobuf. Field numbers: k8s.io/api v0.37.2 core/v1/generated.proto and
 * discovery/v1/generated.proto, k8s.io/apimachinery v0.37.2 pkg/apis/meta/v1/generated.proto; those
 * of pods were read off the bytes of a 1.20 server too (docs/kubernetes-wire.md).
 *
 * Every function that takes a message's cursor returns it, so that the caller can pass on whether
 * it is bad. Spec and status of a pod are only remembered while its fields are read, so that
 * containers are read before their statuses whatever the order of the bytes. Pure functions, any
 * thread.
 */
#include "operator/kube/decode_internal.h"

#include "operator/kube/json_scan.h"
#include "operator/kube/wire.h"

static int result(const struct cursor *c)
{
	return c->bad ? -EBADMSG : 0;
}

/* Time{1 seconds 2 nanos}; the zero time is an empty message. */
static struct cursor read_time(struct cursor c, int64_t *seconds)
{
	struct wire_field f;

	*seconds = 0;
	while (wire_next(&c, &f)) {
		if (f.number == 1)
			*seconds = wire_int(&c, &f);
	}
	return c;
}

/* One entry of map<string, string>: 1 key 2 value. */
static struct cursor read_pair(struct cursor c, struct slice_pair *pair)
{
	struct wire_field f;

	*pair = (struct slice_pair){.key = {.p = ""}, .value = {.p = ""}};
	while (wire_next(&c, &f)) {
		if (f.number == 1)
			pair->key = wire_slice(&c, &f);
		else if (f.number == 2)
			pair->value = wire_slice(&c, &f);
	}
	return c;
}

static void add_pair(struct cursor *c, const struct wire_field *f, struct meta_view *m,
		     struct slice_pair *pairs, size_t *n)
{
	if (*n == VIEW_PAIRS_MAX)
		m->cut = true;
	else
		c->bad |= read_pair(wire_message(c, f), &pairs[(*n)++]).bad;
}

static void add_owner(struct cursor *c, const struct wire_field *f, struct meta_view *m)
{
	struct cursor sub = wire_message(c, f);
	struct owner_view o = {0};
	struct wire_field of;

	if (m->n_owners == VIEW_OWNERS_MAX) {
		m->cut = true;
		return;
	}
	while (wire_next(&sub, &of)) {
		switch (of.number) {
		case 1:
			o.kind = wire_text(&sub, &of);
			break;
		case 3:
			o.name = wire_text(&sub, &of);
			break;
		case 4:
			o.uid = wire_text(&sub, &of);
			break;
		case 6:
			o.controller = wire_int(&sub, &of) != 0;
			break;
		}
	}
	m->owners[m->n_owners++] = o;
	c->bad |= sub.bad;
}

static struct cursor read_meta(struct cursor c, struct meta_view *m)
{
	struct wire_field f;

	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 1:
			m->name = wire_text(&c, &f);
			break;
		case 3:
			m->ns = wire_text(&c, &f);
			break;
		case 5:
			m->uid = wire_text(&c, &f);
			break;
		case 6:
			m->resource_version = wire_text(&c, &f);
			break;
		case 7:
			m->generation = wire_int(&c, &f);
			break;
		case 8:
			c.bad |= read_time(wire_message(&c, &f), &m->created).bad;
			break;
		case 9:
			m->deleting = true;
			break;
		case 11:
			add_pair(&c, &f, m, m->labels, &m->n_labels);
			break;
		case 12:
			add_pair(&c, &f, m, m->annotations, &m->n_annotations);
			break;
		case 13:
			add_owner(&c, &f, m);
			break;
		}
	}
	return c;
}

/* ObjectMeta is field 1 of every object that has one. */
int proto_decode_meta(const struct kube_item *item, struct meta_view *ret)
{
	struct cursor c = cursor_of(item->bytes, item->len);
	struct wire_field f;

	view_init_meta(ret);
	while (wire_next(&c, &f)) {
		if (f.number == 1)
			c.bad |= read_meta(wire_message(&c, &f), ret).bad;
	}
	return result(&c);
}

static struct cursor read_container(struct cursor c, enum container_type type, struct pod_view *v)
{
	struct slice name = {0}, image = {0};
	struct wire_field f;

	while (wire_next(&c, &f)) {
		if (f.number == 1)
			name = wire_text(&c, &f);
		else if (f.number == 2)
			image = wire_text(&c, &f);
	}
	view_add_container(v, type, name, image);
	return c;
}

/* EphemeralContainer{1 common, laid out as Container}. */
static struct cursor read_ephemeral(struct cursor c, struct pod_view *v)
{
	struct wire_field f;

	while (wire_next(&c, &f)) {
		if (f.number == 1)
			c.bad |= read_container(wire_message(&c, &f), CONTAINER_EPHEMERAL, v).bad;
	}
	return c;
}

static struct cursor read_spec(struct cursor c, struct pod_view *v)
{
	struct wire_field f;

	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 2:
			c.bad |= read_container(wire_message(&c, &f), CONTAINER_APP, v).bad;
			break;
		case 10:
			v->node_name = wire_text(&c, &f);
			break;
		case 11:
			v->host_network = wire_int(&c, &f) != 0;
			break;
		case 16:
			v->hostname = wire_text(&c, &f);
			break;
		case 20:
			c.bad |= read_container(wire_message(&c, &f), CONTAINER_INIT, v).bad;
			break;
		case 34:
			c.bad |= read_ephemeral(wire_message(&c, &f), v).bad;
			break;
		}
	}
	return c;
}

static struct cursor read_container_status(struct cursor c, enum container_type type,
					   struct pod_view *v)
{
	struct container_status s = {0};
	struct wire_field f;

	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 1:
			s.name = wire_text(&c, &f);
			break;
		case 5:
			s.restart_count = view_restart_count(wire_int(&c, &f));
			break;
		case 7:
			s.image_id = wire_text(&c, &f);
			break;
		case 8:
			s.id = wire_text(&c, &f);
			break;
		}
	}
	view_set_status(v, type, &s);
	return c;
}

static struct cursor read_pod_status(struct cursor c, struct pod_view *v)
{
	struct wire_field f;
	enum container_type type;

	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 1:
			v->phase = wire_text(&c, &f);
			break;
		case 6:
			v->pod_ip = wire_text(&c, &f);
			break;
		case 8:
		case 10:
		case 13:
			type = f.number == 8	? CONTAINER_APP
			       : f.number == 10 ? CONTAINER_INIT
						: CONTAINER_EPHEMERAL;
			c.bad |= read_container_status(wire_message(&c, &f), type, v).bad;
			break;
		}
	}
	return c;
}

int proto_decode_pod(const struct kube_item *item, struct pod_view *ret)
{
	struct cursor c = cursor_of(item->bytes, item->len), spec = {0}, status = {0};
	struct wire_field f;

	view_init_pod(ret);
	while (wire_next(&c, &f)) {
		if (f.number == 1)
			c.bad |= read_meta(wire_message(&c, &f), &ret->meta).bad;
		else if (f.number == 2)
			spec = wire_message(&c, &f);
		else if (f.number == 3)
			status = wire_message(&c, &f);
	}
	c.bad |= read_spec(spec, ret).bad;
	c.bad |= read_pod_status(status, ret).bad;
	view_order_containers(ret);
	return result(&c);
}

/* ObjectReference{1 kind 3 name 4 uid}. */
static struct cursor read_target(struct cursor c, struct endpoint_slice_view *v)
{
	struct slice kind = {0}, name = {0}, uid = {0};
	struct wire_field f;

	while (wire_next(&c, &f)) {
		if (f.number == 1)
			kind = wire_text(&c, &f);
		else if (f.number == 3)
			name = wire_text(&c, &f);
		else if (f.number == 4)
			uid = wire_text(&c, &f);
	}
	if (SLICE_IS(kind, "Pod"))
		view_add_target(v, uid, name);
	return c;
}

/* EndpointSlice{1 metadata 2 endpoints}, Endpoint{4 targetRef}. */
int proto_decode_endpoint_slice(const struct kube_item *item, struct endpoint_slice_view *ret)
{
	struct cursor c = cursor_of(item->bytes, item->len), endpoint;
	struct wire_field f;

	view_init_meta(&ret->meta);
	ret->n_pods = 0;
	while (wire_next(&c, &f)) {
		if (f.number == 1) {
			c.bad |= read_meta(wire_message(&c, &f), &ret->meta).bad;
		} else if (f.number == 2) {
			endpoint = wire_message(&c, &f);
			while (wire_next(&endpoint, &f)) {
				if (f.number == 4)
					endpoint.bad |=
					    read_target(wire_message(&endpoint, &f), ret).bad;
			}
			c.bad |= endpoint.bad;
		}
	}
	return result(&c);
}

/* Status{1 metadata 2 status 3 message 4 reason 5 details 6 code}. */
int proto_decode_status(const struct kube_item *item, struct status_view *ret)
{
	struct cursor c = cursor_of(item->bytes, item->len);
	struct wire_field f;

	while (wire_next(&c, &f)) {
		switch (f.number) {
		case 2:
			ret->status = wire_text(&c, &f);
			break;
		case 3:
			ret->message = wire_text(&c, &f);
			break;
		case 4:
			ret->reason = wire_text(&c, &f);
			break;
		case 6:
			ret->code = (int)wire_int(&c, &f);
			break;
		}
	}
	return result(&c);
}

int proto_decode_bookmark(const struct kube_item *item, struct slice *ret_rv, bool *ret_end)
{
	struct cursor c = cursor_of(item->bytes, item->len), meta;
	struct slice_pair pair;
	struct wire_field f;

	while (wire_next(&c, &f)) {
		if (f.number != 1)
			continue;
		meta = wire_message(&c, &f);
		while (wire_next(&meta, &f)) {
			if (f.number == 6) {
				*ret_rv = wire_text(&meta, &f);
			} else if (f.number == 12) {
				meta.bad |= read_pair(wire_message(&meta, &f), &pair).bad;
				if (SLICE_IS(pair.key, KUBE_INITIAL_EVENTS_END))
					*ret_end = SLICE_IS(pair.value, "true");
			}
		}
		c.bad |= meta.bad;
	}
	return result(&c);
}
