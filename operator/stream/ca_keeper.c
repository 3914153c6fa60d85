/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round: read the Secret, which the leader makes when there is none; sign a certificate when ours
 * is old or of another CA; the leader reads the ConfigMap, writes it when it is not the bundle, and
 * does the one step of the rotation that is due. A timer starts the next round; one request at a
 * time. A conflict means that somebody else wrote: the next round reads the result.
 *
 * Only the operator writes the Secret. When it is deleted it is made again from memory, so that
 * agents still trust us. When it is damaged, its valid parts are used, then what is in memory, and
 * the leader writes that. A valid CA that somebody else put there is used as it is.
 */
#include "operator/stream/ca_keeper.h"

#include <time.h>

#include "lib/log.h"
#include "operator/render/json.h"

enum {
	SOON_MS = 50,	  /* after a write: the next step may be due */
	FAILED_MS = 2000, /* also while there is no Secret */
	LOG_S = 60,
	NAME_MAX_LEN = 128,
	NAMES_N = 7,
};

struct ca_keeper {
	struct ca_keeper_options options;
	struct ca_times times;
	uv_timer_t timer;
	struct kube_call *call; /* NULL: none under way */
	bool ending, again;
	char *ns, *bundle;
	char *published; /* the bundle, set by the leader; NULL: none yet */
	char names[4][NAME_MAX_LEN];
	const char *all_names[NAMES_N + 1];
	struct stream_ca ca;  /* as last read or written */
	struct stream_ca due; /* what is being written */
	char version[64];     /* the Secret's; "": it is not there */
	char *signer;	      /* certificate of the CA that signed ours */
	struct stream_tls tls;
	int64_t begin, end; /* of ours */
	bool in_bundle;
	struct ca_keeper_counts counts;
	struct log_limit limit;
};

static int64_t now_of(const struct ca_keeper *k)
{
	return k->options.now ? k->options.now(k->options.arg) : (int64_t)time(NULL);
}

static bool may_write(const struct ca_keeper *k)
{
	return k->options.may_write && k->options.may_write(k->options.arg);
}

static void on_timer(uv_timer_t *timer);

static void look_in(struct ca_keeper *k, uint64_t ms)
{
	if (k->ending)
		return;
	uv_timer_start(&k->timer, on_timer, k->again ? 0 : ms, 0);
	k->again = false;
}

static void rest(struct ca_keeper *k)
{
	look_in(k, (uint64_t)k->times.poll_s * 1000);
}

static void failed(struct ca_keeper *k, const char *what, const char *why)
{
	unsigned int more = 0;

	k->counts.failures++;
	if (log_allowed(&k->limit, LOG_S, &more))
		log_warn("stream", "%s " STREAM_CA_NAME ": %s (%u more like it)", what, why, more);
	look_in(k, FAILED_MS);
}

static void refused(struct ca_keeper *k, const char *what, const struct kube_answer *answer)
{
	failed(k, what, answer->message ? answer->message : "no answer");
}

/* ---- our certificate ------------------------------------------------------------------------- */

static bool must_sign(const struct ca_keeper *k, int64_t now)
{
	return !k->tls.cert_pem || !k->signer || !streq(k->signer, k->ca.current.cert_pem) ||
	       (k->end - now) * 3 <= k->end - k->begin;
}

static int sign(struct ca_keeper *k, struct error *err)
{
	const struct ca_pair *ca = &k->ca.current;
	int64_t now = now_of(k), life_s;
	struct stream_tls tls = {0};
	char *signer;
	int r;

	if (!k->options.renewed || !stream_ca_usable(ca, now) || !must_sign(k, now))
		return 0;
	life_s = MIN(k->times.leaf_s, ca->end - now);
	signer = strdup(ca->cert_pem);
	if (!signer)
		return error_set(err, -ENOMEM, "out of memory");
	r = stream_tls_sign(ca->cert_pem, ca->key_pem, k->all_names, now, life_s, &tls, err);
	if (r < 0) {
		free(signer);
		return r;
	}
	free(k->signer);
	k->signer = signer;
	stream_tls_done(&k->tls);
	k->tls = tls;
	k->begin = now;
	k->end = now + life_s;
	k->counts.signed_certificates++;
	log_info("stream", "shows a new certificate, good for %lld h", (long long)life_s / 3600);
	k->options.renewed(k->options.arg, &k->tls);
	return 0;
}

static void adopt(struct ca_keeper *k, struct stream_ca *ca)
{
	struct error err = {0};

	stream_ca_done(&k->ca);
	k->ca = *ca;
	*ca = (struct stream_ca){0};
	if (sign(k, &err) < 0)
		log_error("stream", "cannot sign the stream's certificate: %s", err.message);
}

/* ---- writing the Secret ---------------------------------------------------------------------- */

static void note_version(struct ca_keeper *k, const cJSON *secret)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(secret, "metadata");
	const char *version =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "resourceVersion"));

	snprintf(k->version, sizeof(k->version), "%s", version ? version : "");
}

static void on_written(void *arg, const struct kube_answer *answer)
{
	struct ca_keeper *k = arg;

	k->call = NULL;
	if (answer->status / 100 != 2) {
		stream_ca_done(&k->due);
		/* Another write or a deletion came first: read the result. */
		if (answer->status == 409 || answer->status == 404)
			look_in(k, SOON_MS);
		else
			refused(k, "cannot write Secret", answer);
		return;
	}
	k->counts.rotations++;
	adopt(k, &k->due);
	look_in(k, SOON_MS);
}

/* Writes k->due. */
static void write_secret(struct ca_keeper *k)
{
	bool create = !k->version[0];
	cJSON *secret = NULL;
	int r = stream_ca_secret(&k->due, k->ns, create ? NULL : k->version, &secret);

	if (r == 0)
		r = create ? kube_create(k->options.client, KUBE_SECRETS, k->ns, secret, on_written,
					 k, &k->call)
			   : kube_update(k->options.client, KUBE_SECRETS, k->ns, STREAM_CA_NAME,
					 secret, on_written, k, &k->call);
	stream_ca_secret_free(secret);
	if (r < 0) {
		stream_ca_done(&k->due);
		failed(k, "cannot write Secret", strerror(-r));
	}
}

static int copy_pair(const struct ca_pair *from, struct ca_pair *ret)
{
	struct ca_pair copy = {.begin = from->begin, .end = from->end};

	if (from->cert_pem && !(copy.cert_pem = strdup(from->cert_pem)))
		return -ENOMEM;
	if (from->key_pem && !(copy.key_pem = strdup(from->key_pem))) {
		free(copy.cert_pem);
		return -ENOMEM;
	}
	*ret = copy;
	return 0;
}

static int copy_ca(const struct stream_ca *from, struct stream_ca *ret)
{
	struct stream_ca copy = {.published = from->published, .switched = from->switched};
	int r = copy_pair(&from->current, &copy.current);

	if (r == 0)
		r = copy_pair(&from->next, &copy.next);
	if (r == 0)
		r = copy_pair(&from->old, &copy.old);
	if (r < 0) {
		stream_ca_done(&copy);
		return r;
	}
	*ret = copy;
	return 0;
}

/* Writes FROM after STEP. */
static void write_step(struct ca_keeper *k, const struct stream_ca *from, enum ca_step step)
{
	struct error err = {0};
	int r = copy_ca(from, &k->due);

	if (r == 0)
		r = stream_ca_step(&k->due, step, &k->times, now_of(k), &err);
	if (r < 0) {
		stream_ca_done(&k->due);
		failed(k, "cannot make", err.message[0] ? err.message : strerror(-r));
		return;
	}
	write_secret(k);
}

/* ---- the bundle ------------------------------------------------------------------------------ */

/* Starts the one step that is due; false when none is. */
static bool go_on(struct ca_keeper *k)
{
	static const char *const said[] = {
	    [CA_MAKE] = "a new CA: there was none that could sign",
	    [CA_ADD] = "a new CA is published beside the one that signs",
	    [CA_PUBLISH] = "agents are given the new CA",
	    [CA_SWITCH] = "the new CA signs",
	    [CA_FORGET] = "the former CA is not published any more",
	};
	enum ca_step step = stream_ca_next(&k->ca, &k->times, now_of(k), k->in_bundle);

	if (step == CA_KEEP || !may_write(k))
		return false;
	log_info("stream", "%s", said[step]);
	write_step(k, &k->ca, step);
	return true;
}

static void bundle_is_there(struct ca_keeper *k)
{
	k->in_bundle = true;
	if (k->bundle || !go_on(k))
		rest(k);
}

static void on_bundle_written(void *arg, const struct kube_answer *answer)
{
	struct ca_keeper *k = arg;

	k->call = NULL;
	if (answer->status / 100 == 2)
		bundle_is_there(k);
	else
		refused(k, "cannot write ConfigMap", answer);
}

static int bundle_of(const struct ca_keeper *k, char **ret)
{
	if (!k->bundle)
		return stream_ca_bundle(&k->ca, ret);
	*ret = strdup(k->bundle);
	return *ret ? 0 : -ENOMEM;
}

static int write_bundle(struct ca_keeper *k, const char *text)
{
	_cleanup_json_ cJSON *map = NULL;
	/* Without the label of rendered objects, which are deleted with the config. */
	int r = json_make(&map,
			  "{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {"
			  "  'name': '" STREAM_CA_NAME "', 'namespace': %s, 'labels': {"
			  "    'app.kubernetes.io/name': 'kiln-operator',"
			  "    'app.kubernetes.io/part-of': 'kiln',"
			  "    'app.kubernetes.io/component': 'operator'}},"
			  " 'data': {'" STREAM_CA_KEY "': %s}}",
			  k->ns, text);

	return r < 0 ? r
		     : kube_apply(k->options.client, KUBE_CONFIG_MAPS, k->ns, STREAM_CA_NAME, map,
				  on_bundle_written, k, &k->call);
}

static void on_bundle(void *arg, const struct kube_answer *answer)
{
	struct ca_keeper *k = arg;
	_cleanup_json_ cJSON *map = NULL;
	_cleanup_free_ char *want = NULL;
	const char *have = NULL;
	int r = bundle_of(k, &want);

	k->call = NULL;
	if (answer->status / 100 == 2 && answer->body)
		map = cJSON_ParseWithLength((const char *)answer->body, answer->len);
	else if (answer->status != 404) {
		refused(k, "cannot read ConfigMap", answer);
		return;
	}
	if (map)
		have = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(
		    cJSON_GetObjectItemCaseSensitive(map, "data"), STREAM_CA_KEY));
	if (r == 0) {
		free(k->published);
		k->published = strdup(want);
	}
	if (r == 0 && have && streq(have, want)) {
		bundle_is_there(k);
		return;
	}
	if (r == 0 && !may_write(k)) {
		rest(k);
		return;
	}
	if (r == 0)
		r = write_bundle(k, want);
	if (r < 0)
		failed(k, "cannot write ConfigMap", strerror(-r));
}

static void look_at_bundle(struct ca_keeper *k)
{
	int r;

	if (!may_write(k)) {
		rest(k);
		return;
	}
	k->in_bundle = false;
	r = kube_get(k->options.client, KUBE_CONFIG_MAPS, k->ns, STREAM_CA_NAME, on_bundle, k,
		     &k->call);
	if (r < 0)
		failed(k, "cannot read ConfigMap", strerror(-r));
}

/* ---- reading the Secret ---------------------------------------------------------------------- */

static void tell_damage(struct ca_keeper *k, const char *what)
{
	char note[256];

	k->counts.repairs++;
	snprintf(note, sizeof(note), "Secret " STREAM_CA_NAME " is damaged and replaced: %.150s",
		 what);
	log_warn("stream", "%s", note);
	if (k->options.events)
		recorder_emit(k->options.events, (struct kube_event){.kind = KUBE_SECRETS,
								     .ns = k->ns,
								     .name = STREAM_CA_NAME,
								     .uid = "",
								     .type = "Warning",
								     .reason = "Damaged",
								     .action = "Replace",
								     .note = note});
}

/*
 * Replaces a damaged Secret. READ: its valid parts. Only the leader writes; the others continue
 * with the CA that they have.
 */
static void repair(struct ca_keeper *k, struct stream_ca *read, const char *what)
{
	int64_t now = now_of(k);
	bool whole = stream_ca_usable(&read->current, now);
	bool known = stream_ca_usable(&k->ca.current, now);
	enum ca_step step = CA_KEEP;

	if (!may_write(k)) {
		if (whole || !known)
			adopt(k, read);
		rest(k);
		return;
	}
	tell_damage(k, what);
	if (!whole && !known)
		step = stream_ca_usable(&read->next, now) ? CA_SWITCH : CA_MAKE;
	write_step(k, !whole && known ? &k->ca : read, step);
}

/* There is no Secret: the leader makes it, from memory if it can; the others look again soon. */
static void create(struct ca_keeper *k)
{
	bool known = stream_ca_usable(&k->ca.current, now_of(k));

	k->version[0] = '\0';
	if (!may_write(k)) {
		look_in(k, FAILED_MS);
		return;
	}
	write_step(k, &k->ca, known ? CA_KEEP : CA_MAKE);
}

static void on_secret(void *arg, const struct kube_answer *answer)
{
	struct ca_keeper *k = arg;
	struct stream_ca read = {0};
	struct error err = {0};
	cJSON *secret;
	int damage = 0, r;

	k->call = NULL;
	if (answer->status == 404) {
		create(k);
		return;
	}
	if (answer->status / 100 != 2 || !answer->body) {
		refused(k, "cannot read Secret", answer);
		return;
	}
	secret = cJSON_ParseWithLength((const char *)answer->body, answer->len);
	if (!secret) {
		failed(k, "cannot read Secret", "no JSON");
		return;
	}
	note_version(k, secret);
	r = stream_ca_parse(secret, &read, &damage, &err);
	stream_ca_secret_free(secret);
	if (r < 0) {
		failed(k, "cannot read Secret", strerror(-r));
		return;
	}
	if (damage < 0) {
		repair(k, &read, err.message);
	} else {
		adopt(k, &read);
		look_at_bundle(k);
	}
	stream_ca_done(&read);
}

static void on_timer(uv_timer_t *timer)
{
	struct ca_keeper *k = timer->data;
	int r;

	if (k->bundle) {
		look_at_bundle(k);
		return;
	}
	r = kube_get(k->options.client, KUBE_SECRETS, k->ns, STREAM_CA_NAME, on_secret, k,
		     &k->call);
	if (r < 0)
		failed(k, "cannot read Secret", strerror(-r));
}

/* ---- life ------------------------------------------------------------------------------------ */

void ca_keeper_look(struct ca_keeper *k)
{
	if (!k)
		return;
	if (k->call)
		k->again = true; /* the next round begins when this one has ended */
	else
		look_in(k, 0);
}

const struct stream_tls *ca_keeper_certificate(const struct ca_keeper *k)
{
	return k && k->tls.cert_pem ? &k->tls : NULL;
}

void ca_keeper_read(const struct ca_keeper *k, struct ca_keeper_counts *ret)
{
	*ret = k->counts;
	ret->ca_end = k->ca.current.end;
	ret->certificate_end = k->end;
	ret->bundle_certificates =
	    !!k->ca.current.cert_pem + !!k->ca.next.cert_pem + !!k->ca.old.cert_pem;
}

static void make_names(struct ca_keeper *k)
{
	static const char *const forms[] = {"kiln-operator-stream.%s.svc",
					    "kiln-operator-stream.%s.svc.cluster.local",
					    "kiln-operator-stream.%s"};
	size_t n = 0;

	for (; n < ARRAY_SIZE(forms); n++) {
		snprintf(k->names[n], sizeof(k->names[n]), forms[n], k->ns);
		k->all_names[n] = k->names[n];
	}
	k->all_names[n++] = "kiln-operator-stream";
	k->all_names[n++] = "localhost";
	k->all_names[n++] = "127.0.0.1";
	k->all_names[n++] = "::1";
	k->all_names[n] = NULL;
}

int ca_keeper_new(const struct ca_keeper_options *options, struct ca_keeper **ret,
		  struct error *err)
{
	struct ca_keeper *k = calloc(1, sizeof(*k));

	if (!k)
		return error_set(err, -ENOMEM, "out of memory");
	k->options = *options;
	ca_times_init(&k->times, options->life_s ? options->life_s : STREAM_CA_LIFE_S);
	k->ns = strdup(options->ns);
	k->bundle = options->bundle ? strdup(options->bundle) : NULL;
	if (!k->ns || (options->bundle && !k->bundle) ||
	    uv_timer_init(options->loop, &k->timer) < 0) {
		free(k->bundle);
		free(k->ns);
		free(k);
		return error_set(err, -ENOMEM, "out of memory");
	}
	k->timer.data = k;
	make_names(k);
	look_in(k, 0);
	*ret = k;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct ca_keeper *ca_keeper_free(struct ca_keeper *k)
{
	if (!k)
		return NULL;
	k->ending = true;
	if (k->call)
		kube_cancel(k->call);
	stream_ca_done(&k->ca);
	stream_ca_done(&k->due);
	stream_tls_done(&k->tls);
	free(k->signer);
	free(k->bundle);
	free(k->ns);
	uv_close((uv_handle_t *)&k->timer, on_closed);
	return NULL;
}

const char *ca_keeper_bundle(const struct ca_keeper *k)
{
	return k->published;
}
