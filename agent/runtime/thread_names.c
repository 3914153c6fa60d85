/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/runtime/thread_names.h"

#include "lib/uthash.h"

struct thread_names {
	struct thread_name *all;
};

int thread_names_new(struct thread_names **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

static void forget(struct thread_names *n, struct thread_name *e)
{
	HASH_DEL(n->all, e);
	free(e->name);
	free(e);
}

struct thread_names *thread_names_free(struct thread_names *n)
{
	struct thread_name *e, *next;

	if (!n)
		return NULL;
	HASH_ITER (hh, n->all, e, next)
		forget(n, e);
	free(n);
	return NULL;
}

struct thread_name *thread_names_get(struct thread_names *n, const struct thread_name_key *key,
				     uint32_t window)
{
	struct thread_name *e;

	HASH_FIND(hh, n->all, key, sizeof(*key), e);
	if (!e && HASH_COUNT(n->all) < THREAD_NAMES_MAX && (e = calloc(1, sizeof(*e)))) {
		e->key = *key;
		HASH_ADD(hh, n->all, key, sizeof(e->key), e);
	}
	if (e)
		e->last_window = window;
	return e;
}

void thread_names_set(struct thread_name *e, const char *name, int error, uint64_t now_ms)
{
	char *copy = name ? strdup(name) : NULL;

	if (copy) {
		free(e->name);
		e->name = copy;
		e->wait_ms = THREAD_NAME_KEEP_MS;
	} else {
		/* A name that was read holds until the kernel has another one. */
		e->wait_ms = error == -EAGAIN
				 ? MIN(MAX(e->wait_ms * 2, (uint64_t)THREAD_NAME_RETRY_MIN_MS),
				       (uint64_t)THREAD_NAME_RETRY_MAX_MS)
				 : THREAD_NAME_RETRY_MAX_MS;
	}
	e->due_ms = now_ms + e->wait_ms;
}

void thread_names_sweep(struct thread_names *n, uint32_t before_window)
{
	struct thread_name *e, *next;

	HASH_ITER (hh, n->all, e, next)
		if ((int32_t)(e->last_window - before_window) < 0)
			forget(n, e);
}
