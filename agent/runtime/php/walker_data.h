/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What user space tells the walker of a PHP process, and what both words of a frame mean. The kind
 * of a frame is in its flags:
 *
 * function  the address of its zend_function; the line in the low half and php_function_cookie() in
 *           the high one.
 * method as a value (`$cart->total(...)`)  its zend_function is a copy that dies with its object:
 *           the address of its name, that of its class.
 * closure, file, eval  the address of the string with the file's name, PHP_PLACE(). A closure's
 *           zend_function lies in its object, a file's is gone when the file was run. Of a closure
 * there is the line where it begins too. Of eval the file is the one that has called it, with the
 *           line of the call in place of where it begins.
 * regular expression  its compiled code: nothing.
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
	PHP_DEPTH_MAX = 4096,	/* frames looked at in one sample, shown or not */
	PHP_GENERATORS_MAX = 8, /* that one yields from, each from the next */
	PHP_LINE_BITS = 22,
	PHP_LINE_MAX = (1 << PHP_LINE_BITS) - 1, /* of a place; later lines are not known */
};

enum php_flags {
	PHP_HAS_REGISTERS = 1, /* execute_ex() keeps its frame in r14 and its instruction in r15 */
};

/* The process's data. Addresses in the process; offsets in bytes: layout.c has them by version. */
struct kiln_php {
	uint64_t globals;    /* executor_globals */
	uint64_t loop, cold; /* execute_ex() and the piece that was split off */
	uint64_t root;	     /* zend_execute() */
	uint64_t resume;     /* zend_generator_resume() */
	uint64_t fiber;	     /* where the stack of a fiber ends: make_fcontext() */
	uint32_t loop_size, cold_size, root_size, resume_size, fiber_size; /* 0: there is none */
	uint32_t entered;	     /* of execute_ex(): from here on r14 and r15 hold ... */
	uint32_t left_from, left_to; /* ... but not here, where it returns */
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
	/* Of execute_ex(), from its stack pointer: its CFA, 0 when it has a frame pointer; and the
	 * stack protector's word, 0 when it has none. */
	uint32_t frame, canary;
};
_Static_assert(sizeof(struct kiln_php) <= KILN_RUNTIME_BYTES, "struct kiln_php");

/* The second word of a function: its line, and php_function_cookie(). */
#define PHP_FUNCTION_WORD(line, cookie) ((uint64_t)(line) | (uint64_t)(cookie) << 32)
#define PHP_FUNCTION_COOKIE(word)	((uint32_t)((word) >> 32))

/* Of zend_function.type, function_name, what that has as its hash, and scope. */
static inline __attribute__((always_inline)) uint32_t
php_function_cookie(uint32_t type, uint64_t name, uint64_t hash, uint64_t scope)
{
	uint64_t h = (name ^ (uint64_t)type << 56) * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 29 ^ scope) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29 ^ hash) * 0x9e3779b97f4a7c15ULL;
	return (uint32_t)(h >> 32);
}

/*
 * Of zend_string.h, the hash of all its bytes. A string is told from another by 20 bits where it is
 * read in its place only, by 42 where it is looked for elsewhere.
 */
enum { PHP_COOKIE_BITS = 20, PHP_LONG_COOKIE_BITS = 42 };

static inline __attribute__((always_inline)) uint64_t php_string_cookie(uint64_t hash,
									uint32_t bits)
{
	return (hash * 0x9e3779b97f4a7c15ULL) >> (64 - bits);
}

/* The second word of a place: the line, and REST: a long cookie, or a cookie and another line. */
#define PHP_PLACE(line, rest)	((uint64_t)(line) | (uint64_t)(rest) << PHP_LINE_BITS)
#define PHP_PLACE_LINE(place)	((uint32_t)(place)&PHP_LINE_MAX)
#define PHP_PLACE_REST(place)	((place) >> PHP_LINE_BITS)
#define PHP_REST(start, cookie) ((uint64_t)(start) | (uint64_t)(cookie) << PHP_LINE_BITS)
#define PHP_REST_START(rest)	((uint32_t)(rest)&PHP_LINE_MAX)
#define PHP_REST_COOKIE(rest)	((rest) >> PHP_LINE_BITS)

/*
 * A borrowed function: the address of its name with a cookie of that; its class's address (or 0),
 * and the line.
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
