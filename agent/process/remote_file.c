/* SPDX-License-Identifier: Apache-2.0 */
/* Any thread. A filesystem that is not listed counts as local: reads of it do not hang. */
#include "agent/process/remote_file.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* statfs(2), "Filesystem type constants"; those that linux/magic.h lacks. */
#define BEEGFS_MAGIC 0x19830326
#define GPFS_MAGIC   0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0

enum { COPY_STEP = 64 << 10 };

bool remote_file_is(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	switch ((uint32_t)fs.f_type) {
	case FUSE_SUPER_MAGIC: /* virtiofs says so too */
	case NFS_SUPER_MAGIC:
	case CIFS_SUPER_MAGIC:
	case SMB_SUPER_MAGIC:
	case SMB2_SUPER_MAGIC:
	case CEPH_SUPER_MAGIC:
	case V9FS_MAGIC:
	case AFS_SUPER_MAGIC:
	case AFS_FS_MAGIC:
	case CODA_SUPER_MAGIC:
	case OCFS2_SUPER_MAGIC:
	case BEEGFS_MAGIC:
	case GPFS_MAGIC:
	case LUSTRE_MAGIC:
		return true;
	default:
		return false;
	}
}

static int write_all(int fd, const uint8_t *data, size_t size, size_t at)
{
	while (size) {
		ssize_t n = pwrite(fd, data, size, (off_t)at);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			data += n;
			at += (size_t)n;
			size -= (size_t)n;
		}
	}
	return 0;
}

/* Copies the bytes [AT, END). */
static int copy_range(int from, int to, size_t at, size_t end)
{
	_cleanup_free_ uint8_t *step = malloc(COPY_STEP);
	ssize_t n;
	int r;

	if (!step)
		return -ENOMEM;
	while (at < end) {
		n = pread(from, step, MIN(end - at, (size_t)COPY_STEP), (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		r = write_all(to, step, (size_t)n, at);
		if (r < 0)
			return r;
		at += (size_t)n;
	}
	return 0;
}

int remote_file_copy(int fd, size_t size, int *ret_fd)
{
	_cleanup_close_ int copy = memfd_create("kiln-file", MFD_CLOEXEC);
	int r;

	if (copy < 0)
		return -errno;
	r = copy_range(fd, copy, 0, size);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(copy);
	return 0;
}

int remote_file_copy_ends(int fd, size_t size, int *ret_fd)
{
	_cleanup_close_ int copy = memfd_create("kiln-file", MFD_CLOEXEC);
	size_t n = MIN(size, (size_t)REMOTE_FILE_END);
	int r;

	if (copy < 0 || ftruncate(copy, (off_t)size) < 0)
		return -errno;
	r = copy_range(fd, copy, 0, n);
	if (r == 0)
		r = copy_range(fd, copy, MAX(n, size - n), size);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(copy);
	return 0;
}
