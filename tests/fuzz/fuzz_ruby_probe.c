// SPDX-License-Identifier: Apache-2.0
/* Any ELF file may say that it is Ruby: what is found lies within its code. */
#include "agent/runtime/ruby/ruby.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtime_image *ri;
	struct image *image;

	if (image_from_memory(data, size, "libruby.so", &image, NULL) < 0)
		return 0;
	if (ruby_probe(image, &ri, NULL) == 0) {
		const struct ruby_image *p = container_of(ri, struct ruby_image, base);

		if (ri->n_ranges > RUNTIME_RANGES_MAX || strlen(ri->version) < 5 ||
		    p->n_symbols > RUBY_SYMBOLS_MAX || !ruby_layout_of(p->version) ||
		    p->code.loop.start >= p->code.loop.end)
			abort();
		for (size_t i = 0; i < ri->n_ranges; i++) {
			if (ri->ranges[i].start >= ri->ranges[i].end)
				abort();
		}
		ruby_forget(ri);
	}
	image_unref(image);
	return 0;
}
