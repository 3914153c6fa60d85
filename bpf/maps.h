/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The maps. Sizes that depend on the machine (ring, slabs) are set by user space before loading;
 * the numbers here are what a small machine gets. Flat arrays are mapped into user space
 * (mmapable): filling a row costs 2 ns there and a microsecond by system call.
 */
#pragma once

struct slot {
	uint32_t words[KILN_SLOT_BYTES / 4];
};

struct mapping_pair {
	struct kiln_mapping m[2];
};

struct record {
	union {
		struct kiln_sample head;
		uint8_t bytes[KILN_RECORD_MAX];
		uint64_t words[KILN_RECORD_MAX / 8];
	};
};

/* What one walk works with. In one value, so that one lookup finds all of it. */
struct scratch {
	struct kiln_walk walk;
	struct kiln_cache_entry rules[KILN_CACHE_ENTRIES] __attribute__((aligned(64)));
	struct kiln_cache_entry shared[KILN_SHARED_ENTRIES] __attribute__((aligned(64)));
	struct record record;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

/*
 * The slabs: flat arrays that grow and shrink a shard at a time, while the programs run. User space
 * adds shards and takes them away (agent/sampler/slab.h); where none is a lookup finds nothing.
 */
struct unwind_shard {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KILN_UNWIND_SHARD_SLOTS);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(struct slot));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__array(values, struct unwind_shard);
} unwind_slab SEC(".maps");

struct mapping_shard {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KILN_MAPPING_SHARD_PAIRS);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(struct mapping_pair));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__array(values, struct mapping_shard);
} mapping_slab SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, KILN_MAX_IMAGES);
	__type(key, uint32_t);
	__type(value, struct kiln_table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, uint32_t);
	__type(value, struct kiln_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, KILN_MAX_RUNTIMES);
	__type(key, struct kiln_runtime_key);
	__type(value, struct kiln_runtime);
} runtimes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KILN_MAX_POLICIES);
	__type(key, uint32_t);
	__type(value, struct kiln_policy);
} policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, KILN_MAX_CGROUPS);
	__type(key, uint64_t);
	__type(value, uint32_t);
} cgroup_policy SEC(".maps");

/* The ns that each policy has saved up towards its next sample, on this CPU: see select_policy().
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, KILN_MAX_POLICIES);
	__type(key, uint32_t);
	__type(value, uint64_t);
} policy_credit SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, uint32_t);
	__type(value, uint8_t);
} pid_filter SEC(".maps");

/*
 * Programs that a sample goes on with in a tail call: by enum kiln_runtime_id the walker of that
 * runtime, while it is loaded; at 0 the program that ends the sample. User space fills it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(uint32_t));
} walkers SEC(".maps");

/*
 * One a CPU, by its number; max_entries of this and the next is set to the CPUs. No per-CPU arrays:
 * their values end at 32 KiB, and only of plain ones does every kernel put the lookup into the
 * program itself. Mappable, because such memory is aligned to cache lines.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct scratch);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct kiln_cpu);
} cpus SEC(".maps");
