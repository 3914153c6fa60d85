/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The metrics that each runtime has, labelled with its name: its frames in samples, and samples
 * that lack them, by reason. Any thread may count once runtime_metrics_init() was called.
 */
#pragma once

#include "agent/runtime/runtime.h"

/* The runtimes of TABLE have metrics from now on. At the start, before other threads count. */
void runtime_metrics_init(const struct interpreter_ops *const *table);
void runtime_metrics_frames(uint32_t id, uint32_t n);
void runtime_metrics_missing(uint32_t id, enum kiln_missing why);
/* A program of VERSION was attached to. PLACE: that of the version, which stays the same; from
 * RUNTIME_VERSIONS_MAX on it is one of the others. Loop thread. */
void runtime_metrics_program(const struct interpreter_ops *ops, size_t place, const char *version);
