/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A check waits, runs or is answered. The token is in the check only, wiped with it; what is kept
 * has its SHA-256. Loop thread only.
 */
#include "operator/stream/auth.h"

#include <openssl/sha.h>
#include <time.h>
#include <uthash.h>

#include "lib/grpc_client.h"
#include "operator/cache/kept.h"

struct kept_grant {
	uint8_t key[SHA256_DIGEST_LENGTH];
	enum stream_refusal refusal;
	uint64_t until_ms, token_until_ms;
	UT_hash_handle hh;
	char node[];
};

struct stream_check {
	struct stream_auth *auth;
	struct stream_check *prev, *next; /* auth->waiting, while it does */
	struct kube_call *call;		  /* while it runs */
	bool running;
	uint8_t key[SHA256_DIGEST_LENGTH];
	uint64_t token_until_ms;
	void (*done)(void *arg, const struct stream_grant *grant);
	void *arg;
	char token[];
};

struct stream_auth {
	struct stream_auth_options o;
	struct kept_grant *kept;
	struct stream_check *waiting, *waiting_last;
	struct stream_auth_counts counts;
	struct pod_info info; /* scratch: it is large */
};

static const struct {
	const char *name, *text;
} refusals[STREAM_REFUSAL_COUNT] = {{"granted", ""},
#define X(id, name, text) {name, text},
				    STREAM_REFUSALS(X)
#undef X
};

const char *stream_refusal_name(enum stream_refusal refusal)
{
	return refusals[refusal].name;
}

const char *stream_refusal_text(enum stream_refusal refusal)
{
	return refusals[refusal].text;
}

int stream_refusal_status(enum stream_refusal refusal)
{
	switch (refusal) {
	case STREAM_GRANTED:
		return RPC_OK;
	case STREAM_OTHER_ACCOUNT:
	case STREAM_NO_NODE:
		return RPC_PERMISSION_DENIED;
	case STREAM_UNKNOWN_POD:
	case STREAM_API_SERVER:
	case STREAM_NO_MEMORY:
		return RPC_UNAVAILABLE;
	default:
		return RPC_UNAUTHENTICATED;
	}
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void drop(struct stream_auth *auth, struct kept_grant *k)
{
	HASH_DEL(auth->kept, k);
	free(k);
	auth->counts.kept--;
}

static void run_waiting(struct stream_auth *auth);

void stream_auth_sweep(struct stream_auth *auth)
{
	uint64_t now = uv_now(auth->o.loop);
	struct kept_grant *k, *next;

	HASH_ITER (hh, auth->kept, k, next)
		if (k->until_ms <= now)
			drop(auth, k);
	run_waiting(auth);
}

static bool worth_keeping(enum stream_refusal refusal)
{
	return refusal == STREAM_GRANTED || refusal == STREAM_REJECTED ||
	       refusal == STREAM_OTHER_ACCOUNT || refusal == STREAM_NO_NODE;
}

/* Without memory it is asked again next time. */
static void keep(struct stream_auth *auth, const uint8_t *key, const struct stream_grant *grant)
{
	size_t n = strlen(grant->node) + 1;
	struct kept_grant *k;

	HASH_FIND(hh, auth->kept, key, SHA256_DIGEST_LENGTH, k);
	if (k)
		drop(auth, k);
	if (!worth_keeping(grant->refusal))
		return;
	if (auth->counts.kept >= STREAM_AUTH_CACHE)
		drop(auth, auth->kept); /* the first of the table is the oldest */
	k = malloc(sizeof(*k) + n);
	if (!k)
		return;
	memcpy(k->key, key, sizeof(k->key));
	memcpy(k->node, grant->node, n);
	k->refusal = grant->refusal;
	k->until_ms = grant->until_ms;
	k->token_until_ms = grant->token_until_ms;
	HASH_ADD(hh, auth->kept, key, sizeof(k->key), k);
	auth->counts.kept++;
}

static bool recall(struct stream_auth *auth, const uint8_t *key, struct stream_grant *ret)
{
	struct kept_grant *k;

	HASH_FIND(hh, auth->kept, key, SHA256_DIGEST_LENGTH, k);
	if (!k || k->until_ms <= uv_now(auth->o.loop))
		return false;
	*ret = (struct stream_grant){
	    .refusal = k->refusal, .until_ms = k->until_ms, .token_until_ms = k->token_until_ms};
	snprintf(ret->node, sizeof(ret->node), "%s", k->node);
	auth->counts.cached++;
	return true;
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool is_agent(const struct stream_auth *auth, const char *username)
{
	char want[512];

	snprintf(want, sizeof(want), "system:serviceaccount:%s:%s", auth->o.ns, STREAM_ACCOUNT);
	return streq(username, want);
}

/* The node of the pod that the token is bound to, from the cache. */
static enum stream_refusal node_of_pod(struct stream_auth *auth,
				       const struct kube_token_review *review,
				       char ret[STREAM_NODE_MAX + 1])
{
	struct slice text = {review->pod_uid, strlen(review->pod_uid)};
	const struct pod *pod;
	uint8_t uid[16];

	if (!text.n)
		return STREAM_NO_NODE;
	(void)kept_uid(text, uid);
	pod = pod_store_find_uid(auth->o.pods, uid);
	if (!pod)
		return STREAM_UNKNOWN_POD;
	pod_unpack(auth->o.pods, pod, &auth->info);
	/* Another pod can be found by that uid (mirror pods): it must be the very one. */
	if (!streq(auth->info.uid_text, review->pod_uid) ||
	    !streq(auth->info.name, review->pod_name) || !streq(auth->info.ns, auth->o.ns) ||
	    !auth->info.node[0] || strlen(auth->info.node) > STREAM_NODE_MAX)
		return STREAM_UNKNOWN_POD;
	snprintf(ret, STREAM_NODE_MAX + 1, "%s", auth->info.node);
	return STREAM_GRANTED;
}

static void judge(struct stream_check *c, const struct kube_token_review *review,
		  const struct kube_answer *answer, struct stream_grant *ret)
{
	struct stream_auth *auth = c->auth;
	uint64_t now = uv_now(auth->o.loop);

	*ret = (struct stream_grant){.token_until_ms = c->token_until_ms};
	if (answer->status != 200 && answer->status != 201) {
		auth->counts.review_errors++;
		ret->refusal = STREAM_API_SERVER;
	} else if (!review->authenticated) {
		ret->refusal = STREAM_REJECTED;
	} else if (!is_agent(auth, review->username)) {
		ret->refusal = STREAM_OTHER_ACCOUNT;
	} else if (review->node_name[0] && strlen(review->node_name) <= STREAM_NODE_MAX) {
		snprintf(ret->node, sizeof(ret->node), "%s", review->node_name);
	} else {
		ret->refusal = node_of_pod(auth, review, ret->node);
	}
	ret->until_ms = now + STREAM_AUTH_REFUSED_MS;
	if (ret->refusal == STREAM_GRANTED)
		ret->until_ms = MIN(now + STREAM_AUTH_KEEP_MS, c->token_until_ms);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void check_free(struct stream_check *c)
{
	explicit_bzero(c->token, strlen(c->token));
	free(c);
}

static void enqueue(struct stream_auth *auth, struct stream_check *c)
{
	c->prev = auth->waiting_last;
	if (c->prev)
		c->prev->next = c;
	else
		auth->waiting = c;
	auth->waiting_last = c;
	auth->counts.waiting++;
}

static void dequeue(struct stream_auth *auth, struct stream_check *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		auth->waiting = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		auth->waiting_last = c->prev;
	c->prev = c->next = NULL;
	auth->counts.waiting--;
}

static void on_reviewed(void *arg, const struct kube_token_review *review,
			const struct kube_answer *answer)
{
	struct stream_check *c = arg;
	struct stream_auth *auth = c->auth;
	struct stream_grant grant;

	auth->counts.running--;
	judge(c, review, answer, &grant);
	keep(auth, c->key, &grant);
	run_waiting(auth);
	c->done(c->arg, &grant);
	check_free(c);
}

static bool run(struct stream_check *c)
{
	struct stream_auth *auth = c->auth;

	if (auth->o.review(auth->o.arg, c->token, on_reviewed, c, &c->call) < 0)
		return false;
	c->running = true;
	auth->counts.running++;
	auth->counts.reviews++;
	return true;
}

/* One that cannot be asked now stays the first, for when another one is back. */
static void run_waiting(struct stream_auth *auth)
{
	struct stream_check *c;

	while (auth->waiting && auth->counts.running < STREAM_AUTH_RUNNING) {
		c = auth->waiting;
		dequeue(auth, c);
		if (run(c))
			continue;
		c->next = auth->waiting;
		if (c->next)
			c->next->prev = c;
		else
			auth->waiting_last = c;
		auth->waiting = c;
		auth->counts.waiting++;
		return;
	}
}

static int refuse(enum stream_refusal refusal, struct stream_grant *ret)
{
	*ret = (struct stream_grant){.refusal = refusal};
	return 1;
}

static int64_t wall_s(const struct stream_auth *auth)
{
	return auth->o.now_s ? auth->o.now_s(auth->o.arg) : (int64_t)time(NULL);
}

int stream_auth_check(struct stream_auth *auth, const char *authorization, bool fresh,
		      void (*done)(void *arg, const struct stream_grant *grant), void *arg,
		      struct stream_grant *ret_grant, struct stream_check **ret_check)
{
	const char *token = authorization + strlen("Bearer ");
	uint8_t key[SHA256_DIGEST_LENGTH];
	struct stream_check *c;
	int64_t expiry, left_s;

	if (strncasecmp(authorization, "Bearer ", strlen("Bearer ")) != 0 || !token[0])
		return refuse(STREAM_NO_TOKEN, ret_grant);
	if (stream_token_expiry(token, &expiry) < 0)
		return refuse(STREAM_MALFORMED, ret_grant);
	left_s = expiry - wall_s(auth);
	if (left_s <= 0)
		return refuse(STREAM_EXPIRED, ret_grant);
	SHA256((const unsigned char *)token, strlen(token), key);
	if (!fresh && recall(auth, key, ret_grant))
		return 1;
	c = calloc(1, sizeof(*c) + strlen(token) + 1);
	if (!c)
		return refuse(STREAM_NO_MEMORY, ret_grant);
	c->auth = auth;
	c->done = done;
	c->arg = arg;
	c->token_until_ms = uv_now(auth->o.loop) + (uint64_t)left_s * 1000;
	memcpy(c->key, key, sizeof(key));
	memcpy(c->token, token, strlen(token) + 1);
	enqueue(auth, c);
	run_waiting(auth);
	if (!c->running && !auth->counts.running) { /* nothing will come back to try it again */
		dequeue(auth, c);
		check_free(c);
		return refuse(STREAM_API_SERVER, ret_grant);
	}
	*ret_check = c;
	return 0;
}

void stream_check_cancel(struct stream_check *c)
{
	struct stream_auth *auth = c->auth;

	if (c->running) {
		auth->o.cancel(auth->o.arg, c->call);
		auth->counts.running--;
		run_waiting(auth);
	} else {
		dequeue(auth, c);
	}
	check_free(c);
}

void stream_auth_read(const struct stream_auth *auth, struct stream_auth_counts *ret)
{
	*ret = auth->counts;
}

int stream_auth_new(const struct stream_auth_options *options, struct stream_auth **ret)
{
	struct stream_auth *auth = calloc(1, sizeof(*auth));

	if (!auth)
		return -ENOMEM;
	auth->o = *options;
	*ret = auth;
	return 0;
}

struct stream_auth *stream_auth_free(struct stream_auth *auth)
{
	struct kept_grant *k, *next;

	if (!auth)
		return NULL;
	HASH_ITER (hh, auth->kept, k, next)
		drop(auth, k);
	free(auth);
	return NULL;
}
