/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sideband: the kernel's own notes of executable mappings and of execs (PERF_RECORD_MMAP2
 * and PERF_RECORD_COMM, perf_event_open(2)), so that mappings that changed are not used a moment
 * longer. Each new mapping of code wakes the loop while they are rare; when they come by the dozens
 * (builds), a timer reads them every few milliseconds, less often while they are of processes that
 * nobody knows. A ring that loses notes twice within seconds is made larger. Owned by the loop
 * thread.
 */
#pragma once

#include <uv.h>

#include "lib/base.h"
#include "lib/error.h"

struct sideband_mapping {
	uint32_t tgid;
	uint32_t dev_major, dev_minor;
	uint64_t inode;			/* 0: no file, or one that only backs memory */
	uint64_t start, length, offset; /* bytes */
	uint64_t time;			/* CLOCK_MONOTONIC, ns */
};

struct sideband_callbacks {
	/* A new executable mapping. False: the process is not known; its next notes in this
	 * reading are left out. */
	bool (*mapped)(const struct sideband_mapping *m, void *arg);
	/*
	 * Called for each executable mapping of a file or of the vdso, before `mapped`. PATH: the
	 * kernel's text, valid during the call. NULL: not wanted.
	 */
	void (*noted)(const struct sideband_mapping *m, const char *path, void *arg);
	/* The process has executed a program. TIME: CLOCK_MONOTONIC, ns. */
	void (*executed)(uint32_t tgid, uint64_t time, void *arg);
	/* Notes that were made since SINCE_NS (CLOCK_MONOTONIC) were lost: any process may have new
	 * mappings. Once a reading of the rings. */
	void (*lost)(uint64_t since_ns, void *arg);
	void *arg;
};

struct sideband;
int sideband_new(uv_loop_t *loop, const struct sideband_callbacks *callbacks, struct sideband **ret,
		 struct error *err) _must_check_;
/* The memory is freed once the loop has closed its handles. Takes NULL, returns NULL. */
struct sideband *sideband_free(struct sideband *s);

/*
 * Closes the rings of CPUs that went offline and opens those of CPUs that came online; to be called
 * now and then. ONLINE: the file for cpus_read(), NULL: CPUS_ONLINE. -errno: the ring of a CPU
 * could not be opened; the next call tries again.
 */
int sideband_refresh(struct sideband *s, const char *online, struct error *err) _must_check_;
/* Reads all notes in the rings. To be called before samples are read. */
void sideband_drain(struct sideband *s);
