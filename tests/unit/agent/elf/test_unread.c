/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of a file are never read, and that the headers of a hostile one hide nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/elf/unread.h"
#include "tests/fuzz/elf_image.h"

enum { DEBUG_SIZE = 5 * UNREAD_BLOCK, DEBUG = 2, SYMTAB = 3, N_SECTIONS = 5 };

static const uint8_t text[256] = {0xc3}, symbols[UNREAD_BLOCK], debug[DEBUG_SIZE];

struct file {
	uint8_t *data;
	size_t size;
	Elf64_Shdr *sections;
	Elf64_Phdr *segments;
};

static struct file make(const char *name)
{
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x401000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {name, debug, sizeof(debug), 0, 0, 0},
	    {".symtab", symbols, sizeof(symbols), 0, 0, SHT_SYMTAB},
	};
	struct file f;

	f.data = elf_image_make(sections, ARRAY_SIZE(sections), 0x401010, &f.size);
	assert_non_null(f.data);
	f.sections = (Elf64_Shdr *)(f.data + ((Elf64_Ehdr *)f.data)->e_shoff);
	f.segments = (Elf64_Phdr *)(f.data + sizeof(Elf64_Ehdr));
	return f;
}

/* Frees F. Returns the number of ranges; *RET is the first. */
static size_t ranges_of(struct file *f, struct file_range *ret)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	_cleanup_free_ struct file_range *ranges = NULL;
	size_t n;

	assert_int_equal(image_from_memory(f->data, f->size, "crafted", &image, NULL), 0);
	assert_int_equal(image_unread_ranges(image, &ranges, &n), 0);
	if (n)
		*ret = ranges[0];
	free(f->data);
	return n;
}

static bool is_left_out(const char *name)
{
	struct file f = make(name);
	struct file_range range;

	return ranges_of(&f, &range) == 1;
}

static void debug_information_is_left_out_in_whole_blocks(void **state)
{
	struct file f = make(".debug_info");
	uint64_t at = f.sections[DEBUG].sh_offset;
	struct file_range range;

	assert_int_equal(ranges_of(&f, &range), 1);
	assert_in_range(at, 1, UNREAD_BLOCK);
	assert_int_equal(range.start, UNREAD_BLOCK);
	assert_int_equal(range.end, DEBUG_SIZE);
}

static void what_is_read_is_not_left_out(void **state)
{
	static const char *const read[] = {".debug_frame", ".zdebug_frame", ".gnu_debugdata",
					   ".gopclntab",   ".strtab",	    ".gnu_debuglink",
					   ".comment",	   ".debug",	    ""};

	assert_true(is_left_out(".zdebug_info"));
	for (size_t i = 0; i < ARRAY_SIZE(read); i++)
		assert_false(is_left_out(read[i]));
}

static void strings_of_a_symbol_table_are_not_left_out(void **state)
{
	struct file f = make(".debug_str");
	struct file_range range;

	f.sections[SYMTAB].sh_link = DEBUG;
	assert_int_equal(ranges_of(&f, &range), 0);
}

static void the_end_of_the_file_is_not_left_out(void **state)
{
	struct file f = make(".debug_info");
	struct file_range range;

	/* The section ends a few bytes before the section headers. */
	f.sections[SYMTAB].sh_size = 0;
	f.sections[DEBUG].sh_size =
	    f.sections[N_SECTIONS - 1].sh_offset - f.sections[DEBUG].sh_offset;
	assert_int_equal(ranges_of(&f, &range), 1);
	assert_true(range.end <= f.size - UNREAD_BLOCK);
	assert_int_equal(range.end, DEBUG_SIZE);
}

static void change(struct file *f, int how)
{
	Elf64_Shdr *s = f->sections;
	Elf64_Ehdr *h = (Elf64_Ehdr *)f->data;

	switch (how) {
	case 0: /* it begins in the next section */
		s[SYMTAB].sh_offset -= 1;
		break;
	case 1: /* another lies in it */
		s[SYMTAB].sh_offset = s[DEBUG].sh_offset + UNREAD_BLOCK;
		s[SYMTAB].sh_size = 1;
		break;
	case 2: /* it is the whole file */
		s[DEBUG].sh_offset = 0;
		s[DEBUG].sh_size = f->size;
		break;
	case 3: /* it is the segment's code */
		f->segments[0].p_filesz = f->segments[0].p_memsz =
		    s[DEBUG].sh_offset + 1 - f->segments[0].p_offset;
		break;
	case 4: /* a segment that is not loaded lies in it, at its end */
		f->segments[1] = (Elf64_Phdr){
		    .p_type = PT_NOTE, .p_filesz = 1, .p_offset = s[SYMTAB].sh_offset - 1};
		h->e_phnum = 2;
		break;
	case 5:
		s[DEBUG].sh_size = f->size;
		break;
	case 6:
		s[DEBUG].sh_size = UINT64_MAX;
		break;
	case 7:
		s[DEBUG].sh_offset = UINT64_MAX - 1;
		break;
	case 8: /* another lies outside of the file */
		s[SYMTAB].sh_offset = f->size;
		break;
	case 9: /* two of them overlap */
		s[SYMTAB] = s[DEBUG];
		break;
	case 10: /* the section headers lie in it */
		h->e_shoff = s[DEBUG].sh_offset + UNREAD_BLOCK;
		memcpy(f->data + h->e_shoff, s, N_SECTIONS * sizeof(*s));
		break;
	default:
		fail();
	}
}

static void of_a_file_with_bad_headers_nothing_is_left_out(void **state)
{
	struct file_range range;

	for (int how = 0; how <= 10; how++) {
		struct file f = make(".debug_info");

		change(&f, how);
		if (ranges_of(&f, &range))
			fail_msg("%d: something is left out", how);
	}
}

/* As many as there may be, all the same. */
static void thousands_of_sections_do_not_take_long(void **state)
{
	struct file f = make(".debug_info");
	size_t n = 65000, at = ALIGN_UP(f.size, 8), old = ((Elf64_Ehdr *)f.data)->e_shoff;
	struct file_range range;

	f.size = at + n * sizeof(Elf64_Shdr);
	f.data = realloc(f.data, f.size);
	assert_non_null(f.data);
	f.sections = (Elf64_Shdr *)(f.data + at);
	memcpy(f.sections, f.data + old, N_SECTIONS * sizeof(*f.sections));
	for (size_t i = N_SECTIONS; i < n; i++)
		f.sections[i] = f.sections[SYMTAB];
	((Elf64_Ehdr *)f.data)->e_shoff = at;
	((Elf64_Ehdr *)f.data)->e_shnum = (Elf64_Half)n;
	assert_int_equal(ranges_of(&f, &range), 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(debug_information_is_left_out_in_whole_blocks),
	    cmocka_unit_test(what_is_read_is_not_left_out),
	    cmocka_unit_test(strings_of_a_symbol_table_are_not_left_out),
	    cmocka_unit_test(the_end_of_the_file_is_not_left_out),
	    cmocka_unit_test(of_a_file_with_bad_headers_nothing_is_left_out),
	    cmocka_unit_test(thousands_of_sections_do_not_take_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
