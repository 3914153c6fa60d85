/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct code_reader: has code read where samples met it, of images with too much code without
 * unwind information to be read as a whole (agent/elf/code_places.h), in the thread pool; the rules
 * are put into the image's table. Of one image at most CODE_PLACES_BYTES_MAX are read; then what is
 * left has no rule. Owned by the loop thread.
 */
#pragma once

#include <uv.h>

#include "agent/sampler/mapset.h"
#include "agent/sampler/unwind_store.h"

enum { CODE_READER_GUESSES_MAX = 128 /* from one stack */ };

struct code_reader;
/* DONE is told when a table has changed, or will not: samples that wait may be tried again. */
int code_reader_new(uv_loop_t *loop, const struct kernel_memory *memory, struct image_store *images,
		    struct unwind_store *unwind,
		    void (*done)(const struct stored_image *image, uint32_t slot, void *arg),
		    void *arg, struct code_reader **ret) _must_check_;
/* Only when it is not busy. */
struct code_reader *code_reader_free(struct code_reader *r);
DEFINE_CLEANUP(struct code_reader *, code_reader_free)

/*
 * The walk of RECORD, by MAPSET, needs a rule for VADDR of IMAGE, whose table is loaded. What of
 * the stack in the record looks like a return address into unread code of the same mapping (of the
 * process's address PC) is read along with it. False: there will be none.
 */
bool code_reader_want(struct code_reader *r, struct stored_image *image, uint64_t vaddr,
		      uint64_t pc, const struct mapset *mapset, const struct kiln_sample *record);
/* Begins to read what was asked for since. */
void code_reader_start(struct code_reader *r);
/* No more is read; what is under way ends soon. */
void code_reader_stop(struct code_reader *r);
bool code_reader_busy(const struct code_reader *r);
