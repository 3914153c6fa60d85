/* SPDX-License-Identifier: Apache-2.0 */
/* The two words of the Go runtime's moduledata that the function table cannot be read without. */
#pragma once

#include "agent/elf/image.h"

struct go_module {
	uint64_t text;	 /* runtime.text */
	uint64_t gofunc; /* go:func.*, base of inline trees */
};

/*
 * The moduledata whose pcHeader is the table at TABLE. IS_120: layout of Go 1.20 to 1.26, else that
 * of 1.18 and 1.19. Relative relocations are applied, as the file's words may be 0 in PIE binaries.
 */
bool go_module_find(const struct image *image, uint64_t table, bool is_120, struct go_module *ret);
