/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kiln-agent: options in, exit code out. Everything between is agent_run(). Errors are printed here
 * and nowhere else, one line each.
 */
#include "agent/agent.h"
#include "agent/config/config.h"
#include "agent/runtime/tracers.h"
#include "lib/core_dump.h"
#include "lib/log.h"

/*
 * Settings of jemalloc (jemalloc(3), TUNING). Two arenas, because few threads allocate; thread
 * caches hold no allocation above 8 KiB. Freed pages are returned to the kernel after 10 s, so that
 * the next window (5 s) reuses those of the last one: with 1 s the agent used 7 % more CPU at
 * 97 Hz, for page faults. A build without jemalloc ignores the string.
 */
extern const char *malloc_conf;
const char *malloc_conf = "narenas:2,tcache_max:8192,dirty_decay_ms:10000,muzzy_decay_ms:0";

/* docs/configuration.md: what scripts and units may rely on. */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_ALLOWED = 3, /* the kernel or the privileges */
};

static enum exit_code exit_code_of(int r)
{
	switch (r) {
	case 0:
		return EXIT_DONE;
	case -EINVAL:
		return EXIT_USAGE;
	case -EPERM:
	case -ENOSYS:
	case -ENOTSUP:
		return EXIT_NOT_ALLOWED;
	default:
		return EXIT_FAILED;
	}
}

static enum exit_code fail(int r, const struct error *err)
{
	fprintf(stderr, "kiln-agent: %s\n", err->message[0] ? err->message : strerror(-r));
	return exit_code_of(r);
}

/* A full disk or a closed pipe must not look like success. */
static enum exit_code print(const char *text)
{
	if (fputs(text, stdout) < 0 || fflush(stdout) != 0) {
		fprintf(stderr, "kiln-agent: standard output: %s\n", strerror(errno));
		return EXIT_FAILED;
	}
	return EXIT_DONE;
}

static enum exit_code print_help(void)
{
	struct buf text;
	enum exit_code code;

	buf_init(&text, 1 << 16);
	code = config_help(runtime_tracers(), &text) < 0 ? EXIT_FAILED : print(text.data);
	buf_done(&text);
	return code;
}

static enum exit_code check(const struct config *config)
{
	struct error err = {0};
	enum exit_code code;
	struct buf text;
	int r;

	buf_init(&text, 1 << 16);
	r = agent_check(config, &text, &err);
	code = text.len ? print(text.data) : EXIT_DONE;
	buf_done(&text);
	return r < 0 ? fail(r, &err) : code;
}

int main(int argc, char **argv)
{
	_cleanup_(config_freep) struct config *config = NULL;
	enum config_action action;
	struct error err = {0};
	int no_core = core_dump_forbid(), r = runtime_table_check(runtime_table, &err);

	if (r == 0)
		r = config_load(argc, argv, (const char *const *)environ, runtime_tracers(),
				&config, &action, &err);
	if (r < 0)
		return fail(r, &err);
	if (action == CONFIG_SHOW_HELP)
		return print_help();
	if (action == CONFIG_SHOW_VERSION)
		return print("kiln-agent " KILN_VERSION "\n");
	log_set_level(config->verbose ? LOG_DEBUG : config->log_level);
	if (no_core < 0)
		log_warn("agent", "cannot switch core files off: %s", strerror(-no_core));
	if (config->check)
		return check(config);
	r = agent_run(config, &err);
	return r < 0 ? fail(r, &err) : EXIT_DONE;
}
