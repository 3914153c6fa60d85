/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct runtimes: knows which files are runtimes and which processes run one, gives the walkers
 * their data, and keeps the names of runtimes' frames. Owned by the loop thread; only
 * runtimes_names() is also read by the naming worker.
 *
 * An attachment belongs to a mapset: it is made with the mapset, before the kernel knows that, and
 * goes with it. Processes that forked share a mapset and thus the attachment, but their memory is
 * read by the sample's own tgid.
 */
#pragma once

#include "agent/runtime/names.h"
#include "agent/runtime/probe.h"
#include "agent/runtime/target.h"

enum {
	RUNTIME_IMAGES_MAX = 512,	/* distinct builds of runtimes that are remembered */
	RUNTIME_NAMES_BYTES = 16 << 20, /* bytes of names that are kept */
	RUNTIME_RETRY_MIN_MS = 20,	/* between two tries to attach, at first */
	RUNTIME_RETRY_MAX_MS = 5000,
	RUNTIME_CODE_MIN_MS = 250, /* between two calls of read_code(), at first */
	RUNTIME_CODE_MAX_MS = 30000,
};

struct runtimes_options {
	const struct interpreter_ops *const *table; /* runtime_table_check() has accepted it */
	/* Publishers of labels (agent/labels/rows.h). They are always on, and have no frames. NULL:
	 * there are none. */
	const struct interpreter_ops *const *publishers;
	uint32_t tracers; /* bits, 1 << id; a runtime whose bit is not set does nothing */
	const struct kernel_memory *memory;
	struct mapset_store *mapsets; /* outlives the runtimes, which set its hooks */
	struct unwind_store *unwind;  /* outlives it */
	struct target_source source;
	/* Has the mappings of M's process read again: it has memory that M lacks. */
	void (*renew)(struct mapset *m, void *arg);
	void *arg;
	size_t max_name_bytes; /* 0: RUNTIME_NAMES_BYTES */
};

struct runtimes;
int runtimes_new(const struct runtimes_options *options, struct runtimes **ret) _must_check_;
/* To be called before the mapset store is freed. */
struct runtimes *runtimes_free(struct runtimes *rt);
DEFINE_CLEANUP(struct runtimes *, runtimes_free)

/*
 * Sets the tracers of mapsets that are read from here on: those that the policy of their samples
 * has on (bits, 1 << id; at first all). A runtime's memory is read only for mapsets that have its
 * tracer.
 */
void runtimes_asked(struct runtimes *rt, uint32_t tracers);
/*
 * The content of IMAGE has become known. If another file with this content was probed, attaches
 * what was found in it to the processes that run IMAGE.
 */
void runtimes_identified(struct runtimes *rt, const struct image *image, uint64_t now_ns);
/*
 * IMAGE, whose content is known, was probed: takes what PROBE has found, and attaches to the
 * processes that run IMAGE. To be called before its marked table is loaded. NOW_NS:
 * CLOCK_MONOTONIC.
 */
void runtimes_probed(struct runtimes *rt, const struct image *image, struct runtime_probe *probe,
		     uint64_t now_ns);
/*
 * A process whose mapset is M has mapped MAPPING. Returns true if that is the file of a runtime
 * that the process runs, mapped again since M was read. Then M is out of date, and from the next
 * mapset on the names of the runtime's frames are read anew.
 */
struct sideband_mapping;
bool runtimes_mapped(struct runtimes *rt, const struct mapset *m,
		     const struct sideband_mapping *mapping);
/* A sample that was walked by M asked for frames of the runtime ID and lacks them, because the
 * runtime was not attached: tries again to attach it, if it is time to. */
void runtimes_missed(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns);
/*
 * A sample that was walked by M has frames of the runtime ID: calls its read_code(), if it is time
 * to.
 */
void runtimes_met(struct runtimes *rt, struct mapset *m, uint32_t id, uint64_t now_ns);

/*
 * Reads the names of all runtimes' frames in WORDS (N user words that were walked by M) from the
 * memory of TGID, unless they are known, and marks them as used in WINDOW. *BUDGET: how many may be
 * read; it is counted down. False: the budget was used up. *RET_FAILED (or NULL): some names could
 * not be read.
 */
bool runtimes_see(struct runtimes *rt, const struct mapset *m, uint32_t tgid, const uint64_t *words,
		  uint32_t n, uint32_t window, uint32_t *budget, bool *ret_failed);

/* Returns how many names were read so far of functions that were not known before. */
uint64_t runtimes_news(const struct runtimes *rt);
/* Returns the bytes of all names and functions that are kept. */
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
	const char *process_comm; /* the same of its process */
};
/*
 * Returns the name that a runtime of M's process has for THREAD, and marks it as used in WINDOW.
 * NULL: there is only the kernel's name, or the name is not known yet. Valid until the next call of
 * a function of this header.
 */
const char *runtimes_thread_name(struct runtimes *rt, const struct mapset *m,
				 const struct runtime_thread *thread, uint32_t window);
/* Forgets names of frames and threads that were not used since BEFORE_WINDOW. */
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
	uint32_t attached; /* current attachments */
	uint64_t attached_ever;
	const char *unsupported; /* the version that was refused last; "" when none was */
	const char *versions[RUNTIME_VERSIONS_MAX]; /* the first ones that were attached to */
	size_t n_versions;
};
/* Fills in RET for the runtime ID; false: there is no such runtime. */
bool runtimes_status(const struct runtimes *rt, uint32_t id, struct runtime_status *ret);
