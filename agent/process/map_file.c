/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file behind a mapping. Its path was written by others and may meanwhile lead to a device, a
 * FIFO, or another file, so a path is first opened with O_PATH (which touches nothing), compared
 * with what the mapping says, and only then reopened for reading. Paths below another root are
 * resolved inside it (openat2 RESOLVE_IN_ROOT, since 5.6): a symbolic link cannot lead out.
 */
#include "agent/process/map_file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "agent/process/proc_file.h"

/*
 * Is FD on a filesystem whose st_dev is not the device that maps shows? *RET_AMBIGUOUS: device and
 * inode in maps are not unique, either: on btrfs inode numbers are those of a subvolume.
 */
static bool device_differs_by_design(int fd, bool *ret_ambiguous)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	*ret_ambiguous = fs.f_type == BTRFS_SUPER_MAGIC;
	return *ret_ambiguous || fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

static bool is_mapped_file(int fd, const struct stat *st, const struct map_entry *map,
			   bool *ret_ambiguous)
{
	*ret_ambiguous = false;
	if (st->st_ino != map->inode)
		return false;
	return st->st_dev == makedev(map->dev_major, map->dev_minor) ||
	       device_differs_by_design(fd, ret_ambiguous);
}

/* From an O_PATH descriptor to one that reads. */
static int reopen(int path_fd, int *ret)
{
	char path[48];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	*ret = fd;
	return 0;
}

/* Does the link's text name the path of MAP? Decides where inode and device cannot. */
static bool link_names(int proc_dirfd, const char *link, const struct map_entry *map)
{
	_cleanup_free_ char *target = NULL;
	size_t len = strlen(map->path);

	if (proc_link_read(proc_dirfd, link, &target) < 0)
		return false;
	return has_prefix(target, map->path) &&
	       streq(target + len, map->deleted ? " (deleted)" : "");
}

static int open_map_file(int proc_dirfd, uint32_t pid, const struct map_entry *map, int *ret,
			 bool *ret_ambiguous)
{
	_cleanup_close_ int fd = -1;
	char link[96];
	struct stat st;

	snprintf(link, sizeof(link), "%u/map_files/%" PRIx64 "-%" PRIx64, pid, map->start,
		 map->end);
	fd = openat(proc_dirfd, link, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOEXEC;
	/* The range may be another file's by now. */
	if (!is_mapped_file(fd, &st, map, ret_ambiguous)) {
		if (!link_names(proc_dirfd, link, map))
			return -ESTALE;
		/* It may be another file that was put there under the same name. */
		*ret_ambiguous = true;
	}
	return reopen(fd, ret);
}

static int open_below(int root_fd, const struct map_entry *map, int *ret, bool *ret_ambiguous)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT};
	_cleanup_close_ int fd = -1;
	struct stat st;

	fd = (int)syscall(SYS_openat2, root_fd, map->path, &how, sizeof(how));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!is_mapped_file(fd, &st, map, ret_ambiguous))
		return -ESTALE;
	if (!S_ISREG(st.st_mode))
		return -ENOEXEC;
	/* Whoever owns the directory may have put another file there with the same inode number. */
	*ret_ambiguous |= st.st_dev != makedev(map->dev_major, map->dev_minor);
	return reopen(fd, ret);
}

static int open_by_path(int proc_dirfd, uint32_t pid, const struct map_entry *map, int *ret,
			bool *ret_ambiguous)
{
	char process_root[32];
	const char *const roots[] = {process_root, "/", "1/root"};
	int r = -ENOENT;

	snprintf(process_root, sizeof(process_root), "%u/root", pid);
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		_cleanup_close_ int root_fd =
		    openat(proc_dirfd, roots[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
		int this_r = root_fd < 0 ? -errno : open_below(root_fd, map, ret, ret_ambiguous);

		if (this_r == 0)
			return 0;
		if (i == 0)
			r = this_r;
	}
	return r;
}

static bool process_exists(int proc_dirfd, uint32_t pid)
{
	char path[16];

	snprintf(path, sizeof(path), "%u", pid);
	return faccessat(proc_dirfd, path, F_OK, 0) == 0;
}

int map_file_open(int proc_dirfd, uint32_t pid, const struct map_entry *map, int *ret,
		  bool *ret_ambiguous)
{
	int by_range = open_map_file(proc_dirfd, pid, map, ret, ret_ambiguous), by_path;

	if (by_range == 0 || by_range == -ENOEXEC || by_range == -EMFILE || by_range == -ENFILE)
		return by_range;
	by_path = open_by_path(proc_dirfd, pid, map, ret, ret_ambiguous);
	if (by_path == 0)
		return 0;
	if (!process_exists(proc_dirfd, pid))
		return -ESRCH;
	/* The kernel says that the mapping does not exist any more: not an error of the file. */
	if (by_range == -ENOENT || by_range == -ESTALE)
		return -ESTALE;
	/* Report the error of map_files: EACCES or EPERM is the one that an administrator can
	 * fix. */
	return by_path == -EMFILE || by_path == -ENFILE ? by_path : by_range;
}
