/* SPDX-License-Identifier: Apache-2.0 */
/* PLT stubs of an image and the functions that they jump to. */
#pragma once

#include "agent/elf/image.h"

enum {
	PLT_STUBS_MAX = 65536,
	PLT_RELOCATIONS_MAX = 4 << 20, /* read, not kept */
};

struct plt_stub {
	uint64_t vaddr;
	uint32_t size;
	const char *name; /* NULL: an ifunc of this image, whose resolver is at RESOLVER */
	uint64_t resolver;
};

/*
 * Calls FN for each stub in .plt, .plt.sec and .plt.got in the order of their addresses; NAME lives
 * during the call. Ends early when FN returns a negative errno. 0 when there are no stubs.
 */
int plt_stubs(const struct image *image, int (*fn)(const struct plt_stub *stub, void *arg),
	      void *arg);
