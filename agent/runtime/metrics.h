/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics that each runtime has, labelled with its name: its frames in samples, and samples
 * that lack them, by reason. Any thread may count once runtime_metrics_init() was called.
 */
#pragma once

#include "agent/runtime/runtime.h"

/*
 * Makes the metrics of the runtimes of TABLE. To be called at the start, before other threads
 * count.
 */
void runtime_metrics_init(const struct interpreter_ops *const *table);
void runtime_metrics_frames(uint32_t id, uint32_t n);
void runtime_metrics_missing(uint32_t id, enum kiln_missing why);
/* Counts that a program of VERSION was attached. PLACE: the place of the version, always the same;
 * from RUNTIME_VERSIONS_MAX on the version is counted as one of the others. Loop thread. */
void runtime_metrics_program(const struct interpreter_ops *ops, size_t place, const char *version);
