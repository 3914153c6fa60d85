/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes small ELF files in memory, for tests and fuzzers: every section that is given, one PT_LOAD
 * for each that is allocated, and a section header table with names.
 */
#pragma once

#include <elf.h>

#include "lib/base.h"

enum { ELF_IMAGE_SECTIONS_MAX = 16 };

struct elf_image_section {
	const char *name;
	const void *data;
	size_t size;
	uint64_t vaddr;
	uint64_t flags; /* SHF_* */
	uint32_t type;	/* 0: SHT_PROGBITS */
};

/* The file, which the caller frees; its size in *RET_SIZE. NULL when there is no memory. */
static inline uint8_t *elf_image_make(const struct elf_image_section *sections, size_t n,
				      uint64_t entry, size_t *ret_size)
{
	Elf64_Shdr sh[ELF_IMAGE_SECTIONS_MAX + 2] = {0};
	Elf64_Phdr ph[ELF_IMAGE_SECTIONS_MAX] = {0};
	size_t n_ph = 0, at = sizeof(Elf64_Ehdr) + sizeof(ph), names_size = 1, names_at;
	char names[1024] = "";
	Elf64_Ehdr eh = {0};
	uint8_t *out;

	if (n > ELF_IMAGE_SECTIONS_MAX)
		return NULL;
	for (size_t i = 0; i < n; i++) {
		const struct elf_image_section *s = &sections[i];

		sh[i + 1] = (Elf64_Shdr){.sh_name = (Elf64_Word)names_size,
					 .sh_type = s->type ? s->type : SHT_PROGBITS,
					 .sh_flags = s->flags,
					 .sh_addr = s->vaddr,
					 .sh_offset = at,
					 .sh_size = s->size};
		memcpy(names + names_size, s->name, strlen(s->name) + 1);
		names_size += strlen(s->name) + 1;
		if (s->flags & SHF_ALLOC)
			ph[n_ph++] =
			    (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_offset = at,
					 .p_vaddr = s->vaddr,
					 .p_filesz = s->size,
					 .p_memsz = s->size,
					 .p_flags = PF_R | (s->flags & SHF_EXECINSTR ? PF_X : 0) |
						    (s->flags & SHF_WRITE ? PF_W : 0)};
		at += s->size;
	}
	names_at = at;
	at = (at + names_size + 7) / 8 * 8;
	sh[n + 1] =
	    (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = names_at, .sh_size = names_size};
	eh.e_type = ET_DYN;
#if defined(KILN_TARGET_ARM64) || defined(__aarch64__)
	eh.e_machine = EM_AARCH64;
#else
	eh.e_machine = EM_X86_64;
#endif
	eh.e_entry = entry;
	eh.e_phoff = sizeof(eh);
	eh.e_phentsize = sizeof(ph[0]);
	eh.e_phnum = (Elf64_Half)n_ph;
	eh.e_shoff = at;
	eh.e_shentsize = sizeof(sh[0]);
	eh.e_shnum = (Elf64_Half)(n + 2);
	eh.e_shstrndx = (Elf64_Half)(n + 1);
	memcpy(eh.e_ident, ELFMAG, SELFMAG);
	eh.e_ident[EI_CLASS] = ELFCLASS64;
	eh.e_ident[EI_DATA] = ELFDATA2LSB;
	*ret_size = at + (n + 2) * sizeof(sh[0]);
	out = calloc(1, *ret_size);
	if (!out)
		return NULL;
	memcpy(out, &eh, sizeof(eh));
	memcpy(out + sizeof(eh), ph, sizeof(ph));
	for (size_t i = 0; i < n; i++)
		if (sections[i].size)
			memcpy(out + sh[i + 1].sh_offset, sections[i].data, sections[i].size);
	memcpy(out + names_at, names, names_size);
	memcpy(out + at, sh, (n + 2) * sizeof(sh[0]));
	return out;
}
