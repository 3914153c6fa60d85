/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtimes: which files are runtimes, which processes run one, what the kernel's walkers
 * have to know of them, and the names of their frames. Owned by the loop thread; only
 * runtimes_names() is also read by the naming worker.
 *
 * An attachment belongs to a mapset: it is made with it, before the kernel knows the mapset, and
 * goes with it. Processes that forked share a mapset and thus the attachment, but their memory is
 * read by the sample's own tgid.
 */
#pragma once

#include "agent/runtime/names.h"
#include "agent/runtime/probe.h"
#include "agent/runtime/target.h"

enum {
	RUNTIME_IMAGES_MAX = 512,	/* distinct builds of runtimes that are remembered */
	RUNTIME_NAMES_BYTES = 16 << 20, /* names kept */
	RUNTIME_RETRY_MIN_MS = 20,	/* between two tries to attach, at first */
	RUNTIME_RETRY_MAX_MS = 5000,
	RUNTIME_CODE_MIN_MS = 250, /* between two looks at a runtime's own code, at first */
	RUNTIME_CODE_MAX_MS = 30000,
};

struct runtimes_options {
	const struct interpreter_ops *const
	    *table; /* runtime_table_check() had nothing against it */
	/* Who publishes labels (agent/labels/rows.h), always on; they have no frames. NULL: none.
	 */
	const struct interpreter_ops *const *publishers;
	uint32_t tracers; /* bits, 1 << id; a runtime whose bit is not set does nothing */
	const struct kernel_memory *memory;
	struct mapset_store *mapsets; /* outlives it; its hooks become the runtimes' */
	struct unwind_store *unwind;  /* outlives it */
	struct target_source source;
	/* The process of M has memory that M lacks: has its mappings read again. */
	void (*renew)(struct mapset *m, void *arg);
	void *arg;
	size_t max_name_bytes; /* 0: RUNTIME_NAMES_BYTES */
};

struct runtimes;
int runtimes_new(const struct runtimes_options *options, struct runtimes **ret) _must_check_;
/* Before the mapset store. */
struct runtimes *runtimes_free(struct runtimes *rt);
DEFINE_CLEANUP(struct runtimes *, runtimes_free)

/*
 * Mapsets that are read from here on are for samples whose policy has these TRACERS on (bits,
 * 1 << id; at first all): the memory of a runtime is read only when one asked for it.
 */
void runtimes_asked(struct runtimes *rt, uint32_t tracers);
/*
 * The content of IMAGE is known now: attaches what was found in another file of this content to the
 * processes that run it.
 */
void runtimes_identified(struct runtimes *rt, const struct image *image, uint64_t now_ns);
/*
 * IMAGE's file, whose content is known, was probed: takes what PROBE found, and attaches to the
 * processes that run it. To be called before its marked table is loaded. NOW_NS: CLOCK_MONOTONIC.
 */
void runtimes_probed(struct runtimes *rt, const struct image *image, struct runtime_probe *probe,
		     uint64_t now_ns);
/*
 * A process whose mapset is M has mapped MAPPING. True: since M was read it has mapped the file of
 * a runtime again that it runs, so its frames' names are read anew from the next mapset on, and M
 * holds no more.
 */
struct sideband_mapping;
bool runtimes_mapped(struct runtimes *rt, const struct mapset *m,
		     const struct sideband_mapping *mapping);
/* A sample that was walked by M lacks frames of the runtime ID, which it asked for, because that
 * was not attached to: try again, if it is time to. */
void runtimes_missed(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns);
/* A sample that was walked by M has frames of the runtime ID: is there more to know of its code? */
void runtimes_met(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns);

/*
 * Has the names of all runtimes' frames in WORDS (N user words that were walked by M) read from the
 * memory of TGID, unless they are known; all of them are in use in WINDOW. *BUDGET: how many may be
 * read, counted down. False: it did not suffice. *RET_FAILED (or NULL): some could not be read.
 */
bool runtimes_see(struct runtimes *rt, const struct mapset *m, uint32_t tgid, const uint64_t *words,
		  uint32_t n, uint32_t window, uint32_t *budget, bool *ret_failed);

/* How many frames were read whose function was not known before. */
uint64_t runtimes_news(const struct runtimes *rt);
/* The memory of all names and functions that are kept. */
size_t runtimes_name_bytes(struct runtimes *rt);
/*
 * Keeps a name that the walker copied (TEXT), so that it need not be read from the process. M: the
 * frame's process, NULL when that is not known any more. WINDOW: in which it was sampled.
 */
void runtimes_take_text(struct runtimes *rt, const struct mapset *m, const struct kiln_text *text,
			uint32_t window);

/* A thread that was sampled. */
struct runtime_thread {
	uint32_t tgid, tid;
	bool nested;		  /* its process is in a pid namespace of its own */
	const char *comm;	  /* what the kernel has of its name: KILN_COMM_LEN bytes at most */
	const char *process_comm; /* and of its process's */
};
/*
 * The name that a runtime of M's process has for a thread, which is in use in WINDOW; NULL: the
 * kernel's is all there is, or it is not known yet. Until the next call of a function here.
 */
const char *runtimes_thread_name(struct runtimes *rt, const struct mapset *m,
				 const struct runtime_thread *thread, uint32_t window);
/* Forgets names of threads that were not used since BEFORE_WINDOW. */
void runtimes_sweep(struct runtimes *rt, uint32_t before_window);

/* Any thread, while RT lives. */
struct runtime_names *runtimes_names(struct runtimes *rt);
/* The runtime that a frame belongs to, by its first WORD; NULL when that runtime is switched off.
 * Any thread. */
const struct interpreter_ops *runtimes_ops(const struct runtimes *rt, uint64_t word);
/* The name space of M's frames of the runtime ID; 0: it has none. Any thread. */
uint32_t runtimes_space(const struct mapset *m, uint32_t id);
/* The runtime's name, or "runtime". Any thread. */
const char *runtimes_name(const struct runtimes *rt, uint32_t id);

/* Is any runtime on? */
bool runtimes_any(const struct runtimes *rt);

struct runtime_status {
	bool enabled;	   /* the agent has the tracer on and built in */
	uint32_t attached; /* attachments now */
	uint64_t attached_ever;
	const char *unsupported; /* the version that was refused last; "" when none was */
	const char *versions[RUNTIME_VERSIONS_MAX]; /* that were attached to, the first ones */
	size_t n_versions;
};
/* Of the runtime ID; false when there is none. */
bool runtimes_status(const struct runtimes *rt, uint32_t id, struct runtime_status *ret);
