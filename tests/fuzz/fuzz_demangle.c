// SPDX-License-Identifier: Apache-2.0
/* Any string as a symbol name: the result is bounded, and time too (libFuzzer's -timeout). */
#include "agent/symbol/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ char *name = malloc(size + 1), *text = NULL;
	bool rust;

	if (!name)
		return 0;
	memcpy(name, data, size);
	name[size] = 0;
	if (demangle(name, &text, &rust) == 0 && text && strlen(text) > DEMANGLE_MAX + 8)
		abort();
	return 0;
}
