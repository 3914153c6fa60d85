/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text as a probe. An accepted probe is within its bounds, and its text parses to the same
 * probe.
 */
#include "lib/probe_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[2048], again[2 * PROBE_TEXT_MAX];
	struct probe_spec a, b;
	struct error err = {0};

	if (size >= sizeof(text) || memchr(data, 0, size))
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	if (probe_spec_parse(text, &a, &err) < 0) {
		if (!err.message[0])
			abort();
		return 0;
	}
	if (a.rate < 1 || a.rate > PROBE_RATE_MAX || !a.name[0] || !has_prefix(text, a.text))
		abort();
	snprintf(again, sizeof(again), "%s,rate=%u", a.text, a.rate);
	/* The text that was made here may be too long with the rate. */
	if (strlen(again) > PROBE_TEXT_MAX)
		return 0;
	if (probe_spec_parse(again, &b, &err) < 0 || b.kind != a.kind || b.rate != a.rate ||
	    !streq(a.text, b.text) || !streq(a.target, b.target) || !streq(a.name, b.name))
		abort();
	return 0;
}
