/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes objects from messages.
 *
 * A block is sized for the whole content of the message, then filled from its front: the object,
 * the arrays, the strings, the packed message. So nothing can fail half-way, and one free()
 * releases it.
 *
 * Two digests of the packed message tell whether a snapshot changed an object. They need not resist
 * forgery: the operator, which sends the bytes, does not attack its agents. Destinations may hold
 * secrets: their packed form is wiped, and so is the block when it is freed.
 */
#include "agent/meta/pod_object.h"

#include <strings.h>

static const uint64_t digest_seeds[2] = {0x6b696c6e2d706f64, 0x7461626c652d3031};

struct block {
	char *at, *end;
};

/* Takes SIZE bytes of the block. make_object() has counted all of them; running out is a bug of
 * this file, so it aborts. */
static void *take(struct block *b, size_t size)
{
	char *p = b->at;

	size = ALIGN_UP(size, _Alignof(max_align_t));
	if (size > (size_t)(b->end - b->at))
		abort();
	b->at += size;
	return p;
}

static const char *take_string(struct block *b, const char *s)
{
	size_t len = strlen(s) + 1;
	char *p = take(b, len);

	memcpy(p, s, len);
	return p;
}

static size_t room(size_t size)
{
	return ALIGN_UP(size, _Alignof(max_align_t));
}

static size_t string_room(const char *s)
{
	return room(strlen(s) + 1);
}

static size_t strings_room(char *const *items, size_t n)
{
	size_t size = room(n * sizeof(char *)), i;

	for (i = 0; i < n; i++)
		size += string_room(items[i]);
	return size;
}

/* The first MAX of ITEMS that are no longer than LEN_MAX and not empty. */
static const char *const *take_strings(struct block *b, char *const *items, size_t n, size_t max,
				       size_t len_max, size_t *ret_n)
{
	const char **out = take(b, n * sizeof(*out));
	size_t i, used = 0, len;

	for (i = 0; i < n && used < max; i++) {
		len = strlen(items[i]);
		if (len > 0 && len <= len_max)
			out[used++] = take_string(b, items[i]);
	}
	*ret_n = used;
	return out;
}

/* Makes a block for an object whose own arrays and strings take OWN bytes. CLEAN is MESSAGE without
 * secrets, which is kept; if it differs from MESSAGE, the packed MESSAGE is wiped. */
static int make_object(enum pod_object_kind kind, const ProtobufCMessage *message,
		       const ProtobufCMessage *clean, size_t own, struct pod_object **ret,
		       struct block *ret_block)
{
	size_t packed = protobuf_c_message_get_packed_size(message);
	size_t wire_len = protobuf_c_message_get_packed_size(clean);
	size_t size = room(sizeof(struct pod_object)) + own + room(MAX(packed, wire_len));
	struct pod_object *o = calloc(1, size);
	uint8_t *wire;

	if (!o)
		return -ENOMEM;
	*ret_block = (struct block){.at = (char *)o, .end = (char *)o + size};
	(void)take(ret_block, sizeof(*o));
	wire = take(ret_block, MAX(packed, wire_len));
	protobuf_c_message_pack(message, wire);
	o->digest[0] = hash_bytes(wire, packed, digest_seeds[0]);
	o->digest[1] = hash_bytes(wire, packed, digest_seeds[1]);
	if (clean != message) {
		explicit_bzero(wire, packed);
		protobuf_c_message_pack(clean, wire);
	}
	atomic_init(&o->refs, 1);
	o->kind = kind;
	o->size = size;
	o->wire = wire;
	o->wire_len = wire_len;
	*ret = o;
	return 0;
}

struct pod_object *pod_object_unref(struct pod_object *o)
{
	if (!o || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1)
		return NULL;
	if (o->kind == POD_OBJECT_DESTINATION)
		explicit_bzero(o, o->size);
	free(o);
	return NULL;
}

static bool name_fits(const char *s)
{
	return strlen(s) <= POD_NAME_MAX;
}

/* ---- pods ------------------------------------------------------------------------------------ */

static size_t attributes_room(Kiln__Node__V1__Attribute *const *items, size_t n)
{
	size_t size = room(n * sizeof(struct pod_attribute)), i;

	for (i = 0; i < n; i++)
		size += string_room(items[i]->key) + string_room(items[i]->value) +
			strings_room(items[i]->values, items[i]->n_values);
	return size;
}

static bool attribute_usable(const Kiln__Node__V1__Attribute *a)
{
	size_t i, len = strlen(a->key);

	if (len == 0 || len > POD_KEY_MAX || strlen(a->value) > POD_VALUE_MAX ||
	    a->n_values > POD_VALUES_MAX)
		return false;
	for (i = 0; i < a->n_values; i++) {
		if (strlen(a->values[i]) > POD_VALUE_MAX)
			return false;
	}
	return true;
}

static const char *const *take_values(struct block *b, const Kiln__Node__V1__Attribute *a)
{
	const char **out = take(b, a->n_values * sizeof(*out));
	size_t i;

	for (i = 0; i < a->n_values; i++)
		out[i] = take_string(b, a->values[i]);
	return out;
}

static const struct pod_attribute *take_attributes(struct block *b,
						   Kiln__Node__V1__Attribute *const *items,
						   size_t n, struct pod_counters *counters,
						   size_t *ret_n)
{
	struct pod_attribute *out = take(b, n * sizeof(*out)), *a;
	size_t i, used = 0;

	for (i = 0; i < n; i++) {
		if (used == POD_ATTRIBUTES_MAX || !attribute_usable(items[i])) {
			counters->attributes_refused++;
			continue;
		}
		a = &out[used++];
		a->key = take_string(b, items[i]->key);
		a->value = items[i]->n_values ? "" : take_string(b, items[i]->value);
		a->values = items[i]->n_values ? take_values(b, items[i]) : NULL;
		a->n_values = items[i]->n_values;
	}
	*ret_n = used;
	return out;
}

static bool id_usable(const ProtobufCBinaryData *id)
{
	return id->len == 0 || id->len == POD_CONTAINER_ID_BYTES;
}

static size_t containers_room(Kiln__Node__V1__Container *const *items, size_t n)
{
	size_t size = room(n * sizeof(struct pod_container)), i;

	for (i = 0; i < n; i++)
		size += string_room(items[i]->name) +
			attributes_room(items[i]->attributes, items[i]->n_attributes);
	return size;
}

static const struct pod_container *take_containers(struct block *b,
						   Kiln__Node__V1__Container *const *items,
						   size_t n, struct pod_counters *counters,
						   size_t *ret_n)
{
	struct pod_container *out = take(b, n * sizeof(*out)), *c;
	size_t i, used = 0;

	for (i = 0; i < n; i++) {
		const Kiln__Node__V1__Container *m = items[i];

		if (used == POD_CONTAINERS_MAX || !name_fits(m->name) || !id_usable(&m->id) ||
		    !id_usable(&m->previous_id)) {
			counters->containers_refused++;
			continue;
		}
		c = &out[used++];
		c->name = take_string(b, m->name);
		c->has_id = m->id.len > 0;
		c->has_previous_id = m->previous_id.len > 0;
		if (c->has_id)
			memcpy(c->id, m->id.data, POD_CONTAINER_ID_BYTES);
		if (c->has_previous_id)
			memcpy(c->previous_id, m->previous_id.data, POD_CONTAINER_ID_BYTES);
		c->attributes =
		    take_attributes(b, m->attributes, m->n_attributes, counters, &c->n_attributes);
	}
	*ret_n = used;
	return out;
}

int pod_object_pod(const Kiln__Node__V1__Pod *m, struct pod_counters *counters,
		   struct pod_object **ret)
{
	struct pod_object *o;
	struct pod_entry *e;
	struct block b;
	size_t own;
	int r;

	if (!*m->uid || !name_fits(m->uid) || !name_fits(m->config_hash) ||
	    !name_fits(m->namespace_) || !name_fits(m->name)) {
		counters->pods_refused++;
		return -EINVAL;
	}
	own = string_room(m->uid) + string_room(m->config_hash) + string_room(m->namespace_) +
	      string_room(m->name) + attributes_room(m->attributes, m->n_attributes) +
	      containers_room(m->containers, m->n_containers);
	r = make_object(POD_OBJECT_POD, &m->base, &m->base, own, &o, &b);
	if (r < 0)
		return r;
	e = &o->pod;
	e->uid = take_string(&b, m->uid);
	e->config_hash = take_string(&b, m->config_hash);
	e->ns = take_string(&b, m->namespace_);
	e->name = take_string(&b, m->name);
	e->policy = m->policy;
	e->attributes =
	    take_attributes(&b, m->attributes, m->n_attributes, counters, &e->n_attributes);
	e->containers =
	    take_containers(&b, m->containers, m->n_containers, counters, &e->n_containers);
	o->key = e->uid;
	o->key_len = strlen(e->uid);
	*ret = o;
	return 0;
}

const struct pod_container *pod_entry_container(const struct pod_entry *e,
						const uint8_t id[POD_CONTAINER_ID_BYTES])
{
	const struct pod_container *c, *former = NULL;
	size_t i;

	for (i = 0; i < e->n_containers; i++) {
		c = &e->containers[i];
		if (c->has_id && memcmp(c->id, id, POD_CONTAINER_ID_BYTES) == 0)
			return c;
		if (c->has_previous_id && memcmp(c->previous_id, id, POD_CONTAINER_ID_BYTES) == 0)
			former = c;
	}
	return former;
}

/* ---- policies -------------------------------------------------------------------------------- */

int pod_object_policy(const Kiln__Node__V1__Policy *m, struct pod_counters *counters,
		      struct pod_object **ret)
{
	struct pod_object *o;
	struct pod_policy *p;
	struct block b;
	size_t own;
	int r;

	/* A rate that no timer can have makes the policy invalid: the default policy is safer than
	 * a guess. */
	if (m->hz > POD_HZ_MAX || (m->enabled && m->hz == 0) || m->off_cpu_per_mille > 1000) {
		counters->policies_refused++;
		return -EINVAL;
	}
	own = strings_room(m->disabled_tracers, m->n_disabled_tracers) +
	      strings_room(m->destinations, m->n_destinations) +
	      strings_room(m->labels, m->n_labels);
	r = make_object(POD_OBJECT_POLICY, &m->base, &m->base, own, &o, &b);
	if (r < 0)
		return r;
	p = &o->policy;
	p->id = m->id;
	p->enabled = m->enabled;
	p->hz = m->hz;
	p->off_cpu_per_mille = m->off_cpu_per_mille;
	p->priority = m->priority;
	p->disabled_tracers =
	    take_strings(&b, m->disabled_tracers, m->n_disabled_tracers, POD_POLICY_NAMES_MAX,
			 POD_NAME_MAX, &p->n_disabled_tracers);
	p->destinations = take_strings(&b, m->destinations, m->n_destinations, POD_POLICY_NAMES_MAX,
				       2 * POD_NAME_MAX + 1, &p->n_destinations);
	p->labels = take_strings(&b, m->labels, m->n_labels, POD_POLICY_NAMES_MAX, POD_NAME_MAX,
				 &p->n_labels);
	p->timestamps = m->timestamps;
	p->routed = m->routed || m->n_destinations > 0;
	o->key = &p->id;
	o->key_len = sizeof(p->id);
	*ret = o;
	return 0;
}

/* ---- destinations ---------------------------------------------------------------------------- */

static bool pem_fits(const ProtobufCBinaryData *pem)
{
	return pem->len <= POD_PEM_MAX && !(pem->len && memchr(pem->data, 0, pem->len));
}

static bool destination_usable(const Kiln__Node__V1__Destination *m)
{
	const Kiln__Node__V1__Tls *tls = m->tls;
	size_t i;

	/* Unknown enumerators (a newer operator's) make the destination unusable. */
	if (!*m->id || strlen(m->id) > 2 * POD_NAME_MAX + 1 ||
	    strlen(m->endpoint) > POD_VALUE_MAX || !name_fits(m->compression) ||
	    !name_fits(m->proto_generation) || m->n_headers > POD_HEADERS_MAX ||
	    (unsigned int)m->kind > POD_DESTINATION_HTTP)
		return false;
	for (i = 0; i < m->n_headers; i++) {
		if (!*m->headers[i]->name || strlen(m->headers[i]->name) > POD_KEY_MAX ||
		    strlen(m->headers[i]->value) > 8 * POD_VALUE_MAX)
			return false;
	}
	return !tls || ((unsigned int)tls->mode <= POD_TLS_PLAINTEXT &&
			name_fits(tls->server_name) && pem_fits(&tls->ca_pem) &&
			pem_fits(&tls->certificate_pem) && pem_fits(&tls->key_pem));
}

static const char *take_pem(struct block *b, const ProtobufCBinaryData *pem)
{
	char *p;

	if (pem->len == 0)
		return NULL;
	p = take(b, pem->len + 1); /* zeroed: ends with NUL */
	memcpy(p, pem->data, pem->len);
	return p;
}

static size_t destination_room(const Kiln__Node__V1__Destination *m)
{
	size_t i, size = string_room(m->id) + string_room(m->endpoint) +
			 string_room(m->compression) + string_room(m->proto_generation) +
			 room(m->n_headers * sizeof(struct pod_header));

	for (i = 0; i < m->n_headers; i++)
		size += string_room(m->headers[i]->name) + string_room(m->headers[i]->value);
	if (m->tls)
		size += string_room(m->tls->server_name) + room(m->tls->ca_pem.len + 1) +
			room(m->tls->certificate_pem.len + 1) + room(m->tls->key_pem.len + 1);
	return size;
}

static void fill_destination(struct pod_destination *d, struct block *b,
			     const Kiln__Node__V1__Destination *m, bool from_disk)
{
	struct pod_header *headers = take(b, m->n_headers * sizeof(*headers));
	const Kiln__Node__V1__Tls *tls = m->tls;
	size_t i;

	d->id = take_string(b, m->id);
	d->kind = (enum pod_destination_kind)m->kind;
	d->endpoint = take_string(b, m->endpoint);
	d->compression = take_string(b, m->compression);
	d->proto_generation = take_string(b, m->proto_generation);
	d->timeout_ms = m->timeout_ms;
	for (i = 0; i < m->n_headers; i++) {
		headers[i].name = take_string(b, m->headers[i]->name);
		headers[i].value = take_string(b, m->headers[i]->value);
	}
	d->headers = headers;
	d->n_headers = m->n_headers;
	d->server_name = "";
	if (tls) {
		d->tls_mode = (enum pod_tls_mode)tls->mode;
		d->server_name = take_string(b, tls->server_name);
		d->ca_pem = take_pem(b, &tls->ca_pem);
		d->certificate_pem = take_pem(b, &tls->certificate_pem);
		d->key_pem = take_pem(b, &tls->key_pem);
	}
	d->incomplete =
	    from_disk && (m->n_headers > 0 || !*m->endpoint || (d->certificate_pem && !d->key_pem));
}

int pod_object_destination(const Kiln__Node__V1__Destination *m, bool from_disk,
			   struct pod_counters *counters, struct pod_object **ret)
{
	Kiln__Node__V1__Header nameless[POD_HEADERS_MAX], *headers[POD_HEADERS_MAX];
	Kiln__Node__V1__Destination clean = *m;
	Kiln__Node__V1__Tls tls;
	struct pod_object *o;
	struct block b;
	size_t i;
	int r;

	if (!destination_usable(m)) {
		counters->destinations_refused++;
		return -EINVAL;
	}
	/* What goes to disk: no values of headers, no key, no user:password@host, and nothing
	 * of fields that this version does not know, which may be secret too. */
	clean.base.n_unknown_fields = 0;
	clean.headers = headers;
	for (i = 0; i < m->n_headers; i++) {
		nameless[i] = (Kiln__Node__V1__Header)KILN__NODE__V1__HEADER__INIT;
		nameless[i].name = m->headers[i]->name;
		headers[i] = &nameless[i];
	}
	if (strchr(m->endpoint, '@'))
		clean.endpoint = (char *)"";
	if (m->tls) {
		tls = *m->tls;
		tls.base.n_unknown_fields = 0;
		tls.key_pem = (ProtobufCBinaryData){0};
		clean.tls = &tls;
	}
	r = make_object(POD_OBJECT_DESTINATION, &m->base, &clean.base, destination_room(m), &o, &b);
	if (r < 0)
		return r;
	fill_destination(&o->destination, &b, m, from_disk);
	o->key = o->destination.id;
	o->key_len = strlen(o->destination.id);
	*ret = o;
	return 0;
}

/* ---- references ------------------------------------------------------------------------------ */

#define OBJECT_OF(ptr, member) container_of((void *)(uintptr_t)(ptr), struct pod_object, member)

#define REFERENCES(type, prefix, member)                                                           \
	const struct type *prefix##_ref(const struct type *p)                                      \
	{                                                                                          \
		pod_object_ref(OBJECT_OF(p, member));                                              \
		return p;                                                                          \
	}                                                                                          \
	const struct type *prefix##_unref(const struct type *p)                                    \
	{                                                                                          \
		if (p)                                                                             \
			pod_object_unref(OBJECT_OF(p, member));                                    \
		return NULL;                                                                       \
	}
REFERENCES(pod_entry, pod_entry, pod)
REFERENCES(pod_policy, pod_policy, policy)
REFERENCES(pod_destination, pod_destination, destination)
#undef REFERENCES
