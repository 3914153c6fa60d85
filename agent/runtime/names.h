/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtime_names: the functions of runtimes' frames, kept from the moment when a frame was
 * first seen. A frame is identified by its name space (one for each process and runtime) and its
 * two words. Functions are interned: equal ones have the same pointers.
 *
 * The loop fills it, the naming worker reads; a mutex guards each call. A name that was touched in
 * window N stays until window N + RUNTIME_NAMES_WINDOWS begins, so the names that the worker has
 * got for a window hold while it works on that. Beyond MAX_BYTES the names that were not touched
 * for longest go first.
 */
#pragma once

#include "agent/symbol/symbolizer.h"

enum {
	RUNTIME_NAMES_WINDOWS = 4,
	RUNTIME_NAME_MAX = 4096, /* bytes of one name or file name; the rest is cut off */
	RUNTIME_NAME_TRIES = 4,	 /* tries to read a name, in one window */
};

struct runtime_names;
int runtime_names_new(size_t max_bytes, struct runtime_names **ret) _must_check_;
struct runtime_names *runtime_names_free(struct runtime_names *n);
DEFINE_CLEANUP(struct runtime_names *, runtime_names_free)

enum runtime_name_state {
	RUNTIME_NAME_UNKNOWN, /* no try to read it yet */
	RUNTIME_NAME_KNOWN,
	RUNTIME_NAME_FAILED, /* could not be read in an earlier round: try again */
	RUNTIME_NAME_FAILED_NOW,
};
/*
 * Begins a new round: names that could not be read may be tried again, up to RUNTIME_NAME_TRIES
 * times a window. Objects that a process frees and makes again (a request's code in PHP) are there
 * most of the time.
 */
void runtime_names_next_round(struct runtime_names *n);
/* Returns what is known of a frame, and marks its name as used in WINDOW. */
enum runtime_name_state runtime_names_touch(struct runtime_names *n, uint32_t space,
					    const uint64_t words[2], uint32_t window);
/*
 * Keeps a copy of SYM, the functions of a frame, in place of what was kept before. SYM NULL or
 * without functions: the name could not be read. -ENOSPC: all that is kept is in use. -ENOMEM.
 */
int runtime_names_put(struct runtime_names *n, uint32_t space, const uint64_t words[2],
		      const struct symbol_result *sym, uint32_t window) _must_check_;
/* Finds the functions of a frame; false: there are none. */
bool runtime_names_get(struct runtime_names *n, uint32_t space, const uint64_t words[2],
		       struct symbol_result *ret);
/* Forgets names that were not touched since BEFORE_WINDOW. */
void runtime_names_sweep(struct runtime_names *n, uint32_t before_window);
size_t runtime_names_bytes(struct runtime_names *n);
size_t runtime_names_count(struct runtime_names *n);
