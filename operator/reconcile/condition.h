/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status conditions as Kubernetes has them (metav1.Condition: type, status, reason, message,
 * observedGeneration, lastTransitionTime). Plain functions.
 */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"

enum condition_status { CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN };

struct condition {
	const char *type;
	enum condition_status status;
	const char *reason, *message;
};

/*
 * Appends to the array OUT. lastTransitionTime is the one in LIVE (the conditions that the object
 * has, may be NULL) while the status is the same, else NOW (seconds since the epoch).
 */
int condition_append(cJSON *out, const struct condition *c, int64_t generation, const cJSON *live,
		     int64_t now) _must_check_;
const cJSON *condition_find(const cJSON *conditions, const char *type);
/* "2026-01-02T15:04:05Z" */
void format_time(int64_t seconds, char out[32]);
