/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct mapset: the executable mappings of a process as they were at one moment, with the image of
 * each. Immutable; the kernel walks by a copy of it and every sample names the mapset that it was
 * walked by, so addresses are always read against the mappings that were in force. Processes that
 * fork without exec share one.
 *
 * The kernel's `processes` map decides how long a mapset lives: a mapset that no entry names any
 * more, and that no stack refers to, is freed by a sweep. Owned by the loop thread; the worker that
 * names frames reads ranges and images of mapsets that its stacks hold.
 */
#pragma once

#include "agent/process/image_store.h"
#include "agent/sampler/kernel_memory.h"
#include "agent/sampler/unwind_store.h"
#include "lib/uthash.h"

enum { MAPSET_RANGES_MAX = 8192 };

struct mapset_range {
	uint64_t start, end, bias;
	uint64_t offset;	    /* in the file, bytes */
	struct stored_image *image; /* NULL: JIT or other memory without a file */
	bool jit;		    /* no segment of an ELF file: a runtime may claim it */
	uint8_t runtime;	    /* enum kiln_runtime_id whose JIT code it is */
	uint8_t claim;		    /* enum jit_claim of that runtime */
	/* That runtime's unwind table of some of the code in the range, by addresses of the
	 * process. Only for ranges without a file; NULL: none. */
	const struct stored_image *code;
};

/* How sure a runtime is that memory that is no ELF segment holds its code. */
enum jit_claim {
	JIT_NONE,
	JIT_LIKELY, /* it has code in such memory, and nothing tells this range from others */
	JIT_CERTAIN,
};

/* What one runtime claims of a process. */
struct jit_claims {
	uint32_t runtime;						  /* enum kiln_runtime_id */
	enum jit_claim (*claim)(void *arg, uint64_t start, uint64_t end); /* of one mapping */
	void *arg;
	/* The range that the runtime has reserved for code, of which not all is executable yet.
	 * Claimed as JIT_CERTAIN; empty: none. */
	uint64_t code_start, code_end;
	const struct stored_image *table; /* struct mapset_range's `code`; or NULL */
};

/* The ELF file that RANGE is a segment of, or NULL. A file may hold code that no segment has. */
static inline struct image *mapset_range_elf(const struct mapset_range *range)
{
	return range->image && !range->jit ? range->image->image : NULL;
}

/* The index in `tables` of RANGE's unwind table; 0: it has none. */
static inline uint32_t mapset_range_slot(const struct mapset_range *range)
{
	if (mapset_range_elf(range))
		return range->image->slot;
	return range->code ? range->code->slot : 0;
}

/* enum kiln_mapping_flags */
static inline uint32_t mapset_range_flags(const struct mapset_range *range)
{
	if (!range->jit)
		return 0;
	return KILN_MAPPING_JIT | (uint32_t)range->runtime << KILN_MAPPING_RUNTIME_SHIFT |
	       (range->claim == JIT_CERTAIN ? KILN_MAPPING_CERTAIN : 0);
}

struct mapset {
	/* By enum kiln_runtime_id: the number of the name space that has the names of its
	 * frames; see agent/runtime/runtimes.h. Set once by the loop, read by any thread. */
	_Atomic uint32_t name_space[KILN_RUNTIME_MAX];
	uint32_t id;	  /* never 0 */
	uint32_t tgid;	  /* the process whose maps were read */
	uint32_t tracers; /* bits: runtimes that its samples asked for; agent/runtime/runtimes.h */
	uint64_t exec_id;
	uint64_t start_time;	     /* of that process */
	uint64_t cgroup;	     /* to which its places are charged; 0: not known */
	uint64_t read_ns;	     /* CLOCK_MONOTONIC, before the maps were read */
	struct mapset_range *ranges; /* sorted */
	uint32_t n;
	bool is_gone;		 /* its program was gone when it was read: no memory to read */
	bool has_labels;	 /* its processes publish labels */
	bool has_context;	 /* they have a mapping named OTEL_CTX: struct maps */
	bool names_threads;	 /* it has a runtime that knows names of threads */
	bool is_remote;		 /* it maps a file whose filesystem may stop answering */
	uint32_t first;		 /* index of the first of its n mappings in the kernel's slab */
	uint32_t refs;		 /* stacks that were walked by it, samples that wait */
	uint32_t unnamed_sweeps; /* sweeps since an entry of `processes` named it */
	UT_hash_handle hh;
};

struct mapset_store;
int mapset_store_new(const struct kernel_memory *memory, struct image_store *images,
		     struct unwind_store *unwind, struct mapset_store **ret) _must_check_;
struct mapset_store *mapset_store_free(struct mapset_store *s);
DEFINE_CLEANUP(struct mapset_store *, mapset_store_free)

/*
 * MADE is told of each mapset before the kernel knows of it (its id is valid, and it may claim JIT
 * memory), GONE before it is freed.
 */
struct mapset_hooks {
	void (*made)(struct mapset *m, void *arg);
	void (*gone)(struct mapset *m, void *arg);
	void *arg;
};
void mapset_store_set_hooks(struct mapset_store *s, const struct mapset_hooks *hooks);

/*
 * Applies CLAIMS to M, a mapset that is being made. Each range of JIT memory belongs to the runtime
 * with the surest claim; of two equal claims the lower id wins, in whatever order they are made.
 * The range reserved for code becomes part of M where no file is mapped, whether it is executable
 * already or not. -ENOMEM; -E2BIG: more than MAPSET_RANGES_MAX ranges.
 */
int mapset_claim_jit(struct mapset *m, const struct jit_claims *claims) _must_check_;
/*
 * The same for a published mapset, which gets no new ranges. False: M does not cover the range
 * reserved for code.
 */
bool mapset_store_claim_jit(struct mapset_store *s, struct mapset *m,
			    const struct jit_claims *claims);
/* TABLE is the unwind table of RUNTIME's JIT memory in M, which is published. */
void mapset_store_set_code(struct mapset_store *s, struct mapset *m, uint32_t runtime,
			   const struct stored_image *table);
/*
 * Processes of M publish labels. PUBLISHED: M is in the kernel already, so its process is marked at
 * once. Processes that forked from it are marked when they are sampled: mapset_store_mark().
 */
void mapset_store_set_labels(struct mapset_store *s, struct mapset *m, bool published);
/* Makes the kernel read labels of the process TGID, if its mapset is M. */
void mapset_store_mark(struct mapset_store *s, const struct mapset *m, uint32_t tgid);
/* Calls EACH for every mapset. EACH may not add or remove mapsets. */
void mapset_store_each(struct mapset_store *s, void (*each)(struct mapset *m, void *arg),
		       void *arg);

/* A process's mappings as they were read, and their images (NULL: none, or it cannot be kept). */
struct mapset_source {
	uint32_t tgid;
	uint64_t start_time, exec_id, cgroup, read_ns; /* as in struct mapset */
	bool is_gone;				       /* as in struct mapset */
	const struct maps *maps;
	struct stored_image **images; /* of each; the mapset takes their references */
};
/*
 * Makes a mapset and publishes it in the kernel, and in the process's entry if the process still
 * runs that program. -ENOSPC when the kernel has no room for it (mapping_room_get()), -ENOMEM:
 * SOURCE keeps the references that the mapset has not taken.
 */
int mapset_store_make(struct mapset_store *s, const struct mapset_source *source,
		      struct mapset **ret) _must_check_;
/* What new mappings of code mean for a mapset that was read before. */
enum mapset_change {
	MAPSET_HOLDS,	  /* the mapset has the new mapping */
	MAPSET_EXTENDED,  /* the mapset has nothing there, or only memory without a file */
	MAPSET_EXCHANGED, /* the mapset has other code there */
};
/*
 * SOURCE was read because OLD, which is in force, may lack code that was mapped since. Returns an
 * enum mapset_change: when OLD holds it stays and is *RET, else *RET is a new mapset as
 * mapset_store_make() makes it. Negative as there.
 */
int mapset_store_check(struct mapset_store *s, const struct mapset_source *source,
		       struct mapset *old, struct mapset **ret) _must_check_;
/*
 * Writes the images' slots into the kernel's mappings: images may have got other slots since their
 * mapset was made.
 */
void mapset_store_renumber(struct mapset_store *s);
struct mapset *mapset_store_find(struct mapset_store *s, uint32_t id);
/* The range that holds PC, or NULL. */
const struct mapset_range *mapset_find(const struct mapset *m, uint64_t pc);
/*
 * WORDS: N words of user frames that were walked with WALKED when NOW was the right mapset already.
 * Returns the index of the first frame that lies in other code in NOW, so that its callers were
 * found by wrong rules; N when there is none.
 */
uint32_t mapset_first_exchanged(const struct mapset *walked, const struct mapset *now,
				const uint64_t *words, uint32_t n);

struct sideband_mapping;
enum mapset_change mapset_compare(const struct mapset *m, const struct sideband_mapping *mapping);
/* The image of MAPPING's file where M has that file anywhere; else NULL. */
const struct image *mapset_image_of(const struct mapset *m, const struct sideband_mapping *mapping);
/* The mapset of TGID in the kernel, if that process runs the program EXEC_ID; else NULL. */
struct mapset *mapset_store_in_force(struct mapset_store *s, uint32_t tgid, uint64_t exec_id);
/* Takes the mapset out of the kernel's entry of TGID, which is KILN_PROCESS_PENDING again. */
void mapset_store_forget(struct mapset_store *s, uint32_t tgid);
/* Makes the kernel send short records of TGID, program EXEC_ID, until a mapset is published. */
void mapset_store_give_up(struct mapset_store *s, uint32_t tgid, uint64_t exec_id);

/*
 * Frees the mapsets that no entry of `processes` names and no stack or sample holds. NAMED: the N
 * mapset ids that `processes` names now, sorted; NULL: none.
 */
void mapset_store_sweep(struct mapset_store *s, const uint32_t *named, size_t n, uint64_t now_ms);
/* Gives back memory of the kernel's mappings that no mapset uses. */
void mapset_store_trim(struct mapset_store *s, uint64_t now_ms);
/* Does a stack or sample hold a mapset that `processes` did not name at the last sweep? */
bool mapset_store_any_unnamed(const struct mapset_store *s);
size_t mapset_store_count(const struct mapset_store *s);
