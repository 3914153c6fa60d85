/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The architecture's part of go_frames.c: how Go's functions set up and leave frames
 * (go_frames_x86_64.c, go_frames_arm64.c).
 */
#pragma once

#include "agent/elf/gopclntab.h"
#include "agent/elf/image.h"
#include "bpf/types.h"

enum go_kind {
	GO_PLAIN,
	GO_OUTERMOST, /* KILN_RULE_STOP everywhere */
	GO_SWITCHES,  /* changes stacks; fp leads to the caller across them */
	GO_WRITES_SP, /* any other function that loads SP; fp leads to the caller if it was saved */
	GO_LEAVES,    /* does not return once SP is loaded */
	GO_LOSES,     /* returns, but once SP is loaded no rule can express how */
	GO_TRAMPOLINE,
};

struct go_code {
	struct cursor bytes; /* of the function */
	uint64_t entry;
};

extern const uint32_t go_function_align;

/* N bytes of the function at VADDR, or NULL. */
const uint8_t *go_code_at(const struct go_code *code, uint64_t vaddr, size_t n);

/* The kind of runtime.asmcgocall, which depends on the architecture: GO_SWITCHES or GO_LOSES. */
enum go_kind go_arch_asmcgocall(void);
/*
 * The address of the first instruction that loads SP with another stack's; END when there is none.
 */
uint64_t go_arch_sp_load(const struct go_code *code, uint64_t end);
/*
 * The address in RUN, which has a frame, from which on the prologue has saved fp; UINT64_MAX when
 * it does not save fp there. BEFORE: the SP delta of the run before RUN, bytes.
 */
uint64_t go_arch_saves_fp(const struct go_code *code, const struct gopclntab_run *run,
			  int32_t before);
/*
 * The address behind the instruction in [START, END) that restores the caller's fp while the frame
 * is still there; UINT64_MAX when there is none.
 */
uint64_t go_arch_restores_fp(const struct go_code *code, uint64_t start, uint64_t end);
/*
 * The rule of a frame. DELTA: the value of the pc-SP table, bytes. HAS_FP: the caller's fp is
 * saved.
 */
struct kiln_rule go_arch_rule(int32_t delta, bool has_fp);
/* The same, but the CFA counts from fp: SP may point to another stack. */
struct kiln_rule go_arch_rule_by_fp(int32_t delta, bool has_fp);
