/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rotation. Each step is one write of the Secret, so that the next leader continues from what
 * is written there; a step cannot be done twice, because the second write has an old
 * resourceVersion.
 *
 *	CA_ADD -> CA_PUBLISH -> overlap_s -> CA_SWITCH -> leaf_s -> CA_FORGET
 *
 * Between CA_ADD and CA_SWITCH nothing is signed with the next CA, and every agent's bundle, old or
 * new, has the current one. A replica that cannot read the Secret any more presents a certificate
 * of the old CA until that expires: until then the bundle has the old one.
 *
 * A damaged part is left out: if the current CA is damaged the next one signs at once; without a
 * next one a new CA is made, and agents trust it as soon as their kubelet has updated the bundle.
 */
#include "operator/stream/ca.h"

#include <openssl/evp.h>

#include "lib/buf.h"
#include "lib/parse.h"
#include "operator/render/json.h"
#include "operator/stream/tls.h"

enum { PEM_MAX = 64 << 10, BUNDLE_MAX = 3 * PEM_MAX, DAY_S = 86400 };

void ca_times_init(struct ca_times *ret, int64_t life_s)
{
	*ret = (struct ca_times){.life_s = life_s,
				 .leaf_s = MAX(MIN((int64_t)30 * DAY_S, life_s / 5), 1),
				 .overlap_s = MAX(MIN((int64_t)3600, life_s / 24), 1)};
	ret->poll_s = MAX(MIN((int64_t)60, ret->overlap_s / 4), 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void pair_done(struct ca_pair *pair)
{
	free(pair->cert_pem);
	stream_key_free(pair->key_pem);
	*pair = (struct ca_pair){0};
}

void stream_ca_done(struct stream_ca *ca)
{
	pair_done(&ca->current);
	pair_done(&ca->next);
	pair_done(&ca->old);
	*ca = (struct stream_ca){0};
}

static struct ca_pair take_pair(struct ca_pair *pair)
{
	struct ca_pair taken = *pair;

	*pair = (struct ca_pair){0};
	return taken;
}

/* ---- the rules ------------------------------------------------------------------------------- */

/*
 * True when a third of its life is left. The time before it was made (STREAM_CLOCK_SKEW_S) is not
 * part of its life.
 */
static bool wants_successor(const struct ca_pair *pair, int64_t now)
{
	return pair->end - now < (pair->end - pair->begin - STREAM_CLOCK_SKEW_S) / 3;
}

/* Nobody accepts what an expired CA has signed. */
static bool may_forget(const struct stream_ca *ca, const struct ca_times *times, int64_t now)
{
	return ca->old.cert_pem &&
	       (now >= ca->old.end || now >= ca->switched + times->leaf_s + 2 * times->poll_s);
}

/* Agents refuse a CA before its notBefore. That lies in the future when an admin made the CA for
 * later, or a replica whose clock is ahead of ours made it. */
static bool has_begun(const struct ca_pair *pair, int64_t now)
{
	return pair->begin <= now;
}

enum ca_step stream_ca_next(const struct stream_ca *ca, const struct ca_times *times, int64_t now,
			    bool in_bundle)
{
	bool has_next = stream_ca_usable(&ca->next, now);

	if (!stream_ca_usable(&ca->current, now))
		return has_next ? CA_SWITCH : CA_MAKE;
	if (!has_begun(&ca->current, now) && has_next && has_begun(&ca->next, now))
		return CA_SWITCH;
	if (may_forget(ca, times, now))
		return CA_FORGET;
	if (!has_next)
		return wants_successor(&ca->current, now) ? CA_ADD : CA_KEEP;
	/* A time in the future was written with a wrong clock; waiting for it could take years. */
	if (!ca->published || ca->published > now)
		return in_bundle ? CA_PUBLISH : CA_KEEP;
	return now >= ca->published + times->overlap_s && has_begun(&ca->next, now) ? CA_SWITCH
										    : CA_KEEP;
}

static int make_pair(struct ca_pair *pair, const struct ca_times *times, int64_t now,
		     struct error *err)
{
	struct ca_pair made = {.begin = now - STREAM_CLOCK_SKEW_S, .end = now + times->life_s};
	int r = stream_tls_make_ca(now, times->life_s, &made.cert_pem, &made.key_pem, err);

	if (r < 0)
		return r;
	pair_done(pair);
	*pair = made;
	return 0;
}

static void switch_over(struct stream_ca *ca, int64_t now)
{
	if (ca->current.cert_pem) {
		pair_done(&ca->old);
		ca->old = take_pair(&ca->current);
		ca->old.key_pem = stream_key_free(ca->old.key_pem);
	}
	ca->current = take_pair(&ca->next);
	ca->published = 0;
	ca->switched = now;
}

int stream_ca_step(struct stream_ca *ca, enum ca_step step, const struct ca_times *times,
		   int64_t now, struct error *err)
{
	switch (step) {
	case CA_KEEP:
		return 0;
	case CA_MAKE:
		return make_pair(&ca->current, times, now, err);
	case CA_ADD:
		ca->published = 0;
		return make_pair(&ca->next, times, now, err);
	case CA_PUBLISH:
		ca->published = now;
		return 0;
	case CA_SWITCH:
		switch_over(ca, now);
		return 0;
	case CA_FORGET:
		pair_done(&ca->old);
		ca->switched = 0;
		return 0;
	}
	return error_set(err, -EINVAL, "no such step");
}

/* ---- the Secret ------------------------------------------------------------------------------ */

/* The caller wipes and frees; NULL: absent. Base64 with padding, as the API server writes it. */
static int get_data(const cJSON *secret, const char *key, char **ret)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(secret, "data");
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(data, key));
	size_t n = text ? strlen(text) : 0;
	_cleanup_free_ char *out = NULL;
	int len;

	*ret = NULL;
	if (!n)
		return 0;
	if (n % 4 || n > PEM_MAX)
		return -EINVAL;
	out = calloc(1, n / 4 * 3 + 1);
	if (!out)
		return -ENOMEM;
	len = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
	if (len < 0 || strlen(out) + (text[n - 1] == '=') + (text[n - 2] == '=') < (size_t)len) {
		explicit_bzero(out, n / 4 * 3);
		return -EINVAL;
	}
	*ret = TAKE_PTR(out);
	return 0;
}

static int damaged(int *ret_damage, const char *part, const char *why, struct error *err)
{
	if (!*ret_damage)
		*ret_damage = error_set(err, -EINVAL, "%s: %s", part, why);
	return 0;
}

/* Reads PART.crt and PART.key; a pair that is not valid is left out. */
static int parse_pair(const cJSON *secret, const char *part, bool wants_key, struct ca_pair *ret,
		      int *ret_damage, struct error *err)
{
	struct ca_pair pair = {0};
	struct error why = {0};
	char name[16];
	int r, s = 0;

	snprintf(name, sizeof(name), "%s.crt", part);
	r = get_data(secret, name, &pair.cert_pem);
	snprintf(name, sizeof(name), "%s.key", part);
	if (wants_key)
		s = get_data(secret, name, &pair.key_pem);
	if (r == -ENOMEM || s == -ENOMEM) {
		pair_done(&pair);
		return -ENOMEM;
	}
	if (r == 0 && s == 0 && !pair.cert_pem && !pair.key_pem)
		return 0;
	if (r < 0 || s < 0 || !pair.cert_pem || (wants_key && !pair.key_pem))
		r = error_set(&why, -EINVAL, "certificate or key is missing, or no base64");
	else
		r = stream_tls_check_ca(pair.cert_pem, pair.key_pem, &pair.begin, &pair.end, &why);
	if (r < 0) {
		pair_done(&pair);
		return damaged(ret_damage, part, why.message, err);
	}
	*ret = pair;
	return 0;
}

static int parse_time(const cJSON *secret, const char *key, int64_t *ret, int *ret_damage,
		      struct error *err)
{
	_cleanup_free_ char *text = NULL;
	int r = get_data(secret, key, &text);

	if (r == -ENOMEM)
		return r;
	if (r < 0 || (text && (parse_i64(text, ret) < 0 || *ret < 0))) {
		*ret = 0;
		return damaged(ret_damage, key, "no time", err);
	}
	return 0;
}

int stream_ca_parse(const cJSON *secret, struct stream_ca *ret, int *ret_damage, struct error *err)
{
	struct stream_ca ca = {0};
	int damage = 0;
	int r = parse_pair(secret, "ca", true, &ca.current, &damage, err);

	if (r == 0)
		r = parse_pair(secret, "next", true, &ca.next, &damage, err);
	if (r == 0)
		r = parse_pair(secret, "old", false, &ca.old, &damage, err);
	if (r == 0)
		r = parse_time(secret, "published", &ca.published, &damage, err);
	if (r == 0)
		r = parse_time(secret, "switched", &ca.switched, &damage, err);
	if (r < 0) {
		stream_ca_done(&ca);
		return error_set(err, r, "out of memory");
	}
	if (!ca.current.cert_pem)
		damaged(&damage, "ca", "certificate and key are missing", err);
	*ret = ca;
	*ret_damage = damage;
	return 0;
}

static bool put_data(cJSON *data, const char *part, const char *suffix, const char *text)
{
	char name[16];
	size_t n = text ? strlen(text) : 0;
	char *out;
	bool good;

	if (!n)
		return true;
	out = calloc(1, (n + 2) / 3 * 4 + 1);
	if (!out)
		return false;
	EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
	snprintf(name, sizeof(name), "%s%s", part, suffix);
	good = cJSON_AddStringToObject(data, name, out) != NULL;
	stream_key_free(out);
	return good;
}

static bool put_time(cJSON *data, const char *key, int64_t time)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)time);
	return !time || put_data(data, key, "", text);
}

int stream_ca_secret(const struct stream_ca *ca, const char *ns, const char *version, cJSON **ret)
{
	cJSON *secret = NULL, *data;
	int r = json_make(&secret,
			  "{'apiVersion': 'v1', 'kind': 'Secret', 'type': 'Opaque',"
			  " 'metadata': {'name': '" STREAM_CA_NAME "', 'namespace': %s,"
			  "  'resourceVersion': %s, 'labels': {"
			  "    'app.kubernetes.io/name': 'kiln-operator',"
			  "    'app.kubernetes.io/part-of': 'kiln',"
			  "    'app.kubernetes.io/component': 'operator'}}}",
			  ns, version);

	if (r < 0)
		return r;
	data = cJSON_AddObjectToObject(secret, "data");
	if (!data || !put_data(data, "ca", ".crt", ca->current.cert_pem) ||
	    !put_data(data, "ca", ".key", ca->current.key_pem) ||
	    !put_data(data, "next", ".crt", ca->next.cert_pem) ||
	    !put_data(data, "next", ".key", ca->next.key_pem) ||
	    !put_data(data, "old", ".crt", ca->old.cert_pem) ||
	    !put_time(data, "published", ca->published) ||
	    !put_time(data, "switched", ca->switched)) {
		stream_ca_secret_free(secret);
		return -ENOMEM;
	}
	*ret = secret;
	return 0;
}

void stream_ca_secret_free(cJSON *secret)
{
	const cJSON *data = cJSON_GetObjectItemCaseSensitive(secret, "data");

	for (cJSON *i = data ? data->child : NULL; i; i = i->next)
		if (i->valuestring)
			explicit_bzero(i->valuestring, strlen(i->valuestring));
	cJSON_Delete(secret);
}

int stream_ca_bundle(const struct stream_ca *ca, char **ret)
{
	const struct ca_pair *const pairs[] = {&ca->current, &ca->next, &ca->old};
	_cleanup_(buf_done) struct buf out;

	buf_init(&out, BUNDLE_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++)
		if (pairs[i]->cert_pem) {
			buf_puts(&out, pairs[i]->cert_pem);
			if (out.data && out.data[out.len - 1] != '\n')
				buf_puts(&out, "\n");
		}
	buf_puts(&out, "");
	if (buf_error(&out) < 0)
		return buf_error(&out);
	*ret = buf_take(&out);
	return *ret ? 0 : -EINVAL;
}
