// SPDX-License-Identifier: Apache-2.0
/* What a file tells: small libraries that have what Ruby has (small.h), and this machine's. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/ruby/ruby.h"

static struct ruby_image *probe(const char *path, int *ret, struct error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct runtime_image *ri = NULL;
	struct image *image;

	if (fd < 0) {
		*ret = -errno;
		return NULL;
	}
	assert_int_equal(image_open(fd, path, &image, err), 0);
	*ret = ruby_probe(image, &ri, err);
	image_unref(image);
	return ri ? container_of(ri, struct ruby_image, base) : NULL;
}

#define SMALL(name) TEST_DATA "/../fuzz/corpus/ruby_probe/" name

static bool has_range(const struct ruby_image *p, const struct runtime_range *range)
{
	for (size_t i = 0; i < p->base.n_ranges; i++)
		if (p->base.ranges[i].start == range->start && p->base.ranges[i].end == range->end)
			return true;
	return false;
}

static void check_code(const struct ruby_image *p)
{
	const struct ruby_code *c = &p->code;

	assert_true(c->loop.end > c->loop.start + 1000);
	assert_true(c->exec.start && c->exec.end > c->exec.start);
	assert_true(c->exec.end <= c->loop.start || c->exec.start >= c->loop.end);
	assert_true(c->prologue && c->prologue < 100);
	assert_true(has_range(p, &c->loop) && has_range(p, &c->exec));
	assert_int_equal(c->place, KILN_RUBY_RBX);
	assert_true(c->returns > c->prologue);
	assert_true(p->n_symbols >= 1);
}

static void a_stripped_file_tells_all(void **unused)
{
	struct error err = {0};
	struct ruby_image *p;
	int r;

	(void)unused;
	p = probe(SMALL("so-3.3"), &r, &err);
	assert_int_equal(r, 0);
	assert_int_equal(p->version, 303);
	assert_string_equal(p->base.version, "3.3.8");
	check_code(p);
	assert_int_equal(p->current.kind, THREAD_VARIABLE_MODULE);
	assert_int_equal(p->global, 0);
	ruby_forget(&p->base);
}

static void the_context_of_2_x_is_global(void **unused)
{
	struct error err = {0};
	struct ruby_image *p;
	int r;

	(void)unused;
	p = probe(SMALL("so-2.7"), &r, &err);
	assert_int_equal(r, 0);
	assert_int_equal(p->version, 207);
	check_code(p);
	assert_true(p->global);
	assert_int_equal(p->current.kind, THREAD_VARIABLE_NONE);
	ruby_forget(&p->base);
}

static void symbols_say_the_same(void **unused)
{
	struct error err = {0};
	struct ruby_image *p;
	int r;

	(void)unused;
	p = probe(SMALL("so-symbols"), &r, &err);
	assert_int_equal(r, 0);
	assert_int_equal(p->version, 304);
	check_code(p);
	ruby_forget(&p->base);
}

static void an_unknown_version_is_refused(void **unused)
{
	struct error err = {0};
	int r;

	(void)unused;
	assert_null(probe(SMALL("so-9.1"), &r, &err));
	assert_int_equal(r, -ENOTSUP);
	assert_string_equal(err.message, "Ruby 9.1: want 2.5 to 4.0");
}

static void other_files_are_none(void **unused)
{
	struct error err = {0};
	int r;

	(void)unused;
	assert_null(probe("/proc/self/exe", &r, &err));
	assert_int_equal(r, -ENOENT);
	assert_null(probe("/lib/x86_64-linux-gnu/libc.so.6", &r, &err));
	assert_true(r == -ENOENT);
}

static void versions_have_layouts(void **unused)
{
	(void)unused;
	assert_null(ruby_layout_of(204));
	assert_int_equal(ruby_layout_of(205)->frame_size, 48);
	assert_int_equal(ruby_layout_of(207)->frame_size, 56);
	assert_int_equal(ruby_layout_of(301)->frame_size, 64);
	assert_int_equal(ruby_layout_of(304)->frame_size, 56);
	assert_int_equal(ruby_layout_of(400)->class_path, 128);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_stripped_file_tells_all),
	    cmocka_unit_test(the_context_of_2_x_is_global),
	    cmocka_unit_test(symbols_say_the_same),
	    cmocka_unit_test(an_unknown_version_is_refused),
	    cmocka_unit_test(other_files_are_none),
	    cmocka_unit_test(versions_have_layouts),
	};

	return cmocka_run_group_tests_name("ruby_probe", tests, NULL, NULL);
}
