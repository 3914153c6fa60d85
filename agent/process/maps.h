/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/maps (Documentation/filesystems/proc.rst §1.1), only its executable lines. */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

enum {
	MAPS_ENTRIES_MAX =
	    16384, /* executable mappings of one process; more are dropped, counted */
	MAPS_FILE_MAX = 64 << 20, /* bytes of text read at most */
};

/* Not MAP_FILE and so on: <sys/mman.h> has macros of those names. */
enum map_kind {
	MAPPING_FILE,
	MAPPING_VDSO,
	MAPPING_ANON,  /* JIT code, also memfd:, /dev/zero, [anon:...], [heap], [stack] */
	MAPPING_OTHER, /* [vsyscall], [uprobes]: no unwinding through it */
};

struct map_entry {
	uint64_t start, end, offset; /* bytes */
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	enum map_kind kind;
	bool deleted; /* " (deleted)" was at the end of the path; it is cut off */
	char *path;   /* unescaped (\012), "" for none */
};

struct maps {
	struct map_entry *entries; /* sorted by start */
	size_t n;
	size_t cap;
	size_t dropped, malformed; /* lines */
	/* A mapping, executable or not, is named OTEL_CTX: the process publishes labels
	 * (docs/labels.md). */
	bool has_context;
};

/* Does the file at PATH only back memory that a process shares (/dev/zero, memfd:)? */
bool maps_is_memory(const char *path);
/* Parses the whole text. Malformed lines are skipped and counted. */
int maps_parse(const char *text, size_t len, struct maps *ret) _must_check_;
/*
 * Adds a mapping that was made after those of MAPS, and replaces those that it overlaps. AT: its
 * range, offset and file. PATH: unescaped, as the kernel shows it. Beyond MAPS_ENTRIES_MAX it is
 * dropped.
 */
int maps_add(struct maps *maps, const struct map_entry *at, const char *path) _must_check_;
/* Reads PROC_DIRFD's PID/maps. -ESRCH when the process is gone or has no memory of its own. */
int maps_read(int proc_dirfd, uint32_t pid, struct maps *ret) _must_check_;
/*
 * Gets the executable mappings by the ioctl PROCMAP_QUERY, one at a time, in about a quarter of the
 * time of maps_read(). `has_context` stays false, and [vsyscall] is missing. -ESRCH as above;
 * -ENOTTY: the kernel has no such ioctl (Linux before 6.11).
 */
int maps_query(int proc_dirfd, uint32_t pid, struct maps *ret) _must_check_;
void maps_done(struct maps *maps);
/* The one mapping that holds ADDRESS, executable or not. -ENOENT: none; -ESRCH as above. */
int maps_find(int proc_dirfd, uint32_t pid, uint64_t address, uint64_t *ret_start,
	      uint64_t *ret_end) _must_check_;
