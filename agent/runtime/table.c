/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtimes of a program. Only this file depends on which runtimes there are:
 * cmake/runtime.cmake makes runtime_rows.def, with RUNTIME_ROW(NAME) for each folder that it is
 * told of.
 */
#include "agent/runtime/runtime.h"

#define RUNTIME_ROW(NAME) extern const struct interpreter_ops NAME##_ops;
#include "runtime_rows.def"
#undef RUNTIME_ROW

const struct interpreter_ops *const runtime_table[] = {
#define RUNTIME_ROW(NAME) &NAME##_ops,
#include "runtime_rows.def"
#undef RUNTIME_ROW
    NULL,
};
