/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of scripts. V8 makes an array of line ends (small integers) when it needs them itself.
 * Without that array the source is read once for its line ends. They are kept for the scripts that
 * were used last. Line ends are those of ECMA-262: LF, CR, CR LF, U+2028, U+2029. Loop thread.
 */
#include "agent/runtime/v8/script.h"

/*
 * The last id given to a script's line table. Cached functions refer to their line table by its id
 * and outlive the state of the process, so no id is used twice.
 */
static uint64_t numbers;

void v8_scripts_done(struct v8_scripts *s)
{
	for (size_t i = 0; i < V8_SCRIPTS_MAX; i++)
		free(s->lines[i].ends);
	*s = (struct v8_scripts){0};
}

static void forget(struct v8_scripts *s, struct v8_lines *l)
{
	s->n -= l->n;
	free(l->ends);
	*l = (struct v8_lines){0};
}

static struct v8_lines *oldest(struct v8_scripts *s, bool used)
{
	struct v8_lines *found = NULL;

	for (size_t i = 0; i < V8_SCRIPTS_MAX; i++)
		if ((!used || s->lines[i].n) && (!found || s->lines[i].used < found->used))
			found = &s->lines[i];
	return found;
}

/* ---- computing -------------------------------------------------------------------------------
 */

static int add_end(struct v8_lines *l, size_t *cap, uint32_t position)
{
	int r = grow_array((void **)&l->ends, cap, l->n + 1, sizeof(*l->ends), V8_SCRIPT_LINES_MAX);

	if (r < 0)
		return r;
	l->ends[l->n++] = position;
	return 0;
}

static int ends_of_source(const struct v8_heap *h, const struct v8_flat *flat, struct v8_lines *l)
{
	uint8_t chunk[V8_CHUNK];
	uint32_t length = MIN(flat->length, (uint32_t)V8_SOURCE_MAX), last = 0;
	size_t cap = 0;
	int r = 0;

	for (uint32_t done = 0; done < length && r == 0;) {
		uint32_t part = MIN(length - done, (uint32_t)V8_CHUNK / flat->width);

		if (target_read(h->memory, flat->at + (uint64_t)done * flat->width, chunk,
				(size_t)part * flat->width) < 0)
			return -EFAULT;
		for (uint32_t i = 0; i < part && r == 0; i++) {
			uint32_t c = flat->width == 1
					 ? chunk[i]
					 : chunk[2 * i] | (uint32_t)chunk[2 * i + 1] << 8;

			/* CR LF: the line ends with the LF. */
			if (c == '\n' && last == '\r')
				l->ends[l->n - 1] = done + i;
			else if (c == '\n' || c == '\r' || c == 0x2028 || c == 0x2029)
				r = add_end(l, &cap, done + i);
			last = c;
		}
		done += part;
	}
	return r == 0 || r == -E2BIG ? add_end(l, &cap, UINT32_MAX) & 0 : r;
}

/* Reads the line ends from V8's own array. -ENOENT: V8 has not made it yet. */
static int ends_of_array(const struct v8_heap *h, uint64_t script, struct v8_lines *l)
{
	const struct v8_layout *y = h->layout;
	uint64_t array, length, chunk[V8_CHUNK / 8];
	size_t cap = 0;
	int r = 0;

	if (v8_word(h, script, y->script_line_ends, &array) < 0 || !v8_is_pointer(array) ||
	    v8_type(h, array) != y->type_fixed_array ||
	    v8_word(h, array, y->array_length, &length) < 0 || !v8_is_smi(length) ||
	    v8_smi(length) <= 0 || v8_smi(length) > V8_SCRIPT_LINES_MAX)
		return -ENOENT;
	length >>= 32;
	for (uint64_t done = 0; done < length && r == 0;) {
		uint64_t part = MIN(length - done, (uint64_t)ARRAY_SIZE(chunk));

		if (v8_read(h, array, y->array_data + (int64_t)done * 8, chunk, part * 8) < 0)
			return -EFAULT;
		for (uint64_t i = 0; i < part && r == 0; i++)
			r = add_end(l, &cap, (uint32_t)(chunk[i] >> 32));
		done += part;
	}
	return r;
}

/* Reads the number of lines before the script in the page that contains it; 0: there is no page. */
static uint32_t read_offset(const struct v8_heap *h, uint64_t script)
{
	uint64_t offset;

	if (v8_word(h, script, h->layout->script_line_offset, &offset) < 0 || !v8_is_smi(offset) ||
	    v8_smi(offset) < 0 || v8_smi(offset) > V8_SOURCE_MAX)
		return 0;
	return (uint32_t)v8_smi(offset);
}

const struct v8_lines *v8_script_lines(struct v8_scripts *s, const struct v8_heap *h,
				       uint64_t script)
{
	struct v8_lines made = {.script = script}, *l;
	struct v8_flat flat = {0};
	bool readable;
	int r;

	s->now++;
	if (v8_word(h, script, h->layout->script_source, &made.source) < 0)
		return NULL;
	readable = v8_flat(h, made.source, &flat) == 0;
	made.length = flat.length;
	for (size_t i = 0; i < V8_SCRIPTS_MAX; i++) {
		l = &s->lines[i];
		if (l->n && l->script == script && l->source == made.source &&
		    l->length == made.length) {
			l->used = s->now;
			return l;
		}
	}
	r = ends_of_array(h, script, &made);
	if (r < 0 && readable) {
		free(made.ends);
		made.ends = NULL;
		made.n = 0;
		r = ends_of_source(h, &flat, &made);
	}
	if (r < 0 || !made.n) {
		free(made.ends);
		return NULL;
	}
	made.offset = read_offset(h, script);
	made.number = ++numbers;
	made.used = s->now;
	l = oldest(s, false);
	forget(s, l);
	*l = made;
	s->n += made.n;
	for (struct v8_lines *old = oldest(s, true); s->n > V8_LINES_MAX && old && old != l;
	     old = oldest(s, true))
		forget(s, old);
	return l;
}

/* ---- queries ---------------------------------------------------------------------------------
 */

const struct v8_lines *v8_lines_numbered(struct v8_scripts *s, uint64_t number)
{
	for (size_t i = 0; number && i < V8_SCRIPTS_MAX; i++)
		if (s->lines[i].n && s->lines[i].number == number) {
			s->lines[i].used = ++s->now;
			return &s->lines[i];
		}
	return NULL;
}

uint32_t v8_line_at(const struct v8_lines *lines, int32_t position)
{
	uint32_t lo = 0, hi = lines ? lines->n : 0;

	if (!hi || position < 0)
		return 0;
	while (lo < hi) { /* the first line that does not end before it */
		uint32_t middle = lo + (hi - lo) / 2;

		if (lines->ends[middle] < (uint32_t)position)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo + 1 + lines->offset;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "file:///a%20b" as "/a b". In place: it only gets shorter. */
static void url_to_path(char *s)
{
	static const char scheme[] = "file://";
	char *out = s, *in = s + strlen(scheme);

	if (strncmp(s, scheme, strlen(scheme)) != 0 || *in != '/')
		return;
	while (*in) {
		int high = in[0] == '%' ? hex(in[1]) : -1, low = high < 0 ? -1 : hex(in[2]);

		if (low >= 0 && high * 16 + low >= ' ') {
			*out++ = (char)(high * 16 + low);
			in += 3;
		} else {
			*out++ = *in++;
		}
	}
	*out = 0;
}

int v8_script_name(const struct v8_heap *h, uint64_t script, struct v8_text *text, const char **ret)
{
	uint64_t name;
	char *at = text->at;
	int r;

	if (v8_word(h, script, h->layout->script_name, &name) < 0)
		return -EFAULT;
	if (!v8_is_string(h, name)) {
		*ret = "";
		return 0;
	}
	r = v8_string(h, name, text, ret);
	if (r == 0)
		url_to_path(at);
	return r;
}
