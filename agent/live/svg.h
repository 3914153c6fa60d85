/* SPDX-License-Identifier: Apache-2.0 */
/* The flame graph of a batch as one SVG document that needs nothing else. Pure. */
#pragma once

#include "agent/profile/batch.h"
#include "lib/buf.h"

/* The samples of KIND, by process. HOST is named in the title. Colours are those of web/flame.js.
 */
int svg_encode(const struct batch *b, enum profile_kind kind, const char *host,
	       struct buf *out) _must_check_;
