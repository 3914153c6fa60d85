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

/* The type that the programs of a set are loaded as: that of the program in which samples begin. */
struct walker_kind {
	const char *attach; /* of BPF_PROG_TYPE_TRACING: the tracepoint of BTF; else NULL */
	unsigned int type;  /* enum bpf_prog_type; 0: that of the object file, perf_event */
};

struct walkers;
/*
 * MAIN: loaded, has the maps that walkers share, and outlives this. Its program `finish` is the end
 * of every sample.
 */
int walkers_new(const struct bpf_object *main, const struct walker_kind *kind,
		struct walkers **ret) _must_check_;
/* Loads into S every walker that FROM was asked for until now; returns at once. */
void walkers_copy(struct walkers *s, struct walkers *from);
/*
 * Makes OBJECT, which is not loaded yet, use MAIN's maps wherever MAIN has a map of the same name.
 */
int walkers_share_maps(const struct bpf_object *main, struct bpf_object *object) _must_check_;
/* Waits for what is being loaded. */
struct walkers *walkers_free(struct walkers *s);
DEFINE_CLEANUP(struct walkers *, walkers_free)

/*
 * Loads OBJECT, the walker of the runtime ID, unless that was done before. Loop thread; returns at
 * once.
 */
void walkers_need(struct walkers *s, uint32_t id, const struct walker_object *object);
/* As walkers_need(), but waits. */
int walkers_load(struct walkers *s, uint32_t id, const struct walker_object *object,
		 struct error *err) _must_check_;
/* Is one being loaded? */
bool walkers_busy(struct walkers *s);
/* Why the walker of ID cannot be loaded; NULL: nothing has failed. Valid while S lives. */
const char *walkers_failure(struct walkers *s, uint32_t id);
