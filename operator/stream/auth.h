/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct stream_auth: which node a token belongs to. The API server says whether the token is good
 * (TokenReview, audience STREAM_AUDIENCE), whose it is (the agents' ServiceAccount, or that of the
 * operator's controller) and which node it is bound to; older servers name only the pod, whose node
 * the cache knows. What the agent says of itself does not count.
 *
 * Answers are kept under the token's SHA-256: good ones for STREAM_AUTH_KEEP_MS, as long as the
 * cache has the agent's pod on that node; refusals STREAM_AUTH_REFUSED_MS, so that nobody makes the
 * operator ask again and again. While the API server cannot be asked, a good answer counts until
 * the token expires. Reviews under way are limited; checks beyond wait in order. What worthless
 * tokens may cost is limited too (review_budget.h): tokens whose own claims name an agent's pod
 * that the cache knows wait in a queue of their own, before all others. Loop thread only.
 */
#pragma once

#include "lib/base.h"
#include "operator/cache/pod_store.h"
#include "operator/kube/write.h"

#define STREAM_AUDIENCE	  "kiln.dev/node-stream"
#define STREAM_ACCOUNT	  "kiln-agent"
#define STREAM_CONTROLLER "kiln-operator" /* of the controller */

enum {
	STREAM_AUTH_KEEP_MS = 300000,
	STREAM_AUTH_REFUSED_MS = 10000,
	STREAM_AUTH_AWAY_MS = 30000, /* extends an old answer while there are no reviews */
	STREAM_AUTH_RUNNING = 64,
	STREAM_AUTH_OTHERS_RUNNING = 8,	  /* of tokens that claim no known pod */
	STREAM_AUTH_OTHERS_WAITING = 512, /* more are refused as BUSY */
	STREAM_AUTH_CACHE = 32768,	  /* answers that are kept; the oldest goes first */
	STREAM_NODE_MAX = 253,
};

/* Reasons of a refusal: enum, metric label, message to the peer. */
#define STREAM_REFUSALS(X)                                                                         \
	X(NO_TOKEN, "no_token", "want authorization: Bearer TOKEN")                                \
	X(MALFORMED, "malformed", "the token is no ServiceAccount token")                          \
	X(EXPIRED, "expired", "the token has expired")                                             \
	X(REJECTED, "rejected", "the API server does not take the token for this audience")        \
	X(OTHER_ACCOUNT, "other_account", "the token is not of the ServiceAccount for this")       \
	X(NO_NODE, "no_node", "the token is not bound to a node or pod")                           \
	X(UNKNOWN_POD, "unknown_pod", "the token's pod is not known (yet)")                        \
	X(API_SERVER, "api_server", "the API server cannot be asked now")                          \
	X(BUSY, "busy", "too many tokens wait to be reviewed, try again later")                    \
	X(NO_MEMORY, "no_memory", "out of memory")

enum stream_refusal {
	STREAM_GRANTED,
#define X(id, name, text) STREAM_##id,
	STREAM_REFUSALS(X)
#undef X
	    STREAM_REFUSAL_COUNT
};
const char *stream_refusal_name(enum stream_refusal refusal); /* "granted", "no_token" */
const char *stream_refusal_text(enum stream_refusal refusal);
int stream_refusal_status(enum stream_refusal refusal); /* enum rpc_status */

struct stream_grant {
	enum stream_refusal refusal;
	bool controller;		/* the token is the controller's */
	bool has_pod;			/* the API server named the agent's pod */
	uint8_t pod_uid[16];		/* which one */
	char node[STREAM_NODE_MAX + 1]; /* "" when refused, and of the controller */
	uint64_t until_ms;		/* loop time at which to check again */
	uint64_t token_until_ms;	/* loop time when the token expires */
};

struct stream_auth_options {
	uv_loop_t *loop;
	const char *ns; /* of the agents' ServiceAccount; borrowed */
	const struct pod_store *pods;
	/* As kube_review_token() and kube_cancel(), with ARG instead of the client. */
	int (*review)(void *arg, const char *token,
		      void (*done)(void *done_arg, const struct kube_token_review *review,
				   const struct kube_answer *answer),
		      void *done_arg, struct kube_call **ret);
	void (*cancel)(void *arg, struct kube_call *call);
	int64_t (*now_s)(void *arg); /* since the epoch; NULL: the system's */
	uint64_t keep_ms, away_ms;   /* 0: STREAM_AUTH_KEEP_MS, STREAM_AUTH_AWAY_MS */
	void *arg;
};

struct stream_auth_counts {
	uint64_t reviews, review_errors, cached;
	uint64_t stale; /* old answers used because the API server could not be asked */
	size_t kept, running, waiting;
};

struct stream_auth;
struct stream_check;

int stream_auth_new(const struct stream_auth_options *options,
		    struct stream_auth **ret) _must_check_;
/* No check may be under way. */
struct stream_auth *stream_auth_free(struct stream_auth *auth);
DEFINE_CLEANUP(struct stream_auth *, stream_auth_free)

/*
 * AUTHORIZATION is the header's value. 1: *RET_GRANT is the answer. 0: DONE will be called once,
 * and until then *RET_CHECK can be cancelled. FRESH: kept answers are not used.
 */
int stream_auth_check(struct stream_auth *auth, const char *authorization, bool fresh,
		      void (*done)(void *arg, const struct stream_grant *grant), void *arg,
		      struct stream_grant *ret_grant, struct stream_check **ret_check);
void stream_check_cancel(struct stream_check *check);
/*
 * True while the token claims an agent's pod that the cache knows, and that pod's account in the
 * review budget is not empty.
 */
bool stream_check_claims_agent(const struct stream_check *check);
/* True when the last review got no answer from the API server. */
bool stream_auth_is_away(const struct stream_auth *auth);
/* Called now and then: forgets expired answers, retries reviews that could not be sent. */
void stream_auth_sweep(struct stream_auth *auth);
void stream_auth_read(const struct stream_auth *auth, struct stream_auth_counts *ret);

/* The claims of a ServiceAccount token, not verified. */
struct stream_claims {
	int64_t expiry;	   /* "exp", seconds since the epoch */
	bool for_us;	   /* "aud" has STREAM_AUDIENCE */
	char account[320]; /* "sub": "system:serviceaccount:NAMESPACE:NAME"; "" when absent or
			      longer */
	char pod_uid[64];  /* "kubernetes.io".pod.uid; "" when absent or longer */
};
/* -EBADMSG: no JWT, or one without "exp". */
int stream_token_claims(const char *token, struct stream_claims *ret) _must_check_;
