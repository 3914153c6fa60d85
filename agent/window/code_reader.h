/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_reader: reads code in the thread pool at the places where samples met it, for images
 * with too much code without unwind information to be read as a whole (agent/elf/code_places.h),
 * and adds the rules to the image's table. At most CODE_PLACES_BYTES_MAX of an image are read; the
 * remaining code then has no rule. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/sampler/mapset.h"
#include "agent/sampler/unwind_store.h"

enum { CODE_READER_GUESSES_MAX = 128 /* from one stack */ };

struct code_reader;
/* DONE is called when a table has changed or will not change: samples that wait for it may be tried
 * again. */
int code_reader_new(uv_loop_t *loop, const struct kernel_memory *memory, struct image_store *images,
		    struct unwind_store *unwind,
		    void (*done)(const struct stored_image *image, uint32_t slot, void *arg),
		    void *arg, struct code_reader **ret) _must_check_;
/* Only when it is not busy. */
struct code_reader *code_reader_free(struct code_reader *r);
DEFINE_CLEANUP(struct code_reader *, code_reader_free)

/*
 * The walk of RECORD, by MAPSET, needs a rule for VADDR of IMAGE, whose table is loaded. Also
 * requests the words of the record's stack that look like return addresses into unread code of the
 * mapping that has PC, the process's address of VADDR. False: there will be no rule.
 */
bool code_reader_want(struct code_reader *r, struct stored_image *image, uint64_t vaddr,
		      uint64_t pc, const struct mapset *mapset, const struct kiln_sample *record);
/* Starts reading what was requested. */
void code_reader_start(struct code_reader *r);
/* Starts no more reading; jobs under way end soon. */
void code_reader_stop(struct code_reader *r);
bool code_reader_busy(const struct code_reader *r);
