/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Safety rests on three clocks that are never compared with each other:
 *
 *   the holder   counts from when it SENT the last renewal that succeeded, and has stopped after
 *                renew_deadline;
 *   the server   orders the writes (resource versions); its own time is not used;
 *   the others   count from when they SAW the lease change, which is after the server stored it,
 *                and wait for its whole duration.
 *
 * sent <= stored <= seen and renew_deadline < duration, so nobody takes a lease that is still held,
 * however wrong the wall clocks are. A lease is taken only by a write on the resource version that
 * was read.
 *
 * A write without an answer may have taken effect: the lease is read again, and the read counts.
 * Times and rules: client-go v0.34 tools/leaderelection/leaderelection.go, with one difference: the
 * candidate's wait is drawn from 1..1.2 periods (there 1..2.2), and ends when the lease runs out,
 * so that a released lease is taken within 3 s and a dead holder is replaced without another wait.
 */
#include "operator/lease/lease_core.h"

enum {
	FOREIGN_DURATION_MAX_S = 3600, /* longer durations of other holders count as this */
	RELEASE_PACE_MS = 200,
};
#define JITTER 0.2

void lease_core_init(struct lease_core *c, const struct lease_core_options *options,
		     uint64_t now_ms)
{
	*c = (struct lease_core){.options = *options, .next = LEASE_READ, .next_ms = now_ms};
}

bool lease_core_is_ours(const struct lease_core *c)
{
	return streq(c->seen.holder, c->options.identity);
}

bool lease_core_held(const struct lease_core *c, uint64_t now_ms)
{
	return c->held && now_ms < c->renewed_ms + c->options.renew_deadline_ms;
}

static enum lease_change lose(struct lease_core *c)
{
	if (!c->held)
		return LEASE_SAME;
	c->held = false;
	return LEASE_LOST;
}

enum lease_change lease_core_tick(struct lease_core *c, uint64_t now_ms)
{
	return lease_core_held(c, now_ms) ? LEASE_SAME : lose(c);
}

enum lease_step lease_core_next(struct lease_core *c, uint64_t now_ms, uint64_t *ret_ms)
{
	uint64_t wake = c->in_flight ? UINT64_MAX : c->next_ms;

	if (c->releasing && now_ms >= c->release_by_ms) {
		c->next = LEASE_RELEASED;
		c->in_flight = false;
	}
	if (c->next == LEASE_RELEASED)
		return LEASE_RELEASED;
	if (!c->in_flight && now_ms >= c->next_ms) {
		c->in_flight = true;
		c->sent_ms = now_ms;
		return c->next;
	}
	if (c->held)
		wake = MIN(wake, c->renewed_ms + c->options.renew_deadline_ms);
	if (c->releasing)
		wake = MIN(wake, c->release_by_ms);
	*ret_ms = wake == UINT64_MAX ? wake : wake - MIN(now_ms, wake) + (wake <= now_ms);
	return LEASE_WAIT;
}

static void then(struct lease_core *c, enum lease_step step, uint64_t at_ms)
{
	c->next = step;
	c->next_ms = at_ms;
}

/* The retry period counts from when the request was sent: a slow request is part of the wait. */
static void then_retry(struct lease_core *c, enum lease_step step, uint64_t retry_after_ms,
		       uint64_t now_ms)
{
	const struct lease_core_options *o = &c->options;
	uint64_t at = c->sent_ms + o->retry_ms, asked;

	if (!c->held)
		at += (uint64_t)((double)o->retry_ms * JITTER * o->random());
	asked = now_ms + MIN(retry_after_ms, o->renew_deadline_ms / 2);
	then(c, step, MAX(at, asked));
}

static void see(struct lease_core *c, const struct lease_record *record, uint64_t now_ms)
{
	if (c->seen_ms == 0 || !streq(record->holder, c->seen.holder) ||
	    !streq(record->renewed, c->seen.renewed) || record->transitions != c->seen.transitions)
		c->seen_ms = MAX(now_ms, 1);
	c->seen = *record;
	c->doubtful = false;
}

/* When the lease of another holder runs out, by our clock. */
static uint64_t runs_out_ms(const struct lease_core *c)
{
	uint64_t ms = c->options.duration_ms;

	if (c->seen.duration_s > 0)
		ms = (uint64_t)MIN(c->seen.duration_s, FOREIGN_DURATION_MAX_S) * 1000;
	return c->seen_ms + ms;
}

static enum lease_change answer_read(struct lease_core *c, enum lease_outcome outcome,
				     const struct lease_record *record, uint64_t retry_after_ms,
				     uint64_t now_ms)
{
	uint64_t wait;

	switch (outcome) {
	case LEASE_DONE:
		see(c, record, now_ms);
		break;
	/* If we hold the lease we go on: nobody else holds it, and only one create can succeed. */
	case LEASE_NOT_FOUND:
		then(c, LEASE_CREATE, now_ms);
		return LEASE_SAME;
	default:
		then_retry(c, LEASE_READ, retry_after_ms, now_ms);
		return LEASE_SAME;
	}
	if (lease_core_is_ours(c)) {
		then(c, LEASE_TAKE, now_ms);
		return LEASE_SAME;
	}
	if (c->seen.holder[0] == '\0' || now_ms >= runs_out_ms(c)) {
		then(c, LEASE_TAKE, now_ms);
	} else {
		then_retry(c, LEASE_READ, 0, now_ms);
		wait = runs_out_ms(c);
		c->next_ms = MAX(MIN(c->next_ms, wait), now_ms + 1);
	}
	return lose(c);
}

static enum lease_change answer_write(struct lease_core *c, enum lease_outcome outcome,
				      const struct lease_record *record, uint64_t retry_after_ms,
				      uint64_t now_ms)
{
	bool collided = c->collided;

	c->collided = false;
	switch (outcome) {
	case LEASE_DONE:
		see(c, record, now_ms);
		if (now_ms >= c->sent_ms + c->options.renew_deadline_ms) {
			then(c, LEASE_TAKE, now_ms); /* past the deadline: renew again */
			return LEASE_SAME;
		}
		c->renewed_ms = c->sent_ms;
		then(c, LEASE_TAKE, now_ms + c->options.retry_ms);
		if (c->held)
			return LEASE_SAME;
		c->held = true;
		return LEASE_GAINED;
	case LEASE_NOT_FOUND:
		/*
		 * The Lease was deleted after it was read; for a create, the namespace is missing.
		 */
		if (c->next == LEASE_CREATE)
			then_retry(c, LEASE_READ, retry_after_ms, now_ms);
		else
			then(c, LEASE_CREATE, now_ms);
		return LEASE_SAME;
	case LEASE_CONFLICT:
		c->collided = !collided;
		if (collided) /* the second conflict in a row: wait */
			then_retry(c, LEASE_READ, retry_after_ms, now_ms);
		else
			then(c, LEASE_READ, now_ms);
		return LEASE_SAME;
	default:
		c->doubtful = true;
		then_retry(c, LEASE_READ, retry_after_ms, now_ms);
		return LEASE_SAME;
	}
}

static void answer_releasing(struct lease_core *c, enum lease_outcome outcome,
			     const struct lease_record *record, uint64_t now_ms)
{
	bool gave = c->next == LEASE_GIVE;

	if (outcome == LEASE_DONE)
		see(c, record, now_ms);
	if (outcome == LEASE_NOT_FOUND ||
	    (outcome == LEASE_DONE && (gave || !lease_core_is_ours(c))))
		then(c, LEASE_RELEASED, now_ms);
	else if (outcome == LEASE_DONE)
		then(c, LEASE_GIVE, now_ms);
	else
		then(c, LEASE_READ,
		     outcome == LEASE_CONFLICT ? now_ms : c->sent_ms + RELEASE_PACE_MS);
}

enum lease_change lease_core_answer(struct lease_core *c, enum lease_outcome outcome,
				    const struct lease_record *record, uint64_t retry_after_ms,
				    uint64_t now_ms)
{
	enum lease_change ended = lease_core_tick(c, now_ms), change;

	if (!c->in_flight)
		return ended;
	c->in_flight = false;
	if (c->releasing) {
		answer_releasing(c, outcome, record, now_ms);
		return ended;
	}
	if (c->next == LEASE_READ)
		change = answer_read(c, outcome, record, retry_after_ms, now_ms);
	else
		change = answer_write(c, outcome, record, retry_after_ms, now_ms);
	if (ended == LEASE_LOST && change == LEASE_GAINED) {
		/* Report LOST first; acquire the lease again at the next renewal. */
		c->held = false;
		then(c, LEASE_TAKE, now_ms);
	}
	return ended == LEASE_LOST ? LEASE_LOST : change;
}

enum lease_change lease_core_release(struct lease_core *c, uint64_t now_ms)
{
	bool writing = c->in_flight && c->next != LEASE_READ;
	enum lease_change change = lose(c);

	if (c->releasing)
		return change;
	c->releasing = true;
	c->release_by_ms = now_ms + c->options.request_ms;
	c->in_flight = false;
	if (writing || c->doubtful)
		then(c, LEASE_READ, now_ms);
	else if (lease_core_is_ours(c))
		then(c, LEASE_GIVE, now_ms);
	else
		then(c, LEASE_RELEASED, now_ms);
	return change;
}
