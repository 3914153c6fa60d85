/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kube_call() and kube_cancel() without a network: calls are kept as they were made, and the test
 * answers them. Stands in for operator/kube/client.c at link time.
 */
#pragma once

#include "operator/kube/client.h"

struct kube_call {
	struct kube_call *next;
	char *method, *path, *accept, *body;
	struct kube_request request; /* its pointers are NULL but for data, done and arg */
	bool over;		     /* answered or cancelled */
	bool cancelled;
};

/* Calls made so far, oldest first; freed by fake_reset(). */
extern struct kube_call *fake_calls;
extern int fake_refuse; /* what kube_call() returns instead, while it is not 0 */

unsigned int fake_count(void);
/* The newest call; fails the test when it is over or there is none. */
struct kube_call *fake_live(void);
bool fake_idle(void); /* no call is live */
void fake_answer(struct kube_call *call, int status, const char *body);
void fake_answer_with(struct kube_call *call, const struct kube_answer *answer);
/* Bytes of a streamed answer; negative as data() said, and then the call has ended. */
int fake_data(struct kube_call *call, const void *bytes, size_t len);
void fake_reset(void);
