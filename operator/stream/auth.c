/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A check waits in one of two queues, runs or is answered. The token is in the check only, and
 * wiped with it; answers are kept under its SHA-256. A check that runs has drawn one review from
 * the budget; a granted token gives it back. Loop thread only.
 */
#include "operator/stream/auth.h"

#include <openssl/sha.h>
#include <time.h>

#include "lib/rpc_status.h"
#include "operator/cache/kept.h"
#include "operator/stream/grant_cache.h"
#include "operator/stream/review_budget.h"

/* AGENTS: tokens that claim to be of an agent's pod which the cache knows. Those go first. */
enum lane { LANE_AGENTS, LANE_OTHERS, LANE_COUNT };

struct stream_check {
	struct stream_auth *auth;
	struct stream_check *prev, *next; /* of its queue, while it waits */
	struct kube_call *call;		  /* while it runs */
	bool running;
	enum lane lane;
	uint8_t pod_uid[16]; /* LANE_AGENTS: the pod that the token claims */
	struct review_account account;
	uint8_t key[SHA256_DIGEST_LENGTH];
	uint64_t token_until_ms;
	void (*done)(void *arg, const struct stream_grant *grant);
	void *arg;
	char token[];
};

struct stream_auth {
	struct stream_auth_options o;
	struct grant_cache *kept;
	struct review_budget *budget;
	struct {
		struct stream_check *first, *last;
		size_t waiting, running;
	} lanes[LANE_COUNT];
	struct stream_auth_counts counts;
	bool away;	      /* the last review got no answer */
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
	case STREAM_BUSY:
	case STREAM_NO_MEMORY:
		return RPC_UNAVAILABLE;
	default:
		return RPC_UNAUTHENTICATED;
	}
}

/* ---- kept answers ---------------------------------------------------------------------------- */

static bool run_waiting(struct stream_auth *auth);

void stream_auth_sweep(struct stream_auth *auth)
{
	uint64_t now = uv_now(auth->o.loop);

	grant_cache_sweep(auth->kept, now);
	review_budget_sweep(auth->budget, now);
	(void)run_waiting(auth);
}

static bool worth_keeping(enum stream_refusal refusal)
{
	return refusal == STREAM_GRANTED || refusal == STREAM_REJECTED ||
	       refusal == STREAM_OTHER_ACCOUNT || refusal == STREAM_NO_NODE;
}

static void keep(struct stream_auth *auth, const uint8_t *key, const struct stream_grant *grant)
{
	if (worth_keeping(grant->refusal))
		grant_cache_put(auth->kept, key, grant);
	else
		grant_cache_drop(auth->kept, key);
}

/*
 * False when the pod of the grant is gone, or is on another node: the grant is not valid any more.
 */
static bool pod_is_there(struct stream_auth *auth, const struct stream_grant *grant)
{
	const struct pod *pod;

	if (!grant->has_pod)
		return true;
	pod = pod_store_find_uid(auth->o.pods, grant->pod_uid);
	if (!pod)
		return false;
	pod_unpack(auth->o.pods, pod, &auth->info);
	return streq(auth->info.node, grant->node);
}

static bool recall(struct stream_auth *auth, const uint8_t *key, struct stream_grant *ret)
{
	uint64_t now = uv_now(auth->o.loop);
	struct stream_grant grant;

	if (!grant_cache_get(auth->kept, key, &grant) || !pod_is_there(auth, &grant))
		return false;
	if (grant.until_ms > now) {
		auth->counts.cached++;
	} else if (auth->away && grant.refusal == STREAM_GRANTED && grant.token_until_ms > now) {
		auth->counts.stale++;
		grant.until_ms = MIN(now + auth->o.away_ms, grant.token_until_ms);
	} else {
		return false;
	}
	*ret = grant;
	return true;
}

bool stream_auth_is_away(const struct stream_auth *auth)
{
	return auth->away;
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool is_account(const struct stream_auth *auth, const char *username, const char *account)
{
	char want[512];

	snprintf(want, sizeof(want), "system:serviceaccount:%s:%s", auth->o.ns, account);
	return streq(username, want);
}

static bool is_agent(const struct stream_auth *auth, const char *username)
{
	return is_account(auth, username, STREAM_ACCOUNT);
}

static bool is_controller(const struct stream_auth *auth, const char *username)
{
	return is_account(auth, username, STREAM_CONTROLLER);
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
	/* The look-up by uid may find another pod (mirror pods claim a second uid). */
	if (!streq(auth->info.uid_text, review->pod_uid) ||
	    !streq(auth->info.name, review->pod_name) || !streq(auth->info.ns, auth->o.ns) ||
	    !auth->info.node[0] || strlen(auth->info.node) > STREAM_NODE_MAX)
		return STREAM_UNKNOWN_POD;
	snprintf(ret, STREAM_NODE_MAX + 1, "%s", auth->info.node);
	return STREAM_GRANTED;
}

static void judge_agent(struct stream_auth *auth, const struct kube_token_review *review,
			struct stream_grant *ret)
{
	struct slice uid = {review->pod_uid, strlen(review->pod_uid)};

	ret->has_pod = uid.n && kept_uid(uid, ret->pod_uid);
	if (review->node_name[0] && strlen(review->node_name) <= STREAM_NODE_MAX)
		snprintf(ret->node, sizeof(ret->node), "%s", review->node_name);
	else
		ret->refusal = node_of_pod(auth, review, ret->node);
}

static void judge(struct stream_check *c, const struct kube_token_review *review,
		  const struct kube_answer *answer, struct stream_grant *ret)
{
	struct stream_auth *auth = c->auth;
	uint64_t now = uv_now(auth->o.loop);

	*ret = (struct stream_grant){.token_until_ms = c->token_until_ms};
	auth->away = answer->status != 200 && answer->status != 201;
	if (auth->away) {
		auth->counts.review_errors++;
		ret->refusal = STREAM_API_SERVER;
		(void)recall(auth, c->key, ret);
		return;
	}
	if (!review->authenticated)
		ret->refusal = STREAM_REJECTED;
	else if (is_controller(auth, review->username))
		ret->controller = true;
	else if (is_agent(auth, review->username))
		judge_agent(auth, review, ret);
	else
		ret->refusal = STREAM_OTHER_ACCOUNT;
	ret->until_ms = now + STREAM_AUTH_REFUSED_MS;
	if (ret->refusal == STREAM_GRANTED)
		ret->until_ms = MIN(now + auth->o.keep_ms, c->token_until_ms);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void check_free(struct stream_check *c)
{
	explicit_bzero(c->token, strlen(c->token));
	free(c);
}

static void enqueue(struct stream_auth *auth, struct stream_check *c, bool first)
{
	struct stream_check **head = &auth->lanes[c->lane].first,
			    **tail = &auth->lanes[c->lane].last;

	c->prev = first ? NULL : *tail;
	c->next = first ? *head : NULL;
	*(c->prev ? &c->prev->next : head) = c;
	*(c->next ? &c->next->prev : tail) = c;
	auth->lanes[c->lane].waiting++;
	auth->counts.waiting++;
}

static void dequeue(struct stream_auth *auth, struct stream_check *c)
{
	*(c->prev ? &c->prev->next : &auth->lanes[c->lane].first) = c->next;
	*(c->next ? &c->next->prev : &auth->lanes[c->lane].last) = c->prev;
	c->prev = c->next = NULL;
	auth->lanes[c->lane].waiting--;
	auth->counts.waiting--;
}

static void set_running(struct stream_check *c, bool running)
{
	struct stream_auth *auth = c->auth;

	c->running = running;
	auth->lanes[c->lane].running += running ? 1 : -1;
	auth->counts.running += running ? 1 : -1;
}

static void on_reviewed(void *arg, const struct kube_token_review *review,
			const struct kube_answer *answer)
{
	struct stream_check *c = arg;
	struct stream_auth *auth = c->auth;
	struct stream_grant grant;

	set_running(c, false);
	judge(c, review, answer, &grant);
	if (grant.refusal == STREAM_GRANTED)
		review_budget_give_back(auth->budget, &c->account, uv_now(auth->o.loop));
	if (!auth->away)
		keep(auth, c->key, &grant);
	(void)run_waiting(auth);
	c->done(c->arg, &grant);
	check_free(c);
}

static bool run(struct stream_check *c)
{
	struct stream_auth *auth = c->auth;

	if (auth->o.review(auth->o.arg, c->token, on_reviewed, c, &c->call) < 0)
		return false;
	set_running(c, true);
	auth->counts.reviews++;
	return true;
}

static bool draw(struct stream_check *c)
{
	struct stream_auth *auth = c->auth;
	const uint8_t *uid = c->lane == LANE_AGENTS ? c->pod_uid : NULL;

	return review_budget_draw(auth->budget, uid, uv_now(auth->o.loop), &c->account);
}

/*
 * Runs the checks that wait in LANE, at most MAX at once. A token whose pod's account is empty (it
 * was refused again and again, or somebody forges that pod's claims) moves to the other lane.
 * False: the API server cannot be asked now.
 */
static bool run_lane(struct stream_auth *auth, enum lane lane, size_t max)
{
	struct stream_check *c;

	while ((c = auth->lanes[lane].first) && auth->lanes[lane].running < max &&
	       auth->counts.running < STREAM_AUTH_RUNNING) {
		dequeue(auth, c);
		if (!draw(c)) {
			c->lane = LANE_OTHERS;
			enqueue(auth, c, lane == LANE_OTHERS);
			if (lane == LANE_OTHERS)
				return true;
			continue;
		}
		if (run(c))
			continue;
		review_budget_give_back(auth->budget, &c->account, uv_now(auth->o.loop));
		enqueue(auth, c, true);
		return false;
	}
	return true;
}

/*
 * Runs the checks that wait. Those that cannot run stay queued until another answer comes or until
 * the next sweep. False: the API server cannot be asked now.
 */
static bool run_waiting(struct stream_auth *auth)
{
	return run_lane(auth, LANE_AGENTS, STREAM_AUTH_RUNNING) &&
	       run_lane(auth, LANE_OTHERS, STREAM_AUTH_OTHERS_RUNNING);
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

/*
 * True when the token claims a pod of our namespace that the cache knows; RET_UID is then its uid.
 */
static bool claims_agent(struct stream_auth *auth, const struct stream_claims *claims,
			 uint8_t ret_uid[16])
{
	struct slice text = {claims->pod_uid, strlen(claims->pod_uid)};
	const struct pod *pod;

	if (!claims->for_us || !text.n ||
	    (!is_agent(auth, claims->account) && !is_controller(auth, claims->account)))
		return false;
	(void)kept_uid(text, ret_uid);
	pod = pod_store_find_uid(auth->o.pods, ret_uid);
	if (!pod)
		return false;
	pod_unpack(auth->o.pods, pod, &auth->info);
	return streq(auth->info.ns, auth->o.ns);
}

static struct stream_check *check_new(struct stream_auth *auth, const char *token,
				      const struct stream_claims *claims, int64_t left_s)
{
	struct stream_check *c = calloc(1, sizeof(*c) + strlen(token) + 1);

	if (!c)
		return NULL;
	c->auth = auth;
	c->lane = claims_agent(auth, claims, c->pod_uid) ? LANE_AGENTS : LANE_OTHERS;
	c->token_until_ms = uv_now(auth->o.loop) + (uint64_t)left_s * 1000;
	memcpy(c->token, token, strlen(token) + 1);
	return c;
}

int stream_auth_check(struct stream_auth *auth, const char *authorization, bool fresh,
		      void (*done)(void *arg, const struct stream_grant *grant), void *arg,
		      struct stream_grant *ret_grant, struct stream_check **ret_check)
{
	const char *token = authorization + strlen("Bearer ");
	uint8_t key[SHA256_DIGEST_LENGTH];
	struct stream_claims claims;
	struct stream_check *c;
	int64_t left_s;

	if (strncasecmp(authorization, "Bearer ", strlen("Bearer ")) != 0 || !token[0])
		return refuse(STREAM_NO_TOKEN, ret_grant);
	if (stream_token_claims(token, &claims) < 0)
		return refuse(STREAM_MALFORMED, ret_grant);
	left_s = claims.expiry - wall_s(auth);
	if (left_s <= 0)
		return refuse(STREAM_EXPIRED, ret_grant);
	SHA256((const unsigned char *)token, strlen(token), key);
	if (!fresh && recall(auth, key, ret_grant))
		return 1;
	c = check_new(auth, token, &claims, left_s);
	if (!c)
		return refuse(STREAM_NO_MEMORY, ret_grant);
	if (c->lane == LANE_OTHERS &&
	    auth->lanes[LANE_OTHERS].waiting >= STREAM_AUTH_OTHERS_WAITING) {
		check_free(c);
		return refuse(STREAM_BUSY, ret_grant);
	}
	c->done = done;
	c->arg = arg;
	memcpy(c->key, key, sizeof(key));
	enqueue(auth, c, false);
	if (!run_waiting(auth) && !c->running && !auth->counts.running) {
		/* Queued checks are started when a running review ends. None is running, so this
		 * check would wait for ever. */
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
		set_running(c, false);
		(void)run_waiting(auth);
	} else {
		dequeue(auth, c);
	}
	check_free(c);
}

bool stream_check_claims_agent(const struct stream_check *c)
{
	return c->lane == LANE_AGENTS;
}

void stream_auth_read(const struct stream_auth *auth, struct stream_auth_counts *ret)
{
	*ret = auth->counts;
	ret->kept = grant_cache_count(auth->kept);
}

int stream_auth_new(const struct stream_auth_options *options, struct stream_auth **ret)
{
	struct stream_auth *auth = calloc(1, sizeof(*auth));

	if (!auth)
		return -ENOMEM;
	auth->o = *options;
	if (!auth->o.keep_ms)
		auth->o.keep_ms = STREAM_AUTH_KEEP_MS;
	if (!auth->o.away_ms)
		auth->o.away_ms = STREAM_AUTH_AWAY_MS;
	if (review_budget_new(&auth->budget) < 0 || grant_cache_new(&auth->kept) < 0) {
		stream_auth_free(auth);
		return -ENOMEM;
	}
	*ret = auth;
	return 0;
}

struct stream_auth *stream_auth_free(struct stream_auth *auth)
{
	if (!auth)
		return NULL;
	grant_cache_free(auth->kept);
	review_budget_free(auth->budget);
	free(auth);
	return NULL;
}
