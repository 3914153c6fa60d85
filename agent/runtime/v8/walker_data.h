/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the walk of V8 frames (walker.h) and user space agree on. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_V8 = 2 }; /* enum kiln_runtime_id */

enum kiln_v8_frame {
	/* Address: a SharedFunctionInfo. Value: where in its bytecode, from the array's start. */
	KILN_V8_BYTECODE = 0,
	/* Address: a SharedFunctionInfo. Value: the program counter. */
	KILN_V8_CODE = 1,
	/* Address: the program counter. Value: enum kiln_v8_stub. */
	KILN_V8_STUB = 2,
	KILN_V8_KIND_MASK = 3,
	/* The program counter is a return address less 1. */
	KILN_V8_RETURN = 4,
};

/* Code in anonymous memory that is no JavaScript function. */
enum kiln_v8_stub { KILN_V8_OTHER, KILN_V8_WASM, KILN_V8_REGEXP };

/* The second word: bits 63..48 a cookie, bits 47..0 the value. */
#define KILN_V8_VALUE(word)  ((word) & ((1ULL << 48) - 1))
#define KILN_V8_COOKIE(word) ((uint32_t)((word) >> 48))

/*
 * The walker's data, the same for all processes of one build of V8. Offsets are in bytes from an
 * object's address (its pointer less the tag).
 */
struct kiln_v8 {
	uint64_t interpreter;	    /* ELF virtual address of InterpreterEntryTrampoline */
	uint32_t interpreter_size;  /* bytes */
	uint32_t interpreter_frame; /* offset in it from which on the frame is complete */
	uint16_t shared;	    /* SharedFunctionInfo in JSFunction */
	/* In SharedFunctionInfo: three u16; 8 bytes further two u32, the flags and the number in
	 * the script. */
	uint16_t lengths;
	uint8_t wasm_from, wasm_to; /* types of WebAssembly frames: [from, to) */
	uint8_t regexp;		    /* type of regular expressions' frames; 0: there is none */
	uint8_t native_only;	    /* nothing else is known of this build */
	/*
	 * Distance from `interpreter` to InterpreterEnterAtNextBytecode and (V8 up to 11)
	 * BaselineOrInterpreterEnterAtNextBytecode; 0: not there.
	 */
	int32_t enter_next, enter_either;
};
KILN_ASSERT_SIZE(kiln_v8, 32);

/*
 * The cookie of a SharedFunctionInfo, which tells it from another that may come to lie in its
 * place: of its parameter count, its length, the distance from its token, and its number in the
 * script.
 */
static inline uint32_t v8_cookie(uint64_t lengths, uint64_t flags)
{
	uint64_t h = (lengths & 0xffffffffffffULL) ^ (flags >> 32) * 0x9e3779b1ULL;

	h ^= h >> 32;
	return (uint32_t)(h ^ h >> 16) & 0xffff;
}
