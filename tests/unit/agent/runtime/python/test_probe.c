// SPDX-License-Identifier: Apache-2.0
/* What a file tells: two small libraries that have what CPython has, and this machine's. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/python/python.h"

static struct python_image *probe(const char *path, int *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct runtime_image *ri = NULL;
	struct image *image;
	struct error err = {0};

	if (fd < 0) {
		*ret = -errno;
		return NULL;
	}
	assert_int_equal(image_open(fd, path, &image, &err), 0);
	*ret = python_probe(image, &ri, &err);
	if (*ret == -ENOTSUP)
		assert_true(err.message[0]);
	image_unref(image);
	return ri ? container_of(ri, struct python_image, base) : NULL;
}

#define SMALL(name) TEST_DATA "/../fuzz/corpus/python_probe/" name

static void a_file_without_symbols_of_its_own_tells_all(void **unused)
{
	static const char *const files[] = {SMALL("so-13"), SMALL("so-9")};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int r;
		struct python_image *p = probe(files[i], &r);

		assert_int_equal(r, 0);
		assert_string_equal(p->base.version, i ? "3.9" : "3.13.0");
		assert_int_equal(p->minor, i ? 9 : 13);
		assert_true(p->runtime && p->code_type);
		assert_int_equal(p->running.kind,
				 i ? THREAD_VARIABLE_NONE : THREAD_VARIABLE_STATIC);
		assert_int_equal(p->running.offset, i ? 0 : -16);
		/* The function, and the piece that it jumps to with its frame built. */
		assert_int_equal(p->base.n_ranges, 2);
		assert_int_equal(p->base.ranges[0].start, p->eval);
		assert_int_equal(p->base.ranges[1].end - p->base.ranges[1].start, 2);
		assert_true(p->base.ranges[1].start >= p->base.ranges[0].end + 64);
		python_forget(&p->base);
	}
}

static void other_files_are_none(void **unused)
{
	int r;

	(void)unused;
	assert_null(probe("/proc/self/exe", &r));
	assert_int_equal(r, -ENOENT);
	assert_null(probe("/lib/x86_64-linux-gnu/libc.so.6", &r));
	assert_true(r == -ENOENT);
}

static void the_distributions_interpreter(void **unused)
{
	struct python_image *p;
	int r;

	(void)unused;
	p = probe("/usr/bin/python3.11", &r);
	if (r == -ENOENT)
		skip();
	assert_int_equal(r, 0);
	assert_int_equal(p->minor, 11);
	assert_true(p->base.n_ranges >= 2); /* stripped, with a cold part */
	python_forget(&p->base);
}

static void offsets_that_make_no_sense_are_refused(void **unused)
{
	uint64_t words[PYTHON_OFFSETS_BYTES / 8] = {0};
	struct python_layout layout;
	struct error err = {0};

	(void)unused;
	assert_int_equal(python_layout_read(words, sizeof(words), 13, &layout, &err), -EAGAIN);
	memcpy(words, "xdebugpy", 8);
	words[1] = 0x030c00f0;
	assert_int_equal(python_layout_read(words, sizeof(words), 13, &layout, &err), -ENOTSUP);
	words[1] = 0x030d00f0;
	/* Sizes of 0 have no members. */
	assert_int_equal(python_layout_read(words, sizeof(words), 13, &layout, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, "make no sense"));
	memset(words + 2, 0xff, sizeof(words) - 16);
	assert_int_equal(python_layout_read(words, sizeof(words), 13, &layout, &err), -ENOTSUP);
	assert_int_equal(python_layout_read(words, 24, 13, &layout, &err), -ENOTSUP);
	assert_null(python_layout_of(5));
	assert_null(python_layout_of(13));
	assert_non_null(python_layout_of(12));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_file_without_symbols_of_its_own_tells_all),
	    cmocka_unit_test(other_files_are_none),
	    cmocka_unit_test(the_distributions_interpreter),
	    cmocka_unit_test(offsets_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests_name("python_probe", tests, NULL, NULL);
}
