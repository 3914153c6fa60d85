/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct image_store: the images that profiled processes map, one for each file, found by device
 * and inode. An image's file stays open while it is in the store, so its inode cannot be given to
 * another file.
 *
 * image_store_get() touches files, which may hang: it is for any thread, and no lock is held
 * meanwhile. Everything else is for the loop's thread. What is read of an image later never touches
 * a remote filesystem (remote_file.h): the image of such a file is a copy in memory without debug
 * information or, when the copies take their 64 MiB (copy_budget.h), has only the headers
 * (image_open_headers()).
 */
#pragma once

#include "agent/elf/image.h"
#include "agent/process/maps.h"

struct image_store;

/* One file. `slot` and `unwind_state` belong to the unwind store. */
struct stored_image {
	struct image *image; /* NULL: could not be opened or is no ELF file; `error` tells */
	uint32_t dev_major, dev_minor;
	uint64_t inode;
	char *path;
	int error;		/* negative errno when image is NULL */
	bool is_remote;		/* its filesystem may stop answering */
	uint32_t slot;		/* of `tables` in BPF; 0: none yet */
	int unwind_state;	/* enum unwind_state while its content is not known */
	bool is_stale;		/* its file has other bytes now: nothing of it may be shared */
	_Atomic uint32_t refs;	/* of mapsets and jobs that use it; private to the store */
	uint64_t idle_since_ms; /* when refs became 0 */
};

/*
 * MAX: entries; those that are idle longest are dropped first. ON_DROP is called on the loop's
 * thread before an entry is freed.
 */
int image_store_new(size_t max, void (*on_drop)(struct stored_image *, void *), void *arg,
		    struct image_store **ret) _must_check_;
/* For tests: calls IS_REMOTE instead of remote_file_is(). Before the first image is stored. */
void image_store_set_remote(struct image_store *store, bool (*is_remote)(int fd));
/* All references have to be given back before. */
struct image_store *image_store_free(struct image_store *store);

/*
 * The image of mapping E (kind MAPPING_FILE or MAPPING_VDSO, else -EINVAL) of PID, opened when it
 * is new; map_file.h tells how. A file that cannot be opened is remembered too (image NULL), and
 * tried again after 60 s; at the next get when only the process or the mapping is gone or
 * descriptors ran out. A file that was rewritten in place since it was opened, or can be opened or
 * copied now, gets a new image; others keep the old one. The caller gets a reference;
 * image_store_put() gives it back. -ENOSPC when MAX images are in use, -ENOMEM.
 */
int image_store_get(struct image_store *store, int proc_dirfd, uint32_t pid,
		    const struct map_entry *e, uint64_t now_ms,
		    struct stored_image **ret) _must_check_;
/* Adds a reference; the caller must have one already. */
void image_store_ref(struct stored_image *image);
void image_store_put(struct image_store *store, struct stored_image *image, uint64_t now_ms);
/* Frees the entries that image_store_get() has dropped to make room. */
void image_store_reap(struct image_store *store);
/* Drops images that nobody used for IDLE_MS. */
void image_store_sweep(struct image_store *store, uint64_t now_ms, uint64_t idle_ms);
size_t image_store_count(struct image_store *store);
