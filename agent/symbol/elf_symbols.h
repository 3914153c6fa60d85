/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct elf_symbols: which function covers an address of one image, from ELF symbol tables and PLT
 * stubs. 12 bytes a function: names stay in the file and are read (pread) when asked for.
 *
 * A function is STT_FUNC, STT_GNU_IFUNC, or STT_NOTYPE in an executable section. A symbol with a
 * size covers its bytes; where two overlap, the one that starts later wins. One without a size that
 * starts within a sized one is a label and covers nothing; else it covers up to the next symbol or
 * the section's end. Of several symbols at one address, in this order: one with a size, a typed
 * one, global before weak before local, fewer leading underscores, the shorter name, the first in
 * byte order. (A local alias is an implementation detail, a weak one may stand for something else
 * elsewhere; underscores mark internal names.)
 *
 * Immutable once built; any number of threads may look up.
 */
#pragma once

#include "agent/elf/image.h"

enum {
	ELF_SYMBOLS_MAX = 1 << 20, /* functions of one image; the rest is counted and dropped */
	ELF_SYMBOLS_LOOKED_AT = 1 << 24, /* symbols read of a table: most are no functions */
	ELF_SYMBOLS_INPUTS_MAX = 3,
	ELF_SYMBOLS_UNPACKED_MAX = 32 << 20, /* bytes of one compressed symbol or string table */
	ELF_SYMBOLS_BLOB_MAX = 16 << 20,     /* bytes of names that are in no file */
};

struct elf_symbols;

/*
 * One symbol table to read. Names in memory images are copied, so the table holds no reference to
 * such an image.
 */
struct elf_symbols_input {
	struct image *image; /* the image itself, its debug file, its unpacked .gnu_debugdata */
	bool dynamic;	     /* .dynsym rather than .symtab */
};

struct elf_symbol {
	uint64_t start, end; /* the piece [start, end) that the function covers here */
	uint32_t name;	     /* for elf_symbols_name() */
};

/* How many entries the image's .symtab (or .dynsym) has, of all kinds. */
size_t elf_symbols_listed(const struct image *image, bool dynamic);

/*
 * Functions of all INPUTS together, within the executable sections of IMAGE, and its PLT stubs
 * ("printf@plt"). Tables that are damaged are skipped; 0 even when there is not one function.
 */
int elf_symbols_build(struct image *image, const struct elf_symbols_input *inputs, size_t n_inputs,
		      struct elf_symbols **ret, struct error *err) _must_check_;
struct elf_symbols *elf_symbols_free(struct elf_symbols *t);
DEFINE_CLEANUP(struct elf_symbols *, elf_symbols_free)

bool elf_symbols_find(const struct elf_symbols *t, uint64_t vaddr, struct elf_symbol *ret);
/* The name, NUL-terminated, cut to SIZE - 1 bytes. Returns its length, 0 when it cannot be read. */
size_t elf_symbols_name(const struct elf_symbols *t, const struct elf_symbol *s, char *out,
			size_t size);
size_t elf_symbols_count(const struct elf_symbols *t);
bool elf_symbols_at(const struct elf_symbols *t, size_t i, struct elf_symbol *ret);
size_t elf_symbols_bytes(const struct elf_symbols *t);
/* How many references to IMAGE the table has. */
uint32_t elf_symbols_holds(const struct elf_symbols *t, const struct image *image);
