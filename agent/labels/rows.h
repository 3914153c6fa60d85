/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who publishes labels: rows like those of runtimes (agent/runtime/runtime.h), because they are
 * found in files and attached to processes in the same way, but without frames and walkers of their
 * own. Ids: enum kiln_label_source in bpf/types.h. The kernel side is bpf/labels.h.
 */
#pragma once

#include "agent/runtime/runtime.h"

extern const struct interpreter_ops *const label_table[]; /* NULL at the end */

extern const struct interpreter_ops label_otel_ops, label_go_ops, label_custom_ops;
