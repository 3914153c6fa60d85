/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes that this agent knows: the rows of bpf/runtimes.def. */
#include "agent/runtime/runtime.h"

const struct interpreter_ops *const runtime_table[] = {
#define KILN_RUNTIME_ROW(NAME, name, id, tracer) &name##_ops,
#include "bpf/runtimes.def"
#undef KILN_RUNTIME_ROW
    NULL,
};

const char *const runtime_files[] = {"python", "libpython", "node", "libnode", NULL};
