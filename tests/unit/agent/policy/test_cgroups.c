/* SPDX-License-Identifier: Apache-2.0 */
/* The table of cgroups, and the choice of the cgroup hierarchy. */
#include "agent/policy/cgroup_table.h"
#include "agent/policy/cgroup_watch.h"
#include "tests/support/test.h"

#define UID "8f4e6a52-3b1c-4d7e-9a60-1f2e3d4c5b6a"
#define ID  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define POD "/kubepods/burstable/pod" UID

static struct cgroup_table *t;

static int setup(void **state)
{
	return cgroup_table_new(&t);
}

static int teardown(void **state)
{
	t = cgroup_table_free(t);
	return 0;
}

static struct cgroup *add(uint64_t id, const char *path)
{
	struct cgroup *c = NULL;

	assert_int_equal(cgroup_table_add(t, id, path, &c), 1);
	assert_ptr_equal(cgroup_table_find(t, id), c);
	return c;
}

static void cgroups_of_a_pod_are_found_together(void **state)
{
	struct cgroup *none = NULL;
	struct pod_cgroups *pod;

	add(1, POD);
	add(2, POD "/" ID);
	add(3, POD "/" ID "/init");
	pod = cgroup_table_find_pod(t, UID);
	assert_non_null(pod);
	assert_int_equal(pod->n, 3);
	assert_ptr_equal(cgroup_table_find(t, 3)->pod, pod);
	assert_string_equal(cgroup_table_find(t, 3)->identity.container_id, ID);
	assert_int_equal(cgroup_table_add(t, 4, "/kubepods/burstable", &none), 0);
	assert_null(none);
	assert_null(cgroup_table_find(t, 4));
	assert_int_equal(cgroup_table_count(t), 3);
}

static void of_those_of_nobody_it_is_known_that_they_are(void **state)
{
	struct cgroup *none = NULL;

	assert_false(cgroup_table_is_other(t, 4));
	assert_int_equal(cgroup_table_add(t, 4, "/system.slice", &none), 0);
	assert_int_equal(cgroup_table_add(t, 5, "/", &none), 0);
	assert_true(cgroup_table_is_other(t, 4) && cgroup_table_is_other(t, 5));
	/* Now the id is that of a container's cgroup. */
	add(5, POD "/" ID);
	assert_false(cgroup_table_is_other(t, 5));
	/* A cgroup that was removed, or that a scan did not find, stays known for a while. */
	assert_null(cgroup_table_remove(t, 4, 1000));
	cgroup_table_sweep(t, 1000 + CGROUPS_KEEP_MS - 1);
	assert_true(cgroup_table_is_other(t, 4));
	cgroup_table_sweep(t, 1000 + CGROUPS_KEEP_MS);
	assert_false(cgroup_table_is_other(t, 4));
	assert_int_equal(cgroup_table_add(t, 4, "/system.slice", &none), 0);
	assert_int_equal(cgroup_table_add(t, 6, "/user.slice", &none), 0);
	cgroup_table_begin_scan(t);
	assert_int_equal(cgroup_table_add(t, 6, "/user.slice", &none), 0);
	cgroup_table_end_scan(t, 2000);
	cgroup_table_sweep(t, 2000 + CGROUPS_KEEP_MS);
	assert_false(cgroup_table_is_other(t, 4));
	assert_true(cgroup_table_is_other(t, 6));
}

static void container_outside_of_pods_is_known_too(void **state)
{
	struct cgroup *c = add(9, "/docker/" ID);

	assert_null(c->pod);
	assert_string_equal(c->identity.container_id, ID);
}

static void removed_one_is_found_until_its_time_is_over(void **state)
{
	add(1, POD);
	assert_null(cgroup_table_remove(t, 77, 5));
	assert_non_null(cgroup_table_remove(t, 1, 1000));
	cgroup_table_sweep(t, 1000 + CGROUPS_KEEP_MS - 1);
	assert_non_null(cgroup_table_find(t, 1));
	/* A second removal does not extend the time. */
	cgroup_table_remove(t, 1, 1000 + CGROUPS_KEEP_MS - 1);
	cgroup_table_sweep(t, 1000 + CGROUPS_KEEP_MS);
	assert_null(cgroup_table_find(t, 1));
	assert_null(cgroup_table_find_pod(t, UID));
}

static void id_that_comes_again_elsewhere_is_another_cgroup(void **state)
{
	struct cgroup *none = NULL;

	add(1, POD);
	add(2, POD "/" ID);
	cgroup_table_remove(t, 2, 1);
	/* Added again, so it is not removed any more. */
	assert_int_equal(add(2, POD "/" ID)->removed_ms, 0);
	add(2, "/docker/" ID);
	assert_int_equal(cgroup_table_find_pod(t, UID)->n, 1);
	assert_int_equal(cgroup_table_add(t, 2, "/system.slice", &none), 0);
	assert_null(cgroup_table_find(t, 2));
}

static void caps_hold(void **state)
{
	struct cgroup *c;
	char path[256];
	uint64_t id = 1;

	for (; id <= CGROUPS_POD_MAX; id++) {
		snprintf(path, sizeof(path), POD "/" ID "/%llu", (unsigned long long)id);
		add(id, path);
	}
	assert_int_equal(cgroup_table_add(t, id, POD "/x", &c), -E2BIG);
	for (; id <= CGROUPS_MAX; id++) {
		snprintf(path, sizeof(path), "/kubepods/pod%08llx-3b1c-4d7e-9a60-1f2e3d4c5b6a",
			 (unsigned long long)id);
		add(id, path);
	}
	assert_int_equal(cgroup_table_add(t, id, "/docker/" ID, &c), -E2BIG);
	/* Removed cgroups make room. */
	cgroup_table_remove(t, 1, 1);
	cgroup_table_sweep(t, 1 + CGROUPS_KEEP_MS);
	add(id, "/docker/" ID);
}

static void hierarchy_is_the_memory_controllers_or_the_unified_one(void **state)
{
	static const struct {
		const char *text;
		enum cgroup_mode mode;
		int id;
		const char *path;
	} cases[] = {
	    {"9:name=systemd:/\n4:memory:/a\n0::/\n", CGROUP_V1, 4, "/r/memory"},
	    {"12:cpu,cpuacct:/\n3:pids,memory:/a\n0::/\n", CGROUP_HYBRID, 3, "/r/memory"},
	    {"12:cpu:/memory\n7:nomemory,memoryno:/memory\n0::/memory\n", CGROUP_HYBRID, 0,
	     "/r/unified"},
	    {"4:memory:/\n0::/\n", CGROUP_V2, 0, "/r"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *path = NULL;
		int id = -1;

		assert_int_equal(cgroup_hierarchy(cases[i].text, cases[i].mode, "/r", &id, &path),
				 0);
		assert_int_equal(id, cases[i].id);
		assert_string_equal(path, cases[i].path);
		free(path);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(cgroups_of_a_pod_are_found_together),
	    TEST(of_those_of_nobody_it_is_known_that_they_are),
	    TEST(container_outside_of_pods_is_known_too),
	    TEST(removed_one_is_found_until_its_time_is_over),
	    TEST(id_that_comes_again_elsewhere_is_another_cgroup),
	    TEST(caps_hold),
	    TEST(hierarchy_is_the_memory_controllers_or_the_unified_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
