/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The destination that an agent is sent, the Secrets that it is made of, and the message for a
 * destination that cannot be used. The test plays the store of Secrets.
 */
#include "operator/stream/destinations.h"

#include "kiln/node/v1/node.pb-c.h"
#include "tests/support/test.h"

#define KILN "kiln-system"

/* ---- Secrets --------------------------------------------------------------------------------- */

struct secret {
	char ns[64], name[64], key[64], value[64];
	enum secret_state state;
	int refs;
};

static struct {
	struct secret all[16];
	size_t n;
	int use_result;
	unsigned int changed, left_out;
	char last_id[DESTINATION_ID_MAX], word[DESTINATION_CAUSE_MAX + 128];
	struct destination_table *table;
	struct buf out;
} rig;

int secrets_use(struct secrets *s, const char *ns, const char *name, struct secret **ret)
{
	if (rig.use_result < 0)
		return rig.use_result;
	for (size_t i = 0; i < rig.n; i++)
		if (streq(rig.all[i].ns, ns) && streq(rig.all[i].name, name)) {
			*ret = &rig.all[i];
			rig.all[i].refs++;
			return 0;
		}
	assert_true(rig.n < ARRAY_SIZE(rig.all));
	*ret = &rig.all[rig.n++];
	**ret = (struct secret){.refs = 1};
	snprintf((*ret)->ns, sizeof((*ret)->ns), "%s", ns);
	snprintf((*ret)->name, sizeof((*ret)->name), "%s", name);
	return 0;
}

void secrets_leave(struct secrets *s, struct secret *secret)
{
	if (secret)
		assert_true(secret->refs-- > 0);
}

enum secret_state secret_state(const struct secret *s)
{
	return s->state;
}

const char *secret_ns(const struct secret *s)
{
	return s->ns;
}

const char *secret_name(const struct secret *s)
{
	return s->name;
}

const char *secret_get(const struct secret *s, const char *key)
{
	return s->state == SECRET_FOUND && streq(s->key, key) ? s->value : NULL;
}

/* NS/NAME has VALUE under KEY from now on, or STATE. */
static void put(const char *ns, const char *name, enum secret_state state, const char *key,
		const char *value)
{
	struct secret *s;

	assert_int_equal(secrets_use(NULL, ns, name, &s), 0);
	secrets_leave(NULL, s);
	s->state = state;
	snprintf(s->key, sizeof(s->key), "%s", key);
	snprintf(s->value, sizeof(s->value), "%s", value);
	destination_table_secret(rig.table, ns, name);
}

static int refs(void)
{
	int n = 0;

	for (size_t i = 0; i < rig.n; i++)
		n += rig.all[i].refs;
	return n;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void on_changed(void *arg, const char *id)
{
	rig.changed++;
	snprintf(rig.last_id, sizeof(rig.last_id), "%s", id);
}

static void on_left_out(void *arg, const char *ns, const char *name, const char *cause)
{
	rig.left_out++;
	snprintf(rig.word, sizeof(rig.word), "%s/%s: %s", ns, name, cause);
}

static int setup(void **state)
{
	struct destination_table_options o = {.secrets = (struct secrets *)&rig,
					      .ns = KILN,
					      .changed = on_changed,
					      .left_out = on_left_out};

	memset(&rig, 0, sizeof(rig));
	buf_init(&rig.out, 1 << 20);
	return destination_table_new(&o, &rig.table);
}

static int teardown(void **state)
{
	assert_int_equal(destination_table_count(rig.table), 0);
	assert_int_equal(refs(), 0);
	rig.table = destination_table_free(rig.table);
	buf_done(&rig.out);
	return 0;
}

static struct view_destination *ref(const char *ns, const struct destination *d)
{
	const struct policy_destination from = {.ns = ns, .destination = d};
	struct view_destination *v;

	assert_int_equal(destination_table_ref(rig.table, &from, &v), 0);
	return v;
}

static Kiln__Node__V1__Destination *told(struct view_destination *v)
{
	Kiln__Node__V1__Destination *m;

	assert_int_equal(destination_table_encode(rig.table, v, &rig.out), 0);
	m = kiln__node__v1__destination__unpack(NULL, rig.out.len, (const uint8_t *)rig.out.data);
	assert_non_null(m);
	return m;
}

static bool is(const ProtobufCBinaryData *data, const char *text)
{
	return data->len == strlen(text) && !memcmp(data->data, text, data->len);
}

static struct destination_header token_header[] = {
    {.name = (char *)"x-plain", .value = (char *)"open"},
    {.name = (char *)"x-token", .ref = {(char *)"backend", (char *)"token"}}};

static struct destination with_token(const char *name)
{
	return (struct destination){.name = (char *)name,
				    .type = DESTINATION_OTLP,
				    .endpoint = (char *)"a.example:4317",
				    .tls = TLS_PLAINTEXT,
				    .headers = token_header,
				    .n_headers = 2};
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_one_without_secrets_is_told_as_it_is(void **state)
{
	struct destination d = {.name = (char *)"main",
				.type = DESTINATION_OTLP,
				.endpoint = (char *)"a.example:4318",
				.protocol = OTLP_HTTP,
				.compression = (char *)"zstd",
				.timeout_s = 7,
				.tls = TLS_SKIP_VERIFY,
				.server_name = (char *)"b.example",
				.proto_generation = (char *)"g5"};
	struct view_destination *v = ref("", &d);
	Kiln__Node__V1__Destination *m = told(v);

	assert_string_equal(view_destination_id(v), "main");
	assert_string_equal(m->id, "main");
	assert_int_equal(m->kind, KILN__NODE__V1__DESTINATION__KIND__OTLP_HTTP);
	assert_string_equal(m->endpoint, "a.example:4318");
	assert_string_equal(m->compression, "zstd");
	assert_int_equal(m->timeout_ms, 7000);
	assert_string_equal(m->proto_generation, "g5");
	assert_int_equal(m->tls->mode, KILN__NODE__V1__TLS__MODE__SKIP_VERIFY);
	assert_string_equal(m->tls->server_name, "b.example");
	assert_int_equal(m->n_headers, 0);
	kiln__node__v1__destination__free_unpacked(m, NULL);
	destination_table_unref(rig.table, v);
	destination_table_unref(rig.table, NULL);
}

static void test_values_of_secrets_are_in_their_fields(void **state)
{
	struct destination d = with_token("main");
	Kiln__Node__V1__Destination *m;
	struct view_destination *v;

	d.tls = TLS_VERIFY;
	d.ca = (struct secret_ref){(char *)"roots", (char *)"ca.crt"};
	v = ref("", &d);
	put(KILN, "backend", SECRET_FOUND, "token", "hush");
	put(KILN, "roots", SECRET_FOUND, "ca.crt", "PEM");
	m = told(v);
	assert_int_equal(m->n_headers, 2);
	assert_string_equal(m->headers[0]->value, "open");
	assert_string_equal(m->headers[1]->name, "x-token");
	assert_string_equal(m->headers[1]->value, "hush");
	assert_true(is(&m->tls->ca_pem, "PEM") && !m->tls->key_pem.len);
	kiln__node__v1__destination__free_unpacked(m, NULL);
	/* The next message has the next value. */
	put(KILN, "backend", SECRET_FOUND, "token", "hush2");
	m = told(v);
	assert_string_equal(m->headers[1]->value, "hush2");
	kiln__node__v1__destination__free_unpacked(m, NULL);
	destination_table_unref(rig.table, v);
}

/*
 * A tenant's destination uses the Secret of the tenant's namespace, even if the operator has one of
 * that name.
 */
static void test_whose_secret_it_is(void **state)
{
	struct destination d = with_token("main");
	struct view_destination *ours = ref("", &d), *theirs = ref("shop", &d);
	Kiln__Node__V1__Destination *m;

	put(KILN, "backend", SECRET_FOUND, "token", "ours");
	assert_int_equal(destination_table_encode(rig.table, theirs, &rig.out), -ENOENT);
	put("shop", "backend", SECRET_FOUND, "token", "theirs");
	m = told(ours);
	assert_string_equal(m->headers[1]->value, "ours");
	kiln__node__v1__destination__free_unpacked(m, NULL);
	m = told(theirs);
	assert_string_equal(m->headers[1]->value, "theirs");
	assert_true(has_prefix(m->id, "shop/main@") &&
		    strlen(m->id) == strlen("shop/main@12345678"));
	kiln__node__v1__destination__free_unpacked(m, NULL);
	destination_table_unref(rig.table, ours);
	destination_table_unref(rig.table, theirs);
}

static size_t n_left_out(void)
{
	const struct left_out *l = destination_table_left_out(rig.table), *prev = NULL;
	size_t n = 0;

	for (; l; prev = l, l = l->next, n++)
		assert_ptr_equal(l->prev, prev);
	return n;
}

static void test_what_keeps_one_from_being_told(void **state)
{
	static const struct {
		enum secret_state state;
		const char *key, *value;
		const char *reason, *text; /* NULL: nothing yet */
	} rows[] = {
	    {SECRET_PENDING, "token", "x", NULL, NULL},
	    {SECRET_MISSING, "", "", "SecretMissing",
	     "there is no Secret kiln-system/backend: make it, with key token"},
	    {SECRET_FORBIDDEN, "", "", "SecretForbidden",
	     "may not read Secret kiln-system/backend: bind ClusterRole"},
	    {SECRET_FOUND, "tok", "x", "SecretKeyMissing", "has no key token"},
	    {SECRET_FOUND, "token", "two\r\nlines", "SecretKeyMissing", "no value of a header"},
	    {SECRET_FOUND, "token", " blank", "SecretKeyMissing", "no value of a header"},
	};
	struct destination d = with_token("main");
	struct view_destination *v = ref("", &d);
	const struct left_out *left;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		rig.left_out = 0;
		put(KILN, "backend", rows[i].state, rows[i].key, rows[i].value);
		for (int k = 0; k < 3; k++)
			assert_int_equal(destination_table_encode(rig.table, v, &rig.out), -ENOENT);
		assert_int_equal(rig.out.len, 0);
		assert_int_equal(rig.left_out, rows[i].reason ? 1 : 0); /* once */
		left = destination_table_left_out(rig.table);
		assert_int_equal(left != NULL, rows[i].reason != NULL);
		if (!rows[i].reason)
			continue;
		assert_string_equal(left->id, "main");
		assert_string_equal(left->ns, "");
		assert_null(left->next);
		assert_string_equal(left->reason, rows[i].reason);
		assert_non_null(strstr(left->text, rows[i].text));
		assert_non_null(strstr(rig.word, rows[i].text));
		assert_null(strstr(rig.word, "lines"));
	}
	put(KILN, "backend", SECRET_FOUND, "token", "hush");
	assert_null(destination_table_left_out(rig.table));
	kiln__node__v1__destination__free_unpacked(told(v), NULL);
	destination_table_unref(rig.table, v);
}

/* In any order; a destination that nothing refers to any more is not listed. */
static void test_those_that_are_left_out_are_listed(void **state)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	struct view_destination *v[ARRAY_SIZE(names)];

	put(KILN, "backend", SECRET_MISSING, "", "");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct destination d = with_token(names[i]);

		v[i] = ref("", &d);
		assert_int_equal(destination_table_encode(rig.table, v[i], &rig.out), -ENOENT);
	}
	assert_int_equal(n_left_out(), 4);
	destination_table_unref(rig.table, v[1]);
	assert_int_equal(n_left_out(), 3);
	destination_table_unref(rig.table, v[3]);
	destination_table_unref(rig.table, v[0]);
	assert_int_equal(n_left_out(), 1);
	assert_string_equal(destination_table_left_out(rig.table)->id, "c");
	destination_table_unref(rig.table, v[2]);
	assert_int_equal(n_left_out(), 0);
}

static void test_only_users_of_a_secret_hear_of_it(void **state)
{
	struct destination d = with_token("main"), plain = {.name = (char *)"plain"};
	struct view_destination *a = ref("", &d), *b = ref("", &plain);

	rig.changed = 0;
	put(KILN, "other", SECRET_FOUND, "token", "x");
	put("shop", "backend", SECRET_FOUND, "token", "x");
	assert_int_equal(rig.changed, 0);
	put(KILN, "backend", SECRET_FOUND, "token", "x");
	assert_int_equal(rig.changed, 1);
	assert_string_equal(rig.last_id, "main");
	destination_table_unref(rig.table, a);
	destination_table_unref(rig.table, b);
}

static void test_a_clusters_keeps_its_id_and_a_tenants_does_not(void **state)
{
	struct destination d = with_token("main"), next = with_token("main");
	struct view_destination *ours = ref("", &d), *again = ref("", &d),
				*theirs = ref("shop", &d);
	struct view_destination *other;

	assert_ptr_equal(ours, again);
	assert_int_equal(rig.changed, 0);
	next.endpoint = (char *)"b.example:4317";
	assert_ptr_equal(ref("", &next), ours);
	assert_int_equal(rig.changed, 1);
	assert_string_equal(rig.last_id, "main");
	put(KILN, "backend", SECRET_FOUND, "token", "x");
	Kiln__Node__V1__Destination *m = told(ours);
	assert_string_equal(m->endpoint, "b.example:4317");
	kiln__node__v1__destination__free_unpacked(m, NULL);
	other = ref("shop", &next);
	assert_ptr_not_equal(other, theirs);
	assert_string_not_equal(view_destination_id(other), view_destination_id(theirs));
	assert_ptr_equal(destination_table_find(rig.table, view_destination_id(theirs)), theirs);
	assert_int_equal(destination_table_count(rig.table), 3);
	for (int i = 0; i < 3; i++)
		destination_table_unref(rig.table, ours);
	destination_table_unref(rig.table, theirs);
	destination_table_unref(rig.table, other);
	assert_null(destination_table_find(rig.table, "main"));
}

/* A tenant's destination with another Secret, key or header value is another destination. */
static void test_every_setting_counts(void **state)
{
	struct destination_header headers[2];
	struct destination d = with_token("main");
	struct view_destination *all[8];
	size_t n = 0;

	memcpy(headers, token_header, sizeof(headers));
	d.headers = headers;
	all[n++] = ref("shop", &d);
	headers[1].ref.key = (char *)"other";
	all[n++] = ref("shop", &d);
	headers[1].ref.name = (char *)"other";
	all[n++] = ref("shop", &d);
	headers[0].value = (char *)"shut";
	all[n++] = ref("shop", &d);
	d.timeout_s = 3;
	all[n++] = ref("shop", &d);
	d.tls = TLS_VERIFY;
	all[n++] = ref("shop", &d);
	d.ca = (struct secret_ref){(char *)"roots", (char *)"ca.crt"};
	all[n++] = ref("shop", &d);
	d.client_certificate_secret = (char *)"pair";
	all[n++] = ref("shop", &d);
	assert_int_equal(destination_table_count(rig.table), n);
	while (n)
		destination_table_unref(rig.table, all[--n]);
}

static void test_no_room_for_a_secret(void **state)
{
	struct destination d = with_token("main");
	struct view_destination *v;

	rig.use_result = -ENOSPC;
	v = ref("shop", &d);
	assert_int_equal(destination_table_encode(rig.table, v, &rig.out), -ENOENT);
	assert_string_equal(destination_table_left_out(rig.table)->reason, "SecretsLimit");
	assert_non_null(strstr(rig.word, "no room for Secret shop/backend"));
	destination_table_look_for_room(rig.table);
	assert_int_equal(rig.changed, 0);
	rig.use_result = 0;
	destination_table_look_for_room(rig.table);
	assert_int_equal(rig.changed, 1);
	assert_string_equal(rig.last_id, view_destination_id(v));
	assert_null(destination_table_left_out(rig.table));
	put("shop", "backend", SECRET_FOUND, "token", "hush");
	kiln__node__v1__destination__free_unpacked(told(v), NULL);
	destination_table_unref(rig.table, v);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    T(test_one_without_secrets_is_told_as_it_is),
	    T(test_values_of_secrets_are_in_their_fields),
	    T(test_whose_secret_it_is),
	    T(test_what_keeps_one_from_being_told),
	    T(test_those_that_are_left_out_are_listed),
	    T(test_only_users_of_a_secret_hear_of_it),
	    T(test_a_clusters_keeps_its_id_and_a_tenants_does_not),
	    T(test_every_setting_counts),
	    T(test_no_room_for_a_secret),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
