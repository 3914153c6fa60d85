// SPDX-License-Identifier: Apache-2.0
/* What a file tells: small libraries that have what Perl has (probe.S), and this machine's. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/perl/perl.h"

static struct perl_image *probe(const char *path, int *ret, char why[160])
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
	*ret = perl_probe(image, &ri, &err);
	if (*ret == -ENOTSUP)
		assert_true(err.message[0]);
	if (why)
		snprintf(why, 160, "%.159s", err.message);
	image_unref(image);
	return ri ? container_of(ri, struct perl_image, base) : NULL;
}

#define SMALL(name) TEST_DATA "/../fuzz/corpus/perl_probe/" name

static void a_file_without_symbols_of_its_own_tells_all(void **unused)
{
	struct perl_image *p;
	int r;

	(void)unused;
	p = probe(SMALL("threaded"), &r, NULL);
	assert_int_equal(r, 0);
	assert_string_equal(p->base.version, "5.36.3");
	assert_int_equal(p->minor, 36);
	assert_true(p->threaded);
	/* push %rbx; mov 8(%rdi),%rax; mov %rdi,%rbx */
	assert_int_equal(p->state_from, 8);
	assert_int_equal(p->base.n_ranges, 1);
	assert_int_equal(p->base.ranges[0].start, p->runops);
	assert_int_equal(p->base.ranges[0].end - p->runops, 27);
	perl_forget(&p->base);
}

static void without_threads_the_state_is_in_variables(void **unused)
{
	struct perl_image *p;
	int r;

	(void)unused;
	p = probe(SMALL("unthreaded"), &r, NULL);
	assert_int_equal(r, 0);
	assert_string_equal(p->base.version, "5.40.3");
	assert_false(p->threaded);
	assert_int_equal(p->at.curcop, p->at.op + 8);
	assert_int_equal(p->at.sortcop, p->at.op + 56);
	perl_forget(&p->base);
}

static void versions_that_are_not_known_are_refused(void **unused)
{
	static const char *const files[] = {SMALL("newer"), SMALL("development")};
	char why[160];
	int r;

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		assert_null(probe(files[i], &r, why));
		assert_int_equal(r, -ENOTSUP);
		assert_non_null(strstr(why, i ? "5.41.3" : "5.46.3"));
		assert_non_null(strstr(why, "want 5.26 to 5.44"));
	}
}

static void another_register_is_refused(void **unused)
{
	char why[160];
	int r;

	(void)unused;
	assert_null(probe(SMALL("other-register"), &r, why));
	assert_int_equal(r, -ENOTSUP);
	assert_non_null(strstr(why, "rbx"));
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

static void the_distributions_interpreter(void **unused)
{
	struct perl_image *p;
	int r;

	(void)unused;
	p = probe("/usr/bin/perl", &r, NULL);
	if (!p)
		skip();
	assert_true(p->minor >= PERL_MINOR_MIN && p->base.n_ranges == 1);
	perl_forget(&p->base);
}

static void every_release_has_a_layout(void **unused)
{
	(void)unused;
	for (unsigned int minor = 0; minor < 256; minor++) {
		const struct perl_layout *l = perl_layout_of(minor);
		bool known = minor >= PERL_MINOR_MIN && minor <= PERL_MINOR_MAX && minor % 2 == 0;

		assert_int_equal(l != NULL, known);
		if (l)
			assert_true(l->minor <= minor && l->at.curcop &&
				    l->context_size <= KILN_PERL_CONTEXT_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_file_without_symbols_of_its_own_tells_all),
	    cmocka_unit_test(without_threads_the_state_is_in_variables),
	    cmocka_unit_test(versions_that_are_not_known_are_refused),
	    cmocka_unit_test(another_register_is_refused),
	    cmocka_unit_test(other_files_are_none),
	    cmocka_unit_test(the_distributions_interpreter),
	    cmocka_unit_test(every_release_has_a_layout),
	};

	return cmocka_run_group_tests_name("perl_probe", tests, NULL, NULL);
}
