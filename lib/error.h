/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct error: why something failed, in words for the user.
 *
 * Made where the cause is known, given a path (file:line, a configuration path, a file name) by the
 * callers that know it, printed once at the top. Functions that take one still return a negative
 * errno; the error is only text. Every function accepts a NULL error and then writes nothing.
 */
#pragma once

#include "lib/base.h"

struct error {
	int code;	    /* negative errno, 0 while unset */
	char message[1024]; /* one line, no newline at the end; cut when longer */
};

/* Sets MESSAGE and returns CODE (a negative errno). */
int error_set(struct error *err, int code, const char *format, ...) _printf_(3, 4);

/* Puts "PREFIX: " before the message that is there; returns err->code (or CODE when err is NULL).
 */
int error_wrap(struct error *err, int code, const char *format, ...) _printf_(3, 4);
