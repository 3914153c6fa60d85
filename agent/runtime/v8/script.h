/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts: their names, and which line a position is on. One struct v8_scripts a process. */
#pragma once

#include "agent/runtime/v8/object.h"

enum {
	V8_SCRIPTS_MAX = 32,	       /* scripts whose lines are kept */
	V8_SCRIPT_LINES_MAX = 1 << 18, /* of one script: lines beyond are not told apart */
	V8_LINES_MAX = 1 << 18,	       /* of all scripts of a process: 1 MiB */
};

/* Where the lines of one script end. */
struct v8_lines {
	uint64_t script, source; /* that the lines belong to; both objects may move */
	uint32_t length;
	uint32_t offset; /* lines before the script in the page that contains it */
	uint32_t *ends;	 /* position of each line's last character */
	uint32_t n;
	uint64_t number; /* an id that no other lines have, of any process; never 0 */
	uint64_t used;
};

struct v8_scripts {
	struct v8_lines lines[V8_SCRIPTS_MAX];
	size_t n;     /* line ends of all scripts together */
	uint64_t now; /* grows with every use */
};

void v8_scripts_done(struct v8_scripts *s);
/*
 * Returns the lines of SCRIPT, which are read when they are not kept; NULL: they cannot be read.
 * Valid until the next call.
 */
const struct v8_lines *v8_script_lines(struct v8_scripts *s, const struct v8_heap *h,
				       uint64_t script);
/* Returns the lines with the id NUMBER; NULL: they are not kept any more. */
const struct v8_lines *v8_lines_numbered(struct v8_scripts *s, uint64_t number);
/* Returns the line of POSITION, from 1 on; 0: not known. LINES may be NULL. */
uint32_t v8_line_at(const struct v8_lines *lines, int32_t position);
/* Puts the script's name into TEXT; a file: URL becomes a path. *RET is "" when it has no name. */
int v8_script_name(const struct v8_heap *h, uint64_t script, struct v8_text *text,
		   const char **ret);
