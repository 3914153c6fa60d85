/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/export/route.h"
#include "agent/window/window.h"
#include "lib/metrics.h"
#include "tests/support/sample_batch.h"
#include "tests/support/test.h"

struct fake {
	struct exporter base;
	int batches;
	bool refused;
};

static void fake_consume(struct exporter *e, struct batch *batch)
{
	container_of(e, struct fake, base)->batches++;
}

static bool fake_refused(const struct exporter *e, char *error, size_t size)
{
	snprintf(error, size, "rejects: no such tenant");
	return container_of((struct exporter *)e, struct fake, base)->refused;
}

static const struct exporter_ops grpc = {
    .type = "otlp_grpc", .consume = fake_consume, .refused = fake_refused};
static struct fake main_exporter = {.base = {.ops = &grpc, .name = "otlp_grpc/main"}};
static struct fake archive = {.base = {.ops = &grpc, .name = "otlp_grpc/archive"}};
static struct exporter *const configured[] = {&main_exporter.base, &archive.base};
static uv_loop_t loop;
static struct router *router;

static int setup(void **state)
{
	main_exporter.batches = archive.batches = 0;
	return router_new(&loop, configured, 2, &router);
}

static int teardown(void **state)
{
	router = router_free(router);
	return 0;
}

static uint64_t route_to(const char *a, const char *b)
{
	const char *names[] = {a, b};
	const struct pod_policy policy = {.id = 1,
					  .routed = true,
					  .destinations = names,
					  .n_destinations = b	? 2
							    : a ? 1
								: 0};

	return router_route(router, NULL, &policy);
}

static void a_name_of_the_configuration_is_its_exporter(void **state)
{
	const struct pod_policy silent = {.id = 1};
	struct batch *batch;

	assert_int_equal(sample_batch_build(&batch), 0);
	assert_int_equal(router_route(router, NULL, &silent), 0);
	assert_int_equal(route_to("archive", "main"), 0); /* both: as the configuration says */
	assert_int_equal(route_to(NULL, NULL), ROUTE_NOWHERE);
	router_deliver(router, route_to("main", NULL), batch);
	assert_int_equal(main_exporter.batches, 1);
	assert_int_equal(archive.batches, 0);
	router_deliver(router, router_default(router), batch);
	assert_int_equal(main_exporter.batches, 2);
	assert_int_equal(archive.batches, 1);
	assert_false(router_has_live(router));
	batch_unref(batch);
}

static void all_is_refused_when_each_exporter_says_so(void **state)
{
	char reason[128];

	assert_false(router_refused(router, reason, sizeof(reason)));
	archive.refused = true;
	assert_false(router_refused(router, reason, sizeof(reason)));
	main_exporter.refused = true;
	assert_true(router_refused(router, reason, sizeof(reason)));
	assert_string_equal(reason, "otlp_grpc/archive rejects: no such tenant");
	main_exporter.refused = archive.refused = false;
}

static void without_exporters_nothing_is_refused(void **state)
{
	struct router *none;
	char reason[128];

	assert_int_equal(router_new(&loop, NULL, 0, &none), 0);
	assert_false(router_refused(none, reason, sizeof(reason)));
	router_free(none);
}

static void a_tenants_name_is_never_the_configurations(void **state)
{
	struct batch *batch;

	assert_int_equal(sample_batch_build(&batch), 0);
	router_deliver(router, route_to("shop/main", NULL), batch);
	assert_int_equal(main_exporter.batches, 0);
	assert_true(router_has_live(router));
	batch_unref(batch);
}

static void batches_wait_and_the_oldest_go(void **state)
{
	int64_t before = metric_get(M_SAMPLES_NO_DESTINATION), each;
	uint64_t route = route_to("shop/x", NULL);
	struct batch *batch;

	assert_int_equal(sample_batch_build(&batch), 0);
	each = batch_cpu_samples(batch);
	for (int i = 0; i < ROUTE_HELD_MAX; i++)
		router_deliver(router, route, batch);
	assert_int_equal(metric_get(M_SAMPLES_NO_DESTINATION), before);
	for (int i = 0; i < 3; i++)
		router_deliver(router, route, batch);
	assert_int_equal(metric_get(M_SAMPLES_NO_DESTINATION), before + 3 * each);
	router_sweep(router, route);
	assert_int_equal(route_to("shop/x", NULL), route); /* in use: the bit stays */
	router_sweep(router, 0);
	assert_int_equal(metric_get(M_SAMPLES_NO_DESTINATION),
			 before + (3 + ROUTE_HELD_MAX) * each);
	assert_false(router_has_live(router));
	batch_unref(batch);
}

static void more_than_the_most_are_refused_and_the_others_go_on(void **state)
{
	uint64_t all = 0, route;
	char name[32];

	for (int i = 0; i < ROUTE_LIVE_MAX; i++) {
		snprintf(name, sizeof(name), "shop/%d", i);
		route = route_to(name, NULL) & ~ROUTE_NOWHERE;
		assert_true(route && !(route & (all | router_default(router))));
		all |= route;
	}
	assert_false(router_take_refused(router));
	assert_int_equal(route_to("shop/more", NULL), ROUTE_NOWHERE);
	assert_true(router_take_refused(router));
	assert_false(router_take_refused(router));
	assert_int_equal(route_to("shop/more", "shop/3"), route_to("shop/3", NULL));
	router_sweep(router, all & ~(route_to("shop/5", NULL) & ~ROUTE_NOWHERE));
	assert_true(route_to("shop/more", NULL) & ~ROUTE_NOWHERE);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_name_of_the_configuration_is_its_exporter),
	    TEST(all_is_refused_when_each_exporter_says_so),
	    TEST(without_exporters_nothing_is_refused),
	    TEST(a_tenants_name_is_never_the_configurations),
	    TEST(batches_wait_and_the_oldest_go),
	    TEST(more_than_the_most_are_refused_and_the_others_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
