/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shard is an mmapable BPF array. Its mapping in user space holds a reference to it, and so does
 * its place in the array of maps, so no descriptor is kept. A shard is mapped before the kernel can
 * find it, and taken out of the kernel before it is unmapped; updates of an array of maps return
 * after a grace period (kernel/bpf/syscall.c, maybe_wait_bpf_programs()), so no program still reads
 * a shard that is unmapped.
 */
#include "agent/sampler/slab.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RESERVE_PART = 8 /* the reserve is this part of the budget */ };

struct slab {
	int outer_fd;
	struct slab_shape shape;
	struct slab_budget *budget; /* or NULL */
	uint8_t *base;
	size_t shard_bytes;
	uint32_t shard_units, n_shards;
	uint32_t n_backed;
	bool *backed; /* n_shards */
};

static uint32_t shard_units(const struct slab_shape *shape)
{
	return shape->shard_elements * (shape->element_bytes / shape->unit_bytes);
}

uint32_t slab_shards(const struct slab_shape *shape)
{
	return (uint32_t)(((uint64_t)shape->units + shard_units(shape) - 1) / shard_units(shape));
}

int slab_new(int outer_fd, const struct slab_shape *shape, struct slab_budget *budget,
	     struct slab **ret)
{
	_cleanup_(slab_freep) struct slab *s = calloc(1, sizeof(*s));
	void *base;

	if (!s)
		return -ENOMEM;
	s->outer_fd = outer_fd;
	s->shape = *shape;
	s->budget = budget;
	s->shard_bytes = (size_t)shape->shard_elements * shape->element_bytes;
	s->shard_units = shard_units(shape);
	s->n_shards = slab_shards(shape);
	if (s->shard_bytes % (size_t)sysconf(_SC_PAGESIZE) || !s->n_shards)
		return -EINVAL;
	s->backed = calloc(s->n_shards, sizeof(*s->backed));
	if (!s->backed)
		return -ENOMEM;
	base = mmap(NULL, s->n_shards * s->shard_bytes, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	s->base = base;
	*ret = TAKE_PTR(s);
	return 0;
}

struct slab *slab_free(struct slab *s)
{
	if (!s)
		return NULL;
	if (s->base)
		munmap(s->base, s->n_shards * s->shard_bytes);
	free(s->backed);
	free(s);
	return NULL;
}

void *slab_memory(const struct slab *s)
{
	return s->base;
}

uint32_t slab_units(const struct slab *s)
{
	return s->n_shards * s->shard_units;
}

uint32_t slab_shard_units(const struct slab *s)
{
	return s->shard_units;
}

static void unmap_shard(struct slab *s, uint32_t shard)
{
	(void)mmap(s->base + shard * s->shard_bytes, s->shard_bytes, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

/* Creates a shard and maps it; the kernel does not know it yet. */
static int create_shard(struct slab *s, uint32_t shard, int *ret_fd)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
	_cleanup_close_ int fd =
	    bpf_map_create(BPF_MAP_TYPE_ARRAY, "kiln_shard", sizeof(uint32_t),
			   s->shape.element_bytes, s->shape.shard_elements, &options);

	if (fd < 0)
		return -errno;
	if (mmap(s->base + shard * s->shard_bytes, s->shard_bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/*
 * One grace period for all N where the kernel knows how (bpf_map_update_batch() of arrays of maps,
 * Linux 5.14; it waits once since 6.8). Returns how many are published, from the first on.
 */
static uint32_t publish_shards(struct slab *s, uint32_t *shards, int *fds, uint32_t n)
{
	uint32_t done = n;

	if (n > 1 && !bpf_map_update_batch(s->outer_fd, shards, fds, &done, NULL))
		return n;
	for (done = 0; done < n; done++)
		if (bpf_map_update_elem(s->outer_fd, &shards[done], &fds[done], BPF_ANY) < 0)
			break;
	return done;
}

/* The bytes that S may still take of its budget. */
static size_t budget_left(const struct slab *s)
{
	size_t limit;

	if (!s->budget)
		return SIZE_MAX;
	limit = s->budget->limit;
	if (s->shape.leaves_reserve)
		limit -= limit / RESERVE_PART;
	return limit > s->budget->used ? limit - s->budget->used : 0;
}

uint32_t slab_capacity(const struct slab *s)
{
	size_t more = MIN(budget_left(s) / s->shard_bytes, (size_t)s->n_shards - s->n_backed);

	return (s->n_backed + (uint32_t)more) * s->shard_units;
}

static int add_shards(struct slab *s, uint32_t *shards, int *fds, uint32_t n)
{
	uint32_t created = 0, published;
	int r = 0;

	if (n > budget_left(s) / s->shard_bytes)
		return -ENOSPC;
	while (created < n && !r) {
		r = create_shard(s, shards[created], &fds[created]);
		created += !r;
	}
	published = r ? 0 : publish_shards(s, shards, fds, n);
	if (!r && published < n)
		r = -errno;
	for (uint32_t i = 0; i < created; i++) {
		close(fds[i]);
		if (i >= published)
			unmap_shard(s, shards[i]);
		else
			s->backed[shards[i]] = true;
	}
	s->n_backed += published;
	if (s->budget)
		s->budget->used += published * s->shard_bytes;
	return r;
}

static void remove_shard(struct slab *s, uint32_t shard)
{
	if (bpf_map_delete_elem(s->outer_fd, &shard) < 0)
		return;
	unmap_shard(s, shard);
	s->backed[shard] = false;
	s->n_backed--;
	if (s->budget)
		s->budget->used -= s->shard_bytes;
}

int slab_back(struct slab *s, uint32_t at, uint32_t n)
{
	_cleanup_free_ uint32_t *shards = NULL;
	_cleanup_free_ int *fds = NULL;
	uint32_t first, last, missing = 0;

	if (!s || !n)
		return 0;
	if (n > slab_units(s) || at > slab_units(s) - n)
		return -ENOSPC;
	first = at / s->shard_units;
	last = (at + n - 1) / s->shard_units;
	for (uint32_t i = first; i <= last; i++)
		missing += !s->backed[i];
	if (!missing)
		return 0;
	shards = calloc(missing, sizeof(*shards));
	fds = calloc(missing, sizeof(*fds));
	if (!shards || !fds)
		return -ENOMEM;
	missing = 0;
	for (uint32_t i = first; i <= last; i++)
		if (!s->backed[i])
			shards[missing++] = i;
	return add_shards(s, shards, fds, missing);
}

bool slab_is_backed(const struct slab *s, uint32_t unit)
{
	return !s || (unit < slab_units(s) && s->backed[unit / s->shard_units]);
}

void slab_trim(struct slab *s, struct range_alloc *room, uint64_t now_ms, uint32_t max)
{
	if (!s)
		return;
	/* From the end: low places are handed out first. */
	for (uint32_t i = s->n_shards; i-- > 0 && max > 0;) {
		if (!s->backed[i] ||
		    !range_alloc_is_free(room, i * s->shard_units, s->shard_units, now_ms))
			continue;
		remove_shard(s, i);
		max--;
	}
}

size_t slab_bytes(const struct slab *s)
{
	return s ? s->n_backed * s->shard_bytes : 0;
}
