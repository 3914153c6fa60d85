/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows are summed over the windows that were asked for, or taken from the totals, and added to a
 * batch builder sample by sample. Addresses and threads' numbers are not in the aggregate.
 */
#include "agent/live/profile.h"

enum { DEPTH_MAX = 4096, CONTAINER_PREFIX_MIN = 12 };

static const char *text_of(const struct aggregate *a, uint32_t string, char *out, size_t size)
{
	const struct live_string *s = aggregate_strings(a) + string;

	snprintf(out, size, "%.*s", (int)s->len, a->text.data ? a->text.data + s->at : "");
	return out;
}

static bool is(const struct aggregate *a, uint32_t string, const char *want)
{
	const struct live_string *s = aggregate_strings(a) + string;

	return !want || (s->len == strlen(want) && same_bytes(a->text.data + s->at, want, s->len));
}

/* WANT: KEY=VALUE; a key may have a '=' in it. */
static bool has_label(const struct aggregate *a, uint32_t labels, const char *want)
{
	const struct live_labels *sets = aggregate_labels(a);

	for (uint32_t i = labels; i > AGGREGATE_LABELS_LEFT_OUT; i = sets[i].rest) {
		const struct live_string *key = aggregate_strings(a) + sets[i].key;

		if (strlen(want) > key->len && want[key->len] == '=' &&
		    same_bytes(a->text.data + key->at, want, key->len) &&
		    is(a, sets[i].value, want + key->len + 1))
			return true;
	}
	return false;
}

static bool container_is(const struct aggregate *a, const struct live_group *g, const char *want)
{
	const struct live_string *s = aggregate_strings(a) + g->container;
	size_t n = want ? strlen(want) : 0;

	if (is(a, g->container, want) || (n && is(a, g->container_name, want)))
		return true;
	return n >= CONTAINER_PREFIX_MIN && n < s->len && same_bytes(a->text.data + s->at, want, n);
}

static bool matches(const struct aggregate *a, const struct live_group *g,
		    const struct live_filter *f)
{
	return (!f->pid || g->pid == f->pid) && is(a, g->process, f->process) &&
	       is(a, g->thread, f->thread) && container_is(a, g, f->container) &&
	       is(a, g->pod, f->pod) && is(a, g->k8s_namespace, f->k8s_namespace) &&
	       (!f->label || has_label(a, g->labels, f->label)) &&
	       (g->kind < PROFILE_PROBE || is(a, g->kind - PROFILE_PROBE, f->probe));
}

static uint64_t varint(const unsigned char **p, const unsigned char *end)
{
	uint64_t v = 0;

	for (unsigned int shift = 0; *p < end && shift < 64; shift += 7) {
		unsigned char byte = *(*p)++;

		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			break;
	}
	return v;
}

static void sum_trace(const struct live_window *w, const struct live_trace_prefix *trace,
		      int64_t *values)
{
	for (uint32_t i = 0; i < w->n_traces; i++)
		if (live_trace_has(&w->traces[i], trace))
			values[w->traces[i].row] += w->traces[i].value;
}

static void sum_window(const struct live_window *w, int64_t *values, uint32_t n)
{
	const unsigned char *p = (const unsigned char *)w->data, *end = p + w->len;
	uint64_t row = 0;

	for (uint32_t i = 0; i < w->n_rows; i++) {
		row += varint(&p, end);
		if (row < n)
			values[row] += (int64_t)varint(&p, end);
	}
}

/* Sums the totals, or the windows that FILTER selects, into VALUES. Returns the time they span. */
static void sum(const struct aggregate *a, const struct live_filter *filter, int64_t *values,
		uint64_t *ret_start_ms, uint64_t *ret_duration_ms)
{
	const struct live_window *last = aggregate_window(a, a->next_seq - 1);
	uint64_t end = last ? last->start_ms + last->duration_ms : 0, start = end;

	if (!filter->window_ms && !filter->trace && last) {
		memcpy(values, a->totals, a->rows.n * sizeof(*values));
		start = a->since_ms;
	}
	for (uint64_t seq = a->next_seq;
	     (filter->window_ms || filter->trace) && seq-- > a->first_seq;) {
		const struct live_window *w = aggregate_window(a, seq);

		if (filter->window_ms && w->start_ms + w->duration_ms / 2 + filter->window_ms < end)
			break;
		if (filter->trace)
			sum_trace(w, filter->trace, values);
		else
			sum_window(w, values, a->rows.n);
		start = w->start_ms;
	}
	*ret_start_ms = start;
	*ret_duration_ms = end > start ? end - start : 0;
}

struct maker {
	const struct aggregate *a;
	struct batch_builder *builder;
	char text[AGGREGATE_STRING_MAX + 1];
	uint32_t *locations; /* of frames, UINT32_MAX: not made yet */
	uint32_t stack[DEPTH_MAX];
};

static uint32_t location_of(struct maker *m, uint32_t frame)
{
	const struct live_frame *f = aggregate_frames(m->a) + frame;
	struct batch_mapping mapping = {0};
	struct batch_line line = {0};
	char file[AGGREGATE_STRING_MAX + 1];

	if (m->locations[frame] != UINT32_MAX)
		return m->locations[frame];
	text_of(m->a, f->name, m->text, sizeof(m->text));
	text_of(m->a, f->file, file, sizeof(file));
	line.function = batch_add_function(m->builder, m->text[0] ? m->text : "[unknown]",
					   m->text[0] ? m->text : "[unknown]", "", 0);
	mapping.filename = batch_string(m->builder, file);
	mapping.build_id_gnu = mapping.build_id_go = mapping.htlhash = "";
	mapping.limit = 1UL << 32;
	mapping.has_functions = true;
	/* Locations are told apart by their address; there is none here but the frame's number. */
	m->locations[frame] = batch_add_location(
	    m->builder, file[0] ? batch_add_mapping(m->builder, &mapping) : BATCH_NO_MAPPING,
	    frame + 1UL, (enum frame_type)f->type, &line, 1);
	return m->locations[frame];
}

static uint32_t resource_of(struct maker *m, const struct live_group *g)
{
	static const char *const keys[] = {"container.id", "k8s.container.name", "k8s.pod.name",
					   "k8s.namespace.name"};
	const uint32_t strings[] = {g->container, g->container_name, g->pod, g->k8s_namespace};
	char texts[ARRAY_SIZE(keys) + 1][AGGREGATE_STRING_MAX + 1];
	struct attr attrs[ARRAY_SIZE(keys) + 1];
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (text_of(m->a, strings[i], texts[n], sizeof(texts[n]))[0]) {
			attrs[n] = (struct attr){.key = keys[i], .str = texts[n]};
			n++;
		}
	text_of(m->a, g->container, m->text, sizeof(m->text));
	if (!m->text[0]) {
		text_of(m->a, g->process, texts[n], sizeof(texts[n]));
		attrs[n] = (struct attr){.key = "process.executable.name", .str = texts[n]};
		n++;
	}
	return batch_add_resource(m->builder, attrs, n, m->text);
}

static uint32_t labels_of(struct maker *m, const struct live_group *g)
{
	const struct live_labels *sets = aggregate_labels(m->a);
	struct batch_label labels[AGGREGATE_LABELS_EACH_MAX];
	size_t n = 0;

	for (uint32_t i = g->labels; i > AGGREGATE_LABELS_LEFT_OUT && n < ARRAY_SIZE(labels);
	     i = sets[i].rest, n++) {
		text_of(m->a, sets[i].key, m->text, sizeof(m->text));
		labels[n].key = batch_string(m->builder, m->text);
		text_of(m->a, sets[i].value, m->text, sizeof(m->text));
		labels[n].value = batch_string(m->builder, m->text);
	}
	return n ? batch_add_labels(m->builder, labels, n) : BATCH_NO_LABELS;
}

static void add_row(struct maker *m, const struct live_row *row, int64_t value)
{
	const struct live_group *g = aggregate_groups(m->a) + row->group;
	const struct live_node *nodes = aggregate_nodes(m->a);
	struct batch_sample sample = {.value = value, .tid = g->pid};
	uint32_t depth = 0, resource;
	char thread[AGGREGATE_STRING_MAX + 1];

	for (uint32_t node = row->node; node && depth < DEPTH_MAX; node = nodes[node].parent)
		m->stack[depth++] = location_of(m, nodes[node].frame);
	resource = resource_of(m, g);
	sample.labels = labels_of(m, g);
	sample.stack = batch_add_stack(m->builder, m->stack, depth);
	text_of(m->a, g->process, m->text, sizeof(m->text));
	sample.process = batch_add_process(m->builder, g->pid, m->text, "");
	sample.thread_name =
	    batch_string(m->builder, text_of(m->a, g->thread, thread, sizeof(thread)));
	if (g->kind < PROFILE_PROBE)
		batch_add_sample(m->builder, resource, (enum profile_kind)g->kind, g->period_ns,
				 &sample);
	else
		batch_add_probe_sample(
		    m->builder, resource,
		    text_of(m->a, g->kind - PROFILE_PROBE, thread, sizeof(thread)), &sample);
}

int live_profile(const struct aggregate *a, const struct live_filter *filter, struct batch **ret)
{
	_cleanup_free_ int64_t *values = calloc(a->rows.n, sizeof(*values));
	_cleanup_free_ uint32_t *locations = calloc(a->frames.n, sizeof(*locations));
	_cleanup_free_ struct maker *m = calloc(1, sizeof(*m));
	uint64_t start_ms, duration_ms;
	int r;

	if (!values || !locations || !m)
		return -ENOMEM;
	memset(locations, 0xff, a->frames.n * sizeof(*locations));
	sum(a, filter, values, &start_ms, &duration_ms);
	m->a = a;
	m->locations = locations;
	r = batch_builder_new(start_ms * 1000000, &m->builder);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < a->rows.n; i++) {
		const struct live_row *row = aggregate_rows(a) + i;

		if (values[i] > 0 && matches(a, aggregate_groups(a) + row->group, filter))
			add_row(m, row, values[i]);
	}
	return batch_builder_finish(m->builder, duration_ms * 1000000, ret);
}
