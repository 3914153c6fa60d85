/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lease_core: the rules of an election, without clock, loop or network. It says what to ask
 * the server next, is told what came of it and when, and says when leadership begins and ends.
 * Times are milliseconds of a clock that never goes back and runs on while the machine sleeps.
 */
#pragma once

#include "lib/base.h"

enum { LEASE_HOLDER_MAX = 256, LEASE_TIME_MAX = 48 };

enum lease_step {
	LEASE_WAIT,	/* nothing for so many ms */
	LEASE_READ,	/* GET */
	LEASE_CREATE,	/* POST with us as the holder */
	LEASE_TAKE,	/* PUT over what was last read: with us as the holder */
	LEASE_GIVE,	/* PUT over what was last read: without a holder */
	LEASE_RELEASED, /* the end: nothing more will be asked for */
};
enum lease_outcome {
	LEASE_DONE,
	LEASE_NOT_FOUND,
	LEASE_CONFLICT, /* another wrote, or made it, first */
	LEASE_FAILED,	/* whether it happened is not known */
};
enum lease_change { LEASE_SAME, LEASE_GAINED, LEASE_LOST };

/* What an election looks at in a Lease. `renewed` is compared for equality and never read. */
struct lease_record {
	char holder[LEASE_HOLDER_MAX]; /* "": nobody */
	char renewed[LEASE_TIME_MAX];
	int64_t duration_s, transitions;
};

struct lease_core_options {
	const char *identity; /* borrowed; shorter than LEASE_HOLDER_MAX */
	uint64_t duration_ms, renew_deadline_ms, retry_ms, request_ms;
	double (*random)(void); /* [0, 1) */
};

struct lease_core {
	struct lease_core_options options;
	struct lease_record seen;
	uint64_t seen_ms; /* when `seen` was first seen as it is */
	bool held;
	uint64_t renewed_ms; /* when the last write that succeeded was sent */
	enum lease_step next;
	uint64_t next_ms;
	bool in_flight;
	uint64_t sent_ms;
	bool collided; /* the last write met another one */
	bool doubtful; /* a write may have happened, nothing was read since */
	bool releasing;
	uint64_t release_by_ms;
};

void lease_core_init(struct lease_core *c, const struct lease_core_options *options,
		     uint64_t now_ms);
/* What to do now. With LEASE_WAIT, *ret_ms until the next call (UINT64_MAX: for an answer). */
enum lease_step lease_core_next(struct lease_core *c, uint64_t now_ms, uint64_t *ret_ms);
/*
 * The answer to the last step. RECORD is what the server now has, with LEASE_DONE; RETRY_AFTER_MS
 * what it asked for, 0 for nothing.
 */
enum lease_change lease_core_answer(struct lease_core *c, enum lease_outcome outcome,
				    const struct lease_record *record, uint64_t retry_after_ms,
				    uint64_t now_ms);
/* To be called whenever time has passed: ends leadership that was not renewed. */
enum lease_change lease_core_tick(struct lease_core *c, uint64_t now_ms);
/* Gives back what we hold; the call that is under way has been cancelled. */
enum lease_change lease_core_release(struct lease_core *c, uint64_t now_ms);
bool lease_core_held(const struct lease_core *c, uint64_t now_ms);
bool lease_core_is_ours(const struct lease_core *c); /* what was last seen names us */
