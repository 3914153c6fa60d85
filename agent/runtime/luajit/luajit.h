/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LuaJIT 2.1 with 64-bit references, as one of the runtimes of agent/runtime/runtime.h. The parts
 * share what was found in the interpreter's file, and how prototypes are read.
 */
#pragma once

#include "agent/runtime/luajit/walker_data.h"
#include "agent/runtime/runtime.h"

enum {
	LUAJIT_NAME_MAX = 256,	       /* bytes of a name or a chunk's name; the rest is cut off */
	LUAJIT_BYTECODE_MAX = 1 << 16, /* instructions searched for the start of a function */
	LUAJIT_INFO_MAX = 1 << 16,     /* bytes read of a function's variable names */
};

/* Data found in a file; kernel.vm is an ELF virtual address. */
struct luajit_image {
	struct runtime_image base;
	struct kiln_luajit kernel;
};

int luajit_probe(const struct image *image, struct runtime_image **ret,
		 struct error *err) _must_check_;
void luajit_forget(struct runtime_image *ri);

extern const struct interpreter_ops luajit_ops;

int luajit_symbolize(void *state, const struct target_memory *memory, const uint64_t words[2],
		     char *scratch, size_t scratch_size, struct symbol_result *ret);

/* A function's prototype (GCproto) and its bytecode, which follows it. */
struct luajit_proto {
	uint64_t address;
	uint64_t k, chunk, lineinfo, uvinfo, varinfo;
	uint32_t sizebc, sizekgc, sizept, sizeuv;
	uint32_t first_line, lines;
	uint64_t cookie; /* kiln_luajit_cookie() */
};

static inline uint64_t luajit_bytecode(const struct luajit_proto *p)
{
	return p->address + LUAJIT_PROTO_SIZE;
}

/* The prototype of the function that has an instruction at AT. */
int luajit_find_proto(const struct target_memory *m, uint64_t at, struct luajit_proto *ret);
/* The line of instruction number POS of P; 0: not known. */
uint32_t luajit_line(const struct target_memory *m, const struct luajit_proto *p, uint32_t pos);
/* Reads the string (GCstr) at ADDRESS, at most SIZE bytes with its NUL. */
int luajit_string(const struct target_memory *m, uint64_t address, char *ret, size_t size);
/* The same for a C string at ADDRESS. */
int luajit_text(const struct target_memory *m, uint64_t address, char *ret, size_t size);
/*
 * Writes the name that the function P has for the function that its instruction POS calls into NAME
 * (of SIZE bytes). -ENOENT: there is no name for it.
 */
int luajit_callee(const struct target_memory *m, const struct luajit_proto *p, uint32_t pos,
		  char *name, size_t size);
