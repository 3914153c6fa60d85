/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts are kept in milliseconds of refill, so that they need no fractions. A pod without an
 * entry has a full account. Loop thread only.
 */
#include "operator/stream/review_budget.h"

#include "lib/uthash.h"

enum { COMMON_REFILL_MS = 1000 / REVIEW_COMMON_RATE };

struct account {
	uint64_t saved_ms; /* refill_ms buys one review */
	uint64_t at_ms;	   /* of saved_ms */
};

struct pod_account {
	uint8_t uid[REVIEW_UID];
	struct account account;
	UT_hash_handle hh;
};

struct review_budget {
	struct account common;
	struct pod_account *pods;
};

static const uint64_t common_max = (uint64_t)REVIEW_COMMON_RATE * COMMON_REFILL_MS,
		      pod_max = (uint64_t)REVIEW_POD_BURST * REVIEW_POD_REFILL_MS;

static void refill(struct account *a, uint64_t now_ms, uint64_t max)
{
	if (now_ms > a->at_ms)
		a->saved_ms = MIN(a->saved_ms + (now_ms - a->at_ms), max);
	a->at_ms = now_ms;
}

static bool draw(struct account *a, uint64_t now_ms, uint64_t price, uint64_t max)
{
	refill(a, now_ms, max);
	if (a->saved_ms < price)
		return false;
	a->saved_ms -= price;
	return true;
}

int review_budget_new(struct review_budget **ret)
{
	struct review_budget *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->common.saved_ms = common_max;
	*ret = b;
	return 0;
}

static void forget(struct review_budget *b, struct pod_account *p)
{
	HASH_DEL(b->pods, p);
	free(p);
}

struct review_budget *review_budget_free(struct review_budget *b)
{
	struct pod_account *p, *next;

	if (!b)
		return NULL;
	HASH_ITER (hh, b->pods, p, next)
		forget(b, p);
	free(b);
	return NULL;
}

static struct pod_account *find_pod(struct review_budget *b, const uint8_t *uid)
{
	struct pod_account *p;

	HASH_FIND(hh, b->pods, uid, REVIEW_UID, p);
	return p;
}

/* UID's account, full when it is new. NULL: no room. */
static struct pod_account *get_pod(struct review_budget *b, const uint8_t *uid, uint64_t now_ms)
{
	struct pod_account *p = find_pod(b, uid);

	if (p || HASH_COUNT(b->pods) >= REVIEW_PODS_MAX)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	memcpy(p->uid, uid, sizeof(p->uid));
	p->account = (struct account){pod_max, now_ms};
	HASH_ADD(hh, b->pods, uid, sizeof(p->uid), p);
	return p;
}

bool review_budget_draw(struct review_budget *b, const uint8_t *uid, uint64_t now_ms,
			struct review_account *ret)
{
	struct pod_account *p = uid ? get_pod(b, uid, now_ms) : NULL;

	*ret = (struct review_account){.of_pod = p != NULL};
	if (!p)
		return draw(&b->common, now_ms, COMMON_REFILL_MS, common_max);
	memcpy(ret->uid, uid, sizeof(ret->uid));
	return draw(&p->account, now_ms, REVIEW_POD_REFILL_MS, pod_max);
}

void review_budget_give_back(struct review_budget *b, const struct review_account *account,
			     uint64_t now_ms)
{
	struct pod_account *p = account->of_pod ? find_pod(b, account->uid) : NULL;

	if (account->of_pod && !p)
		return; /* it was full again, and forgotten */
	if (p) {
		refill(&p->account, now_ms, pod_max);
		p->account.saved_ms = MIN(p->account.saved_ms + REVIEW_POD_REFILL_MS, pod_max);
		return;
	}
	refill(&b->common, now_ms, common_max);
	b->common.saved_ms = MIN(b->common.saved_ms + COMMON_REFILL_MS, common_max);
}

void review_budget_sweep(struct review_budget *b, uint64_t now_ms)
{
	struct pod_account *p, *next;

	HASH_ITER (hh, b->pods, p, next) {
		refill(&p->account, now_ms, pod_max);
		if (p->account.saved_ms == pod_max)
			forget(b, p);
	}
}
