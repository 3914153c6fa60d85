/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash maps allocate their entries on demand where the kernel lets perf event programs use such
 * maps: since Linux 6.1 (bpf_mem_alloc; before, the verifier demanded preallocated ones). A tiny
 * program is loaded to find out. Loop thread, at the start.
 */
#include "agent/sampler/map_sizes.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "profiler.skel.h"

enum {
	UNWIND_BYTES_MAX = 512 << 20, /* reserved addresses; memory is taken when needed */
	MAPPINGS_MAX = 4 << 20,
	PROCESSES_MIN = 4096,
	PROCESSES_MAX = 65536,
	BYTES_PER_PROCESS = 2 << 20, /* processes of a machine that is full are larger */
	RING_MIN = 1 << 20,
	RING_MAX = 16 << 20,
	RECORD_BYTES = 600, /* a sample of usual depth */
};

struct slab_shape map_sizes_unwind(const struct sampler_options *o)
{
	size_t bytes = o->unwind_bytes ? o->unwind_bytes : UNWIND_BYTES_MAX;

	return (struct slab_shape){
	    .element_bytes = KILN_SLOT_BYTES,
	    .shard_elements = KILN_UNWIND_SHARD_SLOTS,
	    .unit_bytes = KILN_SLOT_BYTES,
	    .units = (uint32_t)(bytes / KILN_SLOT_BYTES),
	    /* A table that finds no memory costs the callers of some frames; a process whose
	     * mappings find none loses all its user frames. */
	    .leaves_reserve = true,
	};
}

struct slab_shape map_sizes_mappings(const struct sampler_options *o)
{
	return (struct slab_shape){
	    .element_bytes = 2 * sizeof(struct kiln_mapping),
	    .shard_elements = KILN_MAPPING_SHARD_PAIRS,
	    .unit_bytes = sizeof(struct kiln_mapping),
	    .units = o->max_mappings ? o->max_mappings : MAPPINGS_MAX,
	};
}

uint32_t map_sizes_processes(uint64_t memory_bytes)
{
	uint32_t n = PROCESSES_MIN;

	while (n < PROCESSES_MAX && n < memory_bytes / BYTES_PER_PROCESS)
		n *= 2;
	return n;
}

static uint64_t machine_memory(void)
{
	struct sysinfo info;

	return sysinfo(&info) < 0 ? 0 : (uint64_t)info.totalram * info.mem_unit;
}

/*
 * The ring has room for the samples of all CPUs in half a second, or in an eighth of a second at
 * the highest rate; and for at least two copies of stacks for each CPU, because each may meet a new
 * process. The reader is woken when the ring is half full; the other half is for records that come
 * before the reader runs.
 */
uint32_t map_sizes_ring(const struct sampler_options *o, uint32_t cpus)
{
	size_t second = (size_t)RECORD_BYTES * cpus,
	       want = MAX(o->hz * second / 2, o->max_hz * second / 8);
	uint32_t n = RING_MIN;

	want = MAX(want, (size_t)cpus * 2 * KILN_DUMP_SMALL);
	if (o->ring_bytes)
		want = o->ring_bytes;
	while (n < want && n < RING_MAX)
		n *= 2;
	return n;
}

/* Does the kernel load a perf event's program that uses a hash map without preallocated entries? */
static bool can_allocate_late(void)
{
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_NO_PREALLOC);
	_cleanup_close_ int map = bpf_map_create(BPF_MAP_TYPE_HASH, "kiln_probe", sizeof(uint32_t),
						 sizeof(uint32_t), 1, &options);
	/* Two slots: r1 = map; then r0 = 0; exit. */
	const struct bpf_insn program[] = {
	    {.code = BPF_DW | BPF_IMM, /* BPF_LD is 0 as well */
	     .dst_reg = BPF_REG_1,
	     .src_reg = BPF_PSEUDO_MAP_FD,
	     .imm = map},
	    {},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	_cleanup_close_ int loaded = -1;

	if (map < 0)
		return false;
	loaded = bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "kiln_probe", "GPL", program,
			       ARRAY_SIZE(program), NULL);
	return loaded >= 0;
}

static int allocate_late(struct profiler *skel)
{
	struct bpf_map *const maps[] = {skel->maps.processes, skel->maps.runtimes,
					skel->maps.cgroup_policy, skel->maps.pid_filter};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
		r |= bpf_map__set_map_flags(maps[i],
					    bpf_map__map_flags(maps[i]) | BPF_F_NO_PREALLOC);
	return r;
}

int map_sizes_set(struct profiler *skel, const struct sampler_options *o, uint32_t cpus)
{
	const struct slab_shape unwind = map_sizes_unwind(o), mappings = map_sizes_mappings(o);
	uint32_t processes =
	    o->max_processes ? o->max_processes : map_sizes_processes(machine_memory());
	uint32_t ring = map_sizes_ring(o, cpus);
	int r = 0;

	r |= bpf_map__set_max_entries(skel->maps.ring, ring);
	skel->rodata->ring_shift = (uint32_t)__builtin_ctz(ring);
	skel->rodata->ring_unasked = ring / 16 / cpus;
	r |= bpf_map__set_max_entries(skel->maps.unwind_slab, slab_shards(&unwind));
	r |= bpf_map__set_max_entries(skel->maps.mapping_slab, slab_shards(&mappings));
	r |= bpf_map__set_max_entries(skel->maps.processes, processes);
	r |= bpf_map__set_max_entries(skel->maps.scratch, cpus);
	r |= bpf_map__set_max_entries(skel->maps.cpus, cpus);
	r |= bpf_map__set_max_entries(skel->maps.pid_filter, (uint32_t)MAX(o->n_pids, 1));
	if (can_allocate_late())
		r |= allocate_late(skel);
	return r ? -EINVAL : 0;
}
