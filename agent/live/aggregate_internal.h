/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions on the tables of struct aggregate, shared by aggregate*.c. Those that return an index
 * return REF_TABLE_NONE when there is no room.
 */
#pragma once

#include "agent/live/aggregate.h"

uint32_t aggregate_put_text(struct aggregate *a, const char *s, size_t len);
uint32_t aggregate_put_frame(struct aggregate *a, const struct live_frame *frame);
uint32_t aggregate_put_node(struct aggregate *a, const struct live_node *node);
uint32_t aggregate_put_labels(struct aggregate *a, const struct live_labels *labels);
uint32_t aggregate_put_group(struct aggregate *a, const struct live_group *group);
/* The index of GROUP if the table has it; never adds it. */
uint32_t aggregate_find_group(struct aggregate *a, const struct live_group *group);
/* A row, with room for its counts. */
uint32_t aggregate_put_row(struct aggregate *a, uint32_t group, uint32_t node);
/* A text of any length, which is cut when it is too long. */
uint32_t aggregate_put_string(struct aggregate *a, const char *s);

/*
 * Returns the row of the label set with index I in batch B. The set's trace id is left out: it is
 * for aggregate_add_trace(). AGGREGATE_LABELS_LEFT_OUT: a table is so full that its free rows are
 * reserved for stacks.
 */
uint32_t aggregate_labels_of(struct aggregate *a, const struct batch *b, uint32_t i);
/* Keeps the trace of the set, if it has one, for the window being added. */
void aggregate_add_trace(struct aggregate *a, const struct batch_label_set *set, uint32_t row,
			 int64_t value);
/* Moves the traces that were added since the last window into W. If all windows together then hold
 * more than AGGREGATE_TRACES_MAX, the oldest windows lose theirs. */
void aggregate_take_traces(struct aggregate *a, struct live_window *w);
void aggregate_drop_traces(struct aggregate *a, struct live_window *w);

/*
 * Makes room when a table is nearly full. Entries that no window of the history uses are removed;
 * when the history alone needs nearly all of a table, its oldest windows are removed first. Counts
 * since the start stay true: those of removed rows are added to "[other]" of their process name and
 * container. The remaining entries get new numbers, and A->born changes. Nothing changes when there
 * is no memory for a second set of tables, or nothing to remove.
 */
void aggregate_age(struct aggregate *a, uint64_t now_ms);
/* A new aggregate of FROM's windows from FIRST on, and of all totals. */
int aggregate_move(const struct aggregate *from, uint64_t first,
		   struct aggregate **ret) _must_check_;
