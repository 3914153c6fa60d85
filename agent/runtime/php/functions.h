/* SPDX-License-Identifier: Apache-2.0 */
/* Names of functions and methods, which have a zend_function that lasts. Loop thread. */
#pragma once

#include "agent/runtime/php/strings.h"

/*
 * The function of the PHP_FUNCTION frame WORDS. *RET_LASTS: it is known by the text of its name.
 * -EFAULT: another is there by now.
 */
int php_name_function(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts);
/* The same of a PHP_BORROWED frame. */
int php_name_borrowed(const struct php_process *p, const struct target_memory *memory,
		      const uint64_t words[2], struct php_room *room, struct runtime_function *ret,
		      bool *ret_lasts);
