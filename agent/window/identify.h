/* SPDX-License-Identifier: Apache-2.0 */
/* At the end of a window: finds the pod and container of each sample, and which samples may be
 * exported. Loop thread. */
#pragma once

#include "agent/window/window.h"

/*
 * Gives every process of W its identity. Samples of a container that is not known yet move to NEXT,
 * where they wait (LAST: there is no next window, they do not wait). Samples that the pod's policy,
 * known by now, forbids are dropped and counted. Returns the number of processes whose pod the
 * operator has not sent.
 */
uint64_t window_identify(struct window *w, struct window *next, const struct policies *policies,
			 bool last);
