/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the copy on disk: as they are, and with the checksum and counts made right. */
#include <zlib.h>

#include "agent/meta/snapshot.h"
#include "tests/fuzz/node_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load(const uint8_t *data, size_t size)
{
	struct pod_events events = {0};
	_cleanup_(pod_table_freep) struct pod_table *t = NULL;
	struct error err;

	if (pod_table_new(&events, &t) < 0)
		return;
	if (snapshot_decode(data, size, t, 0, &err) < 0 && pod_table_count(t) > 0)
		abort();
	check_table(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ uint8_t *copy = malloc(size + 1);
	uint64_t bytes;
	uint32_t crc;

	load(data, size);
	if (!copy || size < SNAPSHOT_HEADER_BYTES)
		return 0;
	memcpy(copy, data, size);
	memcpy(copy, "KILNPOD1", 8);
	bytes = size - SNAPSHOT_HEADER_BYTES;
	memcpy(copy + 16, &bytes, sizeof(bytes));
	crc = (uint32_t)crc32(0, copy + 12, (uInt)(size - 12));
	memcpy(copy + 8, &crc, sizeof(crc));
	load(copy, size);
	return 0;
}
