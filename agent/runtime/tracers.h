/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `tracers` can name, made from runtime_table[]: native, kernel and go, which are part of the
 * native walk; then the runtimes, by id; among them those whose names and ids are kept for later.
 */
#pragma once

#include "agent/config/config.h"

/* Up to one without a name. Any thread. */
const struct tracer *runtime_tracers(void);
