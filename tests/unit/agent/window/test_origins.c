/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the window to the output formats: the total of each format is the sum of the samples'
 * weights, with rates that change within a window, and with other origins than the CPU clock.
 */
#include <zlib.h>

#include "agent/live/aggregate.h"
#include "agent/live/profile.h"
#include "agent/profile/folded.h"
#include "agent/profile/otlp.h"
#include "agent/profile/pprof.h"
#include "agent/window/naming.h"
#include "otlp/profiles.pb-c.h"
#include "pprof/profile.pb-c.h"
#include "tests/support/test.h"

enum { SLOW = 50000000, FAST = 10309278 }; /* 20 Hz, 97 Hz */

static struct {
	struct config *config;
	struct naming *naming;
	struct stack_table *stacks;
	struct window window;
	struct process process;
	struct stack *stack;
	struct batch *batch;
	struct buf out;
} t;

static const struct tracer no_tracers[] = {{}};

static int setup(void **state)
{
	const uint64_t word = (uint64_t)KILN_FRAME_NATIVE << KILN_FRAME_KIND_SHIFT | 0x1234;
	enum config_action action;

	memset(&t, 0, sizeof(t));
	assert_int_equal(
	    config_load(2, (char *const[]){(char *)"kiln-agent", (char *)"--stdout", NULL},
			(const char *const[]){NULL}, no_tracers, &t.config, &action, NULL),
	    0);
	assert_int_equal(naming_new(t.config, &t.naming, NULL), 0);
	assert_int_equal(stack_table_new(&t.stacks), 0);
	assert_int_equal(
	    stack_table_get(t.stacks, 1, NULL, KILN_END_ROOT, &word, 0, &word, 1, 1, &t.stack), 0);
	window_init(&t.window);
	window_reset(&t.window, 1, 1000);
	t.process.key.tgid = 42;
	t.process.info.executable_name = (char *)"program";
	t.process.info.executable_path = (char *)"/bin/program";
	buf_init(&t.out, 1 << 20);
	return 0;
}

static int teardown(void **state)
{
	buf_done(&t.out);
	t.batch = batch_unref(t.batch);
	window_done(&t.window);
	t.stacks = stack_table_free(t.stacks);
	t.naming = naming_free(t.naming);
	config_free(t.config);
	return 0;
}

static void add(enum kiln_origin origin, uint64_t value, uint64_t period, unsigned int times)
{
	const struct window_sample s = {
	    .stack = t.stack,
	    .process = &t.process,
	    .tid = 43,
	    .origin = origin,
	    .comm = "main",
	    .value = value,
	    .period = period,
	};

	while (times--)
		assert_int_equal(window_add(&t.window, &s), 0);
}

/* 3 samples at 20 Hz, 7 at 97 Hz, and one at 97 Hz that stands for two periods. */
static void add_two_rates(void)
{
	add(KILN_ORIGIN_CPU, SLOW, SLOW, 3);
	add(KILN_ORIGIN_CPU, FAST, FAST, 7);
	add(KILN_ORIGIN_CPU, 2 * FAST, FAST, 1);
}

#define TWO_RATES_NS (3LL * SLOW + 9LL * FAST)

static void name(void)
{
	assert_int_equal(naming_build(t.naming, &t.window, 0, 5000, &t.batch), 0);
}

static Pprof__Profile *pprof(const struct batch *b)
{
	static uint8_t raw[1 << 20];
	z_stream z = {.next_out = raw, .avail_out = sizeof(raw)};
	Pprof__Profile *p;

	buf_reset(&t.out);
	assert_int_equal(pprof_encode(&b, 1, NULL, &t.out, NULL), 0);
	z.next_in = (Bytef *)t.out.data;
	z.avail_in = (uInt)t.out.len;
	assert_int_equal(inflateInit2(&z, 15 + 16), Z_OK);
	assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
	inflateEnd(&z);
	p = pprof__profile__unpack(NULL, z.total_out, raw);
	assert_non_null(p);
	return p;
}

/* The sum of the column TYPE with UNIT; -1: no such column. */
static int64_t pprof_total(const Pprof__Profile *p, const char *type, const char *unit)
{
	int64_t sum = 0;

	for (size_t c = 0; c < p->n_sample_type; c++) {
		if (!streq(p->string_table[p->sample_type[c]->type], type) ||
		    !streq(p->string_table[p->sample_type[c]->unit], unit))
			continue;
		for (size_t i = 0; i < p->n_sample; i++) {
			assert_int_equal(p->sample[i]->n_value, p->n_sample_type);
			sum += p->sample[i]->value[c];
		}
		return sum;
	}
	return -1;
}

/* The sum of values times period over the profiles of TYPE; without a period, of the values. */
static int64_t otlp_total(const char *type, const char *unit)
{
	const struct otlp_options options = {.generation = OTLP_G6};
	struct otlp_request *requests;
	Otlp__ExportProfilesServiceRequest *r;
	int64_t sum = 0;
	size_t n;

	assert_int_equal(otlp_encode(t.batch, &options, &requests, &n, NULL), 0);
	assert_int_equal(n, 1);
	r = otlp__export_profiles_service_request__unpack(NULL, requests->len, requests->data);
	assert_non_null(r);
	for (size_t i = 0; i < r->resource_profiles[0]->scope_profiles[0]->n_profiles; i++) {
		const Otlp__Profile *p = r->resource_profiles[0]->scope_profiles[0]->profiles[i];
		char *const *strings = r->dictionary->string_table;
		int64_t unit_ns = 1;

		if (!streq(strings[p->sample_type->type_strindex], type))
			continue;
		assert_string_equal(strings[p->sample_type->unit_strindex], unit);
		if (p->period) {
			assert_string_equal(strings[p->period_type->type_strindex], "cpu");
			assert_string_equal(strings[p->period_type->unit_strindex], "nanoseconds");
			unit_ns = p->period;
		}
		for (size_t j = 0; j < p->n_samples; j++) {
			assert_int_equal(p->samples[j]->n_values, 1);
			sum += p->samples[j]->values[0] * unit_ns;
		}
	}
	otlp__export_profiles_service_request__free_unpacked(r, NULL);
	otlp_requests_free(requests, n);
	return sum;
}

static const char *folded(enum profile_kind kind)
{
	_cleanup_(folded_freep) struct folded *f = NULL;

	assert_int_equal(folded_new(1 << 20, kind, &f), 0);
	assert_int_equal(folded_add(f, t.batch), 0);
	buf_reset(&t.out);
	assert_int_equal(folded_write(f, &t.out), 0);
	return t.out.len ? t.out.data : "";
}

static void two_rates_of_one_stack_give_the_exact_cpu_time(void **state)
{
	Pprof__Profile *p;

	add_two_rates();
	name();
	assert_int_equal(t.batch->n_profiles, 2);
	assert_int_equal(batch_cpu_samples(t.batch), 3 + 9);
	p = pprof(t.batch);
	assert_int_equal(p->n_sample_type, 2);
	assert_int_equal(p->n_sample, 1);
	assert_int_equal(pprof_total(p, "samples", "count"), 3 + 9);
	assert_int_equal(pprof_total(p, "cpu", "nanoseconds"), TWO_RATES_NS);
	pprof__profile__free_unpacked(p, NULL);
	assert_int_equal(otlp_total("samples", "count"), TWO_RATES_NS);
}

/* Weights are of one unit, that of the faster rate: 3 x 50 ms / 10.3 ms = 14.55. */
static void folded_weights_of_two_rates_add_up(void **state)
{
	add_two_rates();
	name();
	assert_string_equal(folded(PROFILE_CPU), "program;[unknown] 24\n");
	assert_string_equal(folded(PROFILE_OFF_CPU), "");
}

static void folded_weights_of_one_rate_are_samples(void **state)
{
	add(KILN_ORIGIN_CPU, SLOW, SLOW, 5);
	name();
	assert_string_equal(folded(PROFILE_CPU), "program;[unknown] 5\n");
}

/* A sample of a program's first moment may have neither kernel frames nor user frames. */
static void a_stack_without_frames_says_so(void **state)
{
	assert_int_equal(
	    stack_table_get(t.stacks, 1, NULL, KILN_END_NONE, NULL, 0, NULL, 0, 1, &t.stack), 0);
	add(KILN_ORIGIN_CPU, SLOW, SLOW, 1);
	name();
	assert_string_equal(folded(PROFILE_CPU), "program;[incomplete: no stack] 1\n");
}

static void the_live_page_keeps_totals_of_two_rates(void **state)
{
	_cleanup_(batch_unrefp) struct batch *shown = NULL;
	_cleanup_(aggregate_freep) struct aggregate *a = NULL;
	Pprof__Profile *p;

	add_two_rates();
	name();
	assert_int_equal(aggregate_new(&a), 0);
	assert_int_equal(aggregate_add(a, t.batch), 0);
	assert_int_equal(live_profile(a, &(struct live_filter){}, &shown), 0);
	p = pprof(shown);
	assert_int_equal(pprof_total(p, "samples", "count"), 3 + 9);
	assert_int_equal(pprof_total(p, "cpu", "nanoseconds"), TWO_RATES_NS);
	pprof__profile__free_unpacked(p, NULL);
}

static void off_cpu_time_goes_through_as_off_cpu(void **state)
{
	Pprof__Profile *p;

	add(KILN_ORIGIN_CPU, SLOW, SLOW, 2);
	add(KILN_ORIGIN_OFF_CPU, 1500, 0, 1);
	add(KILN_ORIGIN_OFF_CPU, 77, 0, 1);
	name();
	assert_int_equal(t.batch->n_profiles, 2);
	assert_int_equal(t.batch->profiles[1].kind, PROFILE_OFF_CPU);
	assert_int_equal(t.batch->profiles[1].period_ns, 0);
	p = pprof(t.batch);
	assert_int_equal(p->n_sample_type, 3);
	assert_int_equal(pprof_total(p, "samples", "count"), 2);
	assert_int_equal(pprof_total(p, "cpu", "nanoseconds"), 2LL * SLOW);
	assert_int_equal(pprof_total(p, "off_cpu", "nanoseconds"), 1577);
	pprof__profile__free_unpacked(p, NULL);
	assert_int_equal(otlp_total("off_cpu", "nanoseconds"), 1577);
	assert_int_equal(otlp_total("samples", "count"), 2LL * SLOW);
	assert_string_equal(folded(PROFILE_OFF_CPU), "program;[unknown] 1577\n");
	assert_string_equal(folded(PROFILE_CPU), "program;[unknown] 2\n");
}

static void hits_of_a_probe_are_events(void **state)
{
	Pprof__Profile *p;

	add(KILN_ORIGIN_PROBE, 1, 0, 4);
	name();
	p = pprof(t.batch);
	assert_int_equal(pprof_total(p, "events", "count"), 4);
	assert_int_equal(pprof_total(p, "cpu", "nanoseconds"), 0);
	pprof__profile__free_unpacked(p, NULL);
	assert_int_equal(otlp_total("events", "count"), 4);
	assert_string_equal(folded(PROFILE_PROBE), "program;[unknown] 4\n");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(two_rates_of_one_stack_give_the_exact_cpu_time),
	    TEST(folded_weights_of_two_rates_add_up),
	    TEST(folded_weights_of_one_rate_are_samples),
	    TEST(a_stack_without_frames_says_so),
	    TEST(the_live_page_keeps_totals_of_two_rates),
	    TEST(off_cpu_time_goes_through_as_off_cpu),
	    TEST(hits_of_a_probe_are_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
