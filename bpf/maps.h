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

/* The working memory of one walk, in one map value, so that one lookup finds all of it. */
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
 * adds and removes shards (agent/sampler/slab.h). A lookup in a shard that does not exist returns
 * NULL.
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

/* On each CPU, by policy: ns saved up towards the next sample. See select_policy(). */
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
 * The targets of a sample's tail calls. At an enum kiln_runtime_id: the walker of that runtime,
 * while it is loaded. At 0: the program that ends the sample. Filled by user space.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__uint(key_size, sizeof(uint32_t));
	__uint(value_size, sizeof(uint32_t));
} walkers SEC(".maps");

/*
 * One value for each CPU, by its number; user space sets max_entries of this map and the next to
 * the CPUs that it expects (agent/sampler/cpus.h: cpus_room()). A CPU that was added beyond them
 * has no value: it is not sampled. Not per-CPU arrays: their values are limited to 32 KiB, and only
 * lookups in plain arrays are inlined into the program by every kernel. Mappable, because such
 * memory is aligned to cache lines.
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
