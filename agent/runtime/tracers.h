/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tracers that the setting `tracers` can name: native, kernel and go, which are part of the
 * native walk; then runtimes by id, those of runtime_table[] and those whose names and ids are
 * reserved.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/runtime/runtime.h"

/* The list ends with a tracer without a name. Any thread. */
const struct tracer *runtime_tracers(void);

/*
 * Checks that each row of TABLE (NULL at its end) has an id and a name of its own, and none that is
 * reserved for another runtime. -EINVAL and ERR, which names the rows. All other code trusts the
 * table.
 */
int runtime_table_check(const struct interpreter_ops *const *table, struct error *err) _must_check_;
