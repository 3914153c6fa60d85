// SPDX-License-Identifier: Apache-2.0
/*
 * arm64: the signal frame, and code without unwind information that is known by its bytes. Linkers
 * write no unwind information for PLT sections here. Patterns are searched only where no other
 * source has a rule, and the bytes scanned are bounded. Stateless; any thread.
 */
#include "agent/elf/arch.h"

#include <elf.h>

#include "agent/elf/cfi.h"
#include "agent/elf/code_finder.h"

enum {
	PLT_FIRST = 32, /* bytes of the first entry, which calls the resolver */
	BTI_C = 0xd503245f,
	STP_X16_X30 = 0xa9bf7bf0, /* stp x16, x30, [sp, #-16]! */
};

const uint16_t arch_machine = EM_AARCH64;
const uint32_t arch_relative = R_AARCH64_RELATIVE;

static const struct kiln_rule stop = {.kind = KILN_RULE_STOP};
static const struct kiln_rule signal_rule = {
    .kind = KILN_RULE_SIGNAL, .reg = ARCH_REG_SP, .cfa_off = ARCH_SIGNAL_UCONTEXT};
static const struct kiln_rule in_register = {
    .kind = KILN_RULE_RA_REG, .reg = ARCH_REG_SP, .ra_off = ARCH_REG_RA};

/*
 * Only signal trampolines have the augmentation 'S', so S is not checked. Kernels before 5.8
 * describe in their CFI just enough to reach the caller's frame record
 * (arch/arm64/kernel/vdso/sigreturn.S), but the ucontext in the signal frame has all registers.
 */
bool arch_signal_frame(const struct cfi_state *s, int32_t *ret)
{
	(void)s;
	*ret = ARCH_SIGNAL_UCONTEXT;
	return true;
}

bool arch_plt_expression(struct cursor c, uint8_t *ret_n)
{
	(void)c;
	(void)ret_n;
	return false;
}

/*
 * Stubs leave the return address in x30 when they jump. The first entry pushes it for the resolver:
 * [bti c;] stp x16, x30, [sp, #-16]!; adrp; ldr; add; br x17 (binutils bfd/elfnn-aarch64.c,
 * elfNN_aarch64_small_plt0_entry; lld ELF/Arch/AArch64.cpp, writePltHeader).
 */
static void plt_section(struct code_finder *f, const struct image_section *s)
{
	const struct kiln_rule pushed = {
	    .kind = KILN_RULE_CFA, .reg = ARCH_REG_SP, .ra_off = ARCH_RA_OFFSET, .cfa_off = 16};
	struct cursor c = image_section_data(f->image, s);
	uint32_t word = cursor_u32(&c);
	uint64_t at = s->vaddr;

	if (c.bad || s->vaddr + c.size < s->vaddr)
		return;
	if (word == BTI_C) {
		word = cursor_u32(&c);
		at += 4;
	}
	if (word == STP_X16_X30 && c.size >= PLT_FIRST) {
		code_finder_add(f, s->vaddr, at + 4, &in_register);
		code_finder_add(f, at + 4, s->vaddr + PLT_FIRST, &pushed);
		at = s->vaddr + PLT_FIRST;
	} else {
		at = s->vaddr;
	}
	code_finder_add(f, at, s->vaddr + c.size, &in_register);
}

static const struct code_pattern patterns[] = {
    /* mov x8, #139; svc #0: the kernel's vDSO, musl src/signal/aarch64/restore.s, Go
     * runtime.sigreturn__sigaction. The rule starts one byte before, because return addresses
     * are looked up at address - 1. */
    {"\x68\x11\x80\xd2\x01\x00\x00\xd4", 8, &signal_rule, 1},
    /* The new thread's side of musl's src/thread/aarch64/clone.s: ldp x1, x0, [sp], #16; blr x1;
     * mov x8, #93; svc #0 */
    {"\xe1\x03\xc1\xa8\x20\x00\x3f\xd6\xa8\x0b\x80\xd2\x01\x00\x00\xd4", 16, &stop, 0},
};

size_t arch_known_code(const struct image *image, const struct spans *covered,
		       struct code_rule *rules, size_t max)
{
	struct code_finder f = {.image = image, .rules = rules, .max = max};

	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		if ((s->flags & SHF_EXECINSTR) &&
		    (streq(s->name, ".plt") || has_prefix(s->name, ".plt.") ||
		     streq(s->name, ".iplt")))
			plt_section(&f, s);
	}
	code_finder_scan(&f, covered, patterns, ARRAY_SIZE(patterns));
	return f.n;
}
