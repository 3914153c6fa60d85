/* SPDX-License-Identifier: Apache-2.0 */
/* pagemap has an entry of 8 bytes for each page. Bit 63: in memory; bit 62: in swap. Any thread. */
#include "agent/process/resident.h"

#include <fcntl.h>

#define PAGE_THERE (3ULL << 62)

enum { PAGES_AT_ONCE = 64 };

static bool are_there(int fd, uint64_t page, uint64_t n)
{
	uint64_t entries[PAGES_AT_ONCE];
	size_t bytes = (size_t)n * sizeof(entries[0]);

	if (pread(fd, entries, bytes, (off_t)(page * sizeof(entries[0]))) != (ssize_t)bytes)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!(entries[i] & PAGE_THERE))
			return false;
	return true;
}

int pagemap_open(int proc_dirfd, uint32_t tgid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "%u/pagemap", tgid);
	fd = openat(proc_dirfd, path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool pagemap_is_resident(int fd, uint64_t address, size_t len)
{
	uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE), page = address / size, n, end;

	if (!len || address + len < address)
		return !len;
	end = (address + len - 1) / size + 1;
	for (; page < end; page += n) {
		n = MIN(end - page, (uint64_t)PAGES_AT_ONCE);
		if (!are_there(fd, page, n))
			return false;
	}
	return true;
}

bool memory_is_resident(int proc_dirfd, uint32_t tgid, uint64_t address, size_t len)
{
	_cleanup_close_ int fd = -1;

	if (!len)
		return true;
	fd = pagemap_open(proc_dirfd, tgid);
	return fd >= 0 && pagemap_is_resident(fd, address, len);
}
