/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict values from text. Nothing here allocates or depends on the locale; all functions are pure
 * and may run on any thread. Fractions of durations and sizes are carried as integers over a power
 * of ten, so that "1.5s" is exact and overflow is seen, never wrapped.
 */
#include "lib/parse.h"

#include <limits.h>
#include <locale.h>
#include <math.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int hex_value(char c)
{
	if (is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int parse_u64(const char *s, uint64_t *ret)
{
	unsigned int base = 10;
	uint64_t v = 0;

	if (s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) {
		base = 16;
		s += 2;
	} else if (s[0] == '0' && s[1]) {
		return -EINVAL; /* octal to some readers, decimal to others */
	}
	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		int d = hex_value(*s);

		if (d < 0 || (unsigned int)d >= base)
			return -EINVAL;
		if (__builtin_mul_overflow(v, base, &v) ||
		    __builtin_add_overflow(v, (uint64_t)d, &v))
			return -ERANGE;
	}
	*ret = v;
	return 0;
}

int parse_i64(const char *s, int64_t *ret)
{
	bool negative = *s == '-';
	uint64_t v;
	int r = parse_u64(s + negative, &v);

	if (r < 0)
		return r;
	if (v > (uint64_t)INT64_MAX + negative)
		return -ERANGE;
	*ret = negative ? (int64_t)(0 - v) : (int64_t)v;
	return 0;
}

int parse_double(const char *s, double *ret)
{
	static locale_t c_locale;
	const char *p = s;
	bool digits = false;
	char *end;
	double v;

	/* The form first: strtod also takes blanks, "inf", "nan" and hexadecimal fractions. */
	if (*p == '-' || *p == '+')
		p++;
	for (; is_digit(*p); p++)
		digits = true;
	if (*p == '.')
		for (p++; is_digit(*p); p++)
			digits = true;
	if (!digits)
		return -EINVAL;
	if (*p == 'e' || *p == 'E') {
		p += p[1] == '-' || p[1] == '+' ? 2 : 1;
		if (!is_digit(*p))
			return -EINVAL;
		while (is_digit(*p))
			p++;
	}
	if (*p)
		return -EINVAL;
	if (!c_locale)
		c_locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	if (!c_locale)
		return -ENOMEM;
	v = strtod_l(s, &end, c_locale);
	if (*end)
		return -EINVAL;
	if (!isfinite(v))
		return -ERANGE;
	*ret = v;
	return 0;
}

int parse_bool(const char *s, bool *ret)
{
	if (streq(s, "true") || streq(s, "True") || streq(s, "TRUE"))
		*ret = true;
	else if (streq(s, "false") || streq(s, "False") || streq(s, "FALSE"))
		*ret = false;
	else
		return -EINVAL;
	return 0;
}

/* "12.34" at *S times UNIT, rounded down; *S moves behind it. Digits past the ninth are checked
 * only. */
static int parse_scaled(const char **s, uint64_t *ret_whole, uint64_t *ret_fraction,
			uint64_t *ret_scale)
{
	uint64_t whole = 0, fraction = 0, scale = 1;
	const char *p = *s;
	bool digits = false;

	for (; is_digit(*p); p++) {
		digits = true;
		if (__builtin_mul_overflow(whole, 10, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
			return -ERANGE;
	}
	if (*p == '.') {
		for (p++; is_digit(*p); p++) {
			digits = true;
			if (scale < 1000000000) {
				fraction = fraction * 10 + (uint64_t)(*p - '0');
				scale *= 10;
			}
		}
	}
	if (!digits)
		return -EINVAL;
	*s = p;
	*ret_whole = whole;
	*ret_fraction = fraction;
	*ret_scale = scale;
	return 0;
}

static int scaled_value(uint64_t whole, uint64_t fraction, uint64_t scale, uint64_t unit,
			uint64_t *ret)
{
	uint64_t v, part = (uint64_t)((unsigned __int128)fraction * unit / scale);

	if (__builtin_mul_overflow(whole, unit, &v) || __builtin_add_overflow(v, part, &v))
		return -ERANGE;
	*ret = v;
	return 0;
}

int parse_duration(const char *s, uint64_t *ret_ns)
{
	static const struct {
		const char *name;
		uint64_t ns;
	} units[] = {
	    /* longer names first: "ms" before "m" */
	    {"ns", 1},		 {"us", 1000},	    {"\xc2\xb5s", 1000}, /* U+00B5 */
	    {"\xce\xbcs", 1000},					 /* U+03BC */
	    {"ms", 1000000},	 {"s", 1000000000}, {"m", 60000000000},	 {"h", 3600000000000},
	};
	uint64_t total = 0;

	if (streq(s, "0")) {
		*ret_ns = 0;
		return 0;
	}
	if (!*s)
		return -EINVAL;
	while (*s) {
		uint64_t whole, fraction, scale, v;
		size_t u;
		int r = parse_scaled(&s, &whole, &fraction, &scale);

		if (r < 0)
			return r;
		for (u = 0; u < ARRAY_SIZE(units) && !has_prefix(s, units[u].name); u++)
			;
		if (u == ARRAY_SIZE(units))
			return -EINVAL;
		s += strlen(units[u].name);
		r = scaled_value(whole, fraction, scale, units[u].ns, &v);
		if (r < 0)
			return r;
		/* Go keeps durations in an int64. */
		if (__builtin_add_overflow(total, v, &total) || total > INT64_MAX)
			return -ERANGE;
	}
	*ret_ns = total;
	return 0;
}

int parse_size(const char *s, uint64_t *ret_bytes)
{
	static const struct {
		const char *name;
		uint64_t bytes;
	} units[] = {
	    {"", 1},
	    {"B", 1},
	    {"KiB", 1ULL << 10},
	    {"Ki", 1ULL << 10},
	    {"MiB", 1ULL << 20},
	    {"Mi", 1ULL << 20},
	    {"GiB", 1ULL << 30},
	    {"Gi", 1ULL << 30},
	    {"TiB", 1ULL << 40},
	    {"Ti", 1ULL << 40},
	    {"kB", 1000},
	    {"KB", 1000},
	    {"k", 1000},
	    {"K", 1000},
	    {"MB", 1000000},
	    {"M", 1000000},
	    {"GB", 1000000000},
	    {"G", 1000000000},
	    {"TB", 1000000000000},
	    {"T", 1000000000000},
	};
	uint64_t whole, fraction, scale;
	int r = parse_scaled(&s, &whole, &fraction, &scale);

	if (r < 0)
		return r;
	if (*s == ' ' && s[1])
		s++;
	for (size_t u = 0; u < ARRAY_SIZE(units); u++)
		if (streq(s, units[u].name))
			return scaled_value(whole, fraction, scale, units[u].bytes, ret_bytes);
	return -EINVAL;
}

/* True for a character of a host name or address; ':' and '%' only between brackets. */
static bool host_char(char c, bool brackets)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
	       c == '-' || c == '_' || (brackets && (c == ':' || c == '%'));
}

int parse_host_port(const char *s, struct host_port *ret)
{
	bool brackets = *s == '[';
	const char *end, *host = s + brackets;
	struct host_port v = {.host = ""};
	uint64_t port;
	int r;

	end = strchr(host, brackets ? ']' : ':');
	if (!end || end - host > PARSE_HOST_MAX || (brackets && (end == host || end[1] != ':')))
		return -EINVAL;
	for (const char *p = host; p < end; p++)
		if (!host_char(*p, brackets))
			return -EINVAL;
	if (brackets && !memchr(host, ':', (size_t)(end - host)))
		return -EINVAL;
	memcpy(v.host, host, (size_t)(end - host));
	r = parse_u64(end + 1 + brackets, &port);
	if (r < 0)
		return r;
	if (port > UINT16_MAX)
		return -ERANGE;
	v.port = (uint16_t)port;
	*ret = v;
	return 0;
}

int parse_percent_decode(char *s)
{
	char *out = s;

	/* Checked as a whole first: S is untouched on failure. */
	for (const char *p = s; *p; p++) {
		if (*p != '%')
			continue;
		if (hex_value(p[1]) < 0 || hex_value(p[2]) < 0 || (p[1] == '0' && p[2] == '0'))
			return -EINVAL;
		p += 2;
	}
	for (; *s; s++) {
		if (*s == '%') {
			*out++ = (char)(hex_value(s[1]) * 16 + hex_value(s[2]));
			s += 2;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
	return 0;
}

enum { NAME_MAX_COMPARED = 64 };

static size_t fold_name(const char *s, char out[NAME_MAX_COMPARED])
{
	size_t n = 0;

	for (; *s && n < NAME_MAX_COMPARED; s++)
		if (*s != '_')
			out[n++] = *s >= 'A' && *s <= 'Z' ? (char)(*s + 32) : *s;
	return n;
}

unsigned int parse_edit_distance(const char *a, const char *b)
{
	char x[NAME_MAX_COMPARED], y[NAME_MAX_COMPARED];
	size_t n = fold_name(a, x), m = fold_name(b, y);
	/* Three rows of the table of optimal string alignment: i-2, i-1, i. */
	unsigned int rows[3][NAME_MAX_COMPARED + 1];
	unsigned int *before = rows[0], *above = rows[1], *row = rows[2], *spare;

	for (size_t j = 0; j <= m; j++)
		above[j] = (unsigned int)j;
	for (size_t i = 1; i <= n; i++) {
		row[0] = (unsigned int)i;
		for (size_t j = 1; j <= m; j++) {
			unsigned int v = above[j - 1] + (x[i - 1] != y[j - 1]);

			v = MIN(v, MIN(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1])
				v = MIN(v, before[j - 2] + 1);
			row[j] = v;
		}
		spare = before;
		before = above;
		above = row;
		row = spare;
	}
	return above[m];
}

bool parse_same_name(const char *a, const char *b)
{
	for (;; a++, b++) {
		char x, y;

		while (*a == '_')
			a++;
		while (*b == '_')
			b++;
		x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a;
		y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
		if (x != y)
			return false;
		if (!x)
			return true;
	}
}

void parse_make_printable(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			*s = '?';
}
