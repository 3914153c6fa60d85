/* SPDX-License-Identifier: Apache-2.0 */
/* Builds strings from strings of PHP, in the memory for a frame's names. Loop thread. */
#pragma once

#include "agent/runtime/php/php.h"

/* The unused part of the caller's scratch. */
struct php_room {
	char *at;
	size_t size;
};

/* Begins the next string of ROOM, and returns it. */
const char *php_begin(struct php_room *room);
/* Appends TEXT to the string that was begun, which always ends with a NUL. Bytes that do not fit
 * are left out. */
void php_append(struct php_room *room, const char *text);
/* Appends the zend_string at ADDRESS up to a NUL. In names of anonymous classes, the bytes after a
 * NUL only tell the classes apart. */
int php_append_string(const struct target_memory *memory, uint64_t address, struct php_room *room);
void php_end(struct php_room *room);

int php_read_word(const struct target_memory *memory, uint64_t address, uint64_t *ret);
/*
 * The hash of the zend_string at ADDRESS in lower case: names of functions and classes are keys in
 * lower case.
 */
int php_read_key(const struct target_memory *memory, uint64_t address, uint64_t *ret);
