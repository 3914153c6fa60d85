/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as OpenTelemetry's process context: refused, or a bounded list of texts. */
#include "agent/labels/context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct label_context c;

	if (label_context_parse(data, size, &c) < 0 && c.n)
		abort();
	if (c.n > LABEL_CONTEXT_KEYS_MAX)
		abort();
	for (size_t i = 0; i < c.n; i++)
		if (strlen(c.keys[i]) > 127)
			abort();
	label_context_done(&c);
	return 0;
}
