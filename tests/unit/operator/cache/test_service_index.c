/* SPDX-License-Identifier: Apache-2.0 */
/* The services of a pod, by endpoint slice. */
#include "tests/unit/operator/cache/intern_rig.h"

#include "operator/cache/service_index.h"
#include "tests/unit/operator/cache/views.h"

static struct endpoint_slice_view slices;

static uint8_t uid_told[64];
static size_t n_uid_told;

static void on_service(void *arg, const uint8_t uid[16])
{
	(void)arg;
	assert_true(n_uid_told < sizeof(uid_told));
	uid_told[n_uid_told++] = uid[15];
}

static void endpoint_slice(const char *ns, const char *name, const char *service)
{
	memset(&slices, 0, sizeof(slices));
	slices.meta.ns = text(ns);
	slices.meta.name = text(name);
	if (service) {
		slices.meta.labels[0] =
		    (struct slice_pair){text("kubernetes.io/service-name"), text(service)};
		slices.meta.n_labels = 1;
	}
}

static void endpoint(const char *uid)
{
	slices.pod_uids[slices.n_pods++] = text(uid);
}

static void expect_services(const struct service_index *index, const char *ns, uint8_t last,
			    const char *want)
{
	const char *names[SERVICE_NAMES_MAX];
	uint8_t uid[16] = {[15] = last};
	char got[256] = "";
	size_t n = service_index_find(index, ns, uid, names, SERVICE_NAMES_MAX);

	for (size_t i = 0; i < n; i++) {
		(void)strncat(got, names[i], 64);
		(void)strncat(got, " ", 2);
	}
	assert_string_equal(got, want);
}

static void expect_told(const char *want)
{
	char got[256] = "";

	for (size_t i = 0; i < n_uid_told; i++)
		(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%02x ", uid_told[i]);
	assert_string_equal(got, want);
	n_uid_told = 0;
}

static void services_of_a_pod(void **unused)
{
	const struct service_index_options options = {
	    .intern = in, .max_slices = 10, .max_endpoints = 100, .changed = on_service};
	_cleanup_(service_index_freep) struct service_index *index = NULL;

	(void)unused;
	n_uid_told = 0;
	assert_int_equal(service_index_new(&options, &index), 0);
	endpoint_slice("shop", "web-abc", "web");
	endpoint(UID("02"));
	endpoint(UID("01"));
	endpoint(UID("01")); /* two ports, or a not ready address beside a ready one */
	endpoint(NULL);
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("01 02 ");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("");
	endpoint_slice("shop", "web-ipv6", "web");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	endpoint_slice("shop", "all-xyz", "all");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 2), 0);
	endpoint_slice("shop", "none", NULL);
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 2), 0);
	expect_services(index, "shop", 1, "all web ");
	expect_services(index, "shop", 2, "web ");
	expect_services(index, "shop", 3, "");
	/* A service in another namespace does not change the services of these pods. */
	endpoint_slice("evil", "x", "stolen");
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_services(index, "shop", 1, "all web ");
	expect_services(index, "evil", 1, "stolen ");
	n_uid_told = 0;
	/* Only the endpoints that came or went are reported. */
	endpoint_slice("shop", "web-abc", "web");
	endpoint(UID("03"));
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("02 03 ");
	expect_services(index, "shop", 2, "");
	endpoint_slice("shop", "web-abc", "renamed");
	endpoint(UID("03"));
	endpoint(UID("01"));
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	expect_told("01 03 ");
	expect_services(index, "shop", 1, "all renamed web ");
	assert_int_equal(service_index_remove_view(index, &slices.meta), 0);
	expect_told("01 03 ");
	expect_services(index, "shop", 1, "all web ");
	service_index_replaced(index, 2);
	expect_services(index, "shop", 1, "all ");
	endpoint_slice("shop", "a/b", "x");
	assert_int_equal(service_index_put_view(index, &slices, 1), -EBADMSG);
}

static void slices_are_bounded(void **unused)
{
	const struct service_index_options options = {
	    .intern = in, .max_slices = 3, .max_endpoints = 2000};
	_cleanup_(service_index_freep) struct service_index *index = NULL;
	static char uids[VIEW_ENDPOINTS_MAX][40];
	struct service_index_stats stats;
	const char *names[2];
	uint8_t uid[16] = {0};

	(void)unused;
	assert_int_equal(service_index_new(&options, &index), 0);
	endpoint_slice("shop", "big", "web");
	for (int i = 0; i < VIEW_ENDPOINTS_MAX; i++) {
		(void)snprintf(uids[i], sizeof(uids[i]), "00000000-0000-0000-0000-%012x", i);
		endpoint(uids[i]);
	}
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("big2");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("big3"); /* beyond max_endpoints */
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	service_index_read_stats(index, &stats);
	assert_int_equal(stats.slices, 2);
	assert_int_equal(stats.endpoints, 2 * SERVICE_SLICE_PODS_MAX);
	assert_int_equal(stats.refused, 1);
	assert_int_equal(stats.cut, 3 * (VIEW_ENDPOINTS_MAX - SERVICE_SLICE_PODS_MAX));
	for (int i = 0; i < SERVICE_SLICE_PODS_MAX; i++) {
		uid[14] = (uint8_t)(i >> 8);
		uid[15] = (uint8_t)i;
		assert_int_equal(service_index_find(index, "shop", uid, names, 2), 1);
	}
	endpoint_slice("shop", "small", "web");
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	slices.meta.name = text("small2"); /* beyond max_slices */
	assert_int_equal(service_index_put_view(index, &slices, 1), 0);
	service_index_read_stats(index, &stats);
	assert_int_equal(stats.slices, 3);
	assert_int_equal(stats.refused, 2);
}

static void random_slices_and_a_naive_model(void **unused)
{
	enum { SLICES = 12, PODS = 20, ROUNDS = 4000 };
	const struct service_index_options options = {
	    .intern = in, .max_slices = 100, .max_endpoints = 1000};
	_cleanup_(service_index_freep) struct service_index *index = NULL;
	static bool has[SLICES][PODS];
	static int service[SLICES];
	const char *names[SERVICE_NAMES_MAX];
	char name[24], label[24], uids[PODS][40], expected[16];
	uint64_t random = 1;

	(void)unused;
	memset(has, 0, sizeof(has));
	assert_int_equal(service_index_new(&options, &index), 0);
	for (int i = 0; i < PODS; i++)
		(void)snprintf(uids[i], sizeof(uids[i]), "00000000-0000-0000-0000-%012x", i);
	for (int round = 0; round < ROUNDS; round++) {
		int s = (int)((random = mix64(random + 1)) % SLICES);
		uint8_t uid[16] = {0};
		size_t n = 0;

		service[s] = (int)((random >> 8) % 4);
		(void)snprintf(name, sizeof(name), "slice%d", s);
		(void)snprintf(label, sizeof(label), "s%d", service[s]);
		endpoint_slice("shop", name, label);
		for (int i = 0; i < PODS; i++) {
			has[s][i] = (random >> 40) % 5 && (mix64(random + (uint64_t)i) & 1);
			if (has[s][i])
				endpoint(uids[i]);
		}
		if ((random >> 40) % 5)
			assert_int_equal(service_index_put_view(index, &slices, 1), 0);
		else
			assert_int_equal(service_index_remove_view(index, &slices.meta), 0);
		for (int i = 0; i < PODS; i++) {
			bool want[4] = {false};

			uid[15] = (uint8_t)i;
			for (int k = 0; k < SLICES; k++)
				want[service[k]] |= has[k][i];
			n = service_index_find(index, "shop", uid, names, SERVICE_NAMES_MAX);
			for (int k = 0, at = 0; k < 4; k++) {
				if (!want[k])
					continue;
				(void)snprintf(expected, sizeof(expected), "s%d", k);
				assert_true((size_t)at < n);
				assert_string_equal(names[at++], expected);
			}
			assert_int_equal(n, want[0] + want[1] + want[2] + want[3]);
		}
	}
	service_index_replaced(index, 2);
	assert_int_equal(intern_count(in), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, intern_setup, intern_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(services_of_a_pod),
	    TEST(slices_are_bounded),
	    TEST(random_slices_and_a_naive_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
