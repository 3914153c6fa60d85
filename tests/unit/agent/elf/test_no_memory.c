// SPDX-License-Identifier: Apache-2.0
/*
 * Fails every allocation of opening and compiling an image in turn, by --wrap: the result is
 * -ENOMEM with a message (or success where a part can be left out), nothing leaks (LeakSanitizer),
 * nothing crashes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/elf/gopclntab.h"
#include "agent/elf/unwind.h"
#include "tests/fuzz/elf_image.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static int fail_at = -1; /* allocations until one fails; -1: none fails */
static bool failed;

static bool fails(void)
{
	if (fail_at < 0 || fail_at-- > 0)
		return false;
	failed = true;
	return true;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
	return fails() ? NULL : __real_strdup(s);
}

/* Two CIEs and FDEs in falling order, so that everything that allocates is reached. */
static size_t make_eh_frame(uint8_t *out, uint32_t vaddr)
{
	static const uint8_t cie[] = {0x14, 0,	  0,  0, 0,    0,    0, 0, 1,	 'z', 'R', 0,
				      1,    0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,   0,   0};
	size_t at = sizeof(cie);

	memcpy(out, cie, sizeof(cie));
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t fde[5] = {16, (uint32_t)at + 4, 0x1000 + (299 - i) * 32, 32};
		uint8_t program[4] = {0, 0x0e, (uint8_t)(8 + i % 120)};

		fde[2] -= vaddr + (uint32_t)at + 8;
		memcpy(fde + 4, program, 4);
		memcpy(out + at, fde, sizeof(fde));
		at += sizeof(fde);
	}
	return at;
}

static int build(const uint8_t *file, size_t size, struct error *err, uint32_t *ret_rows)
{
	_cleanup_(unwind_table_freep) struct unwind_table *t = NULL;
	_cleanup_(image_unrefp) struct image *image = NULL;
	int r = image_from_memory(file, size, "x", &image, err);

	if (r < 0)
		return r;
	r = unwind_compile(image, &t, err);
	if (r == 0)
		*ret_rows = t->n_rows;
	return r;
}

static void every_allocation_may_fail(void **state)
{
	static uint8_t text[0x4000], eh_frame[16384], debug_frame[16384];
	const struct elf_image_section sections[] = {
	    {".text", text, sizeof(text), 0x1000, SHF_ALLOC | SHF_EXECINSTR, 0},
	    {".eh_frame", eh_frame, make_eh_frame(eh_frame, 0x8000), 0x8000, SHF_ALLOC, 0},
	    {".debug_frame", debug_frame, 64, 0, 0, 0},
	};
	_cleanup_free_ uint8_t *file = NULL;
	uint32_t rows = 0, want = 0;
	struct error err = {0};
	int n, failures = 0;
	size_t size;

	file = elf_image_make(sections, ARRAY_SIZE(sections), 0x1000, &size);
	assert_int_equal(build(file, size, &err, &want), 0);
	assert_true(want >= 300);
	for (n = 0; n < 10000; n++) {
		int r;

		err = (struct error){0};
		failed = false;
		fail_at = n;
		r = build(file, size, &err, &rows);
		fail_at = -1;
		if (!failed) {
			assert_int_equal(r, 0);
			break;
		}
		if (r == 0) { /* only the last step failed, which makes the table smaller */
			assert_int_equal(rows, want);
			continue;
		}
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(err.code, -ENOMEM);
		assert_string_not_equal(err.message, "");
		failures++;
	}
	print_message("%d allocations, %d of them needed\n", n, failures);
	assert_true(failures > 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_allocation_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
