/* SPDX-License-Identifier: Apache-2.0 */
/* A token bucket: QPS tokens a second, at most BURST at once. The clock is passed in. */
#pragma once

#include "lib/base.h"

struct kube_limit {
	double qps, burst, tokens; /* qps 0: no limit */
	uint64_t last_ms;
};

static inline void kube_limit_init(struct kube_limit *l, double qps, unsigned int burst,
				   uint64_t now_ms)
{
	*l = (struct kube_limit){
	    .qps = qps, .burst = MAX(burst, 1U), .tokens = MAX(burst, 1U), .last_ms = now_ms};
}

/* Takes a token and returns 0, or the milliseconds until there is one. */
static inline uint64_t kube_limit_take(struct kube_limit *l, uint64_t now_ms)
{
	if (!(l->qps > 0))
		return 0;
	if (now_ms > l->last_ms) {
		l->tokens += l->qps * (double)(now_ms - l->last_ms) / 1000.0;
		l->tokens = MIN(l->tokens, l->burst);
		l->last_ms = now_ms;
	}
	if (l->tokens >= 1) {
		l->tokens -= 1;
		return 0;
	}
	return (uint64_t)((1 - l->tokens) * 1000.0 / l->qps) + 1;
}
