/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct gopclntab: the function table that every Go binary carries, stripped or not: names, files,
 * lines, inlined calls and, for unwinding, how far the stack pointer is from the return address.
 *
 * Layouts 1.2, 1.16, 1.18 and 1.20 (the last one is that of Go 1.20 to 1.26). Facts from the Go
 * sources: src/debug/gosym/pclntab.go, src/runtime/symtab.go, src/internal/abi/symtab.go.
 * Immutable once open, so any number of threads may look up at once. Every string that is returned
 * points into the image and lives as long as the table, which holds a reference to the image.
 * All bytes are foreign and checked; a lookup that meets bad bytes finds nothing.
 */
#pragma once

#include "agent/elf/image.h"

enum {
	GOPCLNTAB_INLINE_MAX =
	    64, /* frames of one address; the compiler's budget stays far below */
};

struct gopclntab;

enum gopclntab_flags {			       /* Go: internal/abi, FuncFlag; from Go 1.17 on */
		       GOPCLNTAB_TOPFRAME = 1, /* outermost function of a stack */
		       GOPCLNTAB_SPWRITE = 2,  /* writes arbitrary values to SP */
		       GOPCLNTAB_ASM = 4,
};

struct gopclntab_func {
	uint64_t entry, end; /* ELF virtual addresses, [entry, end) */
	const char *name;    /* "runtime.mcall"; "" when damaged; NULL: see gopclntab_place() */
	int32_t name_at;     /* offset of its name; private to gopclntab.c, as `sp` and `at` */
	uint32_t start_line; /* of the func keyword; 0 when unknown (before Go 1.20) */
	uint8_t flags;	     /* enum gopclntab_flags */
	uint8_t func_id;     /* differs between Go releases */
	uint32_t index;
	uint32_t sp; /* offset of its pc-SP table */
	size_t at;   /* offset of its record in the function data */
};

/* -ENOENT when IMAGE has no table, -EBADMSG when it is damaged. */
int gopclntab_open(const struct image *image, struct gopclntab **ret,
		   struct error *err) _must_check_;
struct gopclntab *gopclntab_free(struct gopclntab *t);
DEFINE_CLEANUP(struct gopclntab *, gopclntab_free)

/* Functions in the order of their addresses. */
size_t gopclntab_count(const struct gopclntab *t);
bool gopclntab_at(const struct gopclntab *t, size_t i, struct gopclntab_func *ret);
bool gopclntab_find(const struct gopclntab *t, uint64_t vaddr, struct gopclntab_func *ret);
/*
 * As gopclntab_at(), but `name` is NULL: for a caller that goes through all functions and needs the
 * names of a few. To read a name costs more than all else here.
 */
bool gopclntab_place(const struct gopclntab *t, size_t i, struct gopclntab_func *ret);
/* The name of F; "" when it is damaged. */
const char *gopclntab_name(const struct gopclntab *t, const struct gopclntab_func *f);
/*
 * The first eight bytes of the name of F, for gopclntab_head_begins(). When the name is shorter,
 * the last of them belong to the next name. 0 when the table ends before.
 */
uint64_t gopclntab_name_head(const struct gopclntab *t, const struct gopclntab_func *f);
/* Does the name whose first bytes are HEAD begin with PREFIX? PREFIX: at most eight bytes. */
static inline bool gopclntab_head_begins(uint64_t head, const char *prefix)
{
	return memcmp(&head, prefix, strlen(prefix)) == 0;
}

/*
 * Line of VADDR in F as written in the source, inlined code included: the file is that of the
 * innermost inlined function. false when unknown.
 */
bool gopclntab_line(const struct gopclntab *t, const struct gopclntab_func *f, uint64_t vaddr,
		    const char **ret_file, uint32_t *ret_line);

struct gopclntab_frame {
	const char *name;    /* never NULL */
	const char *file;    /* "" when unknown */
	uint32_t line;	     /* 0 when unknown */
	uint32_t start_line; /* 0 when unknown */
	bool is_inlined;     /* into the next frame */
};

/*
 * All functions at VADDR, innermost first, at most MAX (GOPCLNTAB_INLINE_MAX is enough); VADDR must
 * lie in the call instruction, so for return addresses pass pc - 1. Returns how many, 0 when VADDR
 * belongs to no Go function. Inlined calls are known from Go 1.18 on; before, one frame.
 */
size_t gopclntab_symbolize(const struct gopclntab *t, uint64_t vaddr,
			   struct gopclntab_frame *frames, size_t max);

/* A pc-value table: runs of addresses with one value, in order. */
struct gopclntab_iter {
	struct cursor c;
	uint64_t pc, end;
	uint32_t n_runs;
	int32_t value;
	uint8_t quantum;
	bool first;
};

struct gopclntab_run {
	uint64_t start, end; /* ELF virtual addresses */
	int32_t value;
};

/* Bytes between SP and the return address. */
struct gopclntab_iter gopclntab_sp(const struct gopclntab *t, const struct gopclntab_func *f);
/* PCDATA table number TABLE; empty when F has none. */
struct gopclntab_iter gopclntab_pcdata(const struct gopclntab *t, const struct gopclntab_func *f,
				       uint32_t table);
bool gopclntab_next(struct gopclntab_iter *it, struct gopclntab_run *ret);
/* The table's value at VADDR; -1 when there is none, as in the Go runtime. */
int32_t gopclntab_value(struct gopclntab_iter it, uint64_t vaddr);
/* Bytes of FUNCDATA number N, to the end of the segment; bad cursor when F has none. */
struct cursor gopclntab_funcdata(const struct gopclntab *t, const struct gopclntab_func *f,
				 uint32_t n);
