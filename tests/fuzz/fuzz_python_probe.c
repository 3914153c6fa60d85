// SPDX-License-Identifier: Apache-2.0
/* Any ELF file may say that it is Python: what is found lies within its code. */
#include "agent/runtime/python/python.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtime_image *ri;
	struct image *image;

	if (image_from_memory(data, size, "python3.9", &image, NULL) < 0)
		return 0;
	if (python_probe(image, &ri, NULL) == 0) {
		if (ri->n_ranges > RUNTIME_RANGES_MAX || strlen(ri->version) < 3)
			abort();
		for (size_t i = 0; i < ri->n_ranges; i++) {
			if (ri->ranges[i].start == ri->ranges[i].end)
				abort();
		}
		python_forget(ri);
	}
	image_unref(image);
	return 0;
}
