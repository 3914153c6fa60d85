/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The data of a process that user space gives to the walker, the structures of LuaJIT that both
 * read, and the meaning of both words of a frame (docs/unwinding/luajit.md).
 */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_LUAJIT = 9 }; /* enum kiln_runtime_id */

enum { KILN_LUAJIT_FRAMES_MAX = 4096 }; /* looked at in one sample, shown or not */

/* The process's data. agent/runtime/luajit/probe.c reads all of it from the code of the VM. */
struct kiln_luajit {
	uint64_t vm;	  /* where the interpreter's code begins */
	uint32_t vm_size; /* bytes */
	/* Parts of it, in bytes from its beginning on; empty without a JIT compiler. */
	uint32_t enter_from, enter_to; /* has made room for a trace's registers, not left yet */
	uint32_t exit_from, exit_to;   /* a trace's registers are on the stack */
	uint32_t callback_from; /* up to the end: C code calls Lua by a pointer of FFI; 0: cannot */
	/* From global_State on. has_jit: else there are none. */
	int32_t jit_base, vmstate, trace;
	uint32_t has_jit;
	uint32_t trace_mcode; /* GCtrace.mcode */
};
_Static_assert(sizeof(struct kiln_luajit) <= KILN_RUNTIME_BYTES, "struct kiln_luajit");

/*
 * Offsets that all versions with 64-bit references have: LuaJIT 2.1.0-beta3 (2017) to the v2.1
 * branch of August 2026 (1ee778a4), and OpenResty's. lj_obj.h unless said.
 */
enum {
	/* The interpreter's C frame, from its stack pointer on (lj_frame.h, CFRAME_*) */
	LUAJIT_CFRAME_NRES = 0x08, /* i32; negative: without a Lua frame */
	LUAJIT_CFRAME_L = 0x10,
	LUAJIT_CFRAME_PC = 0x18,
	LUAJIT_CFRAME_PREV = 0x20,
	LUAJIT_CFRAME_RBX = 0x38,
	LUAJIT_CFRAME_RBP = 0x40,
	LUAJIT_CFRAME_RA = 0x48,
	LUAJIT_CFRAME_SIZE = 0x50,
	LUAJIT_CFRAME_FLAGS = 3, /* CFRAME_RESUME, CFRAME_UNWIND_FF */
	LUAJIT_CFRAME_JIT = 16,	 /* CFRAME_SIZE_JIT - CFRAME_SIZE */
	/* lua_State */
	LUAJIT_L_GLREF = 0x10,
	LUAJIT_L_BASE = 0x20,
	LUAJIT_L_STACK = 0x38,
	LUAJIT_L_CFRAME = 0x50,
	LUAJIT_L_STACKSIZE = 0x58, /* u32, slots */
	LUAJIT_L_WORDS = 12,
	/* Every object: u64 next, u8 marked, u8 type */
	LUAJIT_GCT = 9,
	/* GCfunc */
	LUAJIT_FUNC_FFID = 0x0a, /* u8 */
	LUAJIT_FUNC_PC = 0x20,
	LUAJIT_FUNC_WORDS = 5,
	/* GCproto; its bytecode follows */
	LUAJIT_PROTO_SIZEBC = 0x0c, /* u32 */
	LUAJIT_PROTO_K = 0x20,
	LUAJIT_PROTO_SIZEKGC = 0x30, /* u32 */
	LUAJIT_PROTO_SIZEPT = 0x38,  /* u32 */
	LUAJIT_PROTO_SIZEUV = 0x3c,  /* u8 */
	LUAJIT_PROTO_TRACE = 0x3e,   /* u16: its first root trace */
	LUAJIT_PROTO_CHUNK = 0x40,
	LUAJIT_PROTO_FIRSTLINE = 0x48, /* i32 */
	LUAJIT_PROTO_NUMLINE = 0x4c,   /* i32 */
	LUAJIT_PROTO_LINEINFO = 0x50,
	LUAJIT_PROTO_UVINFO = 0x58,
	LUAJIT_PROTO_VARINFO = 0x60,
	LUAJIT_PROTO_SIZE = 0x68,
	/* GCstr */
	LUAJIT_STR_DATA = 0x18,
	/* GCtrace, from its mcode on (lj_jit.h) */
	LUAJIT_TRACE_STARTPC = -0x10,
	LUAJIT_TRACE_SIZE = -0x04,    /* u32: szmcode */
	LUAJIT_TRACE_ROOT = 0x14,     /* u16: of a side trace its root trace; 0: it is one */
	LUAJIT_TRACE_NEXTROOT = 0x16, /* u16: of the same prototype */
	LUAJIT_TRACE_NEXTSIDE = 0x18, /* u16: of the same root trace */
	LUAJIT_TRACE_WORDS = 6,
	/* Types of objects: ~LJ_T* */
	LUAJIT_TYPE_STR = 4,
	LUAJIT_TYPE_THREAD = 6,
	LUAJIT_TYPE_PROTO = 7,
	LUAJIT_TYPE_FUNC = 8,
	/* A slot of the stack holds a pointer of 47 bits below ~type (17 bits). */
	LUAJIT_TAG_SHIFT = 47,
	LUAJIT_TAG_MASK = 0x1ffff,
	LUAJIT_FF_LUA = 0, /* of a GCfunc: a function of Lua; 1 one of C, others fast functions */
	/* The low bits of a frame's link (lj_frame.h, FRAME_*). Bits 0, 1: 0: a pc of the caller.
	 */
	LUAJIT_FRAME_C = 1,
	LUAJIT_FRAME_CONT = 2,
	LUAJIT_FRAME_VARG = 3,
	LUAJIT_FRAME_CP = 5,
	LUAJIT_CONT_CALLBACK = 1, /* LJ_CONT_FFI_CALLBACK */
};

enum kiln_luajit_frame {
	KILN_LUAJIT_LUA,   /* a function of Lua, interpreted */
	KILN_LUAJIT_C,	   /* a function of C or a fast function: named by its caller */
	KILN_LUAJIT_TRACE, /* a function of Lua that a trace has begun in */
};

/*
 * First word: bits 44..0 the address / 4 of the instruction that is executed (of a trace: that it
 * begins with; the function's first one when it is not known), of a C function GCfunc.ffid; bits
 * 53..45 nine bits of the cookie. Second word: bits 44..0 the address / 4 of the caller's
 * instruction, 0: the caller is not Lua; bits 63..45 the rest of the cookie.
 */
enum { KILN_LUAJIT_AT_BITS = 45, KILN_LUAJIT_COOKIE_LOW = 9, KILN_LUAJIT_COOKIE_BITS = 28 };
#define KILN_LUAJIT_AT_MASK  ((1ULL << KILN_LUAJIT_AT_BITS) - 1)
#define KILN_LUAJIT_AT(word) (((word)&KILN_LUAJIT_AT_MASK) << 2)

/*
 * Differs between one prototype and another that is in the same place later. CHUNK: the address of
 * its chunk's name, LINES: its first line and how many there are.
 */
static inline __attribute__((always_inline)) uint64_t kiln_luajit_cookie(uint64_t chunk,
									 uint64_t lines)
{
	uint64_t h = (chunk ^ lines << 17) * 0x9e3779b97f4a7c15ULL ^ lines;

	h ^= h >> 29;
	return (h * 0xbf58476d1ce4e5b9ULL) | 1;
}

/* The cookie of a frame: of its own prototype and its caller's (0: has none). */
static inline __attribute__((always_inline)) uint64_t kiln_luajit_cookies(uint64_t own,
									  uint64_t caller)
{
	uint64_t h = own ^ (caller << 23 | caller >> 41);

	return (h ^ h >> 32) & ((1ULL << KILN_LUAJIT_COOKIE_BITS) - 1);
}
