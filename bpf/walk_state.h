/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The state of a walk, and what the includer of unwind.h defines; a part of unwind.h. */
#pragma once

#include "types.h"
#include "arch.h"

#ifdef __bpf__
#define KILN_INLINE static inline __attribute__((always_inline))
/*
 * The verifier checks a global function once, on its own, however often it is called. Before Linux
 * 5.13 a global function cannot take a pointer, so it takes the slot of the walk.
 */
#define KILN_GLOBAL __attribute__((noinline))
#else
#define KILN_INLINE static inline
#define KILN_GLOBAL static
#endif

enum {
	/* The stack is copied piece by piece into the window. The first piece is as large as recent
	 * walks needed; each further one is twice as large as the one before. */
	KILN_WINDOW_FIRST = 1024, /* bytes of the first piece, at least */
	KILN_WINDOW_WORDS = 512,  /* words of the largest piece: a page */
	KILN_PAGE = 4096,
	KILN_RECORD_WORDS = KILN_RECORD_MAX / 8,
	KILN_CHUNK_STEPS = 64, /* steps that one walk_chunk() makes */
	KILN_HURRIED = 512,    /* functions that walk_hurry() remembers; a power of 2 */
	/* Calls of walk_chunk() for the steps and visits of runtimes of the deepest walk. */
	KILN_CHUNKS = (KILN_MAX_USER_FRAMES * (2 + KILN_RUNTIME_CREDIT)) / KILN_CHUNK_STEPS + 1,
	/* Returned in place of an enum kiln_end: this is a frame of the runtime with the number
	 * w->value, whose walker has to run before the step to the caller. See walk_chunk(). */
	KILN_STEP_RUNTIME = 64,
	KILN_CURSOR_WORDS = 6,
	KILN_CURSORS = 4, /* runtimes whose cursors are kept while another one is current */
	/* In deref_off of a cached rule: see walk_believe_frame_pointer(). */
	KILN_BY_FRAME_POINTER = -1,
	/* Switches from one walker to another in one stack. The kernel allows 32 or 33 tail calls;
	 * the last one ends the sample. */
	KILN_SWITCHES_MAX = 28,
};

/*
 * One entry of a rule cache. There are two caches, both hash tables with one entry per bucket:
 *   env_cache()   (pc, mapset, epoch) -> rule: a hit needs no lookup of mapping, table or slab.
 *   env_shared()  (vaddr, image, epoch) -> rule: a hit needs no search of the table.
 * The second cache serves new processes, and many processes that run one program.
 */
struct kiln_cache_entry {
	uint64_t pc;
	uint64_t tag; /* high half: mapset or image; low half: epoch + 1. 0: the entry is empty */
	struct kiln_rule rule;
};
KILN_ASSERT_SIZE(kiln_cache_entry, KILN_CACHE_ENTRY_BYTES);

/* State of the copy of the stack (bpf/dump.h). */
struct kiln_dump {
	uint64_t end;	      /* address at which the stack ends; 0: not known */
	uint64_t second;      /* the time, in 2^30 ns, to which `large` belongs */
	uint32_t large;	      /* large dumps in that second */
	uint32_t limit, done; /* bytes that may be copied, and bytes copied */
	uint32_t gap;	      /* unreadable pages in a row */
};
KILN_ASSERT_SIZE(kiln_dump, 32);

/* The position of a runtime's walker in its stack; all 0 at its first call in a sample. */
struct kiln_cursor {
	uint64_t words[KILN_CURSOR_WORDS];
};

/*
 * The state of a walk. Members are in the order of their use: at low rates none of it is in the
 * CPU's caches when a sample begins, so the first cache lines hold the members that every walk
 * touches.
 */
struct kiln_walk {
	struct kiln_regs regs; /* of the frame that is being left */
	uint64_t tag;	       /* as in kiln_cache_entry */
	uint64_t window_base;  /* address of the window; a multiple of 8 */
	uint32_t window_len;   /* bytes, a multiple of 8 */
	uint32_t slot;	       /* number of this walk: see env_walk() */
	uint32_t at, n;	       /* the frame words: n words from word `at` of env_words() on */

	uint32_t limit; /* of n; see walk_begin() */
	uint32_t runtime_frames, max_frames;
	uint32_t end;	       /* enum kiln_end once walk_step() returned non-zero */
	uint8_t exact;	       /* pc is the current instruction, not a return address */
	uint8_t leaf_valid;    /* `leaf` has the registers of this frame */
	uint8_t leaf_called;   /* `leaf` has the registers of the frame that this frame called */
	uint8_t runtime_done;  /* the runtime's walker has run for this frame */
	uint8_t hide_native;   /* set by a walker: its frame stands for the native one */
	uint8_t full;	       /* there was no room for a runtime's frame */
	uint8_t stepped;       /* set by a walker: it has set `regs` to the caller */
	uint8_t unreadable;    /* a runtime's word could not be read */
	uint8_t syscall;       /* the thread is in a system call */
	uint8_t fresh;	       /* the reader is to be woken: new process, or walk_hurry() */
	uint8_t switches;      /* switches from walker to walker so far */
	uint8_t parked;	       /* number of cursors in `park` */
	uint8_t map_stays;     /* the map_* fields stay valid for later walks with the same `tag` */
	uint8_t doubt;	       /* fp leads to no frame: use the table's rule */
	uint8_t walker;	       /* runtime in whose walker the walk may begin; 0: none */
	uint32_t window_next;  /* bytes that the next walk_refill() reads, at most */
	uint32_t window_first; /* the same for the first read of the next walk */
	uint32_t misses;       /* misses of the cache in this walk */
	uint32_t first, count; /* the process's mappings */
	uint32_t mapset;       /* of the process */
	uint32_t runtimes;     /* runtimes that are walked: a bit for each enum kiln_runtime_id */
	uint32_t runtime_id;   /* the current runtime, to which `cursor` belongs; 0: none yet */
	uint64_t runtime_kept; /* key of the entry that `runtime` has kept: begin_in_walker() */
	uint32_t missing_said; /* a bit for each runtime that has a KILN_FRAME_MISSING already */

	uint64_t map_start, map_end; /* the mapping of the last lookup; `table` is its table */
	uint64_t map_bias;
	uint32_t map_image, map_flags;
	uint64_t thread_pointer; /* base of thread-local variables; 0: not known */
	uint64_t value;		 /* second result of a global function, such as walk_refill() */
	struct arch_walk arch;
	uint64_t leaf[ARCH_LEAF_ROOM]; /* ARCH_REGS registers, by DWARF number */

	struct kiln_cursor cursor;
	struct kiln_runtime runtime;
	uint64_t scratch[72]; /* working memory of a runtime's walker during one call */
	struct kiln_table table;
	/* Cursors of runtimes that are not current, and the runtimes' numbers. */
	uint32_t park_id[KILN_CURSORS];
	struct kiln_cursor park[KILN_CURSORS];
	uint64_t hurried[KILN_HURRIED]; /* hashes of walk_hurry()'s last functions on this CPU */
	struct kiln_dump dump;
	uint64_t window[KILN_WINDOW_WORDS];
};

/* ---- what the includer of unwind.h defines; a pointer may be NULL ------------------------------
 */

/* The walk in that slot. */
KILN_INLINE struct kiln_walk *env_walk(uint32_t slot);
/* The entry of `runtimes` for the runtime ID and the walk's process. */
KILN_INLINE const struct kiln_runtime *env_runtime(struct kiln_walk *w, uint32_t id);
/* The array for frame words, of KILN_RECORD_WORDS words; the walk writes from w->at on. */
KILN_INLINE uint64_t *env_words(struct kiln_walk *w);
/* Entry INDEX of mapping_slab. */
KILN_INLINE const struct kiln_mapping *env_mapping(uint32_t index);
/* The entry of `tables` for IMAGE. */
KILN_INLINE const struct kiln_table *env_table(uint32_t image);
/* 16 words of unwind_slab. */
KILN_INLINE const uint32_t *env_slot(uint32_t slot);
/* Reads user memory; 0 when all LEN bytes were read. */
KILN_INLINE int env_read(void *dst, uint32_t len, uint64_t address);
/* The entry of the rule cache for PC, which may hold another pc's rule. Never NULL where there is
 * memory. */
KILN_INLINE struct kiln_cache_entry *env_cache(struct kiln_walk *w, uint64_t pc);
/* The entry of the shared cache for VADDR of an image, which may hold another rule. */
KILN_INLINE struct kiln_cache_entry *env_shared(struct kiln_walk *w, uint64_t tag, uint64_t vaddr);
