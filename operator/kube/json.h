/* SPDX-License-Identifier: Apache-2.0 */
/* A cJSON object that goes with its variable: _cleanup_(cJSON_Deletep). Any thread. */
#pragma once

#include <cjson/cJSON.h>

#include "lib/base.h"

DEFINE_CLEANUP(cJSON *, cJSON_Delete)
