/* SPDX-License-Identifier: Apache-2.0 */
/* Names of functions and methods, whose zend_function is not freed with its object or file. Loop
 * thread. */
#pragma once

#include "agent/runtime/php/strings.h"

/*
 * Describes the function of the PHP_FUNCTION frame WORDS. *RET_LASTS: the cookie identifies it well
 * enough to keep the result for other frames. -EFAULT: the function has been replaced by another.
 */
int php_name_function(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts);
/* The same for a PHP_BORROWED frame. */
int php_name_borrowed(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts);
