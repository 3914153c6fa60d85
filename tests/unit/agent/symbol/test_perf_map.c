// SPDX-License-Identifier: Apache-2.0
/* perf_map.h: overlaps against a plain model, growth of a real file, files that are not to be
 * trusted. */
#include "support.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/symbol/foreign.h"
#include "agent/symbol/perf_map.h"

static const char *name_at(const struct perf_map *m, uint64_t address)
{
	struct perf_map_symbol s;

	return perf_map_find(m, address, &s) ? s.name : "-";
}

static struct perf_map *from_text(const char *text)
{
	struct perf_map *m = NULL;

	assert_int_equal(perf_map_new(&m), 0);
	assert_int_equal(perf_map_feed(m, text, strlen(text)), 0);
	assert_int_equal(perf_map_settle(m), 0);
	return m;
}

static void lines_are_read_as_compilers_write_them(void **state)
{
	_cleanup_(perf_map_freep) struct perf_map *m =
	    from_text("3ef414c0 398 LazyCompile:*fib /srv/my app.js:12\n"
		      "0x7f00aa000000 0x20 with::prefix\n"
		      "7F00AA000040 10 Lcom/example/Main;::run\n"
		      "\n\nnonsense\n50 zz bad\n60 0 empty\n"
		      "fffffffffffffff0 20 wraps\n12345678901234567 1 long\n70 8 \n80 8\n90 8 cut");

	assert_string_equal(name_at(m, 0x3ef414c0), "LazyCompile:*fib /srv/my app.js:12");
	assert_string_equal(name_at(m, 0x3ef414c0 + 0x397), "LazyCompile:*fib /srv/my app.js:12");
	assert_string_equal(name_at(m, 0x3ef414c0 + 0x398), "-");
	assert_string_equal(name_at(m, 0x3ef414bf), "-");
	assert_string_equal(name_at(m, 0x7f00aa00001f), "with::prefix");
	assert_string_equal(name_at(m, 0x7f00aa000040), "Lcom/example/Main;::run");
	assert_int_equal(perf_map_count(m), 3);
}

static void the_last_line_wins_as_in_a_plain_model(void **state)
{
	enum { SPACE = 2000, LINES = 3000 };
	static unsigned int owner[SPACE + 100];
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	uint64_t random = 42;

	assert_int_equal(perf_map_new(&m), 0);
	for (unsigned int i = 1; i <= LINES; i++) {
		unsigned int start, size;
		char line[64];

		random = mix64(random + i);
		start = random % SPACE;
		size = 1 + (random >> 32) % 90;
		for (unsigned int b = start; b < start + size && b < ARRAY_SIZE(owner); b++)
			owner[b] = i;
		snprintf(line, sizeof(line), "%x %x f%u\n", start, size, i);
		assert_int_equal(perf_map_feed(m, line, strlen(line)), 0);
		if (i % 7 == 0)
			assert_int_equal(perf_map_settle(m), 0);
	}
	assert_int_equal(perf_map_settle(m), 0);
	for (unsigned int b = 0; b < ARRAY_SIZE(owner); b++) {
		char want[16] = "-";

		if (owner[b])
			snprintf(want, sizeof(want), "f%u", owner[b]);
		assert_string_equal(name_at(m, b), want);
	}
	/* Overwritten names are freed: each live entry takes a few bytes. */
	assert_true(perf_map_count(m) < SPACE);
	assert_true(perf_map_bytes(m) < 128 << 10);
}

static void a_growing_file_is_read_on(void **state)
{
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	const char *path = in_scratch("grow.map");
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(perf_map_new(&m), 0);
	assert_int_equal(write(fd, "1000 10 a\n2000 10 par", 21), 21);
	assert_int_equal(perf_map_update(m, fd), 0);
	assert_string_equal(name_at(m, 0x1000), "a");
	assert_string_equal(name_at(m, 0x2000), "-"); /* not finished yet */
	assert_int_equal(write(fd, "tial\n1008 10 b\n", 15), 15);
	assert_int_equal(perf_map_update(m, fd), 0);
	assert_string_equal(name_at(m, 0x2000), "partial");
	assert_string_equal(name_at(m, 0x1007), "a");
	assert_string_equal(name_at(m, 0x1008), "b");
	/* The file was truncated and written anew: the old entries are gone. */
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(pwrite(fd, "3000 10 c\n", 10, 0), 10);
	assert_int_equal(perf_map_update(m, fd), 0);
	assert_string_equal(name_at(m, 0x1000), "-");
	assert_string_equal(name_at(m, 0x3000), "c");
}

static void another_file_replaces_the_first(void **state)
{
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	_cleanup_close_ int a = -1, b = -1;

	write_file(in_scratch("a.map"), "1000 10 a\n");
	write_file(in_scratch("b.map"), "2000 10 b\n3000 10 bb\n");
	a = open(in_scratch("a.map"), O_RDONLY | O_CLOEXEC);
	b = open(in_scratch("b.map"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(perf_map_new(&m), 0);
	assert_int_equal(perf_map_update(m, a), 0);
	assert_int_equal(perf_map_update(m, b), 0);
	assert_string_equal(name_at(m, 0x1000), "-");
	assert_string_equal(name_at(m, 0x2000), "b");
}

static void a_huge_file_is_held_to_the_caps(void **state)
{
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	const char *path = in_scratch("huge.map");
	_cleanup_fclose_ FILE *f = fopen(path, "w+e");
	struct stat st;

	for (unsigned int i = 0; i < 400000; i++)
		fprintf(f, "%x 10 function_with_a_long_name_to_fill_the_blob_%u\n", 0x1000 + i * 32,
			i);
	fflush(f);
	assert_int_equal(perf_map_new(&m), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(perf_map_update(m, fileno(f)), 0);
	assert_true(perf_map_count(m) <= 2 * PERF_MAP_ENTRIES_MAX);
	assert_true(perf_map_bytes(m) < (24 << 20));
	assert_string_equal(name_at(m, 0x1000), "function_with_a_long_name_to_fill_the_blob_0");
	/* One endless line, sparse: skipped, nothing kept. */
	assert_int_equal(ftruncate(fileno(f), 0), 0);
	assert_int_equal(perf_map_update(m, fileno(f)), 0);
	assert_int_equal(ftruncate(fileno(f), 1LL << 33), 0);
	for (int i = 0; i < 12; i++)
		assert_int_equal(perf_map_update(m, fileno(f)), 0);
	assert_int_equal(fstat(fileno(f), &st), 0);
	assert_int_equal(perf_map_count(m), 0);
}

static void churn_of_the_same_code_never_fills_the_map(void **state)
{
	_cleanup_(perf_map_freep) struct perf_map *m = NULL;
	char line[96];

	assert_int_equal(perf_map_new(&m), 0);
	for (unsigned int i = 0; i < 4 * PERF_MAP_ENTRIES_MAX; i++) {
		snprintf(line, sizeof(line), "%x 20 compiled_again_%u\n", 0x1000 + i % 1000 * 32,
			 i);
		assert_int_equal(perf_map_feed(m, line, strlen(line)), 0);
	}
	assert_int_equal(perf_map_settle(m), 0);
	snprintf(line, sizeof(line), "compiled_again_%u", 4 * PERF_MAP_ENTRIES_MAX - 1);
	assert_string_equal(name_at(m, 0x1000 + (4 * PERF_MAP_ENTRIES_MAX - 1) % 1000 * 32), line);
	assert_int_equal(perf_map_count(m), 1000);
}

/* ---- whose file it is -------------------------------------------------------------------------
 */

/* A made /proc with one process: PID 7 here, 3 in its own namespace, of user UID. */
static const char *fake_proc(unsigned int uid)
{
	const char *proc = in_scratch("proc");
	char status[256];

	assert_int_equal(
	    sh("rm -rf '%s' && mkdir -p '%s/7/root/tmp' '%s/7/root/etc'", proc, proc, proc), 0);
	snprintf(status, sizeof(status),
		 "Name:\tx\nUid:\t%u\t%u\t%u\t%u\nNSpid:\t7\t3\nThreads:\t1\n", uid, uid, uid, uid);
	write_file(in_scratch("proc/7/status"), status);
	return proc;
}

static int open_map(const char *proc, pid_t pid)
{
	_cleanup_(foreign_freep) struct foreign *foreign = NULL;

	assert_int_equal(foreign_new(&foreign), 0);
	return perf_map_open(foreign, proc, pid);
}

static int open_and_close(const char *proc)
{
	int fd = open_map(proc, 7);

	if (fd >= 0)
		close(fd);
	return MIN(fd, 0);
}

static void the_map_is_found_by_the_pid_in_its_namespace(void **state)
{
	const char *proc = fake_proc(0), *map = in_scratch("proc/7/root/tmp/perf-3.map");

	assert_int_equal(open_and_close(proc), -ENOENT);
	write_file(in_scratch("proc/7/root/tmp/perf-7.map"), "1000 10 wrong\n");
	assert_int_equal(open_and_close(proc), -ENOENT);
	write_file(map, "1000 10 right\n");
	assert_int_equal(open_and_close(proc), 0);
	assert_int_equal(open_map(proc, 8), -ENOENT);
}

static void files_that_cannot_be_trusted_are_refused(void **state)
{
	const char *proc = fake_proc(1000), *map = in_scratch("proc/7/root/tmp/perf-3.map");

	/* Another user's. */
	write_file(map, "1000 10 f\n");
	assert_int_equal(chown(map, 1001, 1001), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	assert_int_equal(chown(map, 1000, 1000), 0);
	assert_int_equal(open_and_close(proc), 0);
	assert_int_equal(chown(map, 0, 0), 0);
	assert_int_equal(open_and_close(proc), 0);
	/* A second link. */
	assert_int_equal(link(map, in_scratch("proc/7/root/etc/secret")), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	/* Links, in the root and out of it. */
	assert_int_equal(unlink(map), 0);
	assert_int_equal(symlink("/etc/shadow", map), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	assert_int_equal(unlink(map), 0);
	assert_int_equal(symlink("../etc/secret", map), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	/* A FIFO without a writer would block; a directory; a device. */
	assert_int_equal(unlink(map), 0);
	assert_int_equal(mkfifo(map, 0600), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	assert_int_equal(unlink(map), 0);
	assert_int_equal(mkdir(map, 0700), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	assert_int_equal(rmdir(map), 0);
	assert_int_equal(mknod(map, S_IFCHR | 0600, 5 << 8), 0);
	assert_int_equal(open_and_close(proc), -EPERM);
	/* tmp itself leads out of the root: to our own /tmp, where such a file exists. */
	write_file("/tmp/perf-3.map", "1000 10 host\n");
	assert_int_equal(sh("rm -rf '%s/7/root/tmp' && ln -s /tmp '%s/7/root/tmp'", proc, proc), 0);
	assert_true(open_and_close(proc) < 0);
	assert_int_equal(
	    sh("rm '%s/7/root/tmp' && ln -s ../../../../../../../../../tmp '%s/7/root/tmp'", proc,
	       proc),
	    0);
	assert_true(open_and_close(proc) < 0);
	assert_int_equal(unlink("/tmp/perf-3.map"), 0);
	/* A link that stays inside is followed. */
	assert_int_equal(sh("cd '%s/7/root' && rm tmp && mkdir -p var/tmp && ln -s /var/tmp tmp && "
			    "echo '1000 10 f' > var/tmp/perf-3.map",
			    proc),
			 0);
	assert_int_equal(open_and_close(proc), 0);
}

static void a_status_file_without_ids_is_refused(void **state)
{
	const char *proc = fake_proc(0);

	write_file(in_scratch("proc/7/status"), "Name:\tx\n");
	assert_int_equal(open_and_close(proc), -EBADMSG);
	write_file(in_scratch("proc/7/status"), "Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\tx\n");
	assert_int_equal(open_and_close(proc), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(lines_are_read_as_compilers_write_them),
	    cmocka_unit_test(the_last_line_wins_as_in_a_plain_model),
	    cmocka_unit_test(a_growing_file_is_read_on),
	    cmocka_unit_test(another_file_replaces_the_first),
	    cmocka_unit_test(a_huge_file_is_held_to_the_caps),
	    cmocka_unit_test(churn_of_the_same_code_never_fills_the_map),
	    cmocka_unit_test(the_map_is_found_by_the_pid_in_its_namespace),
	    cmocka_unit_test(files_that_cannot_be_trusted_are_refused),
	    cmocka_unit_test(a_status_file_without_ids_is_refused),
	};

	return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
