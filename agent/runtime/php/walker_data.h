/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The data of a PHP process that user space gives to the walker, and the meaning of both words of a
 * frame. The kind of a frame is in its flags:
 *
 * function  first word: the address of its zend_function; second word: the line in the low half,
 *           php_function_cookie() in the high half.
 * method as a value (`$cart->total(...)`)  its zend_function is a copy that is freed with its
 *           object, so the words have the addresses of its name and of its class:
 *           PHP_BORROWED_WORD().
 * closure, file, eval  first word: the address of the string with the file's name; second word:
 *           PHP_PLACE(). A closure's zend_function lies in its object, and that of a file is freed
 *           when the file was run. A closure also has the line where it begins. An eval has the
 *           file that called it, and the line of the call in place of where it begins.
 * regular expression  compiled by PCRE: the address and the second word are 0.
 */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_PHP = 4 }; /* enum kiln_runtime_id */

enum php_kind {
	PHP_FUNCTION,
	PHP_CLOSURE,
	PHP_MAIN,
	PHP_INCLUDE, /* include and require, with and without _once */
	PHP_EVAL,
	PHP_BORROWED,
	PHP_REGEX,
};

enum {
	PHP_DEPTH_MAX = 4096,	/* frames read in one sample, shown or not */
	PHP_GENERATORS_MAX = 8, /* generators in a chain in which each yields from the next */
	PHP_LINE_BITS = 22,
	PHP_LINE_MAX = (1 << PHP_LINE_BITS) - 1, /* larger lines count as not known */
};

enum php_flags {
	PHP_HAS_REGISTERS = 1, /* execute_ex() keeps its frame in r14 and its instruction in r15 */
};

/* The process's data: addresses in the process, and offsets in bytes, which layout.c has by
 * version. */
struct kiln_php {
	uint64_t globals;    /* executor_globals */
	uint64_t loop, cold; /* execute_ex() and the part that the compiler has split off */
	uint64_t root;	     /* zend_execute() */
	uint64_t resume;     /* zend_generator_resume() */
	uint64_t fiber;	     /* where the stack of a fiber ends: make_fcontext() */
	uint32_t loop_size, cold_size, root_size, resume_size, fiber_size; /* 0: there is none */
	uint32_t entered;	     /* offset in execute_ex() from which on r14 and r15 hold */
	uint32_t left_from, left_to; /* the range before its return where they do not hold */
	uint32_t current;	     /* executor_globals.current_execute_data */
	uint32_t exception_op;	     /* executor_globals.exception_op, 3 instructions */
	uint32_t before_exception;   /* executor_globals.opline_before_exception; 0: not known */
	uint32_t main_context;	     /* executor_globals.main_fiber_context; 0: none */
	uint32_t current_context;    /* executor_globals.current_fiber_context */
	uint32_t opcodes;	     /* zend_op_array.opcodes */
	uint32_t last;		     /* zend_op_array.last, the number of opcodes */
	uint32_t filename;	     /* zend_op_array.filename; line_start is behind it */
	uint32_t generator_frame;    /* zend_generator.execute_data */
	uint32_t generator_parent;   /* zend_generator.node.parent */
	uint32_t generator_fake;     /* zend_generator.execute_fake */
	uint32_t fiber_context;	     /* zend_fiber.context */
	uint32_t fiber_caller;	     /* zend_fiber.caller */
	uint32_t saved_bx; /* of what jump_fcontext() saves; rbp and the pc are behind it */
	uint32_t flags;	   /* enum php_flags */
	/* Offsets from execute_ex()'s stack pointer: of its CFA, 0 if it has a frame pointer; and
	 * of the stack protector's word, 0 if it has none. */
	uint32_t frame, canary;
};
_Static_assert(sizeof(struct kiln_php) <= KILN_RUNTIME_BYTES, "struct kiln_php");

/* The second word of a function: its line, and php_function_cookie(). */
#define PHP_FUNCTION_WORD(line, cookie) ((uint64_t)(line) | (uint64_t)(cookie) << 32)
#define PHP_FUNCTION_COOKIE(word)	((uint32_t)((word) >> 32))

/* A hash of zend_function.type, the address NAME of function_name, that string's HASH, and the
 * address SCOPE of the class. */
static inline __attribute__((always_inline)) uint32_t
php_function_cookie(uint32_t type, uint64_t name, uint64_t hash, uint64_t scope)
{
	uint64_t h = (name ^ (uint64_t)type << 56) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 29 ^ scope) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29 ^ hash) * 0x9e3779b97f4a7c15ULL;
	return (uint32_t)(h >> 32);
}

/*
 * A cookie of zend_string.h, the hash of a string's bytes. 20 bits are used where the string is
 * only read at its own address, 42 bits where it is also searched for in a table.
 */
enum { PHP_COOKIE_BITS = 20, PHP_LONG_COOKIE_BITS = 42 };

static inline __attribute__((always_inline)) uint64_t php_string_cookie(uint64_t hash,
									uint32_t bits)
{
	return (hash * 0x9e3779b97f4a7c15ULL) >> (64 - bits);
}

/* The second word of a frame with a place: the line, and REST: a long cookie, or PHP_REST(), a
 * cookie and another line. */
#define PHP_PLACE(line, rest)	((uint64_t)(line) | (uint64_t)(rest) << PHP_LINE_BITS)
#define PHP_PLACE_LINE(place)	((uint32_t)(place)&PHP_LINE_MAX)
#define PHP_PLACE_REST(place)	((place) >> PHP_LINE_BITS)
#define PHP_REST(start, cookie) ((uint64_t)(start) | (uint64_t)(cookie) << PHP_LINE_BITS)
#define PHP_REST_START(rest)	((uint32_t)(rest)&PHP_LINE_MAX)
#define PHP_REST_COOKIE(rest)	((rest) >> PHP_LINE_BITS)

/*
 * The words of a PHP_BORROWED frame. First: the address of the function's name, and a cookie of the
 * name. Second: the address of its class or 0, and the line.
 */
enum {
	PHP_BORROWED_SHIFT = 47,
	PHP_BORROWED_COOKIE_BITS = 7,
	PHP_BORROWED_LINE_MAX = (1 << 17) - 1
};
#define PHP_BORROWED_WORD(pointer, rest)                                                           \
	(((pointer) & ((1ULL << PHP_BORROWED_SHIFT) - 1)) | (uint64_t)(rest) << PHP_BORROWED_SHIFT)
#define PHP_BORROWED_POINTER(word) ((word) & ((1ULL << PHP_BORROWED_SHIFT) - 1))
#define PHP_BORROWED_REST(word)	   ((uint32_t)((word) >> PHP_BORROWED_SHIFT))
