/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as JSON. A document that cJSON accepts is accepted and ends at the same place; strings
 * have the same text; an object that arrives in two pieces is cut at the same place as in one.
 */
#include "operator/kube/json_scan.h"

#include <ctype.h>

#include <cjson/cJSON.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_cut(const uint8_t *p, size_t n, size_t split)
{
	struct json_cut whole = {0}, pieces = {0};
	size_t end = json_cut(&whole, p, n), first;

	if (end > n)
		abort();
	first = json_cut(&pieces, p, split);
	if (split == 0 || (first == split && pieces.depth))
		first += json_cut(&pieces, p + split, n - split);
	if (first != end || pieces.depth != whole.depth || pieces.in_string != whole.in_string)
		abort();
	if (memchr(p, '\\', end) && !(whole.any_backslash && pieces.any_backslash))
		abort();
}

/* Reads keys and values to a depth of two, and skips what lies deeper. */
static void walk(struct json *j, unsigned int depth)
{
	enum json_type type = json_peek(j);
	struct slice key;

	if (depth == 2 || (type != JSON_OBJECT && type != JSON_ARRAY)) {
		json_skip(j);
		return;
	}
	if (!json_enter(j, type))
		return;
	if (type == JSON_OBJECT) {
		while (json_key(j, &key))
			walk(j, depth + 1);
	} else {
		while (json_element(j))
			walk(j, depth + 1);
	}
}

static void check_string(const uint8_t *p, size_t n, uint8_t *scratch, const cJSON *tree)
{
	struct json j = json_of(p, n, scratch);
	struct slice s = json_string(&j);

	/* cJSON's text ends at the first NUL. */
	if (j.c.bad || strlen(tree->valuestring) > s.n ||
	    memcmp(s.p, tree->valuestring, strlen(tree->valuestring)) != 0)
		abort();
	if (!memchr(s.p, 0, s.n) && s.n != strlen(tree->valuestring))
		abort();
}

/*
 * cJSON differs in two cases: it takes any control character for white space, and "\u" before a
 * text that is not hexadecimal for NUL.
 */
static bool cjson_differs(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] < ' ')
			return true;
		if (p[i] != '\\' || i + 1 == n || p[i + 1] != 'u')
			continue;
		for (size_t k = i + 2; k < i + 6; k++) {
			if (k >= n || !isxdigit(p[k]))
				return true;
		}
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_free_ uint8_t *p = NULL, *scratch = NULL;
	size_t n = size - 1;
	const char *end;
	struct json j;
	cJSON *tree;

	if (size < 2)
		return 0;
	p = malloc(n);
	scratch = malloc(n);
	if (!p || !scratch)
		return 0;
	memcpy(p, data + 1, n);
	if (p[0] == '{' || p[0] == '[')
		check_cut(p, n, data[0] % (n + 1));
	j = json_of(p, n, scratch);
	walk(&j, 0);
	if (cjson_differs(p, n))
		return 0;
	tree = cJSON_ParseWithLengthOpts((const char *)p, n, &end, false);
	if (tree && (p[0] == '{' || p[0] == '[' || p[0] == '"')) {
		if (j.c.bad || j.c.data + j.c.pos != (const uint8_t *)end)
			abort();
		if (cJSON_IsString(tree))
			check_string(p, n, scratch, tree);
	}
	cJSON_Delete(tree);
	return 0;
}
