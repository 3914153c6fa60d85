// SPDX-License-Identifier: Apache-2.0
/*
 * openat2(2) with RESOLVE_IN_ROOT does all of it in the kernel (5.6 and newer). Where it is
 * missing, or a seccomp filter refuses it, a walk component by component that follows no link at
 * all takes its place: fewer files are found, none outside. Any thread.
 */
#include "agent/symbol/root_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { FILE_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY };

int root_open(const char *root)
{
	int fd = open(root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Returns FD if it is a regular file; else closes it and returns a negative errno. */
static int only_regular(int fd)
{
	_cleanup_close_ int file = fd;
	struct stat st;

	if (file < 0)
		return -errno;
	if (fstat(file, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return TAKE_FD(file);
}

int root_open_file_walk(int root_fd, const char *path)
{
	_cleanup_close_ int dir = -1;
	char part[NAME_MAX + 1];
	size_t n;
	int next;

	for (;;) {
		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 0)
			return -EISDIR;
		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(part, path, n);
		part[n] = 0;
		if (streq(part, ".."))
			return -ELOOP;
		path += n;
		if (path[strspn(path, "/")] == 0)
			return only_regular(
			    openat(dir < 0 ? root_fd : dir, part, FILE_FLAGS | O_NOFOLLOW));
		next = openat(dir < 0 ? root_fd : dir, part,
			      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		closep(&dir);
		dir = next;
	}
}

int root_open_file(int root_fd, const char *path, bool nofollow)
{
	struct open_how how = {
	    .flags = (uint64_t)(FILE_FLAGS | (nofollow ? O_NOFOLLOW : 0)),
	    .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = -1;

	/* EAGAIN: something was renamed meanwhile and the kernel could not rule out an escape. */
	for (int i = 0; i < 4; i++) {
		fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		return root_open_file_walk(root_fd, path);
	return only_regular(fd);
}
