/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text is read back by a small reader of the exposition format (Prometheus 0.0.4) that knows
 * nothing of how it was written: each family has one HELP and one TYPE before its samples and
 * stands in one piece, no series comes twice, buckets go up, +Inf is the count.
 */
#include "operator/http/prometheus.h"

#include <ctype.h>

#include "tests/support/test.h"

enum { FAMILIES_MAX = 64, SERIES_MAX = 1024 };

struct family {
	char name[128], type[16];
	bool has_help, has_type;
};
struct text {
	struct family families[FAMILIES_MAX];
	size_t n_families;
	struct {
		char key[256]; /* name{labels} */
		double value;
	} series[SERIES_MAX];
	size_t n_series;
	/* Of the histogram series that is being read. */
	char labels[192];
	double le, count, inf;
};

static bool is_name(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(isalpha((unsigned char)s[i]) || s[i] == '_' || s[i] == ':' ||
		      (i && isdigit((unsigned char)s[i]))))
			return false;
	return n > 0;
}

static struct family *family_of(struct text *t, const char *name, size_t n)
{
	struct family *last = t->n_families ? &t->families[t->n_families - 1] : NULL;

	if (last && strlen(last->name) == n && !memcmp(last->name, name, n))
		return last;
	for (size_t i = 0; i < t->n_families; i++)
		if (strlen(t->families[i].name) == n && !memcmp(t->families[i].name, name, n))
			fail_msg("%s is in two pieces", t->families[i].name);
	assert_true(t->n_families < FAMILIES_MAX);
	last = &t->families[t->n_families++];
	snprintf(last->name, sizeof(last->name), "%.*s", (int)n, name);
	return last;
}

static void read_comment(struct text *t, const char *line)
{
	bool help = !strncmp(line, "# HELP ", 7);
	const char *name = line + 7, *end = strchr(name, ' ');
	struct family *f;

	assert_true(help || !strncmp(line, "# TYPE ", 7));
	assert_non_null(end);
	assert_true(is_name(name, (size_t)(end - name)));
	f = family_of(t, name, (size_t)(end - name));
	if (help) {
		assert_false(f->has_help);
		assert_true(strlen(end + 1) > 5);
		f->has_help = true;
		return;
	}
	assert_false(f->has_type);
	f->has_type = true;
	snprintf(f->type, sizeof(f->type), "%s", end + 1);
	assert_true(streq(f->type, "counter") || streq(f->type, "gauge") ||
		    streq(f->type, "histogram"));
}

/* name="value",... up to '}'; returns what comes after it. */
static const char *read_labels(const char *p)
{
	while (*p != '}') {
		const char *eq = strchr(p, '=');

		assert_non_null(eq);
		assert_true(is_name(p, (size_t)(eq - p)));
		assert_int_equal(eq[1], '"');
		for (p = eq + 2; *p != '"'; p++) {
			assert_true(*p && *p != '\n');
			if (*p == '\\')
				assert_non_null(strchr("\\\"n", *++p));
		}
		p++;
		assert_true(*p == ',' || *p == '}');
		p += *p == ',';
	}
	return p + 1;
}

static void read_bucket(struct text *t, const char *suffix, const char *labels, double value)
{
	const char *le = strstr(labels, "le=\"");
	size_t n = le ? (size_t)(le - labels) : strlen(labels);
	double bound;

	if (n && labels[n - 1] == ',')
		n--;
	if (strlen(t->labels) != n || memcmp(t->labels, labels, n) != 0) {
		snprintf(t->labels, sizeof(t->labels), "%.*s", (int)n, labels);
		t->le = -1;
		t->count = t->inf = -1;
	}
	if (streq(suffix, "_bucket")) {
		assert_non_null(le);
		bound = strtod(le + 4, NULL);
		assert_true(bound > t->le && value >= t->count);
		t->le = bound;
		t->count = value;
		if (!strncmp(le, "le=\"+Inf\"", 9))
			t->inf = value;
	} else {
		assert_true(t->inf >= 0); /* +Inf came before */
		if (streq(suffix, "_count"))
			assert_true(value == t->inf);
	}
}

static void read_sample(struct text *t, const char *line)
{
	struct family *f = &t->families[t->n_families - 1];
	size_t n = strcspn(line, "{ "), base = strlen(f->name);
	const char *p = line + n, *labels = "";
	char *end, copy[192] = "", suffix[128];
	double value;

	assert_true(t->n_families > 0 && f->has_help && f->has_type);
	assert_true(is_name(line, n) && n >= base && !memcmp(line, f->name, base));
	snprintf(suffix, sizeof(suffix), "%.*s", (int)(n - base), line + base);
	if (*p == '{') {
		labels = p + 1;
		p = read_labels(p + 1);
		snprintf(copy, sizeof(copy), "%.*s", (int)(p - labels - 1), labels);
	}
	assert_int_equal(*p, ' ');
	value = strtod(p + 1, &end);
	assert_true(end != p + 1 && !*end);
	if (streq(f->type, "histogram")) {
		assert_true(streq(suffix, "_bucket") || streq(suffix, "_sum") ||
			    streq(suffix, "_count"));
		read_bucket(t, suffix, copy, value);
	} else {
		assert_string_equal(suffix, "");
	}
	if (streq(f->type, "counter")) {
		assert_true(base > 6 && streq(f->name + base - 6, "_total"));
		assert_true(value >= 0);
	}
	assert_true(t->n_series < SERIES_MAX);
	snprintf(t->series[t->n_series].key, sizeof(t->series[0].key), "%.*s", (int)(p - line),
		 line);
	t->series[t->n_series].value = value;
	for (size_t i = 0; i < t->n_series; i++)
		assert_string_not_equal(t->series[i].key, t->series[t->n_series].key);
	t->n_series++;
}

static struct text *read_text(struct buf *b)
{
	struct text *t = calloc(1, sizeof(*t));
	char *rest, *line;

	assert_non_null(t);
	assert_int_equal(buf_error(b), 0);
	assert_true(b->len > 0 && ((char *)b->data)[b->len - 1] == '\n');
	buf_append(b, "", 1);
	rest = (char *)b->data;
	while ((line = strsep(&rest, "\n")) && rest) {
		if (line[0] == '#')
			read_comment(t, line);
		else
			read_sample(t, line);
	}
	return t;
}

static double value_of(const struct text *t, const char *key)
{
	for (size_t i = 0; i < t->n_series; i++)
		if (streq(t->series[i].key, key))
			return t->series[i].value;
	fail_msg("no %s", key);
	return 0;
}

static void test_requests_by_method_and_code(void **state)
{
	struct request_counts c = {.n = 0};
	_cleanup_free_ struct text *t = NULL;
	_cleanup_(buf_done) struct buf b;

	for (int i = 0; i < 3; i++)
		request_count(&c, "GET", 200);
	request_count(&c, "GET", 0);
	request_count(&c, "PATCH", 200);
	buf_init(&b, 1 << 20);
	prometheus_requests(&b, &c);
	t = read_text(&b);
	assert_int_equal(t->n_series, 3);
	assert_true(value_of(t, "rest_client_requests_total{method=\"GET\",code=\"200\"}") == 3);
	assert_true(value_of(t, "rest_client_requests_total{method=\"GET\",code=\"<error>\"}") ==
		    1);
	assert_true(value_of(t, "rest_client_requests_total{method=\"PATCH\",code=\"200\"}") == 1);
}

static void test_a_server_cannot_make_series_without_end(void **state)
{
	struct request_counts c = {.n = 0};
	_cleanup_free_ struct text *t = NULL;
	_cleanup_(buf_done) struct buf b;

	for (int i = 0; i < 900; i++)
		request_count(&c, "GET", 100 + i);
	buf_init(&b, 1 << 20);
	prometheus_requests(&b, &c);
	t = read_text(&b);
	assert_int_equal(t->n_series, REQUEST_KINDS_MAX + 1);
	assert_true(value_of(t, "rest_client_requests_total{method=\"\",code=\"other\"}") ==
		    900 - REQUEST_KINDS_MAX);
}

static void test_reconciles(void **state)
{
	struct reconcile_counts a = {.controller = "a"}, c = {.controller = "b"};
	const struct reconcile_counts *const all[] = {&a, &c};
	_cleanup_free_ struct text *t = NULL;
	_cleanup_(buf_done) struct buf b;

	reconcile_count(&a, RECONCILE_SUCCESS, 0.005); /* a bound is inside of its bucket */
	reconcile_count(&a, RECONCILE_SUCCESS, 0.3);
	reconcile_count(&a, RECONCILE_ERROR, 61);
	reconcile_count(&a, RECONCILE_REQUEUE, 0);
	buf_init(&b, 1 << 20);
	prometheus_reconciles(&b, all, 2);
	t = read_text(&b);
#define TIME "controller_runtime_reconcile_time_seconds"
	assert_true(value_of(t, "controller_runtime_reconcile_total{controller=\"a\",result="
				"\"success\"}") == 2);
	assert_true(value_of(t, "controller_runtime_reconcile_total{controller=\"a\",result="
				"\"requeue\"}") == 1);
	assert_true(value_of(t, "controller_runtime_reconcile_errors_total{controller=\"a\"}") ==
		    1);
	assert_true(value_of(t, "controller_runtime_reconcile_errors_total{controller=\"b\"}") ==
		    0);
	assert_true(value_of(t, TIME "_bucket{controller=\"a\",le=\"0.005\"}") == 2);
	assert_true(value_of(t, TIME "_bucket{controller=\"a\",le=\"0.25\"}") == 2);
	assert_true(value_of(t, TIME "_bucket{controller=\"a\",le=\"0.5\"}") == 3);
	assert_true(value_of(t, TIME "_bucket{controller=\"a\",le=\"60\"}") == 3);
	assert_true(value_of(t, TIME "_bucket{controller=\"a\",le=\"+Inf\"}") == 4);
	assert_true(value_of(t, TIME "_sum{controller=\"a\"}") == 0.005 + 0.3 + 61 + 0);
}

static void work(void *arg, const char *key)
{
	(*(unsigned int *)arg)++;
}

static void test_queues(void **state)
{
	struct work_queue_options options = {
	    .name = "agents", .workers = 1, .max_keys = 8, .work = work};
	unsigned int worked = 0;
	struct work_queue *queues[2];
	_cleanup_free_ struct text *t = NULL;
	_cleanup_(buf_done) struct buf b;
	uv_loop_t loop;

	assert_int_equal(uv_loop_init(&loop), 0);
	options.arg = &worked;
	assert_int_equal(work_queue_new(&loop, &options, &queues[0]), 0);
	options.name = "status";
	assert_int_equal(work_queue_new(&loop, &options, &queues[1]), 0);
	assert_int_equal(work_queue_add(queues[0], "x"), 0);
	assert_int_equal(work_queue_add(queues[0], "y"), 0);
	while (!worked)
		uv_run(&loop, UV_RUN_ONCE);
	work_queue_done(queues[0], "x", 0);
	buf_init(&b, 1 << 20);
	prometheus_queues(&b, queues, 2);
	t = read_text(&b);
	assert_true(value_of(t, "workqueue_adds_total{name=\"agents\"}") == 2);
	assert_true(value_of(t, "workqueue_adds_total{name=\"status\"}") == 0);
	assert_true(value_of(t, "workqueue_depth{name=\"agents\"}") == 1);
	assert_true(value_of(t, "workqueue_work_duration_seconds_count{name=\"agents\"}") == 1);
	assert_true(value_of(t, "workqueue_queue_duration_seconds_bucket{name=\"agents\",le="
				"\"1e-08\"}") == 0);
	assert_true(value_of(t, "workqueue_queue_duration_seconds_bucket{name=\"agents\",le="
				"\"+Inf\"}") >= 1);
	work_queue_free(queues[0]);
	work_queue_free(queues[1]);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_a_full_buffer_is_told(void **state)
{
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 40);
	prometheus_single(&b, "a", "gauge", "some help that is longer than the buffer", 1);
	assert_true(buf_error(&b) < 0);
}

static void test_large_numbers_are_exact(void **state)
{
	_cleanup_free_ struct text *t = NULL;
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 1 << 20);
	prometheus_single(&b, "a_total", "counter", "some help", 9007199254740991.0);
	t = read_text(&b);
	assert_true(value_of(t, "a_total") == 9007199254740991.0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_requests_by_method_and_code),
	    cmocka_unit_test(test_a_server_cannot_make_series_without_end),
	    cmocka_unit_test(test_reconciles),
	    cmocka_unit_test(test_queues),
	    cmocka_unit_test(test_a_full_buffer_is_told),
	    cmocka_unit_test(test_large_numbers_are_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
