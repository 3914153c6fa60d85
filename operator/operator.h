/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's whole run: watch, decide, write. See operator.c. */
#pragma once

#include "operator/options.h"

/*
 * Runs until SIGTERM or SIGINT, then returns 0. -EINVAL: invalid options. -ECANCELED: the lease was
 * lost, another replica may lead. Other values: other failures.
 */
int operator_run(const struct operator_options *options, struct error *err) _must_check_;
/*
 * --check: reads the files that a run would read at its start. ERR names place, cause and what to
 * do.
 */
int operator_check(const struct operator_options *options, struct error *err) _must_check_;
