/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of files whose server gives other bytes the second time. */
#include "cm.h"

#include <elf.h>
#include <sys/mman.h>

#include "agent/process/remote_file.h"

enum {
	SIZE = 10 * UNREAD_BLOCK,
	SEGMENTS_AT = 2 * UNREAD_BLOCK,
	SECTIONS_AT = 4 * UNREAD_BLOCK,
	NAMES_AT = 6 * UNREAD_BLOCK,
	N = 3,
};

static int counted_fd = -1;
static size_t reads; /* bytes read from it */

ssize_t __real_pread(int fd, void *data, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t size, off_t at);

ssize_t __wrap_pread(int fd, void *data, size_t size, off_t at)
{
	ssize_t n = __real_pread(fd, data, size, at);

	if (fd == counted_fd && n > 0)
		reads += (size_t)n;
	return n;
}

/* What pread() is with _FORTIFY_SOURCE. */
ssize_t __wrap___pread_chk(int fd, void *data, size_t size, off_t at, size_t room);

ssize_t __wrap___pread_chk(int fd, void *data, size_t size, off_t at, size_t room)
{
	assert_true(size <= room);
	return __wrap_pread(fd, data, size, at);
}

static void fill(int fd, uint8_t with)
{
	_cleanup_free_ uint8_t *bytes = malloc(SIZE);

	assert_non_null(bytes);
	memset(bytes, with, SIZE);
	assert_int_equal(pwrite(fd, bytes, SIZE, 0), SIZE);
}

/* A file of 1s, whose headers are neither at its start nor at its end. */
static int make_file(size_t names_size)
{
	Elf64_Ehdr h = {.e_phoff = SEGMENTS_AT,
			.e_phnum = N,
			.e_shoff = SECTIONS_AT,
			.e_shnum = N,
			.e_shstrndx = N - 1};
	Elf64_Shdr names = {.sh_type = SHT_STRTAB, .sh_offset = NAMES_AT, .sh_size = names_size};
	int fd = memfd_create("file", MFD_CLOEXEC);

	assert_true(fd >= 0);
	fill(fd, 1);
	memcpy(h.e_ident, ELFMAG, SELFMAG);
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(
	    pwrite(fd, &names, sizeof(names), SECTIONS_AT + (N - 1) * (off_t)sizeof(names)),
	    sizeof(names));
	return fd;
}

static uint8_t byte_at(int fd, uint64_t at)
{
	uint8_t byte = 0xff;

	assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
	return byte;
}

static void headers_are_read_once_and_holes_never(void **state)
{
	static const struct file_range hole = {7 * UNREAD_BLOCK, 8 * UNREAD_BLOCK};
	_cleanup_close_ int fd = make_file(100);
	struct remote_copy copy;

	assert_int_equal(remote_file_copy_headers(fd, SIZE, &copy), 0);
	assert_true(copy.has_sections);
	fill(fd, 2);
	assert_int_equal(byte_at(copy.fd, UNREAD_BLOCK), 0);
	assert_int_equal(remote_file_copy_rest(fd, &copy, &hole, 1), 0);
	assert_int_equal(byte_at(copy.fd, UNREAD_BLOCK - 1), 1);
	assert_int_equal(byte_at(copy.fd, UNREAD_BLOCK), 2);
	assert_int_equal(byte_at(copy.fd, SEGMENTS_AT - 1), 2);
	assert_int_equal(byte_at(copy.fd, SEGMENTS_AT), 1);
	assert_int_equal(byte_at(copy.fd, SEGMENTS_AT + N * sizeof(Elf64_Phdr) - 1), 1);
	assert_int_equal(byte_at(copy.fd, SEGMENTS_AT + N * sizeof(Elf64_Phdr)), 2);
	assert_int_equal(byte_at(copy.fd, SECTIONS_AT), 1);
	assert_int_equal(byte_at(copy.fd, SECTIONS_AT + N * sizeof(Elf64_Shdr)), 2);
	assert_int_equal(byte_at(copy.fd, NAMES_AT), 1);
	assert_int_equal(byte_at(copy.fd, NAMES_AT + 99), 1);
	assert_int_equal(byte_at(copy.fd, NAMES_AT + 100), 2);
	assert_int_equal(byte_at(copy.fd, hole.start - 1), 2);
	assert_int_equal(byte_at(copy.fd, hole.start), 0);
	assert_int_equal(byte_at(copy.fd, hole.end - 1), 0);
	assert_int_equal(byte_at(copy.fd, hole.end), 2);
	assert_int_equal(byte_at(copy.fd, SIZE - UNREAD_BLOCK - 1), 2);
	assert_int_equal(byte_at(copy.fd, SIZE - UNREAD_BLOCK), 1);
	close(copy.fd);
}

/* Only the second reading of the first bytes could tell another place. */
static void headers_that_overlap_are_read_once(void **state)
{
	_cleanup_close_ int fd = make_file(100);
	const size_t at = SIZE - UNREAD_BLOCK + 64;
	Elf64_Shdr names = {.sh_type = SHT_STRTAB, .sh_size = UNREAD_BLOCK + 10};
	struct remote_copy copy;
	Elf64_Ehdr h;

	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	h.e_shoff = at;
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	assert_int_equal(pwrite(fd, &names, sizeof(names), (off_t)(at + (N - 1) * sizeof(names))),
			 sizeof(names));
	counted_fd = fd;
	reads = 0;
	assert_int_equal(remote_file_copy_headers(fd, SIZE, &copy), 0);
	assert_true(copy.has_sections);
	/* Both ends, two headers to find the names, the segments, the rest of the names. */
	assert_int_equal(reads, 2 * UNREAD_BLOCK + 2 * sizeof(names) + N * sizeof(Elf64_Phdr) + 10);
	assert_int_equal(byte_at(copy.fd, UNREAD_BLOCK + 9), 1);
	assert_int_equal(byte_at(copy.fd, UNREAD_BLOCK + 10), 0);
	close(copy.fd);
}

static void names_outside_of_the_file_are_no_headers(void **state)
{
	_cleanup_close_ int fd = make_file(SIZE - NAMES_AT + 1);
	struct remote_copy copy;

	assert_int_equal(remote_file_copy_headers(fd, SIZE, &copy), 0);
	assert_false(copy.has_sections);
	assert_int_equal(byte_at(copy.fd, SECTIONS_AT), 0);
	assert_int_equal(remote_file_copy_rest(fd, &copy, NULL, 0), 0);
	assert_int_equal(byte_at(copy.fd, SECTIONS_AT), 1);
	close(copy.fd);
}

static void a_file_that_became_shorter_is_an_error(void **state)
{
	_cleanup_close_ int fd = make_file(100);
	struct remote_copy copy;

	assert_int_equal(remote_file_copy_headers(fd, SIZE + 1, &copy), -EIO);
	assert_int_equal(remote_file_copy_headers(fd, SIZE, &copy), 0);
	assert_int_equal(ftruncate(fd, SIZE / 2), 0);
	assert_int_equal(remote_file_copy_rest(fd, &copy, NULL, 0), -EIO);
	close(copy.fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(headers_are_read_once_and_holes_never),
	    cmocka_unit_test(headers_that_overlap_are_read_once),
	    cmocka_unit_test(names_outside_of_the_file_are_no_headers),
	    cmocka_unit_test(a_file_that_became_shorter_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
