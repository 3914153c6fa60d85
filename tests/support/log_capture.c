/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/log_capture.h"

#include <stdarg.h>
#include <uv.h>

#include "lib/log.h"

enum { LINES_MAX = 4096, LINE_MAX_BYTES = 1024 };

static char lines[LINES_MAX][LINE_MAX_BYTES]; /* later ones are lost */
static size_t n_lines;
static uv_mutex_t lock;
static uv_once_t once = UV_ONCE_INIT;

static void init(void)
{
	uv_mutex_init(&lock);
}

static void capture_lock(void)
{
	uv_once(&once, init);
	uv_mutex_lock(&lock);
}

void __wrap_log_line(enum log_level level, const char *component, const char *format, ...)
    _printf_(3, 4);

void __wrap_log_line(enum log_level level, const char *component, const char *format, ...)
{
	va_list ap;

	capture_lock();
	if (n_lines < LINES_MAX) {
		va_start(ap, format);
		vsnprintf(lines[n_lines++], LINE_MAX_BYTES, format, ap);
		va_end(ap);
	}
	uv_mutex_unlock(&lock);
}

void log_capture_clear(void)
{
	capture_lock();
	n_lines = 0;
	uv_mutex_unlock(&lock);
}

size_t log_capture_count(const char *words)
{
	size_t n = 0;

	capture_lock();
	for (size_t i = 0; i < n_lines; i++)
		n += strstr(lines[i], words) != NULL;
	uv_mutex_unlock(&lock);
	return n;
}
