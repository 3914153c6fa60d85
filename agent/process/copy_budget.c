/* SPDX-License-Identifier: Apache-2.0 */
/* A filesystem is in the table for as long as it has copies, so there are no more than copies. */
#include "agent/process/copy_budget.h"

#include "lib/uthash.h"

struct copy_share {
	dev_t dev;
	size_t taken;
	UT_hash_handle hh;
};

void copy_budget_init(struct copy_budget *budget, size_t limit)
{
	*budget = (struct copy_budget){.limit = limit};
	pthread_mutex_init(&budget->mutex, NULL);
}

void copy_budget_done(struct copy_budget *budget)
{
	struct copy_share *share, *next;

	HASH_ITER (hh, budget->shares, share, next) {
		HASH_DEL(budget->shares, share);
		free(share);
	}
	pthread_mutex_destroy(&budget->mutex);
}

/* With the mutex, as all below. NULL: it has no copies. */
static struct copy_share *find_share(const struct copy_budget *budget, dev_t dev)
{
	struct copy_share *share = NULL;

	HASH_FIND(hh, budget->shares, &dev, sizeof(dev), share);
	return share;
}

static bool fits(const struct copy_budget *budget, const struct copy_share *share, size_t size)
{
	size_t of_share = share ? share->taken : 0, half = budget->limit / 2;

	if (size > budget->limit - budget->taken)
		return false;
	return budget->taken < half || size <= half - MIN(half, of_share);
}

static int add_to_share(struct copy_budget *budget, struct copy_share *share, dev_t dev,
			size_t size)
{
	if (!size)
		return 0;
	if (!share) {
		share = calloc(1, sizeof(*share));
		if (!share)
			return -ENOMEM;
		share->dev = dev;
		HASH_ADD(hh, budget->shares, dev, sizeof(share->dev), share);
	}
	share->taken += size;
	budget->taken += size;
	return 0;
}

int copy_budget_take(struct copy_budget *budget, dev_t dev, size_t size)
{
	struct copy_share *share;
	int r = -ENOSPC;

	pthread_mutex_lock(&budget->mutex);
	share = find_share(budget, dev);
	if (fits(budget, share, size))
		r = add_to_share(budget, share, dev, size);
	pthread_mutex_unlock(&budget->mutex);
	return r;
}

bool copy_budget_has(struct copy_budget *budget, dev_t dev, size_t size)
{
	bool has;

	pthread_mutex_lock(&budget->mutex);
	has = fits(budget, find_share(budget, dev), size);
	pthread_mutex_unlock(&budget->mutex);
	return has;
}

void copy_budget_give(struct copy_budget *budget, dev_t dev, size_t size)
{
	struct copy_share *share;

	if (!size)
		return;
	pthread_mutex_lock(&budget->mutex);
	share = find_share(budget, dev);
	budget->taken -= size;
	share->taken -= size;
	if (!share->taken) {
		HASH_DEL(budget->shares, share);
		free(share);
	}
	pthread_mutex_unlock(&budget->mutex);
}
