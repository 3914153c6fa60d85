/* SPDX-License-Identifier: Apache-2.0 */
/* Any thread. A filesystem that is not listed counts as local: reads of it do not hang. */
#include "agent/process/remote_file.h"

#include <elf.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

/* statfs(2), "Filesystem type constants"; those that linux/magic.h lacks. */
#define BEEGFS_MAGIC 0x19830326
#define GPFS_MAGIC   0x47504653
#define LUSTRE_MAGIC 0x0bd00bd0

enum {
	COPY_STEP = 64 << 10,
	TABLE_MAX = 4 << 20, /* bytes of IMAGE_SECTIONS_MAX headers, or of their names */
};

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

/* The first byte of [AT, END) that was copied as a header, and the end of those; END if none. */
static size_t find_header(const struct remote_copy *copy, size_t at, size_t end, size_t *next)
{
	size_t start = end;

	*next = end;
	for (size_t i = 0; i < copy->n_headers; i++) {
		const struct file_range *h = &copy->headers[i];

		if (h->end > at && h->start < start) {
			start = MAX(h->start, at);
			*next = MIN(h->end, end);
		}
	}
	return start;
}

/* Copies the bytes of [AT, END) that were not copied as headers. */
static int copy_others(int from, const struct remote_copy *copy, size_t at, size_t end)
{
	size_t start, next;
	int r = 0;

	for (; at < end && r == 0; at = next) {
		start = find_header(copy, at, end, &next);
		r = copy_range(from, copy->fd, at, start);
	}
	return r;
}

/* Copies [START, END) as headers. No byte of them is read twice. */
static int copy_headers(int from, struct remote_copy *copy, uint64_t start, uint64_t end)
{
	int r = copy_others(from, copy, start, end);

	copy->headers[copy->n_headers++] = (struct file_range){start, end};
	return r;
}

static bool is_table(const struct remote_copy *copy, uint64_t at, uint64_t size)
{
	return size <= TABLE_MAX && at <= copy->size && size <= copy->size - at;
}

/* The section header at AT. 0: *RET is 0 unless it lies in the file. */
static int read_section(int fd, const struct remote_copy *copy, uint64_t at, Elf64_Shdr *ret)
{
	ssize_t n = sizeof(*ret);

	*ret = (Elf64_Shdr){0};
	if (is_table(copy, at, sizeof(*ret)))
		n = pread(fd, ret, sizeof(*ret), (off_t)at);
	if (n < 0)
		return -errno;
	return n == sizeof(*ret) ? 0 : -EIO;
}

static int copy_segments(int from, struct remote_copy *copy, const Elf64_Ehdr *h)
{
	uint64_t size = (uint64_t)h->e_phnum * sizeof(Elf64_Phdr);

	return is_table(copy, h->e_phoff, size)
		   ? copy_headers(from, copy, h->e_phoff, h->e_phoff + size)
		   : 0;
}

/* All section headers and their names, or nothing. */
static int copy_sections(int from, struct remote_copy *copy, const Elf64_Ehdr *h)
{
	Elf64_Shdr first, names, copied;
	uint64_t n, strings, at;
	int r = read_section(from, copy, h->e_shoff, &first);

	if (r < 0)
		return r;
	n = h->e_shnum ? h->e_shnum : first.sh_size;
	strings = h->e_shstrndx == SHN_XINDEX ? first.sh_link : h->e_shstrndx;
	if (n > IMAGE_SECTIONS_MAX || strings >= n ||
	    !is_table(copy, h->e_shoff, n * sizeof(first)))
		return 0;
	at = h->e_shoff + strings * sizeof(names);
	r = read_section(from, copy, at, &names);
	if (r < 0 || !is_table(copy, names.sh_offset, names.sh_size))
		return r;
	r = copy_headers(from, copy, h->e_shoff, h->e_shoff + n * sizeof(first));
	if (r == 0)
		r = read_section(copy->fd, copy, at, &copied);
	if (r < 0)
		return r;
	if (memcmp(&names, &copied, sizeof(names)) != 0)
		return -ESTALE;
	copy->has_sections = true;
	return copy_headers(from, copy, names.sh_offset, names.sh_offset + names.sh_size);
}

int remote_file_copy_headers(int fd, size_t size, struct remote_copy *ret)
{
	_cleanup_close_ int memory = memfd_create("kiln-file", MFD_CLOEXEC);
	struct remote_copy copy = {.fd = memory, .size = size};
	size_t n = MIN(size, (size_t)REMOTE_FILE_END);
	Elf64_Ehdr h = {0};
	int r;

	if (memory < 0 || ftruncate(memory, (off_t)size) < 0)
		return -errno;
	r = copy_headers(fd, &copy, 0, n);
	if (r == 0)
		r = copy_headers(fd, &copy, MAX(n, size - n), size);
	if (r == 0 && pread(memory, &h, sizeof(h), 0) < 0)
		r = -errno;
	if (r == 0 && memcmp(h.e_ident, ELFMAG, SELFMAG) == 0) {
		r = copy_segments(fd, &copy, &h);
		if (r == 0)
			r = copy_sections(fd, &copy, &h);
	}
	if (r < 0)
		return r;
	TAKE_FD(memory);
	*ret = copy;
	return 0;
}

int remote_file_copy_rest(int fd, const struct remote_copy *copy, const struct file_range *holes,
			  size_t n_holes)
{
	size_t at = 0;
	int r = 0;

	for (size_t i = 0; i < n_holes && r == 0; i++) {
		r = copy_others(fd, copy, at, holes[i].start);
		at = holes[i].end;
	}
	return r < 0 ? r : copy_others(fd, copy, at, copy->size);
}
