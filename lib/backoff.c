/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits between attempts. The wait grows as a double and is capped before it is spread, so that no
 * number of failures overflows it; the spread may go above max_ms, as in the Collector.
 */
#include "lib/backoff.h"

#include <time.h>

enum { RETRY_AFTER_DIGITS_MAX = 10 };

void backoff_init(struct backoff *b, const struct backoff_options *options)
{
	*b = (struct backoff){.options = *options};
	if (!(b->options.multiplier >= 1.0))
		b->options.multiplier = 1.0;
	if (!(b->options.randomization >= 0.0))
		b->options.randomization = 0.0;
	if (b->options.randomization > 1.0)
		b->options.randomization = 1.0;
	backoff_reset(b);
}

void backoff_reset(struct backoff *b)
{
	b->next_ms = (double)b->options.initial_ms;
	b->elapsed_ms = 0;
	b->failures = 0;
}

int backoff_next(struct backoff *b, bool counts, uint64_t spent_ms, uint64_t floor_ms,
		 double random, uint64_t *ret_ms)
{
	const struct backoff_options *o = &b->options;
	double wait = MIN(b->next_ms, (double)o->max_ms), r = o->randomization;
	uint64_t ms;

	wait *= 1.0 - r + 2.0 * r * random;
	ms = MAX((uint64_t)wait, floor_ms);
	if (counts) {
		b->elapsed_ms += spent_ms;
		if (o->max_elapsed_ms && b->elapsed_ms + ms > o->max_elapsed_ms)
			return -ETIME;
		b->elapsed_ms += ms;
	}
	b->failures++;
	b->next_ms = MIN(b->next_ms * o->multiplier, (double)o->max_ms);
	*ret_ms = ms;
	return 0;
}

int retry_after_parse(const char *text, int64_t now_unix_s, uint64_t *ret_ms)
{
	/* IMF-fixdate, RFC 850, asctime: RFC 9110 §5.6.7 */
	static const char *const forms[] = {"%a, %d %b %Y %H:%M:%S GMT",
					    "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"};
	size_t digits, i;
	const char *end;
	struct tm tm;
	int64_t at;

	text += strspn(text, " \t");
	digits = strspn(text, "0123456789");
	if (digits > 0) {
		end = text + digits;
		if (digits > RETRY_AFTER_DIGITS_MAX || end[strspn(end, " \t\r\n")])
			return -EINVAL;
		*ret_ms = strtoull(text, NULL, 10) * 1000;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(forms); i++) {
		tm = (struct tm){0};
		end = strptime(text, forms[i], &tm);
		if (!end || end[strspn(end, " \t\r\n")])
			continue;
		at = timegm(&tm);
		*ret_ms = at > now_unix_s ? (uint64_t)(at - now_unix_s) * 1000 : 0;
		return 0;
	}
	return -EINVAL;
}
