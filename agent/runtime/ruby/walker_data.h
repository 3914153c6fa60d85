/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The data of a process that user space gives to the walker, and the meaning of both words of a
 * frame. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_RUBY = 3 }; /* enum kiln_runtime_id */

/* Where vm_exec_core() keeps the execution context that it runs. */
enum kiln_ruby_place {
	KILN_RUBY_NOWHERE, /* not known */
	KILN_RUBY_RBX,
	KILN_RUBY_STACK, /* at the stack pointer + place_offset */
};

enum {
	KILN_RUBY_STEPS_MAX = 2048, /* control frames read in one sample */
	KILN_RUBY_ENV_HOPS = 16,    /* environments from a block to the method around it */
	KILN_RUBY_JIT_WORDS = 32,   /* words of JIT code's native stack that are searched */
	/* Bytes of code in vm_exec_core() that remove its native frame. */
	KILN_RUBY_EPILOGUE = 64,
	/* Bytes of code; the handler of an instruction has less. */
	KILN_RUBY_HANDLER_MAX = 1024,
};

/*
 * The process's data, with addresses in the process. walker.h has the offsets that are the same in
 * all versions from 2.5 to 4.0.
 */
struct kiln_ruby {
	uint64_t loop_start; /* vm_exec_core() */
	/* rb_vm_exec(), which calls vm_exec_core(), and its part that the compiler has split off.
	 * All 0 if it is the same function as vm_exec_core(). */
	uint64_t exec_start, exec_end;
	uint64_t cold_start, cold_end;
	uint64_t global;     /* address of the pointer to the context that runs (2.x); 0: none */
	int64_t tls_offset;  /* of the pointer to the thread's context, from the block's start */
	uint32_t tls_module; /* 0: the block is at the thread pointer */
	uint32_t tls_shift;  /* log2 of an entry of the vector of blocks */
	uint32_t loop_size;
	uint32_t loop_prologue; /* bytes of vm_exec_core() before the first instruction's handler */
	uint32_t loop_return;	/* offset of vm_exec_core()'s return; 0: not known */
	int32_t place_offset;
	uint16_t context_thread; /* offset of the context's thread */
	uint16_t thread_id;	 /* offset of the thread's pthread_self(); with `global` */
	uint8_t place;		 /* enum kiln_ruby_place */
	uint8_t frame_size;	 /* bytes of a control frame */
	uint8_t has_tls;
	uint8_t native_only;
	/* Offsets for walker_text.h, in an instruction sequence's body and in a String.
	 * lines_index 0: no texts are sent. */
	uint8_t parent, lines, lines_size, lines_index, line_size, string_embedded;
};
_Static_assert(sizeof(struct kiln_ruby) <= KILN_RUNTIME_BYTES, "struct kiln_ruby");

/* Flags of a frame. */
enum kiln_ruby_flags {
	KILN_RUBY_C = 1, /* a method in C: it has no instructions */
	/* The index is that of the instruction that runs, not of the one behind it. */
	KILN_RUBY_EXACT = 2,
	KILN_RUBY_BMETHOD = 4, /* a method that define_method made of a block */
};

/*
 * A frame is two objects, an index into the instructions, and a cookie, which tells the objects
 * from others that are later at the same addresses.
 *   first word   bits 53..44 cookie, 43..0 first object / 8
 *   second word  bit 63 whether the second object is an entry, bits 62..44 index, 43..0 second
 *                object / 8
 * A method entry is a young object of the heap, which GC.compact moves. So a frame has lasting
 * parts of the entry instead: the owner and, for a method in C, the definition, which is not in the
 * heap. Only for a method that define_method has made of a block does a frame have the entry
 * itself.
 *
 * clang-format off
 *                                  first                  second
 *   a method in C (KILN_RUBY_C)    definition             owner
 *   code of such a method          instruction sequence   method entry
 *   other code                     instruction sequence   owner; 0: not within a method
 * clang-format on
 */
enum {
	KILN_RUBY_OBJECT_BITS = 44,
	KILN_RUBY_COOKIE_BITS = 10,
	KILN_RUBY_INDEX_BITS = 19,
	KILN_RUBY_INDEX_NONE = (1 << KILN_RUBY_INDEX_BITS) - 1, /* not known, or more */
	KILN_RUBY_ENTRY = 1 << KILN_RUBY_INDEX_BITS,
};
#define KILN_RUBY_OBJECT_MASK ((1ULL << KILN_RUBY_OBJECT_BITS) - 1)
#define KILN_RUBY_PACK(object, more)                                                               \
	(((uint64_t)(object) >> 3 & KILN_RUBY_OBJECT_MASK) | (uint64_t)(more)                      \
								 << KILN_RUBY_OBJECT_BITS)
#define KILN_RUBY_OBJECT(word)	   (((word)&KILN_RUBY_OBJECT_MASK) << 3)
#define KILN_RUBY_COOKIE(first)	   ((uint32_t)((first) >> KILN_RUBY_OBJECT_BITS) & 1023)
#define KILN_RUBY_MORE(second)	   ((uint32_t)((second) >> KILN_RUBY_OBJECT_BITS))
#define KILN_RUBY_INDEX(second)	   (KILN_RUBY_MORE(second) & KILN_RUBY_INDEX_NONE)
#define KILN_RUBY_IS_ENTRY(second) ((KILN_RUBY_MORE(second) & KILN_RUBY_ENTRY) != 0)

/*
 * The data in a struct kiln_text for a frame of evaluated code. Such code is collected within
 * milliseconds. The method or class around it is not, and its label and owner give the name.
 */
struct kiln_ruby_text {
	uint64_t root, root_body; /* instruction sequence around it, and its body */
	uint64_t owner_class;
	uint64_t start; /* location.first_lineno, as it is in memory */
	uint32_t line;	/* 0: the first line of the code */
	uint8_t levels; /* number of nested blocks */
	uint8_t within; /* enum kiln_ruby_within */
	char path[250]; /* with a NUL */
};
_Static_assert(sizeof(struct kiln_ruby_text) <= KILN_TEXT_BYTES, "struct kiln_ruby_text");

enum kiln_ruby_within { KILN_RUBY_IN_BODY, KILN_RUBY_IN_RESCUE, KILN_RUBY_IN_ENSURE };

/* A hash of the definition of a method in C: its function and its original ID. */
static inline __attribute__((always_inline)) uint64_t kiln_ruby_definition_hash(uint64_t function,
										uint64_t id)
{
	uint64_t h = function * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 29 ^ id) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/* A hash of the parts of an instruction sequence that do not change: the addresses of its body,
 * instructions, label and path. */
static inline __attribute__((always_inline)) uint64_t
kiln_ruby_code_hash(uint64_t body, uint64_t encoded, uint64_t label, uint64_t path)
{
	uint64_t h = body * 0x9e3779b97f4a7c15ULL;

	h = (h ^ h >> 29 ^ encoded) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29 ^ label) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29 ^ path) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 29;
}

/*
 * The cookie of a frame. HASH: one of the two hashes above. METHOD: for a method entry its
 * definition, for an owner its class, which tells the owner from a class that is later at the same
 * address.
 */
static inline __attribute__((always_inline)) uint32_t
kiln_ruby_cookie(uint64_t hash, uint64_t method, uint64_t owner)
{
	uint64_t h = hash;

	h = (h ^ method) * 0x9e3779b97f4a7c15ULL;
	h = (h ^ h >> 29 ^ owner) * 0x9e3779b97f4a7c15ULL;
	return (uint32_t)(h >> (64 - KILN_RUBY_COOKIE_BITS));
}
