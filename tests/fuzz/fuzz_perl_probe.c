// SPDX-License-Identifier: Apache-2.0
/* Any ELF file may say that it is Perl: what is found lies within its code. */
#include "agent/runtime/perl/perl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtime_image *ri;
	struct image *image;

	if (image_from_memory(data, size, "perl", &image, NULL) < 0)
		return 0;
	if (perl_probe(image, &ri, NULL) == 0) {
		if (ri->n_ranges != 1 || strlen(ri->version) < 5 ||
		    ri->ranges[0].start >= ri->ranges[0].end)
			abort();
		perl_forget(ri);
	}
	image_unref(image);
	return 0;
}
