/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that hold a whole profile, whatever its format: when to write them, and under which name.
 *
 * Without rotation the file is written once, at the end of the run. With rotation it is written at
 * each rotation and at the end: a path with %s (the start time, UTC) gives one file a period, each
 * with that period's samples; a path without it is one file, replaced whole, that always covers the
 * run so far. Nothing is ever appended and a reader never sees half a file.
 */
#pragma once

#include "agent/export/local.h"
#include "lib/buf.h"

enum { PROFILE_FILE_MAX = 64 << 20 }; /* MAX_BYTES of the builders, pprof.h and folded.h */

struct profile_format {
	const struct exporter_ops *ops;
	enum metric_id drops;
	int (*new)(void **ret);
	int (*add)(void *profile, const struct batch *batch);
	int (*encode)(void *profile, struct buf *out, struct error *err);
	void (*reset)(void *profile);
	void (*free)(void *profile);
};

int profile_file_create(const struct profile_format *format, const struct exporter_config *config,
			uv_loop_t *loop, struct exporter **ret, struct error *err) _must_check_;
