/* SPDX-License-Identifier: Apache-2.0 */
/* The operator's whole run: watch, decide, write. See operator.c. */
#pragma once

#include "operator/options.h"

/*
 * Runs until SIGTERM or SIGINT: 0. -EINVAL: what it was given is wrong. Other failures: -ECANCELED
 * when another replica took the lead.
 */
int operator_run(const struct operator_options *options, struct error *err) _must_check_;
/* Reads what a run would read at its start (--check): ERR names place, cause and what to do. */
int operator_check(const struct operator_options *options, struct error *err) _must_check_;
