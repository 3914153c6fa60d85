/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/maps: each kind of line, bad lines, caps, and real processes. */
#include "cm.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "agent/process/maps.h"
#include "lib/buf.h"
#include "fail_alloc.h"
#include "victim.h"

static void parse(const char *text, struct maps *ret)
{
	/* On the heap without a NUL, so that ASan sees a read past the end. */
	size_t len = strlen(text);
	char *copy = malloc(len ? len : 1);

	memcpy(copy, text, len);
	assert_int_equal(maps_parse(copy, len, ret), 0);
	free(copy);
}

static void all_fields_of_an_executable_line_are_read(void **state)
{
	struct maps m;

	parse("55d1c0a00000-55d1c0a45000 r--p 00000000 fd:01 1835421 /usr/bin/bash\n"
	      "55d1c0a45000-55d1c0b00000 r-xp 0002f000 fd:1a 1835421                  "
	      "/usr/bin/bash\n",
	      &m);
	assert_int_equal(m.n, 1);
	assert_int_equal(m.entries[0].start, 0x55d1c0a45000);
	assert_int_equal(m.entries[0].end, 0x55d1c0b00000);
	assert_int_equal(m.entries[0].offset, 0x2f000);
	assert_int_equal(m.entries[0].dev_major, 0xfd);
	assert_int_equal(m.entries[0].dev_minor, 0x1a);
	assert_int_equal(m.entries[0].inode, 1835421);
	assert_int_equal(m.entries[0].kind, MAPPING_FILE);
	assert_false(m.entries[0].deleted);
	assert_string_equal(m.entries[0].path, "/usr/bin/bash");
	assert_int_equal(m.malformed, 0);
	maps_done(&m);
}

static void the_path_tells_the_kind(void **state)
{
	static const struct {
		const char *path, *want;
		enum map_kind kind;
		bool deleted;
	} rows[] = {
	    {"", "", MAPPING_ANON, false},
	    {"/usr/lib/libc.so.6", "/usr/lib/libc.so.6", MAPPING_FILE, false},
	    {"/tmp/a (deleted)", "/tmp/a", MAPPING_FILE, true},
	    {"/tmp/a (deleted) (deleted)", "/tmp/a (deleted)", MAPPING_FILE, true},
	    {"/tmp/with blank", "/tmp/with blank", MAPPING_FILE, false},
	    {"/tmp/new\\012line", "/tmp/new\nline", MAPPING_FILE, false},
	    {"/tmp/back\\slash\\01", "/tmp/back\\slash\\01", MAPPING_FILE, false},
	    {"/tmp/[vdso]", "/tmp/[vdso]", MAPPING_FILE, false},
	    {"/dev/shm/plugin.so", "/dev/shm/plugin.so", MAPPING_FILE, false},
	    {"[vdso]", "[vdso]", MAPPING_VDSO, false},
	    {"[vsyscall]", "[vsyscall]", MAPPING_OTHER, false},
	    {"[uprobes]", "[uprobes]", MAPPING_OTHER, false},
	    {"[heap]", "[heap]", MAPPING_ANON, false},
	    {"[stack]", "[stack]", MAPPING_ANON, false},
	    {"[stack:123]", "[stack:123]", MAPPING_ANON, false},
	    {"[anon:v8]", "[anon:v8]", MAPPING_ANON, false},
	    {"[anon_shmem:jit]", "[anon_shmem:jit]", MAPPING_ANON, false},
	    {"/memfd:doublemapper (deleted)", "/memfd:doublemapper", MAPPING_ANON, true},
	    {"/dev/zero (deleted)", "/dev/zero", MAPPING_ANON, true},
	    {"/SYSV00000000 (deleted)", "/SYSV00000000", MAPPING_ANON, true},
	    {"/anon_hugepage (deleted)", "/anon_hugepage", MAPPING_ANON, true},
	    {" (deleted)", "(deleted)", MAPPING_FILE, false},
	};
	char line[256];
	struct maps m;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		snprintf(line, sizeof(line), "1000-2000 r-xp 00000000 00:01 7 %s\n", rows[i].path);
		parse(line, &m);
		assert_int_equal(m.n, 1);
		assert_string_equal(m.entries[0].path, rows[i].want);
		assert_int_equal(m.entries[0].kind, rows[i].kind);
		assert_int_equal(m.entries[0].deleted, rows[i].deleted);
		maps_done(&m);
	}
}

static void every_permission_with_x_counts_as_executable(void **state)
{
	struct maps m;

	parse("1000-2000 --xp 0 00:00 0 \n2000-3000 rwxs 0 00:00 0\n3000-4000 rw-p 0 00:00 0\n",
	      &m);
	assert_int_equal(m.n, 2);
	assert_int_equal(m.malformed, 0);
	maps_done(&m);
}

static void malformed_lines_are_skipped_and_counted(void **state)
{
	static const char *const bad[] = {
	    "garbage",
	    "-",
	    "1000",
	    "1000-",
	    "1000-2000",
	    "1000-2000 r-x",
	    "1000-2000 r-xp",
	    "1000-2000 r-xp 0",
	    "1000-2000 r-xp 0 00:0",
	    "1000-2000 r-xp 0 00 0 /a",
	    "1000-2000 r-xp 0 00:00 x /a",
	    "2000-1000 r-xp 0 00:00 1 /a",
	    "1000-1000 r-xp 0 00:00 1 /a",
	    "11112222333344445-2000 r-xp 0 00:00 1 /a",
	    "1000-2000 r-xp 0 100000000:00 1 /a",
	    "1000-2000 r-xp 0 00:100000000 1 /a",
	    "1000-2000 r-xp 0 00:00 18446744073709551616 /a",
	    "1000-2000 r-xp 0 00:00 1/a",
	    "1000-2000r-xp 0 00:00 1 /a",
	    "1000-2000 r-xp0 00:00 1 /a",
	    "",
	};
	char text[256];
	struct maps m;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(text, sizeof(text), "%s\n5000-6000 r-xp 0 00:00 1 /good\n", bad[i]);
		parse(text, &m);
		assert_int_equal(m.n, 1);
		assert_string_equal(m.entries[0].path, "/good");
		assert_int_equal(m.malformed, 1);
		maps_done(&m);
	}
}

/* OpenTelemetry's process context, as a named anonymous mapping or a memfd. */
static void a_process_context_is_seen(void **state)
{
	static const struct {
		const char *text;
		bool has_context;
	} rows[] = {
	    {"7f0000000000-7f0000001000 r--p 00000000 00:00 0    [anon:OTEL_CTX]\n", true},
	    {"7f0000000000-7f0000001000 r--s 00000000 00:01 5    /memfd:OTEL_CTX (deleted)\n",
	     true},
	    {"7f0000000000-7f0000001000 r--p 00000000 00:00 0    [anon:OTEL]\n", false},
	    {"7f0000000000-7f0000001000 r--p 00000000 00:00 0\n", false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_(maps_done) struct maps maps;

		parse(rows[i].text, &maps);
		assert_int_equal(maps.has_context, rows[i].has_context);
		assert_int_equal(maps.n, 0);
	}
}

static void the_last_line_needs_no_newline(void **state)
{
	struct maps m;

	parse("1000-2000 r-xp 0 00:00 1 /a", &m);
	assert_int_equal(m.n, 1);
	assert_string_equal(m.entries[0].path, "/a");
	maps_done(&m);
	parse("", &m);
	assert_int_equal(m.n, 0);
	maps_done(&m);
}

static void entries_are_sorted_and_never_overlap(void **state)
{
	struct maps m;

	parse("5000-6000 r-xp 0 00:00 1 /c\n1000-3000 r-xp 0 00:00 1 /a\n"
	      "2000-4000 r-xp 0 00:00 1 /overlaps\n3000-4000 r-xp 0 00:00 1 /b\n"
	      "0-ffffffffffffffff r-xp 0 00:00 1 /first\n",
	      &m);
	assert_int_equal(m.n, 1);
	assert_string_equal(m.entries[0].path, "/first");
	assert_int_equal(m.malformed, 4);
	maps_done(&m);
	parse("5000-6000 r-xp 0 00:00 1 /c\n1000-3000 r-xp 0 00:00 1 /a\n"
	      "2000-4000 r-xp 0 00:00 1 /overlaps\n3000-4000 r-xp 0 00:00 1 /b\n",
	      &m);
	assert_int_equal(m.n, 3);
	assert_string_equal(m.entries[0].path, "/a");
	assert_string_equal(m.entries[1].path, "/b");
	assert_string_equal(m.entries[2].path, "/c");
	assert_int_equal(m.malformed, 1);
	maps_done(&m);
}

static void more_than_the_cap_is_dropped_and_counted(void **state)
{
	struct buf text;
	struct maps m;

	buf_init(&text, 64 << 20);
	for (unsigned int i = 0; i < MAPS_ENTRIES_MAX + 10; i++)
		buf_printf(&text, "%x-%x r-xp 0 00:00 1 /a\n", i * 0x1000, (i + 1) * 0x1000);
	assert_int_equal(buf_error(&text), 0);
	assert_int_equal(maps_parse(text.data, text.len, &m), 0);
	assert_int_equal(m.n, MAPS_ENTRIES_MAX);
	assert_int_equal(m.dropped, 10);
	maps_done(&m);
	buf_done(&text);
}

static void any_failing_allocation_is_survived(void **state)
{
	struct buf text;
	struct maps m = {.n = 77};
	unsigned int n = 0;

	buf_init(&text, 1 << 20);
	for (unsigned int i = 0; i < 40; i++)
		buf_printf(&text, "%x-%x r-xp 0 00:00 1 /a\n", i * 0x1000, (i + 1) * 0x1000);
	for (;;) {
		int r;

		fail_alloc_at(++n);
		r = maps_parse(text.data, text.len, &m);
		if (!fail_alloc_done()) {
			fail_alloc_at(0);
			assert_int_equal(r, 0);
			break;
		}
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(m.n, 77);
	}
	assert_true(n > 40);
	assert_int_equal(m.n, 40);
	maps_done(&m);
	buf_done(&text);
}

static void a_mapping_of_this_process_is_found(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	char *dir = dir_make(), path[256];
	struct victim v;
	struct maps m;
	const struct map_entry *e;
	struct stat st;

	snprintf(path, sizeof(path), "%s/two\nlines", dir);
	assert_int_equal(file_copy("/bin/cat", path), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(victim_start(path, NULL, NULL, &v), 0);
	e = find_mapping(procfd, v.pid, "/two\nlines", &m);
	assert_non_null(e);
	assert_string_equal(e->path, path);
	assert_int_equal(e->inode, st.st_ino);
	assert_int_equal(makedev(e->dev_major, e->dev_minor), st.st_dev);
	assert_int_equal(e->kind, MAPPING_FILE);
	assert_int_equal(m.malformed, 0);
	maps_done(&m);
	assert_int_equal(unlink(path), 0);
	e = find_mapping(procfd, v.pid, "/two\nlines", &m);
	assert_non_null(e);
	assert_true(e->deleted);
	maps_done(&m);
	victim_end(&v);
	dir_remove(dir);
}

/* A victim's own mappings: code in a file, in anonymous memory, and in anonymous memory with a
 * name. */
static int map_code(char *path, size_t size, void *arg)
{
	const int code = PROT_READ | PROT_EXEC;
	void *named = mmap(NULL, 12288, code, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("OTEL_CTX", MFD_CLOEXEC);

	if (named == MAP_FAILED || fd < 0 || ftruncate(fd, 4096) < 0 ||
	    mmap(NULL, 4096, code, MAP_SHARED, fd, 0) == MAP_FAILED ||
	    mmap(NULL, 4096, code, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		return 1;
	/* Without a name where the kernel has no such names. */
	(void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, named, 4096, "a name");
	return 0;
}

static void the_kernel_answers_what_its_text_says(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	char *dir = dir_make(), path[256];
	struct maps read = {0}, asked = {0};
	struct victim v;
	int r;

	snprintf(path, sizeof(path), "%s/two\nlines", dir);
	assert_int_equal(file_copy("/bin/cat", path), 0);
	assert_int_equal(victim_start(path, map_code, NULL, &v), 0);
	for (unsigned int i = 0; i < 2; i++) {
		r = maps_query(procfd, (uint32_t)v.pid, &asked);
		if (r == -ENOTTY)
			break;
		assert_int_equal(r, 0);
		assert_int_equal(maps_read(procfd, (uint32_t)v.pid, &read), 0);
		/* The last one may be [vsyscall], which is no mapping of the process's own. */
		assert_int_equal(asked.n,
				 read.n - (read.entries[read.n - 1].kind == MAPPING_OTHER));
		assert_int_equal(asked.dropped + asked.malformed, 0);
		for (size_t k = 0; k < asked.n; k++) {
			const struct map_entry *a = &asked.entries[k], *b = &read.entries[k];

			assert_int_equal(a->start, b->start);
			assert_int_equal(a->end, b->end);
			assert_int_equal(a->offset, b->offset);
			assert_int_equal(a->inode, b->inode);
			assert_int_equal(a->dev_major, b->dev_major);
			assert_int_equal(a->dev_minor, b->dev_minor);
			assert_int_equal(a->kind, b->kind);
			assert_int_equal(a->deleted, b->deleted);
			assert_string_equal(a->path, b->path);
		}
		maps_done(&asked);
		maps_done(&read);
		if (!i)
			assert_int_equal(unlink(path), 0);
	}
	victim_end(&v);
	dir_remove(dir);
	if (r == -ENOTTY)
		skip(); /* Linux before 6.11 */
}

static void a_process_that_is_gone_is_esrch(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct maps m = {.n = 77};
	pid_t pid = fork();
	siginfo_t info;

	if (pid == 0)
		_exit(0);
	/* A zombie first: it is there, and has no memory. */
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_int_equal(maps_read(procfd, (uint32_t)pid, &m), -ESRCH);
	assert_int_not_equal(maps_query(procfd, (uint32_t)pid, &m), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(maps_read(procfd, (uint32_t)pid, &m), -ESRCH);
	assert_int_equal(maps_query(procfd, (uint32_t)pid, &m), -ESRCH);
	assert_int_equal(m.n, 77);
}

static void a_kernel_thread_is_esrch(void **state)
{
	_cleanup_close_ int procfd = proc_open();
	struct maps m;

	/* 2 is kthreadd, unless this runs in a pid namespace. */
	if (access("/proc/2/comm", R_OK) < 0)
		skip();
	assert_int_equal(maps_read(procfd, 2, &m), -ESRCH);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(all_fields_of_an_executable_line_are_read),
	    cmocka_unit_test(the_path_tells_the_kind),
	    cmocka_unit_test(every_permission_with_x_counts_as_executable),
	    cmocka_unit_test(malformed_lines_are_skipped_and_counted),
	    cmocka_unit_test(a_process_context_is_seen),
	    cmocka_unit_test(the_last_line_needs_no_newline),
	    cmocka_unit_test(entries_are_sorted_and_never_overlap),
	    cmocka_unit_test(more_than_the_cap_is_dropped_and_counted),
	    cmocka_unit_test(any_failing_allocation_is_survived),
	    cmocka_unit_test(a_mapping_of_this_process_is_found),
	    cmocka_unit_test(the_kernel_answers_what_its_text_says),
	    cmocka_unit_test(a_process_that_is_gone_is_esrch),
	    cmocka_unit_test(a_kernel_thread_is_esrch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
