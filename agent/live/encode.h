/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of /api/stream (docs/live.md has the format) for one client. A client has the first
 * entries of each table; each message also has the entries that it lacks.
 */
#pragma once

#include "agent/live/aggregate.h"

enum live_message { LIVE_HELLO, LIVE_TOTALS, LIVE_PAST, LIVE_WINDOW };

/* What a client has. */
struct live_cursor {
	uint32_t strings, frames, nodes, labels, groups, rows;
};

/* Each appends one message; *CURSOR moves on. Failures stick in OUT. */
void live_encode_hello(const struct aggregate *a, const char *host, uint64_t interval_ms,
		       struct buf *out);
void live_encode_totals(const struct aggregate *a, struct live_cursor *cursor, uint64_t skipped,
			struct buf *out);
void live_encode_window(const struct aggregate *a, const struct live_window *w, bool past,
			struct live_cursor *cursor, struct buf *out);
