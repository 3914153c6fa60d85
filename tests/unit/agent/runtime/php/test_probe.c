// SPDX-License-Identifier: Apache-2.0
/* What a probe finds in a file: small libraries with the parts of PHP (small.c), and others. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "agent/runtime/php/php.h"

static char why[160];

static struct php_image *probe(const char *path, int *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct runtime_image *ri = NULL;
	struct image *image;
	struct error err = {0};

	assert_true(fd >= 0);
	assert_int_equal(image_open(fd, path, &image, &err), 0);
	err = (struct error){0};
	*ret = php_probe(image, &ri, &err);
	snprintf(why, sizeof(why), "%.159s", err.message);
	image_unref(image);
	return ri ? container_of(ri, struct php_image, base) : NULL;
}

#define SMALL(name) SMALL_PHP "/libphp-small-" name ".so"

static void a_stripped_file_tells_all(void **unused)
{
	int r;
	struct php_image *p = probe(SMALL("8.2"), &r);

	assert_int_equal(r, 0);
	assert_string_equal(p->base.version, "8.2.32");
	assert_int_equal(p->layout->version, 802);
	assert_true(p->globals && p->loop.start && p->root.size && p->resume.size);
	/*
	 * Ranges: execute_ex(), its part elsewhere, entered with the frame built; two callers;
	 * fibers.
	 */
	assert_int_equal(p->base.n_ranges, 5);
	assert_int_equal(p->base.ranges[0].start, p->loop.start);
	assert_int_equal(p->base.ranges[1].start, p->cold.start);
	assert_int_equal(p->cold.size, 3);
	assert_true(p->edges.has_registers);
	/* push, push, sub: 0x78 + 2 * 8, and the return address. */
	assert_int_equal(p->edges.frame, 0x78 + 24);
	assert_int_equal(p->edges.canary, 0x68);
	assert_true(p->edges.entered < p->edges.left_from && p->edges.left_from < p->edges.left_to);
	assert_int_equal(p->edges.left_to, p->loop.size);
	assert_int_equal(p->saved_bx, 0x30);
	assert_int_equal(p->fiber.size, 3); /* push, jmp */
	php_forget(&p->base);
}

static void a_frame_pointer_needs_no_guess(void **unused)
{
	int r;
	struct php_image *p = probe(SMALL("8.4"), &r);

	assert_int_equal(r, 0);
	assert_true(p->edges.has_registers);
	assert_int_equal(p->edges.frame, 0);
	assert_int_equal(p->edges.canary, 0);
	php_forget(&p->base);
}

/* Unknown versions, builds for threads, and an offset that is not the version's. */
static void what_is_not_known_is_refused_with_a_reason(void **unused)
{
	static const struct {
		const char *path, *why;
	} refused[] = {
	    {SMALL("9.9"), "PHP 9.9.1: want 7.4, 8.2, 8.4, 8.5 or 8.6"},
	    {SMALL("threads"), "PHP 8.2.0 for threads (ZTS)"},
	    {SMALL("other"),
	     "PHP 8.2.0: its current frame is at 496 in executor_globals, want 488"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		int r;

		assert_null(probe(refused[i].path, &r));
		assert_int_equal(r, -ENOTSUP);
		assert_string_equal(why, refused[i].why);
	}
}

static void other_files_are_none(void **unused)
{
	int r;

	assert_null(probe("/proc/self/exe", &r));
	assert_int_equal(r, -ENOENT);
	assert_null(probe("/lib/x86_64-linux-gnu/libc.so.6", &r));
	assert_int_equal(r, -ENOENT);
}

/* ---- memory with code ------------------------------------------------------------------------ */

enum { GLOBALS = 0x55550000, CODE_BYTES = 8192 };

struct code {
	uint64_t start;
	uint8_t bytes[CODE_BYTES];
};

static int read_code(void *arg, uint64_t address, void *dst, size_t len)
{
	struct code *c = arg;

	if (address < c->start || address - c->start > CODE_BYTES ||
	    len > CODE_BYTES - (address - c->start))
		return -EFAULT;
	memcpy(dst, c->bytes + (address - c->start), len);
	return 0;
}

static enum jit_claim owns(struct code *c)
{
	struct php_process p = {.globals = GLOBALS};
	struct target_memory memory = {.read = read_code, .arg = c};

	return php_owns(&p, &memory, c->start, c->start + CODE_BYTES);
}

static void compiled_code_is_known_by_the_globals_that_it_uses(void **unused)
{
	static struct code c;
	uint64_t whole = GLOBALS + 0x1e8;
	int32_t near;

	c = (struct code){.start = 0x7f0000000000};
	assert_int_equal(owns(&c), JIT_LIKELY);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(owns(&c), JIT_LIKELY);
		memcpy(c.bytes + 100 + 50 * i, &whole, sizeof(whole));
	}
	assert_int_equal(owns(&c), JIT_CERTAIN);
	/* Code within 2 GiB of the globals refers to them by distance. */
	c = (struct code){.start = GLOBALS - 0x100000};
	for (size_t i = 0; i < 4; i++) {
		near = (int32_t)(whole - (c.start + 100 + 50 * i + sizeof(near)));
		memcpy(c.bytes + 100 + 50 * i, &near, sizeof(near));
	}
	assert_int_equal(owns(&c), JIT_CERTAIN);
	/* Memory that cannot be read. */
	c.start = 0;
	assert_int_equal(php_owns(&(struct php_process){.globals = GLOBALS},
				  &(struct target_memory){.read = read_code, .arg = &c}, 0x1000000,
				  0x1001000),
			 JIT_NONE);
}

/* DJBX33A, with the highest bit set. */
static void the_hash_is_phps(void **unused)
{
	assert_int_equal(php_hash("", 0), 1ULL << 63 | 5381);
	assert_int_equal(php_hash("a", 1), 1ULL << 63 | (5381 * 33 + 'a'));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_stripped_file_tells_all),
	    cmocka_unit_test(a_frame_pointer_needs_no_guess),
	    cmocka_unit_test(what_is_not_known_is_refused_with_a_reason),
	    cmocka_unit_test(other_files_are_none),
	    cmocka_unit_test(compiled_code_is_known_by_the_globals_that_it_uses),
	    cmocka_unit_test(the_hash_is_phps),
	};

	return cmocka_run_group_tests_name("php_probe", tests, NULL, NULL);
}
