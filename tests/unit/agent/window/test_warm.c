/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs a runtime, told from a /proc that a test made up. */
#include <fcntl.h>
#include <sys/stat.h>

#include "agent/window/warm.h"
#include "tests/support/test.h"

static const struct interpreter_ops nameless = {.name = "nameless"},
				    python = {.files = (const char *const[]){"python", "libpython",
									     NULL}};
static const struct interpreter_ops *const table[] = {&nameless, &python, NULL};

static char dir[] = "/tmp/kiln-warm-XXXXXX";
static int fd;
static uint32_t found[WARM_PROCESSES_MAX + 1];
static size_t n_found;

static void add(const char *pid, const char *maps)
{
	char path[64];
	int file;

	assert_true(mkdirat(fd, pid, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/maps", pid);
	file = openat(fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(file >= 0);
	assert_int_equal(write(file, maps, strlen(maps)), (ssize_t)strlen(maps));
	close(file);
}

static int setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	n_found = 0;
	if (!mkdtemp(dir))
		return -1;
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	char command[64];

	close(fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static void on_found(uint32_t pid, void *arg)
{
	assert_true(n_found < ARRAY_SIZE(found));
	found[n_found++] = pid;
}

static bool is_found(uint32_t pid)
{
	for (size_t i = 0; i < n_found; i++)
		if (found[i] == pid)
			return true;
	return false;
}

#define LINE(perms, path) "1000-2000 " perms " 00000000 fd:01 77   " path "\n"

static void names_are_told_by_how_their_last_part_begins(void **state)
{
	assert_true(warm_is_runtime("/usr/bin/python3.11", table));
	assert_true(warm_is_runtime("/usr/lib/libpython3.13.so.1.0", table));
	assert_true(warm_is_runtime("python", table));
	assert_false(warm_is_runtime("/opt/python/bin/bash", table));
	assert_false(warm_is_runtime("/usr/bin/ipython", table));
	assert_false(warm_is_runtime("", table));
}

static void processes_that_map_one_as_code_are_found(void **state)
{
	add("10", LINE("r-xp", "/bin/bash") "3000-4000 r-xp 0 fd:01 78 /lib/libpython3.so\n");
	add("11", LINE("r--p", "/usr/bin/python3"));
	add("12", LINE("r-xp", "/usr/bin/python3"));
	add("13", "no maps at all");
	add("14", "");
	add("self", LINE("r-xp", "/usr/bin/python3"));
	warm_scan(fd, NULL, 0, table, on_found, NULL);
	assert_int_equal(n_found, 2);
	assert_true(is_found(10) && is_found(12));
}

static void only_those_that_were_asked_for_are_looked_at(void **state)
{
	const uint32_t pids[] = {21, 99};

	add("20", LINE("r-xp", "/usr/bin/python3"));
	add("21", LINE("r-xp", "/usr/bin/python3"));
	warm_scan(fd, pids, ARRAY_SIZE(pids), table, on_found, NULL);
	assert_int_equal(n_found, 1);
	assert_true(is_found(21));
}

static void there_is_an_end_to_it(void **state)
{
	char pid[16];

	for (int i = 0; i < WARM_PROCESSES_MAX + 10; i++) {
		snprintf(pid, sizeof(pid), "%d", 100 + i);
		add(pid, LINE("r-xp", "/usr/bin/python3"));
	}
	warm_scan(fd, NULL, 0, table, on_found, NULL);
	assert_int_equal(n_found, WARM_PROCESSES_MAX);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(names_are_told_by_how_their_last_part_begins),
	    TEST(processes_that_map_one_as_code_are_found),
	    TEST(only_those_that_were_asked_for_are_looked_at),
	    TEST(there_is_an_end_to_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
