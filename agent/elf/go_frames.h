/* SPDX-License-Identifier: Apache-2.0 */
/* Unwind rows of Go functions, from the function table (gopclntab.h) and a look at their code. */
#pragma once

#include "agent/elf/gopclntab.h"
#include "agent/elf/rows.h"
#include "agent/elf/span.h"

/* Adds a span for every function. */
int go_frames_collect(const struct image *image, const struct gopclntab *t,
		      struct spans *spans) _must_check_;
/* Adds the rows of the function that SPAN names, inside of SPAN. False when it is damaged. */
bool go_frames_execute(const struct image *image, const struct gopclntab *t,
		       const struct span *span, struct rows *rows);
