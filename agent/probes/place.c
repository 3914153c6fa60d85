/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A probe's breakpoint is written over an instruction, so only the first one of a function will do:
 * no address, no offset into a function, no data. Of several functions of one name the one that
 * linkers would take is meant: global before weak before local, and of versions of a name the
 * default one (bit 15 of .gnu.version is clear: the gABI's GNU extension, glibc elf/dl-lookup.c; in
 * .symtab the name goes on with "@@").
 *
 * An indirect function (STT_GNU_IFUNC) is a function that chooses another one when the program
 * starts, and that one is called: a probe on it would count starts of programs.
 */
#include "agent/probes/place.h"

#include <elf.h>
#include <fcntl.h>

#include "agent/elf/image.h"
#include "agent/symbol/debug_file.h"
#include "agent/symbol/elf_read.h"
#include "agent/symbol/root_file.h"
#include "lib/probe_spec.h"

enum {
	SYMBOLS_AT_ONCE = 1024,
	SYMBOLS_LOOKED_AT = 1 << 24,
	UNPACKED_MAX = 32 << 20,
	VERSION_HIDDEN = 1 << 15,
};

struct search {
	const char *name;
	size_t len;
	uint64_t address;
	int rank; /* rank of the symbol found so far; 0: none */
	bool several, indirect;
};

/* Whether the string at AT is NAME itself or its default version. */
static bool has_name(const struct search *s, const struct elf_source *strings, uint32_t at)
{
	char name[PROBE_NAME_MAX + 4];

	/* Read only as much as is needed to see whether the name ends. */
	if (elf_source_string(strings, at, name, MIN(s->len + 4, sizeof(name))) < s->len)
		return false;
	return !memcmp(name, s->name, s->len) &&
	       (!name[s->len] || (name[s->len] == '@' && name[s->len + 1] == '@'));
}

static int rank_of(const Elf64_Sym *sym)
{
	unsigned int bind = ELF64_ST_BIND(sym->st_info);

	return bind == STB_LOCAL ? 1 : bind == STB_WEAK ? 2 : 3;
}

static void take(struct search *s, const Elf64_Sym *sym)
{
	int rank = rank_of(sym);

	if (rank < s->rank)
		return;
	if (rank > s->rank)
		*s = (struct search){.name = s->name, .len = s->len, .rank = rank};
	else if (s->address != sym->st_value)
		s->several = true;
	s->address = sym->st_value;
	s->indirect |= ELF64_ST_TYPE(sym->st_info) == STT_GNU_IFUNC;
}

static bool is_function(const Elf64_Sym *sym)
{
	unsigned int type = ELF64_ST_TYPE(sym->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
	       sym->st_shndx != SHN_UNDEF && sym->st_name;
}

/* Searches the symbols of SECTION. VERSIONS has the version of each symbol by index; NULL: none. */
static int search_table(const struct image *file, const struct image *image,
			const struct image_section *section, const struct image_section *versions,
			struct search *s)
{
	_cleanup_(elf_source_done) struct elf_source symbols = {0}, strings = {0}, hidden = {0};
	_cleanup_free_ Elf64_Sym *chunk = malloc(SYMBOLS_AT_ONCE * sizeof(*chunk));
	size_t n = SYMBOLS_AT_ONCE;

	if (!chunk)
		return -ENOMEM;
	if (section->link >= file->n_sections ||
	    elf_source_init(&symbols, file, section, UNPACKED_MAX, NULL) < 0 ||
	    elf_source_init(&strings, file, &file->sections[section->link], UNPACKED_MAX, NULL) < 0)
		return 0;
	if (versions && elf_source_init(&hidden, file, versions, UNPACKED_MAX, NULL) < 0)
		versions = NULL;
	for (uint64_t at = 0; n == SYMBOLS_AT_ONCE && at < SYMBOLS_LOOKED_AT; at += n) {
		n = elf_source_read(&symbols, at * sizeof(*chunk), chunk,
				    SYMBOLS_AT_ONCE * sizeof(*chunk)) /
		    sizeof(*chunk);
		for (size_t i = 0; i < n; i++) {
			uint16_t version = 0;

			if (!is_function(&chunk[i]) || !image_is_code(image, chunk[i].st_value) ||
			    !has_name(s, &strings, chunk[i].st_name))
				continue;
			if (versions)
				(void)elf_source_read(&hidden, (at + i) * sizeof(version), &version,
						      sizeof(version));
			if (!(version & VERSION_HIDDEN))
				take(s, &chunk[i]);
		}
	}
	return 0;
}

static int search_file(const struct image *file, const struct image *image, struct search *s)
{
	const struct image_section *dynsym = elf_section_by_type(file, SHT_DYNSYM),
				   *symtab = elf_section_by_type(file, SHT_SYMTAB);
	int r = 0;

	if (dynsym)
		r = search_table(file, image, dynsym, elf_section_by_type(file, SHT_GNU_versym), s);
	if (!r && symtab)
		r = search_table(file, image, symtab, NULL, s);
	return r;
}

static int offset_of(const struct image *image, uint64_t vaddr, uint64_t *ret)
{
	for (size_t i = 0; i < image->n_segments; i++) {
		const struct image_segment *s = &image->segments[i];

		if ((s->flags & PF_X) && vaddr >= s->vaddr && vaddr - s->vaddr < s->filesz) {
			*ret = vaddr - s->vaddr + s->offset;
			return 0;
		}
	}
	return -ENOTSUP;
}

int probe_place_find(const struct image *image, const char *name, uint64_t *ret, struct error *err)
{
	_cleanup_(image_unrefp) struct image *unpacked = NULL;
	struct search s = {.name = name, .len = strlen(name)};
	int r = 0;

	if (s.len <= PROBE_NAME_MAX)
		r = search_file(image, image, &s);
	if (!r && !s.rank && debug_data_unpack(image, &unpacked, NULL) == 0)
		r = search_file(unpacked, image, &s);
	if (r < 0)
		return error_set(err, r, "out of memory");
	if (!s.rank)
		return error_set(err, -ENOENT,
				 "no function %s in its symbol tables (names are the linker's: "
				 "\"nm -D FILE\" and \"nm FILE\" list them)",
				 name);
	if (s.several)
		return error_set(err, -ENOTUNIQ, "several functions are called %s", name);
	if (s.indirect)
		return error_set(err, -ENOTSUP,
				 "%s is an indirect function: what runs under its name is another "
				 "function, chosen when a program starts; name that one",
				 name);
	if (offset_of(image, s.address, ret) < 0)
		return error_set(err, -ENOTSUP, "%s lies in no part of the file that is executed",
				 name);
	return 0;
}

/*
 * The agent may run in a container, so the path is opened below the root of the host's first
 * process; if that is not accessible, below its own root.
 */
static int open_on_host(const char *path)
{
	_cleanup_close_ int root = root_open("/proc/1/root");

	if (root < 0)
		root = root_open(NULL);
	return root < 0 ? root : root_open_file(root, path, false);
}

int probe_place_open(const char *path, const char *name, bool returns, int *ret_fd,
		     uint64_t *ret_offset, struct error *err)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_close_ int fd = open_on_host(path);
	int own, r;

	if (fd < 0)
		return error_set(err, fd, "%s: %s (the path is one of the host's)", path,
				 strerror(-fd));
	own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (own < 0)
		return error_set(err, -errno, "%s: %m", path);
	r = image_open(own, path, &image, err);
	if (r < 0)
		return error_wrap(err, r, "%s", path);
	if (returns && image->is_go)
		return error_set(err, -ENOTSUP,
				 "%s: Go moves stacks, and a return that is probed would end the "
				 "program: use uprobe",
				 path);
	r = probe_place_find(image, name, ret_offset, err);
	if (r < 0)
		return error_wrap(err, r, "%s", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}
