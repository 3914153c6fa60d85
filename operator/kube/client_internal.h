/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the client: its state, the state of a call, and its transitions. */
#pragma once

#include "lib/buf.h"
#include "lib/curl_loop.h"
#include "operator/kube/client.h"
#include "operator/kube/client_auth.h"
#include "operator/kube/client_limit.h"

enum {
	KUBE_TIMEOUT_MS = 32000, /* client-go's, k8s.io/client-go rest/config.go (0.34) */
	KUBE_CONNECT_MS = 30000,
	KUBE_TRIES_MAX = 10,		/* client-go's, rest/request.go (0.34) */
	KUBE_RETRY_WAIT_MAX_MS = 30000, /* for a longer Retry-After the caller gets the answer */
	KUBE_RETRY_WAIT_MIN_MS = 100,
	KUBE_POOL_MAX = 8, /* idle connections */
	KUBE_BULK_POOL_MAX = 1,
	KUBE_STREAM_BUFFER = 64 << 10, /* bytes that curl reads at once */
	KUBE_DEAD_MS = 45000, /* without an acknowledgement for this long the peer is gone */
};

enum kube_call_state {
	KUBE_CALL_READY,   /* starts at the next tick */
	KUBE_CALL_WAITING, /* for the token bucket, in order */
	KUBE_CALL_LATER,   /* until due_ms, to be tried again */
	KUBE_CALL_LIVE,	   /* in curl */
	KUBE_CALL_ENDED,   /* in no list: done() is running, or curl has not released it yet */
	KUBE_CALL_STATES
};

struct kube_call {
	struct kube_client *client;
	struct kube_call *prev, *next;
	enum kube_call_state state;
	struct kube_request r; /* strings and body are our own */
	void (*free_arg)(void *arg);
	/* Of the attempt under way. */
	struct curl_transfer transfer;
	struct curl_slist *headers, *connect_to;
	struct kube_tls *tls;
	struct buf body;
	char error[CURL_ERROR_SIZE];
	int broken; /* negative errno of the callback that ended it */
	/* Of all attempts of the call together. */
	uint64_t deadline_ms; /* from the first attempt on; 0: none */
	uint64_t due_ms, last_byte_ms;
	unsigned int tries;
	bool refused;		/* it was answered with 401 once: not repeated for another */
	unsigned int cut_short; /* times its body could not be sent */
	bool keep;		/* end_silent() ended it: on_dropped() must not free it */
};

struct kube_client {
	uv_timer_t tick;
	uv_loop_t *loop;
	struct curl_loop *pool, *bulk; /* connections; those of bulk requests */
	const struct kube_credentials *credentials;
	struct kube_auth auth;
	struct kube_limit limit;
	char *url, *host, *connect_to; /* the latter two with server_name */
	char *user_agent;
	uint64_t connect_ms;
	bool gzip;
	struct kube_call *calls[KUBE_CALL_ENDED]; /* by state */
	size_t n_calls;
	void (*seen)(void *arg, const char *method, int status);
	void *seen_arg;
	int64_t last_event_us; /* time in the last event's name */
};

/* client.c */
/*
 * As kube_call(). FREE_ARG is called with the request's arg when the call is freed, however it
 * ended; not when this function fails.
 */
int kube_call_owning(struct kube_client *c, const struct kube_request *request,
		     void (*free_arg)(void *arg), struct kube_call **ret) _must_check_;
void kube_call_move(struct kube_call *call, enum kube_call_state to);
void kube_call_free(struct kube_call *call);
struct curl_loop *kube_call_pool(const struct kube_call *call);
/* Takes the call off its list, calls done(), frees the call; done() may have freed the client. */
void kube_call_end(struct kube_call *call, const struct kube_answer *answer);
void kube_client_wake(struct kube_client *c); /* runs the tick soon */

/* client_attempt.c */
/* -ENOMEM: nothing was begun. */
int kube_attempt_start(struct kube_call *call) _must_check_;
/* Frees what belongs to one attempt. */
void kube_attempt_done(struct kube_call *call);
