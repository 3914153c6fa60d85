/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would reflow the table. */
/*
 * struct aggregate: what the live page shows, since the start and window by window.
 *
 *   string   a name
 *   frame    function name, type, file
 *   node     parent node and frame: a stack trie
 *   labels   a label and the set of the other ones: sets of labels
 *   group    process, thread name, container, pod, kind, labels
 *   row      group and node: what is counted
 *
 * Trace ids are not in a table, which they would fill, because most are seen once: each window has
 * a list of its traces.
 *
 * Entries are numbered as they come and never change, so that a client which has the first N of a
 * table lacks exactly the rest. Every table has a cap. When a table is nearly full, aggregate_age()
 * removes the entries that are used by no window of the history. If that does not make enough room,
 * it also removes windows, the oldest first. The remaining entries get new numbers (BORN counts how
 * often that was done). Removed counts, and samples for which there is no room, are added to the
 * frame "[other]" of their process and container, or to a common one when there is no room for
 * that: totals stay true. Loop's thread.
 */
/* clang-format on */
#pragma once

#include "agent/profile/batch.h"
#include "lib/ref_table.h"
#include "lib/base.h"
#include "lib/buf.h"

enum {
	AGGREGATE_STRINGS_MAX = 1 << 17,
	AGGREGATE_TEXT_MAX = 8 << 20, /* bytes of all strings */
	AGGREGATE_STRING_MAX = 400,   /* bytes of one; longer ones are cut */
	AGGREGATE_FRAMES_MAX = 1 << 17,
	AGGREGATE_NODES_MAX = 1 << 19,
	AGGREGATE_LABELS_MAX = 1 << 15,
	AGGREGATE_LABELS_EACH_MAX = 32, /* labels of one sample */
	AGGREGATE_GROUPS_MAX = 1 << 16,
	AGGREGATE_ROWS_MAX = 1 << 17,
	AGGREGATE_TRACES_MAX = 1 << 17,	       /* of all windows, 32 bytes each */
	AGGREGATE_WINDOW_TRACES_MAX = 1 << 15, /* of one window */
	AGGREGATE_HISTORY_MS = 300000,
	AGGREGATE_HISTORY_WINDOWS = 512,
	AGGREGATE_HISTORY_BYTES = 8 << 20,
	AGGREGATE_OTHER = 1,	       /* the node "[other]"; 0 is the root */
	AGGREGATE_NO_LABELS = 0,       /* the empty set */
	AGGREGATE_LABELS_LEFT_OUT = 1, /* stands for labels for which there was no room */
};

struct live_string {
	uint32_t at, len; /* in text */
};

struct live_frame {
	uint32_t name, file;
	uint32_t type;
};

struct live_node {
	uint32_t parent, frame;
};

/* A set of labels, as a linked list: one label, and the index of the set of the rest. */
struct live_labels {
	uint32_t rest, key, value;
};

struct live_group {
	uint32_t pid, process, thread, container, container_name, pod, k8s_namespace;
	/* enum profile_kind. PROFILE_PROBE and above: a probe, whose name is string kind -
	 * PROFILE_PROBE. */
	uint32_t kind;
	uint32_t labels, unused; /* entries are compared as bytes: no padding */
	uint64_t period_ns;
};

struct live_row {
	uint32_t group, node;
};

struct live_table {
	void *items;
	size_t cap;
	uint32_t n;
	struct ref_table index;
};

/* The part of a window's row that belongs to one trace. */
struct live_trace {
	uint8_t id[16];
	int64_t value;
	uint32_t row, unused;
};

/* A trace id, or its first digits. */
struct live_trace_prefix {
	uint8_t id[16];
	unsigned int digits;
};
/* HEX: 1 to 32 lower-case digits. -EINVAL: it is something else. */
int live_trace_parse(const char *hex, struct live_trace_prefix *ret) _must_check_;
bool live_trace_has(const struct live_trace *trace, const struct live_trace_prefix *prefix);

/* A window: for each row (gap to the row before, value) as varints, rows ascending. */
struct live_window {
	uint64_t seq; /* 1 is the first */
	uint64_t start_ms, duration_ms;
	uint32_t n_rows;
	char *data;
	size_t len;
	struct live_trace *traces;
	uint32_t n_traces;
};

struct aggregate {
	uint64_t since_ms; /* UNIX; 0 before the first window */
	struct buf text;
	struct live_table strings, frames, nodes, labels, groups, rows;
	int64_t *totals; /* indexed by row, like `deltas` */
	int64_t *deltas;
	size_t totals_cap, deltas_cap;
	uint32_t *touched; /* rows of the window being added */
	size_t touched_cap;
	uint32_t n_touched;
	struct live_trace *traces; /* of the window being added */
	size_t traces_cap;
	uint32_t n_traces, held_traces;			       /* held: by all windows */
	struct live_window windows[AGGREGATE_HISTORY_WINDOWS]; /* ring by seq */
	uint64_t first_seq, next_seq;			       /* held: [first, next) */
	size_t window_bytes;
	int64_t overflow;     /* samples under "[other]" */
	bool labels_left_out; /* since the entries were numbered anew */
	unsigned int born;    /* how often the entries were numbered anew */
	uint64_t aged_ms;     /* when making room was tried last, by the windows' times */
	uint32_t *path;	      /* scratch: nodes of the batch's stacks */
	uint32_t *sets;	      /* and its sets of labels */
	size_t path_cap, sets_cap;
};

int aggregate_new(struct aggregate **ret) _must_check_;
struct aggregate *aggregate_free(struct aggregate *a);
DEFINE_CLEANUP(struct aggregate *, aggregate_free)
/* Adds a window. On -ENOMEM a part of it may be missing; the aggregate stays usable. */
int aggregate_add(struct aggregate *a, const struct batch *b) _must_check_;

const struct live_window *aggregate_window(const struct aggregate *a, uint64_t seq);
static inline const struct live_string *aggregate_strings(const struct aggregate *a)
{
	return a->strings.items;
}
static inline const struct live_frame *aggregate_frames(const struct aggregate *a)
{
	return a->frames.items;
}
static inline const struct live_node *aggregate_nodes(const struct aggregate *a)
{
	return a->nodes.items;
}
static inline const struct live_labels *aggregate_labels(const struct aggregate *a)
{
	return a->labels.items;
}
static inline const struct live_group *aggregate_groups(const struct aggregate *a)
{
	return a->groups.items;
}
static inline const struct live_row *aggregate_rows(const struct aggregate *a)
{
	return a->rows.items;
}
