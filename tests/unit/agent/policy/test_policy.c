/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written to the kernel's maps when pods, policies and cgroups come, change and go in any
 * order.
 */
#include "agent/policy/policy.h"

#include "agent/config/config.h"
#include "tests/support/test.h"
#include "tests/unit/agent/policy/fake_pods.h"

#define UID   "8f4e6a52-3b1c-4d7e-9a60-1f2e3d4c5b6a"
#define OTHER "11111111-3b1c-4d7e-9a60-1f2e3d4c5b6a"
#define ID    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD   "/kubepods/burstable/pod" UID

enum { IDS = 32, NONE = 9999 };

/* The kernel's maps and settings, as the callbacks write them. */
static struct {
	struct kiln_policy policies[KILN_MAX_POLICIES];
	uint32_t of[IDS]; /* policy index by cgroup id; NONE: no entry */
	uint32_t fallback, rate, rates;
	uint32_t writes;
	bool off_cpu;
} k;

static struct pod_table pods;
static struct policies *p;

static int set_policy(void *arg, uint32_t index, const struct kiln_policy *policy)
{
	k.policies[index] = *policy;
	return 0;
}

static int set_default(void *arg, uint32_t index)
{
	k.fallback = index;
	return 0;
}

static int set_cgroup(void *arg, uint64_t id, uint32_t index)
{
	/* The timers must be fast enough for each enabled policy. */
	assert_true(k.policies[index].mode == KILN_POLICY_DISABLED ||
		    k.policies[index].hz <= k.rate);
	k.of[id] = index;
	k.writes++;
	return 0;
}

static int delete_cgroup(void *arg, uint64_t id)
{
	if (k.of[id] == NONE)
		return -ENOENT;
	k.of[id] = NONE;
	return 0;
}

static int set_rate(void *arg, uint32_t hz)
{
	k.rate = hz;
	k.rates++;
	return 0;
}

static int set_off_cpu(void *arg, bool on)
{
	k.off_cpu = on;
	return 0;
}

static const struct tracer known_tracers[] = {
    {"native", "native", 0, true}, {"python", "python", 1, true}, {"hotspot", "jvm", 6, false}, {}};

static int setup(void **state)
{
	const struct policy_kernel kernel = {set_policy, set_default, set_cgroup, delete_cgroup,
					     set_rate,	 set_off_cpu, NULL};

	memset(&k, 0, sizeof(k));
	for (size_t i = 0; i < IDS; i++)
		k.of[i] = NONE;
	k.rate = 20;
	memset(&pods, 0, sizeof(pods));
	return policies_new(&kernel, 20, ~0U, known_tracers, &pods, &p);
}

static int teardown(void **state)
{
	p = policies_free(p);
	return 0;
}

static struct pod_policy *policy(uint64_t id, bool enabled, uint32_t hz)
{
	struct pod_policy *new = &pods.policies[pods.n_policies++];

	*new = (struct pod_policy){.id = id, .enabled = enabled, .hz = hz};
	return new;
}

static struct pod_entry *pod(const char *uid, uint64_t policy_id)
{
	struct pod_entry *new = &pods.pods[pods.n_pods++].pod;

	*new = (struct pod_entry){
	    .uid = uid, .config_hash = "", .ns = "n", .name = "p", .policy = policy_id};
	return new;
}

static uint32_t hz_of(uint64_t cgroup)
{
	return k.of[cgroup] == NONE ? 0 : k.policies[k.of[cgroup]].hz;
}

static void cgroup_of_a_known_pod_has_its_policy_at_once(void **state)
{
	policy(1, true, 97);
	pod(UID, 1);
	policies_changed(p);
	assert_int_equal(k.rate, 97);
	policies_cgroup_made(p, 3, "/kubepods/burstable");
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, POD "/" ID);
	assert_int_equal(k.of[3], NONE);
	assert_int_equal(hz_of(4), 97);
	assert_int_equal(hz_of(5), 97);
	assert_int_equal(k.policies[k.of[5]].hz, 97);
}

/*
 * Context switches are sampled while some policy asks for it, and only in the cgroups of that
 * policy.
 */
static void off_cpu_time_is_for_those_who_ask_for_it(void **state)
{
	struct pod_policy *one;

	one = policy(1, true, 20);
	policy(2, true, 20);
	pod(UID, 1);
	pod(OTHER, 2);
	policies_changed(p);
	assert_false(k.off_cpu);
	one->off_cpu_per_mille = 20;
	policies_changed(p);
	assert_true(k.off_cpu);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, "/kubepods/burstable/pod" OTHER);
	/* One stack walk for each 50 ms of waiting on average. */
	assert_int_equal(k.policies[k.of[4]].off_cpu, KILN_OFF_CPU_UNIT / 50000000);
	assert_int_equal(k.policies[k.of[5]].off_cpu, 0);
	one->off_cpu_per_mille = 0;
	policies_changed(p);
	assert_false(k.off_cpu);
	assert_int_equal(k.policies[k.of[4]].off_cpu, 0);
	policies_set_own_off_cpu(p, 7);
	assert_true(k.off_cpu);
	assert_int_equal(k.policies[POLICY_OWN].off_cpu, 7);
}

static void cgroups_of_a_pod_learn_when_it_is_told(void **state)
{
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, POD "/" ID);
	assert_int_equal(k.of[4], NONE);
	policy(1, true, 40);
	pod(UID, 1);
	policies_changed(p);
	assert_int_equal(hz_of(4), 40);
	assert_int_equal(hz_of(5), 40);
	/* A change without effect writes nothing. */
	k.writes = 0;
	policies_changed(p);
	assert_int_equal(k.writes, 0);
}

static void change_of_a_policy_is_another_entry(void **state)
{
	uint32_t before;

	policy(1, true, 20);
	pod(UID, 1);
	policies_cgroup_made(p, 4, POD);
	policies_changed(p);
	before = k.of[4];
	pods.policies[0] = (struct pod_policy){.id = 2, .enabled = true, .hz = 97};
	pods.pods[0].pod.policy = 2;
	policies_changed(p);
	assert_int_not_equal(k.of[4], before);
	assert_int_equal(hz_of(4), 97);
	/* The old entry keeps its rate for the samples that were taken under it. */
	assert_int_equal(k.policies[before].hz, 20);
	assert_int_equal(k.rate, 97);
}

static void disabled_pods_share_an_entry_that_is_off(void **state)
{
	policy(1, false, 97);
	policy(2, false, 20);
	pod(UID, 1);
	pod(OTHER, 2);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, "/kubepods/pod" OTHER);
	assert_int_equal(k.of[4], POLICY_OFF);
	assert_int_equal(k.of[5], POLICY_OFF);
	assert_int_equal(k.policies[POLICY_OFF].mode, KILN_POLICY_DISABLED);
	/* Disabled policies do not raise the timers' rate. */
	assert_int_equal(k.rate, 20);
}

static void timers_slow_down_late_and_stop_when_nobody_samples(void **state)
{
	struct pod_policy off = {.id = 9, .enabled = false};

	policies_window(p, 1, 1000);
	policy(1, true, 97);
	pods.fallback = &off;
	policies_changed(p);
	assert_int_equal(k.rate, 97);
	assert_int_equal(k.fallback, POLICY_OFF);
	pods.n_policies = 0;
	policies_changed(p);
	policies_window(p, 2, 1000 + POLICY_LOWER_MS - 1);
	assert_int_equal(k.rate, 97);
	policies_window(p, 3, 1000 + POLICY_LOWER_MS);
	assert_int_equal(k.rate, 0);
	pods.fallback = NULL;
	policies_changed(p);
	assert_int_equal(k.rate, 20);
	assert_int_equal(k.fallback, POLICY_OWN);
}

static void short_want_of_a_lower_rate_changes_nothing(void **state)
{
	policies_window(p, 1, 1000);
	policy(1, true, 97);
	policies_changed(p);
	pods.n_policies = 0;
	policies_changed(p);
	policies_window(p, 2, 6000);
	pods.n_policies = 1;
	policies_changed(p);
	k.rates = 0;
	policies_window(p, 3, 60000);
	assert_int_equal(k.rate, 97);
	assert_int_equal(k.rates, 0);
}

static void default_changes_by_another_entry(void **state)
{
	struct pod_policy a = {.id = 5, .enabled = true, .hz = 50},
			  b = {.id = 6, .enabled = true, .hz = 60};
	uint32_t first;

	pods.fallback = &a;
	policies_changed(p);
	first = k.fallback;
	assert_int_equal(k.policies[first].hz, 50);
	assert_true(policies_is_default(p, first));
	assert_true(policies_is_default(p, POLICY_OWN));
	pods.fallback = &b;
	policies_changed(p);
	assert_int_not_equal(k.fallback, first);
	assert_int_equal(k.policies[first].hz, 50);
	assert_true(policies_is_default(p, first));
}

static void removed_cgroup_has_no_entry(void **state)
{
	policy(1, true, 20);
	pod(UID, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_removed(p, 4, 1000);
	assert_int_equal(k.of[4], NONE);
	/*
	 * The cgroup's identity is still known, and a change of its policy does not bring the entry
	 * back.
	 */
	assert_string_equal(policies_cgroup(p, 4)->pod_uid, UID);
	pods.policies[0].hz = 21;
	policies_changed(p);
	assert_int_equal(k.of[4], NONE);
	policies_window(p, 9, 1000 + CGROUPS_KEEP_MS);
	assert_null(policies_cgroup(p, 4));
}

static void scan_finds_what_is_gone(void **state)
{
	policy(1, true, 20);
	pod(UID, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, POD "/" ID);
	policies_scan_begins(p);
	policies_cgroup_made(p, 4, POD);
	policies_scan_ends(p, 1000);
	assert_int_not_equal(k.of[4], NONE);
	assert_int_equal(k.of[5], NONE);
}

static void pod_that_leaves_the_table_gets_the_default(void **state)
{
	policy(1, true, 20);
	pod(UID, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	pods.n_pods = 0;
	policies_changed(p);
	assert_int_equal(k.of[4], NONE);
}

static void policies_beyond_the_kernels_room_are_off(void **state)
{
	for (uint64_t id = 1; id <= 300; id++)
		policy(id, true, 20);
	pod(UID, 300);
	pod(OTHER, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, "/kubepods/pod" OTHER);
	assert_int_equal(k.of[4], POLICY_OFF);
	assert_int_equal(hz_of(5), 20);
	/* A policy without a slot stays refused until a slot may be free. */
	assert_true(policies_refused(p));
	pods.n_policies = 0;
	policy(300, true, 20);
	for (uint32_t window = 1; policies_refused(p); window++) {
		assert_true(window < 20);
		policies_window(p, window, 1000 * window);
		policies_changed(p);
	}
	assert_int_equal(hz_of(4), 20);
}

static void disabled_tracers_are_bits(void **state)
{
	static const char *const names[] = {"python", "jvm", "what-is-that"};
	struct pod_policy *x = policy(1, true, 20);

	x->disabled_tracers = names;
	x->n_disabled_tracers = 3;
	pod(UID, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	assert_int_equal(k.policies[k.of[4]].runtimes, ~(1U << 1 | 1U << 6 | KILN_LABEL_KEYS));
}

static void keys_are_read_only_where_some_may_leave(void **state)
{
	static const char *const keys[] = {"tenant"};
	struct pod_policy *x = policy(1, true, 20);
	struct sample_rules rules;

	x->labels = keys;
	x->n_labels = 1;
	x->timestamps = true;
	pod(UID, 1);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	assert_true(k.policies[k.of[4]].runtimes & KILN_LABEL_KEYS);
	rules = policies_rules(p)[k.of[4]];
	assert_true(rules.timestamps);
	assert_true(label_allow_permits(rules.labels, "tenant"));
	assert_false(label_allow_permits(rules.labels, "secret"));
	rules = policies_rules(p)[POLICY_OFF];
	assert_false(rules.timestamps);
	assert_false(label_allow_permits(rules.labels, "tenant"));
}

static void times_that_the_node_asks_for_are_everybodys(void **state)
{
	struct pod_policy *x = policy(1, true, 20);
	struct pod_entry *of = pod(UID, 1);

	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	assert_false(policies_rules(p)[k.of[4]].timestamps);
	policies_set_own_rules(p, (struct sample_rules){.timestamps = true});
	assert_true(policies_rules(p)[POLICY_OWN].timestamps);
	assert_true(policies_rules(p)[k.of[4]].timestamps);
	/* Also with a policy that comes later. */
	x->id = of->policy = 2;
	policies_changed(p);
	assert_true(policies_rules(p)[k.of[4]].timestamps);
	policies_set_own_rules(p, (struct sample_rules){});
	assert_false(policies_rules(p)[k.of[4]].timestamps);
}

static enum policies_knowledge identify(const char *path, struct identity *ret)
{
	struct container_identity id;

	container_parse_path(path, &id);
	return policies_identify(p, &id, ret);
}

static void identity_says_what_is_known(void **state)
{
	struct pod_container c = {.name = "c", .has_id = true};
	struct identity who;

	for (size_t i = 0; i < sizeof(c.id); i++)
		c.id[i] = (uint8_t)(i % 8 * 0x22 + 0x01);
	assert_int_equal(identify("/", &who), KNOWN_OUTSIDE);
	assert_int_equal(identify("/docker/" ID, &who), KNOWN_OUTSIDE);
	assert_int_equal(identify(POD "/" ID, &who), KNOWN_NOTHING);
	policy(1, false, 20);
	pod(UID, 1);
	assert_int_equal(identify(POD "/" ID, &who), KNOWN_POD);
	assert_ptr_equal(who.pod, &pods.pods[0].pod);
	assert_true(who.forbidden);
	pods.pods[0].pod.containers = &c;
	pods.pods[0].pod.n_containers = 1;
	pods.policies[0].enabled = true;
	assert_int_equal(identify(POD "/" ID, &who), KNOWN_CONTAINER);
	assert_ptr_equal(who.container, &c);
	assert_false(who.forbidden);
	/* The container's id alone identifies it: kubelet and runtime may use different paths. */
	assert_int_equal(identify("/docker/" ID, &who), KNOWN_CONTAINER);
}

static uint64_t applied_id;
static uint32_t applied_n, applied_calls;

static void applied(uint64_t id, uint32_t containers, void *arg)
{
	applied_id = id;
	applied_n = containers;
	applied_calls++;
}

static void containers_of_a_policy_are_counted(void **state)
{
	policy(77, true, 20);
	pod(UID, 77);
	policies_changed(p);
	policies_cgroup_made(p, 4, POD);
	policies_cgroup_made(p, 5, POD "/" ID);
	policies_cgroup_made(p, 6, POD "/" ID "/init");
	policies_cgroup_made(
	    p, 7, POD "/ffffffffffffffff0123456789abcdef0123456789abcdef0123456789abcdef");
	applied_calls = 0;
	policies_applied(p, applied, NULL);
	assert_int_equal(applied_calls, 1);
	assert_int_equal(applied_id, 77);
	assert_int_equal(applied_n, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(cgroup_of_a_known_pod_has_its_policy_at_once),
	    TEST(off_cpu_time_is_for_those_who_ask_for_it),
	    TEST(cgroups_of_a_pod_learn_when_it_is_told),
	    TEST(change_of_a_policy_is_another_entry),
	    TEST(disabled_pods_share_an_entry_that_is_off),
	    TEST(timers_slow_down_late_and_stop_when_nobody_samples),
	    TEST(short_want_of_a_lower_rate_changes_nothing),
	    TEST(default_changes_by_another_entry),
	    TEST(removed_cgroup_has_no_entry),
	    TEST(scan_finds_what_is_gone),
	    TEST(pod_that_leaves_the_table_gets_the_default),
	    TEST(policies_beyond_the_kernels_room_are_off),
	    TEST(disabled_tracers_are_bits),
	    TEST(keys_are_read_only_where_some_may_leave),
	    TEST(times_that_the_node_asks_for_are_everybodys),
	    TEST(identity_says_what_is_known),
	    TEST(containers_of_a_policy_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
