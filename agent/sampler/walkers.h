/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct walkers: the BPF programs that walk frames of runtimes (bpf/walker.h), each loaded when
 * the first process needs it. Verifying one takes the kernel 50 to 100 ms, so that is done on a
 * thread of its own; samples say KILN_MISSING_NOT_LOADED until then.
 */
#pragma once

#include <stdint.h>

#include "lib/base.h"
#include "lib/error.h"

struct bpf_object;

/* A compiled walker; cmake's walker_object() makes them. */
struct walker_object {
	const char *name;
	const unsigned char *bytes, *end;
};

struct walkers;
/* MAIN: loaded, has the maps that walkers share, and outlives this. */
int walkers_new(const struct bpf_object *main, struct walkers **ret) _must_check_;
/* Waits for what is being loaded. */
struct walkers *walkers_free(struct walkers *s);
DEFINE_CLEANUP(struct walkers *, walkers_free)

/* Samples of processes with the runtime ID are to be walked by OBJECT, as soon as it is loaded.
 * Loop thread; returns at once. */
void walkers_need(struct walkers *s, uint32_t id, const struct walker_object *object);
/* As walkers_need(), but waits. */
int walkers_load(struct walkers *s, uint32_t id, const struct walker_object *object,
		 struct error *err) _must_check_;
/* Is one being loaded? */
bool walkers_busy(struct walkers *s);
/* Why the walker of ID cannot be loaded; NULL: nothing has failed. Valid while S lives. */
const char *walkers_failure(struct walkers *s, uint32_t id);
