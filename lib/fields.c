/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From tree to struct. The path is kept in a fixed buffer that grows and shrinks with the
 * recursion, so that messages need no allocation. One thread at a time per struct fields.
 */
#include "lib/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

#include "lib/parse.h"

enum { FIELDS_ROWS_MAX = 128 }; /* rows of one table */

struct quoted quote_text(const char *text)
{
	struct quoted q;
	size_t n = 0;

	q.text[n++] = '"';
	for (; *text && n < 65; text++)
		q.text[n++] = (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text;
	while (*text && n > 1 && ((unsigned char)*text & 0xc0) == 0x80)
		text--, n--; /* do not cut a UTF-8 character in two */
	if (*text) {
		memcpy(q.text + n, "...", 3);
		n += 3;
	}
	q.text[n++] = '"';
	q.text[n] = 0;
	return q;
}

size_t fields_enter(struct fields *f, const char *key)
{
	size_t mark = f->path_len, room;

	if (mark < sizeof(f->path) - 1) {
		char *p = f->path + mark;
		int n;

		room = sizeof(f->path) - mark;
		n = snprintf(p, room, "%s%s", mark && key[0] != '[' ? "." : "", key);
		parse_make_printable(p);
		f->path_len += (size_t)n;
	}
	return mark;
}

void fields_leave(struct fields *f, size_t mark)
{
	f->path_len = mark;
	if (mark < sizeof(f->path))
		f->path[mark] = 0;
}

static void describe(const struct fields *f, const struct yaml_node *node, char out[1024],
		     const char *format, va_list ap)
{
	const char *colon = f->path[0] ? ": " : "";
	int n;

	if (node)
		n = snprintf(out, 1024, "%s:%u: %s%s", f->file, node->line, f->path, colon);
	else
		n = snprintf(out, 1024, "%s: %s%s", f->file, f->path, colon);
	if (n >= 0 && n < 1024)
		vsnprintf(out + n, 1024 - (size_t)n, format, ap);
	parse_make_printable(out);
}

int fields_error(struct fields *f, const struct yaml_node *node, const char *format, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, format);
	describe(f, node, line, format, ap);
	va_end(ap);
	return error_set(f->err, -EINVAL, "%s", line);
}

void fields_warn(struct fields *f, const struct yaml_node *node, const char *format, ...)
{
	char line[1024];
	va_list ap;

	if (!f->warn)
		return;
	va_start(ap, format);
	describe(f, node, line, format, ap);
	va_end(ap);
	f->warn(f->arg, line);
}

int fields_no_memory(struct fields *f)
{
	return error_set(f->err, -ENOMEM, "%s: out of memory", f->file);
}

static const char *kind_name(const struct yaml_node *node)
{
	switch (node->kind) {
	case YAML_MAP:
		return "a map";
	case YAML_LIST:
		return "a list";
	case YAML_NULL:
		return "nothing";
	default:
		return "text";
	}
}

int fields_want_map(struct fields *f, const struct yaml_node *node)
{
	if (node->kind == YAML_MAP)
		return 0;
	return fields_error(f, node, "want a map, got %s", kind_name(node));
}

int fields_want_list(struct fields *f, const struct yaml_node *node)
{
	if (node->kind == YAML_LIST)
		return 0;
	return fields_error(f, node, "want a list, got %s", kind_name(node));
}

const struct yaml_node *fields_find(const struct yaml_node *node, const char *name)
{
	if (node->kind != YAML_MAP)
		return NULL;
	for (const struct yaml_node *n = node->child; n; n = n->next)
		if (parse_same_name(n->key, name))
			return n;
	return NULL;
}

int fields_string(struct fields *f, const struct yaml_node *node, char **ret)
{
	char *s;

	if (node->kind != YAML_SCALAR)
		return fields_error(f, node, "want text, got %s", kind_name(node));
	s = strdup(node->text);
	if (!s)
		return fields_no_memory(f);
	*ret = s;
	return 0;
}

const char *nearest_name(const char *text, size_t n,
			 const char *(*name_of)(const void *arg, size_t i), const void *arg)
{
	unsigned int best = 1 + (unsigned int)MIN(strlen(text), 30) / 3;
	const char *nearest = NULL;

	for (size_t i = 0; i < n; i++) {
		const char *name = name_of(arg, i);
		unsigned int d = parse_edit_distance(text, name);

		/* A distance as large as the name means that every letter was replaced: not a
		 * typing mistake. */
		if (d < best + !nearest && d < strlen(name)) {
			best = d;
			nearest = name;
		}
	}
	return nearest;
}

static const char *choice_name(const void *arg, size_t i)
{
	return ((const char *const *)arg)[i];
}

const char *nearest_choice(const char *text, const char *const *choices)
{
	size_t n = 0;

	while (choices[n])
		n++;
	return nearest_name(text, n, choice_name, choices);
}

static const char *row_name(const void *arg, size_t i)
{
	return ((const struct field *)arg)[i].name;
}

static int unknown_key(struct fields *f, const struct yaml_node *node, const struct field *rows)
{
	const char *nearest;
	size_t n = 0;

	while (rows[n].type != FIELD_END)
		n++;
	nearest = nearest_name(node->key, n, row_name, rows);
	if (nearest)
		return fields_error(f, node, "unknown key; did you mean %s?", nearest);
	return fields_error(f, node, "unknown key");
}

/* The value as the user wrote it, for a message; not that of a secret row. */
static struct quoted shown(const struct yaml_node *node, const struct field *row)
{
	if (row->secret)
		return (struct quoted){.text = "something else"};
	if (node->kind == YAML_SCALAR)
		return quote_text(node->text);
	return (struct quoted){.text = ""};
}

static int wrong_type(struct fields *f, const struct yaml_node *node, const struct field *row,
		      const char *want)
{
	if (node->kind != YAML_SCALAR)
		return fields_error(f, node, "want %s, got %s", want, kind_name(node));
	return fields_error(f, node, "want %s, got %s", want, shown(node, row).text);
}

static bool has_range(const struct field *row)
{
	return row->min != 0 || row->max != 0;
}

/* Numbers without the quotes: "want 1..1000, got 5000". */
static int out_of_range(struct fields *f, const struct yaml_node *node, const struct field *row)
{
	struct quoted q = quote_text(node->text);

	q.text[strlen(q.text) - 1] = 0;
	if (!has_range(row))
		return fields_error(f, node, "%s is too large", q.text + 1);
	return fields_error(f, node, "want %.15g..%.15g, got %s", row->min, row->max, q.text + 1);
}

static int decode_integer(struct fields *f, const struct yaml_node *node, const struct field *row,
			  void *out)
{
	int64_t negative;
	uint64_t v = 0;
	int r = node->kind == YAML_SCALAR ? parse_u64(node->text, &v) : -EINVAL;

	if (r == -EINVAL && node->kind == YAML_SCALAR && parse_i64(node->text, &negative) == 0)
		r = -ERANGE; /* a number all the same */
	if (r == -EINVAL)
		return wrong_type(f, node, row, "a whole number");
	if (r < 0 || (row->type == FIELD_U32 && v > UINT32_MAX) ||
	    (has_range(row) && ((double)v < row->min || (double)v > row->max)))
		return out_of_range(f, node, row);
	if (row->type == FIELD_U32)
		*(uint32_t *)out = (uint32_t)v;
	else
		*(uint64_t *)out = v;
	return 0;
}

static int decode_double(struct fields *f, const struct yaml_node *node, const struct field *row,
			 double *out)
{
	double v = 0;
	int r = node->kind == YAML_SCALAR ? parse_double(node->text, &v) : -EINVAL;

	if (r == -ENOMEM)
		return fields_no_memory(f);
	if (r == -EINVAL)
		return wrong_type(f, node, row, "a number");
	if (r < 0 || (has_range(row) && (v < row->min || v > row->max)))
		return out_of_range(f, node, row);
	*out = v;
	return 0;
}

/* 90000 -> "1m30s", as the user would write it. */
static struct quoted duration_text(double ms)
{
	struct quoted q = {.text = ""};
	uint64_t left = (uint64_t)ms;
	int n = 0;

	if (!left)
		return (struct quoted){.text = "0s"};
	if (left >= 3600000)
		n += sprintf(q.text + n, "%" PRIu64 "h", left / 3600000);
	left %= 3600000;
	if (left >= 60000)
		n += sprintf(q.text + n, "%" PRIu64 "m", left / 60000);
	left %= 60000;
	if (left >= 1000)
		n += sprintf(q.text + n, "%" PRIu64 "s", left / 1000);
	left %= 1000;
	if (left)
		sprintf(q.text + n, "%" PRIu64 "ms", left);
	return q;
}

static int decode_duration(struct fields *f, const struct yaml_node *node, const struct field *row,
			   uint64_t *out)
{
	uint64_t ns = 0, ms;
	int r = node->kind == YAML_SCALAR ? parse_duration(node->text, &ns) : -EINVAL;

	if (r == -EINVAL)
		return wrong_type(f, node, row, "a duration such as 5s or 1m30s");
	ms = ns / 1000000 + (ns % 1000000 != 0);
	if (r < 0 && !has_range(row))
		return out_of_range(f, node, row);
	if (r < 0 || (has_range(row) && ((double)ms < row->min || (double)ms > row->max)))
		return fields_error(f, node, "want %s..%s, got %s", duration_text(row->min).text,
				    duration_text(row->max).text, shown(node, row).text);
	*out = ms;
	return 0;
}

/* 1048576 -> "1MiB" */
static struct quoted size_text(double bytes)
{
	static const char *const units[] = {"", "KiB", "MiB", "GiB", "TiB"};
	uint64_t v = (uint64_t)bytes;
	struct quoted q;
	size_t u = 0;

	for (; v && v % 1024 == 0 && u + 1 < ARRAY_SIZE(units); u++)
		v /= 1024;
	snprintf(q.text, sizeof(q.text), "%" PRIu64 "%s", v, units[u]);
	return q;
}

static int decode_size(struct fields *f, const struct yaml_node *node, const struct field *row,
		       uint64_t *out)
{
	uint64_t v = 0;
	int r = node->kind == YAML_SCALAR ? parse_size(node->text, &v) : -EINVAL;

	if (r == -EINVAL)
		return wrong_type(f, node, row, "a size such as 512MiB");
	if (r < 0 && !has_range(row))
		return out_of_range(f, node, row);
	if (r < 0 || (has_range(row) && ((double)v < row->min || (double)v > row->max)))
		return fields_error(f, node, "want %s..%s, got %s", size_text(row->min).text,
				    size_text(row->max).text, shown(node, row).text);
	*out = v;
	return 0;
}

static int decode_text(struct fields *f, const struct yaml_node *node, char **out)
{
	char *s;
	int r = fields_string(f, node, &s);

	if (r < 0)
		return r;
	free(*out);
	*out = s;
	return 0;
}

static int decode_choice(struct fields *f, const struct yaml_node *node, const struct field *row,
			 char **out)
{
	char all[256] = "";

	for (size_t i = 0; row->choices[i]; i++) {
		size_t n = strlen(all);

		if (node->kind == YAML_SCALAR && streq(node->text, row->choices[i]))
			return decode_text(f, node, out);
		snprintf(all + n, sizeof(all) - n, "%s%s",
			 i == 0		       ? ""
			 : row->choices[i + 1] ? ", "
					       : " or ",
			 row->choices[i]);
	}
	return wrong_type(f, node, row, all);
}

int fields_decode_value(struct fields *f, const struct yaml_node *node, const struct field *row,
			void *out)
{
	switch (row->type) {
	case FIELD_IGNORED:
		fields_warn(f, node, "%s",
			    row->note ? row->note : "accepted, but has no effect in this agent");
		return 0;
	case FIELD_QUIET:
	case FIELD_END:
		return 0;
	case FIELD_CUSTOM:
		return row->decode(f, node, out);
	default:
		break;
	}
	if (node->kind == YAML_NULL)
		return 0;
	switch (row->type) {
	case FIELD_BOOL:
		if (node->kind != YAML_SCALAR || parse_bool(node->text, out) < 0)
			return wrong_type(f, node, row, "true or false");
		return 0;
	case FIELD_U32:
	case FIELD_U64:
		return decode_integer(f, node, row, out);
	case FIELD_DOUBLE:
		return decode_double(f, node, row, out);
	case FIELD_STRING:
		return decode_text(f, node, out);
	case FIELD_DURATION_MS:
		return decode_duration(f, node, row, out);
	case FIELD_SIZE:
		return decode_size(f, node, row, out);
	case FIELD_CHOICE:
		return decode_choice(f, node, row, out);
	default:
		return fields_decode(f, node, row->rows, out);
	}
}

int fields_decode(struct fields *f, const struct yaml_node *node, const struct field *rows,
		  void *out)
{
	bool seen[FIELDS_ROWS_MAX] = {false};
	int r;

	if (node->kind == YAML_NULL)
		return 0;
	r = fields_want_map(f, node);
	if (r < 0)
		return r;
	for (const struct yaml_node *n = node->child; n; n = n->next) {
		size_t mark = fields_enter(f, n->key), i = 0;

		while (rows[i].type != FIELD_END && !parse_same_name(rows[i].name, n->key))
			i++;
		if (rows[i].type == FIELD_END)
			return unknown_key(f, n, rows);
		if (i < FIELDS_ROWS_MAX && seen[i])
			return fields_error(f, n, "given twice, in two spellings");
		if (i < FIELDS_ROWS_MAX)
			seen[i] = true;
		r = fields_decode_value(f, n, &rows[i], (char *)out + rows[i].offset);
		if (r < 0)
			return r;
		fields_leave(f, mark);
	}
	return 0;
}
