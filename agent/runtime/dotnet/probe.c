// SPDX-License-Identifier: Apache-2.0
/*
 * Recognizes .NET's runtime in a file by the table that it exports for debuggers, whatever the file
 * is called: libcoreclr.so, or a program that has the runtime inside. Any thread; nothing is
 * shared.
 */
#include "agent/runtime/dotnet/dotnet.h"

#include <elf.h>

#define TABLE	"g_dacTable"
#define VERSION "@(#)Version " /* sccsid, in every build (eng/native/functions.cmake) */

enum { SYMBOLS_MAX = 1 << 20, MAJOR_MIN = 8, MAJOR_MAX = 10 };

static uint64_t find_table(const struct image *image)
{
	const struct image_section *section = image_section(image, ".dynsym");
	struct cursor c, strings;

	if (!section || section->link >= image->n_sections)
		return 0;
	c = image_section_data(image, section);
	strings = image_section_data(image, &image->sections[section->link]);
	for (size_t n = 0; cursor_left(&c) >= sizeof(Elf64_Sym) && n < SYMBOLS_MAX; n++) {
		Elf64_Sym s;

		memcpy(&s, cursor_bytes(&c, sizeof(s)), sizeof(s));
		if (strings.bad || s.st_shndx == SHN_UNDEF || s.st_name > strings.size ||
		    strings.size - s.st_name < sizeof(TABLE))
			continue;
		if (same_bytes(strings.data + s.st_name, TABLE, sizeof(TABLE)))
			return s.st_value;
	}
	return 0;
}

/* Finds the version in SECTION, as "8.0.424.16909". RET is untouched if it is not there. */
static void read_version(const struct image *image, const char *section, char *ret, size_t size)
{
	const struct image_section *s = image_section(image, section);
	struct cursor c;
	const uint8_t *at;
	size_t left, n = 0;

	if (!s)
		return;
	c = image_section_data(image, s);
	if (c.bad)
		return;
	at = memmem(c.data, c.size, VERSION, strlen(VERSION));
	if (!at)
		return;
	at += strlen(VERSION);
	left = (size_t)(c.data + c.size - at);
	while (n < left && n + 1 < size && ((at[n] >= '0' && at[n] <= '9') || at[n] == '.')) {
		ret[n] = (char)at[n];
		n++;
	}
	ret[n] = '\0';
}

int dotnet_probe(const struct image *image, struct runtime_image **ret, struct error *err)
{
	uint64_t table = find_table(image);
	struct dotnet_image *d;

	if (!table)
		return -ENOENT;
	d = calloc(1, sizeof(*d));
	if (!d)
		return -ENOMEM;
	d->base.ops = &dotnet_ops;
	d->table = table;
	d->start = image->n_segments ? image->segments[0].vaddr : 0;
	read_version(image, ".data", d->base.version, sizeof(d->base.version));
	if (!d->base.version[0])
		read_version(image, ".rodata", d->base.version, sizeof(d->base.version));
	d->major = (uint32_t)strtoul(d->base.version, NULL, 10);
	if (image->machine != EM_X86_64 || d->major < MAJOR_MIN || d->major > MAJOR_MAX) {
		int r = error_set(err, -ENOTSUP, ".NET %s is not known%s", d->base.version,
				  image->machine == EM_X86_64 ? "" : " on this architecture");

		free(d);
		return r;
	}
	*ret = &d->base;
	return 0;
}

void dotnet_forget(struct runtime_image *ri)
{
	if (ri)
		free(container_of(ri, struct dotnet_image, base));
}
