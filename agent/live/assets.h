/* SPDX-License-Identifier: Apache-2.0 */
/* The files of web/, as they are in the binary. */
#pragma once

#include "lib/base.h"

struct live_asset {
	const char *path; /* "/app.js" */
	const char *content_type;
	const char *data, *end;
};

extern const struct live_asset live_assets[];
extern const size_t live_n_assets;
