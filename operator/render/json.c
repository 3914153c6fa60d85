/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A template and its arguments, as JSON values, are written as text, and the text is parsed. An
 * argument is always one JSON value: it cannot add structure. Objects are small and made a few
 * times a second at most, so that parsing them again does not matter. Owns nothing; any thread.
 */
#include "operator/render/json.h"

#include <stdarg.h>

#include "lib/buf.h"

enum { JSON_TEXT_MAX = 1 << 21 };

/* A value that cJSON can print, as text. */
static int put(struct buf *out, const cJSON *value)
{
	_cleanup_(freep) char *text = value ? cJSON_PrintUnformatted(value) : NULL;

	return text ? buf_puts(out, text) : -ENOMEM;
}

static int put_string(struct buf *out, const char *s)
{
	_cleanup_json_ cJSON *value = s ? cJSON_CreateString(s) : cJSON_CreateNull();

	return put(out, value);
}

static int expand(struct buf *out, const char *template, va_list *args)
{
	int r = 0;

	for (const char *p = template; r == 0 && *p; p++) {
		const cJSON *json;

		if (*p == '\'') {
			r = buf_puts(out, "\"");
		} else if (*p != '%') {
			r = buf_append(out, p, 1);
		} else if (*++p == 's') {
			r = put_string(out, va_arg(*args, const char *));
		} else if (*p == 'd') {
			r = buf_printf(out, "%d", va_arg(*args, int));
		} else if (*p == 'j') {
			json = va_arg(*args, const cJSON *);
			r = json ? put(out, json) : buf_puts(out, "null");
		} else {
			return -EINVAL;
		}
	}
	return r;
}

/* Recursion is bounded: by the template, and for a %j by the limit of the parser that made it. */
static void drop_nulls(cJSON *json) // NOLINT(misc-no-recursion)
{
	for (cJSON *next, *child = json->child; child; child = next) {
		next = child->next;
		if (cJSON_IsNull(child))
			cJSON_Delete(cJSON_DetachItemViaPointer(json, child));
		else
			drop_nulls(child);
	}
}

static int make(cJSON **ret, const char *template, va_list *args)
{
	_cleanup_(buf_done) struct buf text;
	cJSON *json;
	int r;

	buf_init(&text, JSON_TEXT_MAX);
	r = expand(&text, template, args);
	if (r < 0)
		return r;
	json = cJSON_ParseWithOpts(text.data, NULL, true);
	if (!json) /* cJSON does not tell a lack of memory from a mistake; templates are tested */
		return -ENOMEM;
	drop_nulls(json);
	*ret = json;
	return 0;
}

int json_make(cJSON **ret, const char *template, ...)
{
	va_list args;
	int r;

	va_start(args, template);
	r = make(ret, template, &args);
	va_end(args);
	return r;
}

int json_append(cJSON *list, const char *template, ...)
{
	cJSON *json = NULL;
	va_list args;
	int r;

	if (!list)
		return -ENOMEM;
	va_start(args, template);
	r = make(&json, template, &args);
	va_end(args);
	if (r == 0)
		cJSON_AddItemToArray(list, json);
	return r;
}

char *json_text(const cJSON *json)
{
	return cJSON_PrintUnformatted(json);
}
