/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as /proc/PID/maps: the result is sorted, disjoint, and every path ends. */
#include "agent/process/maps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct maps maps;

	if (maps_parse((const char *)data, size, &maps) < 0)
		return 0;
	if (maps.n > MAPS_ENTRIES_MAX)
		abort();
	for (size_t i = 0; i < maps.n; i++) {
		const struct map_entry *e = &maps.entries[i];

		if (e->start >= e->end || (i > 0 && e->start < e[-1].end))
			abort();
		if (strlen(e->path) > size)
			abort();
	}
	maps_done(&maps);
	return 0;
}
