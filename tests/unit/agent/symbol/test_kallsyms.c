// SPDX-License-Identifier: Apache-2.0
/* kallsyms.h and kernel.h, against this kernel's own file and against made ones. */
#include "support.h"

#include <sys/mman.h>

#include "agent/symbol/kernel.h"

static struct kallsyms *read_text(const char *text)
{
	_cleanup_close_ int fd = memfd_create("kallsyms", MFD_CLOEXEC);
	struct kallsyms *k = NULL;

	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(kallsyms_read(fd, &k, NULL), 0);
	return k;
}

static const char *name_at(const struct kallsyms *k, uint64_t address)
{
	struct kallsyms_symbol s;

	return kallsyms_find(k, address, &s) ? s.name : "-";
}

struct line {
	uint64_t address;
	char type, name[512], module[128];
};

static int by_address(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return x->address < y->address ? -1 : x->address > y->address;
}

/* Functions at ADDRESS: is NAME of MODULE among them? */
static bool is_listed(const struct line *lines, size_t n, uint64_t address,
		      const struct kallsyms_symbol *s)
{
	struct line key = {.address = address};
	const struct line *l = bsearch(&key, lines, n, sizeof(*lines), by_address);

	while (l && l > lines && l[-1].address == address)
		l--;
	for (; l && l < lines + n && l->address == address; l++) {
		if (streq(l->name, s->name) && streq(l->module, s->module))
			return true;
	}
	return false;
}

static void every_function_of_this_kernel_is_found(void **state)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/kallsyms", "re");
	_cleanup_close_ int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	_cleanup_(kallsyms_freep) struct kallsyms *k = NULL;
	_cleanup_free_ struct line *lines = NULL;
	struct kallsyms_symbol s;
	size_t n = 0, cap = 0;
	char text[1024];

	assert_int_equal(kallsyms_read(fd, &k, NULL), 0);
	while (fgets(text, sizeof(text), f)) {
		struct line l = {0};

		if (sscanf(text, "%lx %c %511s [%127[^]]]", &l.address, &l.type, l.name, l.module) <
			3 ||
		    !strchr("tTwW", l.type) || has_prefix(l.name, "__pfx_") ||
		    has_prefix(l.name, "__cfi_"))
			continue;
		/* BPF programs come and go between the two readings. */
		if (streq(l.module, "bpf"))
			continue;
		assert_int_equal(grow_array((void **)&lines, &cap, n + 1, sizeof(l), 1 << 20), 0);
		lines[n++] = l;
	}
	if (!n || !lines[n - 1].address) {
		assert_true(kallsyms_restricted(k));
		skip();
	}
	qsort(lines, n, sizeof(*lines), by_address);
	for (size_t i = 0; i < n; i++) {
		assert_true(kallsyms_find(k, lines[i].address, &s));
		assert_true(s.start == lines[i].address);
		if (!is_listed(lines, n, lines[i].address, &s))
			fail_msg("%s is not at %lx", s.name, lines[i].address);
		/* Its last byte still is the same function. */
		assert_true(s.end > s.start);
		assert_string_equal(name_at(k, s.end - 1), s.name);
	}
	printf("           %zu functions, %zu bytes\n", kallsyms_count(k), kallsyms_bytes(k));
	assert_true(kallsyms_bytes(k) < 4 << 20);
}

static void the_best_name_at_an_address_wins(void **state)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k =
	    read_text("ffffffff81000000 t a_local\n"
		      "ffffffff81000000 T __a_internal\n"
		      "ffffffff81000000 T a_global\n"
		      "ffffffff81000000 W a\n"
		      "ffffffff81000010 t __pfx_b\n"
		      "ffffffff81000020 t b\n"
		      "ffffffff81000030 T _etext\n"
		      "ffffffff81000030 R __start_rodata\n");

	assert_string_equal(name_at(k, 0xffffffff81000000), "a_global");
	/* The padding symbol is none: what lies before b counts as a's. */
	assert_string_equal(name_at(k, 0xffffffff81000010), "a_global");
	assert_string_equal(name_at(k, 0xffffffff8100001f), "a_global");
	assert_string_equal(name_at(k, 0xffffffff81000020), "b");
	assert_int_equal(kallsyms_count(k), 3);
}

static void what_lies_after_the_text_is_not_its_last_function(void **state)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k =
	    read_text("ffffffff81000000 T f\n"
		      "ffffffff81000100 R data\n"
		      "ffffffffc0000000 t m\t[mod]\n"
		      "ffffffffc0001000 t bpf_prog_6deef7357e7b4530_f\t[bpf]\n");
	struct kallsyms_symbol s;

	assert_string_equal(name_at(k, 0xffffffff810000ff), "f");
	assert_string_equal(name_at(k, 0xffffffff81000100), "-");
	assert_string_equal(name_at(k, 0xffffffff80ffffff), "-");
	assert_true(kallsyms_find(k, 0xffffffffc0000fff, &s));
	assert_string_equal(s.name, "m");
	assert_string_equal(s.module, "mod");
	assert_true(kallsyms_find(k, 0xffffffffc0001004, &s));
	assert_string_equal(s.name, "bpf_prog_6deef7357e7b4530_f");
	assert_string_equal(s.module, "bpf");
	assert_string_equal(name_at(k, 0xffffffffc0001000 + KALLSYMS_SPAN_MAX), "-");
}

static void hidden_addresses_are_told_from_an_empty_file(void **state)
{
	_cleanup_(kallsyms_freep) struct kallsyms *hidden =
	    read_text("0000000000000000 T _text\n0000000000000000 t f\t[m]\n");
	_cleanup_(kallsyms_freep) struct kallsyms *empty = read_text("");

	assert_true(kallsyms_restricted(hidden));
	assert_int_equal(kallsyms_count(hidden), 0);
	assert_string_equal(name_at(hidden, 0), "-");
	assert_false(kallsyms_restricted(empty));
	assert_string_equal(name_at(empty, 0xffffffff81000000), "-");
}

static void odd_lines_are_skipped(void **state)
{
	_cleanup_free_ char *long_line = malloc(200 << 10);
	_cleanup_(kallsyms_freep) struct kallsyms *k = NULL;

	memset(long_line, 'x', 150 << 10);
	strcpy(long_line + (150 << 10), "\nffffffff81000000 T after\n"
					"ffffffff8100000g T no\n\nffffffff81000010\n"
					"ffffffff81000020 T \nffffffff81000030  \n"
					"123456789abcdef01 T overflow\nffffffff81000040 T cut");
	k = read_text(long_line);
	assert_int_equal(kallsyms_count(k), 1);
	assert_string_equal(name_at(k, 0xffffffff81000000), "after");
}

static void functions_of_all_ends_of_the_address_space_fit(void **state)
{
	_cleanup_(kallsyms_freep) struct kallsyms *k = read_text("0000000000000010 T low\n"
								 "ffff800000000000 T arm\n"
								 "ffffffffffff0000 T high\n");

	assert_string_equal(name_at(k, 0x20), "low");
	assert_string_equal(name_at(k, 0xffff800000000001), "arm");
	assert_string_equal(name_at(k, 0xffffffffffff0001), "high");
}

/* ---- kept fresh -------------------------------------------------------------------------------
 */

static void a_miss_reads_the_file_again_but_not_always(void **state)
{
	_cleanup_(kernel_symbols_freep) struct kernel_symbols *k = NULL;
	const char *path = in_scratch("kallsyms");
	struct kallsyms_symbol first, s;

	write_file(path, "ffffffff81000000 T f\nffffffff81000100 R d\n");
	assert_int_equal(kernel_symbols_new(path, &k), 0);
	assert_true(kernel_symbols_find(k, 0xffffffff81000000, 1000, &first));
	write_file(path, "ffffffff81000000 T f\nffffffff81000100 R d\nffffffffc0000000 t g\t[m]\n");
	/* Too early. */
	assert_false(kernel_symbols_find(k, 0xffffffffc0000000, 2000, &s));
	assert_true(kernel_symbols_find(k, 0xffffffffc0000000, 20000, &s));
	assert_string_equal(s.name, "g");
	/* The first result is still to be read before the trim. */
	assert_string_equal(first.name, "f");
	kernel_symbols_trim(k);
	/* Two misses in vain: the second wait is longer. */
	assert_false(kernel_symbols_find(k, 0xffffffffd0000000, 30000, &s));
	kernel_symbols_trim(k);
	write_file(path, "ffffffffd0000000 t h\t[n]\n");
	assert_false(kernel_symbols_find(k, 0xffffffffd0000000, 36000, &s));
	assert_true(kernel_symbols_find(k, 0xffffffffd0000000, 41000, &s));
	assert_string_equal(s.name, "h");
}

static void memory_of_modules_that_is_used_again_gets_its_new_name(void **state)
{
	_cleanup_(kernel_symbols_freep) struct kernel_symbols *k = NULL;
	const char *path = in_scratch("kallsyms2");
	struct kallsyms_symbol s;

	write_file(path, "ffffffffc0000000 t bpf_prog_1_old\t[bpf]\n");
	assert_int_equal(kernel_symbols_new(path, &k), 0);
	assert_true(kernel_symbols_find(k, 0xffffffffc0000000, 0, &s));
	write_file(path, "ffffffffc0000000 t bpf_prog_2_new\t[bpf]\n");
	assert_true(kernel_symbols_find(k, 0xffffffffc0000000, 100000, &s));
	assert_string_equal(s.name, "bpf_prog_1_old");
	kernel_symbols_trim(k);
	assert_true(kernel_symbols_find(k, 0xffffffffc0000000, 700000, &s));
	assert_string_equal(s.name, "bpf_prog_2_new");
}

static void a_missing_file_is_no_failure(void **state)
{
	_cleanup_(kernel_symbols_freep) struct kernel_symbols *k = NULL;
	struct kallsyms_symbol s;

	assert_int_equal(kernel_symbols_new("/nonexistent/kallsyms", &k), 0);
	assert_false(kernel_symbols_find(k, 0xffffffff81000000, 0, &s));
	assert_false(kernel_symbols_find(k, 0xffffffff81000000, 1000000, &s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(every_function_of_this_kernel_is_found),
	    cmocka_unit_test(the_best_name_at_an_address_wins),
	    cmocka_unit_test(what_lies_after_the_text_is_not_its_last_function),
	    cmocka_unit_test(hidden_addresses_are_told_from_an_empty_file),
	    cmocka_unit_test(odd_lines_are_skipped),
	    cmocka_unit_test(functions_of_all_ends_of_the_address_space_fit),
	    cmocka_unit_test(a_miss_reads_the_file_again_but_not_always),
	    cmocka_unit_test(memory_of_modules_that_is_used_again_gets_its_new_name),
	    cmocka_unit_test(a_missing_file_is_no_failure),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
