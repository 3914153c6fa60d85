/* SPDX-License-Identifier: Apache-2.0 */
/* Reads strings of PHP into the memory that a frame's name is made in. Loop thread. */
#pragma once

#include "agent/runtime/php/php.h"

/* What is left of the caller's scratch. */
struct php_room {
	char *at;
	size_t size;
};

/* The next string of ROOM begins here. */
const char *php_begin(struct php_room *room);
/* Appends to the string that was begun, which stays one; what does not fit is left out. */
void php_append(struct php_room *room, const char *text);
/* Appends the zend_string at ADDRESS up to a NUL: what is behind that tells classes without a name
 * apart. */
int php_append_string(const struct target_memory *memory, uint64_t address, struct php_room *room);
void php_end(struct php_room *room);

int php_read_word(const struct target_memory *memory, uint64_t address, uint64_t *ret);
/*
 * The hash of the zend_string at ADDRESS in lower case, as which names of functions and classes are
 * keys.
 */
int php_read_key(const struct target_memory *memory, uint64_t address, uint64_t *ret);
