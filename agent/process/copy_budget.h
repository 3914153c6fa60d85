/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many bytes the copies of files may take, all together and for each filesystem. Once half of
 * the limit is taken, a filesystem gets no more than half of it: that much is left for the others.
 * Any thread.
 */
#pragma once

#include "lib/base.h"

#include <pthread.h>
#include <sys/types.h>

struct copy_budget {
	pthread_mutex_t mutex;
	size_t limit, taken;
	struct copy_share *shares; /* of filesystems that have copies */
};

void copy_budget_init(struct copy_budget *budget, size_t limit);
void copy_budget_done(struct copy_budget *budget);
/*
 * Takes SIZE bytes for a copy of a file of the filesystem DEV (st_dev). -ENOSPC: they are not
 * there, -ENOMEM.
 */
int copy_budget_take(struct copy_budget *budget, dev_t dev, size_t size) _must_check_;
/* Could copy_budget_take() take them now? */
bool copy_budget_has(struct copy_budget *budget, dev_t dev, size_t size);
/* Gives back what copy_budget_take() took. */
void copy_budget_give(struct copy_budget *budget, dev_t dev, size_t size);
