/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A condition's time is that of the last change of its status, not of the last write: an unchanged
 * status keeps its time, so that an unchanged list of conditions has the same bytes and need not be
 * written.
 */
#include "operator/reconcile/condition.h"

#include <time.h>

static const char *const status_names[] = {"False", "True", "Unknown"};

void format_time(int64_t seconds, char out[32])
{
	time_t t = (time_t)seconds;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static const char *text_of(const cJSON *object, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

	return text ? text : "";
}

const cJSON *condition_find(const cJSON *conditions, const char *type)
{
	const cJSON *c;

	cJSON_ArrayForEach(c, conditions)
	{
		if (streq(text_of(c, "type"), type))
			return c;
	}
	return NULL;
}

int condition_append(cJSON *out, const struct condition *c, int64_t generation, const cJSON *live,
		     int64_t now)
{
	const char *status = status_names[c->status];
	const cJSON *before = condition_find(live, c->type);
	cJSON *item = cJSON_CreateObject();
	char time[32];

	format_time(now, time);
	if (before && streq(text_of(before, "status"), status) &&
	    text_of(before, "lastTransitionTime")[0])
		snprintf(time, sizeof(time), "%.31s", text_of(before, "lastTransitionTime"));
	if (!item || !cJSON_AddStringToObject(item, "type", c->type) ||
	    !cJSON_AddStringToObject(item, "status", status) ||
	    !cJSON_AddStringToObject(item, "reason", c->reason) ||
	    !cJSON_AddStringToObject(item, "message", c->message) ||
	    !cJSON_AddNumberToObject(item, "observedGeneration", (double)generation) ||
	    !cJSON_AddStringToObject(item, "lastTransitionTime", time) ||
	    !cJSON_AddItemToArray(out, item)) {
		cJSON_Delete(item);
		return -ENOMEM;
	}
	return 0;
}
