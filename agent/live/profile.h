/* SPDX-License-Identifier: Apache-2.0 */
/* The aggregate as a batch again, filtered, so that every encoder can have it. Pure. */
#pragma once

#include "agent/live/aggregate.h"
#include "lib/error.h"

struct live_filter {	    /* NULL or 0: all */
	uint64_t window_ms; /* 0: since the start */
	uint64_t pid;
	const char *process, *thread, *container, *pod, *k8s_namespace;
	const char *probe; /* the name of the one probe whose samples are taken */
	const char *label; /* KEY=VALUE */
	/* Only samples of these traces that the history's windows have. */
	const struct live_trace_prefix *trace;
};

/* A container matches by any beginning of its id of 12 characters or more, or by its name. */
int live_profile(const struct aggregate *a, const struct live_filter *filter,
		 struct batch **ret) _must_check_;
