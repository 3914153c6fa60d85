/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts: their names, and which line a position is on. One struct v8_scripts a process. */
#pragma once

#include "agent/runtime/v8/object.h"

enum {
	V8_SCRIPTS_MAX = 32,	       /* whose lines are kept */
	V8_SCRIPT_LINES_MAX = 1 << 18, /* of one script: lines beyond are not told apart */
	V8_LINES_MAX = 1 << 18,	       /* of all scripts of a process: 1 MiB */
};

/* Where the lines of one script end. */
struct v8_lines {
	uint64_t script, source; /* whose they are; both may move */
	uint32_t length;
	uint32_t offset; /* lines of the page that the script lies in which come before it */
	uint32_t *ends;	 /* position of each line's last character */
	uint32_t n;
	uint64_t number; /* tells them from all others, of any process; never 0 */
	uint64_t used;
};

struct v8_scripts {
	struct v8_lines lines[V8_SCRIPTS_MAX];
	size_t n;     /* ends of all of them */
	uint64_t now; /* grows with every use */
};

void v8_scripts_done(struct v8_scripts *s);
/*
 * The lines of SCRIPT, read when they are not known; NULL when they cannot be. They hold until the
 * next call.
 */
const struct v8_lines *v8_script_lines(struct v8_scripts *s, const struct v8_heap *h,
				       uint64_t script);
/* The lines of that number, if they are still kept. */
const struct v8_lines *v8_lines_numbered(struct v8_scripts *s, uint64_t number);
/* The line, from 1 on, of POSITION; 0 when it cannot be told. LINES may be NULL. */
uint32_t v8_line_at(const struct v8_lines *lines, int32_t position);
/* The script's name in TEXT, file: URLs as paths; "" when it has none. */
int v8_script_name(const struct v8_heap *h, uint64_t script, struct v8_text *text,
		   const char **ret);
