/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules one by one, then simulated candidates with a server and a bad network: there must never
 * be two holders at a time, and there must soon be a new holder after one has died.
 */
#include "operator/lease/lease_core.h"

#include "tests/support/test.h"

enum { DURATION = 15000, DEADLINE = 10000, RETRY = 2000, REQUEST = 5000 };

static double dice_value;
static double dice(void)
{
	return dice_value;
}

static struct lease_core make(const char *identity, uint64_t now)
{
	const struct lease_core_options options = {.identity = identity,
						   .duration_ms = DURATION,
						   .renew_deadline_ms = DEADLINE,
						   .retry_ms = RETRY,
						   .request_ms = REQUEST,
						   .random = dice};
	struct lease_core c;

	dice_value = 0.5;
	lease_core_init(&c, &options, now);
	return c;
}

static struct lease_record record(const char *holder, const char *renewed)
{
	struct lease_record r = {.duration_s = DURATION / 1000};

	snprintf(r.holder, sizeof(r.holder), "%s", holder);
	snprintf(r.renewed, sizeof(r.renewed), "%s", renewed);
	return r;
}

static void expect_step(struct lease_core *c, uint64_t now, enum lease_step want)
{
	uint64_t ms;

	assert_int_equal(lease_core_next(c, now, &ms), want);
}

static uint64_t expect_wait(struct lease_core *c, uint64_t now)
{
	uint64_t ms = 0;

	assert_int_equal(lease_core_next(c, now, &ms), LEASE_WAIT);
	assert_true(ms > 0);
	return ms;
}

static enum lease_change done(struct lease_core *c, uint64_t now, const char *holder,
			      const char *renewed)
{
	struct lease_record r = record(holder, renewed);

	return lease_core_answer(c, LEASE_DONE, &r, 0, now);
}

static enum lease_change failed(struct lease_core *c, uint64_t now, enum lease_outcome outcome)
{
	return lease_core_answer(c, outcome, NULL, 0, now);
}

/* A core that has held the lease since NOW. */
static struct lease_core holder(uint64_t now)
{
	struct lease_core c = make("me", now);

	expect_step(&c, now, LEASE_READ);
	assert_int_equal(failed(&c, now, LEASE_NOT_FOUND), LEASE_SAME);
	expect_step(&c, now, LEASE_CREATE);
	assert_int_equal(done(&c, now, "me", "t0"), LEASE_GAINED);
	return c;
}

static void test_the_first_creates_the_lease_and_renews_it_every_2_s(void **state)
{
	struct lease_core c = holder(1000);

	assert_true(lease_core_held(&c, 1000));
	assert_int_equal(expect_wait(&c, 1000), RETRY);
	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(expect_wait(&c, 3000), DEADLINE - 2000);
	assert_int_equal(done(&c, 3100, "me", "t1"), LEASE_SAME);
	/* counted from the sending of the renewal, not from its answer */
	assert_true(lease_core_held(&c, 3000 + DEADLINE - 1));
	assert_false(lease_core_held(&c, 3000 + DEADLINE));
}

static void
test_anothers_lease_is_left_alone_until_it_has_not_changed_for_its_duration(void **state)
{
	struct lease_core c = make("me", 1000);
	uint64_t now = 1000;
	char renewed[32];

	/* The lease's text changes five times, then no more. */
	for (int i = 0; i < 20 && now < 1000000; i++) {
		expect_step(&c, now, LEASE_READ);
		snprintf(renewed, sizeof(renewed), "t%d", MIN(i, 5));
		assert_int_equal(done(&c, now, "other", renewed), LEASE_SAME);
		if (now == c.seen_ms + DURATION)
			break;
		now += expect_wait(&c, now);
		assert_true(now <= c.seen_ms + DURATION);
	}
	assert_int_equal(now, 1000 + 5 * 2200 + DURATION);
	expect_step(&c, now, LEASE_TAKE);
	assert_int_equal(done(&c, now, "me", "t9"), LEASE_GAINED);
}

static void test_wall_clocks_are_not_looked_at(void **state)
{
	struct lease_core c = make("me", 1000);

	/*
	 * The times in the lease are not compared with a clock: any change of the text counts as a
	 * renewal.
	 */
	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(done(&c, 1000, "other", "1970-01-01T00:00:00.000000Z"), LEASE_SAME);
	(void)expect_wait(&c, 1000 + 1);
	expect_step(&c, 4000, LEASE_READ);
	assert_int_equal(done(&c, 4000, "other", "2970-01-01T00:00:00.000000Z"), LEASE_SAME);
	assert_int_equal(c.seen_ms, 4000);
}

static void test_the_duration_that_the_lease_says_counts_within_reason(void **state)
{
	struct lease_core c = make("me", 1000);
	struct lease_record r = record("other", "t");

	r.duration_s = 60;
	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_DONE, &r, 0, 1000), LEASE_SAME);
	expect_step(&c, 1000 + 59999, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_DONE, &r, 0, 60999), LEASE_SAME);
	expect_step(&c, 61000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_DONE, &r, 0, 61000), LEASE_SAME);
	expect_step(&c, 61000, LEASE_TAKE);

	c = make("me", 1000);
	r.duration_s = INT32_MAX;
	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_DONE, &r, 0, 1000), LEASE_SAME);
	expect_step(&c, 3700000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_DONE, &r, 0, 3700000), LEASE_SAME);
	expect_step(&c, 3700000, LEASE_TAKE);
}

static void test_an_emptied_lease_is_taken_within_3_s(void **state)
{
	struct lease_core c = make("me", 1000);
	uint64_t wait;

	dice_value = 0.9999;
	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(done(&c, 1000, "other", "t0"), LEASE_SAME);
	wait = expect_wait(&c, 1000);
	assert_in_range(wait, 2000, 2400);
	expect_step(&c, 1000 + wait, LEASE_READ);
	assert_int_equal(done(&c, 1000 + wait, "", "t1"), LEASE_SAME);
	expect_step(&c, 1000 + wait, LEASE_TAKE);
	assert_int_equal(done(&c, 1000 + wait, "me", "t2"), LEASE_GAINED);
}

static void test_a_lost_race_reads_again_and_then_waits(void **state)
{
	struct lease_core c = make("me", 1000);

	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(done(&c, 1000, "", "t0"), LEASE_SAME);
	expect_step(&c, 1000, LEASE_TAKE);
	assert_int_equal(failed(&c, 1001, LEASE_CONFLICT), LEASE_SAME);
	expect_step(&c, 1001, LEASE_READ);
	assert_int_equal(done(&c, 1002, "", "t1"), LEASE_SAME);
	expect_step(&c, 1002, LEASE_TAKE);
	assert_int_equal(failed(&c, 1003, LEASE_CONFLICT), LEASE_SAME);
	assert_true(expect_wait(&c, 1003) >= 1999);
}

static void test_a_holder_that_cannot_renew_ends_at_its_deadline(void **state)
{
	struct lease_core c = holder(1000);
	uint64_t now = 1000;
	enum lease_change change = LEASE_SAME;
	int tries = 0;

	while (change == LEASE_SAME && now < 100000) {
		uint64_t ms;

		if (lease_core_next(&c, now, &ms) == LEASE_WAIT) {
			now += ms;
			change = lease_core_tick(&c, now);
			continue;
		}
		tries++;
		change = failed(&c, now, LEASE_FAILED);
	}
	assert_int_equal(change, LEASE_LOST);
	assert_int_equal(now, 1000 + DEADLINE);
	assert_in_range(tries, 4, 6);
	assert_int_equal(lease_core_tick(&c, now + 1), LEASE_SAME); /* reported once */
}

static void test_an_answer_that_never_comes_does_not_hold_up_the_deadline(void **state)
{
	struct lease_core c = holder(1000);

	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(expect_wait(&c, 3001), 1000 + DEADLINE - 3001);
	assert_int_equal(lease_core_tick(&c, 1000 + DEADLINE - 1), LEASE_SAME);
	assert_int_equal(lease_core_tick(&c, 1000 + DEADLINE), LEASE_LOST);
	assert_int_equal(expect_wait(&c, 1000 + DEADLINE), UINT64_MAX);
	/* The answer comes after all, but is too old to hold the lease by it. */
	assert_int_equal(done(&c, 3000 + DEADLINE, "me", "t1"), LEASE_SAME);
	expect_step(&c, 3000 + DEADLINE, LEASE_TAKE);
	assert_int_equal(done(&c, 3001 + DEADLINE, "me", "t2"), LEASE_GAINED);
}

static void test_a_renewal_without_answer_is_read_back_and_goes_on(void **state)
{
	struct lease_core c = holder(1000);

	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(failed(&c, 8000, LEASE_FAILED), LEASE_SAME);
	expect_step(&c, 8000, LEASE_READ); /* no further wait after these 5 s */
	assert_int_equal(done(&c, 8001, "me", "t1"), LEASE_SAME);
	expect_step(&c, 8001, LEASE_TAKE);
	assert_int_equal(done(&c, 8002, "me", "t2"), LEASE_SAME);
	assert_true(lease_core_held(&c, 8001 + DEADLINE - 1));
}

static void test_a_holder_that_sees_another_has_lost_at_once(void **state)
{
	struct lease_core c = holder(1000);

	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(failed(&c, 3001, LEASE_CONFLICT), LEASE_SAME);
	expect_step(&c, 3001, LEASE_READ);
	assert_int_equal(done(&c, 3002, "other", "t5"), LEASE_LOST);
	assert_false(lease_core_held(&c, 3002));
}

static void test_a_deleted_lease_is_made_again_by_its_holder(void **state)
{
	struct lease_core c = holder(1000);

	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(failed(&c, 3001, LEASE_NOT_FOUND), LEASE_SAME);
	expect_step(&c, 3001, LEASE_CREATE);
	assert_int_equal(done(&c, 3002, "me", "t5"), LEASE_SAME);
	assert_true(lease_core_held(&c, 3001 + DEADLINE - 1));
	/* The lease's namespace is missing too: creating it fails, and the next attempt waits. */
	expect_step(&c, 5002, LEASE_TAKE);
	assert_int_equal(failed(&c, 5002, LEASE_NOT_FOUND), LEASE_SAME);
	expect_step(&c, 5002, LEASE_CREATE);
	assert_int_equal(failed(&c, 5002, LEASE_NOT_FOUND), LEASE_SAME);
	assert_int_equal(expect_wait(&c, 5002), RETRY);
}

static void test_release_empties_the_lease_and_ends(void **state)
{
	struct lease_core c = holder(1000);

	assert_int_equal(lease_core_release(&c, 2000), LEASE_LOST);
	assert_false(lease_core_held(&c, 2000));
	expect_step(&c, 2000, LEASE_GIVE);
	assert_int_equal(done(&c, 2001, "", "t1"), LEASE_SAME);
	expect_step(&c, 2001, LEASE_RELEASED);
	expect_step(&c, 9999999, LEASE_RELEASED);
}

static void test_release_during_a_write_reads_first(void **state)
{
	struct lease_core c = holder(1000);

	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(lease_core_release(&c, 3001), LEASE_LOST);
	expect_step(&c, 3001, LEASE_READ);
	assert_int_equal(done(&c, 3002, "me", "t1"), LEASE_SAME);
	expect_step(&c, 3002, LEASE_GIVE);
	assert_int_equal(failed(&c, 3003, LEASE_CONFLICT), LEASE_SAME); /* it came after all */
	expect_step(&c, 3003, LEASE_READ);
	assert_int_equal(done(&c, 3004, "me", "t2"), LEASE_SAME);
	expect_step(&c, 3004, LEASE_GIVE);
	assert_int_equal(done(&c, 3005, "", "t3"), LEASE_SAME);
	expect_step(&c, 3005, LEASE_RELEASED);
}

static void test_release_never_touches_anothers_lease_and_has_an_end(void **state)
{
	struct lease_core c = make("me", 1000);

	/* Another holder's lease: nothing is written. */
	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(done(&c, 1000, "other", "t0"), LEASE_SAME);
	assert_int_equal(lease_core_release(&c, 1001), LEASE_SAME);
	expect_step(&c, 1001, LEASE_RELEASED);

	/*
	 * Another candidate took the lease after the answer was lost and before the lease was read.
	 */
	c = holder(1000);
	expect_step(&c, 3000, LEASE_TAKE);
	assert_int_equal(lease_core_release(&c, 3001), LEASE_LOST);
	expect_step(&c, 3001, LEASE_READ);
	assert_int_equal(done(&c, 3002, "other", "t1"), LEASE_SAME);
	expect_step(&c, 3002, LEASE_RELEASED);

	/* While the server is away, releasing takes one request timeout and no more. */
	c = holder(1000);
	assert_int_equal(lease_core_release(&c, 2000), LEASE_LOST);
	expect_step(&c, 2000, LEASE_GIVE);
	assert_int_equal(failed(&c, 2001, LEASE_FAILED), LEASE_SAME);
	assert_int_equal(expect_wait(&c, 2001), 199);
	expect_step(&c, 2200, LEASE_READ);
	assert_int_equal(expect_wait(&c, 2200), 2000 + REQUEST - 2200);
	expect_step(&c, 2000 + REQUEST, LEASE_RELEASED);
}

static void test_retry_after_is_obeyed_within_reason(void **state)
{
	struct lease_core c = make("me", 1000);

	expect_step(&c, 1000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_FAILED, NULL, 4000, 1000), LEASE_SAME);
	assert_int_equal(expect_wait(&c, 1000), 4000);
	expect_step(&c, 5000, LEASE_READ);
	assert_int_equal(lease_core_answer(&c, LEASE_FAILED, NULL, 3600000, 5000), LEASE_SAME);
	assert_int_equal(expect_wait(&c, 5000), DEADLINE / 2);
}

/* ---- simulation ------------------------------------------------------------------------------ */

enum { NODES = 4 };

struct message {
	bool used;
	int node, generation; /* of the node's life */
	enum lease_step step;
	struct lease_record read; /* what the sender wrote over */
	uint64_t version;	  /* of it */
	uint64_t arrives, answers, times_out;
	bool stored, answered;
	enum lease_outcome outcome;
	struct lease_record result;
	uint64_t result_version;
};

struct node {
	struct lease_core core;
	char identity[16];
	uint64_t version; /* of what it last read */
	uint64_t offset;  /* of its clock */
	uint64_t dead_until, stalled_until;
	int generation;
	bool told; /* between gained and lost */
};

struct simulation {
	uint64_t now, writes;
	bool exists;
	struct lease_record record;
	uint64_t version;
	struct node nodes[NODES];
	struct message messages[64];
	unsigned int seed, faults_per_mille;
	uint64_t leaderless_ms, changes;
};

static unsigned int roll(struct simulation *s, unsigned int n)
{
	return (unsigned int)rand_r(&s->seed) % n;
}

static void node_start(struct simulation *s, int i)
{
	struct node *node = &s->nodes[i];

	node->generation++;
	node->told = false;
	snprintf(node->identity, sizeof(node->identity), "n%d-%d", i, node->generation);
	node->core = make(node->identity, s->now + node->offset);
	dice_value = roll(s, 1000) / 1000.0;
}

static void server_handle(struct simulation *s, struct message *m)
{
	struct node *node = &s->nodes[m->node];

	m->stored = true;
	m->outcome = LEASE_DONE;
	if (m->step == LEASE_READ) {
		if (!s->exists)
			m->outcome = LEASE_NOT_FOUND;
	} else if (m->step == LEASE_CREATE && s->exists) {
		m->outcome = LEASE_CONFLICT;
	} else if (m->step != LEASE_CREATE && !s->exists) {
		m->outcome = LEASE_NOT_FOUND;
	} else if (m->step != LEASE_CREATE && m->version != s->version) {
		m->outcome = LEASE_CONFLICT;
	} else {
		snprintf(s->record.holder, sizeof(s->record.holder), "%s",
			 m->step == LEASE_GIVE ? "" : node->identity);
		snprintf(s->record.renewed, sizeof(s->record.renewed), "w%llu",
			 (unsigned long long)++s->writes);
		s->record.duration_s = m->step == LEASE_GIVE ? 1 : DURATION / 1000;
		s->exists = true;
		s->version++;
	}
	m->result = s->record;
	m->result_version = s->version;
}

static void note(struct node *node, struct simulation *s, enum lease_change change)
{
	if (change == LEASE_SAME)
		return;
	assert_int_equal(node->told, change == LEASE_LOST);
	node->told = change == LEASE_GAINED;
	s->changes++;
}

static void send_message(struct simulation *s, int i, enum lease_step step)
{
	bool fault = roll(s, 1000) < s->faults_per_mille;
	struct message *m = s->messages;

	while (m->used)
		m++;
	assert_true(m < s->messages + ARRAY_SIZE(s->messages));
	*m = (struct message){.used = true,
			      .node = i,
			      .generation = s->nodes[i].generation,
			      .step = step,
			      .version = s->nodes[i].version,
			      .times_out = s->now + REQUEST,
			      .arrives = s->now + 1 + roll(s, 30)};
	m->answers = m->arrives + 1 + roll(s, 30);
	if (fault && roll(s, 2)) /* late: it arrives when nobody waits for it any more */
		m->arrives += roll(s, 3 * DURATION);
	else if (fault && roll(s, 2))
		m->arrives = UINT64_MAX;
	if (fault)
		m->answers = UINT64_MAX;
}

static void deliver(struct simulation *s, struct message *m)
{
	struct node *node = &s->nodes[m->node];
	uint64_t local = s->now + node->offset;

	if (!m->stored && s->now >= m->arrives)
		server_handle(s, m);
	if (!m->answered && s->now >= node->stalled_until &&
	    (s->now >= m->answers || s->now >= m->times_out)) {
		m->answered = true;
		if (m->generation == node->generation && s->now >= node->dead_until) {
			bool came = s->now >= m->answers;

			if (came && m->outcome == LEASE_DONE)
				node->version = m->result_version;
			note(node, s,
			     lease_core_answer(&node->core, came ? m->outcome : LEASE_FAILED,
					       &m->result, 0, local));
		}
	}
	if (m->answered && (m->stored || m->arrives == UINT64_MAX))
		m->used = false;
}

static void node_run(struct simulation *s, int i)
{
	struct node *node = &s->nodes[i];
	enum lease_step step;
	uint64_t ms;

	if (s->now < node->dead_until || s->now < node->stalled_until)
		return;
	if (node->dead_until) {
		node->dead_until = 0;
		node_start(s, i);
	}
	if (s->faults_per_mille && roll(s, 200000) == 0) {
		node->dead_until = s->now + 1 + roll(s, 60000); /* kill -9 */
		return;
	}
	if (s->faults_per_mille && roll(s, 200000) == 0) {
		node->stalled_until = s->now + 1 + roll(s, 40000); /* SIGSTOP */
		return;
	}
	note(node, s, lease_core_tick(&node->core, s->now + node->offset));
	if (s->faults_per_mille && roll(s, 400000) == 0)
		note(node, s, lease_core_release(&node->core, s->now + node->offset));
	step = lease_core_next(&node->core, s->now + node->offset, &ms);
	if (step == LEASE_RELEASED)
		node->dead_until = s->now + 1 + roll(s, 10000);
	else if (step != LEASE_WAIT)
		send_message(s, i, step);
}

static void step_ms(struct simulation *s)
{
	int held = 0;

	s->now++;
	for (size_t i = 0; i < ARRAY_SIZE(s->messages); i++) {
		if (s->messages[i].used)
			deliver(s, &s->messages[i]);
	}
	for (int i = 0; i < NODES; i++) {
		node_run(s, i);
		/* A stalled holder still believes in itself as long as its clock lets it. */
		if (s->now >= s->nodes[i].dead_until)
			held += lease_core_held(&s->nodes[i].core, s->now + s->nodes[i].offset);
	}
	assert_true(held <= 1);
	if (held == 0)
		s->leaderless_ms++;
}

static void simulate(unsigned int seed, unsigned int faults_per_mille, uint64_t ms)
{
	struct simulation s = {.now = 1, .seed = seed, .faults_per_mille = faults_per_mille};
	uint64_t before;

	for (int i = 0; i < NODES; i++) {
		s.nodes[i].offset = 1000000ULL * roll(&s, 1000);
		node_start(&s, i);
	}
	while (s.now < ms)
		step_ms(&s);
	assert_true(s.changes >= (faults_per_mille ? 5 : 1));
	/* When all is well again there is a leader within the lease's time and two waits. */
	s.faults_per_mille = 0;
	for (int i = 0; i < NODES; i++)
		s.nodes[i].stalled_until = MIN(s.nodes[i].stalled_until, s.now);
	for (uint64_t end = s.now + 3 * DURATION + 60000; s.now < end;)
		step_ms(&s);
	before = s.leaderless_ms;
	for (uint64_t end = s.now + 60000; s.now < end;)
		step_ms(&s);
	assert_int_equal(s.leaderless_ms, before);
}

static void test_never_two_holders_under_random_faults(void **state)
{
	for (unsigned int seed = 1; seed <= 20; seed++)
		simulate(seed, 20 * seed, 1200000);
}

static void test_without_faults_the_first_leader_stays(void **state)
{
	simulate(99, 0, 300000);
}

static void test_a_killed_leader_is_replaced_within_the_leases_time(void **state)
{
	for (unsigned int seed = 1; seed <= 30; seed++) {
		struct simulation s = {.now = 1, .seed = seed};
		uint64_t killed;
		int leader = -1;

		for (int i = 0; i < NODES; i++)
			node_start(&s, i);
		while (s.now < 20000 + 97 * seed)
			step_ms(&s);
		for (int i = 0; i < NODES; i++) {
			if (s.nodes[i].core.held)
				leader = i;
		}
		assert_true(leader >= 0);
		s.nodes[leader].dead_until = UINT64_MAX;
		killed = s.now;
		s.leaderless_ms = 0;
		while (s.now < killed + DURATION + 2400 + 200)
			step_ms(&s);
		assert_true(s.leaderless_ms < DURATION + 2400 + 200);
		assert_in_range(s.leaderless_ms, DURATION - 2500, DURATION + 2400 + 200);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_the_first_creates_the_lease_and_renews_it_every_2_s),
	    cmocka_unit_test(
		test_anothers_lease_is_left_alone_until_it_has_not_changed_for_its_duration),
	    cmocka_unit_test(test_wall_clocks_are_not_looked_at),
	    cmocka_unit_test(test_the_duration_that_the_lease_says_counts_within_reason),
	    cmocka_unit_test(test_an_emptied_lease_is_taken_within_3_s),
	    cmocka_unit_test(test_a_lost_race_reads_again_and_then_waits),
	    cmocka_unit_test(test_a_holder_that_cannot_renew_ends_at_its_deadline),
	    cmocka_unit_test(test_an_answer_that_never_comes_does_not_hold_up_the_deadline),
	    cmocka_unit_test(test_a_renewal_without_answer_is_read_back_and_goes_on),
	    cmocka_unit_test(test_a_holder_that_sees_another_has_lost_at_once),
	    cmocka_unit_test(test_a_deleted_lease_is_made_again_by_its_holder),
	    cmocka_unit_test(test_release_empties_the_lease_and_ends),
	    cmocka_unit_test(test_release_during_a_write_reads_first),
	    cmocka_unit_test(test_release_never_touches_anothers_lease_and_has_an_end),
	    cmocka_unit_test(test_retry_after_is_obeyed_within_reason),
	    cmocka_unit_test(test_without_faults_the_first_leader_stays),
	    cmocka_unit_test(test_a_killed_leader_is_replaced_within_the_leases_time),
	    cmocka_unit_test(test_never_two_holders_under_random_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
