/* SPDX-License-Identifier: Apache-2.0 */
/* main() with an agent whose outcome is given: exit codes, and what is printed where. */
#include "lib/base.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/wait.h>

#include <cmocka.h>

struct outcome {
	int code;
	char out[4096], err[4096];
};

static void read_all(int fd, char text[4096])
{
	size_t n = 0;
	ssize_t r;

	while ((r = read(fd, text + n, 4095 - n)) > 0)
		n += (size_t)r;
	text[n] = 0;
	close(fd);
}

/* OUT: a file instead of the pipe, or NULL. What is printed fits into a pipe. */
static void run(struct outcome *o, const char *out, const char *a, const char *b)
{
	char *argv[] = {(char *)"kiln-agent", (char *)a, (char *)b, NULL}, *env[] = {NULL};
	int to[2], errors[2], status;
	pid_t pid;

	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(errors, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = out ? open(out, O_WRONLY | O_CLOEXEC) : to[1];

		if (dup2(fd, STDOUT_FILENO) >= 0 && dup2(errors[1], STDERR_FILENO) >= 0)
			execve(FAKE_AGENT, argv, env);
		_exit(99);
	}
	close(to[1]);
	close(errors[1]);
	read_all(to[0], o->out);
	read_all(errors[0], o->err);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	o->code = WEXITSTATUS(status);
}

static void test_outcomes_become_exit_codes(void **state)
{
	static const struct {
		int error, code;
		const char *printed;
	} cases[] = {
	    {20, 0, ""},
	    {EPERM, 3, "kiln-agent: outcome 1\n"},
	    {ENOSYS, 3, "kiln-agent: outcome 38\n"},
	    {ENOTSUP, 3, "kiln-agent: outcome 95\n"},
	    {EINVAL, 2, "kiln-agent: outcome 22\n"},
	    {ENOMEM, 1, "kiln-agent: outcome 12\n"},
	    {EIO, 1, "kiln-agent: Input/output error\n"}, /* no message was made */
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char number[16];
		struct outcome o;

		snprintf(number, sizeof(number), "%d", cases[i].error);
		run(&o, NULL, "--samples-per-second", number);
		assert_int_equal(o.code, cases[i].code);
		assert_string_equal(o.err, cases[i].printed);
		assert_string_equal(o.out, "");
	}
}

static void test_a_bad_flag_is_usage(void **state)
{
	struct outcome o;

	run(&o, NULL, "--stdot", NULL);
	assert_int_equal(o.code, 2);
	assert_string_equal(o.err, "kiln-agent: --stdot: unknown option; did you mean --stdout?\n");
}

static void test_check_checks_and_does_not_run(void **state)
{
	struct outcome o;

	run(&o, NULL, "--check", NULL);
	assert_int_equal(o.code, 3);
	assert_string_equal(o.out, "kernel        of a kind\n"); /* as far as it came */
	assert_string_equal(o.err, "kiln-agent: checked\n");
}

static void test_help_and_version_go_to_standard_output(void **state)
{
	struct outcome o;

	run(&o, NULL, "--version", NULL);
	assert_int_equal(o.code, 0);
	assert_string_equal(o.out, "kiln-agent " KILN_VERSION "\n");
	run(&o, NULL, "-help", NULL);
	assert_int_equal(o.code, 0);
	assert_non_null(strstr(o.out, "--collection-agent HOST:PORT"));
	assert_string_equal(o.err, "");
}

static void test_a_full_standard_output_is_a_failure(void **state)
{
	struct outcome o;

	run(&o, "/dev/full", "--help", NULL);
	assert_int_equal(o.code, 1);
	assert_string_equal(o.err, "kiln-agent: standard output: No space left on device\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_outcomes_become_exit_codes),
	    cmocka_unit_test(test_a_bad_flag_is_usage),
	    cmocka_unit_test(test_check_checks_and_does_not_run),
	    cmocka_unit_test(test_help_and_version_go_to_standard_output),
	    cmocka_unit_test(test_a_full_standard_output_is_a_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
