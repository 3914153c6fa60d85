/* SPDX-License-Identifier: Apache-2.0 */
/* The list. A new publisher is a row here and a reader in bpf/labels.h. */
#include "agent/labels/rows.h"

const struct interpreter_ops *const label_table[] = {
    &label_otel_ops,
    &label_go_ops,
    &label_custom_ops,
    NULL,
};
