// SPDX-License-Identifier: Apache-2.0
/*
 * Symbols of many containers: files of equal content share a table, whatever their inode; no
 * container's file, and no debug file in its root, puts names into the frames of others.
 */
#include "support.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "agent/elf/content.h"
#include "agent/process/procfs.h"
#include "agent/symbol/symbolizer.h"
#include "lib/metrics.h"

/* More than the blocks at the head and tail of a file that the semantic conventions hash. */
static const char pad[8193];

static struct symbolizer *make(void)
{
	struct symbolizer_options options = {
	    .max_table_bytes = 16 << 20,
	    .max_cached_frames = 65536,
	    .debug_root = "/usr/lib/debug",
	    .proc = "/proc",
	    .kallsyms = "/proc/kallsyms",
	};
	struct symbolizer *s = NULL;

	assert_int_equal(symbolizer_new(&options, &s, NULL), 0);
	return s;
}

static void symbolizer_freep(struct symbolizer **s)
{
	symbolizer_free(*s);
}

static uint64_t address_of(const char *name)
{
	char *line = sh_output("nm '%s/libk.so' | grep ' %s$'", scratch, name);
	unsigned long long address = 0;

	if (!line || sscanf(line, "%llx", &address) != 1)
		fail_msg("no %s", name);
	free(line);
	return address;
}

static int setup(void **state)
{
	if (scratch_setup(state) < 0)
		return -1;
	write_file(
	    in_scratch("k.c"),
	    "static __attribute__((noinline, used)) int hidden(int x) { return x * 3; }\n"
	    "static __attribute__((noinline, used)) int secret(int x) { return x * 5; }\n"
	    "__attribute__((noinline)) int shown(int x) { return hidden(x) ^ secret(x); }\n");
	return sh("cd '%s' && gcc -O1 -shared -fPIC -Wl,--build-id=0xabcdef01 -o libk.so k.c && "
		  "head -c %zu /dev/zero >> libk.so && cp libk.so other.so && "
		  "strip -s -o bare.so libk.so && cp bare.so bare2.so",
		  scratch, sizeof(pad));
}

/* Writes TO over the name FROM (as long) in the file. */
static void rename_symbol(const char *path, const char *from, const char *to)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	_cleanup_(image_unrefp) struct image *image = open_image(path);
	const struct image_section *names = image_section(image, ".strtab");
	const uint8_t *at;

	assert_true(fd >= 0);
	assert_non_null(names);
	at = memmem(image->data + names->offset, names->size, from, strlen(from) + 1);
	assert_non_null(at);
	assert_int_equal(pwrite(fd, to, strlen(to), (off_t)(at - image->data)), strlen(to));
}

static const char *name_of(struct symbolizer *s, struct image *image, const char *root,
			   const char *function)
{
	const struct process_root where = {.path = root};
	struct symbol_result r;

	assert_int_equal(symbolize_image(s, image, root ? &where : NULL, address_of(function), &r),
			 0);
	return r.n ? r.symbols[0].name : "";
}

static void files_of_equal_content_have_one_table(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *a = open_image(in_scratch("libk.so")),
					     *b = open_image(in_scratch("other.so"));
	int64_t before = metric_get(M_SYMBOL_TABLES_BUILT);
	const char *name = name_of(s, a, NULL, "hidden");

	assert_string_equal(name, "hidden");
	assert_ptr_equal(name_of(s, b, NULL, "hidden"), name);
	assert_string_equal(name_of(s, b, NULL, "secret"), "secret");
	assert_int_equal(metric_get(M_SYMBOL_TABLES_BUILT) - before, 1);
}

static void containers_without_debug_files_have_one_table(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *a = open_image(in_scratch("bare.so")),
					     *b = open_image(in_scratch("bare2.so"));
	int64_t before = metric_get(M_SYMBOL_TABLES_BUILT);

	assert_int_equal(sh("cd '%s' && mkdir -p one two", scratch), 0);
	assert_string_equal(name_of(s, a, in_scratch("one"), "shown"), "shown");
	assert_string_equal(name_of(s, b, in_scratch("two"), "shown"), "shown");
	assert_int_equal(metric_get(M_SYMBOL_TABLES_BUILT) - before, 1);
}

/* bad.so has the build id, size, head and tail of libk.so. */
static void a_crafted_file_names_only_its_own_frames(void **state)
{
	_cleanup_(image_unrefp) struct image *good = open_image(in_scratch("libk.so")), *bad = NULL;

	assert_int_equal(sh("cd '%s' && cp libk.so bad.so", scratch), 0);
	rename_symbol(in_scratch("bad.so"), "hidden", "spoilt");
	bad = open_image(in_scratch("bad.so"));
	assert_string_equal(bad->htlhash, good->htlhash);
	for (int first = 0; first < 2; first++) {
		_cleanup_(symbolizer_freep) struct symbolizer *s = make();

		if (first)
			assert_string_equal(name_of(s, bad, NULL, "hidden"), "spoilt");
		assert_string_equal(name_of(s, good, NULL, "hidden"), "hidden");
		assert_string_equal(name_of(s, bad, NULL, "hidden"), "spoilt");
	}
}

static void a_container_s_debug_file_names_only_its_own_frames(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *image = open_image(in_scratch("bare.so"));

	assert_int_equal(
	    sh("cd '%s' && for i in evil good; do mkdir -p $i/usr/lib/debug/.build-id/ab && "
	       "cp libk.so $i/usr/lib/debug/.build-id/ab/cdef01.debug; done; mkdir -p none",
	       scratch),
	    0);
	rename_symbol(in_scratch("evil/usr/lib/debug/.build-id/ab/cdef01.debug"), "hidden",
		      "spoilt");
	assert_string_equal(name_of(s, image, in_scratch("evil"), "hidden"), "spoilt");
	assert_string_equal(name_of(s, image, in_scratch("good"), "hidden"), "hidden");
	assert_string_not_equal(name_of(s, image, in_scratch("none"), "hidden"), "spoilt");
	symbolizer_trim(s);
	assert_string_equal(name_of(s, image, in_scratch("good"), "secret"), "secret");
	assert_string_equal(name_of(s, image, in_scratch("evil"), "hidden"), "spoilt");
}

/* A table for each debug file: none keeps the others once nobody else has the image. */
static void tables_of_one_image_do_not_keep_each_other(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	struct image *image = open_image(in_scratch("bare.so"));
	int fd = image->fd;

	assert_string_equal(name_of(s, image, in_scratch("evil"), "hidden"), "spoilt");
	assert_string_equal(name_of(s, image, in_scratch("good"), "hidden"), "hidden");
	(void)name_of(s, image, in_scratch("none"), "shown");
	symbolizer_trim(s);
	symbolizer_trim(s);
	assert_true(fcntl(fd, F_GETFD) >= 0);
	image_unref(image);
	symbolizer_trim(s);
	assert_true(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
}

static uint64_t own_start_time(void)
{
	_cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	uint64_t ticks;

	assert_int_equal(process_start_ticks(proc, (uint32_t)getpid(), &ticks), 0);
	return ticks * KILN_TICK_NS;
}

/* The pid may belong to another process by now, with other files. */
static void a_process_that_is_gone_has_the_host_s_debug_files(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *image = open_image(in_scratch("bare.so"));
	struct process_root root = {in_scratch("good"), (uint32_t)getpid(), 1};
	struct symbol_result r;

	assert_int_equal(symbolize_image(s, image, &root, address_of("hidden"), &r), 0);
	assert_true(!r.n || !streq(r.symbols[0].name, "hidden"));
	root.start_time = own_start_time();
	assert_int_equal(symbolize_image(s, image, &root, address_of("hidden"), &r), 0);
	assert_string_equal(r.symbols[0].name, "hidden");
}

/*
 * The shared table keeps names in the file of the container that came first, which can change it.
 */
static void a_file_that_is_rewritten_names_no_others(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *first = NULL,
					     *second = open_image(in_scratch("libk.so"));

	assert_int_equal(sh("cd '%s' && cp libk.so first.so", scratch), 0);
	first = open_image(in_scratch("first.so"));
	assert_string_equal(name_of(s, first, NULL, "hidden"), "hidden");
	rename_symbol(in_scratch("first.so"), "secret", "spoilt");
	assert_string_equal(name_of(s, second, NULL, "secret"), "secret");
	/* The rewritten file names its own frames; the others use the same table as before. */
	assert_string_equal(name_of(s, first, NULL, "secret"), "spoilt");
	assert_string_equal(name_of(s, second, NULL, "hidden"), "hidden");
	assert_string_equal(name_of(s, second, NULL, "shown"), "shown");
	symbolizer_trim(s);
	assert_string_equal(name_of(s, first, NULL, "secret"), "spoilt");
	assert_string_equal(name_of(s, second, NULL, "secret"), "secret");
}

/* The file was identified before the change, and its table is built after it. */
static void a_file_that_was_rewritten_before_its_table_was_made_shares_nothing(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *first = NULL,
					     *second = open_image(in_scratch("libk.so"));
	struct image_content content;

	assert_int_equal(sh("cd '%s' && cp libk.so early.so", scratch), 0);
	first = open_image(in_scratch("early.so"));
	assert_int_equal(image_identify(first, &content), 0);
	rename_symbol(in_scratch("early.so"), "secret", "spoilt");
	assert_string_equal(name_of(s, first, NULL, "secret"), "spoilt");
	assert_string_equal(name_of(s, second, NULL, "secret"), "secret");
}

/* chmod changes a time, not a byte. */
static void a_touched_file_keeps_its_table(void **state)
{
	_cleanup_(symbolizer_freep) struct symbolizer *s = make();
	_cleanup_(image_unrefp) struct image *image = open_image(in_scratch("other.so"));
	int64_t before = metric_get(M_SYMBOL_TABLES_BUILT);

	assert_string_equal(name_of(s, image, NULL, "hidden"), "hidden");
	assert_int_equal(chmod(in_scratch("other.so"), 0600), 0);
	assert_string_equal(name_of(s, image, NULL, "secret"), "secret");
	assert_int_equal(metric_get(M_SYMBOL_TABLES_BUILT) - before, 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(files_of_equal_content_have_one_table),
	    cmocka_unit_test(containers_without_debug_files_have_one_table),
	    cmocka_unit_test(a_crafted_file_names_only_its_own_frames),
	    cmocka_unit_test(a_container_s_debug_file_names_only_its_own_frames),
	    cmocka_unit_test(tables_of_one_image_do_not_keep_each_other),
	    cmocka_unit_test(a_process_that_is_gone_has_the_host_s_debug_files),
	    cmocka_unit_test(a_file_that_is_rewritten_names_no_others),
	    cmocka_unit_test(a_file_that_was_rewritten_before_its_table_was_made_shares_nothing),
	    cmocka_unit_test(a_touched_file_keeps_its_table),
	};

	return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
