/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes quantities (apimachinery, pkg/api/resource, "Serialization Format"): a decimal number
 * with a suffix of powers of 1000 or 1024, or an exponent. The API server writes them back in a
 * form of its own ("0.1" as "100m"), so they are compared by value, exactly: as a product of powers
 * of 2 and 5 and what remains. Pure; any thread.
 */
#include "operator/render/internal.h"

#include "lib/parse.h"

static const struct suffix {
	const char *text;
	int ten, two;
} suffixes[] = {
    {"", 0, 0},	   {"n", -9, 0},  {"u", -6, 0},	 {"m", -3, 0},	{"k", 3, 0},   {"M", 6, 0},
    {"G", 9, 0},   {"T", 12, 0},  {"P", 15, 0},	 {"E", 18, 0},	{"Ki", 0, 10}, {"Mi", 0, 20},
    {"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {"Ei", 0, 60},
};

static int parse_suffix(const char *text, int *ret_ten, int *ret_two)
{
	int64_t exponent;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (!streq(suffixes[i].text, text))
			continue;
		*ret_ten = suffixes[i].ten;
		*ret_two = suffixes[i].two;
		return 0;
	}
	if (*text != 'e' && *text != 'E')
		return -EINVAL;
	text += text[1] == '+' ? 2 : 1;
	if (parse_i64(text, &exponent) < 0 || exponent < -64 || exponent > 64)
		return -EINVAL;
	*ret_ten = (int)exponent;
	*ret_two = 0;
	return 0;
}

int quantity_parse(const char *text, struct quantity *ret)
{
	struct quantity q = {.negative = *text == '-'};
	int ten, two, digits = 0;
	bool fraction = false;

	if (*text == '-' || *text == '+')
		text++;
	for (; (*text >= '0' && *text <= '9') || (*text == '.' && !fraction); text++) {
		if (*text == '.') {
			fraction = true;
			continue;
		}
		if (q.m > (UINT64_MAX - 9) / 10)
			return -ERANGE;
		q.m = q.m * 10 + (uint64_t)(*text - '0');
		q.a -= fraction;
		q.b -= fraction;
		digits++;
	}
	if (!digits || parse_suffix(text, &ten, &two) < 0)
		return -EINVAL;
	if (!q.m) {
		*ret = (struct quantity){0};
		return 0;
	}
	q.a += ten + two;
	q.b += ten;
	for (; q.m % 2 == 0; q.m /= 2)
		q.a++;
	for (; q.m % 5 == 0; q.m /= 5)
		q.b++;
	*ret = q;
	return 0;
}

bool quantity_equal(const struct quantity *a, const struct quantity *b)
{
	return a->m == b->m && a->a == b->a && a->b == b->b && a->negative == b->negative;
}

double quantity_value(const struct quantity *q)
{
	double v = (double)q->m;

	for (int i = 0; i < q->a; i++)
		v *= 2;
	for (int i = q->a; i < 0; i++)
		v /= 2;
	for (int i = 0; i < q->b; i++)
		v *= 5;
	for (int i = q->b; i < 0; i++)
		v /= 5;
	return q->negative ? -v : v;
}
