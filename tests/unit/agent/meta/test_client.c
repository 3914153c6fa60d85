/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's client of the node stream: state: snapshots, changes, acknowledgements, the copy on
 * disk. */
#include "tests/unit/agent/meta/client_fixture.h"

#include <sys/stat.h>

#include "tests/unit/agent/meta/sample_node.h"

static bool has_report(void *arg)
{
	struct test *t = arg;

	return status_of(t).reports >= t->want && status_of(t).acks > 0;
}

static void test_snapshot_deltas_acks_and_reports(void **state)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	char *gone[] = {(char *)"uid-a"};
	Kiln__Node__V1__AgentMessage *m;
	struct fake_call *c;
	bool found = false;
	struct test t;
	size_t i;

	setup(&t, NULL);
	begin(&t);
	c = expect_call(&t, 0);
	assert_string_equal(c->method, "/kiln.node.v1.NodeService/Connect");
	assert_string_equal(c->authorization, "Bearer first-token");
	assert_hello(c, 0, 0);
	say_all(c, "a");
	expect_ack(&t, 10);
	assert_string_equal(pod(&t, "a")->attributes[0].value, "a");
	assert_true(status_of(&t).connected);
	assert_string_equal(status_of(&t).node_name, "node-1");
	say_pod(c, 12, "b");
	expect_ack(&t, 12);
	assert_non_null(pod(&t, "b"));
	u.revision = 13;
	u.n_deleted_pods = 1;
	u.deleted_pods = gone;
	say_update(c, &u);
	expect_ack(&t, 13);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 1);
	assert_non_null(pod(&t, "a")); /* lingers */
	assert_int_equal(t.settled, 3);
	t.want = 2;
	assert_true(fake_pump(t.server, &t.loop, has_report, &t, WAIT_S));
	for (i = 0; i < c->n_messages; i++) {
		m = heard(c, i);
		if (m->message_case == KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT) {
			found = true;
			assert_int_equal(m->report->samples, 42);
			assert_string_equal(m->report->config_hash, "abc");
			assert_string_equal(m->report->tracers[0]->reason, "no kernel");
			assert_int_equal(m->report->tracers[0]->n_versions, 1);
			assert_string_equal(m->report->tracers[0]->versions[0], "3.11");
			assert_int_equal(m->report->policies[0]->containers, 3);
		}
		kiln__node__v1__agent_message__free_unpacked(m, NULL);
	}
	assert_true(found);
	teardown(&t);
}

static void test_resumes_where_it_was(void **state)
{
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	fake_finish(fake_server_call(t.server, 0), UNAVAILABLE, "moving on");
	c = expect_call(&t, 1);
	assert_hello(c, 7, 10);
	say_welcome(c);
	/*
	 * Nothing has changed, so the operator sends no snapshot: the client counts as connected.
	 */
	assert_true(fake_pump(t.server, &t.loop, is_connected, &t, WAIT_S));
	say_pod(c, 11, "b");
	expect_ack(&t, 11);
	assert_non_null(pod(&t, "a"));
	fake_finish(c, UNAVAILABLE, "again");
	/* An operator that does not know this state any more sends a snapshot. */
	c = expect_call(&t, 2);
	assert_hello(c, 7, 11);
	say_welcome(c);
	say_begin(c, 8);
	say_pod(c, 0, "c");
	say_end(c, 8, 1);
	expect_ack(&t, 1);
	assert_int_equal(pod_table_count(meta_client_table(t.client)), 1);
	assert_int_equal(status_of(&t).epoch, 8);
	teardown(&t);
}

static bool staged(void *arg)
{
	struct test *t = arg;

	return pod_table_counters(meta_client_table(t->client))->updates >= t->want;
}

static void test_killed_in_the_middle_of_a_snapshot_the_old_state_stays(void **state)
{
	struct fake_options o = {0};
	struct fake_call *c;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	c = fake_server_call(t.server, 0);
	say_begin(c, 9);
	say_pod(c, 0, "b");
	t.want = 2;
	assert_true(fake_pump(t.server, &t.loop, staged, &t, WAIT_S));
	o.port = fake_server_port(t.server);
	t.server = fake_server_stop(t.server);
	assert_true(fake_pump(NULL, &t.loop, is_disconnected, &t, WAIT_S));
	assert_non_null(pod(&t, "a"));
	assert_null(pod(&t, "b"));
	serve(&t, &o);
	c = expect_call(&t, 0);
	assert_hello(c, 7, 10);
	/* This update continues the old state, not the snapshot that was cut off. */
	say_welcome(c);
	say_pod(c, 11, "c");
	expect_ack(&t, 11);
	assert_non_null(pod(&t, "c"));
	teardown(&t);
}

static void test_starts_from_disk_while_the_operator_is_away(void **state)
{
	struct fake_options o = {0};
	struct stat st;
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	expect_ack(&t, 10);
	stop_client(&t);
	assert_int_equal(stat(t.snapshot, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	o.port = fake_server_port(t.server);
	t.server = fake_server_stop(t.server);
	t.settled = 0;
	begin(&t);
	assert_non_null(pod(&t, "a"));
	assert_int_equal(t.settled, 1);
	assert_int_equal(status_of(&t).source, META_FROM_DISK);
	assert_false(status_of(&t).connected);
	serve(&t, &o);
	assert_hello(expect_call(&t, 0), 7, 10);
	teardown(&t);
}

static bool has_written(void *arg)
{
	struct test *t = arg;

	return status_of(t).snapshots_written >= t->want;
}

static void test_the_copy_is_written_while_it_runs_and_only_when_it_changed(void **state)
{
	struct test t;

	setup(&t, NULL);
	begin(&t);
	say_all(expect_call(&t, 0), "a");
	t.want = 1;
	assert_true(fake_pump(t.server, &t.loop, has_written, &t, WAIT_S));
	t.want = 2; /* reports go by, nothing changes */
	assert_true(fake_pump(t.server, &t.loop, has_report, &t, WAIT_S));
	assert_int_equal(status_of(&t).snapshots_written, 1);
	say_pod(fake_server_call(t.server, 0), 11, "b");
	assert_true(fake_pump(t.server, &t.loop, has_written, &t, WAIT_S));
	teardown(&t);
}

static void test_a_damaged_copy_is_ignored_and_counted(void **state)
{
	struct test t;

	setup(&t, NULL);
	write_text(t.snapshot, "KILNPOD1 and then nothing of use at all, really nothing");
	begin(&t);
	assert_int_equal(status_of(&t).snapshots_corrupt, 1);
	assert_int_equal(status_of(&t).source, META_NOTHING);
	assert_hello(expect_call(&t, 0), 0, 0);
	say_all(fake_server_call(t.server, 0), "a");
	expect_ack(&t, 10);
	teardown(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_snapshot_deltas_acks_and_reports),
	    cmocka_unit_test(test_resumes_where_it_was),
	    cmocka_unit_test(test_killed_in_the_middle_of_a_snapshot_the_old_state_stays),
	    cmocka_unit_test(test_starts_from_disk_while_the_operator_is_away),
	    cmocka_unit_test(test_the_copy_is_written_while_it_runs_and_only_when_it_changed),
	    cmocka_unit_test(test_a_damaged_copy_is_ignored_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
