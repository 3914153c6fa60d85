/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unwind tables: from an image's .eh_frame, .debug_frame, or .gopclntab to the rows that the BPF
 * walk reads (bpf/types.h, struct kiln_table). Any thread; no shared state.
 */
#pragma once

#include "agent/elf/code_places.h"
#include "agent/elf/image.h"
#include "bpf/types.h"

enum {
	UNWIND_ROWS_MAX = 8 << 20, /* libLLVM-14 has 0.8 M, clang about 2 M */
	UNWIND_RULES_MAX = 65535,
	UNWIND_SPAN_MAX = 1 << 30, /* bytes from the first to behind the last executable segment */
};

/* A compiled table in plain memory, as it will lie in the slab. */
struct unwind_table {
	uint64_t base;	 /* multiple of 1 KiB */
	uint32_t *index; /* blocks + 1 entries */
	uint32_t blocks;
	struct kiln_row *rows;
	uint32_t n_rows;
	struct kiln_rule *rules; /* rule 0 is KILN_RULE_INVALID */
	uint32_t n_rules;
	uint32_t unsupported; /* CFI rows whose rule cannot be expressed: they are INVALID */
	uint32_t malformed;   /* FDEs or CIEs that were skipped */
};

/*
 * Compiles all unwind information of IMAGE. The sources, the better ones first: FDEs of .eh_frame
 * (by section, or by PT_GNU_EH_FRAME when sections are stripped); .gopclntab for Go text;
 * .debug_frame; known code without unwind information (musl's and ld.so's _start, the signal
 * trampoline), by its bytes; the code itself (code_frames.h). When there is too much of the latter
 * it becomes UNREAD, and places in it are read when samples meet them (code_places.h). Code that no
 * source covers is INVALID. 0 also when an image has no unwind information at all (then one INVALID
 * row). Ends with image_forget().
 */
int unwind_compile(const struct image *image, struct unwind_table **ret,
		   struct error *err) _must_check_;
struct unwind_table *unwind_table_free(struct unwind_table *t);
DEFINE_CLEANUP(struct unwind_table *, unwind_table_free)

/* Code [start, end), ELF virtual addresses, whose frames a runtime walks. */
struct unwind_range {
	uint64_t start, end;
	bool frame_pointer; /* no unwind information, but keeps fp: gets KILN_RULE_FP */
	bool keeps_fp;	    /* gets KILN_RULE_FRAME_POINTER */
	bool native;	    /* does not get KILN_RULE_RUNTIME */
};
/*
 * Marks the code in N RANGES (in any order and of any size) as RUNTIME's: sets KILN_RULE_RUNTIME in
 * its rules, unless the range says otherwise. Rows are split at the borders of ranges; where ranges
 * overlap the first one counts. Code with `frame_pointer` gets KILN_RULE_FP, other code keeps its
 * rule. Rules of kind KILN_RULE_DEREF, and rules that another runtime has marked, stay as they are.
 * *TABLE is replaced by a new table and freed; untouched on failure.
 */
int unwind_table_mark(struct unwind_table **table, const struct unwind_range *ranges, size_t n,
		      uint32_t runtime) _must_check_;

/*
 * Makes a copy of OLD in which the rules of PIECES (ascending, without overlaps) replace
 * KILN_RULE_UNREAD. All other rules stay, and so do runtimes' marks. OLD is not changed: it may lie
 * in the slab.
 */
int unwind_table_patch(const struct unwind_table *old, const struct code_piece *pieces, size_t n,
		       struct unwind_table **ret) _must_check_;

/* Bytes that the table takes in the slab, rules aligned to 16. */
size_t unwind_table_bytes(const struct unwind_table *t);
/* The rule for an ELF virtual address; the INVALID rule when there is none. */
const struct kiln_rule *unwind_lookup(const struct unwind_table *t, uint64_t vaddr);
