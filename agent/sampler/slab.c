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

static void unmap_shard(struct slab *s, uint32_t shard)
{
	(void)mmap(s->base + shard * s->shard_bytes, s->shard_bytes, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static int add_shard(struct slab *s, uint32_t shard)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_MMAPABLE);
	_cleanup_close_ int fd = -1;
	uint32_t inner;
	int r;

	if (s->budget && s->budget->used + s->shard_bytes > s->budget->limit)
		return -ENOSPC;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "kiln_shard", sizeof(uint32_t),
			    s->shape.element_bytes, s->shape.shard_elements, &options);
	if (fd < 0)
		return -errno;
	if (mmap(s->base + shard * s->shard_bytes, s->shard_bytes, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return -errno;
	inner = (uint32_t)fd;
	if (bpf_map_update_elem(s->outer_fd, &shard, &inner, BPF_ANY) < 0) {
		r = -errno;
		unmap_shard(s, shard);
		return r;
	}
	s->backed[shard] = true;
	s->n_backed++;
	if (s->budget)
		s->budget->used += s->shard_bytes;
	return 0;
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
	if (!s || !n)
		return 0;
	if (n > slab_units(s) || at > slab_units(s) - n)
		return -ENOSPC;
	for (uint32_t i = at / s->shard_units; i <= (at + n - 1) / s->shard_units; i++) {
		int r = s->backed[i] ? 0 : add_shard(s, i);

		if (r < 0)
			return r;
	}
	return 0;
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
