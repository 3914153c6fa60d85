/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtimes of a program. This file alone depends on which there are: cmake/runtime.cmake makes
 * runtime_rows.def from the folders that it is told of, RUNTIME_ROW(NAME) for each.
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
