/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on disk: order, the cap, what a crash leaves, and bytes that rot. */
#include "agent/export/spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/kiln-spool-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	char path[400];

	while (d && (entry = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	return rmdir(dir);
}

static void path_of(uint64_t seq, char ret[128])
{
	snprintf(ret, 128, "%s/%016llx.seg", dir, (unsigned long long)seq);
}

static struct spool *open_spool(uint64_t max, struct spool_loss *loss)
{
	struct spool *s = NULL;
	struct error err = {0};

	assert_int_equal(spool_open(dir, max, &s, loss, &err), 0);
	return s;
}

static int put(struct spool *s, uint64_t seq, const char *text, struct spool_loss *loss)
{
	struct payload p = {.data = (uint8_t *)text,
			    .len = strlen(text),
			    .samples = (int64_t)seq * 10,
			    .encoding = PAYLOAD_GZIP};

	return spool_put(s, seq, &p, loss);
}

static void expect(struct spool *s, uint64_t after, uint64_t want_seq, const char *want)
{
	struct spool_loss loss = {0};
	struct payload p;
	uint64_t seq;

	assert_int_equal(spool_next(s, after, &seq, &p, &loss), 0);
	assert_int_equal(seq, want_seq);
	assert_int_equal(p.len, strlen(want));
	assert_memory_equal(p.data, want, p.len);
	assert_int_equal(p.samples, (int64_t)want_seq * 10);
	assert_int_equal(p.encoding, PAYLOAD_GZIP);
	assert_int_equal(loss.corrupt, 0);
	payload_done(&p);
}

static void expect_end(struct spool *s, uint64_t after)
{
	struct spool_loss loss = {0};
	struct payload p;
	uint64_t seq;

	assert_int_equal(spool_next(s, after, &seq, &p, &loss), -ENOENT);
}

static void test_what_is_put_comes_back_in_order_after_a_restart(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(1 << 20, &loss);

	assert_int_equal(put(s, 7, "seven", &loss), 0);
	assert_int_equal(put(s, 0x100000000, "large", &loss), 0);
	assert_int_equal(put(s, 3, "three", &loss),
			 0); /* out of order, as a stopping agent writes them */
	assert_int_equal(put(s, 7, "again", &loss), -EEXIST);
	spool_free(s);

	s = open_spool(1 << 20, &loss);
	assert_int_equal(spool_count(s), 3);
	assert_int_equal(spool_last(s), 0x100000000);
	assert_int_equal(spool_bytes(s), 15 + 3 * SPOOL_HEADER_BYTES);
	assert_int_equal(spool_count_after(s, 3), 2);
	expect(s, 0, 3, "three");
	expect(s, 3, 7, "seven");
	expect(s, 7, 0x100000000, "large");
	expect_end(s, 0x100000000);
	/* Reading a request does not remove it; only delivery does. */
	assert_int_equal(spool_count(s), 3);
	spool_remove(s, 7);
	spool_remove(s, 7);
	assert_false(spool_keep(s, 7));
	assert_true(spool_keep(s, 3));
	spool_free(s);

	s = open_spool(1 << 20, &loss);
	expect(s, 3, 0x100000000, "large");
	assert_int_equal(loss.corrupt + loss.requests, 0);
	spool_free(s);
}

static void test_the_cap_drops_the_oldest_and_counts_them(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(3 * (SPOOL_HEADER_BYTES + 4), &loss);
	struct payload large = {.data = (uint8_t *)dir, .len = 400};
	uint64_t i;

	for (i = 1; i <= 5; i++)
		assert_int_equal(put(s, i, "four", &loss), 0);
	assert_int_equal(loss.requests, 2);
	assert_int_equal(loss.samples, 10 + 20);
	assert_true(spool_bytes(s) <= 3 * (SPOOL_HEADER_BYTES + 4));
	expect(s, 0, 3, "four");
	/* The reader holds request 3 in memory: removing it from disk to make room is no loss. */
	assert_int_equal(put(s, 6, "four", &loss), 0);
	assert_int_equal(loss.requests, 2);
	assert_int_equal(put(s, 7, "four", &loss), 0);
	assert_int_equal(loss.requests, 3);
	assert_int_equal(spool_put(s, 8, &large, &loss), -EFBIG);
	assert_int_equal(spool_count(s), 3);
	spool_free(s);

	s = open_spool(SPOOL_HEADER_BYTES + 4, &loss); /* the user made the cap smaller */
	assert_int_equal(spool_count(s), 1);
	expect(s, 0, 7, "four");
	spool_free(s);
}

static void test_one_user_at_a_time(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(1000, &loss), *other = NULL;
	struct error err;

	assert_int_equal(spool_open(dir, 1000, &other, &loss, &err), -EBUSY);
	assert_null(other);
	assert_non_null(strstr(err.message, dir));
	spool_free(s);
	spool_free(open_spool(1000, &loss));
}

/*
 * Writes a segment, lets SPOIL damage the file, and asserts that it is removed and counted, and
 * that its neighbours are whole.
 */
static void spoiled(void (*spoil)(const char *path, size_t at), size_t at, bool while_open)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(1 << 20, &loss);
	char path[128];

	assert_int_equal(put(s, 1, "first", &loss), 0);
	assert_int_equal(put(s, 2, "second", &loss), 0);
	assert_int_equal(put(s, 3, "third", &loss), 0);
	path_of(2, path);
	if (!while_open)
		s = spool_free(s);
	spoil(path, at);
	if (!s)
		s = open_spool(1 << 20, &loss);
	expect(s, 0, 1, "first");
	{
		struct payload p;
		uint64_t seq;

		assert_int_equal(spool_next(s, 1, &seq, &p, &loss), 0);
		assert_int_equal(seq, 3);
		assert_memory_equal(p.data, "third", 5);
		payload_done(&p);
	}
	assert_int_equal(loss.corrupt, 1);
	assert_int_equal(spool_count(s), 2);
	assert_int_not_equal(access(path, F_OK), 0);
	spool_remove(s, 1);
	spool_remove(s, 3);
	spool_free(s);
}

static void flip(const char *path, size_t at)
{
	_cleanup_close_ int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x10;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
}

static void cut(const char *path, size_t at)
{
	assert_int_equal(truncate(path, (off_t)at), 0);
}

static void append(const char *path, size_t at)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_APPEND);

	assert_int_equal(write(fd, "x", 1), 1);
}

static void replace_by_directory(const char *path, size_t at)
{
	unlink(path);
	assert_int_equal(mkdir(path, 0700), 0);
}

static void test_any_flipped_bit_is_found(void **state)
{
	size_t at;

	for (at = 0; at < SPOOL_HEADER_BYTES + strlen("second"); at++) {
		spoiled(flip, at, false);
		spoiled(flip, at, true);
	}
}

static void test_any_cut_is_found(void **state)
{
	size_t at;

	for (at = 0; at < SPOOL_HEADER_BYTES + strlen("second"); at++) {
		spoiled(cut, at, false);
		spoiled(cut, at, true);
	}
	spoiled(append, 0, false);
	spoiled(append, 0, true);
}

static void test_foreign_files_stay_and_cut_off_writes_go(void **state)
{
	static const char *const names[] = {"README", "0000000000000001", "1.seg",
					    "000000000000000G.seg", "0000000000000000.seg"};
	struct spool_loss loss = {0};
	struct spool *s;
	char path[128];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	snprintf(path, sizeof(path), "%s/%016x.tmp", dir, 9);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	s = open_spool(1000, &loss);
	assert_int_equal(spool_count(s), 0);
	assert_int_equal(loss.corrupt, 0);
	assert_int_not_equal(access(path, F_OK), 0);
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		assert_int_equal(access(path, F_OK), 0);
	}
	spool_free(s);
}

static void test_a_segment_that_became_something_else(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(1000, &loss);
	struct payload p;
	char path[128];
	uint64_t seq;

	assert_int_equal(put(s, 1, "one", &loss), 0);
	path_of(1, path);
	replace_by_directory(path, 0);
	assert_int_equal(spool_next(s, 0, &seq, &p, &loss), -ENOENT);
	assert_int_equal(loss.corrupt, 1);
	spool_free(s);
	rmdir(path);
}

/* A restart while the machine has no file left to open. */
static void test_no_file_can_be_opened(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = open_spool(1000, &loss);
	struct rlimit usual, few;
	struct error err;
	int free_fd, refused = 0;

	assert_int_equal(put(s, 1, "one", &loss), 0);
	spool_free(s);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
	free_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	close(free_fd);
	for (unsigned int left = 0; left < 8; left++) {
		few = (struct rlimit){(rlim_t)free_fd + left, usual.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		s = NULL;
		refused += spool_open(dir, 1000, &s, &loss, &err) == -EMFILE;
		spool_free(s);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
		assert_int_equal(loss.corrupt, 0);
	}
	assert_in_range(refused, 2, 7);
	s = open_spool(1000, &loss);
	expect(s, 0, 1, "one");
	spool_free(s);
}

static void test_a_directory_that_cannot_be(void **state)
{
	struct spool_loss loss = {0};
	struct spool *s = NULL;
	struct error err;
	char path[128];

	snprintf(path, sizeof(path), "%s/file", dir);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	snprintf(path, sizeof(path), "%s/file/below", dir);
	assert_int_equal(spool_open(path, 1000, &s, &loss, &err), -ENOTDIR);
	assert_non_null(strstr(err.message, path));
}

#define test(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    test(test_what_is_put_comes_back_in_order_after_a_restart),
	    test(test_the_cap_drops_the_oldest_and_counts_them),
	    test(test_one_user_at_a_time),
	    test(test_any_flipped_bit_is_found),
	    test(test_any_cut_is_found),
	    test(test_foreign_files_stay_and_cut_off_writes_go),
	    test(test_a_segment_that_became_something_else),
	    test(test_no_file_can_be_opened),
	    test(test_a_directory_that_cannot_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
