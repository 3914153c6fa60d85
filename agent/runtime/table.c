/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes that this agent knows: one row each. */
#include "agent/runtime/runtime.h"

const struct interpreter_ops *const runtime_table[] = {
#ifdef KILN_RUNTIME_PYTHON_BUILT
    &python_ops,
#endif
#ifdef KILN_RUNTIME_V8_BUILT
    &v8_ops,
#endif
    NULL,
};

const char *const runtime_files[] = {"python", "libpython", "node", "libnode", NULL};
