/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leveled log lines on standard error: "2026-01-02T15:04:05.123Z level component: text".
 * Any thread may log. Only main, the loop and the owners of a connection log; libraries return
 * errors.
 */
#pragma once

#include "lib/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
void log_line(enum log_level level, const char *component, const char *format, ...) _printf_(3, 4);

#define log_debug(component, ...) log_line(LOG_DEBUG, component, __VA_ARGS__)
#define log_info(component, ...)  log_line(LOG_INFO, component, __VA_ARGS__)
#define log_warn(component, ...)  log_line(LOG_WARN, component, __VA_ARGS__)
#define log_error(component, ...) log_line(LOG_ERROR, component, __VA_ARGS__)

/* log_allowed() is true at most once in INTERVAL_S seconds for each struct log_limit, one per call
 * site; *RET_SUPPRESSED is the number of lines that were held back since the last one. */
struct log_limit {
	uint64_t next_ms;
	unsigned int suppressed;
};
bool log_allowed(struct log_limit *limit, unsigned int interval_s, unsigned int *ret_suppressed);
