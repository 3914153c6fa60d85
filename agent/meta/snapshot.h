/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last known good state of a pod table, as a file: what an agent starts with while the operator
 * is away. Secrets of destinations are not in it. Plain functions; snapshot_write() may run on
 * another thread, because it sees only bytes.
 */
#pragma once

#include "agent/meta/pods.h"
#include "lib/buf.h"

enum { SNAPSHOT_MAX = 32 << 20, SNAPSHOT_HEADER_BYTES = 48 };

/* All live objects into OUT, which was made with SNAPSHOT_MAX. -ENODATA: there is no state yet;
 * -E2BIG: more than the cap; -ENOMEM. */
int snapshot_encode(const struct pod_table *t, struct buf *out) _must_check_;
/*
 * Beside, flushed, renamed, mode 0600; the directory must exist. A negative errno leaves the file
 * that was there.
 */
int snapshot_write(const char *path, const void *data, size_t len) _must_check_;

/*
 * Into T, which has no state yet. -ENOENT: there is no file; -EBADMSG (with words): it is damaged,
 * larger than the cap, or of another version: T is as before; -EPERM: others could have written it.
 */
int snapshot_load(const char *path, struct pod_table *t, uint64_t now_ms,
		  struct error *err) _must_check_;
/* The same from bytes; exposed for tests and the fuzzer. */
int snapshot_decode(const void *data, size_t len, struct pod_table *t, uint64_t now_ms,
		    struct error *err) _must_check_;
