/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the caches and their informers count, as Prometheus text. kiln_cache_dropped_total has a row
 * for each thing that a cache can leave out, also while it is 0. Loop thread only.
 */
#pragma once

#include "lib/buf.h"
#include "operator/world.h"

/* RENDERED: what the caches of rendered objects have refused. */
void world_metrics(const struct world *w, uint64_t rendered, struct buf *out);
