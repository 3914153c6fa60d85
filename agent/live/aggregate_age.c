/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of tables are never taken out, so that clients can count on their numbers. When a table
 * is nearly full, a second aggregate is made of the rows that the history's windows have
 * (aggregate_move.c), and takes the first one's place; clients begin anew with it. If it would be
 * no smaller, the first one stays.
 *
 * When the history alone needs nearly all of a table, its oldest windows are dropped, so that there
 * is room for the stacks of new samples. first_kept() counts the entries that windows need, from
 * the newest window to the oldest, each entry once.
 *
 * Both aggregates are in memory for a moment. Room is made once in AGE_EVERY_MS at most; samples
 * that do not fit until then are counted under "[other]".
 */
#include "agent/live/aggregate_internal.h"

#include "agent/profile/batch.h"
#include "lib/cursor.h"

enum { AGE_EVERY_MS = 30000 };

static bool nearly(size_t n, size_t max)
{
	return n >= max - max / 8;
}

static bool is_nearly_full(const struct aggregate *a)
{
	return nearly(a->strings.n, AGGREGATE_STRINGS_MAX) ||
	       nearly(a->text.len, AGGREGATE_TEXT_MAX) ||
	       nearly(a->frames.n, AGGREGATE_FRAMES_MAX) ||
	       nearly(a->nodes.n, AGGREGATE_NODES_MAX) ||
	       nearly(a->groups.n, AGGREGATE_GROUPS_MAX) || nearly(a->rows.n, AGGREGATE_ROWS_MAX);
}

/* Whether it is time to make room. When only labels were left out, that is once in the time that
 * the history spans. */
static bool is_due(const struct aggregate *a, uint64_t now_ms)
{
	if (is_nearly_full(a))
		return now_ms >= a->aged_ms + AGE_EVERY_MS;
	return a->labels_left_out && now_ms >= a->aged_ms + AGGREGATE_HISTORY_MS;
}

/* ---- which windows stay ---------------------------------------------------------------------- */

enum { STRINGS, FRAMES, NODES, LABELS, GROUPS, ROWS, N_TABLES };

/* Parts of a cap, in sixteenths. A table with 14 is nearly full. */
enum {
	PARTS = 16,
	MOST = 13,  /* of a table's cap: windows are dropped when all of them need more */
	WANTED = 8, /* and then until the remaining ones need no more than this */
};

static const size_t caps[N_TABLES] = {
    [STRINGS] = AGGREGATE_STRINGS_MAX, [FRAMES] = AGGREGATE_FRAMES_MAX,
    [NODES] = AGGREGATE_NODES_MAX,     [LABELS] = AGGREGATE_LABELS_MAX,
    [GROUPS] = AGGREGATE_GROUPS_MAX,   [ROWS] = AGGREGATE_ROWS_MAX,
};

/* The entries that the windows so far need. */
struct need {
	const struct aggregate *a;
	bool *has[N_TABLES];
	size_t n[N_TABLES], text;
};

static void need_done(struct need *need)
{
	for (int i = 0; i < N_TABLES; i++)
		free(need->has[i]);
}

static int need_init(struct need *need, const struct aggregate *a)
{
	const struct live_table *tables[N_TABLES] = {
	    [STRINGS] = &a->strings, [FRAMES] = &a->frames, [NODES] = &a->nodes,
	    [LABELS] = &a->labels,   [GROUPS] = &a->groups, [ROWS] = &a->rows,
	};

	need->a = a;
	for (int i = 0; i < N_TABLES; i++) {
		need->has[i] = calloc(tables[i]->n + 1UL, sizeof(bool));
		if (!need->has[i])
			return -ENOMEM;
	}
	return 0;
}

/* Whether entry I of a table is needed for the first time; counts it then. */
static bool count(struct need *need, int table, uint32_t i)
{
	if (need->has[table][i])
		return false;
	need->has[table][i] = true;
	need->n[table]++;
	return true;
}

static void count_string(struct need *need, uint32_t i)
{
	if (count(need, STRINGS, i))
		need->text += aggregate_strings(need->a)[i].len;
}

static void count_node(struct need *need, uint32_t i)
{
	const struct live_frame *frames = aggregate_frames(need->a);
	const struct live_node *nodes = aggregate_nodes(need->a);

	for (; i && count(need, NODES, i); i = nodes[i].parent)
		if (count(need, FRAMES, nodes[i].frame)) {
			count_string(need, frames[nodes[i].frame].name);
			count_string(need, frames[nodes[i].frame].file);
		}
}

static void count_labels(struct need *need, uint32_t i)
{
	const struct live_labels *sets = aggregate_labels(need->a);

	for (; i > AGGREGATE_LABELS_LEFT_OUT && count(need, LABELS, i); i = sets[i].rest) {
		count_string(need, sets[i].key);
		count_string(need, sets[i].value);
	}
}

static void count_group(struct need *need, uint32_t i)
{
	const struct live_group *g = aggregate_groups(need->a) + i;

	if (!count(need, GROUPS, i))
		return;
	count_string(need, g->process);
	count_string(need, g->thread);
	count_string(need, g->container);
	count_string(need, g->container_name);
	count_string(need, g->pod);
	count_string(need, g->k8s_namespace);
	if (g->kind >= PROFILE_PROBE)
		count_string(need, g->kind - PROFILE_PROBE);
	count_labels(need, g->labels);
}

static void count_window(struct need *need, const struct live_window *w)
{
	const struct live_row *rows = aggregate_rows(need->a);
	struct cursor c = cursor_of(w->data, w->len);
	uint64_t row = 0;

	for (uint32_t i = 0; i < w->n_rows; i++) {
		row += cursor_uleb(&c);
		(void)cursor_uleb(&c);
		if (row < need->a->rows.n && count(need, ROWS, (uint32_t)row)) {
			count_group(need, rows[row].group);
			count_node(need, rows[row].node);
		}
	}
}

static bool need_fits(const struct need *need, size_t parts)
{
	for (int i = 0; i < N_TABLES; i++)
		if (need->n[i] > caps[i] / PARTS * parts)
			return false;
	return need->text <= AGGREGATE_TEXT_MAX / PARTS * parts;
}

/* The first of the windows that stay. */
static int first_kept(const struct aggregate *a, uint64_t *ret_seq)
{
	_cleanup_(need_done) struct need need = {0};
	uint64_t most = a->next_seq, wanted = a->next_seq;
	int r = need_init(&need, a);

	if (r < 0)
		return r;
	for (uint64_t seq = a->next_seq; seq-- > a->first_seq && most == seq + 1;) {
		count_window(&need, aggregate_window(a, seq));
		if (need_fits(&need, MOST))
			most = seq;
		if (need_fits(&need, WANTED))
			wanted = seq;
	}
	/* When the newest window alone needs more than MOST, dropping the others frees little. */
	if (most == a->first_seq || most == a->next_seq)
		*ret_seq = a->first_seq;
	else
		*ret_seq = wanted < a->next_seq ? wanted : most;
	return 0;
}

/* ---- room ------------------------------------------------------------------------------------ */

static bool is_smaller(const struct aggregate *a, const struct aggregate *than)
{
	return a->strings.n < than->strings.n || a->frames.n < than->frames.n ||
	       a->nodes.n < than->nodes.n || a->labels.n < than->labels.n ||
	       a->groups.n < than->groups.n || a->rows.n < than->rows.n;
}

void aggregate_age(struct aggregate *a, uint64_t now_ms)
{
	_cleanup_(aggregate_freep) struct aggregate *to = NULL;
	uint64_t first = a->first_seq;
	struct aggregate old;
	int r = 0;

	if (!is_due(a, now_ms))
		return;
	a->aged_ms = now_ms;
	/* No windows are dropped when only labels were left out. */
	if (is_nearly_full(a))
		r = first_kept(a, &first);
	if (r == 0)
		r = aggregate_move(a, first, &to);
	if (r == 0 && is_smaller(to, a)) {
		to->aged_ms = a->aged_ms;
		old = *a;
		*a = *to;
		*to = old;
	}
}
