/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are unique entries of a wire_table (whose framing is not used); their weights are in an
 * array, in ns if the kind has a period. They are written in units of the shortest period, so that
 * no sample is rounded to 0.
 */
#include "agent/profile/folded.h"

#include "agent/profile/wire.h"

enum { LINES_MAX = 1 << 30 };

struct folded {
	size_t max_bytes;
	enum profile_kind kind;
	struct wire_table lines;
	int64_t *weights;
	size_t weights_cap;
	uint64_t period_ns; /* the shortest; 0: none yet */
	struct buf line;    /* scratch */
};

int folded_new(size_t max_bytes, enum profile_kind kind, struct folded **ret)
{
	struct folded *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->max_bytes = max_bytes;
	f->kind = kind;
	wire_table_init(&f->lines, 1, false, LINES_MAX);
	buf_init(&f->line, LINES_MAX);
	*ret = f;
	return 0;
}

struct folded *folded_free(struct folded *f)
{
	if (!f)
		return NULL;
	wire_table_done(&f->lines);
	buf_done(&f->line);
	free(f->weights);
	free(f);
	return NULL;
}

void folded_reset(struct folded *f)
{
	wire_table_reset(&f->lines);
	f->period_ns = 0;
	if (f->weights)
		memset(f->weights, 0, f->weights_cap * sizeof(*f->weights));
}

/* NAME as one field: the separator becomes ':', control characters a space. */
static void put_name(struct buf *out, const char *name)
{
	size_t len = strlen(name);
	char *p = buf_extend(out, len);

	for (size_t i = 0; p && i < len; i++)
		p[i] = name[i] == ';' ? ':' : (unsigned char)name[i] < 0x20 ? ' ' : name[i];
}

static void put_stack(struct buf *out, const struct batch *b, const struct batch_sample *s)
{
	const struct batch_stack *stack = &b->stacks[s->stack];

	for (uint32_t i = stack->len; i-- > 0;) {
		const struct batch_location *l =
		    &b->locations[b->stack_locations[stack->first + i]];

		for (uint32_t j = l->n_lines; j-- > 0;) {
			buf_puts(out, ";");
			put_name(out, b->functions[b->lines[l->first_line + j].function].name);
		}
	}
}

/* Adds WEIGHT to the line in f->line; -ENOENT when the line is new and the table is sealed. */
static int weigh_line(struct folded *f, int64_t weight)
{
	size_t old = f->weights_cap;
	uint32_t index;
	int r;

	/* Room first, so that no line is without its weight. */
	r = grow_array((void **)&f->weights, &f->weights_cap, (size_t)f->lines.n + 1,
		       sizeof(*f->weights), LINES_MAX);
	if (r < 0)
		return r;
	memset(f->weights + old, 0, (f->weights_cap - old) * sizeof(*f->weights));
	index = wire_table_add_buf(&f->lines, &f->line);
	if (index == REF_TABLE_NONE)
		return f->lines.bytes.error ? f->lines.bytes.error : -ENOENT;
	if (__builtin_add_overflow(f->weights[index], weight, &f->weights[index]))
		f->weights[index] = INT64_MAX;
	return 0;
}

/* The line's beginning: a probe's name is the outermost frame. */
static void put_root(struct buf *out, const struct batch *b, const struct batch_profile *p,
		     const struct batch_sample *s)
{
	const char *process = b->processes[s->process].executable_name;

	buf_reset(out);
	if (p->probe[0]) {
		put_name(out, p->probe);
		buf_puts(out, ";");
	}
	put_name(out, process[0] ? process : "[unknown]");
}

static int add_sample(struct folded *f, const struct batch *b, const struct batch_profile *p,
		      const struct batch_sample *s, int64_t weight)
{
	int r;

	put_root(&f->line, b, p, s);
	put_stack(&f->line, b, s);
	f->lines.sealed = f->lines.bytes.len + f->lines.n * (size_t)40 >= f->max_bytes;
	r = weigh_line(f, weight);
	if (r != -ENOENT)
		return r;
	put_root(&f->line, b, p, s);
	buf_puts(&f->line, ";[profile full]");
	f->lines.sealed = false;
	return weigh_line(f, weight);
}

static int64_t weight_of(const struct batch_profile *p, const struct batch_sample *s)
{
	int64_t ns;

	if (!p->period_ns)
		return s->value;
	return __builtin_mul_overflow(s->value, (int64_t)p->period_ns, &ns) ? INT64_MAX : ns;
}

int folded_add(struct folded *f, const struct batch *b)
{
	int r = 0;

	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];

		if (f->kind == FOLDED_WALL ? p->kind > PROFILE_OFF_CPU : p->kind != f->kind)
			continue;
		if (f->kind != FOLDED_WALL && p->period_ns &&
		    (!f->period_ns || p->period_ns < f->period_ns))
			f->period_ns = p->period_ns;
		for (uint32_t j = 0; j < p->n_samples && !r; j++) {
			const struct batch_sample *s = &b->samples[p->first_sample + j];

			r = add_sample(f, b, p, s, weight_of(p, s));
		}
	}
	if (r < 0)
		wire_table_repair(&f->lines);
	return r;
}

static int compare_lines(const void *a, const void *b, void *arg)
{
	const struct wire_table *t = arg;
	size_t na, nb;
	const char *la = wire_table_get(t, *(const uint32_t *)a, &na),
		   *lb = wire_table_get(t, *(const uint32_t *)b, &nb);
	int c = memcmp(la, lb, MIN(na, nb));

	return c ? c : na < nb ? -1 : na > nb;
}

int folded_write(const struct folded *f, struct buf *out)
{
	_cleanup_free_ uint32_t *order = malloc(((size_t)f->lines.n + 1) * sizeof(*order));
	long long unit = f->period_ns ? (long long)f->period_ns : 1;
	size_t len;

	if (!order)
		return -ENOMEM;
	for (uint32_t i = 0; i < f->lines.n; i++)
		order[i] = i;
	qsort_r(order, f->lines.n, sizeof(*order), compare_lines, (void *)&f->lines);
	for (uint32_t i = 0; i < f->lines.n; i++) {
		const char *line = wire_table_get(&f->lines, order[i], &len);

		buf_append(out, line, len);
		buf_printf(out, " %lld\n", (f->weights[order[i]] + unit / 2) / unit);
	}
	return out->error;
}
