/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct thread_names: keeps the names that runtimes have for threads, because each sample asks for
 * one. The kernel has only 15 bytes of a name. Owned by the loop thread.
 */
#pragma once

#include "agent/runtime/runtime.h"

enum {
	THREAD_NAME_MAX = 256, /* bytes with the NUL */
	THREAD_NAMES_MAX = 16384,
	THREAD_NAME_KEEP_MS = 10000, /* then it is read again: it may have changed */
	THREAD_NAME_RETRY_MIN_MS = 500,
	THREAD_NAME_RETRY_MAX_MS = 60000,
};

/* A thread (SPACE: the name space of its process and runtime), and the kernel's name of it. */
struct thread_name_key {
	uint32_t space, tid;
	char comm[KILN_COMM_LEN]; /* zeroes behind its end */
};

struct thread_name {
	struct thread_name_key key;
	char *name;		  /* NULL: not known */
	uint64_t due_ms, wait_ms; /* when it may be asked for again, and the last wait */
	uint32_t last_window;
	UT_hash_handle hh;
};

struct thread_names;
int thread_names_new(struct thread_names **ret) _must_check_;
/* Takes NULL, returns NULL. */
struct thread_names *thread_names_free(struct thread_names *n);
/*
 * Returns the thread's entry, making it if needed, and marks it as used in WINDOW. NULL: no room,
 * or no memory.
 */
struct thread_name *thread_names_get(struct thread_names *n, const struct thread_name_key *key,
				     uint32_t window);
/*
 * Stores what asking for the name of E at NOW_MS has given: NAME, which is copied, or NULL and
 * ERROR (-errno).
 */
void thread_names_set(struct thread_name *e, const char *name, int error, uint64_t now_ms);
/* Forgets names that no sample has had since the window BEFORE_WINDOW. */
void thread_names_sweep(struct thread_names *n, uint32_t before_window);
