/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels and traces of samples. Labels are part of the group, so each distinct set makes groups and
 * rows of its own. Once a table is three quarters full no new sets are added: samples with one are
 * counted without labels. Nearly every trace id is distinct, so traces are not in the tables: each
 * window has a list of its own, with the rows that they were sampled in.
 */
#include "agent/live/aggregate_internal.h"

#include "lib/metrics.h"

#define NONE REF_TABLE_NONE

/* Keys of agent/labels/decode.c. A set of labels has both, before all others, or neither. */
static const char trace_key[] = "trace_id", span_key[] = "span_id";

static bool mostly(size_t n, size_t max)
{
	return n >= max - max / 4;
}

static bool is_crowded(const struct aggregate *a)
{
	return mostly(a->strings.n, AGGREGATE_STRINGS_MAX) ||
	       mostly(a->text.len, AGGREGATE_TEXT_MAX) ||
	       mostly(a->labels.n, AGGREGATE_LABELS_MAX) ||
	       mostly(a->groups.n, AGGREGATE_GROUPS_MAX) || mostly(a->rows.n, AGGREGATE_ROWS_MAX);
}

/* The number of the set that has the label L and those of the set REST; NONE: no room. */
static uint32_t put_label(struct aggregate *a, const struct batch_label *l, uint32_t rest)
{
	struct live_labels set = {.rest = rest};

	if (is_crowded(a))
		return NONE;
	set.key = aggregate_put_string(a, l->key);
	set.value = aggregate_put_string(a, l->value);
	if (set.key == NONE || set.value == NONE)
		return NONE;
	return aggregate_put_labels(a, &set);
}

uint32_t aggregate_labels_of(struct aggregate *a, const struct batch *b, uint32_t i)
{
	const struct batch_label_set *set = &b->label_sets[i];
	uint32_t at = AGGREGATE_NO_LABELS;

	for (size_t j = MIN(set->n, (size_t)AGGREGATE_LABELS_EACH_MAX); j-- > 0 && at != NONE;) {
		const struct batch_label *l = &set->labels[j];

		if (!streq(l->key, trace_key) && !streq(l->key, span_key))
			at = put_label(a, l, at);
	}
	if (at != NONE)
		return at;
	a->labels_left_out = true;
	return AGGREGATE_LABELS_LEFT_OUT;
}

/* ---- traces ---------------------------------------------------------------------------------- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int live_trace_parse(const char *hex, struct live_trace_prefix *ret)
{
	size_t n = strlen(hex);

	*ret = (struct live_trace_prefix){.digits = (unsigned int)n};
	if (!n || n > 2 * sizeof(ret->id))
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		int d = digit(hex[i]);

		if (d < 0)
			return -EINVAL;
		ret->id[i / 2] |= (uint8_t)(i % 2 ? d : d << 4);
	}
	return 0;
}

bool live_trace_has(const struct live_trace *trace, const struct live_trace_prefix *prefix)
{
	size_t whole = prefix->digits / 2;

	return same_bytes(trace->id, prefix->id, whole) &&
	       (prefix->digits % 2 == 0 || trace->id[whole] >> 4 == prefix->id[whole] >> 4);
}

void aggregate_add_trace(struct aggregate *a, const struct batch_label_set *set, uint32_t row,
			 int64_t value)
{
	struct live_trace_prefix id;
	struct live_trace *trace;

	if (!set->n || !streq(set->labels[0].key, trace_key) ||
	    live_trace_parse(set->labels[0].value, &id) < 0 || id.digits != 2 * sizeof(id.id))
		return;
	if (a->n_traces >= AGGREGATE_WINDOW_TRACES_MAX ||
	    grow_array((void **)&a->traces, &a->traces_cap, a->n_traces + 1UL, sizeof(*trace),
		       AGGREGATE_WINDOW_TRACES_MAX) < 0) {
		metric_add(M_LIVE_TRACES_LEFT_OUT, 1);
		return;
	}
	trace = &a->traces[a->n_traces++];
	*trace = (struct live_trace){.value = value, .row = row};
	memcpy(trace->id, id.id, sizeof(trace->id));
}

void aggregate_drop_traces(struct aggregate *a, struct live_window *w)
{
	a->held_traces -= w->n_traces;
	free(w->traces);
	w->traces = NULL;
	w->n_traces = 0;
}

void aggregate_take_traces(struct aggregate *a, struct live_window *w)
{
	uint32_t n = a->n_traces;

	a->n_traces = 0;
	for (uint64_t seq = a->first_seq;
	     seq < a->next_seq && a->held_traces + n > AGGREGATE_TRACES_MAX; seq++)
		aggregate_drop_traces(a, &a->windows[seq % AGGREGATE_HISTORY_WINDOWS]);
	w->traces = n ? malloc(n * sizeof(*w->traces)) : NULL;
	if (!w->traces) {
		metric_add(M_LIVE_TRACES_LEFT_OUT, n);
		return;
	}
	memcpy(w->traces, a->traces, n * sizeof(*w->traces));
	w->n_traces = n;
	a->held_traces += n;
}
