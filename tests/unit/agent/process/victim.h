/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real processes for tests: a child that maps one file executable, after SETUP has changed its
 * namespaces, and then waits until the test ends it. No other process is touched.
 */
#pragma once

#include <sys/types.h>

#include "agent/process/maps.h"

struct victim {
	pid_t pid;
	int hold; /* the child ends when this is closed */
};

/*
 * SETUP runs in the child; it may write another path to PATH. Nonzero: the child exits. NULL: none.
 */
int victim_start(const char *file, int (*setup)(char *path, size_t size, void *arg), void *arg,
		 struct victim *ret);
/* Executes FILE, a copy of cat. */
int victim_exec(const char *file, struct victim *ret);
/* Ends and reaps it; twice is fine. */
void victim_end(struct victim *victim);

/* A new directory below /tmp, removed with all that is in it by dir_remove(). */
char *dir_make(void);
void dir_remove(char *dir);
int file_copy(const char *from, const char *to);
int file_write(const char *path, const char *text);

int proc_open(void);
/* Makes a directory in place of /proc that has only PID/root, as without map_files. */
int proc_open_roots_only(const char *dir, pid_t pid);
/* The executable mapping of PID whose path ends with SUFFIX; the maps live in RET. */
const struct map_entry *find_mapping(int procfd, pid_t pid, const char *suffix, struct maps *ret);

/*
 * caps_drop() removes CAPS from this process's effective set; caps_restore() adds all of them
 * again.
 */
void caps_drop(const unsigned int *caps, size_t n);
void caps_restore(void);
