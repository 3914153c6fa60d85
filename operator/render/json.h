/* SPDX-License-Identifier: Apache-2.0 */
/* JSON objects from a template that looks like the result. Any thread. */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"

static inline void json_deletep(cJSON **json)
{
	cJSON_Delete(*json);
}
#define _cleanup_json_ _cleanup_(json_deletep)

/*
 * TEMPLATE is JSON with ' in place of ". Its arguments: %s a text, %d an int, %j a cJSON (borrowed,
 * copied). A member of an object whose value is a NULL %s or %j is left out, a NULL element of a
 * list too. -ENOMEM; -EINVAL when the template is no JSON.
 */
int json_make(cJSON **ret, const char *template, ...) _must_check_;
/* Makes one and adds it to LIST, which may be NULL after an earlier failure: -ENOMEM. */
int json_append(cJSON *list, const char *template, ...) _must_check_;
/* The compact text that hashes are made of. NULL: out of memory. */
char *json_text(const cJSON *json) _must_check_;
