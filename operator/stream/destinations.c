/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For each destination the table keeps its message without secrets, and the list of its fields that
 * come from a key of a Secret. The message is packed anew whenever it is sent, so values are only
 * in the Secrets' memory and, for a moment, in the buffer of the message.
 */
#include "operator/stream/destinations.h"

#include "kiln/node/v1/node.pb-c.h"
#include "lib/uthash.h"

#define NODE_MESSAGE(type) Kiln__Node__V1__##type

enum { FIELDS_MAX = CONFIG_HEADERS_MAX + 3 };

enum field_kind { FIELD_HEADER, FIELD_CA, FIELD_CERTIFICATE, FIELD_KEY };

struct field {
	enum field_kind kind;
	size_t header;
	struct secret *secret; /* NULL: there was no room for one more */
	char *name, *key;      /* of the Secret, and in it */
};

struct view_destination {
	char id[DESTINATION_ID_MAX];
	char *ns, *name; /* "" for the cluster's */
	unsigned int refs;
	struct left_out *left_out; /* NULL: not left out, or not encoded yet */
	NODE_MESSAGE(Destination) * message;
	struct field fields[FIELDS_MAX];
	size_t n;
	UT_hash_handle hh;
};

struct destination_table {
	struct destination_table_options options;
	struct view_destination *all;
	struct left_out *left_out;
	bool without_room; /* some field is without its Secret */
};

static void leave_in(struct destination_table *d, struct view_destination *v)
{
	struct left_out *l = TAKE_PTR(v->left_out);

	if (!l)
		return;
	if (l->prev)
		l->prev->next = l->next;
	else
		d->left_out = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l);
}

/* ---- from the config ------------------------------------------------------------------------- */

static NODE_MESSAGE(Destination__Kind) kind_of(const struct destination *d)
{
	if (d->type == DESTINATION_TEXT)
		return KILN__NODE__V1__DESTINATION__KIND__TEXT;
	return d->protocol == OTLP_HTTP ? KILN__NODE__V1__DESTINATION__KIND__OTLP_HTTP
					: KILN__NODE__V1__DESTINATION__KIND__OTLP_GRPC;
}

static NODE_MESSAGE(Tls__Mode) tls_of(const struct destination *d)
{
	switch (d->tls) {
	case TLS_PLAINTEXT:
		return KILN__NODE__V1__TLS__MODE__PLAINTEXT;
	case TLS_SKIP_VERIFY:
		return KILN__NODE__V1__TLS__MODE__SKIP_VERIFY;
	default:
		return KILN__NODE__V1__TLS__MODE__VERIFY;
	}
}

static char *text(char *s)
{
	return s ? s : (char *)"";
}

/* A new message with the config's values; values of Secrets are empty. */
static NODE_MESSAGE(Destination) * copy_message(const char *id, const struct destination *d)
{
	NODE_MESSAGE(Header) headers[CONFIG_HEADERS_MAX], *pointers[CONFIG_HEADERS_MAX];
	NODE_MESSAGE(Destination) m = KILN__NODE__V1__DESTINATION__INIT;
	NODE_MESSAGE(Tls) tls = KILN__NODE__V1__TLS__INIT;
	_cleanup_free_ uint8_t *bytes = NULL;
	size_t len;

	m.id = (char *)id;
	m.kind = kind_of(d);
	m.endpoint = text(d->endpoint);
	m.compression = text(d->compression);
	m.timeout_ms = d->timeout_s > 0 ? (uint32_t)d->timeout_s * 1000 : 0;
	m.proto_generation = text(d->proto_generation);
	tls.mode = tls_of(d);
	tls.server_name = text(d->server_name);
	m.tls = d->type == DESTINATION_OTLP ? &tls : NULL;
	for (size_t i = 0; i < d->n_headers && i < CONFIG_HEADERS_MAX; i++) {
		headers[i] = (NODE_MESSAGE(Header))KILN__NODE__V1__HEADER__INIT;
		headers[i].name = d->headers[i].name;
		headers[i].value = text(d->headers[i].value);
		pointers[i] = &headers[i];
		m.n_headers++;
	}
	m.headers = pointers;
	len = kiln__node__v1__destination__get_packed_size(&m);
	bytes = malloc(len + 1);
	if (!bytes)
		return NULL;
	(void)kiln__node__v1__destination__pack(&m, bytes);
	return kiln__node__v1__destination__unpack(NULL, len, bytes);
}

static const char *secrets_ns(const struct destination_table *d, const struct view_destination *v)
{
	return v->ns[0] ? v->ns : d->options.ns;
}

static int add_field(struct destination_table *d, struct view_destination *v, enum field_kind kind,
		     size_t header, const char *name, const char *key)
{
	struct field *f = &v->fields[v->n];
	int r;

	if (!name)
		return 0;
	if (v->n == FIELDS_MAX || !d->options.secrets)
		return -ENOSPC;
	*f = (struct field){
	    .kind = kind, .header = header, .name = strdup(name), .key = strdup(key ? key : "")};
	r = f->name && f->key ? secrets_use(d->options.secrets, secrets_ns(d, v), name, &f->secret)
			      : -ENOMEM;
	if (r < 0 && r != -ENOSPC) {
		free(f->name);
		free(f->key);
		return r;
	}
	d->without_room |= r == -ENOSPC;
	v->n++;
	return 0;
}

static int add_fields(struct destination_table *d, struct view_destination *v,
		      const struct destination *from)
{
	int r = add_field(d, v, FIELD_CA, 0, from->ca.name, from->ca.key);

	if (!r)
		r = add_field(d, v, FIELD_CERTIFICATE, 0, from->client_certificate_secret,
			      "tls.crt");
	if (!r)
		r = add_field(d, v, FIELD_KEY, 0, from->client_certificate_secret, "tls.key");
	for (size_t i = 0; i < from->n_headers && i < CONFIG_HEADERS_MAX && !r; i++)
		if (!from->headers[i].value)
			r = add_field(d, v, FIELD_HEADER, i, from->headers[i].ref.name,
				      from->headers[i].ref.key);
	return r;
}

static void forget(struct destination_table *d, struct view_destination *v)
{
	leave_in(d, v);
	for (size_t i = 0; i < v->n; i++) {
		secrets_leave(d->options.secrets, v->fields[i].secret);
		free(v->fields[i].name);
		free(v->fields[i].key);
	}
	v->n = 0;
	if (v->message)
		kiln__node__v1__destination__free_unpacked(v->message, NULL);
	v->message = NULL;
	free(v->ns);
	free(v->name);
}

static int make(struct destination_table *d, const char *id, const struct policy_destination *from,
		struct view_destination *ret)
{
	int r;

	*ret = (struct view_destination){.ns = strdup(from->ns),
					 .name = strdup(from->destination->name),
					 .message = copy_message(id, from->destination)};
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	r = ret->ns && ret->name && ret->message ? add_fields(d, ret, from->destination) : -ENOMEM;
	if (r < 0)
		forget(d, ret);
	return r;
}

/* The hash of all settings, including references to Secrets but not their values. */
static uint64_t settings_hash(const struct destination *d)
{
	NODE_MESSAGE(Destination) *m = copy_message("", d);
	uint64_t h = 0;
	uint8_t *bytes;
	size_t len;

	if (!m)
		return 0;
	len = kiln__node__v1__destination__get_packed_size(m);
	bytes = malloc(len + 1);
	if (bytes) {
		(void)kiln__node__v1__destination__pack(m, bytes);
		h = hash_bytes(bytes, len, 3);
	}
	free(bytes);
	kiln__node__v1__destination__free_unpacked(m, NULL);
	for (size_t i = 0; i < d->n_headers; i++) {
		const struct secret_ref *ref = &d->headers[i].ref;

		h = hash_bytes(text(ref->name), strlen(text(ref->name)), h);
		h = hash_bytes(text(ref->key), strlen(text(ref->key)), h);
	}
	h = hash_bytes(text(d->ca.name), strlen(text(d->ca.name)), h);
	h = hash_bytes(text(d->ca.key), strlen(text(d->ca.key)), h);
	return hash_bytes(text(d->client_certificate_secret),
			  strlen(text(d->client_certificate_secret)), h);
}

static bool same_settings(const struct view_destination *a, const struct view_destination *b)
{
	uint8_t *bytes[2] = {NULL, NULL};
	const struct view_destination *both[2] = {a, b};
	size_t len[2];
	bool same = a->n == b->n;

	for (size_t i = 0; i < 2; i++) {
		len[i] = kiln__node__v1__destination__get_packed_size(both[i]->message);
		bytes[i] = malloc(len[i] + 1);
		if (bytes[i])
			(void)kiln__node__v1__destination__pack(both[i]->message, bytes[i]);
	}
	same =
	    same && bytes[0] && bytes[1] && len[0] == len[1] && !memcmp(bytes[0], bytes[1], len[0]);
	for (size_t i = 0; same && i < a->n; i++)
		same = a->fields[i].kind == b->fields[i].kind &&
		       a->fields[i].header == b->fields[i].header &&
		       a->fields[i].secret == b->fields[i].secret &&
		       streq(a->fields[i].key, b->fields[i].key);
	free(bytes[0]);
	free(bytes[1]);
	return same;
}

/*
 * Replaces the settings of V by those of WITH, which is consumed. A destination of the cluster
 * keeps its id when its settings change: those of the newest policy are used.
 */
static void replace(struct destination_table *d, struct view_destination *v,
		    struct view_destination *with)
{
	if (same_settings(v, with)) {
		forget(d, with);
		return;
	}
	forget(d, v);
	v->ns = with->ns;
	v->name = with->name;
	v->message = with->message;
	memcpy(v->fields, with->fields, sizeof(v->fields));
	v->n = with->n;
	d->options.changed(d->options.arg, v->id);
}

int destination_table_ref(struct destination_table *d, const struct policy_destination *from,
			  struct view_destination **ret)
{
	struct view_destination *v, next;
	char id[DESTINATION_ID_MAX];
	int r;

	if (from->ns[0])
		snprintf(id, sizeof(id), "%s/%s@%08x", from->ns, from->destination->name,
			 (unsigned int)settings_hash(from->destination));
	else
		snprintf(id, sizeof(id), "%s", from->destination->name);
	v = destination_table_find(d, id);
	r = make(d, id, from, &next);
	if (r < 0)
		return r;
	if (v) {
		v->refs++;
		replace(d, v, &next);
		*ret = v;
		return 0;
	}
	v = malloc(sizeof(*v));
	if (!v) {
		forget(d, &next);
		return -ENOMEM;
	}
	*v = next;
	v->refs = 1;
	HASH_ADD_STR(d->all, id, v);
	*ret = v;
	return 0;
}

/* ---- telling --------------------------------------------------------------------------------- */

/* RFC 9110 §5.5, and what the agent takes. */
static bool is_header_value(const char *s)
{
	size_t n = strlen(s);

	if (n > 4096 || (n && (s[0] == ' ' || s[n - 1] == ' ')))
		return false;
	for (; *s; s++)
		if (*s < ' ' || *s > '~')
			return false;
	return true;
}

/* Writes why F has no value (which Secret, the cause, what to do) to RET; never a value. */
static void say_cause(const char *ns, const struct field *f, struct left_out *ret)
{
	const char *name = f->name;

	if (!f->secret) {
		ret->reason = "SecretsLimit";
		snprintf(ret->text, sizeof(ret->text),
			 "there is no room for Secret %s/%s: destinations of one namespace may use "
			 "%d Secrets at a time, those of all tenants %d",
			 ns, name, SECRETS_NS_MAX, SECRETS_TENANTS_MAX);
		return;
	}
	switch (secret_state(f->secret)) {
	case SECRET_MISSING:
		ret->reason = "SecretMissing";
		snprintf(ret->text, sizeof(ret->text),
			 "there is no Secret %s/%s: make it, with key %s, or refer to another", ns,
			 name, f->key);
		break;
	case SECRET_FORBIDDEN:
		ret->reason = "SecretForbidden";
		snprintf(ret->text, sizeof(ret->text),
			 "the operator may not read Secret %s/%s: bind ClusterRole "
			 "kiln-operator-tenant-secrets in that namespace (docs/policy.md)",
			 ns, name);
		break;
	default:
		ret->reason = "SecretKeyMissing";
		snprintf(ret->text, sizeof(ret->text),
			 "Secret %s/%s has no key %s, or one that is no %s: put it there, or refer "
			 "to another",
			 ns, name, f->key, f->kind == FIELD_HEADER ? "value of a header" : "text");
		break;
	}
}

static const char *value_of(const struct field *f)
{
	const char *s = f->secret ? secret_get(f->secret, f->key) : NULL;

	return s && f->kind == FIELD_HEADER && !is_header_value(s) ? NULL : s;
}

/* The first field whose value is missing or not usable; NULL: there is none. */
static const struct field *missing_field(const struct view_destination *v)
{
	for (size_t i = 0; i < v->n; i++)
		if (!value_of(&v->fields[i]))
			return &v->fields[i];
	return NULL;
}

static ProtobufCBinaryData *pem_of(const NODE_MESSAGE(Destination) * m, enum field_kind kind)
{
	return kind == FIELD_CA		   ? &m->tls->ca_pem
	       : kind == FIELD_CERTIFICATE ? &m->tls->certificate_pem
					   : &m->tls->key_pem;
}

/* LEND: points the message's fields to the Secrets' values. Else makes these fields empty again. */
static void set_values(struct view_destination *v, bool lend)
{
	/* protobuf-c's own empty string, which it does not free. */
	char *nothing = (char *)protobuf_c_empty_string;

	for (size_t i = 0; i < v->n; i++) {
		const struct field *f = &v->fields[i];
		char *s = lend ? (char *)value_of(f) : NULL;

		if (f->kind == FIELD_HEADER)
			v->message->headers[f->header]->value = s ? s : nothing;
		else
			*pem_of(v->message, f->kind) =
			    (ProtobufCBinaryData){s ? strlen(s) : 0, (uint8_t *)s};
	}
}

static void leave_out(struct destination_table *d, struct view_destination *v,
		      const struct field *f)
{
	struct left_out *l;

	if (v->left_out || (f->secret && secret_state(f->secret) == SECRET_PENDING))
		return;
	l = calloc(1, sizeof(*l));
	if (!l) /* the next call tries again */
		return;
	*l = (struct left_out){.id = v->id, .ns = v->ns, .name = v->name, .next = d->left_out};
	say_cause(secrets_ns(d, v), f, l);
	if (l->next)
		l->next->prev = l;
	d->left_out = v->left_out = l;
	if (d->options.left_out)
		d->options.left_out(d->options.arg, v->ns, v->name, l->text);
}

const struct left_out *destination_table_left_out(const struct destination_table *d)
{
	return d->left_out;
}

int destination_table_encode(struct destination_table *d, struct view_destination *v,
			     struct buf *out)
{
	const struct field *missing = missing_field(v);
	uint8_t *p;

	buf_reset(out);
	if (missing) {
		leave_out(d, v, missing);
		return -ENOENT;
	}
	leave_in(d, v);
	set_values(v, true);
	p = buf_extend(out, kiln__node__v1__destination__get_packed_size(v->message));
	if (p)
		(void)kiln__node__v1__destination__pack(v->message, p);
	set_values(v, false);
	return p ? 0 : -ENOMEM;
}

void destination_table_secret(struct destination_table *d, const char *ns, const char *name)
{
	struct view_destination *v, *next;

	HASH_ITER (hh, d->all, v, next) {
		bool uses = false;

		for (size_t i = 0; i < v->n; i++)
			uses |= streq(secrets_ns(d, v), ns) && streq(v->fields[i].name, name);
		if (!uses)
			continue;
		leave_in(d, v);
		d->options.changed(d->options.arg, v->id);
	}
}

void destination_table_look_for_room(struct destination_table *d)
{
	struct view_destination *v, *next;

	if (!d->without_room)
		return;
	d->without_room = false;
	HASH_ITER (hh, d->all, v, next) {
		bool found = false;

		for (size_t i = 0; i < v->n; i++) {
			struct field *f = &v->fields[i];

			if (f->secret)
				continue;
			if (secrets_use(d->options.secrets, secrets_ns(d, v), f->name, &f->secret) <
			    0)
				d->without_room = true;
			else
				found = true;
		}
		if (!found)
			continue;
		leave_in(d, v);
		d->options.changed(d->options.arg, v->id);
	}
}

/* ---- life ------------------------------------------------------------------------------------ */

struct view_destination *destination_table_find(struct destination_table *d, const char *id)
{
	struct view_destination *v;

	HASH_FIND_STR(d->all, id, v);
	return v;
}

const char *view_destination_id(const struct view_destination *v)
{
	return v->id;
}

struct view_destination *view_destination_ref(struct view_destination *v)
{
	v->refs++;
	return v;
}

void destination_table_unref(struct destination_table *d, struct view_destination *v)
{
	if (!v || --v->refs)
		return;
	HASH_DEL(d->all, v);
	forget(d, v);
	free(v);
}

size_t destination_table_count(const struct destination_table *d)
{
	return HASH_COUNT(d->all);
}

int destination_table_new(const struct destination_table_options *options,
			  struct destination_table **ret)
{
	struct destination_table *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->options = *options;
	*ret = d;
	return 0;
}

struct destination_table *destination_table_free(struct destination_table *d)
{
	struct view_destination *v, *next;

	if (!d)
		return NULL;
	HASH_ITER (hh, d->all, v, next) {
		HASH_DEL(d->all, v);
		forget(d, v);
		free(v);
	}
	free(d);
	return NULL;
}
