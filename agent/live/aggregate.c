/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interns a batch into the tables, and keeps the ring of windows.
 *
 * The nodes of a batch's stacks are looked up once per stack, not once per sample. An entry that
 * finds no room is NONE, and so is everything that would refer to it: string, frame, node. The
 * sample is then counted under "[other]" of its group or, when the group has no room either, in row
 * 0. Entries 0 of all tables and node 1 are made at the start, so they always exist.
 */
#include "agent/live/aggregate_internal.h"

#include "agent/profile/strings.h"
#include "agent/profile/wire.h"
#include "lib/metrics.h"

#define NONE REF_TABLE_NONE

/* ---- tables ---------------------------------------------------------------------------------- */

#define DEFINE_EQUAL(name)                                                                         \
	static bool name##_equal(const void *items, uint32_t i, const void *key)                   \
	{                                                                                          \
		return same_bytes((const struct name *)items + i, key, sizeof(struct name));       \
	}
DEFINE_EQUAL(live_frame)
DEFINE_EQUAL(live_node)
DEFINE_EQUAL(live_labels)
DEFINE_EQUAL(live_group)
DEFINE_EQUAL(live_row)

/* The index of the entry KEY (SIZE bytes), added when new; NONE when there is no room. */
static uint32_t table_add(struct live_table *t, uint32_t max, const void *key, size_t size,
			  ref_table_equal equal)
{
	uint64_t hash = hash_bytes(key, size, 0);
	uint32_t i = ref_table_index(&t->index, hash, equal, t->items, key);

	if (i != NONE)
		return i;
	if (t->n >= max || ref_table_reserve(&t->index, 1) < 0 ||
	    grow_array(&t->items, &t->cap, t->n + 1UL, size, max) < 0)
		return NONE;
	memcpy((char *)t->items + t->n * size, key, size);
	ref_table_insert(&t->index, hash, t->n + 1);
	return t->n++;
}

static void table_done(struct live_table *t)
{
	free(t->items);
	ref_table_done(&t->index);
	*t = (struct live_table){0};
}

struct text_key {
	const char *s;
	size_t len;
};

static bool string_equal(const void *owner, uint32_t i, const void *key)
{
	const struct aggregate *a = owner;
	const struct text_key *k = key;
	const struct live_string *s = aggregate_strings(a) + i;

	return s->len == k->len && same_bytes(a->text.data + s->at, k->s, k->len);
}

/* At most AGGREGATE_STRING_MAX bytes, not cut inside a character. */
static size_t cut(const char *s)
{
	size_t n = strnlen(s, AGGREGATE_STRING_MAX + 1);

	if (n <= AGGREGATE_STRING_MAX)
		return n;
	for (n = AGGREGATE_STRING_MAX; n && ((unsigned char)s[n] & 0xc0) == 0x80;)
		n--;
	return n;
}

uint32_t aggregate_put_text(struct aggregate *a, const char *s, size_t len)
{
	const struct text_key key = {s, len};
	uint64_t hash = hash_bytes(key.s, key.len, 0);
	struct live_table *t = &a->strings;
	uint32_t i = ref_table_index(&t->index, hash, string_equal, a, &key);
	struct live_string entry = {(uint32_t)a->text.len, (uint32_t)key.len};

	if (i != NONE)
		return i;
	if (t->n >= AGGREGATE_STRINGS_MAX || a->text.len + key.len > AGGREGATE_TEXT_MAX ||
	    ref_table_reserve(&t->index, 1) < 0 ||
	    grow_array(&t->items, &t->cap, t->n + 1UL, sizeof(entry), AGGREGATE_STRINGS_MAX) < 0)
		return NONE;
	buf_append(&a->text, key.s, key.len);
	if (buf_error(&a->text)) {
		a->text.error = 0;
		return NONE;
	}
	((struct live_string *)t->items)[t->n] = entry;
	ref_table_insert(&t->index, hash, t->n + 1);
	return t->n++;
}

uint32_t aggregate_put_string(struct aggregate *a, const char *s)
{
	return aggregate_put_text(a, s ? s : "", cut(s ? s : ""));
}

uint32_t aggregate_put_frame(struct aggregate *a, const struct live_frame *frame)
{
	return table_add(&a->frames, AGGREGATE_FRAMES_MAX, frame, sizeof(*frame), live_frame_equal);
}

uint32_t aggregate_put_node(struct aggregate *a, const struct live_node *node)
{
	return table_add(&a->nodes, AGGREGATE_NODES_MAX, node, sizeof(*node), live_node_equal);
}

uint32_t aggregate_put_labels(struct aggregate *a, const struct live_labels *labels)
{
	return table_add(&a->labels, AGGREGATE_LABELS_MAX, labels, sizeof(*labels),
			 live_labels_equal);
}

uint32_t aggregate_put_group(struct aggregate *a, const struct live_group *group)
{
	return table_add(&a->groups, AGGREGATE_GROUPS_MAX, group, sizeof(*group), live_group_equal);
}

uint32_t aggregate_find_group(struct aggregate *a, const struct live_group *group)
{
	return table_add(&a->groups, 0, group, sizeof(*group), live_group_equal);
}

static uint32_t add_frame(struct aggregate *a, const char *name, const char *file,
			  enum frame_type type)
{
	struct live_frame f = {aggregate_put_string(a, name), aggregate_put_string(a, file), type};

	if (f.name == NONE || f.file == NONE)
		return NONE;
	return aggregate_put_frame(a, &f);
}

static uint32_t add_node(struct aggregate *a, uint32_t parent, uint32_t frame)
{
	struct live_node n = {parent, frame};

	if (frame == NONE)
		return NONE;
	return aggregate_put_node(a, &n);
}

uint32_t aggregate_put_row(struct aggregate *a, uint32_t group, uint32_t node)
{
	struct live_row r = {group, node};
	uint32_t i;
	size_t old;

	if (group == NONE || node == NONE)
		return NONE;
	old = a->totals_cap;
	if (grow_array((void **)&a->totals, &a->totals_cap, a->rows.n + 1UL, sizeof(int64_t),
		       AGGREGATE_ROWS_MAX + 1) < 0)
		return NONE;
	memset(a->totals + old, 0, (a->totals_cap - old) * sizeof(int64_t));
	old = a->deltas_cap;
	if (grow_array((void **)&a->deltas, &a->deltas_cap, a->rows.n + 1UL, sizeof(int64_t),
		       AGGREGATE_ROWS_MAX + 1) < 0)
		return NONE;
	memset(a->deltas + old, 0, (a->deltas_cap - old) * sizeof(int64_t));
	i = table_add(&a->rows, AGGREGATE_ROWS_MAX, &r, sizeof(r), live_row_equal);
	return i;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static const char *attribute(const struct batch_resource *r, const char *key)
{
	for (size_t i = 0; i < r->n_attrs; i++)
		if (r->attrs[i].type == ATTR_STR && streq(r->attrs[i].key, key))
			return r->attrs[i].str;
	return "";
}

static uint32_t add_group(struct aggregate *a, const struct batch *b, const struct batch_profile *p,
			  const struct batch_sample *s, uint32_t labels)
{
	const struct batch_resource *r = &b->resources[p->resource];
	const struct batch_process *process = &b->processes[s->process];
	uint32_t probe = p->kind == PROFILE_PROBE ? aggregate_put_string(a, p->probe) : 0,
		 kind = (uint32_t)p->kind + (probe == NONE ? 0 : probe);
	struct live_group g = {
	    .pid = process->pid,
	    .process = aggregate_put_string(a, process->executable_name),
	    .thread = aggregate_put_string(a, s->thread_name),
	    .container = aggregate_put_string(a, r->container_id),
	    .container_name = aggregate_put_string(a, attribute(r, "k8s.container.name")),
	    .pod = aggregate_put_string(a, attribute(r, "k8s.pod.name")),
	    .k8s_namespace = aggregate_put_string(a, attribute(r, "k8s.namespace.name")),
	    .kind = kind,
	    .labels = labels,
	    .period_ns = p->period_ns,
	};

	if (probe == NONE || g.process == NONE || g.thread == NONE || g.container == NONE ||
	    g.container_name == NONE || g.pod == NONE || g.k8s_namespace == NONE)
		return NONE;
	return aggregate_put_group(a, &g);
}

static const char *file_of(const struct batch *b, const struct batch_location *l,
			   const struct batch_function *f)
{
	if (l->mapping != BATCH_NO_MAPPING && b->mappings[l->mapping].filename[0])
		return b->mappings[l->mapping].filename;
	return f->file;
}

static uint32_t add_stack(struct aggregate *a, const struct batch *b,
			  const struct batch_stack *stack)
{
	uint32_t node = 0;

	for (uint32_t i = stack->len; i-- > 0 && node != NONE;) {
		const struct batch_location *l =
		    &b->locations[b->stack_locations[stack->first + i]];

		for (uint32_t j = l->n_lines; j-- > 0 && node != NONE;) {
			const struct batch_function *f =
			    &b->functions[b->lines[l->first_line + j].function];

			node = add_node(a, node, add_frame(a, f->name, file_of(b, l, f), l->type));
		}
	}
	return node;
}

static int touch(struct aggregate *a, uint32_t row, int64_t value)
{
	if (!a->deltas[row]) {
		int r = grow_array((void **)&a->touched, &a->touched_cap, a->n_touched + 1UL,
				   sizeof(uint32_t), AGGREGATE_ROWS_MAX + 1);

		if (r < 0)
			return r;
		a->touched[a->n_touched++] = row;
	}
	a->deltas[row] += value;
	return 0;
}

static int add_sample(struct aggregate *a, const struct batch *b, const struct batch_profile *p,
		      const struct batch_sample *s)
{
	uint32_t *node = &a->path[s->stack], *labels = &a->sets[s->labels];
	uint32_t group, row;

	if (s->value <= 0)
		return 0;
	if (*node == NONE)
		*node = add_stack(a, b, &b->stacks[s->stack]);
	if (*labels == NONE)
		*labels = aggregate_labels_of(a, b, s->labels);
	if (*labels == AGGREGATE_LABELS_LEFT_OUT)
		metric_add(M_LIVE_LABELS_LEFT_OUT, 1);
	group = add_group(a, b, p, s, *labels);
	row = aggregate_put_row(a, group, *node);
	if (row == NONE) {
		row = aggregate_put_row(a, group, AGGREGATE_OTHER);
		if (row == NONE)
			row = 0;
		if (p->kind == PROFILE_CPU) {
			a->overflow += s->value;
			metric_add(M_LIVE_OVERFLOW, s->value);
		}
	}
	aggregate_add_trace(a, &b->label_sets[s->labels], row, s->value);
	return touch(a, row, s->value);
}

static int by_number(const void *x, const void *y)
{
	const uint32_t *a = x, *b = y;

	return (*a > *b) - (*a < *b);
}

static void drop_oldest(struct aggregate *a)
{
	struct live_window *w = &a->windows[a->first_seq % AGGREGATE_HISTORY_WINDOWS];

	a->window_bytes -= w->len;
	free(w->data);
	aggregate_drop_traces(a, w);
	*w = (struct live_window){0};
	a->first_seq++;
}

static void keep_window(struct aggregate *a, struct live_window *w)
{
	w->seq = a->next_seq;
	a->window_bytes += w->len;
	while (a->first_seq < a->next_seq &&
	       (a->next_seq - a->first_seq >= AGGREGATE_HISTORY_WINDOWS ||
		a->window_bytes > AGGREGATE_HISTORY_BYTES ||
		aggregate_window(a, a->first_seq)->start_ms + AGGREGATE_HISTORY_MS < w->start_ms))
		drop_oldest(a);
	a->windows[a->next_seq++ % AGGREGATE_HISTORY_WINDOWS] = *w;
}

/* Moves the deltas into the totals and into a window. */
static int close_window(struct aggregate *a, const struct batch *b)
{
	struct live_window w = {
	    .start_ms = b->start_unix_ns / 1000000,
	    .duration_ms = b->duration_ns / 1000000,
	    .n_rows = a->n_touched,
	};
	struct buf out;
	uint32_t last = 0;

	buf_init(&out, AGGREGATE_ROWS_MAX * 16UL);
	if (a->n_touched)
		qsort(a->touched, a->n_touched, sizeof(uint32_t), by_number);
	for (uint32_t i = 0; i < a->n_touched; i++) {
		uint32_t row = a->touched[i];

		wire_varint(&out, row - last);
		wire_varint(&out, (uint64_t)a->deltas[row]);
		a->totals[row] += a->deltas[row];
		a->deltas[row] = 0;
		last = row;
	}
	a->n_touched = 0;
	if (!a->since_ms)
		a->since_ms = w.start_ms;
	if (buf_error(&out)) {
		buf_done(&out);
		a->n_traces = 0;
		return -ENOMEM;
	}
	w.len = out.len;
	w.data = buf_take(&out);
	aggregate_take_traces(a, &w);
	keep_window(a, &w);
	return 0;
}

int aggregate_add(struct aggregate *a, const struct batch *b)
{
	int r = 0, closed;

	aggregate_age(a, b->start_unix_ns / 1000000);
	r = grow_array((void **)&a->path, &a->path_cap, b->n_stacks, sizeof(uint32_t), UINT32_MAX);
	if (r == 0)
		r = grow_array((void **)&a->sets, &a->sets_cap, b->n_label_sets, sizeof(uint32_t),
			       UINT32_MAX);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < b->n_stacks; i++)
		a->path[i] = NONE;
	for (uint32_t i = 0; i < b->n_label_sets; i++)
		a->sets[i] = NONE;
	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];

		for (uint32_t j = 0; j < p->n_samples && r == 0; j++)
			r = add_sample(a, b, p, &b->samples[p->first_sample + j]);
	}
	closed = close_window(a, b);
	return r < 0 ? r : closed;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The entries that always exist. */
static int make_first(struct aggregate *a)
{
	const struct live_labels none = {0}, left_out = {.rest = NONE};
	struct live_group g = {0};

	if (aggregate_put_string(a, "") != 0 || add_frame(a, "[other]", "", FRAME_ABORT) != 0 ||
	    add_node(a, NONE - 1, 0) != 0 || add_node(a, 0, 0) != AGGREGATE_OTHER)
		return -ENOMEM;
	if (aggregate_put_labels(a, &none) != AGGREGATE_NO_LABELS ||
	    aggregate_put_labels(a, &left_out) != AGGREGATE_LABELS_LEFT_OUT)
		return -ENOMEM;
	g.process = aggregate_frames(a)[0].name;
	if (aggregate_put_group(a, &g) != 0 || aggregate_put_row(a, 0, AGGREGATE_OTHER) != 0)
		return -ENOMEM;
	return 0;
}

static void clear(struct aggregate *a)
{
	while (a->first_seq < a->next_seq)
		drop_oldest(a);
	buf_done(&a->text);
	table_done(&a->strings);
	table_done(&a->frames);
	table_done(&a->nodes);
	table_done(&a->labels);
	table_done(&a->groups);
	table_done(&a->rows);
	free(a->totals);
	free(a->deltas);
	free(a->touched);
	free(a->path);
	free(a->sets);
	free(a->traces);
}

int aggregate_new(struct aggregate **ret)
{
	_cleanup_(aggregate_freep) struct aggregate *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	a->first_seq = a->next_seq = 1;
	buf_init(&a->text, AGGREGATE_TEXT_MAX);
	r = make_first(a);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(a);
	return 0;
}

struct aggregate *aggregate_free(struct aggregate *a)
{
	if (!a)
		return NULL;
	clear(a);
	free(a);
	return NULL;
}

const struct live_window *aggregate_window(const struct aggregate *a, uint64_t seq)
{
	if (seq < a->first_seq || seq >= a->next_seq)
		return NULL;
	return &a->windows[seq % AGGREGATE_HISTORY_WINDOWS];
}
