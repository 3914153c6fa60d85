/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tracers` can name, made from runtime_table[]: native, kernel and go, which are part of the
 * native walk; then the runtimes, by id; among them those whose names and ids are kept for later.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/runtime/runtime.h"

/* Up to one without a name. Any thread. */
const struct tracer *runtime_tracers(void);

/*
 * Does each row of TABLE (NULL at its end) have an id and a name of its own, and none that is kept
 * for another? -EINVAL: no; ERR names the rows. All else trusts the table.
 */
int runtime_table_check(const struct interpreter_ops *const *table, struct error *err) _must_check_;
