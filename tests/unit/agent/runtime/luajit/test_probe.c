// SPDX-License-Identifier: Apache-2.0
/* What a file tells: programs that have what LuaJIT has
 * (tests/integration/runtimes/luajit_forged.c), and others. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/luajit/luajit.h"

#define SMALL(name) TEST_DATA "/../fuzz/corpus/luajit_probe/" name

static struct luajit_image *probe(const char *path, int *ret, char why[160])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct runtime_image *ri = NULL;
	struct image *image;
	struct error err = {0};

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, &image, &err), 0);
	*ret = luajit_probe(image, &ri, &err);
	if (why)
		snprintf(why, 160, "%.159s", err.message);
	image_unref(image);
	return ri ? container_of(ri, struct luajit_image, base) : NULL;
}

static void the_code_tells_where_everything_is(void **unused)
{
	struct luajit_image *l;
	int r;

	(void)unused;
	l = probe(SMALL("forged"), &r, NULL);
	assert_int_equal(r, 0);
	assert_int_equal(l->base.n_ranges, 1);
	assert_int_equal(l->base.ranges[0].start, l->kernel.vm);
	assert_int_equal(l->kernel.jit_base, 0x40);
	assert_int_equal(l->kernel.vmstate, 0x48);
	assert_int_equal(l->kernel.trace, 0x50);
	assert_int_equal(l->kernel.trace_mcode, 0x58);
	assert_int_equal(l->kernel.has_jit, 1);
	/* mov %r12,0x10(%rsp); mov %r13,8(%rsp); jmp *%rax */
	assert_int_equal(l->kernel.enter_to - l->kernel.enter_from, 12);
	assert_true(l->kernel.exit_from > l->kernel.enter_to);
	luajit_forget(&l->base);
}

static void references_of_32_bits_are_refused(void **unused)
{
	char why[160];
	int r;

	(void)unused;
	assert_null(probe(SMALL("unknown"), &r, why));
	assert_int_equal(r, -ENOTSUP);
	assert_non_null(strstr(why, "32-bit references"));
}

static void other_files_are_none(void **unused)
{
	int r;

	(void)unused;
	assert_null(probe("/proc/self/exe", &r, NULL));
	assert_int_equal(r, -ENOENT);
	assert_null(probe("/lib/x86_64-linux-gnu/libc.so.6", &r, NULL));
	assert_int_equal(r, -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_code_tells_where_everything_is),
	    cmocka_unit_test(references_of_32_bits_are_refused),
	    cmocka_unit_test(other_files_are_none),
	};

	return cmocka_run_group_tests_name("luajit_probe", tests, NULL, NULL);
}
