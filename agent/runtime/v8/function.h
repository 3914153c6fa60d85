/* SPDX-License-Identifier: Apache-2.0 */
/* A JavaScript function, as its SharedFunctionInfo describes it. */
#pragma once

#include "agent/runtime/v8/object.h"

struct v8_function {
	const char *name;
	uint64_t script; /* 0: none */
	int32_t start;	 /* position of its first word in the script; -1: not known */
};

/* Reads SHARED; the name goes to TEXT. */
int v8_function_read(const struct v8_heap *h, uint64_t shared, struct v8_text *text,
		     struct v8_function *ret);
