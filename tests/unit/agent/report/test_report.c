/* SPDX-License-Identifier: Apache-2.0 */
/* The report to the operator: every kind of lost sample is counted, a tracer that does not work
 * is never reported as loaded, and only important changes are reported at once. */
#include "agent/report.h"

#include "agent/probes/probes.h"
#include "lib/metrics.h"
#include "tests/support/test.h"

static struct {
	struct sampler_stats kernel;
	struct {
		char id[400], error[400];
		bool healthy;
	} exporters[META_EXPORTERS_MAX + 3];
	size_t n_exporters;
	size_t n_policies;
	size_t n_probes;
	const char *probe_reason;
	const struct runtimes *runtimes;
	struct runtime_status python; /* the only runtime that is built in */
} world;

enum { PYTHON = 1 };
static const struct tracer known_tracers[] = {
    {"native", "native", 0, true},
    {"kernel", "kernel", 0, true},
    {"go", "go", 0, true},
    {"python", "python", PYTHON, true},
    {"v8", "v8", 2, true},
    {"hotspot", "jvm", 6, false},
    {},
};
static struct config config;
static struct report_texts texts;
static struct meta_report report;

void sampler_read_stats(struct sampler *s, struct sampler_stats *ret)
{
	*ret = world.kernel;
}

void router_each(const struct router *r,
		 void (*each)(const char *id, bool healthy, const char *error, void *arg),
		 void *arg)
{
	for (size_t i = 0; i < world.n_exporters; i++)
		each(world.exporters[i].id, world.exporters[i].healthy, world.exporters[i].error,
		     arg);
}

void policies_applied(const struct policies *p,
		      void (*each)(uint64_t id, uint32_t containers, void *arg), void *arg)
{
	for (size_t i = 0; i < world.n_policies; i++)
		each(100 + i, (uint32_t)i + 1, arg);
}

bool runtimes_status(const struct runtimes *rt, uint32_t id, struct runtime_status *ret)
{
	if (id != PYTHON)
		return false;
	*ret = world.python;
	return true;
}

size_t probes_count(const struct probes *p)
{
	return world.n_probes;
}

void probes_status(const struct probes *p, size_t i, struct probe_status *ret)
{
	*ret = (struct probe_status){.name = "uprobe:/lib/a:f", .reason = world.probe_reason};
}

static void fill(bool policies)
{
	const struct report_sources from = {.config = &config,
					    .policies = policies ? (struct policies *)&world : NULL,
					    .runtimes = world.runtimes,
					    .probes = (struct probes *)&world};

	memset(&report, 0, sizeof(report));
	report_fill(&from, &texts, &report);
}

static int setup(void **state)
{
	memset(&world, 0, sizeof(world));
	config = (struct config){.known_tracers = known_tracers, .receiver.tracers = UINT32_MAX};
	for (int i = 0; i < M_COUNT; i++)
		metric_set((enum metric_id)i, 0);
	return 0;
}

static int tracer(const char *name)
{
	for (size_t i = 0; i < report.n_tracers; i++)
		if (streq(report.tracers[i].name, name))
			return (int)i;
	fail_msg("nothing is said of %s", name);
	return -1;
}

/* As the API spells them (crds/profilingnodes.yaml: 16 characters). */
static void every_tracer_is_named_once(void **state)
{
	static const char *const names[] = {"native", "kernel", "go", "python", "v8", "jvm"};

	fill(true);
	assert_int_equal(report.n_tracers, ARRAY_SIZE(names));
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)tracer(names[i]);
}

static void a_runtime_is_loaded_and_names_the_version_that_it_cannot_read(void **state)
{
	world.runtimes = (const struct runtimes *)&world;
	world.python = (struct runtime_status){.enabled = true, .unsupported = ""};
	fill(false);
	assert_int_equal(report.tracers[tracer("python")].state, META_TRACER_LOADED);
	assert_null(report.tracers[tracer("python")].reason);
	assert_int_equal(report.tracers[tracer("v8")].state, META_TRACER_UNAVAILABLE);
	world.python.unsupported = "9.9 is not known";
	fill(false);
	assert_int_equal(report.tracers[tracer("python")].state, META_TRACER_LOADED);
	assert_string_equal(report.tracers[tracer("python")].reason, "9.9 is not known");
	/* Once some version was attached to, the unsupported one is no longer reported. */
	world.python.attached_ever = 1;
	world.python.versions[0] = "3.11";
	world.python.n_versions = 1;
	fill(false);
	assert_null(report.tracers[tracer("python")].reason);
	assert_int_equal(report.tracers[tracer("python")].n_versions, 1);
	assert_string_equal(report.tracers[tracer("python")].versions[0], "3.11");
}

static void a_runtime_that_is_off_is_disabled(void **state)
{
	world.runtimes = (const struct runtimes *)&world;
	world.python = (struct runtime_status){.enabled = false, .unsupported = ""};
	config.receiver.tracers = 0;
	fill(false);
	assert_int_equal(report.tracers[tracer("python")].state, META_TRACER_DISABLED);
}

static void a_tracer_that_does_not_work_says_why(void **state)
{
	for (int asked = 0; asked < 2; asked++) {
		config.receiver.tracers = asked ? UINT32_MAX : 0;
		fill(true);
		for (size_t i = 0; i < report.n_tracers; i++) {
			bool works = report.tracers[i].state == META_TRACER_LOADED;

			assert_true(works == !report.tracers[i].reason);
			assert_int_not_equal(report.tracers[i].state, META_TRACER_UNKNOWN);
			if (!works)
				assert_int_equal(report.tracers[i].state,
						 asked ? META_TRACER_UNAVAILABLE
						       : META_TRACER_DISABLED);
		}
		assert_int_equal(report.tracers[tracer("native")].state, META_TRACER_LOADED);
		assert_int_equal(report.tracers[tracer("kernel")].state, META_TRACER_LOADED);
	}
}

/* Each way on which a sample can be lost, one at a time and all together. */
static void every_loss_counts(void **state)
{
	static const enum metric_id losses[] = {
	    M_DROPPED_MALFORMED,      M_DROPPED_WINDOW_FULL,   M_DROPPED_NO_MEMORY,
	    M_EXPORT_SAMPLES_DROPPED, M_OTLP_OVERSIZE_SAMPLES, M_TEXT_DROPPED,
	    M_PPROF_FILE_DROPPED,     M_FOLDED_FILE_DROPPED,   M_SAMPLES_NO_DESTINATION};
	uint64_t sum = 5;

	world.kernel.counts[KILN_STAT_RING_FULL] = 5;
	for (size_t i = 0; i < ARRAY_SIZE(losses); i++) {
		metric_add(losses[i], 1 << i);
		sum += 1u << i;
		fill(true);
		assert_int_equal(report.dropped, sum);
	}
	metric_add(M_SAMPLES, 1000);
	metric_add(M_SAMPLES_INCOMPLETE, 30);
	metric_add(M_EXPORT_SAMPLES_SENT, 900);
	fill(true);
	assert_int_equal(report.samples, 1000);
	assert_int_equal(report.truncated, 30);
	assert_int_equal(report.exported, 900);
	assert_int_equal(report.dropped, sum);
}

static void add_exporter(const char *id, bool healthy, const char *error)
{
	size_t i = world.n_exporters++;

	snprintf(world.exporters[i].id, sizeof(world.exporters[i].id), "%s", id);
	snprintf(world.exporters[i].error, sizeof(world.exporters[i].error), "%s", error);
	world.exporters[i].healthy = healthy;
}

/* The router's texts are valid during the callback only. */
static void exporters_are_copied_and_cut(void **state)
{
	char longer[400];

	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	add_exporter("main", false, "connection refused");
	for (size_t i = 1; i < META_EXPORTERS_MAX + 3; i++)
		add_exporter(longer, true, "");
	fill(true);
	memset(world.exporters, 0, sizeof(world.exporters));
	assert_int_equal(report.n_exporters, META_EXPORTERS_MAX);
	assert_string_equal(report.exporters[0].destination, "main");
	assert_string_equal(report.exporters[0].error, "connection refused");
	assert_false(report.exporters[0].healthy);
	assert_true(report.exporters[1].healthy);
	assert_int_equal(strlen(report.exporters[META_EXPORTERS_MAX - 1].destination),
			 REPORT_TEXT_MAX - 1);
}

static void policies_are_those_that_hold(void **state)
{
	world.n_policies = 2;
	fill(true);
	assert_int_equal(report.n_policies, 2);
	assert_int_equal(report.policies[1].id, 101);
	assert_int_equal(report.policies[1].containers, 2);
	world.n_policies = META_POLICIES_MAX + 5;
	fill(true);
	assert_int_equal(report.n_policies, META_POLICIES_MAX);
	fill(false);
	assert_int_equal(report.n_policies, 0);
}

static uint64_t word(void)
{
	fill(true);
	return report_word(&report);
}

static void only_what_turns_is_another_word(void **state)
{
	uint64_t before, failing, policy;

	add_exporter("main", true, "");
	world.n_policies = 1;
	before = word();
	metric_add(M_SAMPLES, 7);
	world.kernel.counts[KILN_STAT_RING_FULL] = 9;
	assert_true(word() == before);
	world.exporters[0].healthy = false;
	failing = word();
	assert_true(failing != before);
	world.exporters[0].healthy = true;
	assert_true(word() == before);
	world.n_policies = 2;
	policy = word();
	assert_true(policy != before && policy != failing);
	add_exporter("second", true, "");
	assert_true(word() != policy);
}

static void a_probe_that_is_attached_at_last_is_told_at_once(void **state)
{
	uint64_t word;

	fill(false);
	assert_int_equal(report.n_probes, 0);
	world.n_probes = 1;
	world.probe_reason = "this kernel has none";
	fill(false);
	assert_int_equal(report.n_probes, 1);
	assert_string_equal(report.probes[0].name, "uprobe:/lib/a:f");
	assert_string_equal(report.probes[0].reason, "this kernel has none");
	word = report_word(&report);
	world.probe_reason = NULL;
	fill(false);
	assert_null(report.probes[0].reason);
	assert_true(report_word(&report) != word);
	world.n_probes = 100;
	fill(false);
	assert_int_equal(report.n_probes, META_PROBES_MAX);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    T(a_probe_that_is_attached_at_last_is_told_at_once),
	    T(every_tracer_is_named_once),
	    T(a_runtime_is_loaded_and_names_the_version_that_it_cannot_read),
	    T(a_runtime_that_is_off_is_disabled),
	    T(a_tracer_that_does_not_work_says_why),
	    T(every_loss_counts),
	    T(exporters_are_copied_and_cut),
	    T(policies_are_those_that_hold),
	    T(only_what_turns_is_another_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
