/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a process that is as small a .NET runtime as dotnet_ops attaches to: the map of
 * code, an image with metadata and a function that was compiled ahead of time, a heap with two
 * compiled methods, and a stack. Tests change words of it. Made by hand, with the offsets of 8.
 */
#pragma once

#include "agent/runtime/dotnet/dotnet.h"

enum {
	SMALL_BASE = 0x10000,
	SMALL_BYTES = 0x30000,
	SMALL_TABLE = 0x10000, /* g_dacTable */
	SMALL_IMAGE = 0x18000,
	SMALL_IMAGE_END = 0x20000,
	SMALL_HEAP = 0x20000,
	SMALL_HEAP_END = 0x28000,
	SMALL_STUBS = 0x2a000,
	SMALL_STACK = 0x38000,
	/* Code: of the method TOTAL, of one without frame, of one made while the program runs. */
	SMALL_TOTAL = 0x20100,
	SMALL_TOTAL_EPILOGUE = 0x20170,
	SMALL_TINY = 0x20440,
	SMALL_MADE = 0x24100,
	SMALL_AHEAD = 0x19000, /* in the image */
	SMALL_AHEAD_HANDLER = 0x19080,
	/* MethodDescs, by the number of the method. */
	SMALL_METHODS = 0x32018,
	SMALL_METHOD_SIZE = 0x20,
	SMALL_DYNAMIC = 0x33800,
	SMALL_STRINGS = 0x1c000,
	/* MethodTables: of all methods, and of a type that small_generic() gives as an argument. */
	SMALL_METHOD_TABLE = 0x34000,
	SMALL_ARGUMENT = 0x34400,
};

struct small {
	uint8_t bytes[SMALL_BYTES];
	struct dotnet_image image;
	uint64_t reads;
};

void small_init(struct small *s);
void small_word(struct small *s, uint64_t address, uint64_t value);
void small_put(struct small *s, uint64_t address, const void *bytes, size_t n);
struct runtime_target small_target(struct small *s);
/* The MethodDesc of the method with the number N. */
uint64_t small_method(uint32_t n);
/* Sets the RangeSectionFlags of the code heap; small_init() makes one that is not collectible. */
void small_heap_flags(struct small *s, uint32_t flags);
/* Makes TOTAL the code of METHOD. */
void small_compile(struct small *s, uint64_t method);
/* Makes the type that has all the methods a generic type with one type argument, SMALL_ARGUMENT.
 * ROW: of the argument in the metadata's TypeDef table. MAJOR: .NET's version, which decides where
 * a MethodTable has that number. */
void small_generic(struct small *s, uint16_t row, uint32_t major);
