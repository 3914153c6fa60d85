/* SPDX-License-Identifier: Apache-2.0 */
/* This process's own pages. */
#include <fcntl.h>
#include <sys/mman.h>

#include "agent/process/resident.h"
#include "tests/support/test.h"

static size_t page;
static int proc_dirfd;

static bool is_resident(const void *at, size_t len)
{
	return memory_is_resident(proc_dirfd, (uint32_t)getpid(), (uintptr_t)at, len);
}

static void what_was_written_is_there_and_what_was_not_is_not(void **state)
{
	uint8_t *at =
	    mmap(NULL, 200 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(at != MAP_FAILED);
	assert_int_equal(madvise(at, 200 * page, MADV_NOHUGEPAGE), 0);
	assert_false(is_resident(at, 1));
	memset(at, 1, 150 * page);
	assert_true(is_resident(at, 150 * page));
	assert_true(is_resident(at + 5, 8));
	assert_false(is_resident(at, 150 * page + 1));
	assert_true(is_resident(at + 200 * page, 0));
	munmap(at, 200 * page);
}

static void a_page_of_a_file_is_there_once_it_was_read(void **state)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);
	volatile const uint8_t *at;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	at = mmap(NULL, page, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(at != MAP_FAILED);
	assert_false(is_resident((const void *)at, 1));
	assert_int_equal(*at, 0);
	assert_true(is_resident((const void *)at, page));
	munmap((void *)at, page);
	close(fd);
}

static void memory_that_is_no_memory_is_not_there(void **state)
{
	assert_false(is_resident((const void *)8, 8));
	assert_false(memory_is_resident(proc_dirfd, (uint32_t)getpid(), UINT64_MAX - 3, 8));
	assert_false(memory_is_resident(proc_dirfd, 0, (uintptr_t)&page, 8));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_was_written_is_there_and_what_was_not_is_not),
	    cmocka_unit_test(a_page_of_a_file_is_there_once_it_was_read),
	    cmocka_unit_test(memory_that_is_no_memory_is_not_there),
	};

	page = (size_t)sysconf(_SC_PAGESIZE);
	proc_dirfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
