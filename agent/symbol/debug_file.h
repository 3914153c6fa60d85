/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols that lie outside of an image's own tables: separate debug files and .gnu_debugdata. */
#pragma once

#include "agent/elf/image.h"

enum {
	DEBUG_CRC_MAX = 1 << 29,   /* bytes of a file whose checksum is computed */
	DEBUG_DATA_MAX = 32 << 20, /* .gnu_debugdata unpacked */
	DEBUG_DATA_MEMORY =
	    20 << 20, /* of the decoder: xz presets up to -7; distributions use -6 */
};

/*
 * Finds the debug file of IMAGE that has a .symtab. Searched first in ROOT (see symbolize_image()),
 * then on the host, in this order: DEBUG_ROOT/.build-id/xx/yyyy.debug; the file that .gnu_debuglink
 * names in the image's directory, its .debug directory, and below DEBUG_ROOT. Build ids must be
 * equal where both have one; else the checksum of the link must be right. -ENOENT when there is
 * none. Files are opened through FOREIGN, because opening them may hang. For a remote IMAGE neither
 * ROOT nor the image's directory is touched.
 */
struct foreign;
int debug_file_find(struct foreign *foreign, const struct image *image, const char *root,
		    const char *debug_root, struct image **ret) _must_check_;

/* The ELF file in .gnu_debugdata (xz). -ENOENT when there is none. */
int debug_data_unpack(const struct image *image, struct image **ret,
		      struct error *err) _must_check_;
