/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Go's functions look like on the architecture: go_frames_x86_64.c, go_frames_arm64.c. For
 * go_frames.c.
 */
#pragma once

#include "agent/elf/gopclntab.h"
#include "agent/elf/image.h"
#include "bpf/types.h"

enum go_kind {
	GO_PLAIN,
	GO_OUTERMOST, /* KILN_RULE_STOP everywhere */
	GO_SWITCHES,  /* the frame pointer leads across the stacks */
	GO_WRITES_SP, /* some other function that loads SP: so does fp, if it was saved */
	GO_LEAVES,    /* no way back once SP is loaded */
	GO_LOSES,     /* a way back once SP is loaded, that no rule can say */
	GO_TRAMPOLINE,
};

struct go_code {
	struct cursor bytes; /* of the function */
	uint64_t entry;
};

extern const uint32_t go_function_align;

/* N bytes of the function at VADDR, or NULL. */
const uint8_t *go_code_at(const struct go_code *code, uint64_t vaddr, size_t n);

/* asmcgocall is different: GO_SWITCHES or GO_LOSES. */
enum go_kind go_arch_asmcgocall(void);
/* The first instruction that moves SP elsewhere; or END. */
uint64_t go_arch_sp_load(const struct go_code *code, uint64_t end);
/*
 * RUN has a frame, the one BEFORE it of BEFORE bytes. Where in RUN has the prologue saved fp?
 * UINT64_MAX: not there.
 */
uint64_t go_arch_saves_fp(const struct go_code *code, const struct gopclntab_run *run,
			  int32_t before);
/*
 * Behind the instruction in [start, end) that loads the caller's fp back while the frame still is
 * there; UINT64_MAX: there is none.
 */
uint64_t go_arch_restores_fp(const struct go_code *code, uint64_t start, uint64_t end);
/* DELTA: bytes from SP to where the table of SPs counts from. HAS_FP: fp is saved. */
struct kiln_rule go_arch_rule(int32_t delta, bool has_fp);
/* The same by the frame pointer, whatever stack SP points to. */
struct kiln_rule go_arch_rule_by_fp(int32_t delta, bool has_fp);
