/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loss opens an epoch. Mapsets that were read before the epoch began are suspect; a set of
 * process ids tells which of their processes were looked at since. The set is by process and not by
 * mapset because processes that fork share a mapset, and each may have mapped something else.
 */
#include "agent/sampler/recheck.h"

#include "lib/uthash.h"

#define NS_PER_MS     1000000ULL
#define NS_PER_SECOND 1000000000ULL

struct checked {
	uint32_t tgid;
	UT_hash_handle hh;
};

struct recheck {
	/* When the epoch began, and since when its notes are lost; 0: no epoch yet. */
	uint64_t epoch_ns, since_ns;
	uint64_t wait_ns;	   /* the least time from this epoch to the next */
	bool pending;		   /* a loss since the epoch began waits for the next one */
	uint64_t pending_since_ns; /* notes since then were lost */
	struct checked *checked;
	uint64_t tokens, filled_ns; /* a recheck costs NS_PER_SECOND tokens */
};

int recheck_new(struct recheck **ret)
{
	struct recheck *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	*ret = r;
	return 0;
}

static void forget_checked(struct recheck *r)
{
	struct checked *c, *next;

	HASH_ITER (hh, r->checked, c, next) {
		HASH_DEL(r->checked, c);
		free(c);
	}
}

struct recheck *recheck_free(struct recheck *r)
{
	if (!r)
		return NULL;
	forget_checked(r);
	free(r);
	return NULL;
}

static void begin_epoch(struct recheck *r, uint64_t now_ns)
{
	uint64_t quiet = now_ns - r->epoch_ns;
	bool again = r->epoch_ns && quiet < 2 * r->wait_ns;

	r->wait_ns = again ? MIN(r->wait_ns * 2, RECHECK_WAIT_MAX_MS * NS_PER_MS)
			   : RECHECK_WAIT_MIN_MS * NS_PER_MS;
	r->since_ns = r->pending_since_ns;
	r->epoch_ns = now_ns;
	r->pending = false;
	forget_checked(r);
}

static void begin_pending(struct recheck *r, uint64_t now_ns)
{
	if (r->pending && (!r->epoch_ns || now_ns - r->epoch_ns >= r->wait_ns))
		begin_epoch(r, now_ns);
}

void recheck_lost(struct recheck *r, uint64_t since_ns, uint64_t now_ns)
{
	if (!r->pending)
		r->pending_since_ns = since_ns;
	r->pending = true;
	begin_pending(r, now_ns);
}

static bool take_token(struct recheck *r, uint64_t now_ns)
{
	uint64_t passed = MIN(now_ns - r->filled_ns, NS_PER_SECOND);

	r->filled_ns = now_ns;
	r->tokens = MIN(r->tokens + passed * RECHECKS_PER_SECOND, RECHECKS_AT_ONCE * NS_PER_SECOND);
	if (r->tokens < NS_PER_SECOND)
		return false;
	r->tokens -= NS_PER_SECOND;
	return true;
}

bool recheck_due(struct recheck *r, uint32_t tgid, uint64_t read_ns, uint64_t now_ns,
		 uint64_t *ret_since_ns)
{
	struct checked *c;

	begin_pending(r, now_ns);
	if (!r->epoch_ns || read_ns >= r->epoch_ns)
		return false;
	HASH_FIND(hh, r->checked, &tgid, sizeof(tgid), c);
	if (c || !take_token(r, now_ns))
		return false;
	c = HASH_COUNT(r->checked) < RECHECK_PROCESSES_MAX ? calloc(1, sizeof(*c)) : NULL;
	if (c) {
		c->tgid = tgid;
		HASH_ADD(hh, r->checked, tgid, sizeof(tgid), c);
	}
	*ret_since_ns = r->since_ns;
	return true;
}
