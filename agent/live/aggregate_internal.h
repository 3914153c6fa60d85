/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables' side of struct aggregate, for the parts of it. Each returns REF_TABLE_NONE when there
 * is no room.
 */
#pragma once

#include "agent/live/aggregate.h"

uint32_t aggregate_put_text(struct aggregate *a, const char *s, size_t len);
uint32_t aggregate_put_frame(struct aggregate *a, const struct live_frame *frame);
uint32_t aggregate_put_node(struct aggregate *a, const struct live_node *node);
uint32_t aggregate_put_group(struct aggregate *a, const struct live_group *group);
/* A row, with room for its counts. */
uint32_t aggregate_put_row(struct aggregate *a, uint32_t group, uint32_t node);

/*
 * Makes room when a table is nearly full: what no window of the history has goes. Counts since the
 * start stay true: those of rows that went are under "[other]". Numbers of entries change then, and
 * A->born. Without memory for a second set of tables all is as it was.
 */
void aggregate_age(struct aggregate *a, uint64_t now_ms);
