/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lease_core: the rules of an election, without clock, loop or network. It decides the next
 * request to the server, is given the answer and its time, and reports when leadership begins and
 * ends. Times are milliseconds of a clock that never goes back and runs on while the machine
 * sleeps.
 */
#pragma once

#include "lib/base.h"

enum { LEASE_HOLDER_MAX = 256, LEASE_TIME_MAX = 48 };

enum lease_step {
	LEASE_WAIT,	/* no request for *ret_ms */
	LEASE_READ,	/* GET */
	LEASE_CREATE,	/* POST with us as the holder */
	LEASE_TAKE,	/* PUT over what was last read: with us as the holder */
	LEASE_GIVE,	/* PUT over what was last read: without a holder */
	LEASE_RELEASED, /* the end: nothing more will be asked for */
};
enum lease_outcome {
	LEASE_DONE,
	LEASE_NOT_FOUND,
	LEASE_CONFLICT, /* another wrote or created the Lease first */
	LEASE_FAILED,	/* the request may or may not have taken effect */
};
enum lease_change { LEASE_SAME, LEASE_GAINED, LEASE_LOST };

/*
 * The fields of a Lease that an election uses. `renewed` is compared for equality and never parsed.
 */
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
	bool collided; /* the last write ended in a conflict; a second one in a row waits */
	bool doubtful; /* a write may have taken effect, and nothing was read since */
	bool releasing;
	uint64_t release_by_ms;
};

void lease_core_init(struct lease_core *c, const struct lease_core_options *options,
		     uint64_t now_ms);
/*
 * The next step. With LEASE_WAIT, *ret_ms is the time until the next call; UINT64_MAX: until an
 * answer comes.
 */
enum lease_step lease_core_next(struct lease_core *c, uint64_t now_ms, uint64_t *ret_ms);
/*
 * Gives the answer to the last step. RECORD: the Lease as the server has it, used with LEASE_DONE
 * only. RETRY_AFTER_MS: the delay that the server asked for, 0 for none.
 */
enum lease_change lease_core_answer(struct lease_core *c, enum lease_outcome outcome,
				    const struct lease_record *record, uint64_t retry_after_ms,
				    uint64_t now_ms);
/* To be called whenever time has passed: ends leadership that was not renewed. */
enum lease_change lease_core_tick(struct lease_core *c, uint64_t now_ms);
/* Begins to give the lease back. The caller has cancelled the request in flight. */
enum lease_change lease_core_release(struct lease_core *c, uint64_t now_ms);
bool lease_core_held(const struct lease_core *c, uint64_t now_ms);
bool lease_core_is_ours(const struct lease_core *c); /* the holder last seen is us */
