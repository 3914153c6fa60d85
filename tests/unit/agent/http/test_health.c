/* SPDX-License-Identifier: Apache-2.0 */
/* The health_check extension over a real socket; /metrics by the rules of Prometheus' text format.
 */
#include "agent/http/health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <ctype.h>

#include "lib/metrics.h"
#include "tests/unit/lib/httpd/harness.h"

static struct {
	struct loop_thread *thread;
	struct health *health;
	char path[32];
	bool ready; /* loop's thread, as below */
	const char *reason;
	int refreshed;
} f;

static bool is_ready(void *user, char *reason, size_t size)
{
	assert_ptr_equal(user, &f);
	snprintf(reason, size, "%s", f.reason);
	return f.ready;
}

static void refresh(void *user)
{
	assert_ptr_equal(user, &f);
	metric_set(M_PROCESSES, ++f.refreshed + 100);
}

static const struct health_callbacks callbacks = {
    .ready = is_ready, .refresh = refresh, .user = &f};

static void init(uv_loop_t *loop, void *user)
{
	char host[] = "localhost";
	struct http_config config = {.enabled = true, .host = host, .path = f.path};
	struct error err = {0};

	if (health_new(loop, &config, &callbacks, &f.health, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		abort();
	}
}

static void stop(void *user)
{
	f.health = health_free(f.health);
}

static int setup(void **state)
{
	memset(&f, 0, sizeof(f));
	f.reason = "";
	strcpy(f.path, "/");
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int setup_other_path(void **state)
{
	memset(&f, 0, sizeof(f));
	f.reason = "";
	strcpy(f.path, "/health/status");
	f.thread = loop_thread_new(init, stop, NULL);
	return 0;
}

static int teardown(void **state)
{
	loop_thread_free(f.thread);
	return 0;
}

static void get(const char *path, struct reply *r)
{
	client_get(health_port(f.health), path, r);
}

static void set_ready(void *arg)
{
	f.ready = true;
}

static void set_reason(void *arg)
{
	f.reason = arg;
}

static void healthz_is_ok_while_the_loop_runs(void **state)
{
	struct reply r;

	get("/healthz", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "ok\n");
	reply_done(&r);
}

static void readyz_tells_the_reason_until_ready(void **state)
{
	static char reason[] = "sampler: not attached";
	struct reply r;

	get("/readyz", &r);
	assert_int_equal(r.status, 503);
	assert_string_equal(r.body, "not ready: starting\n");
	reply_done(&r);
	loop_thread_call(f.thread, set_reason, reason);
	get("/readyz", &r);
	assert_int_equal(r.status, 503);
	assert_string_equal(r.body, "not ready: sampler: not attached\n");
	reply_done(&r);
	loop_thread_call(f.thread, set_ready, NULL);
	get("/readyz", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(r.body, "ok\n");
	reply_done(&r);
}

static void the_collectors_answer_has_its_shape(void **state)
{
	struct reply r;
	char type[64];
	int year, fields;
	double up;

	get("/", &r);
	assert_int_equal(r.status, 503);
	assert_string_equal(r.body, "{\"status\":\"Server not available\",\"upSince\":"
				    "\"0001-01-01T00:00:00Z\",\"uptime\":\"\"}");
	reply_done(&r);
	loop_thread_call(f.thread, set_ready, NULL);
	get("/", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(reply_header(&r, "Content-Type", type, sizeof(type)),
			    "application/json");
	fields =
	    sscanf(r.body,
		   "{\"status\":\"Server available\",\"upSince\":\"%4d-%*2d-%*2dT%*2d:%*2d:%*fZ\","
		   "\"uptime\":\"%lfs\"}",
		   &year, &up);
	assert_int_equal(fields, 2);
	assert_true(year >= 2024 && up >= 0 && up < 60);
	assert_int_equal(r.body[r.body_len - 1], '}');
	reply_done(&r);
}

static void the_path_is_configurable_and_hides_nothing(void **state)
{
	struct reply r;

	loop_thread_call(f.thread, set_ready, NULL);
	get("/health/status", &r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body[0], '{');
	reply_done(&r);
	get("/", &r);
	assert_int_equal(r.status, 404);
	reply_done(&r);
	get("/healthz", &r);
	assert_string_equal(r.body, "ok\n");
	reply_done(&r);
}

static void metrics_are_refreshed_first(void **state)
{
	struct reply r;

	get("/metrics", &r);
	assert_non_null(strstr(r.body, "\nkiln_processes 101\n"));
	reply_done(&r);
	get("/metrics", &r);
	assert_non_null(strstr(r.body, "\nkiln_processes 102\n"));
	reply_done(&r);
}

/* ---- the text format ------------------------------------------------------------------------- */

enum { NAMES_MAX = 512 };

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalpha((unsigned char)s[i]) || s[i] == '_' || s[i] == ':' ||
		      (i && isdigit((unsigned char)s[i]))))
			return false;
	return n > 0;
}

static bool has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && streq(s + n - m, suffix);
}

/*
 * What promtool check metrics asks: HELP with text, then TYPE, once per name and before its
 * samples; the samples of a name together; counters end in _total and gauges do not; no series
 * twice.
 */
static void check_exposition(char *text)
{
	static char seen[NAMES_MAX][128], series[NAMES_MAX * 2][256];
	char name[128] = "", kind[16] = "", *save = NULL;
	size_t n_seen = 0, n_series = 0;
	bool typed = false;

	assert_int_equal(text[strlen(text) - 1], '\n');
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		size_t n;
		char *end;

		if (has_prefix(line, "# HELP ")) {
			n = strcspn(line + 7, " ");
			assert_true(is_name(line + 7, n) && n < sizeof(name));
			snprintf(name, sizeof(name), "%.*s", (int)n, line + 7);
			if (strlen(line + 7 + n) < 10)
				fail_msg("no help for %s", name);
			for (size_t i = 0; i < n_seen; i++)
				if (streq(seen[i], name))
					fail_msg("%s appears twice", name);
			assert_true(n_seen < NAMES_MAX);
			strcpy(seen[n_seen++], name);
			typed = false;
			continue;
		}
		if (has_prefix(line, "# TYPE ")) {
			char typed_name[128];

			assert_false(typed);
			assert_int_equal(sscanf(line, "# TYPE %127s %15s", typed_name, kind), 2);
			assert_string_equal(typed_name, name);
			assert_true(streq(kind, "counter") || streq(kind, "gauge"));
			if (streq(kind, "counter") != has_suffix(name, "_total"))
				fail_msg("%s is a %s", name, kind);
			typed = true;
			continue;
		}
		assert_true(typed);
		n = strcspn(line, "{ ");
		if (strlen(name) != n || strncmp(line, name, n) != 0)
			fail_msg("sample outside of its name's block: %s", line);
		n = strlen(line) - strlen(strrchr(line, ' '));
		strtod(line + n + 1, &end);
		assert_int_equal(*end, 0);
		for (size_t i = 0; i < n_series; i++)
			if (strlen(series[i]) == n && strncmp(series[i], line, n) == 0)
				fail_msg("series twice: %s", line);
		assert_true(n_series < ARRAY_SIZE(series) && n < sizeof(series[0]));
		snprintf(series[n_series++], sizeof(series[0]), "%.*s", (int)n, line);
	}
	assert_true(n_seen > 30);
}

static void metrics_follow_the_text_format(void **state)
{
	static const char *const wanted[] = {
	    "\nkiln_samples_total 0\n",
	    "\nkiln_unwind_end_total{reason=\"root\"} 0\n",
	    "\nkiln_unwind_end_total{reason=\"depth\"} 0\n",
	    "\nkiln_samples_dropped_total{reason=\"ring_full\"} 0\n",
	    "\nprocess_open_fds ",
	    "\nprocess_cpu_seconds_total ",
	    "\nprocess_resident_memory_bytes ",
	    "\nprocess_start_time_seconds ",
	};
	struct reply r;
	char type[64], *copy;

	get("/metrics", &r);
	assert_int_equal(r.status, 200);
	assert_string_equal(reply_header(&r, "Content-Type", type, sizeof(type)),
			    "text/plain; version=0.0.4; charset=utf-8");
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!strstr(r.body, wanted[i]))
			fail_msg("missing: %s", wanted[i]);
	copy = strdup(r.body);
	check_exposition(copy);
	free(copy);
	reply_done(&r);
}

static void a_taken_port_names_the_setting(void **state)
{
	char host[] = "127.0.0.1", path[] = "/";
	struct http_config config = {.enabled = true, .host = host, .path = path};
	struct health *second = NULL;
	struct error err = {0};
	char want[160];
	uv_loop_t loop;

	config.port = health_port(f.health);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(health_new(&loop, &config, &callbacks, &second, &err), -EADDRINUSE);
	assert_null(second);
	snprintf(
	    want, sizeof(want),
	    "extensions.health_check.endpoint: cannot listen on 127.0.0.1:%u: Address already in "
	    "use",
	    config.port);
	assert_string_equal(err.message, want);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
	    WITH_SERVER(healthz_is_ok_while_the_loop_runs),
	    WITH_SERVER(readyz_tells_the_reason_until_ready),
	    WITH_SERVER(the_collectors_answer_has_its_shape),
	    cmocka_unit_test_setup_teardown(the_path_is_configurable_and_hides_nothing,
					    setup_other_path, teardown),
	    WITH_SERVER(metrics_are_refreshed_first),
	    WITH_SERVER(metrics_follow_the_text_format),
	    WITH_SERVER(a_taken_port_names_the_setting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
