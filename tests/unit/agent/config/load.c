/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/config/load.h"

const struct tracer load_tracers[] = {
    {"native", "native", 0, true},
    {"kernel", "kernel", 0, true},
    {"go", "go", 0, true},
    {"python", "python", LOAD_PYTHON, true},
    {"v8", "v8", LOAD_V8, true},
    {"ruby", "ruby", LOAD_RUBY, false},
    {"perl", "perl", LOAD_PERL, false},
    {"hotspot", "jvm", LOAD_HOTSPOT, false},
    {"beam", "beam", LOAD_BEAM, false},
    {"luajit", "luajit", LOAD_LUAJIT, false},
    {"php", "php", LOAD_PHP, false},
    {"dotnet", "dotnet", LOAD_DOTNET, false},
    {"toy", "toy", LOAD_LAST, true},
    {},
};

static char directory[] = "/tmp/kiln-config-XXXXXX";

int load_setup(void **state)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

int load_teardown(void **state)
{
	static const char *const names[] = {"c.yaml", "d.yaml"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unlink(names[i]);
	return chdir("/") == 0 && rmdir(directory) == 0 ? 0 : -1;
}

void load_write(const char *name, const char *text)
{
	FILE *f = fopen(name, "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static void keep_warning(void *arg, const char *line)
{
	struct load *l = arg;
	size_t n = strlen(l->warnings);

	snprintf(l->warnings + n, sizeof(l->warnings) - n, "%s\n", line);
	l->n_warnings++;
}

void load_run(struct load *l, const char *const *args, const char *const *env)
{
	char *argv[LOAD_ARGS_MAX + 1] = {(char *)"kiln-agent"};
	int argc = 1;

	for (; args && *args; args++) {
		assert_true(argc < LOAD_ARGS_MAX);
		argv[argc++] = (char *)*args;
	}
	*l = (struct load){.r = 0};
	l->r = config_load_with(argc, argv, env, load_tracers, keep_warning, l, &l->config,
				&l->action, &l->err);
	/* Outputs stay untouched on failure, and a failure says why in one line. */
	assert_true((l->r == 0) == (l->config != NULL));
	if (l->r < 0) {
		assert_true(l->err.message[0]);
		assert_null(strchr(l->err.message, '\n'));
	}
}

void load_yaml(struct load *l, const char *yaml, const char *const *env)
{
	static const char *const args[] = {"--config", "c.yaml", NULL};

	load_write("c.yaml", yaml);
	load_run(l, args, env);
}

void load_ok(struct load *l, const char *const *args, const char *const *env)
{
	load_run(l, args, env);
	if (l->r < 0)
		fail_msg("%s", l->err.message);
}

void load_done(struct load *l)
{
	config_free(l->config);
	l->config = NULL;
}
