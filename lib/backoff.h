/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct backoff: how long to wait before the next attempt: exponential backoff with jitter, with
 * the parameters of the OpenTelemetry Collector's retry_on_failure. Clock and random numbers are
 * passed in. It has no thread of its own.
 */
#pragma once

#include "lib/base.h"

struct backoff_options {
	uint64_t initial_ms, max_ms; /* first wait, longest wait */
	double multiplier;	     /* of the wait after each failure, at least 1 */
	double randomization;	     /* 0..1: a wait w becomes w * (1 - r) .. w * (1 + r) */
	uint64_t max_elapsed_ms;     /* 0: no end */
};

struct backoff {
	struct backoff_options options;
	double next_ms;
	uint64_t elapsed_ms; /* of the failures that counted, see backoff_next() */
	unsigned int failures;
};

void backoff_init(struct backoff *b, const struct backoff_options *options);
void backoff_reset(struct backoff *b); /* after a success */

/*
 * An attempt failed: *RET_MS is the wait before the next one, at least FLOOR_MS (the wait that the
 * server asked for). SPENT_MS is the time since the last attempt began or the last wait ended. With
 * COUNTS, SPENT_MS and the wait are charged against max_elapsed_ms; callers pass COUNTS = false for
 * failures that must not use it up (the server is away). RANDOM is in [0, 1). -ETIME:
 * max_elapsed_ms is used up.
 */
int backoff_next(struct backoff *b, bool counts, uint64_t spent_ms, uint64_t floor_ms,
		 double random, uint64_t *ret_ms) _must_check_;

/*
 * Retry-After of RFC 9110 §10.2.3: seconds or an HTTP-date (IMF-fixdate, or the two obsolete
 * forms). A date that has passed gives 0. -EINVAL for anything else.
 */
int retry_after_parse(const char *text, int64_t now_unix_s, uint64_t *ret_ms) _must_check_;
