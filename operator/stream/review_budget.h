/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct review_budget: how many TokenReviews may be spent on tokens that turn out to be worthless.
 * Anybody who reaches the node stream's port can send texts that look like tokens; each that is
 * asked about costs the API server a request and may delay an agent's.
 *
 * A token that claims to be of an agent's pod which the operator's cache knows draws on that pod's
 * own account, every other token on one common account of REVIEW_COMMON_RATE a second. A token that
 * is granted gives back what it drew. So real agents never wait for each other, and whoever forges
 * the claims of one pod delays that pod's agent at most. Loop thread only; times are the loop's,
 * ms.
 */
#pragma once

#include "lib/base.h"

enum {
	REVIEW_COMMON_RATE = 10, /* a second, and a burst of as many: at most 20 in one second */
	REVIEW_POD_BURST = 4,
	REVIEW_POD_REFILL_MS = 2000, /* until a pod's account allows one review more */
	REVIEW_PODS_MAX = 16384,     /* accounts; further pods draw on the common one */
	REVIEW_UID = 16,	     /* bytes of a pod's uid */
};

/* The account that a review was drawn from. */
struct review_account {
	bool of_pod;
	uint8_t uid[REVIEW_UID]; /* when of_pod */
};

struct review_budget;
int review_budget_new(struct review_budget **ret) _must_check_;
struct review_budget *review_budget_free(struct review_budget *b);

/*
 * Draws for one review. UID: the pod that the token claims, when the cache knows it as an agent's;
 * else NULL. False: the account is empty, try again later.
 */
bool review_budget_draw(struct review_budget *b, const uint8_t *uid, uint64_t now_ms,
			struct review_account *ret);
/* Gives one review back: the token was granted, or was not reviewed. */
void review_budget_give_back(struct review_budget *b, const struct review_account *account,
			     uint64_t now_ms);
/* Forgets the accounts that are full again. */
void review_budget_sweep(struct review_budget *b, uint64_t now_ms);
