// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets of the members of PHP's structures, by version. Releases of one minor version do not
 * change them: extensions are compiled for a minor version (PHP 8.2, Zend/zend_modules.h,
 * ZEND_MODULE_API_NO). All tables are constant.
 *
 * The offsets of 7.4.33, 8.2.32, 8.4.27, 8.5.7 and 8.6.0RC3 are those that a compiler gives with
 * the headers of Debian's php-dev packages: Zend/zend_globals.h (struct _zend_executor_globals),
 * Zend/zend_compile.h (struct _zend_op_array), Zend/zend_generators.h, Zend/zend_fibers.h.
 *
 * zend_execute_data, zend_op, zend_string, the head of zend_function and the name of
 * zend_class_entry are the same in all of them, so they are constants of walker.h and php.h.
 */
#include "agent/runtime/php/php.h"

static const struct php_layout layouts[] = {
    {
	.version = 704,
	.current = 488,
	.included_files = 360,
	.function_table = 432,
	.class_table = 440,
	.class_functions = 64,
	.before_exception = 880,
	.exception_op = 888,
	.last = 60,
	.opcodes = 64,
	.filename = 136,
	.generator_frame = 64,
	.generator_parent = 160,
	.generator_fake = 200,
    },
    {
	.version = 802,
	.current = 488,
	.included_files = 360,
	.function_table = 432,
	.class_table = 440,
	.class_functions = 64,
	.before_exception = 880,
	.exception_op = 888,
	.main_context = 1664,
	.current_context = 1672,
	.last = 80,
	.opcodes = 88,
	.filename = 152,
	.generator_frame = 56,
	.generator_parent = 152,
	.generator_fake = 184,
	.fiber_context = 64,
	.fiber_caller = 168,
    },
    {
	.version = 804,
	.current = 488,
	.included_files = 360,
	.function_table = 432,
	.class_table = 440,
	.class_functions = 64,
	.before_exception = 952,
	.exception_op = 960,
	.main_context = 1736,
	.current_context = 1744,
	.last = 96,
	.opcodes = 104,
	.filename = 168,
	.generator_frame = 56,
	.generator_parent = 152,
	.generator_fake = 184,
	.fiber_context = 64,
	.fiber_caller = 168,
    },
    {
	.version = 805,
	.current = 512,
	.included_files = 360,
	.function_table = 456,
	.class_table = 464,
	.class_functions = 64,
	.before_exception = 976,
	.exception_op = 984,
	.main_context = 1760,
	.current_context = 1768,
	.last = 96,
	.opcodes = 104,
	.filename = 168,
	.generator_frame = 56,
	.generator_parent = 152,
	.generator_fake = 184,
	.fiber_context = 64,
	.fiber_caller = 168,
    },
    {
	.version = 806,
	.current = 512,
	.included_files = 360,
	.function_table = 456,
	.class_table = 464,
	.class_functions = 72,
	.before_exception = 1016,
	.exception_op = 1024,
	.main_context = 1800,
	.current_context = 1808,
	.last = 96,
	.opcodes = 104,
	.filename = 168,
	.generator_frame = 56,
	.generator_parent = 152,
	.generator_fake = 184,
	.fiber_context = 64,
	.fiber_caller = 168,
    },
};

const struct php_layout *php_layout_of(uint32_t version)
{
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
		if (layouts[i].version == version)
			return &layouts[i];
	return NULL;
}
