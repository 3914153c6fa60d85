/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/export/route.h"

#include <sys/resource.h>

#include "agent/meta/pods_update.h"
#include "agent/window/window.h"
#include "lib/metrics.h"
#include "tests/support/sample_batch.h"
#include "tests/support/test.h"

struct fake {
	struct exporter base;
	int batches;
	bool refused;
	int redirected, redirect_result;
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

static int fake_redirect(struct exporter *e, const struct exporter_config *config, uv_loop_t *on,
			 struct error *err)
{
	struct fake *f = container_of(e, struct fake, base);

	f->redirected++;
	return f->redirect_result < 0 ? error_set(err, f->redirect_result, "no") : 0;
}

static const struct exporter_ops grpc = {.type = "otlp_grpc",
					 .consume = fake_consume,
					 .refused = fake_refused,
					 .redirect = fake_redirect};
static struct fake main_exporter = {.base = {.ops = &grpc, .name = "otlp_grpc/main"}};
static struct fake archive = {.base = {.ops = &grpc, .name = "otlp_grpc/archive"}};
static struct exporter *const configured[] = {&main_exporter.base, &archive.base};
static uv_loop_t loop;
static struct router *router;

static int setup(void **state)
{
	if (uv_loop_init(&loop) < 0)
		return -1;
	main_exporter.batches = archive.batches = 0;
	return router_new(&loop, configured, 2, &router);
}

static int teardown(void **state)
{
	router = router_free(router);
	uv_run(&loop, UV_RUN_DEFAULT);
	return uv_loop_close(&loop);
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

/* ---- settings that the operator sent --------------------------------------------------------- */

static char health_error[128];

static void note_health(const char *id, bool healthy, const char *error, void *arg)
{
	if (streq(id, arg))
		snprintf(health_error, sizeof(health_error), "%s", error);
}

static const char *error_of(const char *id)
{
	snprintf(health_error, sizeof(health_error), "not a receiver");
	router_each(router, note_health, (void *)id);
	return health_error;
}

/* Sends T a Destination named ID: OTLP over gRPC in plaintext. Its CA certificate is never parsed.
 */
static void send_destination(struct pod_table *t, uint64_t revision, const char *id,
			     const char *endpoint)
{
	Kiln__Node__V1__Update u = KILN__NODE__V1__UPDATE__INIT;
	Kiln__Node__V1__Destination d = KILN__NODE__V1__DESTINATION__INIT, *list[] = {&d};
	Kiln__Node__V1__Tls tls = KILN__NODE__V1__TLS__INIT;
	struct error err;

	tls.mode = KILN__NODE__V1__TLS__MODE__PLAINTEXT;
	tls.ca_pem = (ProtobufCBinaryData){.data = (uint8_t *)"x", .len = 1};
	d.id = (char *)id;
	d.kind = KILN__NODE__V1__DESTINATION__KIND__OTLP_GRPC;
	d.endpoint = (char *)endpoint;
	d.tls = &tls;
	u.revision = revision;
	u.destinations = list;
	u.n_destinations = 1;
	assert_int_equal(pod_table_apply(t, &u, 0, &err), 0);
}

/* Updates the router while no file can be opened. */
static void update_without_descriptors(const struct pod_table *t)
{
	struct rlimit full, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &full), 0);
	none = full;
	none.rlim_cur = 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	router_update(router, t);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
}

static struct pod_table *empty_table(void)
{
	const struct pod_events events = {};
	struct pod_table *t;
	struct error err;

	assert_int_equal(pod_table_new(&events, &t), 0);
	pod_table_snapshot_begin(t, 1);
	assert_int_equal(pod_table_snapshot_end(t, 1, 1, 0, &err), 0);
	return t;
}

static void a_destination_is_tried_again_after_a_shortage(void **state)
{
	_cleanup_(pod_table_freep) struct pod_table *t = empty_table();
	int64_t before = metric_get(M_DESTINATIONS_FAILED);

	assert_true(route_to("shop/x", NULL));
	send_destination(t, 2, "shop/x", "localhost:1");
	update_without_descriptors(t);
	assert_true(router_take_refused(router));
	update_without_descriptors(t);
	assert_true(router_take_refused(router));
	assert_int_equal(metric_get(M_DESTINATIONS_FAILED), before + 1);
	assert_non_null(strstr(error_of("shop/x"), "cannot be used"));
	router_update(router, t);
	assert_string_equal(error_of("shop/x"), "");
	assert_false(router_take_refused(router));
	router_update(router, t);
	assert_false(router_take_refused(router));
}

static void settings_that_cannot_work_are_final(void **state)
{
	_cleanup_(pod_table_freep) struct pod_table *t = empty_table();
	int64_t before = metric_get(M_DESTINATIONS_FAILED);

	assert_true(route_to("shop/x", NULL));
	send_destination(t, 2, "shop/x", "no port");
	for (int i = 0; i < 2; i++) {
		router_update(router, t);
		assert_false(router_take_refused(router));
		assert_int_equal(metric_get(M_DESTINATIONS_FAILED), before + 1);
	}
	assert_non_null(strstr(error_of("shop/x"), "cannot be used"));
}

static void an_exporters_new_settings_are_tried_again_after_a_shortage(void **state)
{
	_cleanup_(pod_table_freep) struct pod_table *t = empty_table();
	int64_t before = metric_get(M_DESTINATIONS_FAILED);

	main_exporter.redirected = 0;
	send_destination(t, 2, "main", "localhost:1");
	update_without_descriptors(t);
	assert_true(router_take_refused(router));
	assert_int_equal(main_exporter.redirected, 0);
	router_update(router, t);
	router_update(router, t);
	assert_false(router_take_refused(router));
	assert_int_equal(main_exporter.redirected, 1);
	main_exporter.redirect_result = -EINVAL;
	send_destination(t, 3, "main", "localhost:2");
	router_update(router, t);
	router_update(router, t);
	assert_false(router_take_refused(router));
	assert_int_equal(main_exporter.redirected, 2);
	assert_int_equal(metric_get(M_DESTINATIONS_FAILED), before + 2);
	main_exporter.redirect_result = 0;
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
	    TEST(a_destination_is_tried_again_after_a_shortage),
	    TEST(settings_that_cannot_work_are_final),
	    TEST(an_exporters_new_settings_are_tried_again_after_a_shortage),
	    TEST(more_than_the_most_are_refused_and_the_others_go_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
