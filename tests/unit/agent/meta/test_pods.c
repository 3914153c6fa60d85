/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod table: which pods are found, which events are sent, and what is refused for lack of room.
 */
#include "agent/meta/pods_update.h"
#include "tests/support/failalloc.h"
#include "tests/support/test.h"
#include "tests/unit/agent/meta/sample_node.h"

struct told {
	unsigned int pods_new, pods_changed, pods_deleted, policies, destinations, settled;
	char last[64];
};

static void on_pod(const struct pod_entry *old, const struct pod_entry *now, void *arg)
{
	struct told *t = arg;

	t->pods_new += !old;
	t->pods_deleted += !now;
	t->pods_changed += old && now;
	snprintf(t->last, sizeof(t->last), "%s", now ? now->name : old->name);
}

static void on_policy(const struct pod_policy *old, const struct pod_policy *now, bool is_default,
		      void *arg)
{
	((struct told *)arg)->policies++;
}

static void on_destination(const struct pod_destination *old, const struct pod_destination *now,
			   void *arg)
{
	((struct told *)arg)->destinations++;
}

static void on_settled(void *arg)
{
	((struct told *)arg)->settled++;
}

static struct pod_table *table_new(struct told *told)
{
	struct pod_events events = {.pod = on_pod,
				    .policy = on_policy,
				    .destination = on_destination,
				    .settled = on_settled,
				    .arg = told};
	struct pod_table *t;

	*told = (struct told){0};
	assert_int_equal(pod_table_new(&events, &t), 0);
	return t;
}

static int apply_pod(struct pod_table *t, uint64_t revision, Kiln__Node__V1__Pod **list,
		     uint64_t now_ms)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	struct error err;

	u.revision = revision;
	u.n_pods = 1;
	u.pods = list;
	return pod_table_apply(t, &u, now_ms, &err);
}

static int delete_pod(struct pod_table *t, uint64_t revision, const char *uid, uint64_t now_ms)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	char *uids[] = {(char *)(uintptr_t)uid};
	struct error err;

	u.revision = revision;
	u.n_deleted_pods = 1;
	u.deleted_pods = uids;
	return pod_table_apply(t, &u, now_ms, &err);
}

static void begin_empty(struct pod_table *t)
{
	struct error err;

	pod_table_snapshot_begin(t, 7);
	assert_int_equal(pod_table_snapshot_end(t, 7, 1, 0, &err), 0);
}

static const struct pod_entry *by_id(struct pod_table *t, uint8_t container)
{
	uint8_t id[32];

	memset(id, container, sizeof(id));
	return pod_table_find_container(t, id);
}

static void test_a_pod_is_found_by_uid_hash_and_container(void **state)
{
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	const struct pod_entry *e;
	uint8_t id[32];

	begin_empty(t);
	sample_pod(&p, "a", 5, 1, 2);
	p.pod.config_hash = (char *)"0123456789abcdef0123456789abcdef";
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	e = by_id(t, 1);
	assert_non_null(e);
	assert_ptr_equal(e, by_id(t, 2));
	assert_ptr_equal(e, pod_table_find_uid(t, "uid-a"));
	assert_ptr_equal(e, pod_table_find_uid(t, "0123456789abcdef0123456789abcdef"));
	assert_null(pod_table_find_uid(t, ""));
	assert_null(pod_table_find_uid(t, "uid-b"));
	assert_null(by_id(t, 3));
	assert_string_equal(e->ns, "ns");
	assert_int_equal(e->policy, 5);
	assert_string_equal(e->attributes[0].value, "a");
	memset(id, 2, sizeof(id));
	assert_string_equal(pod_entry_container(e, id)->name, "main");
	memset(id, 9, sizeof(id));
	assert_null(pod_entry_container(e, id));
	assert_int_equal(told.pods_new, 1);
	assert_int_equal(told.settled, 1);
}

static void test_a_policy_changes_without_its_pod_being_told_again(void **state)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	Kiln__Node__V1__PodPolicy changed[2] = {KILN__NODE__V1__POD_POLICY__INIT,
						KILN__NODE__V1__POD_POLICY__INIT};
	Kiln__Node__V1__PodPolicy *list[] = {&changed[0], &changed[1]};
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	const struct pod_entry *e;
	struct error err;

	begin_empty(t);
	sample_pod(&p, "a", 5, 1, 2);
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	changed[0].uid = (char *)"uid-a";
	changed[0].policy = 6;
	changed[1].uid = (char *)"uid-nobody";
	changed[1].policy = 6;
	u.revision = 3;
	u.n_pod_policies = 2;
	u.pod_policies = list;
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	e = by_id(t, 1);
	assert_non_null(e);
	assert_int_equal(e->policy, 6);
	assert_string_equal(e->name, "a");
	assert_string_equal(e->attributes[0].value, "a");
	assert_ptr_equal(e, by_id(t, 2));
	assert_ptr_equal(e, pod_table_find_uid(t, "uid-a"));
	assert_int_equal(told.pods_new, 1);
	assert_int_equal(told.pods_changed, 1);
	assert_null(pod_table_find_uid(t, "uid-nobody"));
	assert_int_equal(pod_table_count(t), 1);
}

static void test_a_deleted_pod_is_known_for_another_120_s(void **state)
{
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);

	begin_empty(t);
	sample_pod(&p, "a", 5, 1, 0);
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	assert_int_equal(delete_pod(t, 3, "uid-a", 1000), 0);
	assert_int_equal(told.pods_deleted, 1);
	assert_int_equal(pod_table_count(t), 0);
	pod_table_expire(t, 1000 + POD_LINGER_MS - 1);
	assert_non_null(by_id(t, 1));
	assert_non_null(pod_table_find_uid(t, "uid-a"));
	pod_table_expire(t, 1000 + POD_LINGER_MS);
	assert_null(by_id(t, 1));
	assert_null(pod_table_find_uid(t, "uid-a"));
	assert_int_equal(pod_table_lingering(t), 0);
	/* A second delete, or a delete of an unknown pod, has no effect. */
	assert_int_equal(delete_pod(t, 4, "uid-a", 1000), 0);
	assert_int_equal(told.pods_deleted, 1);
}

static void test_a_pod_that_comes_back_lives(void **state)
{
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);

	begin_empty(t);
	sample_pod(&p, "a", 5, 1, 0);
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	assert_int_equal(delete_pod(t, 3, "uid-a", 1000), 0);
	assert_int_equal(apply_pod(t, 4, p.list, 2000), 0);
	assert_int_equal(told.pods_new, 2);
	pod_table_expire(t, 1000000);
	assert_non_null(by_id(t, 1));
	assert_int_equal(pod_table_count(t), 1);
}

static void test_ids_of_a_container_that_restarts_again_and_again(void **state)
{
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	uint8_t i;

	begin_empty(t);
	for (i = 1; i <= 5; i++) {
		sample_pod(&p, "a", i, i, i - 1);
		assert_int_equal(apply_pod(t, 1 + i, p.list, i * 1000), 0);
	}
	for (i = 1; i <= 5; i++)
		assert_non_null(by_id(t, i));
	assert_int_equal(by_id(t, 5)->policy, 5);
	/* Id 1 began to linger at 3 s, when id 3 came with 2 as its former id. */
	pod_table_expire(t, 3000 + POD_LINGER_MS);
	assert_null(by_id(t, 1));
	assert_non_null(by_id(t, 2));
	pod_table_expire(t, 1000000);
	assert_null(by_id(t, 3));
	assert_non_null(by_id(t, 4));
	assert_non_null(by_id(t, 5));
}

static void test_a_static_pod_made_again_is_found_by_its_hash(void **state)
{
	struct sample_pod p, q;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);

	begin_empty(t);
	sample_pod(&p, "old", 5, 1, 0);
	sample_pod(&q, "new", 5, 2, 0);
	p.pod.config_hash = q.pod.config_hash = (char *)"hash";
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	assert_int_equal(apply_pod(t, 3, q.list, 0), 0);
	assert_int_equal(delete_pod(t, 4, "uid-old", 0), 0);
	assert_string_equal(pod_table_find_uid(t, "hash")->name, "new");
	pod_table_expire(t, 1000000);
	assert_string_equal(pod_table_find_uid(t, "hash")->name, "new");
}

static void test_a_snapshot_counts_at_its_end_and_tells_what_it_changed(void **state)
{
	struct sample_pod same, old, new;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	const struct pod_entry *kept;
	struct error err;

	begin_empty(t);
	sample_pod(&same, "same", 1, 1, 0);
	sample_pod(&old, "old", 1, 2, 0);
	sample_pod(&new, "new", 1, 3, 0);
	assert_int_equal(apply_pod(t, 2, same.list, 0), 0);
	assert_int_equal(apply_pod(t, 3, old.list, 0), 0);
	kept = by_id(t, 1);
	told = (struct told){0};

	pod_table_snapshot_begin(t, 8);
	assert_int_equal(apply_pod(t, 0, same.list, 0), 0);
	assert_int_equal(apply_pod(t, 0, new.list, 0), 0);
	assert_null(by_id(t, 3));
	assert_non_null(by_id(t, 2));
	assert_int_equal(told.settled, 0);
	assert_int_equal(pod_table_snapshot_end(t, 8, 40, 5000, &err), 0);
	assert_ptr_equal(by_id(t, 1), kept);
	assert_non_null(by_id(t, 3));
	assert_int_equal(told.pods_new, 1);
	assert_int_equal(told.pods_deleted, 1);
	assert_int_equal(told.pods_changed, 0);
	assert_int_equal(told.settled, 1);
	/* A pod that the snapshot does not have lingers. */
	assert_non_null(by_id(t, 2));
	assert_non_null(pod_table_find_uid(t, "uid-old"));
	pod_table_expire(t, 5000 + POD_LINGER_MS);
	assert_null(by_id(t, 2));
	assert_null(pod_table_find_uid(t, "uid-old"));
	assert_int_equal(pod_table_count(t), 2);
}

static void test_a_snapshot_that_is_cut_off_changes_nothing(void **state)
{
	struct sample_pod p, q;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	uint64_t epoch, revision;
	struct error err;

	begin_empty(t);
	sample_pod(&p, "a", 1, 1, 0);
	sample_pod(&q, "b", 1, 2, 0);
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	pod_table_snapshot_begin(t, 8);
	assert_int_equal(apply_pod(t, 0, q.list, 0), 0);
	pod_table_snapshot_abort(t);
	assert_non_null(by_id(t, 1));
	assert_null(by_id(t, 2));
	pod_table_state(t, &epoch, &revision);
	assert_int_equal(epoch, 7);
	assert_int_equal(revision, 2);
	assert_int_equal(pod_table_snapshot_end(t, 8, 1, 0, &err), -EPROTO);
	pod_table_snapshot_begin(t, 8);
	assert_int_equal(pod_table_snapshot_end(t, 9, 1, 0, &err), -EPROTO);
}

static void test_revisions_only_grow(void **state)
{
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);

	sample_pod(&p, "a", 1, 1, 0);
	assert_int_equal(apply_pod(t, 2, p.list, 0), -EPROTO); /* before any snapshot */
	begin_empty(t);
	assert_int_equal(apply_pod(t, 9, p.list, 0), 0);
	assert_int_equal(apply_pod(t, 9, p.list, 0), 0); /* in parts */
	assert_int_equal(apply_pod(t, 8, p.list, 0), -EPROTO);
}

static void test_policies_and_the_default(void **state)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	struct sample_policy p, d;
	uint64_t gone = 5;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	struct error err;

	begin_empty(t);
	u.revision = 2;
	u.n_policies = 1;
	u.policies = sample_policy(&p, 5, 97);
	u.default_policy = *sample_policy(&d, 6, 20);
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	assert_int_equal(pod_table_policy(t, 5)->hz, 97);
	assert_null(pod_table_policy(t, 6));
	assert_int_equal(pod_table_default_policy(t)->hz, 20);
	assert_int_equal(told.policies, 2);
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	assert_int_equal(told.policies, 2); /* nothing changed */
	p.policy.hz = 1001;
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	assert_int_equal(pod_table_policy(t, 5)->hz, 97);
	assert_int_equal(pod_table_counters(t)->policies_refused, 1);
	u.n_policies = 0;
	u.n_deleted_policies = 1;
	u.deleted_policies = &gone;
	u.default_policy = NULL;
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
	assert_null(pod_table_policy(t, 5));
	assert_non_null(pod_table_default_policy(t));
}

static void test_limits_leave_out_and_count(void **state)
{
	static char long_value[POD_VALUE_MAX + 2];
	Kiln__Node__V1__Attribute many, *attributes[POD_ATTRIBUTES_MAX + 6];
	Kiln__Node__V1__Container *containers[POD_CONTAINERS_MAX + 3];
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	const struct pod_counters *n = pod_table_counters(t);
	const struct pod_entry *e;
	char name[32];
	size_t i;

	begin_empty(t);
	memset(long_value, 'x', sizeof(long_value) - 1);
	sample_pod(&p, "a", 1, 1, 0);
	many = p.attribute;
	for (i = 0; i < ARRAY_SIZE(attributes); i++)
		attributes[i] = i ? &many : &p.attribute;
	for (i = 0; i < ARRAY_SIZE(containers); i++)
		containers[i] = &p.container;
	p.attribute.value = long_value;
	p.pod.attributes = attributes;
	p.pod.n_attributes = ARRAY_SIZE(attributes);
	p.pod.containers = containers;
	p.pod.n_containers = ARRAY_SIZE(containers);
	assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
	e = by_id(t, 1);
	assert_int_equal(e->n_attributes, POD_ATTRIBUTES_MAX);
	assert_int_equal(n->attributes_refused, 6); /* the long one, and five too many */
	assert_int_equal(e->n_containers, POD_CONTAINERS_MAX);
	assert_int_equal(n->containers_refused, 3);
	sample_pod(&p, "b", 1, 2, 0);
	p.container.id.len = 31;
	assert_int_equal(apply_pod(t, 3, p.list, 0), 0);
	assert_int_equal(n->containers_refused, 4);
	p.uid[0] = 0;
	assert_int_equal(apply_pod(t, 4, p.list, 0), 0);
	assert_int_equal(n->pods_refused, 1);
	for (i = pod_table_count(t); i < POD_PODS_MAX + 2; i++) {
		snprintf(name, sizeof(name), "n%zu", i);
		assert_int_equal(apply_pod(t, 5, sample_pod(&p, name, 1, 0, 0), 0), 0);
	}
	assert_int_equal(pod_table_count(t), POD_PODS_MAX);
	assert_int_equal(n->pods_refused, 3);
	/* A known pod can still change. */
	assert_int_equal(apply_pod(t, 6, sample_pod(&p, "n100", 9, 7, 0), 0), 0);
	assert_int_equal(by_id(t, 7)->policy, 9);
	/* The number of lingering pods has a cap too. */
	for (i = 0; i < POD_PODS_MAX + 100; i++) {
		snprintf(name, sizeof(name), "m%zu", i);
		sample_pod(&p, name, 1, 0, 0);
		assert_int_equal(delete_pod(t, 7, i ? p.uid : "uid-n100", 0), 0);
		assert_int_equal(apply_pod(t, 7, p.list, 0), 0);
		assert_int_equal(delete_pod(t, 7, p.uid, 0), 0);
	}
	assert_int_equal(pod_table_lingering(t), POD_LINGERING_MAX);
}

static void test_memory_has_a_cap(void **state)
{
	static Kiln__Node__V1__Attribute *attributes[4096];
	static char value[POD_VALUE_MAX + 1];
	struct sample_pod p;
	struct told told;
	_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
	char name[32];
	size_t i;

	begin_empty(t);
	memset(value, 'v', POD_VALUE_MAX);
	/* 4 MiB each: attributes that are refused count too. */
	for (i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "n%zu", i);
		sample_pod(&p, name, 1, (uint8_t)(i + 1), 0);
		p.attribute.value = value;
		for (size_t k = 0; k < ARRAY_SIZE(attributes); k++)
			attributes[k] = &p.attribute;
		p.pod.attributes = attributes;
		p.pod.n_attributes = 2048;
		assert_int_equal(apply_pod(t, 2 + i, p.list, 0), 0);
	}
	assert_true(pod_table_count(t) > 4);
	assert_true(pod_table_counters(t)->pods_refused > 0);
	assert_int_equal(pod_table_count(t) + pod_table_counters(t)->pods_refused, 30);
	/* A new version of the same size replaces the old one. */
	sample_pod(&p, "n0", 5, 1, 0);
	p.attribute.value = value;
	p.pod.attributes = attributes;
	p.pod.n_attributes = 2048;
	i = pod_table_counters(t)->pods_refused;
	assert_int_equal(apply_pod(t, 90, p.list, 0), 0);
	assert_int_equal(pod_table_counters(t)->pods_refused, i);
	assert_int_equal(by_id(t, 1)->policy, 5);
	/* A larger version is refused. The old one is dropped too: it may be wrong by now. */
	p.pod.n_attributes = 4096;
	assert_int_equal(apply_pod(t, 91, p.list, 0), 0);
	assert_true(pod_table_counters(t)->pods_refused > i);
	assert_null(by_id(t, 1));
	assert_null(pod_table_find_uid(t, p.uid));
}

static void test_an_entry_outlives_the_table_by_its_reference(void **state)
{
	struct sample_pod p;
	struct told told;
	struct pod_table *t = table_new(&told);
	const struct pod_entry *e;

	begin_empty(t);
	assert_int_equal(apply_pod(t, 2, sample_pod(&p, "a", 1, 1, 0), 0), 0);
	e = pod_entry_ref(by_id(t, 1));
	pod_table_free(t);
	assert_string_equal(e->name, "a");
	pod_entry_unref(e);
}

/*
 * After each failure the table stays usable, and applying the same messages again brings it to the
 * right state.
 */
static void test_out_of_memory_is_survived(void **state)
{
	struct sample_pod p, q;
	struct told told;
	struct error err;
	long n;

	for (n = 0;; n++) {
		_cleanup_(pod_table_freep) struct pod_table *t = table_new(&told);
		bool failed;
		int r;

		begin_empty(t);
		sample_pod(&p, "a", 1, 1, 2);
		p.pod.config_hash = (char *)"hash";
		assert_int_equal(apply_pod(t, 2, p.list, 0), 0);
		sample_pod(&p, "a", 2, 3, 1);
		sample_pod(&q, "b", 1, 4, 0);
		failalloc_at(n);
		r = apply_pod(t, 3, p.list, 0);
		if (r == 0)
			r = apply_pod(t, 4, q.list, 0);
		pod_table_snapshot_begin(t, 9);
		if (r == 0)
			r = apply_pod(t, 0, q.list, 0);
		if (r == 0)
			r = pod_table_snapshot_end(t, 9, 1, 0, &err);
		failed = failalloc_stop();
		if (!failed) {
			assert_int_equal(r, 0);
			break;
		}
		pod_table_snapshot_abort(t);
		assert_non_null(by_id(t, 1));
		assert_int_equal(apply_pod(t, 100, p.list, 0), 0);
		assert_int_equal(by_id(t, 3)->policy, 2);
		assert_int_equal(by_id(t, 1)->policy, 2);
	}
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_pod_is_found_by_uid_hash_and_container),
	    cmocka_unit_test(test_a_deleted_pod_is_known_for_another_120_s),
	    cmocka_unit_test(test_a_pod_that_comes_back_lives),
	    cmocka_unit_test(test_ids_of_a_container_that_restarts_again_and_again),
	    cmocka_unit_test(test_a_static_pod_made_again_is_found_by_its_hash),
	    cmocka_unit_test(test_a_snapshot_counts_at_its_end_and_tells_what_it_changed),
	    cmocka_unit_test(test_a_snapshot_that_is_cut_off_changes_nothing),
	    cmocka_unit_test(test_revisions_only_grow),
	    cmocka_unit_test(test_policies_and_the_default),
	    cmocka_unit_test(test_a_policy_changes_without_its_pod_being_told_again),
	    cmocka_unit_test(test_limits_leave_out_and_count),
	    cmocka_unit_test(test_memory_has_a_cap),
	    cmocka_unit_test(test_an_entry_outlives_the_table_by_its_reference),
	    cmocka_unit_test(test_out_of_memory_is_survived),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
