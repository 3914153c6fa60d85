/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The top-functions table. A row is (process name, function, frame type): processes of one
 * executable count together. SELF counts samples with the function at the leaf, TOTAL samples with
 * it anywhere, once a sample however often it recurs. Inlined functions are functions.
 */
#include "agent/export/render.h"

#include "lib/ref_table.h"
#include "agent/profile/strings.h"

enum {
	ROWS_DEFAULT = 20,
	WIDTH_DEFAULT = 80,
	WIDTH_MIN = 60,
	PROCESS_WIDTH = 15,
	ROWS_MAX = 1 << 22
};

struct row {
	const char *process, *function; /* of the batch, where equal strings are one pointer */
	enum frame_type type;
	int64_t self, total;
	uint32_t last; /* sample that counted last, + 1 */
};

struct rows {
	struct row *items;
	size_t cap;
	uint32_t n;
	struct ref_table index;
};

static bool equal(const void *owner, uint32_t index, const void *key)
{
	const struct row *a = &((const struct rows *)owner)->items[index], *b = key;

	return a->process == b->process && a->function == b->function && a->type == b->type;
}

static struct row *find_row(struct rows *rows, const char *process, const char *function,
			    enum frame_type type)
{
	struct row key = {.process = process, .function = function, .type = type};
	uint64_t h = mix64((uintptr_t)process) ^ mix64((uintptr_t)function + type);
	uint32_t index = ref_table_index(&rows->index, h, equal, rows, &key);

	if (index != REF_TABLE_NONE)
		return &rows->items[index];
	if (grow_array((void **)&rows->items, &rows->cap, (size_t)rows->n + 1, sizeof(*rows->items),
		       ROWS_MAX) < 0 ||
	    ref_table_reserve(&rows->index, 1) < 0)
		return NULL;
	rows->items[rows->n] = key;
	ref_table_insert(&rows->index, h, rows->n + 1);
	return &rows->items[rows->n++];
}

static int count_sample(struct rows *rows, const struct batch *b, uint32_t index)
{
	const struct batch_sample *s = &b->samples[index];
	const struct batch_stack *stack = &b->stacks[s->stack];
	const char *process = b->processes[s->process].executable_name;
	bool leaf = true;

	for (uint32_t i = 0; i < stack->len; i++) {
		const struct batch_location *l =
		    &b->locations[b->stack_locations[stack->first + i]];

		for (uint32_t j = 0; j < l->n_lines; j++) {
			const struct batch_line *line = &b->lines[l->first_line + j];
			struct row *row =
			    find_row(rows, process, b->functions[line->function].name, l->type);

			if (!row)
				return -ENOMEM;
			row->self += leaf ? s->value : 0;
			row->total += row->last != index + 1 ? s->value : 0;
			row->last = index + 1;
			leaf = false;
		}
	}
	return 0;
}

static int compare_rows(const void *pa, const void *pb)
{
	const struct row *a = pa, *b = pb;
	int c;

	if (a->self != b->self)
		return a->self > b->self ? -1 : 1;
	if (a->total != b->total)
		return a->total > b->total ? -1 : 1;
	c = strcmp(a->function, b->function);
	return c ? c : strcmp(a->process, b->process);
}

/* At most WIDTH characters of S (a longer one ends in an ellipsis), filled up with spaces when PAD.
 */
static void put_cell(struct buf *out, const char *s, size_t width, bool pad)
{
	size_t bytes = strlen(s), chars = 0, n, cut = 0;

	for (size_t i = 0; i < bytes; i += n, chars++) {
		if (chars == width - 1)
			cut = i;
		n = MAX(utf8_len(s + i, bytes - i), (size_t)1);
	}
	bytes = chars > width ? cut : bytes;
	for (size_t i = 0; i < bytes; i++)
		buf_append(out, (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? "?" : s + i, 1);
	if (chars > width)
		buf_puts(out, "…");
	for (; pad && chars < width; chars++)
		buf_puts(out, " ");
}

static void put_count(struct buf *out, int64_t n, const char *one, const char *many)
{
	buf_printf(out, "%lld %s", (long long)n, n == 1 ? one : many);
}

static uint32_t processes_seen(const struct batch *b)
{
	bool *seen = calloc((size_t)b->n_processes + 1, sizeof(*seen));
	uint32_t n = 0;

	for (uint32_t i = 0; seen && i < b->n_samples; i++) {
		n += !seen[b->samples[i].process];
		seen[b->samples[i].process] = true;
	}
	free(seen);
	return n;
}

static void put_header(struct buf *out, const struct batch *b, int64_t samples, bool tty)
{
	buf_puts(out, tty ? "\033[H\033[J\033[1m" : "");
	buf_puts(out, "kiln: ");
	put_count(out, samples, "sample", "samples");
	buf_puts(out, " of ");
	put_count(out, processes_seen(b), "process", "processes");
	buf_printf(out, " in %.1f s", (double)b->duration_ns / 1e9);
	buf_puts(out, tty ? "\033[0m\n\n" : "\n");
}

static void put_table(struct buf *out, const struct rows *rows, int64_t samples,
		      const struct top_options *o, size_t width)
{
	uint32_t n = MIN(rows->n, o->rows ? o->rows : (uint32_t)ROWS_DEFAULT);
	size_t fixed =
	    sizeof("  SELF  TOTAL SAMPLES ") - 1 + PROCESS_WIDTH + sizeof(" cpython  ") - 1;

	buf_printf(out, "%s  SELF  TOTAL SAMPLES %-*s TYPE     FUNCTION%s\n",
		   o->tty ? "\033[2m" : "", PROCESS_WIDTH, "PROCESS", o->tty ? "\033[0m" : "");
	for (uint32_t i = 0; i < n; i++) {
		const struct row *r = &rows->items[i];
		const char *type = r->type == FRAME_ABORT ? "abort" : frame_type_name(r->type);

		buf_printf(out, "%5.1f%% %5.1f%% %7lld ", 100.0 * (double)r->self / (double)samples,
			   100.0 * (double)r->total / (double)samples, (long long)r->self);
		put_cell(out, r->process[0] ? r->process : "-", PROCESS_WIDTH, true);
		buf_printf(out, " %-8s ", type);
		put_cell(out, r->function, width - fixed, false);
		buf_puts(out, "\n");
	}
	if (rows->n > n)
		buf_printf(out, "%*s%u more functions\n", (int)fixed, "", rows->n - n);
}

int render_top(const struct batch *b, const struct top_options *o, struct buf *out)
{
	size_t width =
	    MAX(o->width ? o->width : (unsigned int)WIDTH_DEFAULT, (unsigned int)WIDTH_MIN);
	int64_t samples = batch_cpu_samples(b);
	struct rows rows = {0};
	int r = 0;

	for (uint32_t i = 0; i < b->n_profiles; i++) {
		const struct batch_profile *p = &b->profiles[i];

		for (uint32_t j = 0; j < p->n_samples && p->kind == PROFILE_CPU && !r; j++)
			r = count_sample(&rows, b, p->first_sample + j);
	}
	if (!r) {
		put_header(out, b, samples, o->tty);
		if (rows.n) {
			qsort(rows.items, rows.n, sizeof(*rows.items), compare_rows);
			put_table(out, &rows, samples, o, width);
		} else
			buf_puts(out, "  (nothing ran)\n");
		buf_puts(out, o->tty ? "" : "\n");
		r = out->error;
	}
	free(rows.items);
	ref_table_done(&rows.index);
	return r;
}
