/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies an aggregate without what is old: the windows from a given one on, the rows that these
 * windows use, and the entries that these rows use. Entries get new numbers. Rows keep their order,
 * so that the gaps between rows in the windows stay positive.
 *
 * The counts of the other rows are kept as "[other]" of their owner: process name, container, pod
 * and namespace. There are OWNERS_MAX owners at most; counts of further ones go to a group whose
 * process is called "[other]".
 */
#include "agent/live/aggregate_internal.h"

#include "agent/profile/wire.h"
#include "lib/cursor.h"

enum { OWNERS_MAX = 4096 };

#define NONE REF_TABLE_NONE

/* Old numbers to new ones; NONE: not there yet. */
struct moving {
	const struct aggregate *from;
	struct aggregate *to;
	uint32_t *strings, *frames, *nodes, *labels, *groups, *rows;
	uint32_t *path;	 /* scratch of move_node() */
	uint32_t owners; /* groups of owner_of() that are in no window */
	bool *used;	 /* rows that the history has */
};

static uint32_t *unknown(uint32_t n)
{
	uint32_t *map = malloc((n + 1UL) * sizeof(*map));

	for (uint32_t i = 0; map && i <= n; i++)
		map[i] = NONE;
	return map;
}

static int moving_init(struct moving *m, const struct aggregate *from)
{
	int r = aggregate_new(&m->to);

	if (r < 0)
		return r;
	m->from = from;
	m->strings = unknown(from->strings.n);
	m->frames = unknown(from->frames.n);
	m->nodes = unknown(from->nodes.n);
	m->labels = unknown(from->labels.n);
	m->groups = unknown(from->groups.n);
	m->rows = unknown(from->rows.n);
	m->path = unknown(from->nodes.n);
	m->used = calloc(from->rows.n + 1UL, sizeof(*m->used));
	if (!m->strings || !m->frames || !m->nodes || !m->labels || !m->groups || !m->rows ||
	    !m->path || !m->used)
		return -ENOMEM;
	/* These exist in every aggregate, with the same number: the trie's root, which has no
	 * frame, and two sets of labels. */
	m->nodes[0] = 0;
	m->labels[AGGREGATE_NO_LABELS] = AGGREGATE_NO_LABELS;
	m->labels[AGGREGATE_LABELS_LEFT_OUT] = AGGREGATE_LABELS_LEFT_OUT;
	return 0;
}

static void moving_done(struct moving *m)
{
	aggregate_free(m->to);
	free(m->strings);
	free(m->frames);
	free(m->nodes);
	free(m->labels);
	free(m->groups);
	free(m->rows);
	free(m->path);
	free(m->used);
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint32_t move_string(struct moving *m, uint32_t i)
{
	const struct live_string *s = aggregate_strings(m->from) + i;

	if (m->strings[i] == NONE)
		m->strings[i] = aggregate_put_text(m->to, m->from->text.data + s->at, s->len);
	return m->strings[i];
}

static uint32_t move_frame(struct moving *m, uint32_t i)
{
	const struct live_frame *f = aggregate_frames(m->from) + i;
	struct live_frame moved = {.type = f->type};

	if (m->frames[i] != NONE)
		return m->frames[i];
	moved.name = move_string(m, f->name);
	moved.file = move_string(m, f->file);
	if (moved.name != NONE && moved.file != NONE)
		m->frames[i] = aggregate_put_frame(m->to, &moved);
	return m->frames[i];
}

static uint32_t move_node(struct moving *m, uint32_t i)
{
	const struct live_node *nodes = aggregate_nodes(m->from);
	uint32_t depth = 0, at;

	for (; m->nodes[i] == NONE; i = nodes[i].parent)
		m->path[depth++] = i;
	at = m->nodes[i];
	while (depth && at != NONE) {
		struct live_node moved = {.parent = at};

		i = m->path[--depth];
		moved.frame = move_frame(m, nodes[i].frame);
		at = moved.frame == NONE ? NONE : aggregate_put_node(m->to, &moved);
		m->nodes[i] = at;
	}
	return at;
}

/* Moves the set of labels I. It refers to a smaller set (`rest`), that to a smaller one, and so on:
 * the smallest that has not been moved is moved first. */
static uint32_t move_labels(struct moving *m, uint32_t i)
{
	const struct live_labels *sets = aggregate_labels(m->from);
	struct live_labels moved;
	uint32_t chain[AGGREGATE_LABELS_EACH_MAX], depth = 0, at;

	for (; m->labels[i] == NONE && depth < ARRAY_SIZE(chain); i = sets[i].rest)
		chain[depth++] = i;
	at = m->labels[i];
	while (depth && at != NONE) {
		i = chain[--depth];
		moved = (struct live_labels){at, move_string(m, sets[i].key),
					     move_string(m, sets[i].value)};
		at = moved.key == NONE || moved.value == NONE ? NONE
							      : aggregate_put_labels(m->to, &moved);
		m->labels[i] = at;
	}
	return at;
}

/* False: there is no room for its name. */
static bool move_kind(struct moving *m, uint32_t kind, uint32_t *ret)
{
	uint32_t name = kind >= PROFILE_PROBE ? move_string(m, kind - PROFILE_PROBE) : 0;

	*ret = kind >= PROFILE_PROBE ? PROFILE_PROBE + name : kind;
	return name != NONE;
}

static uint32_t move_group(struct moving *m, uint32_t i)
{
	const struct live_group *g = aggregate_groups(m->from) + i;
	struct live_group moved = *g;

	if (m->groups[i] != NONE)
		return m->groups[i];
	moved.process = move_string(m, g->process);
	moved.thread = move_string(m, g->thread);
	moved.container = move_string(m, g->container);
	moved.container_name = move_string(m, g->container_name);
	moved.pod = move_string(m, g->pod);
	moved.k8s_namespace = move_string(m, g->k8s_namespace);
	moved.labels = move_labels(m, g->labels);
	if (move_kind(m, g->kind, &moved.kind) && moved.process != NONE && moved.thread != NONE &&
	    moved.container != NONE && moved.container_name != NONE && moved.pod != NONE &&
	    moved.k8s_namespace != NONE && moved.labels != NONE)
		m->groups[i] = aggregate_put_group(m->to, &moved);
	return m->groups[i];
}

/* The group of G's owner: as G, but without pid, thread and labels. NONE: there is no room for one
 * more. */
static uint32_t owner_of(struct moving *m, const struct live_group *g)
{
	const uint32_t names[] = {g->process, g->container, g->container_name, g->pod,
				  g->k8s_namespace};
	const bool full = m->owners >= OWNERS_MAX ||
			  m->to->groups.n >= AGGREGATE_GROUPS_MAX - AGGREGATE_GROUPS_MAX / 8;
	struct live_group owner = {
	    .labels = g->labels ? AGGREGATE_LABELS_LEFT_OUT : AGGREGATE_NO_LABELS,
	    .period_ns = g->period_ns,
	};
	uint32_t n = m->to->groups.n, group;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (m->strings[names[i]] == NONE && (full || move_string(m, names[i]) == NONE))
			return NONE;
	if (!move_kind(m, g->kind, &owner.kind))
		return NONE;
	owner.process = m->strings[g->process];
	owner.container = m->strings[g->container];
	owner.container_name = m->strings[g->container_name];
	owner.pod = m->strings[g->pod];
	owner.k8s_namespace = m->strings[g->k8s_namespace];
	group = full ? aggregate_find_group(m->to, &owner) : aggregate_put_group(m->to, &owner);
	m->owners += m->to->groups.n - n;
	return group;
}

/* The row that takes the counts of the rows of GROUP that are not moved. */
static uint32_t other_row(struct moving *m, uint32_t group)
{
	const struct live_group *g = aggregate_groups(m->from) + group;
	uint32_t other = aggregate_put_row(m->to, owner_of(m, g), AGGREGATE_OTHER);
	struct live_group unowned = aggregate_groups(m->to)[0];

	if (other != NONE)
		return other;
	if (!move_kind(m, g->kind, &unowned.kind))
		return NONE;
	unowned.period_ns = g->period_ns;
	return aggregate_put_row(m->to, aggregate_put_group(m->to, &unowned), AGGREGATE_OTHER);
}

/* ---- windows --------------------------------------------------------------------------------- */

static void mark_used(struct moving *m, const struct live_window *w)
{
	struct cursor c = cursor_of(w->data, w->len);
	uint64_t row = 0;

	for (uint32_t i = 0; i < w->n_rows; i++) {
		row += cursor_uleb(&c);
		(void)cursor_uleb(&c);
		if (row < m->from->rows.n)
			m->used[row] = true;
	}
}

static int copy_traces(struct moving *m, const struct live_window *w, struct live_window *ret)
{
	ret->traces = NULL;
	ret->n_traces = 0;
	if (!w->n_traces)
		return 0;
	ret->traces = malloc(w->n_traces * sizeof(*ret->traces));
	if (!ret->traces)
		return -ENOMEM;
	ret->n_traces = w->n_traces;
	memcpy(ret->traces, w->traces, w->n_traces * sizeof(*ret->traces));
	for (uint32_t i = 0; i < ret->n_traces; i++)
		ret->traces[i].row = m->rows[ret->traces[i].row];
	m->to->held_traces += ret->n_traces;
	return 0;
}

/* The same counts with the new numbers of their rows. */
static int move_window(struct moving *m, const struct live_window *w)
{
	struct cursor c = cursor_of(w->data, w->len);
	struct live_window moved = *w;
	uint64_t row = 0;
	uint32_t last = 0;
	struct buf out;

	buf_init(&out, AGGREGATE_ROWS_MAX * 16UL);
	moved.n_rows = 0;
	for (uint32_t i = 0; i < w->n_rows; i++) {
		uint64_t value;

		row += cursor_uleb(&c);
		value = cursor_uleb(&c);
		if (row >= m->from->rows.n)
			break;
		wire_varint(&out, m->rows[row] - last);
		wire_varint(&out, value);
		last = m->rows[row];
		moved.n_rows++;
	}
	if (buf_error(&out) || copy_traces(m, w, &moved) < 0) {
		buf_done(&out);
		return -ENOMEM;
	}
	moved.len = out.len;
	moved.data = buf_take(&out);
	m->to->window_bytes += moved.len;
	m->to->windows[w->seq % AGGREGATE_HISTORY_WINDOWS] = moved;
	m->to->next_seq = w->seq + 1;
	return 0;
}

/* The rows of the history, in their order. */
static int move_rows(struct moving *m)
{
	const struct live_row *rows = aggregate_rows(m->from);

	for (uint32_t i = 0; i < m->from->rows.n; i++)
		if (m->used[i]) {
			uint32_t group = move_group(m, rows[i].group);

			m->rows[i] = aggregate_put_row(m->to, group, move_node(m, rows[i].node));
			if (m->rows[i] == NONE)
				return -ENOMEM;
			m->to->totals[m->rows[i]] += m->from->totals[i];
		}
	return 0;
}

/* The time of a group's rows that are not moved. */
struct going {
	uint64_t ns; /* hits for a probe */
	uint32_t group;
};

static int by_ns(const void *x, const void *y)
{
	const struct going *a = x, *b = y;

	if (a->ns != b->ns)
		return a->ns < b->ns ? 1 : -1;
	return (a->group > b->group) - (a->group < b->group);
}

/* The counts of rows that are not moved. Groups with the most time come first, while there is room
 * for owners. */
static int move_others(struct moving *m)
{
	const uint32_t n = m->from->groups.n;
	const struct live_group *groups = aggregate_groups(m->from);
	const struct live_row *rows = aggregate_rows(m->from);
	_cleanup_free_ struct going *going = calloc(n, sizeof(*going));
	_cleanup_free_ uint32_t *others = unknown(n); /* of each group, the row that takes it */

	if (!going || !others)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		going[i].group = i;
	for (uint32_t i = 0; i < m->from->rows.n; i++) {
		const struct live_group *g = &groups[rows[i].group];

		if (!m->used[i])
			going[rows[i].group].ns += (uint64_t)m->from->totals[i] *
						   (g->kind == PROFILE_CPU ? g->period_ns : 1);
	}
	qsort(going, n, sizeof(*going), by_ns);
	for (uint32_t i = 0; i < n && going[i].ns; i++) {
		others[going[i].group] = other_row(m, going[i].group);
		if (others[going[i].group] == NONE)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->from->rows.n; i++)
		if (!m->used[i] && others[rows[i].group] != NONE)
			m->to->totals[others[rows[i].group]] += m->from->totals[i];
	return 0;
}

/* Windows from FIRST on, and the totals. */
static int move_all(struct moving *m, uint64_t first)
{
	const struct aggregate *from = m->from;
	struct aggregate *to = m->to;
	int r;

	for (uint64_t seq = first; seq < from->next_seq; seq++)
		mark_used(m, aggregate_window(from, seq));
	r = move_rows(m);
	if (r == 0)
		r = move_others(m);
	to->first_seq = to->next_seq = first;
	for (uint64_t seq = first; r == 0 && seq < from->next_seq; seq++)
		r = move_window(m, aggregate_window(from, seq));
	to->since_ms = from->since_ms;
	to->overflow = from->overflow;
	to->born = from->born + 1;
	return r;
}

int aggregate_move(const struct aggregate *from, uint64_t first, struct aggregate **ret)
{
	struct moving m = {0};
	int r = moving_init(&m, from);

	if (r == 0)
		r = move_all(&m, first);
	if (r == 0)
		*ret = TAKE_PTR(m.to);
	moving_done(&m);
	return r;
}
