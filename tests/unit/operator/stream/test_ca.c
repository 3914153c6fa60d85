/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CA's rotation over its whole life, with the time passed in: which certificates agents trust
 * at each moment, checked by OpenSSL, and what is done with a damaged Secret.
 */
#include "operator/stream/ca.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "operator/stream/tls.h"
#include "tests/support/test.h"

static const char *const names[] = {"kiln-operator-stream.k.svc", "127.0.0.1", NULL};

static const int64_t start = 1800000000, hour = 3600, day = 86400;

static X509 *read_one(BIO *bio)
{
	return PEM_read_bio_X509(bio, NULL, NULL, NULL);
}

/* Does an agent with BUNDLE trust the server certificate CERT at NOW? */
static bool believes(const char *bundle, const char *cert, int64_t now)
{
	BIO *roots = BIO_new_mem_buf(bundle, -1), *bio = BIO_new_mem_buf(cert, -1);
	X509 *leaf = read_one(bio), *root;
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	bool good;

	while ((root = read_one(roots))) {
		X509_STORE_add_cert(store, root);
		X509_free(root);
	}
	assert_true(X509_STORE_CTX_init(ctx, store, leaf, NULL));
	X509_VERIFY_PARAM_set_time(X509_STORE_CTX_get0_param(ctx), (time_t)now);
	X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER);
	good = X509_verify_cert(ctx) == 1 && X509_check_host(leaf, names[0], 0, 0, NULL) == 1;
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	X509_free(leaf);
	BIO_free(roots);
	BIO_free(bio);
	return good;
}

static char *bundle_of(const struct stream_ca *ca)
{
	char *text;

	assert_int_equal(stream_ca_bundle(ca, &text), 0);
	return text;
}

static unsigned int certificates(const char *pem)
{
	unsigned int n = 0;

	while ((pem = strstr(pem, "-----BEGIN CERTIFICATE-----"))) {
		pem++;
		n++;
	}
	return n;
}

static void step(struct stream_ca *ca, enum ca_step what, const struct ca_times *t, int64_t now)
{
	struct error err = {0};

	assert_int_equal(stream_ca_step(ca, what, t, now, &err), 0);
}

/* Reads the CA from its Secret, as another replica does. */
static void restart(struct stream_ca *ca)
{
	struct stream_ca read;
	struct error err = {0};
	cJSON *secret;
	int damage;

	assert_int_equal(stream_ca_secret(ca, "k", "7", &secret), 0);
	assert_int_equal(stream_ca_parse(secret, &read, &damage, &err), 0);
	assert_int_equal(damage, 0);
	assert_int_equal(read.published, ca->published);
	assert_int_equal(read.switched, ca->switched);
	assert_int_equal(!read.next.cert_pem, !ca->next.cert_pem);
	assert_null(read.old.key_pem);
	stream_ca_secret_free(secret);
	stream_ca_done(ca);
	*ca = read;
}

static char *sign(const struct stream_ca *ca, const struct ca_times *t, int64_t now)
{
	struct stream_tls tls;
	struct error err = {0};
	char *cert;

	assert_int_equal(stream_tls_sign(ca->current.cert_pem, ca->current.key_pem, names, now,
					 MIN(t->leaf_s, ca->current.end - now), &tls, &err),
			 0);
	assert_null(tls.ca_pem);
	cert = strdup(tls.cert_pem);
	stream_tls_done(&tls);
	return cert;
}

static void test_times_follow_from_the_life(void **state)
{
	struct ca_times t;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	assert_int_equal(t.leaf_s, 30 * day);
	assert_int_equal(t.overlap_s, hour);
	assert_int_equal(t.poll_s, 60);
	ca_times_init(&t, 24);
	assert_int_equal(t.leaf_s, 4);
	assert_int_equal(t.overlap_s, 1);
	assert_int_equal(t.poll_s, 1);
}

static void test_a_rotation_takes_its_steps_in_time(void **state)
{
	struct stream_ca ca = {0};
	struct ca_times t;
	int64_t now = start, third;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	assert_int_equal(stream_ca_next(&ca, &t, now, false), CA_MAKE);
	step(&ca, CA_MAKE, &t, now);
	third = ca.current.end - STREAM_CA_LIFE_S / 3;
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_KEEP);
	assert_int_equal(stream_ca_next(&ca, &t, third, true), CA_KEEP);
	now = third + 1;
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_ADD);
	step(&ca, CA_ADD, &t, now);
	/* The new CA signs only an hour after it was published, however long that takes. */
	assert_int_equal(stream_ca_next(&ca, &t, now + 30 * day, false), CA_KEEP);
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_PUBLISH);
	step(&ca, CA_PUBLISH, &t, now);
	assert_int_equal(stream_ca_next(&ca, &t, now + hour - 1, true), CA_KEEP);
	now += hour;
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_SWITCH);
	step(&ca, CA_SWITCH, &t, now);
	assert_null(ca.old.key_pem);
	assert_null(ca.next.cert_pem);
	/* Servers may still use certificates that the old CA signed. */
	assert_int_equal(stream_ca_next(&ca, &t, now + 30 * day, true), CA_KEEP);
	now += 30 * day + 2 * t.poll_s;
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_FORGET);
	step(&ca, CA_FORGET, &t, now);
	assert_int_equal(stream_ca_next(&ca, &t, now, true), CA_KEEP);
	stream_ca_done(&ca);
}

/*
 * Three years in steps of an hour. At each step another replica leads, which has no memory; a
 * second replica sees the Secret a day late, agents see the bundle half an hour late. Every agent
 * must trust every server all the time.
 */
static void test_everybody_is_believed_all_the_time(void **state)
{
	struct stream_ca ca = {0};
	struct ca_times t;
	char *bundle = NULL, *published = NULL, *shown = NULL, *late = NULL;
	int64_t late_signed = 0, shown_signed = 0;
	unsigned int switches = 0, most = 0, kept = 0;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	for (int64_t now = start; now < start + 3 * STREAM_CA_LIFE_S; now += hour) {
		enum ca_step what = stream_ca_next(&ca, &t, now, published != NULL);

		/* Agents have the bundle of the step before: half an hour ago. */
		free(bundle);
		bundle = published ? strdup(published) : NULL;
		if (what != CA_KEEP) {
			step(&ca, what, &t, now);
			restart(&ca);
			switches += what == CA_SWITCH;
		}
		if (!shown || what == CA_SWITCH || now - shown_signed > t.leaf_s * 2 / 3) {
			free(shown);
			shown = sign(&ca, &t, now);
			shown_signed = now;
		}
		if (!late || now - late_signed >= day) {
			free(late);
			late = sign(&ca, &t, now);
			late_signed = now;
		}
		free(published);
		published = bundle_of(&ca);
		most = MAX(most, certificates(published));
		/* While nothing changes, one check a day is enough. */
		kept = what == CA_KEEP ? kept + 1 : 0;
		if (!bundle || (kept > 3 && kept % 24))
			continue;
		assert_true(believes(bundle, shown, now));
		assert_true(believes(bundle, late, now));
	}
	assert_true(switches >= 4);
	assert_int_equal(most, 2);
	free(bundle);
	free(published);
	free(shown);
	free(late);
	stream_ca_done(&ca);
}

static void test_a_ca_that_expired_is_replaced(void **state)
{
	struct stream_ca ca = {0};
	struct ca_times t;
	int64_t end;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	step(&ca, CA_MAKE, &t, start);
	end = ca.current.end;
	/* No operator has run for a year. */
	assert_int_equal(stream_ca_next(&ca, &t, end, true), CA_MAKE);
	step(&ca, CA_ADD, &t, end - day);
	assert_int_equal(stream_ca_next(&ca, &t, end, true), CA_SWITCH);
	step(&ca, CA_SWITCH, &t, end);
	assert_int_equal(stream_ca_next(&ca, &t, end, true), CA_FORGET);
	stream_ca_done(&ca);
}

static void test_a_time_to_come_is_not_waited_for(void **state)
{
	struct stream_ca ca = {0};
	struct ca_times t;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	step(&ca, CA_MAKE, &t, start);
	step(&ca, CA_ADD, &t, start);
	ca.published = start + 1000 * day;
	assert_int_equal(stream_ca_next(&ca, &t, start, true), CA_PUBLISH);
	stream_ca_done(&ca);
}

static void test_a_ca_whose_time_has_not_come_signs_nothing(void **state)
{
	struct stream_ca ca = {0};
	struct ca_times t;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	step(&ca, CA_MAKE, &t, start);
	step(&ca, CA_ADD, &t, start + 10 * day);
	step(&ca, CA_PUBLISH, &t, start);
	assert_int_equal(stream_ca_next(&ca, &t, start + 5 * day, true), CA_KEEP);
	assert_int_equal(stream_ca_next(&ca, &t, start + 10 * day, true), CA_SWITCH);
	/* The current CA is not valid yet, the next one is. */
	ca.current.begin = start + 20 * day;
	assert_int_equal(stream_ca_next(&ca, &t, start + 10 * day, true), CA_SWITCH);
	/* Neither is valid yet: the clock is wrong, more likely. */
	ca.next.begin = start + 20 * day;
	assert_int_equal(stream_ca_next(&ca, &t, start + 10 * day, true), CA_KEEP);
	stream_ca_done(&ca);
}

static cJSON *fresh_secret(struct stream_ca *ca)
{
	struct ca_times t;
	cJSON *secret;

	ca_times_init(&t, STREAM_CA_LIFE_S);
	step(ca, CA_MAKE, &t, start);
	step(ca, CA_ADD, &t, start);
	assert_int_equal(stream_ca_secret(ca, "k", NULL, &secret), 0);
	return secret;
}

static void set(cJSON *secret, const char *key, const char *value)
{
	cJSON *data = cJSON_GetObjectItem(secret, "data");

	cJSON_DeleteItemFromObject(data, key);
	if (value)
		cJSON_AddStringToObject(data, key, value);
}

static void test_what_is_damaged_is_left_out_and_the_rest_counts(void **state)
{
	static const struct {
		const char *key, *value;
		bool current, next;
	} cases[] = {
	    {"ca.crt", NULL, false, true},
	    {"ca.key", NULL, false, true},
	    {"ca.key", "", false, true},
	    {"ca.crt", "AAAA", false, true},
	    {"ca.crt", "no base64!", false, true},
	    {"ca.crt", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==", false, true},
	    {"next.key", "AAAA", true, false},
	    {"next.crt", NULL, true, false},
	    {"old.crt", "AAAA", true, true},
	    {"published", "eWVzdGVyZGF5", true, true}, /* yesterday */
	    {"switched", "LTE=", true, true},	       /* -1 */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct stream_ca ca = {0}, read;
		struct error err = {0};
		cJSON *secret = fresh_secret(&ca);
		int damage = 0;

		set(secret, cases[i].key, cases[i].value);
		assert_int_equal(stream_ca_parse(secret, &read, &damage, &err), 0);
		assert_int_equal(damage, -EINVAL);
		assert_true(err.message[0]);
		assert_int_equal(stream_ca_usable(&read.current, start), cases[i].current);
		assert_int_equal(stream_ca_usable(&read.next, start), cases[i].next);
		assert_null(read.old.cert_pem);
		assert_int_equal(read.published, 0);
		stream_ca_secret_free(secret);
		stream_ca_done(&read);
		stream_ca_done(&ca);
	}
}

static void test_keys_of_others_and_leaves_are_no_ca(void **state)
{
	struct stream_ca ca = {0};
	struct stream_tls leaf;
	struct error err = {0};
	int64_t begins, ends;
	cJSON *secret = fresh_secret(&ca);

	assert_int_equal(
	    stream_tls_check_ca(ca.current.cert_pem, ca.next.key_pem, &begins, &ends, &err),
	    -EINVAL);
	assert_string_equal(err.message, "a key that is not the certificate's");
	assert_int_equal(
	    stream_tls_sign(ca.current.cert_pem, ca.current.key_pem, names, start, 10, &leaf, &err),
	    0);
	assert_int_equal(stream_tls_check_ca(leaf.cert_pem, leaf.key_pem, &begins, &ends, &err),
			 -EINVAL);
	assert_int_equal(
	    stream_tls_check_ca(ca.current.cert_pem, ca.current.key_pem, &begins, &ends, &err), 0);
	assert_int_equal(begins, start - STREAM_CLOCK_SKEW_S);
	assert_int_equal(ends, start + STREAM_CA_LIFE_S);
	stream_tls_done(&leaf);
	stream_ca_secret_free(secret);
	stream_ca_done(&ca);
}

static void test_nothing_at_all_is_damage_too(void **state)
{
	static const char *const texts[] = {"{}", "[]", "{\"data\":7}",
					    "{\"data\":{\"ca.crt\":[]}}"};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		cJSON *secret = cJSON_Parse(texts[i]);
		struct error err = {0};
		struct stream_ca ca;
		int damage = 0;

		assert_int_equal(stream_ca_parse(secret, &ca, &damage, &err), 0);
		assert_int_equal(damage, -EINVAL);
		assert_null(ca.current.cert_pem);
		stream_ca_done(&ca);
		cJSON_Delete(secret);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_times_follow_from_the_life),
	    cmocka_unit_test(test_a_rotation_takes_its_steps_in_time),
	    cmocka_unit_test(test_everybody_is_believed_all_the_time),
	    cmocka_unit_test(test_a_ca_that_expired_is_replaced),
	    cmocka_unit_test(test_a_time_to_come_is_not_waited_for),
	    cmocka_unit_test(test_a_ca_whose_time_has_not_come_signs_nothing),
	    cmocka_unit_test(test_what_is_damaged_is_left_out_and_the_rest_counts),
	    cmocka_unit_test(test_keys_of_others_and_leaves_are_no_ca),
	    cmocka_unit_test(test_nothing_at_all_is_damage_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
