// SPDX-License-Identifier: Apache-2.0
/* Any file as an image with symbols: pieces must be in order, disjoint, and found again. */
#include "agent/symbol/debug_file.h"
#include "agent/symbol/elf_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(image_unrefp) struct image *image = NULL, *debug = NULL;
	_cleanup_(elf_symbols_freep) struct elf_symbols *t = NULL;
	struct elf_symbols_input inputs[3];
	struct elf_symbol s, found;
	unsigned int backwards = 0;
	uint64_t last = 0;
	char name[300];
	size_t n = 0;

	if (size > 1 << 20 || image_from_memory(data, size, "/fuzz", &image, NULL) < 0)
		return 0;
	inputs[n++] = (struct elf_symbols_input){.image = image};
	inputs[n++] = (struct elf_symbols_input){.image = image, .dynamic = true};
	if (debug_data_unpack(image, &debug, NULL) == 0)
		inputs[n++] = (struct elf_symbols_input){.image = debug};
	if (elf_symbols_build(image, inputs, n, &t, NULL) < 0)
		return 0;
	for (size_t i = 0; elf_symbols_at(t, i, &s); i++) {
		if (s.start >= s.end)
			abort();
		elf_symbols_name(t, &s, name, sizeof(name));
		if (!elf_symbols_find(t, s.start, &found) || found.start > s.start ||
		    found.end <= s.start)
			abort();
		if (!elf_symbols_find(t, s.end - 1, &found) || found.start > s.end - 1 ||
		    found.end < s.end)
			abort();
		/* The symbols come first and are in order, then the PLT's. */
		if (s.start < last)
			backwards++;
		last = s.end;
	}
	if (backwards > 1)
		abort();
	return 0;
}
