/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct walkers: the BPF programs that walk frames of runtimes (bpf/walker.h), each loaded when
 * the first process needs it. Verifying one takes the kernel 50 to 100 ms, so that is done on a
 * thread of its own; samples say KILN_MISSING_NOT_LOADED until then.
 *
 * Programs jump only to programs of their own type. So each type of program that samples begin in
 * has a set of its own: the same objects, loaded for that type, in the `walkers` map of its entry.
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

/* What the programs of a set are loaded as: what the entry is. */
struct walker_kind {
	const char *attach; /* of BPF_PROG_TYPE_TRACING: the tracepoint of BTF; else NULL */
	unsigned int type;  /* enum bpf_prog_type; 0: as the object says, a perf event's */
};

struct walkers;
/*
 * MAIN: loaded, has the maps that walkers share, and outlives this. What its program `finish` does
 * ends the samples.
 */
int walkers_new(const struct bpf_object *main, const struct walker_kind *kind,
		struct walkers **ret) _must_check_;
/* S is to have every walker that FROM was asked for until now; returns at once. */
void walkers_copy(struct walkers *s, struct walkers *from);
/* The maps of OBJECT, which is not loaded, that MAIN has as well, are MAIN's. */
int walkers_share_maps(const struct bpf_object *main, struct bpf_object *object) _must_check_;
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
