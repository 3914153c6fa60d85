/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Walks the toy's frames. A native frame of toy_run() stands for the calls made since toy_run() was
 * entered: its group of frames ends with the call that it was entered with. A native frame of
 * compiled code stands for one call.
 */
#pragma once

#include "walker_data.h"

/* Of w->cursor. */
enum { TOY_STARTED, TOY_NEXT };

KILN_GLOBAL int toy_walk(uint32_t slot)
{
	struct kiln_walk *w = env_walk(slot);
	const struct kiln_toy *toy;
	struct toy_call call = {};
	uint64_t at = 0;

	if (!w)
		return 0;
	toy = (const struct kiln_toy *)w->runtime.data;
	if (w->regs.pc >= toy->bundle.start && w->regs.pc < toy->bundle.end) {
		(void)walk_emit(w, 0, toy->bundle.function, toy->bundle.line);
		w->hide_native = 1;
		return 0;
	}
	if (w->cursor.words[TOY_STARTED])
		at = w->cursor.words[TOY_NEXT];
	else if (env_read(&at, sizeof(at), toy->top))
		walk_missing(w, KILN_MISSING_READ);
	w->cursor.words[TOY_STARTED] = 1;
	for (int i = 0; i < TOY_CALLS_MAX && at; i++) {
		if (env_read(&call, sizeof(call), at)) {
			walk_missing(w, KILN_MISSING_READ);
			at = 0;
			break;
		}
		if (walk_emit(w, 0, call.function, call.line))
			break;
		at = call.caller;
		if (call.entered)
			break;
	}
	w->cursor.words[TOY_NEXT] = at;
	return 0;
}
