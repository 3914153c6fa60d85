/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file that may publish labels. */
#include "agent/labels/rows.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image *image;

	if (image_from_memory(data, size, "fuzz", &image, NULL) < 0)
		return 0;
	/* Go's probe refuses files without this mark. */
	image->is_go = true;
	for (size_t i = 0; label_table[i]; i++) {
		struct runtime_image *found = NULL;

		if (label_table[i]->probe(image, &found, NULL) == 0)
			label_table[i]->forget(found);
	}
	image_unref(image);
	return 0;
}
