// SPDX-License-Identifier: Apache-2.0
/*
 * x86-64: DWARF expressions that tool chains emit, and code without unwind information that is
 * known by its bytes. Patterns are searched only where no other source has a rule, and the bytes
 * scanned are bounded. Stateless; any thread.
 */
#include "agent/elf/arch.h"

#include <elf.h>

#include "agent/elf/cfi.h"
#include "agent/elf/code_finder.h"

enum {
	PLT_ENTRY = 16,
	MCONTEXT_PC = 168, /* in ucontext_t: uc_mcontext.gregs[REG_RIP] */
	START_MAX = 64,	   /* longest _start */
};

const uint16_t arch_machine = EM_X86_64;
const uint32_t arch_relative = R_X86_64_RELATIVE;

static const struct kiln_rule stop = {.kind = KILN_RULE_STOP};
static const struct kiln_rule signal_rule = {.kind = KILN_RULE_SIGNAL, .reg = ARCH_REG_SP};

static struct kiln_rule at_sp(int32_t off)
{
	return (struct kiln_rule){
	    .kind = KILN_RULE_CFA, .reg = ARCH_REG_SP, .ra_off = ARCH_RA_OFFSET, .cfa_off = off};
}

static void add(struct code_finder *f, uint64_t start, uint64_t end, struct kiln_rule rule)
{
	code_finder_add(f, start, end, &rule);
}

/* ---- signal frames ---------------------------------------------------------------------------
 */

/*
 * The CFA is the saved rsp and the return address the saved rip, which is the next word of the
 * mcontext.
 */
bool arch_signal_frame(const struct cfi_state *s, int32_t *ret)
{
	int64_t off = (int64_t)((uint64_t)s->ra.off - MCONTEXT_PC);

	if (s->cfa != CFI_CFA_DEREF || s->reg != ARCH_REG_SP || s->deref_off != 0 ||
	    s->ra.where != CFI_AT_REG || s->ra.reg != ARCH_REG_SP || s->ra.off != s->off + 8 ||
	    off < INT32_MIN || off > INT32_MAX)
		return false;
	*ret = (int32_t)off;
	return true;
}

/* ---- .plt -------------------------------------------------------------------------------------
 */

/*
 * binutils, bfd/elfxx-x86.c and elf64-x86-64.c (eh_frame_lazy_plt): rsp + 8 + ((rip & 15) >= n) *
 * 8, as breg7 8; breg16 0; lit15; and; lit n; ge; lit3; shl; plus.
 */
bool arch_plt_expression(struct cursor c, uint8_t *ret_n)
{
	static const uint8_t head[] = {0x77, 8, 0x80, 0, 0x3f, 0x1a},
			     tail[] = {0x2a, 0x33, 0x24, 0x22};
	const uint8_t *p = cursor_bytes(&c, sizeof(head) + 1 + sizeof(tail));

	if (!p || cursor_left(&c) || memcmp(p, head, sizeof(head)) != 0 ||
	    memcmp(p + sizeof(head) + 1, tail, sizeof(tail)) != 0 || p[6] < 0x30 || p[6] > 0x3f)
		return false;
	*ret_n = p[6] - 0x30;
	return true;
}

/*
 * The offset in an entry of a lazy .plt behind the push of the relocation index; 0 when the entry
 * pushes none.
 */
static uint8_t pushed_at(const uint8_t *entry)
{
	static const uint8_t endbr[] = {0xf3, 0x0f, 0x1e, 0xfa};

	if (entry[0] == 0xff && entry[1] == 0x25 && entry[6] == 0x68) /* jmp *; push; jmp */
		return 11;
	if (memcmp(entry, endbr, 4) == 0 && entry[4] == 0x68) /* endbr64; push; jmp */
		return 9;
	return 0;
}

static void plt_section(struct code_finder *f, const struct image_section *s)
{
	struct cursor c = image_section_data(f->image, s);
	uint8_t n = 0;
	bool lazy = !c.bad && c.size >= 2 * PLT_ENTRY && c.data[0] == 0xff && c.data[1] == 0x35;

	if (c.bad || c.size < 8 || s->vaddr + c.size < s->vaddr)
		return;
	if (!lazy || s->vaddr % PLT_ENTRY) {
		/* .plt.sec, .plt.got, .iplt: one jump each, nothing is pushed. */
		add(f, s->vaddr, s->vaddr + c.size, at_sp(8));
		return;
	}
	/* The first entry (push link_map; jmp *resolver) begins with the relocation index on the
	 * stack. */
	add(f, s->vaddr, s->vaddr + 6, at_sp(16));
	add(f, s->vaddr + 6, s->vaddr + PLT_ENTRY, at_sp(24));
	n = pushed_at(c.data + PLT_ENTRY);
	add(f, s->vaddr + PLT_ENTRY, s->vaddr + c.size,
	    n ? (struct kiln_rule){.kind = KILN_RULE_PLT,
				   .reg = ARCH_REG_SP,
				   .ra_off = ARCH_RA_OFFSET,
				   .cfa_off = n}
	      : at_sp(8));
}

/* ---- _init and _fini ---------------------------------------------------------------------------
 */

/*
 * .init and .fini are put together from crti.o and crtn.o: [endbr64;] sub $8,%rsp; ...; add
 * $8,%rsp; ret
 */
static void init_section(struct code_finder *f, const struct image_section *s)
{
	enum { INIT_MAX = 4096 }; /* bytes; the section makes a call or two */
	static const uint8_t sub[] = {0x48, 0x83, 0xec, 0x08},
			     add8[] = {0x48, 0x83, 0xc4, 0x08, 0xc3};
	struct cursor c = image_section_data(f->image, s);
	const uint8_t *p, *end;
	uint64_t from, to;

	if (c.bad || c.size < sizeof(sub) + sizeof(add8))
		return;
	p = memmem(c.data, MIN(c.size, sizeof(sub) + 4), sub, sizeof(sub));
	end = memmem(c.data, MIN(c.size, (size_t)INIT_MAX), add8, sizeof(add8));
	if (!p || !end || end < p)
		return;
	from = s->vaddr + (uint64_t)(p - c.data) + sizeof(sub);
	to = s->vaddr + (uint64_t)(end - c.data) + sizeof(add8) - 1;
	add(f, s->vaddr, from, at_sp(8));
	add(f, from, to, at_sp(16));
	add(f, to, to + 1, at_sp(8));
}

/* ---- code known by its bytes -------------------------------------------------------------------
 */

/*
 * Adds a rule for _start if it has a known form: that of musl (arch/x86_64/crt_arch.h: xor
 * %rbp,%rbp ... call), of glibc without CFI (xor %ebp,%ebp ... call; hlt), or of ld.so
 * (sysdeps/x86_64/dl-machine.h: mov %rsp,%rdi; call ... jmp *%r12).
 */
static void entry_point(struct code_finder *f)
{
	struct cursor c = image_at_vaddr(f->image, f->image->entry);
	uint64_t at = f->image->entry;
	const uint8_t *p = c.data, *end;
	size_t n;

	if (c.bad || c.size < 8)
		return;
	n = MIN(c.size, (size_t)START_MAX);
	if (memcmp(p, "\xf3\x0f\x1e\xfa", 4) == 0) { /* endbr64 */
		p += 4;
		n -= 4;
	}
	if (n >= 8 && memcmp(p, "\x48\x89\xe7\xe8", 4) == 0) {
		end = memmem(p, n, "\x41\xff\xe4", 3);
		n = end ? (size_t)(end - p) + 3 : 8;
	} else if ((n >= 3 && memcmp(p, "\x48\x31\xed", 3) == 0) || memcmp(p, "\x31\xed", 2) == 0) {
		end = memmem(p, n, "\xf4", 1);
		if (!end)
			end = memmem(p, n > 5 ? n - 5 : 0, "\xe8", 1);
		n = !end ? 8 : *end == 0xf4 ? (size_t)(end - p) + 1 : (size_t)(end - p) + 5;
	} else {
		return;
	}
	add(f, at, at + (uint64_t)(p - c.data) + n, stop);
}

static const struct code_pattern patterns[] = {
    /* mov $15,%rax; syscall: musl src/signal/x86_64/restore.s, Go runtime.sigreturn__sigaction */
    {"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9, &signal_rule, 1},
    /* The new thread's side of musl's src/thread/x86_64/clone.s: xor %ebp,%ebp; pop %rdi; call
     * *%r9; mov %eax,%edi; xor %eax,%eax; mov $60,%al; syscall; hlt */
    {"\x31\xed\x5f\x41\xff\xd1\x89\xc7\x31\xc0\xb0\x3c\x0f\x05\xf4", 15, &stop, 0},
};

size_t arch_known_code(const struct image *image, const struct spans *covered,
		       struct code_rule *rules, size_t max)
{
	struct code_finder f = {.image = image, .rules = rules, .max = max};

	entry_point(&f);
	for (size_t i = 0; i < image->n_sections; i++) {
		const struct image_section *s = &image->sections[i];

		if (!(s->flags & SHF_EXECINSTR))
			continue;
		if (streq(s->name, ".plt") || has_prefix(s->name, ".plt.") ||
		    streq(s->name, ".iplt"))
			plt_section(&f, s);
		else if (streq(s->name, ".init") || streq(s->name, ".fini"))
			init_section(&f, s);
	}
	code_finder_scan(&f, covered, patterns, ARRAY_SIZE(patterns));
	return f.n;
}
