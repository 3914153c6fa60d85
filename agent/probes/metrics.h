/* SPDX-License-Identifier: Apache-2.0 */
/* What probes count, as /metrics shows it. Loop thread. */
#pragma once

#include "agent/probes/probes.h"

/* Has /metrics tell the counts of P as they are now. */
void probe_metrics_update(const struct probes *p);
