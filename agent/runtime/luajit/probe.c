// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes LuaJIT in a file. Most files have no symbols for it. But the interpreter is one piece
 * of assembly, and its unwind information (lj_vm_x64.dasc, emit_asm_debug()) differs from that of
 * any compiler: one row that holds from the first byte on. The offsets in global_State and GCtrace
 * that the walker needs are read from instructions that only versions with 64-bit references have.
 * Any thread.
 */
#include "agent/runtime/luajit/luajit.h"

#include <elf.h>

#include "agent/elf/cfi.h"
#include "bpf/arch.h"

enum {
	VM_MIN = 4 << 10,
	VM_MAX = 128 << 10,
	OFFSET_MAX = 1 << 16, /* largest distance between parts of GG_State */
	EXIT_MAX = 512,	      /* bytes of vm_exit_handler until it frees its stack */
	CFA = 80,
};

/* DW_CFA_def_cfa_offset 80; DW_CFA_offset rbp 2, rbx 3, r15 4, r14 5 (in units of 8 bytes) */
static const uint8_t frame[] = {0x0e, CFA, 0x86, 2, 0x83, 3, 0x8f, 4, 0x8e, 5};

/* In patterns of code: ANY matches any byte. */
enum { ANY = 0x100 };

/* vm_call: add $GG_G2DISP,%r14 */
static const uint16_t dispatch[] = {0x49, 0x81, 0xc6, ANY, ANY, ANY, ANY};
/* mov %rdi,0x10(%rsp): stores the lua_State, as 64 bits */
static const uint16_t state[] = {0x48, 0x89, 0x7c, 0x24, 0x10};
/* movl $~LJ_VMST_INTERP,vmstate(%r14) */
static const uint16_t interp[] = {0x41, 0xc7, 0x86, ANY, ANY, ANY, ANY, 0xff, 0xff, 0xff, 0xff};
/*
 * BC_JLOOP: mov trace(%r14),%rcx; mov (%rcx,%rax,8),%rax; mov mcode(%rax),%rax;
 * mov 0x10(%rsp),%rbp; mov %rdx,jit_base(%r14); mov %rbp,tmpbuf.L(%r14); sub $16,%rsp;
 * mov %r12,0x10(%rsp); mov %r13,8(%rsp); jmp *%rax
 */
static const uint16_t jloop[] = {0x49, 0x8b, 0x8e, ANY,	 ANY,  ANY,  ANY,  0x48, 0x8b, 0x04,
				 0xc1, 0x48, 0x8b, 0x40, ANY,  0x48, 0x8b, 0x6c, 0x24, 0x10,
				 0x49, 0x89, 0x96, ANY,	 ANY,  ANY,  ANY,  0x49, 0x89, 0xae,
				 ANY,  ANY,  ANY,  ANY,	 0x48, 0x83, 0xec, 0x10, 0x4c, 0x89,
				 0x64, 0x24, 0x10, 0x4c, 0x89, 0x6c, 0x24, 0x08, 0xff, 0xe0};
enum { JLOOP_TRACE = 3, JLOOP_MCODE = 14, JLOOP_BASE = 23, JLOOP_SHORT = 38 };
/* vm_exit_handler: push %r13, %r12, %r11, %r10, %r9, %r8, %rdi, %rsi, %rbp */
static const uint16_t leave[] = {0x41, 0x55, 0x41, 0x54, 0x41, 0x53, 0x41, 0x52,
				 0x41, 0x51, 0x41, 0x50, 0x57, 0x56, 0x55};
/* ... until mov %rcx,%rsp */
static const uint16_t left[] = {0x48, 0x89, 0xcc};
/* vm_ffi_callback: push %rbx; push %r15; push %r14; sub $40,%rsp; lea GG_G2DISP(%rbp),%r14 */
static const uint16_t callback[] = {0x53, 0x41, 0x57, 0x41, 0x56, 0x48,
				    0x83, 0xec, 0x28, 0x4c, 0x8d, 0xb5};

/* The offset of the first match of PATTERN in the SIZE bytes at CODE, from FROM on; SIZE: none. */
static size_t find(const uint8_t *code, size_t size, size_t from, const uint16_t *pattern, size_t n)
{
	for (size_t i = from; n <= size && i <= size - n; i++) {
		size_t k = 0;

		while (k < n && (pattern[k] == ANY || pattern[k] == code[i + k]))
			k++;
		if (k == n)
			return i;
	}
	return size;
}

static int32_t number(const uint8_t *p)
{
	int32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* ---- the interpreter's code ------------------------------------------------------------------ */

/* Finds the code that enters and leaves traces, and the offsets in global_State and GCtrace that it
 * uses. False: there is no JIT compiler. */
static bool read_jit(const uint8_t *code, size_t size, int32_t disp, struct kiln_luajit *k)
{
	size_t enter = find(code, size, 0, jloop, ARRAY_SIZE(jloop)), from, end, vmstate;

	from = find(code, size, 0, leave, ARRAY_SIZE(leave));
	end = from < size ? find(code, size, from, left, ARRAY_SIZE(left)) : size;
	vmstate = find(code, size, 0, interp, ARRAY_SIZE(interp));
	if (enter == size || end == size || end - from > EXIT_MAX || vmstate == size)
		return false;
	k->trace = disp + number(code + enter + JLOOP_TRACE);
	k->jit_base = disp + number(code + enter + JLOOP_BASE);
	k->vmstate = disp + number(code + vmstate + 3);
	k->trace_mcode = code[enter + JLOOP_MCODE];
	if (k->trace < 0 || k->trace > OFFSET_MAX || k->jit_base < 0 || k->jit_base > OFFSET_MAX ||
	    k->vmstate < 0 || k->vmstate > OFFSET_MAX)
		return false;
	k->enter_from = (uint32_t)enter + JLOOP_SHORT;
	k->enter_to = (uint32_t)(enter + ARRAY_SIZE(jloop));
	k->exit_from = (uint32_t)from + 1;
	k->exit_to = (uint32_t)(end + ARRAY_SIZE(left));
	return true;
}

static int read_code(const struct image *image, uint64_t start, uint64_t size,
		     struct kiln_luajit *k, struct error *err)
{
	struct cursor c = image_at_vaddr(image, start);
	const uint8_t *code = c.bad || cursor_left(&c) < size ? NULL : cursor_bytes(&c, size);
	size_t at;
	int32_t disp;

	if (!code)
		return error_set(err, -ENOTSUP, "LuaJIT whose interpreter is not in the file");
	at = find(code, size, 0, dispatch, ARRAY_SIZE(dispatch));
	if (at == size || find(code, size, 0, state, ARRAY_SIZE(state)) == size)
		return error_set(err, -ENOTSUP,
				 "LuaJIT with 32-bit references (2.0, or built without GC64)");
	disp = number(code + at + 3);
	k->vm = start;
	k->vm_size = (uint32_t)size;
	at = find(code, size, 0, callback, ARRAY_SIZE(callback));
	k->callback_from = at < size ? (uint32_t)at : 0;
	k->has_jit = read_jit(code, size, disp, k);
	return 0;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Is S, the state at the start of an FDE, the one that `frame` sets up? */
static bool begins_with_frame(const struct cfi_state *s)
{
	return s->cfa == CFI_CFA_REG && s->reg == ARCH_REG_SP && s->off == CFA &&
	       s->fp.where == CFI_AT_CFA && s->fp.off == -16 && s->extra.where == CFI_AT_CFA &&
	       s->extra.off == -24;
}

/* Is the unwind information of SPAN the interpreter's? */
static bool is_vm(struct cfi *cfi, const struct span *span)
{
	struct cfi_fde fde;
	const uint8_t *program;

	if (span->size < VM_MIN || span->size > VM_MAX || !cfi_read_fde(cfi, span->item, &fde))
		return false;
	/* Assemblers move instructions with which all FDEs of a CIE begin into the CIE. */
	if (begins_with_frame(&fde.cie->initial))
		return true;
	program = cursor_bytes(&fde.program, sizeof(frame));
	return program && memcmp(program, frame, sizeof(frame)) == 0;
}

/* A quick check before the unwind information is parsed: most files do not have LuaJIT. */
static bool may_be_luajit(const struct image *image)
{
	const struct image_section *section = image_section(image, ".eh_frame");
	struct cursor c;

	if (!section)
		return image->n_sections == 0; /* no section headers */
	c = image_section_data(image, section);
	return !c.bad && memmem(c.data, c.size, frame, sizeof(frame));
}

static void read_version(const struct image *image, char *ret, size_t size)
{
	static const char *const sections[] = {".rodata", ".data.rel.ro", ".rdata"};
	static const char product[] = "LuaJIT 2.";

	snprintf(ret, size, "2.1");
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		const struct image_section *section = image_section(image, sections[i]);
		struct cursor c = section ? image_section_data(image, section) : (struct cursor){};
		const char *at =
		    section && !c.bad ? memmem(c.data, c.size, product, sizeof(product) - 1) : NULL;
		size_t rest;

		if (!at)
			continue;
		at += sizeof(product) - 3;
		rest = c.size - (size_t)(at - (const char *)c.data);
		snprintf(ret, size, "%.*s", (int)strnlen(at, MIN(rest, size - 1)), at);
		return;
	}
}

static int fill(const struct image *image, struct luajit_image *l, struct error *err)
{
	_cleanup_(cfi_done) struct cfi cfi = {};
	_cleanup_(spans_done) struct spans spans = {};
	int r = -ENOENT;

	if (image->machine != EM_X86_64 || !may_be_luajit(image))
		return -ENOENT;
	if (cfi_open_eh_frame(&cfi, image) < 0 || cfi_collect(&cfi, &spans) < 0)
		return -ENOENT;
	for (size_t i = 0; i < spans.n && r < 0; i++) {
		const struct span *s = &spans.v[i];

		if (!is_vm(&cfi, s))
			continue;
		r = read_code(image, s->start, s->size, &l->kernel, err);
		l->base.ranges[0] = (struct runtime_range){.start = s->start, .end = span_end(s)};
	}
	if (r < 0)
		return r;
	l->base.n_ranges = 1;
	read_version(image, l->base.version, sizeof(l->base.version));
	return 0;
}

int luajit_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	_cleanup_free_ struct luajit_image *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->base.ops = &luajit_ops;
	r = fill(image, l, err);
	if (r < 0)
		return r;
	*ret = &l->base;
	l = NULL;
	return 0;
}

void luajit_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct luajit_image, base));
}
