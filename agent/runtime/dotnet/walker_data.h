/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What the walk of .NET's frames (walker.h) and user space agree on. */
#pragma once

#include "bpf/types.h"

enum { KILN_RUNTIME_DOTNET = 7 }; /* enum kiln_runtime_id */

enum kiln_dotnet_frame {
	/* Address: the program counter. Second word: KILN_DOTNET_CODE(). */
	KILN_DOTNET_JIT = 0,
	/* Code compiled ahead of time, in an image. Address: the program counter. Second word: 0.
	 */
	KILN_DOTNET_R2R = 1,
	/* Code of the runtime's own in its heaps. Second word: enum StubCodeBlockKind, or 0. */
	KILN_DOTNET_STUB = 2,
	KILN_DOTNET_KIND_MASK = 3,
	/* The program counter is a return address. */
	KILN_DOTNET_RETURN = 4,
};

/* Second word of a compiled method: how far into it the program counter is, and its cookie. */
#define KILN_DOTNET_CODE(distance, cookie)                                                         \
	((uint64_t)(distance) << 40 | ((uint64_t)(cookie)&KILN_DOTNET_COOKIE_MASK))
#define KILN_DOTNET_DISTANCE(word) ((uint32_t)((word) >> 40))
#define KILN_DOTNET_DISTANCE_MAX   ((1U << 24) - 1) /* ... or more, or not known */
#define KILN_DOTNET_COOKIE(word)   ((word)&KILN_DOTNET_COOKIE_MASK)
#define KILN_DOTNET_COOKIE_MASK	   ((1ULL << 40) - 1)
/* The cookie of methods that cannot be unloaded: no other method is ever at their address, so there
 * is nothing to tell them from. */
#define KILN_DOTNET_STAYS	   0

/*
 * Structures of CoreCLR that are the same in 8, 9 and 10. Names are those of dotnet/runtime
 * (src/coreclr/vm/codeman.h: RangeSectionMap, RangeSectionFragment, RangeSection, HeapList,
 * _hpRealCodeHdr, CodeHeader; inc/nibblemapmacros.h); the numbers were looked at in processes of
 * 8.0.4 and 9.0.1.
 */
enum {
	/* RangeSectionMap: levels of tables of 256 pointers, whose lowest bit is a flag. */
	KILN_DOTNET_LEVELS = 5,
	KILN_DOTNET_LEVEL_SHIFT = 17, /* lowest bits of an address, which are no part of an index */
	KILN_DOTNET_FRAGMENTS = 16,   /* fragments of one entry of the lowest level, at most */
	/* RangeSection: begin, end, flags, JIT manager, module, heap list, range list. */
	KILN_DOTNET_SECTION_BEGIN = 0,
	KILN_DOTNET_SECTION_END = 1,
	KILN_DOTNET_SECTION_FLAGS = 2,
	KILN_DOTNET_SECTION_MODULE = 4,
	KILN_DOTNET_SECTION_HEAP = 5,
	KILN_DOTNET_SECTION_WORDS = 7,
	/* Flags. Code is freed in collectible heaps only, which dynamic methods have too
	 * (codeman.cpp, EEJitManager::NewCodeHeap()). */
	KILN_DOTNET_IS_COLLECTIBLE = 1, /* RANGE_SECTION_COLLECTIBLE */
	KILN_DOTNET_IS_HEAP = 2,	/* RANGE_SECTION_CODEHEAP */
	KILN_DOTNET_IS_LIST = 4,	/* RANGE_SECTION_RANGELIST: stubs */
	/* HeapList: the nibble map's base and the map. */
	KILN_DOTNET_HEAP_BASE = 0x20,
	KILN_DOTNET_HEAP_MAP = 0x28,
	/*
	 * The word before code is a pointer to its header, or, up to this, enum StubCodeBlockKind.
	 */
	KILN_DOTNET_STUB_LAST = 15,
	/* MethodDesc: flags, of which the lowest bits are the classification. */
	KILN_DOTNET_METHOD_FLAGS = 6,
	KILN_DOTNET_METHOD_CLASS = 7,
	KILN_DOTNET_METHOD_DYNAMIC = 7, /* mcDynamic */
};

/* The walker's data on one process. Offsets in bytes. */
struct kiln_dotnet {
	uint64_t map;	     /* RangeSectionMap: its top level */
	uint16_t module_r2r; /* Module: ReadyToRunInfo */
	uint16_t functions;  /* ReadyToRunInfo: RUNTIME_FUNCTIONs, and their number behind that */
	uint16_t header_method; /* RealCodeHeader: MethodDesc */
	/* RealCodeHeader: number of RUNTIME_FUNCTIONs (4 bytes); the array follows it */
	uint16_t header_infos;
	uint16_t dynamic_name; /* DynamicMethodDesc: m_pszMethodName */
	uint16_t pad[3];
};
KILN_ASSERT_SIZE(kiln_dotnet, 24);

/*
 * rule.deref_off of .NET's code has, from its lowest bit on, 5 bits which runtime, 2 bits enum
 * kiln_dotnet_code, and for compiled methods 18 bits how far into the method, 7 bits of its cookie.
 */
enum kiln_dotnet_code {
	KILN_DOTNET_CODE_UNKNOWN,
	KILN_DOTNET_CODE_JIT,
	KILN_DOTNET_CODE_R2R,
	KILN_DOTNET_CODE_STAYS, /* compiled by the JIT; its cookie is KILN_DOTNET_STAYS */
};

/* RUNTIME_FUNCTION of Windows on x64: offsets from a base; unwind: of its UNWIND_INFO. */
struct kiln_dotnet_function {
	uint32_t begin, end, unwind;
};
KILN_ASSERT_SIZE(kiln_dotnet_function, 12);

/*
 * The cookie of the method METHOD, whose code has HEADER: tells it from another method that may
 * come to lie there. NAME: the address of a dynamic method's name, because its memory is given to
 * the next one; else 0.
 */
static inline uint64_t kiln_dotnet_cookie(uint64_t method, uint64_t header, uint64_t name)
{
	uint64_t h = (method >> 3) * 0x9e3779b97f4a7c15ULL + (header >> 3) + (name << 20);

	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ULL;
	return h >> 24 & KILN_DOTNET_COOKIE_MASK;
}
