/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line, by running the program: what is wrong is said in one exact line, with exit
 * code 2, before anything is connected to. What is right is read by options_parse().
 */
#include "operator/options.h"

#include <fcntl.h>
#include <sys/wait.h>

#include "tests/support/test.h"

enum { ARGS_MAX = 10 };

/* Both outputs of the program, one after the other; its exit code. */
static int run(const char *const *args, char *out, size_t size)
{
	char *argv[ARGS_MAX + 2] = {(char *)(uintptr_t)PROGRAM};
	int fds[2], status;
	size_t n = 0;
	ssize_t r;
	pid_t pid;

	for (size_t i = 0; i < ARGS_MAX && args[i]; i++)
		argv[i + 1] = (char *)(uintptr_t)args[i];
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		alarm(30);
		dup2(fds[1], 1);
		dup2(fds[1], 2);
		execv(PROGRAM, argv);
		_exit(127);
	}
	close(fds[1]);
	while ((r = read(fds[0], out + n, size - 1 - n)) > 0)
		n += (size_t)r;
	out[n] = 0;
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static const struct {
	const char *args[ARGS_MAX];
	const char *line;
} wrong[] = {
    {{"--nope"}, "--nope: unknown option; see --help"},
    {{"--nope=1"}, "--nope=1: unknown option; see --help"},
    {{"--l", "x"}, "--l: unknown option; see --help"}, /* two begin like it */
    {{"-x"}, "-x: unknown option; see --help"},
    {{"--log-level", "info", "-xy"}, "-x: unknown option; see --help"},
    {{"run"}, "run: unexpected argument; see --help"},
    {{"--version", "now"}, "now: unexpected argument; see --help"},
    {{"--", "--help"}, "--help: unexpected argument; see --help"},
    {{"--help=3"}, "--help: takes no value"},
    {{"--version="}, "--version: takes no value"},
    {{"--namespace"}, "--namespace: wants a value"},
    {{"--agent-image"}, "--agent-image: wants a value"},
    {{"--role"}, "--role: wants a value"},
    {{"--role", "leader"}, "--role: want all, stream or controller, got \"leader\""},
    {{"--role="}, "--role: want all, stream or controller, got \"\""},
    {{"--role", "stream"}, "--role=stream: want --stream-address, where agents come"},
    {{"--role", "controller", "--stream-address", ":1"},
     "--role=controller: serves no agents, so that --stream-address and --stream-cert are for "
     "--role=stream alone"},
    {{"--role", "controller", "--stream-cert", "c", "--stream-key", "k"},
     "--role=controller: serves no agents, so that --stream-address and --stream-cert are for "
     "--role=stream alone"},
    {{"--role", "controller"},
     "--role=controller: want --stream-peers, the replicas of role stream, and --stream-token"},
    {{"--role", "controller", "--stream-peers", "a:1"},
     "--stream-peers, --stream-token: want both or none"},
    {{"--stream-token", "t"}, "--stream-peers, --stream-token: want both or none"},
    {{"--role", "stream", "--stream-address", ":1", "--stream-peers", "a:1"},
     "--role=stream: --stream-peers and --stream-token are for --role=controller, which asks this "
     "role for reports"},
    {{"--role", "stream", "--stream-address", ":1", "--agent-image", "a:1"},
     "--role=stream: --agent-image and --leader-elect are for --role=controller: this role writes "
     "nothing"},
    {{"--role", "stream", "--stream-address", ":1", "--leader-elect", "true"},
     "--role=stream: --agent-image and --leader-elect are for --role=controller: this role writes "
     "nothing"},
    {{"--stream-address", ":1", "--stream-ca", "c"},
     "--stream-ca: want --stream-cert, which it is the CA of"},
    {{"--stream-peers", ""}, "--stream-peers: want a value, got \"\""},
    {{"--role", "all", "--stream-cert", "c"}, "--stream-cert, --stream-key: want both or none"},
    {{"--kubeconfig"}, "--kubeconfig: wants a value"},
    {{"--context"}, "--context: wants a value"},
    {{"--health-address"}, "--health-address: wants a value"},
    {{"--metrics-address"}, "--metrics-address: wants a value"},
    {{"--leader-elect"}, "--leader-elect: wants a value"},
    {{"--log-level"}, "--log-level: wants a value"},
    {{"--namespace="}, "--namespace: want a namespace's name, got \"\""},
    {{"--namespace", "a/b"}, "--namespace: want a namespace's name, got \"a/b\""},
    {{"--namespace", "-a"}, "--namespace: want a namespace's name, got \"-a\""},
    {{"--namespace", "Kiln"}, "--namespace: want a namespace's name, got \"Kiln\""},
    {{"--agent-image="}, "--agent-image: want a value, got \"\""},
    {{"--kubeconfig="}, "--kubeconfig: want a value, got \"\""},
    {{"--context="}, "--context: want a value, got \"\""},
    {{"--health-address", "x"}, "--health-address: want HOST:PORT or :PORT, got \"x\""},
    {{"--health-address", ":99999"}, "--health-address: want HOST:PORT or :PORT, got \":99999\""},
    {{"--metrics-address", ":0x"}, "--metrics-address: want HOST:PORT or :PORT, got \":0x\""},
    {{"--metrics-address="}, "--metrics-address: want HOST:PORT or :PORT, got \"\""},
    {{"--leader-elect", "maybe"}, "--leader-elect: want true or false, got \"maybe\""},
    {{"--leader-elect="}, "--leader-elect: want true or false, got \"\""},
    {{"--log-level", "loud"}, "--log-level: want debug, info, warn or error, got \"loud\""},
    {{"--log-level", "INFO"}, "--log-level: want debug, info, warn or error, got \"INFO\""},
    {{"--kubeconfig", "/nonexistent/config"}, "/nonexistent/config: No such file or directory"},
};

static void test_each_wrong_option_is_named_in_one_line(void **state)
{
	char out[8192], want[512];

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		int code = run(wrong[i].args, out, sizeof(out));

		snprintf(want, sizeof(want), "kiln-operator: %s\n", wrong[i].line);
		assert_string_equal(out, want);
		assert_int_equal(code, 2);
	}
}

static void test_help_and_version_are_printed(void **state)
{
	static const char *const help[ARGS_MAX] = {"--help"}, *const version[ARGS_MAX] = {
								  "--version"};
	char out[8192];

	assert_int_equal(run(help, out, sizeof(out)), 0);
	assert_string_equal(out, options_help());
	for (const char *line = out; *line; line += strcspn(line, "\n") + 1)
		assert_true(strcspn(line, "\n") <= 100);
	assert_int_equal(run(version, out, sizeof(out)), 0);
	assert_string_equal(out, "kiln-operator " KILN_VERSION "\n");
}

/* Every long option that the parser knows is in the help: tried by their names there. */
static void test_help_names_every_option(void **state)
{
	static const char *const names[] = {
	    "role",	    "namespace",      "agent-image",	 "kubeconfig",
	    "context",	    "health-address", "metrics-address", "leader-elect",
	    "log-level",    "check",	      "version",	 "help",
	    "stream-peers", "stream-token"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char name[64];

		snprintf(name, sizeof(name), "--%s", names[i]);
		assert_non_null(strstr(options_help(), name));
	}
}

static int parse(struct operator_options *ret, const char *const *args)
{
	char *argv[ARGS_MAX + 2] = {(char *)(uintptr_t) "kiln-operator"};
	enum options_action action = OPTIONS_SHOW_HELP;
	struct error err = {0};
	int argc = 1, r;

	for (; args[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)args[argc - 1];
	r = options_parse(argc, argv, ret, &action, &err);
	if (r == 0)
		assert_int_equal(action, OPTIONS_RUN);
	return r;
}

static void clear_environment(void)
{
	unsetenv("POD_NAMESPACE");
	unsetenv("POD_NAME");
	unsetenv("KILN_AGENT_IMAGE");
}

static void test_defaults(void **state)
{
	static const char *const none[] = {NULL};
	struct operator_options o;

	clear_environment();
	assert_int_equal(parse(&o, none), 0);
	assert_null(o.ns);
	assert_null(o.pod_name);
	assert_null(o.kubeconfig);
	assert_null(o.context);
	assert_int_equal(o.role, ROLE_ALL);
	assert_string_equal(o.agent_image, "kiln-agent:" KILN_VERSION);
	assert_int_equal(o.health.port, 8081);
	assert_int_equal(o.metrics.port, 8080);
	assert_true(o.leader_elect);
	assert_int_equal(o.level, LOG_INFO);
}

static void test_flags_come_before_the_environment(void **state)
{
	static const char *const none[] = {NULL};
	static const char *const args[] = {"--namespace=a",
					   "--agent-image",
					   "b:1",
					   "--leader-elect=false",
					   "--health-address=[::1]:1",
					   "--log-level",
					   "debug",
					   NULL};
	struct operator_options o;

	setenv("POD_NAMESPACE", "env", 1);
	setenv("POD_NAME", "pod-0", 1);
	setenv("KILN_AGENT_IMAGE", "env:1", 1);
	assert_int_equal(parse(&o, none), 0);
	assert_string_equal(o.ns, "env");
	assert_string_equal(o.pod_name, "pod-0");
	assert_string_equal(o.agent_image, "env:1");
	assert_int_equal(parse(&o, args), 0);
	assert_string_equal(o.ns, "a");
	assert_string_equal(o.agent_image, "b:1");
	assert_string_equal(o.health.host, "::1");
	assert_int_equal(o.health.port, 1);
	assert_false(o.leader_elect);
	assert_int_equal(o.level, LOG_DEBUG);
	setenv("KILN_AGENT_IMAGE", "", 1); /* empty is unset */
	assert_int_equal(parse(&o, none), 0);
	assert_string_equal(o.agent_image, "kiln-agent:" KILN_VERSION);
	clear_environment();
}

static void test_each_role_is_read(void **state)
{
	static const char *const args[][4] = {
	    {"--role=all"},
	    {"--role", "stream", "--stream-address=:1"},
	    {"--role=controller", "--stream-peers=a:1", "--stream-token=t"}};
	static const enum operator_role roles[] = {ROLE_ALL, ROLE_STREAM, ROLE_CONTROLLER};
	struct operator_options o;

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
		assert_int_equal(parse(&o, args[i]), 0);
		assert_int_equal(o.role, roles[i]);
	}
}

/* FILE in a directory that is made and removed by the test. */
static void put_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void test_check_reads_what_a_run_would_read(void **state)
{
	char dir[] = "/tmp/kiln-check-XXXXXX", config[64], token[64], out[4096], want[256];
	const char *good[] = {"--check", "--kubeconfig", config, NULL};
	const char *stream[] = {
	    "--check",	     "--kubeconfig",   config,	       "--stream-address", ":1",
	    "--stream-cert", "/nowhere/c.crt", "--stream-key", "/nowhere/c.key",   NULL};
	const char *idle[] = {"--check",	"--kubeconfig", config,		  "--stream-cert",
			      "/nowhere/c.crt", "--stream-key", "/nowhere/c.key", NULL};
	const char *bundle[] = {"--check",
				"--kubeconfig",
				config,
				"--role=controller",
				"--stream-ca",
				"/nowhere/ca",
				"--stream-peers=a:1",
				"--stream-token",
				token,
				NULL};
	const char *peers[] = {"--check",	   "--kubeconfig",   config, "--role=controller",
			       "--stream-peers=a", "--stream-token", token,  NULL};
	const char *no_token[] = {
	    "--check",	      "--kubeconfig",	config, "--role=controller", "--stream-peers=a:1",
	    "--stream-token", "/nowhere/token", NULL};

	assert_non_null(mkdtemp(dir));
	snprintf(config, sizeof(config), "%s/config", dir);
	snprintf(token, sizeof(token), "%s/token", dir);
	assert_int_equal(run(good, out, sizeof(out)), 1);
	snprintf(want, sizeof(want), "kiln-operator: %s: ", config);
	assert_non_null(strstr(out, want));
	put_file(token, "x");
	snprintf(out, sizeof(out),
		 "current-context: c\n"
		 "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
		 "clusters: [{name: k, cluster: {server: \"https://127.0.0.1:1\"}}]\n"
		 "users: [{name: u, user: {tokenFile: \"%s\"}}]\n",
		 token);
	put_file(config, out);
	assert_int_equal(run(good, out, sizeof(out)), 0);
	assert_string_equal(out, "");
	assert_int_equal(run(peers, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "--stream-peers: want HOST:PORT[,HOST:PORT...]"));
	assert_int_equal(run(no_token, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "--stream-token: /nowhere/token: "));
	assert_int_equal(run(stream, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "kiln-operator: node stream: "));
	assert_non_null(strstr(out, "/nowhere/c.crt"));
	assert_int_equal(run(idle, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "--stream-ca: without --stream-address"));
	assert_int_equal(run(bundle, out, sizeof(out)), 1);
	assert_non_null(strstr(out, "kiln-operator: node stream: /nowhere/ca"));
	unlink(token);
	assert_int_equal(run(good, out, sizeof(out)), 1);
	snprintf(want, sizeof(want), "tokenFile: %s: No such file", token);
	assert_non_null(strstr(out, want));
	unlink(config);
	rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_each_wrong_option_is_named_in_one_line),
	    cmocka_unit_test(test_help_and_version_are_printed),
	    cmocka_unit_test(test_help_names_every_option),
	    cmocka_unit_test(test_defaults),
	    cmocka_unit_test(test_each_role_is_read),
	    cmocka_unit_test(test_flags_come_before_the_environment),
	    cmocka_unit_test(test_check_reads_what_a_run_would_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
