/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many entries the BPF maps have, by what the machine has and may need. Set between open and
 * load; only the slabs (slab.h) change afterwards.
 */
#pragma once

#include "agent/sampler/sampler.h"
#include "agent/sampler/slab.h"

struct profiler; /* the skeleton of bpf/profiler.bpf.c */

struct slab_shape map_sizes_unwind(const struct sampler_options *o);
struct slab_shape map_sizes_mappings(const struct sampler_options *o);
/* Bytes of the ring, a power of 2. */
uint32_t map_sizes_ring(const struct sampler_options *o, uint32_t cpus);
/* CPUS: possible ones, by which per-CPU entries are addressed. */
int map_sizes_set(struct profiler *skel, const struct sampler_options *o,
		  uint32_t cpus) _must_check_;
/*
 * Entries of `processes` on a machine with so much memory: one for each 2 MiB, a power of 2. Only
 * the hash table's buckets (16 bytes each) are there before the processes are.
 */
uint32_t map_sizes_processes(uint64_t memory_bytes);
