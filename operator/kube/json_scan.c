/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning JSON in memory and in pieces; see the header. A string without a backslash is a slice of
 * the input. One with escapes is written into the scratch at the offset it has in the input: it is
 * never longer there, so strings cannot overlap, and decoding the same object twice writes the same
 * bytes to the same places. Pure functions, any thread.
 */
#include "operator/kube/json_scan.h"

#define ONES 0x0101010101010101ULL

/* The high bit of each byte of W that equals B, exact up to the lowest such byte. */
static uint64_t equal_bytes(uint64_t w, uint8_t b)
{
	w ^= ONES * b;
	return (w - ONES) & ~w & (ONES << 7);
}

/* Offset of the first '"' or '\\' at or after I; N when there is none. */
static size_t string_special(const uint8_t *p, size_t n, size_t i)
{
	uint64_t w, found;

	for (; n - i >= sizeof(w); i += sizeof(w)) {
		memcpy(&w, p + i, sizeof(w));
		found = equal_bytes(w, '"') | equal_bytes(w, '\\');
		if (found)
			return i + (size_t)__builtin_ctzll(found) / 8;
	}
	while (i < n && p[i] != '"' && p[i] != '\\')
		i++;
	return i;
}

/* In a string from I on: past its closing quote, or N when the piece ends before. */
static size_t cut_string(struct json_cut *k, const uint8_t *p, size_t n, size_t i)
{
	k->in_string = true;
	if (k->backslash && i < n) {
		k->backslash = false;
		i++;
	}
	while (i < n) {
		i = string_special(p, n, i);
		if (i == n)
			break;
		if (p[i] == '"') {
			k->in_string = false;
			return i + 1;
		}
		k->any_backslash = true;
		k->backslash = i + 1 == n;
		i = MIN(i + 2, n);
	}
	return n;
}

size_t json_cut(struct json_cut *k, const uint8_t *p, size_t n)
{
	size_t i = k->in_string ? cut_string(k, p, n, 0) : 0;

	while (i < n) {
		uint8_t b = p[i++];

		if (b == '"') {
			i = cut_string(k, p, n, i);
		} else if ((b | 0x20) == '{') { /* [ is 0x5b, { is 0x7b */
			k->depth++;
		} else if ((b | 0x20) == '}') {
			if (k->depth <= 1) {
				k->depth = 0;
				return i;
			}
			k->depth--;
		}
	}
	return n;
}

static bool is_blank(uint8_t b)
{
	return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

/* The next byte that is not blank, not taken; 0 (and bad) at the end. */
static uint8_t peek(struct json *j)
{
	struct cursor *c = &j->c;

	while (cursor_left(c) && is_blank(c->data[c->pos]))
		c->pos++;
	if (cursor_left(c))
		return c->data[c->pos];
	c->bad = true;
	return 0;
}

enum json_type json_peek(struct json *j)
{
	switch (peek(j)) {
	case '"':
		return JSON_STRING;
	case '{':
		return JSON_OBJECT;
	case '[':
		return JSON_ARRAY;
	case 't':
	case 'f':
		return JSON_BOOL;
	case 'n':
		return JSON_NULL;
	case '-':
	case '0' ... '9':
		return JSON_NUMBER;
	default:
		j->c.bad = true;
		return JSON_BAD;
	}
}

static bool take_literal(struct json *j, const char *literal)
{
	size_t n = strlen(literal);
	const uint8_t *p = cursor_bytes(&j->c, n);

	if (p && memcmp(p, literal, n) == 0)
		return true;
	j->c.bad = true;
	return false;
}

/* True when a null was there, and taken. */
static bool take_null(struct json *j)
{
	return peek(j) == 'n' && take_literal(j, "null");
}

bool json_enter(struct json *j, enum json_type type)
{
	enum json_type is = json_peek(j);

	if (is == JSON_NULL) {
		take_literal(j, "null");
		return false;
	}
	if (is != type) {
		j->c.bad = true;
		return false;
	}
	cursor_skip(&j->c, 1);
	j->first = true;
	return true;
}

/* Before a member or element: takes the comma, or the CLOSE bracket and returns false. */
static bool more(struct json *j, uint8_t close)
{
	uint8_t b = peek(j);

	if (b == close) {
		cursor_skip(&j->c, 1);
		j->first = false; /* of what is around it */
		return false;
	}
	if (!j->first) {
		if (b != ',') {
			j->c.bad = true;
			return false;
		}
		cursor_skip(&j->c, 1);
	}
	j->first = false;
	return !j->c.bad;
}

bool json_element(struct json *j)
{
	return more(j, ']');
}

bool json_key(struct json *j, struct slice *ret)
{
	struct slice key;

	if (!more(j, '}'))
		return false;
	if (peek(j) != '"') {
		j->c.bad = true;
		return false;
	}
	key = json_string(j);
	if (peek(j) != ':') {
		j->c.bad = true;
		return false;
	}
	cursor_skip(&j->c, 1);
	*ret = key;
	return true;
}

/* Takes a string, its opening quote included; bad when it does not end. */
static void skip_string(struct json *j)
{
	struct cursor *c = &j->c;
	struct json_cut k = {0};
	size_t end = cut_string(&k, c->data, c->size, c->pos + 1);

	if (k.in_string)
		c->bad = true;
	else
		c->pos = end;
}

void json_skip(struct json *j)
{
	struct cursor *c = &j->c;
	struct json_cut k = {0};

	switch (json_peek(j)) {
	case JSON_STRING:
		skip_string(j);
		break;
	case JSON_OBJECT:
	case JSON_ARRAY:
		cursor_skip(c, json_cut(&k, c->data + c->pos, c->size - c->pos));
		if (k.depth || k.in_string)
			c->bad = true;
		break;
	case JSON_NULL:
	case JSON_BOOL:
	case JSON_NUMBER:
		while (cursor_left(c) && !is_blank(c->data[c->pos]) && c->data[c->pos] != ',' &&
		       c->data[c->pos] != ']' && c->data[c->pos] != '}')
			c->pos++;
		break;
	case JSON_BAD:
		break;
	}
}

/* Four hexadecimal digits; bad when they are not. */
static uint32_t take_hex4(struct cursor *c)
{
	const uint8_t *p = cursor_bytes(c, 4);
	uint32_t v = 0;

	for (unsigned int i = 0; p && i < 4; i++) {
		if (p[i] >= '0' && p[i] <= '9')
			v = v << 4 | (uint32_t)(p[i] - '0');
		else if ((p[i] | 0x20) >= 'a' && (p[i] | 0x20) <= 'f')
			v = v << 4 | (uint32_t)((p[i] | 0x20) - 'a' + 10);
		else
			c->bad = true;
	}
	return v;
}

/* What follows "\u": one code point of one or two units; a lone surrogate is U+FFFD, as in Go. */
static uint32_t take_code_point(struct cursor *c)
{
	uint32_t high = take_hex4(c), low;
	size_t back = c->pos;

	if (high < 0xd800 || high > 0xdfff)
		return high;
	if (high <= 0xdbff && cursor_left(c) >= 6 && cursor_u8(c) == '\\' && cursor_u8(c) == 'u') {
		low = take_hex4(c);
		if (low >= 0xdc00 && low <= 0xdfff)
			return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	}
	if (!c->bad)
		cursor_seek(c, back);
	return 0xfffd;
}

static size_t put_utf8(uint8_t *out, uint32_t v)
{
	if (v < 0x80) {
		out[0] = (uint8_t)v;
		return 1;
	}
	if (v < 0x800) {
		out[0] = (uint8_t)(0xc0 | v >> 6);
		out[1] = (uint8_t)(0x80 | (v & 0x3f));
		return 2;
	}
	if (v < 0x10000) {
		out[0] = (uint8_t)(0xe0 | v >> 12);
		out[1] = (uint8_t)(0x80 | (v >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (v & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | v >> 18);
	out[1] = (uint8_t)(0x80 | (v >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (v >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (v & 0x3f));
	return 4;
}

/* One escape, its backslash taken. Each is at least as long as what it stands for. */
static size_t put_escape(struct cursor *c, uint8_t *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	uint8_t b = cursor_u8(c);
	const char *at = b ? strchr(from, b) : NULL;

	if (b == 'u')
		return put_utf8(out, take_code_point(c));
	if (!at) {
		c->bad = true;
		return 0;
	}
	*out = (uint8_t)to[at - from];
	return 1;
}

/* The string's content is data[begin, end), quotes outside. */
static struct slice unescape(struct json *j, size_t begin, size_t end)
{
	struct cursor c = cursor_of(j->c.data, end);
	uint8_t *out;
	size_t n = 0, run;

	if (!j->scratch) {
		j->no_scratch = j->c.bad = true;
		return (struct slice){0};
	}
	out = j->scratch + begin;
	cursor_seek(&c, begin);
	while (cursor_left(&c)) {
		run = string_special(c.data, c.size, c.pos) - c.pos;
		memcpy(out + n, cursor_bytes(&c, run), run);
		n += run;
		if (cursor_left(&c)) {
			cursor_skip(&c, 1);
			n += put_escape(&c, out + n);
		}
	}
	if (c.bad) {
		j->c.bad = true;
		return (struct slice){0};
	}
	return (struct slice){.p = (const char *)out, .n = (uint32_t)n};
}

struct slice json_string(struct json *j)
{
	struct cursor *c = &j->c;
	size_t begin, end;

	if (take_null(j))
		return (struct slice){0};
	if (peek(j) != '"') {
		c->bad = true;
		return (struct slice){0};
	}
	begin = c->pos + 1;
	end = string_special(c->data, c->size, begin);
	if (end < c->size && c->data[end] == '"') {
		c->pos = end + 1;
		return (struct slice){(const char *)c->data + begin, (uint32_t)(end - begin)};
	}
	skip_string(j);
	if (c->bad)
		return (struct slice){0};
	return unescape(j, begin, c->pos - 1);
}

int64_t json_int(struct json *j)
{
	struct cursor *c = &j->c;
	bool negative;
	uint64_t v = 0;
	size_t digits = 0;

	if (take_null(j))
		return 0;
	negative = peek(j) == '-';
	if (negative)
		cursor_skip(c, 1);
	for (; cursor_left(c) && c->data[c->pos] >= '0' && c->data[c->pos] <= '9'; digits++)
		v = v * 10 + (uint64_t)(cursor_u8(c) - '0');
	/* 19 digits fit into 64 bits, and may be more than a signed number holds. */
	if (digits == 0 || digits > 19 || v > (uint64_t)INT64_MAX) {
		c->bad = true;
		return 0;
	}
	return negative ? -(int64_t)v : (int64_t)v;
}

bool json_bool(struct json *j)
{
	switch (json_peek(j)) {
	case JSON_NULL:
		take_literal(j, "null");
		return false;
	case JSON_BOOL:
		if (j->c.data[j->c.pos] == 't')
			return take_literal(j, "true");
		take_literal(j, "false");
		return false;
	default:
		j->c.bad = true;
		return false;
	}
}
