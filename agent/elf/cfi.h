/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call frame information: .eh_frame and .debug_frame (DWARF 5 §6.4, LSB 5 "Exception Frames").
 * cfi_collect() adds a span for every FDE; cfi_execute() runs the program of one FDE and adds its
 * unwind rows.
 */
#pragma once

#include "agent/elf/image.h"
#include "agent/elf/rows.h"
#include "agent/elf/span.h"

enum {
	CFI_CIES_MAX = 65536,
	CFI_STACK_MAX = 16, /* DW_CFA_remember_state, nested */
};

enum cfi_where {
	CFI_SAME,      /* not changed, or not mentioned */
	CFI_UNDEFINED, /* lost: for the return address, the end of the stack */
	CFI_AT_CFA,    /* saved at CFA + off */
	CFI_AT_REG,    /* saved at register `reg` + off */
	CFI_IN_REG,    /* in register `reg` */
	CFI_OTHER,     /* a location that no rule can express */
};

struct cfi_location {
	uint8_t where; /* enum cfi_where */
	uint8_t reg;
	int64_t off;
};

enum cfi_cfa { CFI_CFA_NONE, CFI_CFA_REG, CFI_CFA_DEREF, CFI_CFA_PLT, CFI_CFA_OTHER };

struct cfi_state {
	uint8_t cfa; /* enum cfi_cfa */
	uint8_t reg;
	uint8_t plt; /* CFI_CFA_PLT: see arch_plt_expression() */
	int64_t off, deref_off;
	struct cfi_location ra, fp, extra;
};

struct cfi_cie {
	uint64_t at; /* offset in the section */
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding; /* DW_EH_PE_* of addresses in the FDEs */
	bool has_augmentation, is_signal, is_bad;
	struct cfi_state initial;
};

struct cfi {
	const struct image *image;
	struct cursor data; /* the section */
	uint64_t vaddr;	    /* of the section */
	uint64_t text, got; /* addresses of .text and .got: bases of encoded pointers */
	bool is_debug;	    /* .debug_frame */
	/* An entry of length 0 ends the section: it was found by PT_GNU_EH_FRAME, which does not
	 * tell its size. */
	bool is_terminated;
	void *owned;	      /* unpacked bytes */
	struct cfi_cie *cies; /* ascending by `at` */
	size_t n_cies, cies_cap;
	const struct cfi_cie *last; /* the CIE that was looked up last */
	uint32_t malformed, unsupported;
};

/* Finds .eh_frame or .debug_frame. -ENOENT when IMAGE has none. Release with cfi_done(). */
int cfi_open_eh_frame(struct cfi *cfi, const struct image *image) _must_check_;
int cfi_open_debug_frame(struct cfi *cfi, const struct image *image) _must_check_;
void cfi_done(struct cfi *cfi);
/* Adds the span of every usable FDE that begins in an executable segment; in file order. */
int cfi_collect(struct cfi *cfi, struct spans *spans) _must_check_;
/* Executes the FDE of SPAN and adds its rows inside of SPAN. */
void cfi_execute(struct cfi *cfi, const struct span *span, struct rows *rows);

/* A parsed FDE. For cfi_collect() and cfi_execute(). */
struct cfi_fde {
	const struct cfi_cie *cie;
	uint64_t start, size;
	struct cursor program;
};
bool cfi_read_fde(struct cfi *cfi, uint64_t at, struct cfi_fde *ret);
/*
 * Executes PROGRAM from address PC on. *STATE: the initial state; the final state on success. ROWS,
 * if not NULL, gets the rows inside of SPAN. False when the program is malformed.
 */
bool cfi_run(struct cfi *cfi, const struct cfi_cie *cie, struct cursor program,
	     struct cfi_state *state, uint64_t pc, const struct span *span, struct rows *rows);
/* An encoded pointer (LSB 5, table "DWARF Exception Header Encoding"). Sets c->bad on failure. */
uint64_t cfi_pointer(const struct cfi *cfi, struct cursor *c, uint8_t encoding);
