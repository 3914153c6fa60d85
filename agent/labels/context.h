/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenTelemetry's process context (OTEP 4719), which has the names of the keys in thread contexts
 * (OTEP 4947, threadlocal.attribute_key_map). The process writes it, so it is not trusted.
 */
#pragma once

#include "agent/runtime/runtime.h"

enum {
	LABEL_CONTEXT_KEYS_MAX = 256, /* an index is one byte */
	LABEL_CONTEXT_BYTES_MAX = 256 << 10,
	LABEL_CONTEXT_MAPS_MAX = 4 << 20, /* bytes of /proc/PID/maps that are read to find it */
};

struct label_context {
	uint64_t published_ns; /* a new value with each change; 0: none was read */
	size_t n;
	char *keys[LABEL_CONTEXT_KEYS_MAX];
};

void label_context_done(struct label_context *c);
/* Parses the message ProcessContext. RET is empty if threadlocal.schema_version is not known. */
int label_context_parse(const void *data, size_t len, struct label_context *ret) _must_check_;
/*
 * Reads the context of the process TGID. -ENOENT: it has published none; -EAGAIN: it is changing
 * the context; -EBADMSG: the context is malformed; -ESRCH: the process is gone.
 */
int label_context_read(int proc_dirfd, uint32_t tgid, const struct target_memory *memory,
		       struct label_context *ret) _must_check_;
