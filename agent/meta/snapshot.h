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

/* Encodes all live objects into OUT, a buffer with the cap SNAPSHOT_MAX. -ENODATA: there is no
 * state yet; -E2BIG: more than the cap; -ENOMEM. */
int snapshot_encode(const struct pod_table *t, struct buf *out) _must_check_;
/*
 * Writes a new file beside PATH with mode 0600, flushes it, and renames it to PATH. The directory
 * must exist. On failure (a negative errno) the old file stays.
 */
int snapshot_write(const char *path, const void *data, size_t len) _must_check_;

/*
 * Loads the file into T, which has no state yet. -ENOENT: there is no file; -EBADMSG: it is
 * damaged, larger than the cap, or of another version, and T is as before; -EPERM: others could
 * have written it.
 */
int snapshot_load(const char *path, struct pod_table *t, uint64_t now_ms,
		  struct error *err) _must_check_;
/* The same from bytes; exposed for tests and the fuzzer. */
int snapshot_decode(const void *data, size_t len, struct pod_table *t, uint64_t now_ms,
		    struct error *err) _must_check_;
