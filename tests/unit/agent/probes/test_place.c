/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where functions begin: of files of this machine, of one that cc makes, and of bytes that make no
 * sense. What was found is compared with what nm says.
 */
#include "lib/base.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "agent/elf/image.h"
#include "agent/probes/place.h"

static const char source[] =
    "__asm__(\".text; .globl once; .type once,@function; once: nop; .size once,1;\"\n"
    "        \".type local,@function; local: nop; .size local,1;\"\n"
    "        \".globl old; .type old,@function; old: nop; .size old,1; .symver old,ver@OLD;\"\n"
    "        \".globl new; .type new,@function; new: nop; .size new,1; .symver new,ver@@NEW;\");\n"
    "int data_word = 1;\n"
    "static int chosen(void) { return 1; }\n"
    "static void *choose(void) { return chosen; }\n"
    "int indirect(void) __attribute__((ifunc(\"choose\")));\n";

static char directory[] = "/tmp/kiln-place-XXXXXX";

static void run(const char *format, ...)
{
	char command[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	if (system(command) != 0)
		fail_msg("%s", command);
}

/* A library in DIRECTORY, and copies without .symtab and with it in .gnu_debugdata. */
static int set_up(void **state)
{
	char path[64];
	FILE *f;

	(void)state;
	if (!mkdtemp(directory))
		return -1;
	snprintf(path, sizeof(path), "%s/a.c", directory);
	f = fopen(path, "we");
	fputs(source, f);
	fclose(f);
	snprintf(path, sizeof(path), "%s/a.map", directory);
	f = fopen(path, "we");
	fputs("OLD { local: local; };\nNEW { } OLD;\n", f);
	fclose(f);
	run("cd %s && cc -shared -fPIC -o a.so a.c -Wl,--version-script=a.map && "
	    "strip -o stripped.so a.so && nm -D a.so > /dev/null",
	    directory);
	run("cd %s && nm a.so | grep ' [tT] ' | awk '{print $3, $1}' > names && "
	    "objcopy --only-keep-debug a.so debug && xz --stdout debug > debug.xz && "
	    "objcopy --add-section .gnu_debugdata=debug.xz stripped.so mini.so",
	    directory);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	run("rm -r %s", directory);
	return 0;
}

static int find(const char *file, const char *name, uint64_t *ret, struct error *err)
{
	char path[64];
	int fd = -1, r;

	snprintf(path, sizeof(path), "%s/%s", directory, file);
	*err = (struct error){0};
	r = probe_place_open(path, name, false, &fd, ret, err);
	if (!r) {
		assert_true(fd >= 0);
		close(fd);
	}
	return r;
}

/* The address that nm tells, as an offset in the file. */
static uint64_t told(const char *name)
{
	_cleanup_(image_unrefp) struct image *image = NULL;
	unsigned long long address = 0;
	char path[64], word[128];
	struct error err;
	FILE *f;

	snprintf(path, sizeof(path), "%s/names", directory);
	f = fopen(path, "re");
	while (fscanf(f, "%127s %llx", word, &address) == 2 && !streq(word, name))
		address = 0;
	fclose(f);
	assert_true(address);
	snprintf(path, sizeof(path), "%s/a.so", directory);
	assert_int_equal(image_open(open(path, O_RDONLY | O_CLOEXEC), path, &image, &err), 0);
	for (size_t i = 0; i < image->n_segments; i++)
		if (address >= image->segments[i].vaddr &&
		    address - image->segments[i].vaddr < image->segments[i].filesz)
			return address - image->segments[i].vaddr + image->segments[i].offset;
	fail_msg("%s is in no segment", name);
	return 0;
}

static void a_function_is_found_in_each_kind_of_table(void **state)
{
	uint64_t offset = 0;
	struct error err;

	(void)state;
	assert_int_equal(find("stripped.so", "once", &offset, &err), 0); /* .dynsym */
	assert_true(offset == told("once"));
	assert_int_equal(find("a.so", "local", &offset, &err), 0); /* .symtab */
	assert_true(offset == told("local"));
	assert_int_equal(find("mini.so", "local", &offset, &err), 0); /* .gnu_debugdata */
	assert_true(offset == told("local"));
	assert_int_equal(find("stripped.so", "local", &offset, &err), -ENOENT);
}

static void of_versions_the_default_one_is_meant(void **state)
{
	uint64_t offset = 0;
	struct error err;

	(void)state;
	assert_int_equal(find("stripped.so", "ver", &offset, &err), 0);
	assert_true(offset == told("new"));
	assert_int_equal(find("a.so", "ver", &offset, &err), 0);
	assert_true(offset == told("new"));
}

static void what_is_no_place_for_a_probe_says_why(void **state)
{
	uint64_t offset = 77;
	struct error err;

	(void)state;
	assert_int_equal(find("a.so", "indirect", &offset, &err), -ENOTSUP);
	assert_non_null(strstr(err.message, "indirect is an indirect function"));
	assert_int_equal(find("a.so", "data_word", &offset, &err), -ENOENT);
	assert_int_equal(find("a.so", "onc", &offset, &err), -ENOENT);
	assert_int_equal(find("a.so", "oncee", &offset, &err), -ENOENT);
	assert_int_equal(find("a.so", "", &offset, &err), -ENOENT);
	assert_int_equal(find("missing", "once", &offset, &err), -ENOENT);
	assert_non_null(strstr(err.message, "the path is one of the host's"));
	assert_true(find("a.c", "once", &offset, &err) < 0);
	assert_int_equal(offset, 77);
}

static void several_functions_of_a_name_are_no_place(void **state)
{
	uint64_t offset = 77;
	struct error err;

	(void)state;
	run("cd %s && for f in x y; do echo \"static int twin(void) { return 1; } int $f(void) "
	    "{ return twin(); }\" > $f.c; done && cc -O0 -shared -fPIC -o twins.so x.c y.c",
	    directory);
	assert_int_equal(find("twins.so", "twin", &offset, &err), -ENOTUNIQ);
	assert_non_null(strstr(err.message, "several functions are called twin"));
	assert_int_equal(find("twins.so", "x", &offset, &err), 0);
}

/* Every byte of the symbol tables in turn: whatever is found lies in code. */
static void damaged_tables_are_survived(void **state)
{
	char path[64];
	static uint8_t bytes[1 << 20], changed[1 << 20];
	size_t size;
	FILE *f;

	(void)state;
	snprintf(path, sizeof(path), "%s/a.so", directory);
	f = fopen(path, "re");
	size = fread(bytes, 1, sizeof(bytes), f);
	fclose(f);
	for (size_t i = 0; i < size; i += 1 + i % 3) {
		_cleanup_(image_unrefp) struct image *image = NULL;
		uint64_t offset = 0;

		memcpy(changed, bytes, size);
		changed[i] ^= 0xff;
		if (image_from_memory(changed, size, "a.so", &image, NULL) < 0)
			continue;
		if (probe_place_find(image, "once", &offset, NULL) == 0)
			assert_true(offset < size);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_function_is_found_in_each_kind_of_table),
	    cmocka_unit_test(of_versions_the_default_one_is_meant),
	    cmocka_unit_test(what_is_no_place_for_a_probe_says_why),
	    cmocka_unit_test(several_functions_of_a_name_are_no_place),
	    cmocka_unit_test(damaged_tables_are_survived),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
