/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: four bytes of length (little endian), one byte of kind, then varints (LEB128) and
 * strings (length, bytes). Tables are sent as the number of new entries and the entries; a node's
 * parent as the distance to it, which is 1 mostly. Pure.
 */
#include "agent/live/encode.h"

#include "agent/profile/wire.h"

enum { FORMAT_VERSION = 2 };

static size_t begin(struct buf *out, enum live_message kind)
{
	size_t at = out->len;
	char *p = buf_extend(out, 5);

	if (p) {
		memset(p, 0, 4);
		p[4] = (char)kind;
	}
	return at;
}

static void end(struct buf *out, size_t at)
{
	uint32_t len = (uint32_t)(out->len - at - 4);

	if (buf_error(out))
		return;
	for (int i = 0; i < 4; i++)
		out->data[at + (size_t)i] = (char)(len >> (8 * i));
}

static void put_string(struct buf *out, const char *s, size_t len)
{
	wire_varint(out, len);
	buf_append(out, s, len);
}

static void put_strings(const struct aggregate *a, uint32_t from, struct buf *out)
{
	const struct live_string *s = aggregate_strings(a);

	wire_varint(out, a->strings.n - from);
	for (uint32_t i = from; i < a->strings.n; i++)
		put_string(out, a->text.data + s[i].at, s[i].len);
}

static void put_frames(const struct aggregate *a, uint32_t from, struct buf *out)
{
	const struct live_frame *f = aggregate_frames(a);

	wire_varint(out, a->frames.n - from);
	for (uint32_t i = from; i < a->frames.n; i++) {
		wire_varint(out, f[i].name);
		wire_varint(out, f[i].file);
		wire_varint(out, f[i].type);
	}
}

static void put_nodes(const struct aggregate *a, uint32_t from, struct buf *out)
{
	const struct live_node *n = aggregate_nodes(a);

	wire_varint(out, a->nodes.n - from);
	for (uint32_t i = from; i < a->nodes.n; i++) {
		wire_varint(out, i ? i - n[i].parent : 0);
		wire_varint(out, n[i].frame);
	}
}

static void put_labels(const struct aggregate *a, uint32_t from, struct buf *out)
{
	const struct live_labels *l = aggregate_labels(a);

	wire_varint(out, a->labels.n - from);
	for (uint32_t i = from; i < a->labels.n; i++) {
		/* The two sets that always exist have no `rest`: their distance is 0. */
		wire_varint(out, i > AGGREGATE_LABELS_LEFT_OUT ? i - l[i].rest : 0);
		wire_varint(out, l[i].key);
		wire_varint(out, l[i].value);
	}
}

static void put_groups(const struct aggregate *a, uint32_t from, struct buf *out)
{
	const struct live_group *g = aggregate_groups(a);

	wire_varint(out, a->groups.n - from);
	for (uint32_t i = from; i < a->groups.n; i++) {
		wire_varint(out, g[i].pid);
		wire_varint(out, g[i].process);
		wire_varint(out, g[i].thread);
		wire_varint(out, g[i].container);
		wire_varint(out, g[i].container_name);
		wire_varint(out, g[i].pod);
		wire_varint(out, g[i].k8s_namespace);
		wire_varint(out, g[i].kind);
		wire_varint(out, g[i].labels);
		wire_varint(out, g[i].period_ns);
	}
}

static void put_tables(const struct aggregate *a, struct live_cursor *c, struct buf *out)
{
	const struct live_row *r = aggregate_rows(a);

	put_strings(a, c->strings, out);
	put_frames(a, c->frames, out);
	put_nodes(a, c->nodes, out);
	put_labels(a, c->labels, out);
	put_groups(a, c->groups, out);
	wire_varint(out, a->rows.n - c->rows);
	for (uint32_t i = c->rows; i < a->rows.n; i++) {
		wire_varint(out, r[i].group);
		wire_varint(out, r[i].node);
	}
	*c = (struct live_cursor){a->strings.n, a->frames.n, a->nodes.n,
				  a->labels.n,	a->groups.n, a->rows.n};
}

void live_encode_hello(const struct aggregate *a, const char *host, uint64_t interval_ms,
		       struct buf *out)
{
	size_t at = begin(out, LIVE_HELLO);

	wire_varint(out, FORMAT_VERSION);
	wire_varint(out, a->since_ms);
	wire_varint(out, interval_ms);
	put_string(out, host, strlen(host));
	wire_varint(out, FRAME_TYPE_COUNT);
	for (int i = 0; i < FRAME_TYPE_COUNT; i++) {
		const char *name = frame_type_name((enum frame_type)i);

		put_string(out, name, strlen(name));
	}
	end(out, at);
}

void live_encode_totals(const struct aggregate *a, struct live_cursor *cursor, uint64_t skipped,
			struct buf *out)
{
	size_t at = begin(out, LIVE_TOTALS);
	uint32_t n = 0, last = 0;

	wire_varint(out, a->since_ms);
	wire_varint(out, skipped);
	put_tables(a, cursor, out);
	for (uint32_t i = 0; i < a->rows.n; i++)
		n += a->totals[i] > 0;
	wire_varint(out, n);
	for (uint32_t i = 0; i < a->rows.n; i++) {
		if (a->totals[i] <= 0)
			continue;
		wire_varint(out, i - last);
		wire_varint(out, (uint64_t)a->totals[i]);
		last = i;
	}
	end(out, at);
}

static void put_traces(const struct live_window *w, struct buf *out)
{
	wire_varint(out, w->n_traces);
	for (uint32_t i = 0; i < w->n_traces; i++) {
		const struct live_trace *t = &w->traces[i];

		wire_varint(out, t->row);
		wire_varint(out, (uint64_t)t->value);
		buf_append(out, t->id, sizeof(t->id));
	}
}

void live_encode_window(const struct aggregate *a, const struct live_window *w, bool past,
			struct live_cursor *cursor, struct buf *out)
{
	size_t at = begin(out, past ? LIVE_PAST : LIVE_WINDOW);

	wire_varint(out, w->seq);
	wire_varint(out, w->start_ms);
	wire_varint(out, w->duration_ms);
	put_tables(a, cursor, out);
	wire_varint(out, w->n_rows);
	buf_append(out, w->data, w->len);
	put_traces(w, out);
	end(out, at);
}
