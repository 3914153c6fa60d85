/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct perf_map: functions that a just-in-time compiler lists in /tmp/perf-PID.map. Lines "START
 * SIZE NAME", the numbers in hex (Linux, tools/perf/Documentation/jit-interface.txt); the file only
 * grows, and code is overwritten: of overlapping ranges the later line wins. One thread at a time.
 */
#pragma once

#include <sys/types.h>

#include "lib/base.h"

enum {
	PERF_MAP_ENTRIES_MAX = 128 << 10,
	PERF_MAP_NAMES_MAX = 8 << 20,
	PERF_MAP_NAME_MAX = 1024,	/* longer ones are cut */
	PERF_MAP_FILE_MAX = 128 << 20,	/* bytes of a file that are read at all */
	PERF_MAP_UPDATE_MAX = 16 << 20, /* at one update; the rest at the next one */
};

struct perf_map;

struct perf_map_symbol {
	uint64_t start, end; /* the piece [start, end) */
	const char *name;    /* until the next update */
};

int perf_map_new(struct perf_map **ret) _must_check_;
struct perf_map *perf_map_free(struct perf_map *m);
DEFINE_CLEANUP(struct perf_map *, perf_map_free)

/*
 * Opens the map of process PID: in its root, under its innermost pid. It must be a regular file
 * with one link that belongs to the process's user or to root. Returns the descriptor or a negative
 * errno: -ENOENT when there is none, -EPERM when it cannot be trusted.
 */
struct foreign;
int perf_map_open(struct foreign *foreign, const char *proc, pid_t pid);

/* Reads what FD's file has grown by; starts over when it is another file or a shorter one. */
int perf_map_update(struct perf_map *m, int fd);
/*
 * The parser without a file: perf_map_feed() takes whole lines, and perf_map_settle() makes them
 * visible to perf_map_find().
 */
int perf_map_feed(struct perf_map *m, const char *data, size_t len);
int perf_map_settle(struct perf_map *m);

bool perf_map_find(const struct perf_map *m, uint64_t address, struct perf_map_symbol *ret);
size_t perf_map_count(const struct perf_map *m);
size_t perf_map_bytes(const struct perf_map *m);
