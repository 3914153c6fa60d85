// SPDX-License-Identifier: Apache-2.0
/*
 * A perf map that is read in two parts. The symbol found for an address must be the one of the last
 * line that covers it, as a linear search of all lines finds it.
 */
#include "agent/symbol/perf_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The name of the last line that covers ADDRESS; simple lines only (no 0x, one blank). */
static bool expect(const char *text, size_t size, uint64_t address, char *ret)
{
	bool any = false;

	for (const char *p = text, *end; (end = memchr(p, '\n', size - (size_t)(p - text)));
	     p = end + 1) {
		unsigned long long start, len;
		char line[128], name[64];
		size_t n = (size_t)(end - p);

		if (n >= sizeof(line) - 1)
			return false; /* not simple: not compared */
		memcpy(line, p, n);
		line[n] = 0;
		if (strlen(line) != n)
			return false;
		if (sscanf(line, "%8llx %4llx %63[a-zA-Z]", &start, &len, name) != 3)
			return false;
		snprintf(line, sizeof(line), "%llx %llx %s", start, len, name);
		if (strlen(line) != n || memcmp(line, p, n) != 0)
			return false;
		if (len && address >= start && address - start < len) {
			strcpy(ret, name);
			any = true;
		}
	}
	if (!any)
		ret[0] = 0;
	return true;
}

static void check(const struct perf_map *m, const char *text, size_t size, uint64_t address)
{
	struct perf_map_symbol s;
	char want[64];

	if (!expect(text, size, address, want))
		return;
	if (perf_map_find(m, address, &s) ? !streq(s.name, want) : want[0])
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	const char *text = (const char *)data, *cut;
	struct perf_map_symbol s;

	if (size > 64 << 10 || perf_map_new(&m) < 0)
		return 0;
	cut = size ? memchr(text + size / 2, '\n', size - size / 2) : NULL;
	if (cut) {
		if (perf_map_feed(m, text, (size_t)(cut + 1 - text)) < 0 || perf_map_settle(m) < 0)
			abort();
		if (perf_map_feed(m, cut + 1, size - (size_t)(cut + 1 - text)) < 0)
			abort();
	} else if (size && perf_map_feed(m, text, size) < 0) {
		abort();
	}
	if (perf_map_settle(m) < 0)
		abort();
	for (uint64_t a = 0, n = 0; n < 40; n++, a = mix64(n) % 0x4000) {
		if (perf_map_find(m, a, &s) && (a < s.start || a >= s.end || strlen(s.name) > 1023))
			abort();
		if (size < 1024)
			check(m, text, size, a);
	}
	return 0;
}
