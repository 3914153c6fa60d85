/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in JSON, by the field names of the API's types; the view is the same as from
 * decode_proto.c. A status that comes before its spec is remembered and read last. Pure functions,
 * any thread.
 */
#include "operator/kube/decode_internal.h"

#include "operator/kube/json_scan.h"

static int64_t digits(struct cursor *c, unsigned int n)
{
	const uint8_t *p = cursor_bytes(c, n);
	int64_t v = 0;

	for (unsigned int i = 0; p && i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			c->bad = true;
		v = v * 10 + (p[i] - '0');
	}
	return c->bad ? 0 : v;
}

/* Days from 1970-01-01 in the proleptic Gregorian calendar: whole eras of 400 years from March. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t in_era = y % 400, from_march = (month + 9) % 12;

	return y / 400 * 146097 + in_era * 365 + in_era / 4 - in_era / 100 +
	       (153 * from_march + 2) / 5 + day - 1 - 719468;
}

/* RFC 3339 in UTC, as metav1.Time is written: "2026-11-21T10:00:00Z"; null is 0. */
static int64_t read_time(struct json *j)
{
	struct slice s = json_text(j);
	struct cursor c = cursor_of(s.p, s.n);
	int64_t year, month, day, hour, minute, second;

	if (s.n == 0)
		return 0;
	year = digits(&c, 4);
	c.bad |= cursor_u8(&c) != '-';
	month = digits(&c, 2);
	c.bad |= cursor_u8(&c) != '-';
	day = digits(&c, 2);
	c.bad |= cursor_u8(&c) != 'T';
	hour = digits(&c, 2);
	c.bad |= cursor_u8(&c) != ':';
	minute = digits(&c, 2);
	c.bad |= cursor_u8(&c) != ':';
	second = digits(&c, 2);
	c.bad |= cursor_u8(&c) != 'Z' || cursor_left(&c);
	if (c.bad || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 ||
	    second > 60) {
		j->c.bad = true;
		return 0;
	}
	return days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
}

static void read_pairs(struct json *j, struct meta_view *m, struct slice_pair *pairs, size_t *n)
{
	struct slice key, value;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (*n == VIEW_PAIRS_MAX) {
			m->cut = true;
			json_skip(j);
			continue;
		}
		value = json_string(j);
		if (!value.p)
			value.p = "";
		pairs[(*n)++] = (struct slice_pair){.key = key, .value = value};
	}
}

static void read_owner(struct json *j, struct owner_view *o)
{
	struct slice key;

	*o = (struct owner_view){0};
	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "kind"))
			o->kind = json_text(j);
		else if (SLICE_IS(key, "name"))
			o->name = json_text(j);
		else if (SLICE_IS(key, "uid"))
			o->uid = json_text(j);
		else if (SLICE_IS(key, "controller"))
			o->controller = json_bool(j);
		else
			json_skip(j);
	}
}

static void read_owners(struct json *j, struct meta_view *m)
{
	if (!json_enter(j, JSON_ARRAY))
		return;
	while (json_element(j)) {
		if (m->n_owners == VIEW_OWNERS_MAX) {
			m->cut = true;
			json_skip(j);
		} else {
			read_owner(j, &m->owners[m->n_owners++]);
		}
	}
}

static void read_meta_member(struct json *j, struct slice key, struct meta_view *m)
{
	if (SLICE_IS(key, "name")) {
		m->name = json_text(j);
	} else if (SLICE_IS(key, "namespace")) {
		m->ns = json_text(j);
	} else if (SLICE_IS(key, "uid")) {
		m->uid = json_text(j);
	} else if (SLICE_IS(key, "resourceVersion")) {
		m->resource_version = json_text(j);
	} else if (SLICE_IS(key, "generation")) {
		m->generation = json_int(j);
	} else if (SLICE_IS(key, "creationTimestamp")) {
		m->created = read_time(j);
	} else if (SLICE_IS(key, "deletionTimestamp")) {
		m->deleting = json_peek(j) != JSON_NULL;
		json_skip(j);
	} else if (SLICE_IS(key, "labels")) {
		read_pairs(j, m, m->labels, &m->n_labels);
	} else if (SLICE_IS(key, "annotations")) {
		read_pairs(j, m, m->annotations, &m->n_annotations);
	} else if (SLICE_IS(key, "ownerReferences")) {
		read_owners(j, m);
	} else {
		json_skip(j);
	}
}

static void read_meta(struct json *j, struct meta_view *m)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key))
		read_meta_member(j, key, m);
}

/* Enters the item's outer object; bad when it is null. */
static struct json open_item(const struct kube_item *item)
{
	struct json j = json_of(item->bytes, item->len, item->scratch);

	if (!json_enter(&j, JSON_OBJECT))
		j.c.bad = true;
	return j;
}

int json_decode_meta(const struct kube_item *item, struct meta_view *ret)
{
	struct json j = open_item(item);
	struct slice key;

	view_init_meta(ret);
	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "metadata"))
			read_meta(&j, ret);
		else
			json_skip(&j);
	}
	return json_error(&j);
}

static void read_container(struct json *j, enum container_type type, struct pod_view *v)
{
	struct slice key, name = {0}, image = {0};

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "name"))
			name = json_text(j);
		else if (SLICE_IS(key, "image"))
			image = json_text(j);
		else
			json_skip(j);
	}
	view_add_container(v, type, name, image);
}

static void read_container_status(struct json *j, enum container_type type, struct pod_view *v)
{
	struct container_status s = {0};
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "name"))
			s.name = json_text(j);
		else if (SLICE_IS(key, "restartCount"))
			s.restart_count = view_restart_count(json_int(j));
		else if (SLICE_IS(key, "imageID"))
			s.image_id = json_text(j);
		else if (SLICE_IS(key, "containerID"))
			s.id = json_text(j);
		else
			json_skip(j);
	}
	view_set_status(v, type, &s);
}

static void each(struct json *j, enum container_type type, struct pod_view *v,
		 void (*read)(struct json *, enum container_type, struct pod_view *))
{
	if (!json_enter(j, JSON_ARRAY))
		return;
	while (json_element(j))
		read(j, type, v);
}

static void read_spec(struct json *j, struct pod_view *v)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "containers"))
			each(j, CONTAINER_APP, v, read_container);
		else if (SLICE_IS(key, "initContainers"))
			each(j, CONTAINER_INIT, v, read_container);
		else if (SLICE_IS(key, "ephemeralContainers"))
			each(j, CONTAINER_EPHEMERAL, v, read_container);
		else if (SLICE_IS(key, "nodeName"))
			v->node_name = json_text(j);
		else if (SLICE_IS(key, "hostname"))
			v->hostname = json_text(j);
		else if (SLICE_IS(key, "hostNetwork"))
			v->host_network = json_bool(j);
		else
			json_skip(j);
	}
}

static void read_pod_status(struct json *j, struct pod_view *v)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "containerStatuses"))
			each(j, CONTAINER_APP, v, read_container_status);
		else if (SLICE_IS(key, "initContainerStatuses"))
			each(j, CONTAINER_INIT, v, read_container_status);
		else if (SLICE_IS(key, "ephemeralContainerStatuses"))
			each(j, CONTAINER_EPHEMERAL, v, read_container_status);
		else if (SLICE_IS(key, "phase"))
			v->phase = json_text(j);
		else if (SLICE_IS(key, "podIP"))
			v->pod_ip = json_text(j);
		else
			json_skip(j);
	}
}

int json_decode_pod(const struct kube_item *item, struct pod_view *ret)
{
	struct json j = open_item(item), late;
	size_t status_at = 0;
	bool spec_seen = false;
	struct slice key;

	view_init_pod(ret);
	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "metadata")) {
			read_meta(&j, &ret->meta);
		} else if (SLICE_IS(key, "spec")) {
			read_spec(&j, ret);
			spec_seen = true;
		} else if (SLICE_IS(key, "status") && spec_seen) {
			read_pod_status(&j, ret);
		} else {
			if (SLICE_IS(key, "status"))
				status_at = j.c.pos;
			json_skip(&j);
		}
	}
	if (status_at && !j.c.bad) {
		late = j;
		cursor_seek(&late.c, status_at);
		read_pod_status(&late, ret);
		j.c.bad = late.c.bad;
		j.no_scratch = late.no_scratch;
	}
	view_order_containers(ret);
	return json_error(&j);
}

static void read_target(struct json *j, struct endpoint_slice_view *v)
{
	struct slice key, kind = {0}, name = {0}, uid = {0};

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "kind"))
			kind = json_text(j);
		else if (SLICE_IS(key, "name"))
			name = json_text(j);
		else if (SLICE_IS(key, "uid"))
			uid = json_text(j);
		else
			json_skip(j);
	}
	if (SLICE_IS(kind, "Pod"))
		view_add_target(v, uid, name);
}

static void read_endpoint(struct json *j, struct endpoint_slice_view *v)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "targetRef"))
			read_target(j, v);
		else
			json_skip(j);
	}
}

int json_decode_endpoint_slice(const struct kube_item *item, struct endpoint_slice_view *ret)
{
	struct json j = open_item(item);
	struct slice key;

	view_init_meta(&ret->meta);
	ret->n_pods = 0;
	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "metadata")) {
			read_meta(&j, &ret->meta);
		} else if (SLICE_IS(key, "endpoints")) {
			if (!json_enter(&j, JSON_ARRAY))
				continue;
			while (json_element(&j))
				read_endpoint(&j, ret);
		} else {
			json_skip(&j);
		}
	}
	return json_error(&j);
}

int json_decode_status(const struct kube_item *item, struct status_view *ret)
{
	struct json j = open_item(item);
	struct slice key;

	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "status"))
			ret->status = json_text(&j);
		else if (SLICE_IS(key, "message"))
			ret->message = json_text(&j);
		else if (SLICE_IS(key, "reason"))
			ret->reason = json_text(&j);
		else if (SLICE_IS(key, "code"))
			ret->code = (int)json_int(&j);
		else
			json_skip(&j);
	}
	return json_error(&j);
}

static void read_bookmark_meta(struct json *j, struct slice *rv, bool *end)
{
	struct slice key;

	if (!json_enter(j, JSON_OBJECT))
		return;
	while (json_key(j, &key)) {
		if (SLICE_IS(key, "resourceVersion")) {
			*rv = json_text(j);
		} else if (SLICE_IS(key, "annotations")) {
			if (!json_enter(j, JSON_OBJECT))
				continue;
			while (json_key(j, &key)) {
				struct slice value = json_string(j);

				if (SLICE_IS(key, KUBE_INITIAL_EVENTS_END))
					*end = SLICE_IS(value, "true");
			}
		} else {
			json_skip(j);
		}
	}
}

int json_decode_bookmark(const struct kube_item *item, struct slice *ret_rv, bool *ret_end)
{
	struct json j = open_item(item);
	struct slice key;

	while (json_key(&j, &key)) {
		if (SLICE_IS(key, "metadata"))
			read_bookmark_meta(&j, ret_rv, ret_end);
		else
			json_skip(&j);
	}
	return json_error(&j);
}
