/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct probe_kernel: the BPF programs of probes, which are loaded while there is a probe: one set
 * that takes samples for each type of program that is needed (bpf/probe_sample.bpf.c and walkers),
 * and a small program for each probe (bpf/probe_hit.bpf.c). Loop thread.
 */
#pragma once

#include "bpf/types.h"
#include "lib/error.h"
#include "lib/probe_spec.h"

struct sampler;
struct probe_kernel;
/* S outlives it. */
int probe_kernel_new(struct sampler *s, struct probe_kernel **ret) _must_check_;
struct probe_kernel *probe_kernel_free(struct probe_kernel *k);
DEFINE_CLEANUP(struct probe_kernel *, probe_kernel_free)

/* A probe that is attached. */
struct probe_link;
/*
 * Loads and attaches SPEC under number NUMBER, whose counts start at 0. FD, OFFSET: for a uprobe,
 * its file and the offset in it. Errors name what the kernel lacks or does not know.
 */
int probe_kernel_attach(struct probe_kernel *k, uint32_t number, const struct probe_spec *spec,
			int fd, uint64_t offset, struct probe_link **ret,
			struct error *err) _must_check_;
struct probe_link *probe_link_free(struct probe_link *link);
DEFINE_CLEANUP(struct probe_link *, probe_link_free)

/* Reads the sums over all CPUs; `draw` is not filled in. Zeros when no probe was loaded yet. */
void probe_kernel_read(const struct probe_kernel *k, uint32_t number, struct kiln_probe *ret);
