/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PHP, as one of the runtimes of agent/runtime/runtime.h. Declares what the parts share: the
 * layouts of the versions' structures, and the data found in the interpreter's file.
 */
#pragma once

#include "agent/runtime/php/walker_data.h"
#include "agent/runtime/runtime.h"

enum {
	PHP_VERSION_MIN = 704, /* major * 100 + minor */
	PHP_VERSION_MAX = 806,
	PHP_STRING_MAX = 2048,	   /* bytes of a name or path; the rest is cut off */
	PHP_STRING_SANE = 1 << 20, /* bytes; a longer string is not a name */
	/* zend_string */
	PHP_STRING_HASH = 8,
	PHP_STRING_LEN = 16,
	PHP_STRING_TEXT = 24,
	/* zend_function */
	PHP_FUNC_NAME = 8,
	PHP_FUNC_SCOPE = 16,
	PHP_CLASS_NAME = 8, /* zend_class_entry.name */
};

/* Offsets of a version in bytes; 0: there is none, or it is not known. layout.c has the sources. */
struct php_layout {
	uint32_t version;
	/* zend_executor_globals */
	uint32_t current, before_exception, exception_op, main_context, current_context;
	uint32_t included_files;	      /* a HashTable */
	uint32_t function_table, class_table; /* pointers to a HashTable each */
	uint32_t class_functions;	      /* zend_class_entry.function_table */
	/* zend_op_array; line_start is behind filename */
	uint32_t last, opcodes, filename;
	/* zend_generator, zend_fiber */
	uint32_t generator_frame, generator_parent, generator_fake, fiber_context, fiber_caller;
};

/* The layout of VERSION; NULL if the version is not supported. */
const struct php_layout *php_layout_of(uint32_t version);

/* A function of the file: [start, start + size), ELF virtual addresses; size 0: not found. */
struct php_function {
	uint64_t start, size;
};

/*
 * Data read from the code of execute_ex(), which keeps its PHP frame and instruction in registers
 * and restores the registers before it returns. Offsets from its start: the registers hold from
 * `entered` on, except in [left_from, left_to).
 */
struct php_loop {
	bool has_registers;
	uint32_t entered, left_from, left_to;
	/* Offsets from the stack pointer: of the CFA, 0 if it has a frame pointer; of the stack
	 * protector's word, 0 if it has none. */
	uint32_t frame, canary;
};

/* Data found in a file. Addresses are ELF virtual ones. */
struct php_image {
	struct runtime_image base;
	const struct php_layout *layout;
	uint64_t globals; /* executor_globals */
	struct php_function loop, cold, root, resume;
	struct php_function fiber; /* the second part of make_fcontext() */
	struct php_loop edges;
	uint32_t
	    saved_bx; /* where jump_fcontext() saves rbx, rbp and the pc, one behind the other */
};

int php_probe(const struct image *image, struct runtime_image **ret,
	      struct error *err) _must_check_;
void php_forget(struct runtime_image *ri);
/* Reads the code of execute_ex(), which is LOOP. The code may be any bytes. */
struct php_loop php_read_loop(const struct image *image, const struct php_function *loop);
/* Finds the second part of make_fcontext(), in which stacks of fibers end. *RET_SAVED_BX: where
 * jump_fcontext() saves rbx. Size 0: not found. */
struct php_function php_find_fiber(const struct image *image, uint32_t *ret_saved_bx);
/*
 * The offset from GLOBALS of the pointer that the function GETTER reads first; -1: its code is not
 * known.
 */
int64_t php_read_getter(const struct image *image, const struct php_function *getter,
			uint64_t globals);

extern const struct interpreter_ops php_ops;

/* A process with PHP in it. */
struct php_process {
	const struct php_layout *layout;
	uint64_t globals; /* executor_globals */
};

/* STATE is a php_process. */
int php_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		  char *scratch, size_t scratch_size, struct symbol_result *ret);

/* As struct interpreter_ops has it. */
enum jit_claim php_owns(void *state, const struct target_memory *memory, uint64_t start,
			uint64_t end);

/*
 * The pointer in the entry of the HashTable at TABLE whose key has HASH. -ENOENT: there is none;
 * -EFAULT: the table cannot be read, or is not a HashTable.
 */
int php_table_get(const struct target_memory *memory, uint64_t table, uint64_t hash,
		  uint64_t *ret_value);
/* The address of the key (a zend_string) of the HashTable at TABLE whose long cookie is COOKIE.
 * Errors as of php_table_get(). */
int php_table_find(const struct target_memory *memory, uint64_t table, uint64_t cookie,
		   uint64_t *ret_key);
/* PHP's hash of the LEN bytes at KEY. */
uint64_t php_hash(const char *key, size_t len);
