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

/* Takes a read of LEN bytes at ADDRESS from T's limits. False: it must not be done. */
static bool may_read(struct target *t, uint64_t address, size_t len)
{
	if (address + len < address || t->n_reads >= TARGET_READS_MAX ||
	    t->n_bytes + len > TARGET_BYTES_MAX)
		return false;
	t->n_reads++;
	t->n_bytes += len;
	/* A page that is not in memory would be read from its file, on this thread. */
	return !may_be_remote(t) ||
	       memory_is_resident(t->source->proc_dirfd, t->tgid, address, len);
}

static int read_target(void *arg, uint64_t address, void *dst, size_t len)
{
	struct target *t = arg;

	if (!may_read(t, address, len))
		return -EFAULT;
	if (t->source->read)
		return t->source->read(t->source->arg, t->tgid, address, dst, len);
	return read_process(t->tgid, address, dst, len);
}

struct target_memory target_memory_of(struct target *t)
{
	return (struct target_memory){.read = read_target, .arg = t};
}

/* ---- reading ahead --------------------------------------------------------------------------- */

static bool is_good(const struct target *t, const struct target_piece *p)
{
	return p->space ? p->space == t->space && p->code == t->code
			: p->code == t->pieces->n_renewed;
}

static size_t set_of(uint64_t base)
{
	return hash_words(&base, 1, 0) % TARGET_SETS;
}

/* Is the good piece that begins at BASE in place I? */
static bool is_at(const struct target *t, size_t i, uint64_t base)
{
	const struct target_piece *p = &t->pieces->pieces[i];

	return p->address == base && is_good(t, p);
}

/* The piece that begins at BASE; NULL: it was not read. */
static const uint8_t *find_piece(struct target *t, uint64_t base)
{
	size_t i, end;

	/* Mostly the one that was asked for last. */
	if (is_at(t, t->pieces->last, base))
		return t->pieces->bytes[t->pieces->last];
	i = set_of(base) * TARGET_WAYS;
	for (end = i + TARGET_WAYS; i < end; i++) {
		if (!is_at(t, i, base))
			continue;
		t->pieces->last = (uint32_t)i;
		return t->pieces->bytes[i];
	}
	return NULL;
}

/*
 * Finds a place for the piece that begins at BASE: of a piece that is not good any more, or the
 * oldest one, which is forgotten. -1: the same system call reads into all of them.
 */
static int new_place(struct target *t, uint64_t base)
{
	size_t set = set_of(base), found = TARGET_PIECES;
	struct target_pieces *p = t->pieces;

	for (size_t i = 0; i < TARGET_WAYS; i++) {
		size_t at = set * TARGET_WAYS + (p->oldest[set] + i) % TARGET_WAYS;
		const struct target_piece *piece = &p->pieces[at];
		bool is_over = !piece->space && piece->code != p->n_renewed;

		if (piece->batch == p->batch || (found < TARGET_PIECES && !is_over))
			continue;
		found = at;
		if (is_over)
			break;
	}
	if (found == TARGET_PIECES)
		return -1;
	p->oldest[set] = (uint8_t)((found + 1) % TARGET_WAYS);
	p->pieces[found] = (struct target_piece){.batch = p->batch};
	return (int)found;
}

/* The piece that begins at BASE was read into place AT. KEPT: it stays valid beyond target_renew(),
 * as target_keep_begin() says. */
static void keep_piece(struct target *t, size_t at, uint64_t base, bool kept)
{
	struct target_piece *p = &t->pieces->pieces[at];

	p->address = base;
	p->space = kept ? t->space : 0;
	p->code = p->space ? t->code : t->pieces->n_renewed;
}

/* The piece that begins at BASE; NULL: not all of it can be read. */
static const uint8_t *get_piece(struct target *t, uint64_t base)
{
	const uint8_t *piece = find_piece(t, base);
	uint8_t *bytes;
	int at;

	if (piece)
		return piece;
	t->pieces->batch++;
	at = new_place(t, base);
	bytes = at < 0 ? NULL : t->pieces->bytes[at];
	if (!bytes || read_target(t, base, bytes, TARGET_PIECE) < 0)
		return NULL;
	keep_piece(t, (size_t)at, base, true);
	return bytes;
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

/* Pieces that are read by one system call. */
struct piece_batch {
	struct iovec local[TARGET_BATCH], remote[TARGET_BATCH];
	size_t place[TARGET_BATCH];
	size_t n;
	size_t n_new; /* the first n_new are of the spans, the rest of AGAIN */
};

static bool is_in_batch(const struct piece_batch *b, uint64_t base)
{
	for (size_t i = 0; i < b->n; i++)
		if ((uintptr_t)b->remote[i].iov_base == base)
			return true;
	return false;
}

static void add_to_batch(struct piece_batch *b, struct target *t, uint64_t base)
{
	int at;

	if (find_piece(t, base) || is_in_batch(b, base) || !may_read(t, base, TARGET_PIECE))
		return;
	at = new_place(t, base);
	if (at < 0)
		return;
	b->place[b->n] = (size_t)at;
	b->local[b->n] = (struct iovec){t->pieces->bytes[at], TARGET_PIECE};
	b->remote[b->n] = (struct iovec){(void *)(uintptr_t)base, TARGET_PIECE};
	b->n++;
}

/* Reads the pieces of B. Those behind one that cannot be read are left out. */
static void read_batch(const struct piece_batch *b, struct target *t)
{
	const struct target_source *source = t->source;
	ssize_t got = 0;

	if (!source->read)
		got = process_vm_readv((pid_t)t->tgid, b->local, b->n, b->remote, b->n, 0);
	for (size_t i = 0; source->read && i < b->n; i++) {
		uint64_t base = (uintptr_t)b->remote[i].iov_base;

		if (source->read(source->arg, t->tgid, base, b->local[i].iov_base, TARGET_PIECE))
			break;
		got += TARGET_PIECE;
	}
	for (size_t i = 0; i < b->n && got >= (ssize_t)(i + 1) * TARGET_PIECE; i++)
		keep_piece(t, b->place[i], (uintptr_t)b->remote[i].iov_base, i < b->n_new);
	/* What was read last is AGAIN, all of it: see target_has_read(). */
	if (b->n > b->n_new && got == (ssize_t)b->n * TARGET_PIECE)
		t->reads_before = t->n_reads;
}

static void add_span(struct piece_batch *b, struct target *t, const struct target_span *span)
{
	uint64_t base = span->address - span->address % TARGET_PIECE,
		 end = span->address + MIN(span->size, (size_t)TARGET_BATCH * TARGET_PIECE);

	for (; base < end && b->n < TARGET_BATCH; base += TARGET_PIECE)
		add_to_batch(b, t, base);
}

/* Drops the cached pieces of SPAN, except those that stay valid beyond target_renew(). */
static void drop_span(struct target *t, const struct target_span *span)
{
	uint64_t base = span->address - span->address % TARGET_PIECE,
		 end = span->address + MIN(span->size, (size_t)TARGET_BATCH * TARGET_PIECE);

	for (; base < end; base += TARGET_PIECE)
		for (size_t i = set_of(base) * TARGET_WAYS, n = 0; n < TARGET_WAYS; i++, n++)
			if (t->pieces->pieces[i].address == base && !t->pieces->pieces[i].space)
				t->pieces->pieces[i] = (struct target_piece){};
}

static void read_together(void *arg, const struct target_span *spans, size_t n,
			  const struct target_span *again)
{
	struct target *t = arg;
	struct piece_batch b;

	b.n = 0;
	t->pieces->batch++;
	for (size_t i = 0; i < n; i++)
		add_span(&b, t, &spans[i]);
	b.n_new = b.n;
	if (b.n && again) {
		drop_span(t, again);
		add_span(&b, t, again);
	}
	if (b.n)
		read_batch(&b, t);
}

static void renew(void *arg)
{
	struct target *t = arg;

	t->pieces->n_renewed++;
}

static void keep(void *arg, uint32_t space, uint64_t code)
{
	struct target *t = arg;

	t->space = space;
	t->code = code;
	if (code)
		t->reads_before = t->n_reads;
}

static bool has_read(void *arg)
{
	const struct target *t = arg;

	return t->n_reads != t->reads_before;
}

static void forget(void *arg, uint32_t space, uint64_t code)
{
	struct target *t = arg;

	for (size_t i = 0; i < TARGET_PIECES; i++) {
		struct target_piece *p = &t->pieces->pieces[i];

		if (p->space == space && p->code == code)
			*p = (struct target_piece){};
	}
}

struct target_memory target_memory_ahead(struct target *t, struct target_pieces *pieces)
{
	t->pieces = pieces;
	renew(t);
	return (struct target_memory){.read = read_ahead,
				      .together = read_together,
				      .renew = renew,
				      .keep = keep,
				      .has_read = has_read,
				      .forget = forget,
				      .arg = t};
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
