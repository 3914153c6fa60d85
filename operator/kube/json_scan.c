/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scanning JSON in memory and in pieces; see the header. A string without a backslash is a slice of
 * the input. One with escapes is written into the scratch at the offset it has in the input: it is
 * never longer there, so strings cannot overlap, and decoding the same object twice writes the same
 * bytes to the same places.
 *
 * Half of a pod's JSON is bookkeeping that nobody reads, so brackets are counted 64 bytes at once,
 * with one bit mask for each byte of interest; a byte is inside a string when the number of quotes
 * before it is odd. A backslash escapes the next byte everywhere: outside of strings it is no JSON
 * anyway. Pure functions, any thread.
 */
#include "operator/kube/json_scan.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

/* The offset after the closing quote of the string that I is in; N when the string does not end. */
static size_t string_end(const uint8_t *p, size_t n, size_t i, bool *closed)
{
	*closed = false;
	while (i < n) {
		i = string_special(p, n, i);
		if (i == n)
			break;
		if (p[i] == '"') {
			*closed = true;
			return i + 1;
		}
		i = MIN(i + 2, n);
	}
	return n;
}

/*
 * Bit I is set where byte I of the 64 is B, once the bits of FOLD are set in it: '[' and '{' differ
 * by 0x20, and so do ']' and '}'. Without loops, which gcc -O2 would leave as they are.
 */
#ifdef __SSE2__
static inline uint64_t mask16(const uint8_t *p, uint8_t b, uint8_t fold)
{
	__m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);

	v = _mm_cmpeq_epi8(_mm_or_si128(v, _mm_set1_epi8((char)fold)), _mm_set1_epi8((char)b));
	return (uint64_t)(uint32_t)_mm_movemask_epi8(v);
}
#else
static inline uint64_t mask8(const uint8_t *p, uint8_t b, uint8_t fold)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	w = (w | ONES * fold) ^ ONES * b;
	/* The high bit of each byte that is 0, exact; then the eight bits side by side. */
	w = ~(((w & ONES * 0x7f) + ONES * 0x7f) | w | ONES * 0x7f);
	return (w >> 7) * 0x0102040810204080ULL >> 56;
}

static inline uint64_t mask16(const uint8_t *p, uint8_t b, uint8_t fold)
{
	return mask8(p, b, fold) | mask8(p + 8, b, fold) << 8;
}
#endif

static inline uint64_t mask64(const uint8_t *p, uint8_t b, uint8_t fold)
{
	return mask16(p, b, fold) | mask16(p + 16, b, fold) << 16 | mask16(p + 32, b, fold) << 32 |
	       mask16(p + 48, b, fold) << 48;
}

/* Each bit of the result is the parity of the bits of V up to it. */
static inline uint64_t parities(uint64_t v)
{
	v ^= v << 1;
	v ^= v << 2;
	v ^= v << 4;
	v ^= v << 8;
	v ^= v << 16;
	return v ^ v << 32;
}

/* Marks those of the 64 bytes that follow an unescaped backslash. */
static uint64_t escaped_bytes(struct json_cut *k, uint64_t backslashes)
{
	uint64_t escaped = k->backslash;

	k->any_backslash |= backslashes != 0;
	backslashes &= ~escaped;
	k->backslash = false;
	while (backslashes) {
		uint64_t bit = backslashes & -backslashes;

		escaped |= bit << 1;
		k->backslash = bit >> 63;
		backslashes &= ~(bit | bit << 1);
	}
	return escaped;
}

static unsigned int count_bits(uint64_t v)
{
	v -= v >> 1 & 0x5555555555555555ULL;
	v = (v & 0x3333333333333333ULL) + (v >> 2 & 0x3333333333333333ULL);
	return (unsigned int)(((v + (v >> 4)) & ONES * 0x0f) * ONES >> 56);
}

/* 64 bytes at once; returns how many were taken, fewer when depth came to 0. */
static size_t cut_block(struct json_cut *k, const uint8_t *p)
{
	uint64_t backslashes = mask64(p, '\\', 0), quotes = mask64(p, '"', 0);
	uint64_t opens = mask64(p, '{', 0x20), closes = mask64(p, '}', 0x20);
	uint64_t escaped = 0, inside, brackets;
	unsigned int n_closes;

	if (backslashes || k->backslash) {
		escaped = escaped_bytes(k, backslashes);
		quotes &= ~escaped;
	}
	/* From an opening quote to before its closing one. */
	inside = parities(quotes);
	if (k->in_string)
		inside = ~inside;
	k->in_string = inside >> 63;
	opens &= ~inside & ~escaped;
	closes &= ~inside & ~escaped;
	n_closes = count_bits(closes);
	if (k->depth > n_closes) { /* depth cannot reach 0, in any order */
		k->depth += count_bits(opens) - n_closes;
		return 64;
	}
	for (brackets = opens | closes; brackets; brackets &= brackets - 1) {
		if (opens & brackets & -brackets) {
			k->depth++;
		} else if (k->depth <= 1) {
			k->depth = 0;
			k->in_string = k->backslash = false;
			return (size_t)__builtin_ctzll(brackets) + 1;
		} else {
			k->depth--;
		}
	}
	return 64;
}

/* The same for one byte: true when it brought depth to 0. */
static bool cut_byte(struct json_cut *k, uint8_t b)
{
	if (k->backslash) {
		k->backslash = false;
	} else if (b == '\\') {
		k->backslash = k->any_backslash = true;
	} else if (b == '"') {
		k->in_string = !k->in_string;
	} else if (k->in_string) {
		return false;
	} else if ((b | 0x20) == '{') {
		k->depth++;
	} else if ((b | 0x20) == '}') {
		k->depth -= k->depth > 0;
		return k->depth == 0;
	}
	return false;
}

size_t json_cut(struct json_cut *k, const uint8_t *p, size_t n)
{
	size_t i = 0, taken;

	for (; n - i >= 64; i += 64) {
		taken = cut_block(k, p + i);
		if (taken < 64 || k->depth == 0)
			return i + taken;
	}
	while (i < n) {
		if (cut_byte(k, p[i++]))
			break;
	}
	return i;
}

static bool is_blank(uint8_t b)
{
	return b == ' ' || b == '\n' || b == '\t' || b == '\r';
}

static uint8_t peek_past_blanks(struct json *j)
{
	struct cursor *c = &j->c;

	while (cursor_left(c) && is_blank(c->data[c->pos]))
		c->pos++;
	if (cursor_left(c))
		return c->data[c->pos];
	c->bad = true;
	return 0;
}

/* The next byte that is not blank, not taken; 0 (and bad) at the end. */
static inline uint8_t peek(struct json *j)
{
	const struct cursor *c = &j->c;

	if (cursor_left(c) && c->data[c->pos] > ' ')
		return c->data[c->pos];
	return peek_past_blanks(j);
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
		j->first = false; /* the enclosing one has had an element */
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
	bool closed;
	size_t end = string_end(c->data, c->size, c->pos + 1, &closed);

	if (closed)
		c->pos = end;
	else
		c->bad = true;
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

/* Decodes one escape after its backslash. The result is never longer than the escape. */
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

	if (peek(j) != '"') {
		c->bad |= !take_null(j);
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
