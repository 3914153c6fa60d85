/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes names readable: converts the JVM's modified UTF-8 to UTF-8, cuts off what differs from run
 * to run of a program, and undoes the mangling of the Scala, Kotlin and Clojure compilers. The name
 * of the source file tells the language. Mangling is undone only where no name in source code looks
 * like a mangled one. Any thread; pure.
 */
#include "agent/runtime/hotspot/hotspot.h"

enum { KOTLIN_HASH = 7 }; /* characters */

/* ---- modified UTF-8 --------------------------------------------------------------------------
 */

static bool is_continuation(uint8_t c)
{
	return (c & 0xc0) == 0x80;
}

/*
 * Converts the character at C, of which LEFT bytes may be read, to UTF-8 in OUT. Returns its length
 * in OUT; *RET is its length at C.
 */
static size_t read_character(const uint8_t *c, size_t left, uint8_t out[4], size_t *ret)
{
	*ret = 1;
	out[0] = '?';
	if (c[0] && c[0] < 0x80) {
		out[0] = c[0];
		return 1;
	}
	/* A character beyond 0xffff is two halves of three bytes each. */
	if (left >= 6 && c[0] == 0xed && (c[1] & 0xf0) == 0xa0 && c[3] == 0xed &&
	    (c[4] & 0xf0) == 0xb0 && is_continuation(c[2]) && is_continuation(c[5])) {
		uint32_t v = 0x10000 + ((c[1] & 0xfU) << 16 | (c[2] & 0x3fU) << 10 |
					(c[4] & 0xfU) << 6 | (c[5] & 0x3fU));

		out[0] = (uint8_t)(0xf0 | v >> 18);
		out[1] = (uint8_t)(0x80 | (v >> 12 & 0x3f));
		out[2] = (uint8_t)(0x80 | (v >> 6 & 0x3f));
		out[3] = (uint8_t)(0x80 | (v & 0x3f));
		*ret = 6;
		return 4;
	}
	if (left >= 2 && c[0] > 0xc1 && c[0] < 0xe0 && is_continuation(c[1])) {
		memcpy(out, c, *ret = 2);
		return 2;
	}
	if (left >= 3 && (c[0] & 0xf0) == 0xe0 && is_continuation(c[1]) && is_continuation(c[2]) &&
	    !(c[0] == 0xed && c[1] >= 0xa0) && !(c[0] == 0xe0 && c[1] < 0xa0)) {
		memcpy(out, c, *ret = 3);
		return 3;
	}
	return 1;
}

void hotspot_text_put(struct hotspot_text *t, const void *bytes, size_t n)
{
	if (n >= t->left)
		n = t->left - 1;
	memcpy(t->at, bytes, n);
	t->at += n;
	t->left -= n;
}

void hotspot_text_put_name(struct hotspot_text *t, const uint8_t *s, size_t n, bool is_class)
{
	for (size_t i = 0; i < n;) {
		uint8_t out[4];
		size_t size, length = read_character(s + i, n - i, out, &size);

		if (length >= t->left)
			return;
		if (is_class && out[0] == '/')
			out[0] = '.';
		hotspot_text_put(t, out, length);
		i += size;
	}
}

const char *hotspot_text_end(struct hotspot_text *t, const char *start)
{
	*t->at++ = 0;
	t->left--;
	return start;
}

/* ---- classes ---------------------------------------------------------------------------------
 */

size_t hotspot_class_shown(const uint8_t *s, size_t n)
{
	static const char lambda[] = "$$Lambda";
	const size_t size = sizeof(lambda) - 1;

	for (size_t i = 0; i + 2 < n; i++)
		if (s[i] == '+' && s[i + 1] == '0' && s[i + 2] == 'x')
			n = i;
	for (size_t i = 0; i + size < n; i++) {
		size_t end = i + size + 1;

		if (!same_bytes(s + i, lambda, size) || s[i + size] != '$')
			continue;
		while (end < n && s[end] >= '0' && s[end] <= '9')
			end++;
		if (end == n)
			return i + size;
	}
	return n;
}

/* ---- languages -------------------------------------------------------------------------------
 */

struct word {
	const char *from;
	char to;
};

/* scala.reflect.NameTransformer (Scala 2.13, 3) */
static const struct word scala[] = {
    {"$tilde", '~'},   {"$eq", '='},	  {"$less", '<'}, {"$greater", '>'}, {"$bang", '!'},
    {"$hash", '#'},    {"$percent", '%'}, {"$up", '^'},	  {"$amp", '&'},     {"$bar", '|'},
    {"$times", '*'},   {"$div", '/'},	  {"$plus", '+'}, {"$minus", '-'},   {"$colon", ':'},
    {"$bslash", '\\'}, {"$qmark", '?'},	  {"$at", '@'},
};

/* clojure.lang.Compiler.CHAR_MAP (Clojure 1.11), but '_' is not undone: the source may have it. */
static const struct word clojure[] = {
    {"_COLON_", ':'},	  {"_PLUS_", '+'},	   {"_GT_", '>'},      {"_LT_", '<'},
    {"_EQ_", '='},	  {"_TILDE_", '~'},	   {"_BANG_", '!'},    {"_CIRCA_", '@'},
    {"_SHARP_", '#'},	  {"_SINGLEQUOTE_", '\''}, {"_PERCENT_", '%'}, {"_CARET_", '^'},
    {"_AMPERSAND_", '&'}, {"_STAR_", '*'},	   {"_BAR_", '|'},     {"_QMARK_", '?'},
    {"_SLASH_", '/'},	  {"_BSLASH_", '\\'},
};

static bool is_file_of(const char *file, const char *ending)
{
	size_t n = strlen(file), m = strlen(ending);

	return n > m && streq(file + n - m, ending);
}

/* Does a word of letters go on at S? "$up" must not match "$update". */
static bool goes_on(const char *s)
{
	return *s >= 'a' && *s <= 'z';
}

static void replace(char *name, const struct word *words, size_t n)
{
	char *to = name;

	for (const char *from = name; *from;) {
		const struct word *found = NULL;

		for (size_t i = 0; i < n && !found && (*from == '$' || *from == '_'); i++)
			if (has_prefix(from, words[i].from) &&
			    !(*from == '$' && goes_on(from + strlen(words[i].from))))
				found = &words[i];
		*to++ = found ? found->to : *from;
		from += found ? strlen(found->from) : 1;
	}
	*to = 0;
}

/* A method with parameters of value classes has a hash of their types behind a '-', in base64
 * (Kotlin 1.4.30 on, "mangling" of inline classes). A name in backquotes may have a '-', too. */
static void cut_kotlin_hash(char *name)
{
	size_t n = strlen(name);
	bool is_hash = false;

	if (n <= KOTLIN_HASH + 1 || name[n - KOTLIN_HASH - 1] != '-')
		return;
	for (size_t i = n - KOTLIN_HASH; i < n; i++) {
		char c = name[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') &&
		    c != '_' && c != '-')
			return;
		is_hash |= !(c >= 'a' && c <= 'z');
	}
	if (is_hash)
		name[n - KOTLIN_HASH - 1] = 0;
}

void hotspot_name_demangle(char *name, const char *file)
{
	if (is_file_of(file, ".scala"))
		replace(name, scala, ARRAY_SIZE(scala));
	else if (is_file_of(file, ".clj") || is_file_of(file, ".cljc"))
		replace(name, clojure, ARRAY_SIZE(clojure));
	else if (is_file_of(file, ".kt"))
		cut_kotlin_hash(name);
}
