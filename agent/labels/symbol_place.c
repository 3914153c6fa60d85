/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three kinds of relocation name a thread-local variable: one for its distance from the thread
 * pointer (initial exec), one for its module, beside whose number its offset lies (general
 * dynamic), one for a descriptor. In the main program there is none (local exec): its block is the
 * first. Stateless.
 */
#include "agent/labels/symbol_place.h"

#include <elf.h>

enum { RELOCATIONS_MAX = 1 << 22 };

/* The number of the symbol NAME in .dynsym, if the file defines it; 0: there is none. */
static uint32_t find_symbol(const struct image *image, const char *name, Elf64_Sym *ret)
{
	const struct image_section *section = image_section(image, ".dynsym");
	size_t len = strlen(name) + 1;
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return 0;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	for (uint32_t i = 0; cursor_left(&c) >= sizeof(Elf64_Sym); i++) {
		memcpy(ret, cursor_bytes(&c, sizeof(*ret)), sizeof(*ret));
		if (i && ret->st_shndx != SHN_UNDEF && !strings.bad && strings.size >= len &&
		    ret->st_name <= strings.size - len &&
		    memcmp(strings.data + ret->st_name, name, len) == 0)
			return i;
	}
	return 0;
}

static enum thread_variable_kind kind_of(uint16_t machine, uint32_t type)
{
	if (machine == EM_X86_64)
		return type == R_X86_64_TPOFF64	   ? THREAD_VARIABLE_INDIRECT
		       : type == R_X86_64_DTPMOD64 ? THREAD_VARIABLE_MODULE
		       : type == R_X86_64_TLSDESC  ? THREAD_VARIABLE_DESCRIPTOR
						   : THREAD_VARIABLE_NONE;
	return type == R_AARCH64_TLS_TPREL    ? THREAD_VARIABLE_INDIRECT
	       : type == R_AARCH64_TLS_DTPMOD ? THREAD_VARIABLE_MODULE
	       : type == R_AARCH64_TLSDESC    ? THREAD_VARIABLE_DESCRIPTOR
					      : THREAD_VARIABLE_NONE;
}

static bool find_relocation(const struct image *image, const struct image_section *section,
			    uint32_t symbol, struct thread_variable *ret)
{
	struct cursor c = image_section_data(image, section);

	for (uint32_t i = 0; i < RELOCATIONS_MAX && cursor_left(&c) >= sizeof(Elf64_Rela); i++) {
		Elf64_Rela r;
		enum thread_variable_kind kind;

		memcpy(&r, cursor_bytes(&c, sizeof(r)), sizeof(r));
		if (ELF64_R_SYM(r.r_info) != symbol)
			continue;
		kind = kind_of(image->machine, (uint32_t)ELF64_R_TYPE(r.r_info));
		if (kind == THREAD_VARIABLE_NONE)
			continue;
		*ret = (struct thread_variable){.kind = kind, .slot = r.r_offset};
		return true;
	}
	return false;
}

/* Is IMAGE a program, not a library? A program has a fixed address, an interpreter or DF_1_PIE. */
static bool is_program(const struct image *image, bool has_interpreter)
{
	const struct image_section *section = image_section(image, ".dynamic");
	struct cursor c;

	if (image->type == ET_EXEC || has_interpreter)
		return true;
	if (!section)
		return false;
	c = image_section_data(image, section);
	while (cursor_left(&c) >= sizeof(Elf64_Dyn)) {
		Elf64_Dyn d;

		memcpy(&d, cursor_bytes(&c, sizeof(d)), sizeof(d));
		if (d.d_tag == DT_FLAGS_1)
			return d.d_un.d_val & DF_1_PIE;
		if (d.d_tag == DT_NULL)
			break;
	}
	return false;
}

/* Finds a variable in the program's TLS block, which is below the thread pointer (x86-64), or above
 * it after 16 bytes (arm64). */
static int find_in_program(const struct image *image, uint64_t value, struct thread_variable *ret)
{
	struct cursor c = cursor_of(image->data, image->size);
	bool has_interpreter = false;
	Elf64_Phdr tls = {0};
	Elf64_Ehdr h;

	if (image->size < sizeof(h))
		return -ENOTSUP;
	memcpy(&h, image->data, sizeof(h));
	cursor_seek(&c, h.e_phoff > SIZE_MAX ? SIZE_MAX : (size_t)h.e_phoff);
	for (uint32_t i = 0; i < h.e_phnum && cursor_left(&c) >= sizeof(Elf64_Phdr); i++) {
		Elf64_Phdr p;

		memcpy(&p, cursor_bytes(&c, sizeof(p)), sizeof(p));
		has_interpreter |= p.p_type == PT_INTERP;
		if (p.p_type == PT_TLS)
			tls = p;
	}
	if (!tls.p_type || value >= tls.p_memsz || tls.p_memsz > INT32_MAX ||
	    tls.p_align > INT32_MAX || !is_program(image, has_interpreter))
		return -ENOTSUP;
	tls.p_align = MAX(tls.p_align, (Elf64_Xword)1);
	ret->kind = THREAD_VARIABLE_STATIC;
	if (image->machine == EM_X86_64)
		ret->offset = (int64_t)value - (int64_t)ALIGN_UP(tls.p_memsz, tls.p_align);
	else
		ret->offset = (int64_t)(value + ALIGN_UP((Elf64_Xword)16, tls.p_align));
	return 0;
}

int symbol_place_find(const struct image *image, const char *name, struct thread_variable *ret)
{
	Elf64_Sym s;
	uint32_t symbol = find_symbol(image, name, &s);

	*ret = (struct thread_variable){0};
	if (!symbol || ELF64_ST_TYPE(s.st_info) != STT_TLS)
		return -ENOENT;
	for (size_t i = 0; i < image->n_sections; i++)
		if (image->sections[i].type == SHT_RELA &&
		    find_relocation(image, &image->sections[i], symbol, ret))
			return 0;
	return find_in_program(image, s.st_value, ret);
}

int symbol_value(const struct image *image, const char *name, uint32_t *ret)
{
	Elf64_Sym s;
	struct cursor c;
	uint32_t value;

	if (!find_symbol(image, name, &s) || s.st_size != sizeof(value))
		return -ENOENT;
	c = image_at_vaddr(image, s.st_value);
	if (cursor_left(&c) < sizeof(value))
		return -ENOENT;
	memcpy(&value, cursor_bytes(&c, sizeof(value)), sizeof(value));
	*ret = value;
	return 0;
}
