/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the walk of HotSpot's frames (walker.h) and user space agree on. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_HOTSPOT = 6 }; /* enum kiln_runtime_id */

enum kiln_hotspot_frame {
	/* Compiled code of a method. Address: the program counter. Second word:
	 * KILN_HOTSPOT_CODE(). */
	KILN_HOTSPOT_COMPILED = 0,
	/* Address: a Method. Second word: bits 63..48 a cookie, 47..0 where in its bytecodes. */
	KILN_HOTSPOT_INTERPRETED = 1,
	/* Code of the JVM's own. Address: the program counter. Second word as COMPILED. */
	KILN_HOTSPOT_STUB = 2,
	/*
	 * Frames of a virtual thread that lie in the heap. Address: the program counter, of the
	 * barrier or of a stub that thaws frames.
	 */
	KILN_HOTSPOT_FROZEN = 3,
	KILN_HOTSPOT_KIND_MASK = 3,
	/* The program counter is a return address. */
	KILN_HOTSPOT_RETURN = 4,
};

/*
 * The key of the return address PC in the cache that processes share: see hotspot_second() in
 * walker_code.h. The factor makes addresses that collide in the CPU's cache hash differently here.
 * Any odd number with random-looking bits would do; this is the last multiplier of splitmix64
 * (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
 */
#define KILN_HOTSPOT_SECOND_KEY(pc) ((pc)*0x94d049bb133111ebULL)

/*
 * Second word of code: its compile id (0: it has none), and how far into its blob the program
 * counter is.
 */
#define KILN_HOTSPOT_CODE(id, distance)	 ((uint64_t)(uint32_t)(id) | (uint64_t)(distance) << 32)
#define KILN_HOTSPOT_COMPILE_ID(word)	 ((uint32_t)(word))
#define KILN_HOTSPOT_DISTANCE(word)	 ((uint32_t)((word) >> 32) & KILN_HOTSPOT_DISTANCE_MAX)
#define KILN_HOTSPOT_DISTANCE_MAX	 ((1U << 24) - 1) /* ... or more, or not known */
/*
 * Second word of an interpreted method: the lower half of the bytecode pointer, 0 while the method
 * is being entered, and the method's cookie.
 */
#define KILN_HOTSPOT_METHOD(bcp, cookie) ((uint64_t)(uint32_t)(bcp) | (uint64_t)(cookie) << 32)
#define KILN_HOTSPOT_BCP(word)		 ((uint32_t)(word))
#define KILN_HOTSPOT_COOKIE(word)	 ((uint32_t)((word) >> 32))

enum {
	KILN_HOTSPOT_HEAPS = 4,
	KILN_HOTSPOT_BLOB_BYTES = 104, /* bytes of a CodeBlob that the walker reads */
};

/* A CodeHeap: a segment's number is (pc - low) >> log2_segment. */
struct kiln_hotspot_heap {
	uint64_t low;	 /* reserved: never changes */
	uint64_t segmap; /* a byte for each segment */
	uint32_t size;	 /* bytes */
	uint32_t pad;
};
KILN_ASSERT_SIZE(kiln_hotspot_heap, 24);

enum kiln_hotspot_flags {
	KILN_HOTSPOT_CODE_POINTER = 1,	/* at blob_code is a pointer, else an int */
	KILN_HOTSPOT_COMPLETE_16 = 2,	/* at blob_complete are 16 bits, else 32 */
	KILN_HOTSPOT_DEOPT_POINTER = 4, /* at nmethod_deopt is a pointer, else an int */
};

/*
 * The walker's data on one process. Offsets in bytes; those of a CodeBlob are below
 * KILN_HOTSPOT_BLOB_BYTES.
 */
struct kiln_hotspot {
	uint64_t low, high; /* of the code cache, reserved */
	struct kiln_hotspot_heap heaps[KILN_HOTSPOT_HEAPS];
	/* Addresses of counters of the JVM; 0: not known. */
	uint64_t unloads;  /* classes that were unloaded */
	uint64_t compiles; /* the time that compiling took: grows with each compilation */
	uint64_t stopped;  /* time in safepoints; grows at the end of each */
	/* Where the outermost frame on the stack returns to when a virtual thread has further
	 * frames in the heap; 0: there is no such stub. */
	uint64_t barrier;
	uint8_t block_header;
	uint8_t log2_segment;
	uint8_t flags;		/* enum kiln_hotspot_flags */
	uint8_t frame_bytecode; /* of an interpreted frame: the bytecode pointer is at rbp - this */
	uint8_t blob_name, blob_frame_size, blob_code, blob_complete;
	uint16_t nmethod_id, nmethod_stub, nmethod_orig_pc, nmethod_deopt, nmethod_deopt_mh;
	/* Method, ConstMethod, ConstantPool, Klass, Symbol: what leads to a class's name. */
	uint16_t method_const, const_pool, const_name, pool_holder, klass_name, symbol_hash;
	uint16_t pad;
};
KILN_ASSERT_SIZE(kiln_hotspot, 176);

/*
 * rule.deref_off of code in the code cache has, from its lowest bit on, 5 bits
 * KILN_RUNTIME_HOTSPOT, 3 bits enum kiln_hotspot_code, and flags. User space gives rules to the
 * JVM's own code; the walker makes those of compiled code (struct hotspot_code).
 */
enum kiln_hotspot_code {
	KILN_HOTSPOT_CODE_UNKNOWN, /* look at the blob */
	KILN_HOTSPOT_CODE_COMPILED,
	KILN_HOTSPOT_CODE_STUB,	       /* step by the rule */
	KILN_HOTSPOT_CODE_INTERPRETER, /* rbp points to the frame */
	KILN_HOTSPOT_CODE_BARE,	       /* the interpreter, without a frame: step by the rule */
	/* A stub that moves a virtual thread's frames from the heap. */
	KILN_HOTSPOT_CODE_THAW,
};
enum {
	KILN_HOTSPOT_RULE_CODE_SHIFT = 5,
	KILN_HOTSPOT_PLACE_SHIFT = 8, /* see struct hotspot_code */
	/* A method is entered: it is in rbx, the caller's stack pointer in r13. */
	KILN_HOTSPOT_ENTERS = 1 << 8,
	/* The bytecode pointer is in the frame, not in r13. */
	KILN_HOTSPOT_BYTECODE_SAVED = 1 << 9,
	/* The interpreted frame has been left (leave): the caller's rsp is in rbx. */
	KILN_HOTSPOT_LEAVES = 1 << 10,
	/* The frame is being built: the caller's rsp is already saved at rbp - 8, and r13 no longer
	 * holds it. */
	KILN_HOTSPOT_SENDER_SAVED = 1 << 11,
	/*
	 * Of KILN_HOTSPOT_CODE_THAW: no frame was moved yet, and the stack above rsp is the
	 * carrier's.
	 */
	KILN_HOTSPOT_STILL_FROZEN = 1 << 12,
};

/*
 * The cookie of a Method, which tells it from another that may come to lie in its place: of its
 * code, the name of its class, and the index of its own name in the class's constant pool. HASH is
 * the identity that the JVM gave to the class's name at random. User space keeps each named method
 * by address and cookie, also after its class is unloaded. So hundreds of methods that had the same
 * address, one after another, must have different cookies: 16 bits are too few.
 */
static inline uint32_t kiln_hotspot_cookie(uint64_t const_method, uint64_t symbol, uint32_t hash,
					   uint32_t name)
{
	uint64_t h = (symbol >> 3) * 0x9e3779b97f4a7c15ULL + (const_method >> 3) + hash +
		     ((uint64_t)name << 32);

	h *= 0xff51afd7ed558ccdULL;
	return (uint32_t)(h >> 32);
}
