/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of /proc have no size and may change between two reads; each read() returns whole records,
 * so the largest reads that fit are the most consistent ones. A process that ends makes open() fail
 * with ENOENT and read() with ESRCH: both become -ESRCH here, as they mean the same to every
 * caller.
 */
#include "agent/process/proc_file.h"

#include <fcntl.h>
#include <limits.h>

enum { CHUNK = 64 << 10 };

/*
 * Reads up to CHUNK bytes of FD and appends them to OUT. Returns 1 when there may be more, 0 at the
 * end of the file, or a negative errno; -E2BIG: OUT has reached its cap, and the bytes that do not
 * fit are lost.
 */
static int read_chunk(int fd, char *chunk, struct buf *out)
{
	ssize_t n;
	size_t room = out->max - out->len;

	do {
		n = read(fd, chunk, CHUNK);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if (n == 0)
		return 0;
	if ((size_t)n > room) {
		int ret = buf_append(out, chunk, room);

		return ret < 0 ? ret : -E2BIG;
	}
	if (buf_append(out, chunk, (size_t)n) < 0)
		return buf_error(out);
	return 1;
}

int proc_file_read(int dirfd, const char *path, struct buf *out)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	_cleanup_free_ char *chunk = NULL;
	int ret;

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	chunk = malloc(CHUNK);
	if (!chunk)
		return -ENOMEM;
	do {
		ret = read_chunk(fd, chunk, out);
	} while (ret > 0);
	return ret;
}

int proc_link_read(int dirfd, const char *path, char **ret)
{
	_cleanup_free_ char *target = malloc(PATH_MAX + 1);
	char *exact;
	ssize_t n;

	if (!target)
		return -ENOMEM;
	n = readlinkat(dirfd, path, target, PATH_MAX);
	if (n < 0)
		return -errno;
	exact = strndup(target, (size_t)n);
	if (!exact)
		return -ENOMEM;
	*ret = exact;
	return 0;
}
