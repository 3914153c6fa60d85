/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct image: one ELF file (or the vDSO) that some process executes: mapped read-only, its
 * section and segment headers checked, its build id read. Immutable once made, except for its
 * content (content.h), which is set later, and its reference count. Both may be accessed by any
 * thread, so the loop and the worker threads may share an image.
 *
 * All bytes are foreign: every offset is checked against the file's size at opening. A file is
 * mapped MAP_PRIVATE and followed by a page of zeros, so that strings end even when the file
 * changes under us. Reading a file that was cut short after opening would raise SIGBUS: the handler
 * that image_catch_faults() installs puts zero pages there instead, so readers see zeros and no
 * lock or longjmp is needed. The pages that a bulk reader touched count as resident memory: it ends
 * with image_forget(), which gives them back (the kernel's page cache still has them). Not libelf:
 * docs/architecture.md, "Files of other processes", says why, with the figures.
 */
#pragma once

#include "lib/base.h"
#include "lib/cursor.h"
#include "lib/error.h"

enum {
	IMAGE_BUILD_ID_MAX = 64, /* bytes; GNU ld writes 20, lld up to 32 */
	IMAGE_SECTIONS_MAX = 65536,
	IMAGE_SEGMENTS_MAX = 128,
	IMAGE_MAPPED_MAX = 20480, /* images mapped at once */
};

struct image_segment { /* PT_LOAD */
	uint64_t vaddr, memsz, offset, filesz;
	uint32_t flags; /* PF_X ... */
};

struct image_section {
	const char *name; /* "" when out of bounds */
	uint64_t vaddr, offset, size, entsize;
	uint32_t type, link, info;
	uint64_t flags;
};

/* A keyed hash of an image's bytes; content.h. */
struct image_content {
	uint8_t hash[16];
};

struct image {
	char *path;	     /* as the process sees it, for people; "[vdso]" for the vDSO */
	const uint8_t *data; /* the whole file */
	size_t size;
	bool is_mapped;		/* else DATA is on the heap */
	int fd;			/* kept open so that the inode is not reused; -1: a memory image */
	uint16_t machine, type; /* e_machine, e_type */
	uint64_t entry;		/* e_entry */
	struct image_segment *segments;
	size_t n_segments;
	uint64_t eh_frame_hdr; /* PT_GNU_EH_FRAME's address, 0 when there is none */
	struct image_section *sections;
	size_t n_sections;
	uint8_t build_id[IMAGE_BUILD_ID_MAX]; /* .note.gnu.build-id */
	size_t build_id_len;
	char go_build_id[128]; /* .note.go.buildid as text, "" when there is none */
	char htlhash[33];      /* hex, semantic conventions: SHA256(first 4096, last 4096, BE64
				  size)[:16] */
	bool is_go, is_rust;
	bool is_remote;	 /* its filesystem may hang: no debug file is looked for beside it */
	bool is_headers; /* made by image_open_headers() */
	struct image_content content;	   /* content.h: image_content() */
	struct timespec modified, changed; /* file times before its content was read; 0: unknown */
	_Atomic int content_state;
	_Atomic int refs;
};

/* Installs the SIGBUS handler for the whole process; once, before the first image_open(). */
int image_catch_faults(struct error *err) _must_check_;

/*
 * Takes FD (a readable file; owned by the image from then on, closed on failure) and reads its
 * headers. -ENOEXEC with a message when it is no usable ELF file of this machine's class and byte
 * order.
 */
int image_open(int fd, const char *path, struct image **ret, struct error *err) _must_check_;
/*
 * As image_open(), but only the headers are kept and FD is closed. The image has the segments, the
 * build id and what else struct image itself holds, but no sections and no bytes (size 0). It
 * shares no content with any other image.
 */
int image_open_headers(int fd, const char *path, struct image **ret,
		       struct error *err) _must_check_;
/* A copy of DATA (the vDSO, tests). */
int image_from_memory(const void *data, size_t size, const char *path, struct image **ret,
		      struct error *err) _must_check_;
/* The vDSO of this very process, which is that of every process with this kernel and class. */
int image_vdso(struct image **ret, struct error *err) _must_check_;

struct image *image_ref(struct image *image);
struct image *image_unref(struct image *image); /* takes NULL, returns NULL */
DEFINE_CLEANUP(struct image *, image_unref)

const struct image_section *image_section(const struct image *image, const char *name);
/* The section's bytes; SHF_COMPRESSED ones are not unpacked here. Bad cursor when there are none.
 */
struct cursor image_section_data(const struct image *image, const struct image_section *section);
/* File bytes that are loaded at VADDR, up to the end of its segment; bad cursor when none are. */
struct cursor image_at_vaddr(const struct image *image, uint64_t vaddr);
/* Does VADDR lie in an executable segment? */
bool image_is_code(const struct image *image, uint64_t vaddr);
/* ELF virtual address of a file offset inside an executable PT_LOAD; false when there is none. */
bool image_offset_to_vaddr(const struct image *image, uint64_t offset, uint64_t *ret_vaddr);
/*
 * As image_section_data(), and unpacks SHF_COMPRESSED (zlib, zstd) and .zdebug sections. The bytes
 * are in *RET_OWNED then, which the caller frees; else it is NULL. -EFBIG when they are more than
 * MAX.
 */
int image_section_unpack(const struct image *image, const struct image_section *section, size_t max,
			 void **ret_owned, struct cursor *ret, struct error *err) _must_check_;
/* Gives the resident pages of the mapping back; reading again maps them again. */
void image_forget(const struct image *image);
/* Lower-case hex of the GNU build id; "" when there is none. */
void image_build_id_hex(const struct image *image, char *out, size_t size);
