/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory is read by process_vm_readv(2), which never stops the process and cannot write. It would
 * wait for a page that a filesystem does not deliver. So from a process that maps remote files, or
 * whose mappings are not known, only pages that are in memory are read. It is not noticed here when
 * another process has got the tgid: the cookies in frames tell.
 */
#include "agent/runtime/target.h"

#include <sys/uio.h>

#include "agent/process/maps.h"
#include "agent/process/resident.h"

static int read_process(uint32_t tgid, uint64_t address, void *dst, size_t len)
{
	struct iovec local = {.iov_base = dst, .iov_len = len},
		     remote = {.iov_base = (void *)(uintptr_t)address, .iov_len = len};
	ssize_t n = process_vm_readv((pid_t)tgid, &local, 1, &remote, 1, 0);

	if (n < 0)
		return errno == ESRCH || errno == EPERM ? -errno : -EFAULT;
	return (size_t)n == len ? 0 : -EFAULT;
}

/* Whether a page of T's memory may be of a file that hangs. Without mapset it is not known. */
static bool may_be_remote(const struct target *t)
{
	return t->mapset ? t->mapset->is_remote : !t->source->read;
}

static int read_target(void *arg, uint64_t address, void *dst, size_t len)
{
	struct target *t = arg;

	if (address + len < address || t->n_reads >= TARGET_READS_MAX ||
	    t->n_bytes + len > TARGET_BYTES_MAX)
		return -EFAULT;
	t->n_reads++;
	t->n_bytes += len;
	/* A page that is not in memory would be read from its file, on this thread. */
	if (may_be_remote(t) && !memory_is_resident(t->source->proc_dirfd, t->tgid, address, len))
		return -EFAULT;
	if (t->source->read)
		return t->source->read(t->source->arg, t->tgid, address, dst, len);
	return read_process(t->tgid, address, dst, len);
}

struct target_memory target_memory_of(struct target *t)
{
	return (struct target_memory){.read = read_target, .arg = t};
}

/* The piece that begins at BASE; NULL: not all of it can be read. */
static const uint8_t *get_piece(struct target *t, uint64_t base)
{
	uint32_t i;

	for (i = 0; i < TARGET_PIECES; i++)
		if (t->piece_at[i] == (base | 1))
			return t->piece[i];
	i = t->next_piece;
	t->piece_at[i] = 0;
	if (read_target(t, base, t->piece[i], TARGET_PIECE) < 0)
		return NULL;
	t->piece_at[i] = base | 1;
	t->next_piece = (i + 1) % TARGET_PIECES;
	return t->piece[i];
}

static int read_ahead(void *arg, uint64_t address, void *dst, size_t len)
{
	struct target *t = arg;
	size_t done = 0;

	while (len <= TARGET_READ_MAX && done < len) {
		uint64_t at = (address + done) % TARGET_PIECE;
		const uint8_t *piece = get_piece(t, address + done - at);
		size_t n = MIN(len - done, (size_t)(TARGET_PIECE - at));

		if (!piece)
			break;
		memcpy((uint8_t *)dst + done, piece + at, n);
		done += n;
	}
	return len && done == len ? 0 : read_target(t, address, dst, len);
}

static void forget_pieces(void *arg)
{
	struct target *t = arg;

	memset(t->piece_at, 0, sizeof(t->piece_at));
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
