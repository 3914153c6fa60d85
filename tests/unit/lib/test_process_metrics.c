/* SPDX-License-Identifier: Apache-2.0 */
/* The process's own numbers, from a /proc made up here and from the real one. */
#include "lib/process_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static char dir[64];

static void put(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	fclose(f);
}

static int setup(void **state)
{
	char path[128];

	strcpy(dir, "/tmp/kiln-process-metrics-XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/fd", dir);
	return mkdir(path, 0700);
}

static int teardown(void **state)
{
	static const char *const names[] = {"fd/0", "fd/1", "fd/2", "fd", "stat", "boot"};
	char path[128];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		remove(path);
	}
	return remove(dir);
}

static int read_fake(struct process_metrics *m)
{
	char boot[128];

	snprintf(boot, sizeof(boot), "%s/boot", dir);
	return process_metrics_read(dir, boot, m);
}

static const char good_stat[] =
    "42 (a) b (c) d) S 1 42 42 0 -1 4194560 1 2 3 4 250 150 7 8 20 0 9 0 "
    "5000 123456 77 18446744073709551615 1 2 3\n";

static void fields_are_found_behind_any_process_name(void **state)
{
	const double ticks = (double)sysconf(_SC_CLK_TCK);
	struct process_metrics m;

	put("stat", good_stat);
	put("boot", "cpu 1 2 3\nctxt 5\nbtime 1700000000\nprocesses 3\n");
	put("fd/0", "");
	put("fd/1", "");
	put("fd/2", "");
	assert_int_equal(read_fake(&m), 0);
	assert_true(m.cpu_seconds == 400.0 / ticks);
	assert_int_equal(m.threads, 9);
	assert_int_equal(m.virtual_bytes, 123456);
	assert_int_equal(m.resident_bytes, 77 * sysconf(_SC_PAGESIZE));
	assert_true(m.start_time_seconds == 1700000000.0 + 5000.0 / ticks);
	assert_int_equal(m.open_fds, 2);
}

static void damaged_files_are_errors_and_leave_the_result_alone(void **state)
{
	struct process_metrics m = {.threads = 7};

	assert_int_equal(read_fake(&m), -ENOENT);
	put("stat", good_stat);
	assert_int_equal(read_fake(&m), -ENOENT);
	put("boot", "cpu 1 2 3\n");
	assert_int_equal(read_fake(&m), -EINVAL);
	put("boot", "btime 5\n");
	put("stat", "42 (a) S 1 2 3");
	assert_int_equal(read_fake(&m), -EINVAL);
	put("stat", "42 no parenthesis");
	assert_int_equal(read_fake(&m), -EINVAL);
	put("stat", "");
	assert_int_equal(read_fake(&m), -ENODATA);
	assert_int_equal(m.threads, 7);
}

static void this_process_is_told_as_it_is(void **state)
{
	struct process_metrics before, after;
	struct timespec now;
	_cleanup_close_ int fd = -1;

	assert_int_equal(process_metrics_read("/proc/self", "/proc/stat", &before), 0);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(process_metrics_read("/proc/self", "/proc/stat", &after), 0);
	assert_int_equal(after.open_fds, before.open_fds + 1);
	assert_true(after.resident_bytes > 100000 && after.virtual_bytes >= after.resident_bytes);
	assert_true(after.threads >= 1);
	clock_gettime(CLOCK_REALTIME, &now);
	assert_true(after.start_time_seconds <= (double)now.tv_sec + 2);
	assert_true(after.start_time_seconds > (double)now.tv_sec - 600);
}

static void the_text_is_exact(void **state)
{
	const struct process_metrics m = {.cpu_seconds = 1.5,
					  .resident_bytes = 1ULL << 40,
					  .open_fds = 3,
					  .max_fds = 1024,
					  .threads = 2,
					  .start_time_seconds = 1700000000.25};
	struct buf b;

	buf_init(&b, 1 << 16);
	assert_int_equal(process_metrics_render(&m, &b), 0);
	assert_non_null(strstr(b.data,
			       "# HELP process_cpu_seconds_total User and system CPU time spent, "
			       "in seconds.\n# TYPE process_cpu_seconds_total counter\n"
			       "process_cpu_seconds_total 1.50\n"));
	assert_non_null(strstr(b.data, "# TYPE process_resident_memory_bytes gauge\n"
				       "process_resident_memory_bytes 1099511627776\n"));
	assert_non_null(strstr(b.data, "\nprocess_open_fds 3\n"));
	assert_non_null(strstr(b.data, "\nprocess_start_time_seconds 1700000000.25\n"));
	buf_done(&b);
	buf_init(&b, 100);
	assert_int_equal(process_metrics_render(&m, &b), -E2BIG);
	buf_done(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(fields_are_found_behind_any_process_name, setup,
					    teardown),
	    cmocka_unit_test_setup_teardown(damaged_files_are_errors_and_leave_the_result_alone,
					    setup, teardown),
	    cmocka_unit_test(this_process_is_told_as_it_is),
	    cmocka_unit_test(the_text_is_exact),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
