/* SPDX-License-Identifier: Apache-2.0 */
/*
 * _cleanup_(cJSON_Deletep) frees a cJSON object with its variable; fields that all objects of the
 * API have. Any thread.
 */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"

DEFINE_CLEANUP(cJSON *, cJSON_Delete)

/* metadata.generation; 0 without one, or without an OBJECT. */
static inline int64_t json_generation(const cJSON *object)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const cJSON *generation = cJSON_GetObjectItemCaseSensitive(meta, "generation");

	return cJSON_IsNumber(generation) ? (int64_t)generation->valuedouble : 0;
}
