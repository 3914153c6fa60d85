// SPDX-License-Identifier: Apache-2.0
/*
 * From a decoded pod to its record and back. A record is first written to store->draft, where it
 * can be compared with the one that the store has: handles are equal exactly when the strings are,
 * so two parts of memory decide whether anything changed.
 *
 * The names and images of a pod's containers are one string of handles, shared by all pods of a
 * workload. That string holds one reference on each of its handles, taken when it is made and given
 * back before its last reference goes. Loop thread only.
 */
#include "operator/cache/pod_store_internal.h"

#include <arpa/inet.h>

static const char mirror_key[] = "kubernetes.io/config.mirror";
static const uint8_t no_id[32];

struct pod_tail pod_tail(const struct pod *pod)
{
	struct pod_tail t = {.ids = pod->rest};

	t.mirror = t.ids + 32 * (size_t)pod->n_ids;
	t.restarts = t.mirror + (pod->flags & POD_MIRROR ? 16 : 0);
	t.name = (const char *)pod->rest + pod->tail - pod->name_len - 1;
	if (!(pod->flags & POD_HOSTNAME_IS_NAME))
		t.name -= pod->hostname_len + 1;
	t.hostname = pod->flags & POD_HOSTNAME_IS_NAME ? t.name : t.name + pod->name_len + 1;
	t.ip = (const uint8_t *)t.name - pod->ip_len;
	t.states = t.ip - pod->n_containers;
	return t;
}

size_t pod_id_container(const struct pod *pod, size_t k, bool *ret_current)
{
	const uint8_t *states = pod_tail(pod).states;
	size_t at = 0;

	for (size_t i = 0; i < pod->n_containers; i++) {
		for (unsigned int bit = STATE_ID; bit <= STATE_PREVIOUS; bit <<= 1) {
			if (!(states[i] & bit))
				continue;
			if (at++ == k) {
				*ret_current = bit == STATE_ID;
				return i;
			}
		}
	}
	*ret_current = false;
	return 0;
}

/* Name, images and type of container I; nothing when the namespace had no room for them. */
static struct container_static static_of(const struct pod_store *store, const struct pod *pod,
					 size_t i)
{
	const char *statics = intern_text(store->intern, pod->containers, NULL);
	struct container_static s = {0};

	if (pod->containers)
		memcpy(&s, statics + i * sizeof(s), sizeof(s));
	return s;
}

/* The containers of POD with everything that is known of them. */
static size_t unpack_containers(const struct pod_store *store, const struct pod *pod,
				struct pod_container *ret)
{
	struct pod_tail t = pod_tail(pod);
	struct container_static s;

	for (size_t i = 0; i < pod->n_containers; i++) {
		s = static_of(store, pod, i);
		ret[i] = (struct pod_container){.name = s.name,
						.image = s.image,
						.image_id = s.image_id,
						.type = (uint8_t)s.type};
		if (t.states[i] & STATE_ID) {
			memcpy(ret[i].id, t.ids, 32);
			t.ids += 32;
		}
		if (t.states[i] & STATE_PREVIOUS) {
			memcpy(ret[i].previous_id, t.ids, 32);
			t.ids += 32;
		}
		if (t.states[i] & STATE_RESTARTS) {
			memcpy(&ret[i].restart_count, t.restarts, 4);
			t.restarts += 4;
		}
	}
	return pod->n_containers;
}

/* Not inet_ntop() for IPv4: it uses printf, and took two fifths of the time of a policy change. */
static void ip_text(const uint8_t *ip, size_t len, char ret[static 46])
{
	char *p = ret;

	if (len == 16)
		(void)inet_ntop(AF_INET6, ip, ret, 46);
	for (size_t i = 0; i < len && len == 4; i++) {
		if (i)
			*p++ = '.';
		if (ip[i] >= 100)
			*p++ = (char)('0' + ip[i] / 100);
		if (ip[i] >= 10)
			*p++ = (char)('0' + ip[i] / 10 % 10);
		*p++ = (char)('0' + ip[i] % 10);
	}
	if (len != 16)
		*p = 0;
}

void pod_unpack_subject(const struct pod_store *store, const struct pod *pod, struct pod_info *ret)
{
	const struct intern *in = store->intern;

	ret->name = pod_tail(pod).name;
	ret->ns = intern_text(in, pod->ns, NULL);
	ret->node = intern_text(in, pod->node, NULL);
	memcpy(ret->uid, pod->uid, sizeof(ret->uid));
	ret->host_network = pod->flags & POD_HOST_NETWORK;
	ret->deleting = pod->flags & POD_DELETING;
	ret->terminated = pod->flags & POD_TERMINATED;
	ret->cut = pod->flags & POD_CUT;
	ret->n_labels = kept_pairs_unpack(in, pod->labels, ret->labels, ARRAY_SIZE(ret->labels));
	ret->n_annotations =
	    kept_pairs_unpack(in, pod->annotations, ret->annotations, ARRAY_SIZE(ret->annotations));
}

void pod_unpack(const struct pod_store *store, const struct pod *pod, struct pod_info *ret)
{
	const struct intern *in = store->intern;
	struct pod_tail t = pod_tail(pod);
	struct kept_owner_fields owner;

	pod_unpack_subject(store, pod, ret);
	kept_owner_unpack(in, pod->owner, &owner);
	ret->hostname = t.hostname;
	ip_text(t.ip, pod->ip_len, ret->ip);
	if (pod->uid_text)
		(void)snprintf(ret->uid_text, sizeof(ret->uid_text), "%s",
			       intern_text(in, pod->uid_text, NULL));
	else
		kept_uid_text(pod->uid, ret->uid_text);
	ret->owner_kind = owner.kind;
	ret->owner_name = owner.name;
	memcpy(ret->owner_uid, owner.uid, sizeof(ret->owner_uid));
	memcpy(ret->owner_uid_text, owner.uid_text, sizeof(ret->owner_uid_text));
	ret->created = pod->created;
	ret->n_containers = unpack_containers(store, pod, ret->containers);
}

/* "runtime://64 hex digits". */
static void parse_container_id(struct slice s, uint8_t ret[32])
{
	memset(ret, 0, 32);
	if (s.n < 64 || (s.n > 64 && s.p[s.n - 65] != '/') || !kept_hex(s.p + s.n - 64, 32, ret))
		memset(ret, 0, 32);
}

/*
 * Interns an optional value. A value that is no text of at most MAX bytes is left out and counted.
 */
static int intern_value(struct pod_store *store, struct slice s, size_t max, interned *ret)
{
	*ret = 0;
	if (!s.n)
		return 0;
	if (!kept_is_text(s, max)) {
		store->stats.cut_values++;
		return 0;
	}
	return intern_get(store->intern, s.p, s.n, ret);
}

static void release_containers(struct pod_store *store, interned containers)
{
	size_t len;
	const char *statics = intern_text(store->intern, containers, &len);
	struct container_static s;

	for (size_t i = 0; intern_refs(store->intern, containers) == 1 && i < len; i += sizeof(s)) {
		memcpy(&s, statics + i, sizeof(s));
		intern_unref(store->intern, s.name);
		intern_unref(store->intern, s.image);
		intern_unref(store->intern, s.image_id);
		store->last_containers = 0; /* it may be this string */
	}
	intern_unref(store->intern, containers);
}

static void release_statics(struct pod_store *store, const struct container_static *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		intern_unref(store->intern, s[i].name);
		intern_unref(store->intern, s[i].image);
		intern_unref(store->intern, s[i].image_id);
	}
}

static bool value_is(const struct pod_store *store, interned s, struct slice v)
{
	size_t len;
	const char *p = intern_text(store->intern, s, &len);

	return len == v.n && (!len || !memcmp(p, v.p, len));
}

/*
 * True when VIEW has the containers of the last draft: lists have the pods of a workload in a row.
 */
static bool same_as_last(const struct pod_store *store, const struct pod_view *view, size_t n)
{
	size_t len;
	const char *statics = intern_text(store->intern, store->last_containers, &len);
	struct container_static s;

	if (len != n * sizeof(s))
		return false;
	for (size_t i = 0; i < n; i++) {
		const struct container_view *v = &view->containers[i];

		memcpy(&s, statics + i * sizeof(s), sizeof(s));
		if (s.type != (uint32_t)v->type || !value_is(store, s.name, v->name) ||
		    !value_is(store, s.image, v->image) ||
		    !value_is(store, s.image_id, v->image_id))
			return false;
	}
	return true;
}

static int draft_containers(struct pod_store *store, const struct pod_view *view, interned *ret)
{
	struct container_static s[POD_CONTAINERS_MAX];
	size_t n = MIN(view->n_containers, (size_t)POD_CONTAINERS_MAX);
	interned set = 0;
	int r = 0;

	*ret = 0;
	if (!n)
		return 0;
	if (same_as_last(store, view, n)) {
		*ret = intern_ref(store->intern, store->last_containers);
		return 0;
	}
	memset(s, 0, n * sizeof(*s));
	for (size_t i = 0; i < n && !r; i++) {
		const struct container_view *v = &view->containers[i];

		s[i].type = v->type;
		r = intern_value(store, v->name, KEPT_NAME_MAX, &s[i].name);
		if (!r)
			r = intern_value(store, v->image, POD_IMAGE_MAX, &s[i].image);
		if (!r)
			r = intern_value(store, v->image_id, POD_IMAGE_MAX, &s[i].image_id);
	}
	if (!r)
		r = intern_get(store->intern, s, n * sizeof(*s), &set);
	if (r || intern_refs(store->intern, set) > 1)
		release_statics(store, s, n);
	if (r)
		return r;
	*ret = store->last_containers = set;
	return 0;
}

/* A container whose name was not kept is the one at HINT. */
static const struct pod_container *same_container(const struct pod_container *old, size_t n_old,
						  size_t hint, interned name, unsigned int type)
{
	if (hint < n_old && (!old[hint].name || (old[hint].name == name && old[hint].type == type)))
		return &old[hint];
	for (size_t i = 0; i < n_old; i++)
		if (old[i].name == name && old[i].type == type)
			return &old[i];
	return NULL;
}

/* The id that the container had before ID, if the store saw it. */
static const uint8_t *previous_of(const struct pod_container *old, const uint8_t id[32])
{
	const uint8_t *previous;

	if (!old)
		return no_id;
	previous = !same_bytes(old->id, id, 32) && !same_bytes(old->id, no_id, 32)
		       ? old->id
		       : old->previous_id;
	return same_bytes(previous, id, 32) ? no_id : previous;
}

/* Ids, mirror hash, restart counts and states. Returns where they end. */
static uint8_t *draft_states(struct pod_store *store, const struct pod_view *view, struct pod *pod,
			     const struct pod *old, const uint8_t *mirror)
{
	struct pod_container before[POD_CONTAINERS_MAX];
	size_t n_before = old ? unpack_containers(store, old, before) : 0, n_restarts = 0;
	uint8_t states[POD_CONTAINERS_MAX], id[32], *out = pod->rest;
	uint32_t restarts[POD_CONTAINERS_MAX];
	struct container_static s;

	for (size_t i = 0; i < pod->n_containers; i++) {
		const struct container_view *v = &view->containers[i];
		const uint8_t *previous;

		s = static_of(store, pod, i);
		parse_container_id(v->id, id);
		previous = previous_of(same_container(before, n_before, i, s.name, s.type), id);
		states[i] = 0;
		if (!same_bytes(id, no_id, 32)) {
			states[i] |= STATE_ID;
			memcpy(out, id, 32);
			out += 32;
		}
		if (!same_bytes(previous, no_id, 32)) {
			states[i] |= STATE_PREVIOUS;
			memcpy(out, previous, 32);
			out += 32;
		}
		if (v->restart_count) {
			states[i] |= STATE_RESTARTS;
			restarts[n_restarts++] = v->restart_count;
		}
	}
	pod->n_ids = (uint8_t)((out - pod->rest) / 32);
	if (mirror) {
		memcpy(out, mirror, 16);
		out += 16;
	}
	memcpy(out, restarts, 4 * n_restarts);
	out += 4 * n_restarts;
	memcpy(out, states, pod->n_containers);
	return out + pod->n_containers;
}

static uint8_t *draft_ip(struct pod_store *store, struct slice ip, struct pod *pod, uint8_t *out)
{
	char text[46];

	if (!ip.n)
		return out;
	if (ip.n < sizeof(text) && !memchr(ip.p, 0, ip.n)) {
		memcpy(text, ip.p, ip.n);
		text[ip.n] = 0;
		if (inet_pton(AF_INET, text, out) == 1)
			pod->ip_len = 4;
		else if (inet_pton(AF_INET6, text, out) == 1)
			pod->ip_len = 16;
	}
	if (!pod->ip_len)
		store->stats.cut_values++;
	return out + pod->ip_len;
}

static bool slice_is(struct slice s, const char *text)
{
	return s.n == strlen(text) && !memcmp(s.p, text, s.n);
}

static uint8_t *draft_names(struct pod_store *store, const struct pod_view *view, struct pod *pod,
			    uint8_t *out)
{
	struct slice name = view->meta.name, hostname = view->hostname;

	pod->name_len = (uint8_t)name.n;
	memcpy(out, name.p, name.n);
	out += name.n;
	*out++ = 0;
	if (hostname.n && !kept_is_name(hostname)) {
		store->stats.cut_values++;
		hostname.n = 0;
	}
	pod->hostname_len = (uint8_t)hostname.n;
	if (hostname.n == name.n && !memcmp(hostname.p, name.p, name.n)) {
		pod->flags |= POD_HOSTNAME_IS_NAME;
		return out;
	}
	if (hostname.n)
		memcpy(out, hostname.p, hostname.n);
	out += hostname.n;
	*out++ = 0;
	return out;
}

/*
 * Sets the interned fields and the uid of POD. On failure the fields that are set hold references.
 */
static int draft_strings(struct pod_store *store, const struct pod_view *view, struct pod *pod)
{
	const struct meta_view *m = &view->meta;
	struct intern *in = store->intern;
	int r;

	r = intern_get(in, m->ns.p, m->ns.n, &pod->ns);
	if (r)
		return r;
	if (kept_is_name(view->node_name))
		r = intern_get(in, view->node_name.p, view->node_name.n, &pod->node);
	else if (view->node_name.n)
		store->stats.cut_values++;
	if (r)
		return r;
	r = kept_owner(in, &store->scratch, m->owners, m->n_owners, &pod->owner);
	if (r)
		return r;
	r = kept_pairs(in, &store->scratch, m->labels, m->n_labels, NULL, VIEW_PAIRS_MAX,
		       &store->stats.cut_values, &pod->labels);
	if (r)
		return r;
	r = kept_pairs(in, &store->scratch, m->annotations, m->n_annotations, &store->annotations,
		       ARRAY_SIZE(((struct pod_info *)NULL)->annotations), &store->stats.cut_values,
		       &pod->annotations);
	if (r)
		return r;
	if (!kept_uid(m->uid, pod->uid)) {
		r = intern_value(store, m->uid, KEPT_NAME_MAX, &pod->uid_text);
		if (r)
			return r;
	}
	return draft_containers(store, view, &pod->containers);
}

/* The config hash that a static pod's annotation has. */
static bool find_mirror(const struct meta_view *meta, uint8_t ret[16])
{
	for (size_t i = 0; i < meta->n_annotations; i++)
		if (slice_is(meta->annotations[i].key, mirror_key))
			return meta->annotations[i].value.n == 32 &&
			       kept_hex(meta->annotations[i].value.p, 16, ret);
	return false;
}

/*
 * The ids of containers stay: without them, samples of a container whose cgroup does not name the
 * pod would have the policy of processes outside of pods.
 */
static void drop_text(struct pod_store *store, struct pod *pod)
{
	intern_unref(store->intern, pod->labels);
	intern_unref(store->intern, pod->annotations);
	release_containers(store, pod->containers);
	pod->labels = pod->annotations = pod->containers = 0;
}

int pod_draft(struct pod_store *store, const struct pod_view *view, const struct pod *old,
	      struct pod **ret)
{
	struct pod *pod = (struct pod *)store->draft;
	bool cut = view->meta.cut, has_mirror;
	uint8_t mirror[16], *out;
	int r;

	memset(pod, 0, sizeof(*pod));
	r = draft_strings(store, view, pod);
	if (r) {
		pod_release_strings(store, pod);
		return r;
	}
	if (old && !same_bytes(old->uid, pod->uid, sizeof(pod->uid)))
		old = NULL;
	pod->n_containers = (uint8_t)MIN(view->n_containers, (size_t)POD_CONTAINERS_MAX);
	has_mirror = find_mirror(&view->meta, mirror);
	out = draft_states(store, view, pod, old, has_mirror ? mirror : NULL);
	if (!pod_text_fits(store, pod, old)) { /* a namespace must not take others' room */
		drop_text(store, pod);
		cut = true;
	}
	pod->created = view->meta.created;
	pod->flags =
	    (view->host_network ? POD_HOST_NETWORK : 0) | (view->meta.deleting ? POD_DELETING : 0) |
	    (slice_is(view->phase, "Succeeded") || slice_is(view->phase, "Failed") ? POD_TERMINATED
										   : 0) |
	    (has_mirror ? POD_MIRROR : 0) | (cut ? POD_CUT : 0);
	out = draft_ip(store, view->pod_ip, pod, out);
	out = draft_names(store, view, pod, out);
	pod->tail = (uint16_t)(out - pod->rest);
	if (cut || view->n_containers > POD_CONTAINERS_MAX)
		store->stats.cut_pods++;
	*ret = pod;
	return 0;
}

void pod_release_strings(struct pod_store *store, const struct pod *pod)
{
	intern_unref(store->intern, pod->ns);
	intern_unref(store->intern, pod->node);
	intern_unref(store->intern, pod->owner);
	intern_unref(store->intern, pod->labels);
	intern_unref(store->intern, pod->annotations);
	intern_unref(store->intern, pod->uid_text);
	release_containers(store, pod->containers);
}

bool pod_same(const struct pod *a, const struct pod *b)
{
	size_t from = offsetof(struct pod, created);

	return a->tail == b->tail && !memcmp(a, b, offsetof(struct pod, generation)) &&
	       !memcmp((const char *)a + from, (const char *)b + from, sizeof(*a) - from + a->tail);
}
