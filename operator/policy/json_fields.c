/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON objects into structs; see the header. Recursion is as deep as the tables, whatever the
 * document's depth, and decoding ends at the first wrong member: an object of a million members
 * costs no more than its parsing did.
 */
#include "operator/policy/json_fields.h"

#include <math.h>
#include <stdarg.h>

#include "lib/fields.h"
#include "lib/parse.h"

size_t json_path_enter(struct json_fields *f, const char *name)
{
	size_t mark = f->path_len;

	if (mark < sizeof(f->path) - 1) {
		char *p = f->path + mark;
		int n = snprintf(p, sizeof(f->path) - mark, "%s%s",
				 mark && name[0] != '[' ? "." : "", name);

		parse_make_printable(p);
		f->path_len += (size_t)n;
	}
	return mark;
}

size_t json_enter_index(struct json_fields *f, size_t i)
{
	char text[24];

	snprintf(text, sizeof(text), "[%zu]", i);
	return json_path_enter(f, text);
}

void json_path_leave(struct json_fields *f, size_t mark)
{
	f->path_len = mark;
	if (mark < sizeof(f->path))
		f->path[mark] = 0;
}

int json_error(struct json_fields *f, const char *format, ...)
{
	char message[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(message, sizeof(message), format, ap);
	va_end(ap);
	if (!f->path_len)
		return error_set(f->err, -EINVAL, "%s", message);
	return error_set(f->err, -EINVAL, "%s: %s", f->path, message);
}

int json_no_memory(struct json_fields *f)
{
	return error_set(f->err, -ENOMEM, "out of memory");
}

/* A value as it goes into a message. */
static struct quoted shown(const cJSON *node)
{
	struct quoted q = {.text = "nothing"};

	if (cJSON_IsString(node))
		return quote_text(node->valuestring);
	if (cJSON_IsNumber(node))
		snprintf(q.text, sizeof(q.text), "%.15g", node->valuedouble);
	else if (cJSON_IsBool(node))
		strcpy(q.text, cJSON_IsTrue(node) ? "true" : "false");
	else if (cJSON_IsArray(node))
		strcpy(q.text, "a list");
	else if (cJSON_IsObject(node))
		strcpy(q.text, "an object");
	else if (node)
		strcpy(q.text, "null");
	return q;
}

int json_want(struct json_fields *f, const cJSON *node, const char *want)
{
	return json_error(f, "want %s, got %s", want, shown(node).text);
}

const cJSON *json_get(const cJSON *object, const char *name)
{
	const cJSON *node = cJSON_GetObjectItemCaseSensitive(object, name);

	return cJSON_IsNull(node) ? NULL : node;
}

static const char *row_name(const void *arg, size_t i)
{
	return ((const struct json_row *)arg)[i].name;
}

static const char *choice_name(const void *arg, size_t i)
{
	return ((const struct json_choice *)arg)[i].name;
}

static void note_unknown(struct json_fields *f, const struct json_row *rows, const char *name)
{
	size_t n = 0, mark;
	const char *nearest;

	if (f->n_unknown++)
		return;
	while (rows[n].type != JSON_END)
		n++;
	nearest = nearest_name(name, n, row_name, rows);
	mark = json_path_enter(f, quote_text(name).text);
	/* A plain name needs no quotes. */
	if (strlen(name) <= 64 &&
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			 "0123456789_-") == strlen(name)) {
		json_path_leave(f, mark);
		json_path_enter(f, name);
	}
	snprintf(f->unknown, sizeof(f->unknown), "%s: unknown field%s%s%s", f->path,
		 nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
	json_path_leave(f, mark);
}

int json_decode(struct json_fields *f, const cJSON *node, const struct json_row *rows, void *out)
{
	size_t n_unknown = f->n_unknown;
	uint64_t seen = 0;
	const cJSON *child;

	if (!cJSON_IsObject(node))
		return json_want(f, node, "an object");
	cJSON_ArrayForEach(child, node)
	{
		size_t i = 0, mark;
		int r = 0;

		while (rows[i].type != JSON_END && !streq(rows[i].name, child->string))
			i++;
		if (rows[i].type == JSON_END) {
			note_unknown(f, rows, child->string);
			continue;
		}
		mark = json_path_enter(f, rows[i].name);
		if (seen & UINT64_C(1) << i)
			return json_error(f, "given twice");
		seen |= UINT64_C(1) << i;
		if (!cJSON_IsNull(child))
			r = json_decode_value(f, child, &rows[i], (char *)out + rows[i].offset);
		else if (rows[i].required)
			r = json_error(f, "required");
		if (r < 0)
			return r;
		json_path_leave(f, mark);
	}
	for (size_t i = 0; rows[i].type != JSON_END; i++) {
		if (!rows[i].required || seen & UINT64_C(1) << i)
			continue;
		/* An unknown field, perhaps a misspelt name, explains more. */
		if (!n_unknown && f->n_unknown)
			return error_set(f->err, -EINVAL, "%s", f->unknown);
		json_path_enter(f, rows[i].name);
		return json_error(f, "required");
	}
	return 0;
}

static int decode_string(struct json_fields *f, const cJSON *node, const struct json_row *row,
			 char **out)
{
	size_t len;
	char *copy;

	if (!cJSON_IsString(node)) {
		if (row->secret)
			return json_error(f, "want a string");
		return json_want(f, node, "a string");
	}
	len = strlen(node->valuestring);
	if (len < (size_t)row->min || len > (size_t)row->max)
		return json_error(f, "want %d..%d characters, got %zu", row->min, row->max, len);
	if (row->syntax && !row->syntax->ok(node->valuestring)) {
		if (row->secret)
			return json_error(f, "want %s", row->syntax->want);
		return json_want(f, node, row->syntax->want);
	}
	copy = strdup(node->valuestring);
	if (!copy)
		return json_no_memory(f);
	free(*out);
	*out = copy;
	return 0;
}

static int decode_int(struct json_fields *f, const cJSON *node, const struct json_row *row,
		      int *out)
{
	double v = cJSON_IsNumber(node) ? node->valuedouble : NAN;

	if (!isfinite(v) || v != floor(v))
		return json_want(f, node, "a whole number");
	if (v < row->min || v > row->max)
		return json_error(f, "want %d..%d, got %.15g", row->min, row->max, v);
	*out = (int)v;
	return 0;
}

/* "want Auto, Enabled or Disabled, got ..." */
static int no_choice(struct json_fields *f, const cJSON *node, const struct json_choice *choices)
{
	const char *nearest = NULL;
	char want[160] = "";
	size_t n = 0, at = 0;

	while (choices[n].name)
		n++;
	for (size_t i = 0; i < n && at < sizeof(want); i++)
		at += (size_t)snprintf(want + at, sizeof(want) - at, "%s%s",
				       i == 0	    ? ""
				       : i == n - 1 ? " or "
						    : ", ",
				       choices[i].name);
	if (cJSON_IsString(node))
		nearest = nearest_name(node->valuestring, n, choice_name, choices);
	if (nearest)
		return json_error(f, "want %s, got %s; did you mean %s?", want, shown(node).text,
				  nearest);
	return json_want(f, node, want);
}

static int decode_choice(struct json_fields *f, const cJSON *node, const struct json_row *row,
			 void *out)
{
	const struct json_choice *c = row->choices;
	char *copy;

	while (c->name && !(cJSON_IsString(node) && streq(c->name, node->valuestring)))
		c++;
	if (!c->name)
		return no_choice(f, node, row->choices);
	if (row->type == JSON_TEXT) {
		copy = strdup(c->text ? c->text : c->name);
		if (!copy)
			return json_no_memory(f);
		free(*(char **)out);
		*(char **)out = copy;
	} else if (row->flag) {
		*(bool *)out = c->value;
	} else {
		*(unsigned int *)out = (unsigned int)c->value;
	}
	return 0;
}

static int decode_strings(struct json_fields *f, const cJSON *node, const struct json_row *row,
			  struct string_list *out)
{
	struct json_row item = {.min = 1, .max = row->min, .syntax = row->syntax};
	const cJSON *child;
	int n = cJSON_IsArray(node) ? cJSON_GetArraySize(node) : -1;

	if (n < 0)
		return json_want(f, node, "a list");
	if (n > row->max)
		return json_error(f, "want at most %d, got %d", row->max, n);
	out->set = true;
	if (!n)
		return 0;
	out->items = calloc((size_t)n, sizeof(*out->items));
	if (!out->items)
		return json_no_memory(f);
	cJSON_ArrayForEach(child, node)
	{
		size_t mark = json_enter_index(f, out->n);
		int r = decode_string(f, child, &item, &out->items[out->n]);

		if (r < 0)
			return r;
		for (size_t i = 0; i < out->n; i++)
			if (streq(out->items[i], out->items[out->n])) {
				out->n++; /* to be freed with the rest */
				return json_error(f, "%s is given twice",
						  quote_text(child->valuestring).text);
			}
		out->n++;
		json_path_leave(f, mark);
	}
	return 0;
}

int json_decode_value(struct json_fields *f, const cJSON *node, const struct json_row *row,
		      void *out)
{
	switch (row->type) {
	case JSON_STRING:
		return decode_string(f, node, row, out);
	case JSON_INT:
		return decode_int(f, node, row, out);
	case JSON_CHOICE:
	case JSON_TEXT:
		return decode_choice(f, node, row, out);
	case JSON_OBJECT:
		return json_decode(f, node, row->rows, out);
	case JSON_STRINGS:
		return decode_strings(f, node, row, out);
	case JSON_CUSTOM:
		return row->decode(f, node, out);
	case JSON_IGNORED:
	case JSON_END:
		break;
	}
	return 0;
}

int json_list(struct json_fields *f, const cJSON *node, size_t max, size_t size,
	      int (*one)(struct json_fields *f, const cJSON *item, void *out), void **ret,
	      size_t *ret_n)
{
	const cJSON *child;
	size_t n;

	if (!cJSON_IsArray(node))
		return json_want(f, node, "a list");
	n = (size_t)cJSON_GetArraySize(node);
	if (n > max)
		return json_error(f, "want at most %zu, got %zu", max, n);
	if (!n)
		return 0;
	*ret = calloc(n, size);
	if (!*ret)
		return json_no_memory(f);
	cJSON_ArrayForEach(child, node)
	{
		size_t mark = json_enter_index(f, *ret_n);
		int r = one(f, child, (char *)*ret + (*ret_n)++ * size);

		if (r < 0)
			return r;
		json_path_leave(f, mark);
	}
	return 0;
}

int json_check_map(struct json_fields *f, const cJSON *node, size_t min, size_t max,
		   const struct json_row *value)
{
	const cJSON *child, *before;
	size_t n;

	if (!cJSON_IsObject(node))
		return json_want(f, node, "an object");
	n = (size_t)cJSON_GetArraySize(node);
	if (n < min || n > max)
		return json_error(f, "want %zu..%zu entries, got %zu", min, max, n);
	cJSON_ArrayForEach(child, node)
	{
		_cleanup_free_ char *copy = NULL;
		size_t mark;
		int r;

		if (!syntax_label_key.ok(child->string))
			return json_error(f, "want keys such as team or example.com/team, got %s",
					  quote_text(child->string).text);
		mark = json_path_enter(f, child->string);
		for (before = node->child; before != child; before = before->next)
			if (streq(before->string, child->string))
				return json_error(f, "given twice");
		r = decode_string(f, child, value, &copy);
		if (r < 0)
			return r;
		json_path_leave(f, mark);
	}
	return 0;
}
