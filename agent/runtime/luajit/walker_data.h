/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The data of a process that user space gives to the walker, the structures of LuaJIT that both
 * read, and the meaning of both words of a frame (docs/unwinding/luajit.md).
 */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_LUAJIT = 9 }; /* enum kiln_runtime_id */

enum { KILN_LUAJIT_FRAMES_MAX = 4096 }; /* frames read in one sample, shown or not */

/* The process's data. agent/runtime/luajit/probe.c reads all of it from the code of the VM. */
struct kiln_luajit {
	uint64_t vm;	  /* where the interpreter's code begins */
	uint32_t vm_size; /* bytes */
	/* Ranges of its code, in bytes from its start; empty without a JIT compiler. */
	uint32_t enter_from, enter_to; /* room for a trace's registers is made; not left yet */
	uint32_t exit_from, exit_to;   /* a trace's registers are on the stack */
	uint32_t callback_from; /* to the end: C calls Lua by an FFI function pointer; 0: no FFI */
	/* Offsets from global_State; valid if has_jit. */
	int32_t jit_base, vmstate, trace;
	uint32_t has_jit;
	uint32_t trace_mcode; /* offset of GCtrace.mcode */
};
_Static_assert(sizeof(struct kiln_luajit) <= KILN_RUNTIME_BYTES, "struct kiln_luajit");

/*
 * Offsets that are the same in all versions with 64-bit references: LuaJIT 2.1.0-beta3 (2017) to
 * the v2.1 branch of August 2026 (1ee778a4), and OpenResty's. From lj_obj.h unless noted.
 */
enum {
	/* The interpreter's C frame, from its stack pointer on (lj_frame.h, CFRAME_*) */
	LUAJIT_CFRAME_NRES = 0x08, /* i32; negative: the C frame has no Lua frame */
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
	LUAJIT_TRACE_ROOT = 0x14,     /* u16: root trace of a side trace; 0: this is a root trace */
	LUAJIT_TRACE_NEXTROOT = 0x16, /* u16: next root trace of the same prototype */
	LUAJIT_TRACE_NEXTSIDE = 0x18, /* u16: next side trace of the same root trace */
	LUAJIT_TRACE_WORDS = 6,
	/* Types of objects: ~LJ_T* */
	LUAJIT_TYPE_STR = 4,
	LUAJIT_TYPE_THREAD = 6,
	LUAJIT_TYPE_PROTO = 7,
	LUAJIT_TYPE_FUNC = 8,
	/* A slot of the stack: a pointer in the low 47 bits, ~type in the high 17 bits. */
	LUAJIT_TAG_SHIFT = 47,
	LUAJIT_TAG_MASK = 0x1ffff,
	LUAJIT_FF_LUA = 0, /* GCfunc.ffid of a Lua function; 1: C, above: fast functions */
	/* The type of a frame's link: its low bits (lj_frame.h, FRAME_*). If bits 0 and 1 are 0,
	 * the link is the caller's pc. */
	LUAJIT_FRAME_C = 1,
	LUAJIT_FRAME_CONT = 2,
	LUAJIT_FRAME_VARG = 3,
	LUAJIT_FRAME_CP = 5,
	LUAJIT_CONT_CALLBACK = 1, /* LJ_CONT_FFI_CALLBACK */
};

enum kiln_luajit_frame {
	KILN_LUAJIT_LUA,   /* a function of Lua, interpreted */
	KILN_LUAJIT_C,	   /* a C function or a fast function; its caller has its name */
	KILN_LUAJIT_TRACE, /* a Lua function in which the trace that runs began */
};

/*
 * First word: bits 44..0 are the address / 4 of the instruction that is executed (of a trace: the
 * instruction at which it begins; if not known: the function's first one), or for a C function
 * GCfunc.ffid; bits 53..45 are nine bits of the cookie. Second word: bits 44..0 are the address / 4
 * of the caller's instruction, 0 if the caller is not Lua; bits 63..45 are the rest of the cookie.
 */
enum { KILN_LUAJIT_AT_BITS = 45, KILN_LUAJIT_COOKIE_LOW = 9, KILN_LUAJIT_COOKIE_BITS = 28 };
#define KILN_LUAJIT_AT_MASK  ((1ULL << KILN_LUAJIT_AT_BITS) - 1)
#define KILN_LUAJIT_AT(word) (((word)&KILN_LUAJIT_AT_MASK) << 2)

/*
 * Tells a prototype from another that is later at the same address. CHUNK: the address of the
 * chunk's name. LINES: the first line and the number of lines.
 */
static inline __attribute__((always_inline)) uint64_t kiln_luajit_cookie(uint64_t chunk,
									 uint64_t lines)
{
	uint64_t h = (chunk ^ lines << 17) * 0x9e3779b97f4a7c15ULL ^ lines;

	h ^= h >> 29;
	return (h * 0xbf58476d1ce4e5b9ULL) | 1;
}

/* The cookie of a frame, from the cookies of its own prototype and the caller's (0: none). */
static inline __attribute__((always_inline)) uint64_t kiln_luajit_cookies(uint64_t own,
									  uint64_t caller)
{
	uint64_t h = own ^ (caller << 23 | caller >> 41);

	return (h ^ h >> 32) & ((1ULL << KILN_LUAJIT_COOKIE_BITS) - 1);
}
