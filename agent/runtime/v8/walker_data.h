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
	/* The program counter is a return address (of which 1 is subtracted). */
	KILN_V8_RETURN = 4,
};

/* Code in anonymous memory that is no JavaScript function. */
enum kiln_v8_stub { KILN_V8_OTHER, KILN_V8_WASM, KILN_V8_REGEXP };

/* The second word: bits 63..48 a cookie, bits 47..0 the value. */
#define KILN_V8_VALUE(word)  ((word) & ((1ULL << 48) - 1))
#define KILN_V8_COOKIE(word) ((uint32_t)((word) >> 48))

/* Of one build of V8, all offsets in bytes from an object's address (its pointer less the tag). */
struct kiln_v8 {
	uint64_t interpreter;	    /* ELF virtual address of InterpreterEntryTrampoline */
	uint32_t interpreter_size;  /* bytes */
	uint32_t interpreter_frame; /* from here on in it the frame is there */
	uint16_t shared;	    /* of JSFunction */
	uint16_t lengths; /* of SharedFunctionInfo: three u16, then at 8 two u32 of flags */
	uint8_t wasm_from, wasm_to; /* frame types [from, to) */
	uint8_t regexp;		    /* frame type; 0: has none */
	uint8_t native_only;	    /* nothing else is known of this build */
	/*
	 * InterpreterEnterAtNextBytecode and (V8 up to 11)
	 * BaselineOrInterpreterEnterAtNextBytecode, from `interpreter` on; 0: not there.
	 */
	int32_t enter_next, enter_either;
};
KILN_ASSERT_SIZE(kiln_v8, 32);

/*
 * What tells one SharedFunctionInfo from another that may come to lie in its place: the parameter
 * count, length and distance from its token, and its number within the script.
 */
static inline uint32_t v8_cookie(uint64_t lengths, uint64_t flags)
{
	uint64_t h = (lengths & 0xffffffffffffULL) ^ (flags >> 32) * 0x9e3779b1ULL;

	h ^= h >> 32;
	return (uint32_t)(h ^ h >> 16) & 0xffff;
}
