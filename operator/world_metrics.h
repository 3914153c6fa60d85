/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters of the caches and their informers, as Prometheus text. kiln_cache_dropped_total has
 * a row for each kind of drop of each cache, also while it is 0. Loop thread only.
 */
#pragma once

#include "lib/buf.h"
#include "operator/world.h"

/* RENDERED: objects refused by the caches of rendered objects. */
void world_metrics(const struct world *w, uint64_t rendered, struct buf *out);
