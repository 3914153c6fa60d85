/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct transport: how one request reaches a receiver. The sender drives it and knows no protocol;
 * gRPC and HTTP are behind it. Loop thread.
 */
#pragma once

#include "agent/export/sender_payload.h"

enum transport_result {
	TRANSPORT_SENT,	   /* taken by the receiver, maybe in part */
	TRANSPORT_RETRY,   /* not taken now; the same request may be tried again */
	TRANSPORT_REJECTED /* will never be taken */
};

struct transport_answer {
	enum transport_result result;
	bool away;		 /* RETRY: no receiver is reachable (as opposed to "it refused") */
	bool elsewhere;		 /* RETRY: see stay() */
	bool uncertain;		 /* an attempt without an answer may have been taken all the same */
	uint64_t retry_after_ms; /* RETRY: the wait that the receiver asked for; 0: none */
	bool maybe_form;	 /* REJECTED: the reason may be the generation of OTLP */
	int64_t rejected;	 /* SENT: profiles that the receiver left out */
	const char *message;	 /* printable words, "" when there are none */
};

struct transport;

struct transport_ops {
	/*
	 * One request at a time. P lives until DONE, which is called once on the loop thread, never
	 * from inside this call. A negative errno: nothing was started.
	 */
	int (*send)(struct transport *t, const struct payload *p, uint64_t timeout_ms,
		    void (*done)(const struct transport_answer *answer, void *arg), void *arg);
	/* Forgets the request under way; its DONE is not called. False: nothing of it was sent. */
	bool (*cancel)(struct transport *t);
	/* Does the next request go to the same connection as the last one? NULL: not known. */
	bool (*connected)(struct transport *t);
	/*
	 * While STAY is true, a request is not sent over a new connection: its answer is RETRY with
	 * `elsewhere`. NULL: the transport cannot tell before it sends.
	 */
	void (*stay)(struct transport *t, bool stay);
	struct transport *(*destroy)(struct transport *t);
};

/* Every transport embeds this first. */
struct transport {
	const struct transport_ops *ops;
};
