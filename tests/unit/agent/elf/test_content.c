// SPDX-License-Identifier: Apache-2.0
/*
 * Two files are the same if all bytes that the agent reads are equal, whatever build id they claim.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/elf/content.h"
#include "tests/fuzz/elf_image.h"

static const char libc_path[] = "/lib/x86_64-linux-gnu/libc.so.6";

static struct image *open_image(const char *path)
{
	struct image *image = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, &image, NULL), 0);
	return image;
}

static struct image *from_memory(const void *data, size_t size)
{
	struct image *image = NULL;

	assert_int_equal(image_from_memory(data, size, "crafted", &image, NULL), 0);
	return image;
}

static struct image_content content_of(const struct image *image)
{
	struct image_content content;

	assert_int_equal(image_content_read(image, &content), 0);
	return content;
}

static bool same(const struct image *a, const struct image *b)
{
	struct image_content x = content_of(a), y = content_of(b);

	return memcmp(&x, &y, sizeof(x)) == 0;
}

static void a_file_and_its_copies_are_the_same(void **state)
{
	_cleanup_(image_unrefp) struct image *one = open_image(libc_path),
					     *again = open_image(libc_path), *copy = NULL;

	assert_int_equal(image_copy(one, &copy, NULL), 0);
	assert_int_equal(copy->fd, -1);
	assert_true(same(one, again));
	assert_true(same(one, copy));
}

/* Changes one byte in the middle of the section NAME: build id, head, tail and size stay libc's. */
static void expect_other(const struct image *libc, const char *name)
{
	const struct image_section *section = image_section(libc, name);
	_cleanup_(image_unrefp) struct image *crafted = NULL;
	_cleanup_free_ uint8_t *bytes = malloc(libc->size);

	assert_non_null(bytes);
	assert_non_null(section);
	memcpy(bytes, libc->data, libc->size);
	bytes[section->offset + section->size / 2] ^= 1;
	crafted = from_memory(bytes, libc->size);
	assert_string_equal(crafted->htlhash, libc->htlhash);
	assert_int_equal(crafted->build_id_len, libc->build_id_len);
	assert_memory_equal(crafted->build_id, libc->build_id, libc->build_id_len);
	if (same(crafted, libc))
		fail_msg("%s may be another's", name);
}

static void a_crafted_libc_is_another_file(void **state)
{
	static const char *const names[] = {".eh_frame", ".eh_frame_hdr", ".text",    ".rodata",
					    ".dynsym",	 ".dynstr",	  ".rela.plt"};
	_cleanup_(image_unrefp) struct image *libc = open_image(libc_path);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		expect_other(libc, names[i]);
}

static uint8_t *make(const char *debug_name, const char *debug, const char *symbols, size_t *size)
{
	static const uint8_t text[256] = {0xc3};
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x401000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {debug_name, debug, strlen(debug), 0, 0, 0},
	    {".symtab", symbols, strlen(symbols), 0, 0, SHT_SYMTAB},
	};
	uint8_t *file = elf_image_make(sections, ARRAY_SIZE(sections), 0x401010, size);

	assert_non_null(file);
	return file;
}

static bool same_made(const char *name, const char *debug, const char *symbols)
{
	size_t size;
	_cleanup_free_ uint8_t *first = make(name, "debug", "table", &size),
			       *second = make(name, debug, symbols, &size);
	_cleanup_(image_unrefp) struct image *a = from_memory(first, size),
					     *b = from_memory(second, size);

	return same(a, b);
}

static void only_debug_information_may_differ(void **state)
{
	assert_true(same_made(".debug_info", "debug", "table"));
	assert_true(same_made(".debug_info", "DEBUG", "table"));
	assert_false(same_made(".debug_info", "debug", "TABLE"));
	assert_false(same_made(".debug_frame", "DEBUG", "table"));
	assert_false(same_made(".gnu_debugdata", "DEBUG", "table"));
	assert_false(same_made(".gopclntab", "DEBUG", "table"));
}

/* A section that a symbol table links as its strings counts, whatever the section's name is. */
static void strings_count_whatever_they_are_called(void **state)
{
	bool equal[2];

	for (int linked = 0; linked < 2; linked++) {
		struct image *images[2];

		for (int i = 0; i < 2; i++) {
			size_t size;
			_cleanup_free_ uint8_t *file =
			    make(".debug_str", i ? "DEBUG" : "debug", "table", &size);
			Elf64_Shdr *sh = (Elf64_Shdr *)(file + ((Elf64_Ehdr *)file)->e_shoff);

			sh[3].sh_link = linked ? 2 : 0;
			images[i] = from_memory(file, size);
		}
		equal[linked] = same(images[0], images[1]);
		image_unref(images[0]);
		image_unref(images[1]);
	}
	assert_true(equal[0]);
	assert_false(equal[1]);
}

static void program_headers_count(void **state)
{
	size_t size;
	_cleanup_free_ uint8_t *file = make(".x", "", "table", &size);
	_cleanup_(image_unrefp) struct image *a = from_memory(file, size), *b = NULL;

	((Elf64_Phdr *)(file + sizeof(Elf64_Ehdr)))->p_vaddr += 0x1000;
	b = from_memory(file, size);
	assert_false(same(a, b));
}

/* A file without a name, and N images of it. The caller closes the file. */
static int make_file(struct image **images, size_t n)
{
	char path[] = "/tmp/kiln-content-XXXXXX";
	int fd = mkstemp(path);
	size_t size;
	_cleanup_free_ uint8_t *bytes = make(".debug_info", "debug", "table", &size);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	for (size_t i = 0; i < n; i++)
		images[i] = open_image(path);
	assert_int_equal(unlink(path), 0);
	return fd;
}

static void change_code(int fd, const struct image *image)
{
	off_t at = (off_t)image_section(image, ".text")->offset;

	assert_int_equal(pwrite(fd, "\x90", 1, at), 1);
}

static void a_file_that_changed_is_told(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL, *before = NULL;
	_cleanup_close_ int fd = make_file(&image, 1);
	struct image_content content;

	/* The content is not known yet, so the image is shared with nobody: the check succeeds. */
	assert_null(image_content(image));
	assert_int_equal(image_content_check(image, image), 0);
	assert_int_equal(image_identify(image, &content), 0);
	assert_memory_equal(image_content(image), &content, sizeof(content));
	assert_int_equal(image_copy(image, &before, NULL), 0);
	assert_int_equal(image_content_check(image, image), 0);
	change_code(fd, image);
	assert_int_equal(image_content_check(image, image), -ESTALE);
	/* The copy made before the change still has the content. */
	assert_int_equal(image_content_check(image, before), 0);
	/* image_identify() returns the content that it read first. */
	assert_int_equal(image_identify(image, &content), 0);
	assert_int_equal(image_content_check(image, before), 0);
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(image_content_check(image, image), -EIO);
}

static void one_reading_is_hashed_and_kept(void **state)
{
	_cleanup_(image_unrefp) struct image *image = NULL, *copy = NULL, *none = NULL;
	_cleanup_close_ int fd = make_file(&image, 1);
	struct image_content content, again;

	assert_int_equal(image_identify_copy(image, &content, &copy), 0);
	assert_non_null(copy);
	assert_memory_equal(image_content(image), &content, sizeof(content));
	/* The copy has no byte that was written later. */
	change_code(fd, image);
	assert_int_equal(image_content_read(copy, &again), 0);
	assert_memory_equal(&again, &content, sizeof(content));
	/* The content is known now: the file is not read again and no copy is made. */
	assert_int_equal(image_identify_copy(image, &again, &none), 0);
	assert_null(none);
	assert_memory_equal(&again, &content, sizeof(content));
	image_content_revoke(image);
	assert_int_equal(image_identify_copy(image, &again, &none), -ESTALE);
	assert_null(none);
}

static void what_was_written_shortly_before_counts_as_touched(void **state)
{
	struct image *images[2];
	_cleanup_close_ int fd = make_file(images, 2);
	_cleanup_(image_unrefp) struct image *fresh = images[0], *settled = images[1];
	struct image_content content;
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_false(image_is_untouched(fresh, &st)); /* nobody has read it */
	assert_int_equal(image_identify(fresh, &content), 0);
	assert_false(image_is_untouched(fresh, &st));
	/* A change time cannot be set, only waited for. */
	sleep(3);
	assert_int_equal(image_identify(settled, &content), 0);
	assert_true(image_is_untouched(settled, &st));
	change_code(fd, settled);
	assert_int_equal(fstat(fd, &st), 0);
	assert_false(image_is_untouched(settled, &st));
}

static void an_unshared_file_is_not_read(void **state)
{
	const struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
	struct image *images[2];
	_cleanup_close_ int fd = make_file(images, 2);
	_cleanup_(image_unrefp) struct image *one = images[0], *two = images[1];
	struct image_content content, other;
	struct stat st;

	image_keep_unshared(one);
	image_keep_unshared(two);
	assert_int_equal(image_identify(one, &content), 0);
	assert_int_equal(image_identify(two, &other), 0);
	assert_memory_not_equal(&content, &other, sizeof(content));
	image_keep_unshared(one); /* it has its content */
	assert_memory_equal(image_content(one), &content, sizeof(content));
	assert_int_equal(image_content_check(one, one), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_false(image_is_untouched(one, &st)); /* no byte of it was read */
	change_code(fd, one);
	assert_int_equal(futimens(fd, later), 0);
	assert_int_equal(image_content_check(one, one), -ESTALE);
	image_content_revoke(one);
	assert_null(image_content(one));
	assert_int_equal(ftruncate(fd, 100), 0);
	assert_int_equal(image_content_check(two, two), -ESTALE);
}

/* A thousand sections that each cover the whole file must not keep a thread busy. */
static void overlapping_sections_are_bounded(void **state)
{
	enum { SECTIONS = 1200, SIZE = 1 << 20 };
	size_t at = SIZE - SECTIONS * sizeof(Elf64_Shdr), small;
	_cleanup_free_ uint8_t *file = calloc(1, SIZE), *head = make(".x", "", "t", &small);
	_cleanup_(image_unrefp) struct image *image = NULL;
	Elf64_Shdr *sh = (Elf64_Shdr *)(file + at);
	struct image_content content;

	assert_non_null(file);
	memcpy(file, head, small);
	((Elf64_Ehdr *)file)->e_shoff = at;
	((Elf64_Ehdr *)file)->e_shnum = SECTIONS;
	((Elf64_Ehdr *)file)->e_shstrndx = 0;
	for (size_t i = 1; i < SECTIONS; i++)
		sh[i] = (Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_size = SIZE};
	image = from_memory(file, SIZE);
	assert_int_equal(image->n_sections, SECTIONS);
	assert_int_equal(image_content_read(image, &content), -EFBIG);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_file_and_its_copies_are_the_same),
	    cmocka_unit_test(a_crafted_libc_is_another_file),
	    cmocka_unit_test(only_debug_information_may_differ),
	    cmocka_unit_test(strings_count_whatever_they_are_called),
	    cmocka_unit_test(program_headers_count),
	    cmocka_unit_test(a_file_that_changed_is_told),
	    cmocka_unit_test(one_reading_is_hashed_and_kept),
	    cmocka_unit_test(what_was_written_shortly_before_counts_as_touched),
	    cmocka_unit_test(an_unshared_file_is_not_read),
	    cmocka_unit_test(overlapping_sections_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
