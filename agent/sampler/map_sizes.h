/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of the BPF maps, chosen by the options and by the machine's CPUs and memory. Set
 * between open and load; only the slabs (slab.h) change afterwards.
 */
#pragma once

#include "agent/sampler/sampler.h"
#include "agent/sampler/slab.h"

struct profiler; /* the skeleton of bpf/profiler.bpf.c */

struct slab_shape map_sizes_unwind(const struct sampler_options *o);
struct slab_shape map_sizes_mappings(const struct sampler_options *o);
/* Bytes of the ring, a power of 2. */
uint32_t map_sizes_ring(const struct sampler_options *o, uint32_t cpus);
/* CPUS: room for CPUs. The number of a CPU is the index of its entries. */
int map_sizes_set(struct profiler *skel, const struct sampler_options *o,
		  uint32_t cpus) _must_check_;
/*
 * Entries of `processes` on a machine with so much memory: one for each 2 MiB within bounds, a
 * power of 2. Where the kernel allocates entries on demand, an unused one costs only a bucket of
 * the hash table (16 bytes).
 */
uint32_t map_sizes_processes(uint64_t memory_bytes);
