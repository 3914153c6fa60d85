/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading is process_vm_readv(2): it never stops the process and cannot write. It would wait for a
 * page that a filesystem does not deliver, so of a process that maps remote files only pages that
 * are there are read. A tgid that was given to another process meanwhile is not noticed here;
 * cookies in frames are there for that.
 */
#include "agent/runtime/target.h"

#include <sys/uio.h>

#include "agent/process/maps.h"
#include "agent/process/resident.h"

enum { PAGE = 4096 }; /* the smallest there is */

static int read_process(uint32_t tgid, uint64_t address, void *dst, size_t len)
{
	struct iovec local = {.iov_base = dst, .iov_len = len},
		     remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = len};
	ssize_t n = process_vm_readv((pid_t)tgid, &local, 1, &remote, 1, 0);

	if (n < 0)
		return errno == ESRCH || errno == EPERM ? -errno : -EFAULT;
	return (size_t)n == len ? 0 : -EFAULT;
}

static int read_target(void *arg, uint64_t address, void *dst, size_t len)
{
	struct target *t = arg;

	if (address + len < address || t->n_reads >= TARGET_READS_MAX ||
	    t->n_bytes + len > TARGET_BYTES_MAX)
		return -EFAULT;
	t->n_reads++;
	t->n_bytes += len;
	/* A page that is not there would be read from the file, on this thread. */
	if (t->mapset && t->mapset->is_remote &&
	    !memory_is_resident(t->source->proc_dirfd, t->tgid, address, len))
		return -EFAULT;
	if (t->source->read)
		return t->source->read(t->source->arg, t->tgid, address, dst, len);
	return read_process(t->tgid, address, dst, len);
}

struct target_memory target_memory_of(struct target *t)
{
	return (struct target_memory){.read = read_target, .arg = t};
}

static const struct target_piece *find_piece(const struct target *t, uint64_t address, size_t len)
{
	for (size_t i = 0; i < ARRAY_SIZE(t->pieces); i++) {
		const struct target_piece *p = &t->pieces[i];

		if (address >= p->at && address - p->at < p->len &&
		    len <= p->len - (address - p->at))
			return p;
	}
	return NULL;
}

/* To the end of the page at most: what lies behind that may not be there. */
static int read_ahead(void *arg, uint64_t address, void *dst, size_t len)
{
	struct target *t = arg;
	struct target_piece *piece = &t->pieces[t->next_piece];
	const struct target_piece *known = find_piece(t, address, len);
	size_t size = MIN(sizeof(piece->bytes), PAGE - address % PAGE);

	if (!known && len < size) {
		piece->len = 0;
		if (read_target(t, address, piece->bytes, size) == 0) {
			piece->at = address;
			piece->len = (uint32_t)size;
			t->next_piece = (t->next_piece + 1) % ARRAY_SIZE(t->pieces);
			known = piece;
		}
	}
	if (!known)
		return read_target(t, address, dst, len);
	memcpy(dst, known->bytes + (address - known->at), len);
	return 0;
}

static void forget_pieces(void *arg)
{
	struct target *t = arg;

	for (size_t i = 0; i < ARRAY_SIZE(t->pieces); i++)
		t->pieces[i].len = 0;
}

struct target_memory target_memory_ahead(struct target *t)
{
	return (struct target_memory){.read = read_ahead, .renew = forget_pieces, .arg = t};
}

static const struct image *find_image(void *arg, const char *prefix, uint64_t *ret_bias)
{
	const struct target *t = arg;

	for (uint32_t i = 0; i < t->mapset->n; i++) {
		const struct mapset_range *range = &t->mapset->ranges[i];
		const struct stored_image *stored = range->image;
		const char *slash;

		if (!mapset_range_elf(range) || !stored->path)
			continue;
		slash = strrchr(stored->path, '/');
		if (!has_prefix(slash ? slash + 1 : stored->path, prefix))
			continue;
		*ret_bias = range->bias;
		return stored->image;
	}
	return NULL;
}

static int find_mapping(void *arg, uint64_t address, uint64_t *ret_start, uint64_t *ret_end)
{
	const struct target *t = arg;

	return maps_find(t->source->proc_dirfd, t->tgid, address, ret_start, ret_end);
}

struct runtime_target runtime_target_of(struct target *t, const struct mapset_range *range)
{
	return (struct runtime_target){
	    .memory = target_memory_of(t),
	    .tgid = t->tgid,
	    .bias = range->bias,
	    .image = range->image->image,
	    .find_image = find_image,
	    .find_mapping = find_mapping,
	    .arg = t,
	};
}
