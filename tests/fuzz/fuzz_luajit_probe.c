// SPDX-License-Identifier: Apache-2.0
/* Any ELF file may say that it is LuaJIT: what is found lies within its code. */
#include "agent/runtime/luajit/luajit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct runtime_image *ri;
	struct image *image;

	if (image_from_memory(data, size, "luajit", &image, NULL) < 0)
		return 0;
	if (luajit_probe(image, &ri, NULL) == 0) {
		const struct kiln_luajit *k = &container_of(ri, struct luajit_image, base)->kernel;

		if (ri->n_ranges != 1 || !*ri->version || k->vm != ri->ranges[0].start ||
		    k->vm + k->vm_size != ri->ranges[0].end || k->enter_to > k->vm_size ||
		    k->exit_to > k->vm_size || k->callback_from >= k->vm_size)
			abort();
		luajit_forget(ri);
	}
	image_unref(image);
	return 0;
}
