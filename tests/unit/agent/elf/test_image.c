// SPDX-License-Identifier: Apache-2.0
/* Opening ELF files: what is refused and why, what survives damage, addresses, ids, truncation. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <zlib.h>
#include <zstd.h>

#include "agent/elf/image.h"
#include "tests/fuzz/elf_image.h"

static const uint8_t text[256] = {0xc3};

static uint8_t *make(size_t *size)
{
	static const uint8_t note[] = "\4\0\0\0\3\0\0\0\3\0\0\0GNU\0\xab\xcd\xef\0"
				      "\4\0\0\0\5\0\0\0\4\0\0\0Go\0\0a/b/c\0\0\0";
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x401000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".note.x", note, sizeof(note) - 1, 0x500000, SHF_ALLOC, SHT_NOTE},
	    {".bss", NULL, 0, 0x600000, 0, SHT_NOBITS},
	};
	uint8_t *file = elf_image_make(sections, ARRAY_SIZE(sections), 0x401010, size);

	assert_non_null(file);
	return file;
}

static void expect_refused(const void *data, size_t size, const char *why)
{
	struct image *image = NULL;
	struct error err = {0};

	assert_int_equal(image_from_memory(data, size, "x", &image, &err), -ENOEXEC);
	assert_null(image);
	if (!strstr(err.message, why))
		fail_msg("\"%s\" does not say \"%s\"", err.message, why);
}

static void what_cannot_run_here_is_refused(void **state)
{
	size_t size;
	_cleanup_free_ uint8_t *file = make(&size);
	Elf64_Ehdr *h = (Elf64_Ehdr *)file;
	Elf64_Phdr *p = (Elf64_Phdr *)(file + sizeof(*h));

	expect_refused("#!/bin/sh\nexit 0\n", 17, "not an ELF file");
	expect_refused(file, 3, "not an ELF file");
	expect_refused(file, 40, "cut short");
	expect_refused(file, sizeof(*h) + 10, "program headers cut short");
	file[EI_CLASS] = ELFCLASS32;
	expect_refused(file, size, "64-bit");
	file[EI_CLASS] = ELFCLASS64;
	file[EI_DATA] = ELFDATA2MSB;
	expect_refused(file, size, "little-endian");
	file[EI_DATA] = ELFDATA2LSB;
	h->e_machine = EM_RISCV;
	expect_refused(file, size, "another machine");
	h->e_machine = EM_X86_64;
	h->e_type = ET_REL;
	expect_refused(file, size, "type 1");
	h->e_type = ET_DYN;
	p[0].p_memsz = UINT64_MAX;
	expect_refused(file, size, "damaged");
	p[0].p_memsz = sizeof(text);
	p[0].p_flags = PF_R;
	expect_refused(file, size, "no executable segment");
}

static void ids_are_read(void **state)
{
	size_t size;
	_cleanup_free_ uint8_t *file = make(&size);
	_cleanup_(image_unrefp) struct image *image = NULL;
	char hex[2 * IMAGE_BUILD_ID_MAX + 1];

	assert_int_equal(image_from_memory(file, size, "x", &image, NULL), 0);
	image_build_id_hex(image, hex, sizeof(hex));
	assert_string_equal(hex, "abcdef");
	image_build_id_hex(image, hex, 4);
	assert_string_equal(hex, "ab");
	assert_string_equal(image->go_build_id, "a/b/c");
	assert_true(image->is_go);
	assert_int_equal(image->entry, 0x401010);
}

static void the_hash_is_that_of_the_conventions(void **state)
{
	/* sha256sum of: head -c4096, tail -c4096, and the size as 8 bytes, big-endian. */
	_cleanup_(image_unrefp) struct image *image = NULL;
	char line[64] = "";
	FILE *f;

	assert_int_equal(image_open(open("/proc/self/exe", O_RDONLY), "self", &image, NULL), 0);
	f = popen("f=$(readlink -f /proc/$PPID/exe); (head -c4096 $f; tail -c4096 $f; "
		  "printf %016x $(stat -c%s $f) | xxd -r -p) | sha256sum | cut -c1-32",
		  "re");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	assert_int_equal(pclose(f), 0);
	line[strcspn(line, "\n")] = 0;
	assert_string_equal(image->htlhash, line);
}

static void ruined_section_headers_leave_none(void **state)
{
	size_t size;
	_cleanup_free_ uint8_t *file = make(&size);
	Elf64_Ehdr *h = (Elf64_Ehdr *)file;
	uint64_t at = h->e_shoff;

	for (int i = 0; i < 4; i++) {
		_cleanup_(image_unrefp) struct image *image = NULL;

		h->e_shoff = i == 0 ? 0 : i == 1 ? UINT64_MAX - 8 : at;
		h->e_shnum = i == 2 ? 60000 : 5;
		h->e_shentsize = i == 3 ? 7 : sizeof(Elf64_Shdr);
		assert_int_equal(image_from_memory(file, size, "x", &image, NULL), 0);
		assert_int_equal(image->n_sections, 0);
		assert_null(image_section(image, ".text"));
		assert_int_equal(image->n_segments, 2);
	}
}

static void addresses_map_to_bytes(void **state)
{
	size_t size;
	_cleanup_free_ uint8_t *file = make(&size);
	_cleanup_(image_unrefp) struct image *image = NULL;
	const struct image_section *s;
	struct cursor c;
	uint64_t vaddr = 1, at;

	assert_int_equal(image_from_memory(file, size, "x", &image, NULL), 0);
	s = image_section(image, ".text");
	assert_non_null(s);
	c = image_section_data(image, s);
	assert_false(c.bad);
	assert_memory_equal(c.data, text, sizeof(text));
	c = image_at_vaddr(image, 0x401000 + 200);
	assert_int_equal(c.size, 56);
	assert_true(image_at_vaddr(image, 0x401000 + 256).bad);
	assert_true(image_at_vaddr(image, 0x400fff).bad);
	assert_true(image_is_code(image, 0x401000));
	assert_false(image_is_code(image, 0x500000));
	at = s->offset;
	assert_true(image_offset_to_vaddr(image, at + 16, &vaddr));
	assert_int_equal(vaddr, 0x401010);
	/* mmap() rounds to pages: the page's first byte belongs to the segment too. */
	assert_true(image_offset_to_vaddr(image, at & ~4095ULL, &vaddr));
	assert_int_equal(vaddr, 0x401000 - (at & 4095));
	vaddr = 1;
	assert_false(image_offset_to_vaddr(image, 1 << 20, &vaddr));
	assert_int_equal(vaddr, 1);
	assert_true(image_section_data(image, image_section(image, ".bss")).bad);
}

static void compressed_sections_are_unpacked_within_the_cap(void **state)
{
	uint8_t plain[1000], zlib[1100], zstd[1100];
	uLongf n = sizeof(zlib) - 24;
	Elf64_Chdr h = {.ch_type = ELFCOMPRESS_ZLIB, .ch_size = sizeof(plain)};
	size_t m, size;
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ uint8_t *file = NULL;

	for (size_t i = 0; i < sizeof(plain); i++)
		plain[i] = (uint8_t)(i / 7);
	assert_int_equal(compress(zlib + 24, &n, plain, sizeof(plain)), Z_OK);
	memcpy(zlib, &h, 24);
	h.ch_type = 2; /* zstd */
	m = ZSTD_compress(zstd + 24, sizeof(zstd) - 24, plain, sizeof(plain), 1);
	memcpy(zstd, &h, 24);
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x1000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".a", zlib, 24 + n, 0, SHF_COMPRESSED, 0},
	    {".b", zstd, 24 + m, 0, SHF_COMPRESSED, 0},
	    {".c", zlib, 24 + n - 9, 0, SHF_COMPRESSED, 0},
	};
	file = elf_image_make(sections, ARRAY_SIZE(sections), 0, &size);
	assert_int_equal(image_from_memory(file, size, "x", &image, NULL), 0);
	for (int i = 0; i < 4; i++) {
		static const char *const names[] = {".text", ".a", ".b", ".c"};
		const struct image_section *s = image_section(image, names[i]);
		_cleanup_free_ void *owned = NULL;
		struct cursor c = {0};
		int r = image_section_unpack(image, s, 1000, &owned, &c, NULL);

		assert_int_equal(r, i == 3 ? -EBADMSG : 0);
		assert_true(!!owned == (i == 1 || i == 2));
		if (owned) {
			assert_int_equal(c.size, sizeof(plain));
			assert_memory_equal(c.data, plain, sizeof(plain));
			assert_int_equal(
			    image_section_unpack(image, s, 999, &(void *){NULL}, &c, NULL), -EFBIG);
		}
	}
}

static void a_file_cut_short_reads_as_zeros(void **state)
{
	char path[] = "/tmp/kiln-test-image-XXXXXX";
	_cleanup_(image_unrefp) struct image *image = NULL;
	size_t size, sum = 0;
	_cleanup_free_ uint8_t *file = make(&size);
	int fd = mkstemp(path);
	struct error err = {0};

	assert_true(fd >= 0);
	unlink(path);
	assert_int_equal(write(fd, file, size), size);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(image_catch_faults(&err), 0);
	assert_int_equal(image_open(dup(fd), "x", &image, &err), 0);
	assert_int_equal(ftruncate(fd, 0), 0);
	for (size_t i = 0; i < image->size; i++)
		sum += image->data[i];
	assert_int_equal(sum, 0);
	assert_string_equal(image->sections[1].name, "");
	close(fd);
}

static void forgotten_pages_read_again(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL;

	assert_int_equal(image_open(open("/proc/self/exe", O_RDONLY), "self", &image, NULL), 0);
	image_forget(image);
	assert_memory_equal(image->data, ELFMAG, SELFMAG);
	assert_non_null(image_section(image, ".text"));
}

static void descriptors_are_closed_whatever_happens(void **state)
{
	int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
	struct image *image = NULL;
	struct error err = {0};

	assert_int_equal(image_open(fd, "x", &image, &err), -ENOEXEC);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(image_open(fd, "x", &image, &err), 0);
	image_ref(image);
	image_unref(image);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	image_unref(image);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_cannot_run_here_is_refused),
	    cmocka_unit_test(ids_are_read),
	    cmocka_unit_test(the_hash_is_that_of_the_conventions),
	    cmocka_unit_test(ruined_section_headers_leave_none),
	    cmocka_unit_test(addresses_map_to_bytes),
	    cmocka_unit_test(compressed_sections_are_unpacked_within_the_cap),
	    cmocka_unit_test(a_file_cut_short_reads_as_zeros),
	    cmocka_unit_test(forgotten_pages_read_again),
	    cmocka_unit_test(descriptors_are_closed_whatever_happens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
