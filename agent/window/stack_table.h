/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The distinct stacks, interned. Two stacks are the same only if the mapset, the way they ended,
 * and every word of every frame are equal.
 *
 * Each stack is charged to an owner, a cgroup. When three quarters of the table are in use, an
 * owner that has more than its even part of the table gets only short new stacks (the frames next
 * to the leaf). In the last eighth such an owner, and in a full table every owner, gets the one
 * stack without frames, which always exists. So a full table costs detail and never a sample. Owned
 * by the loop thread; `named_*` belong to the naming worker while it runs, and no stack is freed
 * then.
 */
#pragma once

#include "agent/sampler/mapset.h"
#include "bpf/types.h"
#include "lib/uthash.h"

enum {
	STACKS_MAX = 131072,
	STACK_BYTES_MAX = 48 << 20,
	STACK_RUNTIMES = 4, /* runtimes counted per stack; frames of further ones are still named */
};

struct stack_key {
	uint32_t mapset; /* id; 0: none was known */
	uint32_t end;	 /* enum kiln_end */
	uint16_t n_kernel, n_user;
	uint32_t pad;
	uint64_t words[]; /* kernel addresses, then user frame words; leaf first */
};

struct stack_owner;
struct count;

/* The frames that a stack has of one runtime. */
struct stack_runtime {
	uint8_t id;
	uint8_t missing; /* enum kiln_missing */
	uint16_t frames;
};

struct stack {
	struct mapset *mapset; /* one of its refs; NULL: none was known */
	struct stack_owner *owner;
	uint32_t last_window;
	uint32_t named_build, named_stack; /* index in the batch that build NAMED_BUILD makes */
	uint32_t named_without;		   /* kernel frames at the leaf that are not shown */
	const char *named_cause; /* what threads with this stack wait for; NULL: not determined */
	/* The runtimes of its frames, up to an entry without an id; and the window in which they
	 * were named. */
	struct stack_runtime runtimes[STACK_RUNTIMES];
	uint32_t runtime_window;
	/* The drain in which it was looked at last, while a name is missing. */
	uint32_t runtime_round;
	/* Where the stack was counted last (window.c); valid only while the window has this
	 * round. */
	uint64_t counted_round;
	struct count *counted;
	UT_hash_handle hh;
	struct stack_key key; /* last: has a flexible tail */
};

struct stack_table;
int stack_table_new(struct stack_table **ret) _must_check_;
/* Replaces the limits STACKS_MAX and STACK_BYTES_MAX. */
void stack_table_limit(struct stack_table *t, size_t stacks, size_t bytes);
struct stack_table *stack_table_free(struct stack_table *t);
DEFINE_CLEANUP(struct stack_table *, stack_table_free)

/*
 * The interned stack, charged to OWNER if it is new. KERNEL and USER: n_kernel and n_user words. No
 * allocation if the stack is known. A stack for which there is no room is shortened, and that is
 * counted.
 */
int stack_table_get(struct stack_table *t, uint64_t owner, struct mapset *mapset, enum kiln_end end,
		    const uint64_t *kernel, uint16_t n_kernel, const uint64_t *user,
		    uint16_t n_user, uint32_t window, struct stack **ret) _must_check_;
/* The stack without frames, which the table does not count; it has no owner and lives as long as
 * the table. */
struct stack *stack_table_bare(struct stack_table *t);
/* While FULL, the table takes no new stacks, as if its limits were reached: memory is out. */
void stack_table_set_full(struct stack_table *t, bool full);
/*
 * Forgets stacks that were last seen before BEFORE_WINDOW. The limit is ENDED_BEFORE for stacks
 * whose mapset no process has any more, which cannot come again, and, in a nearly full table, for
 * stacks of owners with more than their part. ANY_ENDED: there may be such mapsets. Must not run
 * while a worker runs.
 */
void stack_table_sweep(struct stack_table *t, uint32_t before_window, uint32_t ended_before,
		       bool any_ended);
size_t stack_table_count(const struct stack_table *t);
size_t stack_table_bytes(const struct stack_table *t);
