/* SPDX-License-Identifier: Apache-2.0 */
/* One write(2) per line, so that lines of several threads never mix. */
#include "lib/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <time.h>

static atomic_int log_threshold = LOG_INFO;

void log_set_level(enum log_level level)
{
	atomic_store(&log_threshold, level);
}

enum log_level log_get_level(void)
{
	return atomic_load(&log_threshold);
}

void log_line(enum log_level level, const char *component, const char *format, ...)
{
	static const char *const names[] = {"debug", "info", "warn", "error"};
	char line[2048];
	struct timespec now;
	struct tm tm;
	size_t n;
	int len;
	va_list ap;

	if ((int)level < atomic_load(&log_threshold))
		return;
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	len = snprintf(line + n, sizeof(line) - n, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
		       names[level], component);
	n += (size_t)len;
	va_start(ap, format);
	len = vsnprintf(line + n, sizeof(line) - n - 1, format, ap);
	va_end(ap);
	if (len < 0)
		return;
	n = MIN(n + (size_t)len, sizeof(line) - 2);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nowhere left to say so */
}

bool log_allowed(struct log_limit *limit, unsigned int interval_s, unsigned int *ret_suppressed)
{
	struct timespec now;
	uint64_t ms;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	if (ms < limit->next_ms) {
		limit->suppressed++;
		return false;
	}
	limit->next_ms = ms + interval_s * 1000ULL;
	if (ret_suppressed)
		*ret_suppressed = limit->suppressed;
	limit->suppressed = 0;
	return true;
}
