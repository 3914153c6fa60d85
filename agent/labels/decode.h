/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a set of labels in the kernel's record into keys and values. Stateless; the labels come
 * from the profiled process and are not trusted. */
#pragma once

#include "agent/labels/context.h"
#include "agent/profile/batch.h"
#include "bpf/types.h"

enum {
	LABEL_LIST_MAX = 64, /* labels of one set; further ones are left out */
	LABEL_LIST_BYTES = 4 * KILN_LABEL_BYTES,
};

struct label_list {
	struct batch_label labels[LABEL_LIST_MAX]; /* trace_id and span_id first, if there are */
	size_t n;
	bool has_trace;
	bool unresolved; /* a key's name is not in CONTEXT */
	size_t used;
	char bytes[LABEL_LIST_BYTES]; /* where the strings are */
};

/*
 * RECORD has SIZE bytes. CONTEXT has the names of OpenTelemetry's keys; NULL: none are known.
 * trace_id and span_id are lower-case hex, and there are both or none. -EBADMSG: RECORD is
 * malformed; RET has the labels before the error.
 */
int label_decode(const struct kiln_labels *record, size_t size, const struct label_context *context,
		 struct label_list *ret) _must_check_;
