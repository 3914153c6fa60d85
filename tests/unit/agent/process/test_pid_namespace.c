/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's own pid namespace, a real nested one, and links that say nothing. */
#include "agent/process/pid_namespace.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/test.h"

/* Exits with the answer of a child in a pid namespace of its own. */
static int nested_answer(void)
{
	pid_t pid;
	int status;

	if (unshare(CLONE_NEWPID) < 0)
		return 2;
	pid = fork();
	if (pid == 0)
		_exit(pid_namespace_nested("/proc") > 4026531836U);
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static void a_nested_one_is_seen(void **state)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(nested_answer());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_non_null(strstr(pid_namespace_advice(), "hostPID: true"));
}

static void only_another_pid_namespace_is_told(void **state)
{
	static const struct {
		const char *link;
		uint32_t nested;
	} table[] = {{"pid:[4026531836]", 0},
		     {"pid:[4026532999]", 4026532999},
		     {"pid:[1]", 1},
		     {"pid:[]", 0},
		     {"pid:[4294967296]", 0},
		     {"pid:[12", 0},
		     {"pid:[12]3", 0},
		     {"mnt:[4026531841]", 0},
		     {"x", 0},
		     {NULL, 0}};
	char dir[] = "/tmp/kiln-proc-XXXXXX", path[128], link[160];

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/self", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/self/ns", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(link, sizeof(link), "%s/pid", path);
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].link)
			assert_int_equal(symlink(table[i].link, link), 0);
		assert_int_equal(pid_namespace_nested(dir), table[i].nested);
		unlink(link);
	}
	rmdir(path);
	snprintf(path, sizeof(path), "%s/self", dir);
	rmdir(path);
	rmdir(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_nested_one_is_seen),
	    cmocka_unit_test(only_another_pid_namespace_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
