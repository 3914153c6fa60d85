// SPDX-License-Identifier: Apache-2.0
/* Any ELF file may say that it is PHP: what is found lies within bounds. */
#include "agent/runtime/php/php.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct php_image *p;
	struct runtime_image *ri;
	struct image *image;

	if (image_from_memory(data, size, "php8.2", &image, NULL) < 0)
		return 0;
	if (php_probe(image, &ri, NULL) == 0) {
		p = container_of(ri, struct php_image, base);
		if (ri->n_ranges > RUNTIME_RANGES_MAX || strlen(ri->version) < 3 || !p->layout ||
		    p->edges.frame > 4096 || p->edges.left_to > 1024 + 16)
			abort();
		for (size_t i = 0; i < ri->n_ranges; i++)
			if (ri->ranges[i].start == ri->ranges[i].end)
				abort();
		php_forget(ri);
	}
	image_unref(image);
	return 0;
}
