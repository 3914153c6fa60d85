// SPDX-License-Identifier: Apache-2.0
/*
 * A PLT stub jumps through a slot of the global offset table, and a relocation names the function
 * whose address goes there. Both linkers and hardening options (-z ibtplt, -z now) shape the
 * sections in many ways, so nothing is derived from indices: each stub is decoded for the slot that
 * it loads (x86-64: jmp *disp(%rip); arm64: adrp x16, ldr x17), and the slot is looked for among
 * the relocations. Only slots are kept in memory: 16 bytes each. Any thread.
 *
 * Relocation types: System V ABI for x86-64 (GLOB_DAT 6, JUMP_SLOT 7, IRELATIVE 37) and for arm64
 * (1025, 1026, 1032).
 */
#include "agent/symbol/plt.h"

#include <elf.h>

#include "agent/symbol/demangle.h"
#include "agent/symbol/elf_read.h"

/*
 * A section is read as a whole up to this size: a large library has thousands of stubs, each with a
 * relocation, a symbol and a name. (libcrypto 3.0: 15,000 reads become 5.)
 */
enum { SECTION_LOAD_MAX = 4 << 20 };

struct slot {
	uint64_t address;
	uint32_t symbol; /* 0: IRELATIVE */
	uint32_t low;	 /* resolver, relative to the first segment */
};

struct plt {
	const struct image *image;
	struct slot *slots;
	size_t n_slots, cap;
	uint64_t base;
	struct elf_source symbols, strings;
};

static void plt_done(struct plt *p)
{
	free(p->slots);
	elf_source_done(&p->symbols);
	elf_source_done(&p->strings);
}

static int compare_slots(const void *a, const void *b)
{
	const struct slot *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

static bool relocation_wanted(const struct image *image, uint32_t type, bool *ret_irelative)
{
	uint32_t glob_dat = R_X86_64_GLOB_DAT, jump = R_X86_64_JUMP_SLOT, irel = R_X86_64_IRELATIVE;

	if (image->machine == EM_AARCH64) {
		glob_dat = R_AARCH64_GLOB_DAT;
		jump = R_AARCH64_JUMP_SLOT;
		irel = R_AARCH64_IRELATIVE;
	}
	*ret_irelative = type == irel;
	return type == glob_dat || type == jump || type == irel;
}

static int read_relocations(struct plt *p, const struct image_section *section)
{
	_cleanup_free_ Elf64_Rela *chunk = NULL;
	_cleanup_(elf_source_done) struct elf_source source = {0};
	size_t n, max = MIN(section->size / sizeof(*chunk), (size_t)PLT_RELOCATIONS_MAX);
	const size_t step = 1024;
	bool irelative;
	int r;

	if (elf_source_init(&source, p->image, section, 1 << 20, NULL) < 0)
		return 0;
	chunk = malloc(step * sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	for (size_t at = 0; at < max; at += step) {
		n = elf_source_read(&source, at * sizeof(*chunk), chunk, step * sizeof(*chunk)) /
		    sizeof(*chunk);
		for (size_t i = 0; i < n && at + i < max; i++) {
			if (!relocation_wanted(p->image, ELF64_R_TYPE(chunk[i].r_info), &irelative))
				continue;
			r = grow_array((void **)&p->slots, &p->cap, p->n_slots + 1,
				       sizeof(*p->slots), PLT_STUBS_MAX);
			if (r < 0)
				return r == -E2BIG ? 0 : r;
			p->slots[p->n_slots++] = (struct slot){
			    .address = chunk[i].r_offset,
			    .symbol = irelative ? 0 : (uint32_t)ELF64_R_SYM(chunk[i].r_info),
			    .low = (uint32_t)((uint64_t)chunk[i].r_addend - p->base),
			};
		}
		if (n < step)
			break;
	}
	return 0;
}

static uint32_t instruction(const uint8_t *code)
{
	uint32_t v;

	memcpy(&v, code, sizeof(v));
	return v;
}

/* The slot that the stub at CODE jumps through; 0 when it is none (the PLT's header, padding). */
static uint64_t slot_of_stub(const struct image *image, const uint8_t *code, size_t size,
			     uint64_t vaddr)
{
	uint32_t adrp, ldr;
	size_t at = 0;
	int64_t page;
	int32_t disp;

	if (image->machine == EM_AARCH64) {
		for (size_t i = 0; i + 8 <= size; i += 4) {
			adrp = instruction(code + i);
			ldr = instruction(code + i + 4);
			/* adrp x16, PAGE; ldr x17, [x16, #OFFSET] */
			if ((adrp & 0x9f00001f) != 0x90000010 || (ldr & 0xffc003ff) != 0xf9400211)
				continue;
			page = (int64_t)(((adrp >> 5 & 0x7ffff) << 2) | (adrp >> 29 & 3));
			page = (int64_t)((uint64_t)page << 43) >> 43;
			return ((vaddr + i) & ~0xfffULL) + ((uint64_t)page << 12) +
			       (ldr >> 10 & 0xfff) * 8;
		}
		return 0;
	}
	/* endbr64, bnd, jmp *DISP(%rip): the first two are optional */
	if (size >= 4 && instruction(code) == 0xfa1e0ff3)
		at = 4;
	if (at < size && code[at] == 0xf2)
		at++;
	if (at + 6 > size || code[at] != 0xff || code[at + 1] != 0x25)
		return 0;
	memcpy(&disp, code + at + 2, sizeof(disp));
	return vaddr + at + 6 + (uint64_t)(int64_t)disp;
}

static int report(struct plt *p, uint64_t slot, uint64_t vaddr, uint32_t size,
		  int (*fn)(const struct plt_stub *stub, void *arg), void *arg)
{
	struct slot key = {.address = slot};
	const struct slot *found =
	    p->n_slots ? bsearch(&key, p->slots, p->n_slots, sizeof(key), compare_slots) : NULL;
	struct plt_stub stub = {.vaddr = vaddr, .size = size};
	char name[DEMANGLE_MAX];
	Elf64_Sym sym;

	if (!found)
		return 0;
	if (!found->symbol) {
		stub.resolver = p->base + found->low;
		return fn(&stub, arg);
	}
	if (elf_source_read(&p->symbols, (uint64_t)found->symbol * sizeof(sym), &sym,
			    sizeof(sym)) != sizeof(sym) ||
	    elf_source_string(&p->strings, sym.st_name, name, sizeof(name)) == 0)
		return 0;
	stub.name = name;
	return fn(&stub, arg);
}

static int walk_section(struct plt *p, const struct image_section *section, size_t *budget,
			int (*fn)(const struct plt_stub *stub, void *arg), void *arg)
{
	bool arm = p->image->machine == EM_AARCH64;
	/* x86-64: 16 bytes, 8 in .plt.got without endbr64. arm64: 16, 24 with bti, after a header
	 * of 32. */
	uint32_t step = 16;
	_cleanup_(elf_source_done) struct elf_source source = {0};
	uint8_t code[24];
	uint64_t slot;
	int r;

	if (!arm && streq(section->name, ".plt.got") && section->entsize == 8)
		step = 8;
	if (elf_source_init(&source, p->image, section, 1, NULL) < 0)
		return 0;
	r = elf_source_load(&source, SECTION_LOAD_MAX);
	for (uint64_t at = arm ? 32 : 0; r == 0 && at + step <= section->size && *budget;
	     at += step) {
		size_t got = elf_source_read(&source, at, code, arm ? sizeof(code) : step);

		(*budget)--;
		if (got < step)
			break;
		if (arm && instruction(code) == 0xd503245f)
			step = 24; /* bti c */
		slot = slot_of_stub(p->image, code, MIN(got, step), section->vaddr + at);
		if (slot)
			r = report(p, slot, section->vaddr + at, step, fn, arg);
	}
	return r;
}

static int compare_sections(const void *a, const void *b)
{
	const struct image_section *const *x = a, *const *y = b;

	return (*x)->vaddr < (*y)->vaddr ? -1 : (*x)->vaddr > (*y)->vaddr;
}

int plt_stubs(const struct image *image, int (*fn)(const struct plt_stub *stub, void *arg),
	      void *arg)
{
	static const char *const names[] = {".plt", ".plt.sec", ".plt.got"};
	_cleanup_(plt_done) struct plt p = {.image = image};
	const struct image_section *sections[ARRAY_SIZE(names)], *s;
	const struct image_section *dynsym = elf_section_by_type(image, SHT_DYNSYM);
	const struct image_section *rela_plt = image_section(image, ".rela.plt");
	const struct image_section *rela_dyn = image_section(image, ".rela.dyn");
	size_t n = 0, budget = PLT_STUBS_MAX;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		s = image_section(image, names[i]);
		if (s && s->size && (s->flags & SHF_EXECINSTR))
			sections[n++] = s;
	}
	if (!n)
		return 0;
	p.base = image->n_segments ? image->segments[0].vaddr : 0;
	/* A static executable has IRELATIVE stubs only, and no symbols to name the others by. */
	if (dynsym && dynsym->link < image->n_sections &&
	    (elf_source_init(&p.symbols, image, dynsym, 1, NULL) < 0 ||
	     elf_source_init(&p.strings, image, &image->sections[dynsym->link], 1, NULL) < 0))
		return 0;
	if (dynsym && (elf_source_load(&p.symbols, SECTION_LOAD_MAX) < 0 ||
		       elf_source_load(&p.strings, SECTION_LOAD_MAX) < 0))
		return -ENOMEM;
	if (rela_plt)
		r = read_relocations(&p, rela_plt);
	if (r == 0 && rela_dyn && image_section(image, ".plt.got"))
		r = read_relocations(&p, rela_dyn);
	if (r < 0)
		return r;
	if (p.n_slots)
		qsort(p.slots, p.n_slots, sizeof(*p.slots), compare_slots);
	qsort(sections, n, sizeof(sections[0]), compare_sections);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = walk_section(&p, sections[i], &budget, fn, arg);
	return r;
}
