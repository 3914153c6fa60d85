/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recognizes HotSpot in a file by the symbols that it exports for debuggers, whatever the file is
 * called. The symbols are the same from 8 on; only a process tells the version. Any thread; nothing
 * is shared.
 */
#include "agent/runtime/hotspot/hotspot.h"

#include <elf.h>

#define PREFIX "gHotSpotVM"
#define DESCS  "_ZN12StubCodeDesc5_listE"

static const char *const names[HOTSPOT_SYMBOLS] = {
    [HOTSPOT_STRUCTS] = PREFIX "Structs",
    [HOTSPOT_STRUCT_TYPE] = PREFIX "StructEntryTypeNameOffset",
    [HOTSPOT_STRUCT_FIELD] = PREFIX "StructEntryFieldNameOffset",
    [HOTSPOT_STRUCT_STATIC] = PREFIX "StructEntryIsStaticOffset",
    [HOTSPOT_STRUCT_OFFSET] = PREFIX "StructEntryOffsetOffset",
    [HOTSPOT_STRUCT_ADDRESS] = PREFIX "StructEntryAddressOffset",
    [HOTSPOT_STRUCT_STRIDE] = PREFIX "StructEntryArrayStride",
    [HOTSPOT_TYPES] = PREFIX "Types",
    [HOTSPOT_TYPE_NAME] = PREFIX "TypeEntryTypeNameOffset",
    [HOTSPOT_TYPE_SIZE] = PREFIX "TypeEntrySizeOffset",
    [HOTSPOT_TYPE_STRIDE] = PREFIX "TypeEntryArrayStride",
    [HOTSPOT_INTS] = PREFIX "IntConstants",
    [HOTSPOT_INT_NAME] = PREFIX "IntConstantEntryNameOffset",
    [HOTSPOT_INT_VALUE] = PREFIX "IntConstantEntryValueOffset",
    [HOTSPOT_INT_STRIDE] = PREFIX "IntConstantEntryArrayStride",
};

static void take_symbol(struct hotspot_image *h, const char *name, const Elf64_Sym *s)
{
	if (s->st_shndx == SHN_UNDEF || !s->st_value)
		return;
	for (size_t i = 0; i < HOTSPOT_SYMBOLS; i++)
		if (!h->symbols[i] && streq(name, names[i]))
			h->symbols[i] = s->st_value;
}

/* Calls TAKE for each symbol of the section NAME whose own name begins with PREFIX. */
static void each_symbol(struct hotspot_image *h, const struct image *image, const char *name,
			const char *prefix,
			void (*take)(struct hotspot_image *h, const char *name, const Elf64_Sym *s))
{
	const struct image_section *section = image_section(image, name);
	size_t length = strlen(prefix);
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		const char *text;
		Elf64_Sym s;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		if (strings.bad || s.st_name > strings.size ||
		    strings.size - s.st_name < length + 1 ||
		    !same_bytes(strings.data + s.st_name, prefix, length))
			continue;
		cursor_seek(&strings, s.st_name);
		text = cursor_str(&strings);
		if (!text)
			break;
		take(h, text, &s);
	}
}

static void take_descs(struct hotspot_image *h, const char *name, const Elf64_Sym *s)
{
	if (s->st_shndx != SHN_UNDEF && streq(name, DESCS))
		h->descs = s->st_value;
}

static void find_variables(struct hotspot_image *h, const struct image *image)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if (!(s->flags & PF_W) || s->vaddr + s->memsz < s->vaddr)
			continue;
		h->variables = ALIGN_UP(s->vaddr, (uint64_t)sizeof(uint64_t));
		h->variables_end = s->vaddr + s->memsz;
	}
}

int hotspot_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	struct hotspot_image *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	each_symbol(h, image, ".dynsym", PREFIX, take_symbol);
	for (size_t i = 0; i < HOTSPOT_SYMBOLS; i++) {
		if (h->symbols[i])
			continue;
		free(h);
		/*
		 * Other files export some of them: libsaproc.so, and compilers that JVMs have as
		 * files.
		 */
		return -ENOENT;
	}
	each_symbol(h, image, ".symtab", DESCS, take_descs);
	find_variables(h, image);
	h->base.ops = &hotspot_ops;
	snprintf(h->base.version, sizeof(h->base.version), "HotSpot");
	*ret = &h->base;
	return 0;
}

void hotspot_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct hotspot_image, base));
}
