/* SPDX-License-Identifier: Apache-2.0 */
/* Loads configurations in a directory of the test's own and keeps the warnings. */
#pragma once

#include "lib/base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/config/internal.h"

enum { LOAD_ARGS_MAX = 24 };

/* The tracers that configurations can name here. */
enum {
	LOAD_PYTHON = 1,
	LOAD_V8,
	LOAD_RUBY,
	LOAD_PERL,
	LOAD_HOTSPOT,
	LOAD_BEAM,
	LOAD_LUAJIT,
	LOAD_PHP,
	LOAD_DOTNET,
	LOAD_LAST = 31,
};
extern const struct tracer load_tracers[];

struct load {
	struct config *config; /* NULL after a failure */
	enum config_action action;
	struct error err;
	int r;
	char warnings[4096]; /* one per line */
	unsigned int n_warnings;
};

/* Makes a temporary directory and goes there; group setup and teardown. */
int load_setup(void **state);
int load_teardown(void **state);
void load_write(const char *name, const char *text);

/* ARGS without the program's name, ENV as NAME=VALUE; both end with NULL and may be NULL. */
void load_run(struct load *l, const char *const *args, const char *const *env);
/* The same with YAML as c.yaml. */
void load_yaml(struct load *l, const char *yaml, const char *const *env);
/* Fails the test unless it loaded. */
void load_ok(struct load *l, const char *const *args, const char *const *env);
void load_done(struct load *l);
