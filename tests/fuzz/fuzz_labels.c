/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a set of labels: decoded keys are not empty and differ, and trace and span ids are
 * whole.
 */
#include "agent/labels/decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct label_list list;
	struct label_context context = {.n = 3,
					.keys = {(char *)"a", (char *)"", (char *)"trace_id"}};
	struct kiln_labels *record = malloc(sizeof(*record) + size);

	if (!record)
		return 0;
	/*
	 * The first 32 bytes go into the record's head, from trace_id on; the rest are its labels.
	 */
	memset(record, 0, sizeof(*record));
	memcpy(record->trace_id, data, MIN(size, (size_t)32));
	if (size > 32)
		memcpy(record->bytes, data + 32, size - 32);
	if (label_decode(record, sizeof(*record) + (size > 32 ? size - 32 : 0), &context, &list) >
	    0)
		abort();
	if (list.n > LABEL_LIST_MAX || list.used > LABEL_LIST_BYTES)
		abort();
	for (size_t i = 0; i < list.n; i++) {
		if (!list.labels[i].key[0])
			abort();
		for (size_t j = 0; j < i; j++)
			if (streq(list.labels[i].key, list.labels[j].key))
				abort();
	}
	if (list.has_trace &&
	    (strlen(list.labels[0].value) != 32 || strlen(list.labels[1].value) != 16))
		abort();
	free(record);
	return 0;
}
