/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct map_notes: the latest execs and executable file mappings of all processes, as the kernel
 * reports them (sideband.h). They stand in for /proc/PID/maps of a program that ended before the
 * agent read it, as programs do that live a few milliseconds.
 *
 * The number of notes is bounded: the oldest are dropped first. Owned by the loop thread.
 */
#pragma once

#include "agent/process/maps.h"
#include "agent/sampler/sideband.h"

enum {
	MAP_NOTES_MAX = 4096,		 /* a program that starts makes about six */
	MAP_NOTES_BYTES_MAX = 512 << 10, /* of paths */
	MAP_NOTES_PROGRAM_MAX = 512, /* of one program: sorting its mappings must not take long */
};

struct map_notes;
int map_notes_new(struct map_notes **ret) _must_check_;
struct map_notes *map_notes_free(struct map_notes *n);

/* PATH: as the kernel shows it, "" for none. Out of memory, the note counts as lost. */
void map_notes_mapped(struct map_notes *n, const struct sideband_mapping *m, const char *path);
void map_notes_executed(struct map_notes *n, uint32_t tgid, uint64_t time_ns);
/*
 * Notes up to NOW_NS may be missing: map_notes_read() fails for programs that were executed before.
 */
void map_notes_lost(struct map_notes *n, uint64_t now_ns);

/* Has TGID executed a program in (SINCE_NS, UNTIL_NS]? Where notes of that time are missing: yes.
 */
bool map_notes_may_have_executed(const struct map_notes *n, uint32_t tgid, uint64_t since_ns,
				 uint64_t until_ns);
/*
 * The mappings at TIME_NS of the program that TGID executed last before it, and after START_NS,
 * when the process began: an earlier exec was that of another process with this pid. All times are
 * CLOCK_MONOTONIC. Sorted and disjoint. -ENOENT: not all mappings are known (there is no note of
 * the exec, notes were dropped or lost, or there are more than MAP_NOTES_PROGRAM_MAX); -ENOMEM.
 */
int map_notes_read(const struct map_notes *n, uint32_t tgid, uint64_t start_ns, uint64_t time_ns,
		   struct maps *ret) _must_check_;
