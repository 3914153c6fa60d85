/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct waits: what threads wait for now. A sample of a switch is held here until the kernel tells
 * how long the wait was, and at the end of each window what it lasted so far is counted: who never
 * wakes is seen too. Owned by the loop thread.
 */
#pragma once

#include "agent/window/window.h"

enum { WAITS_MAX = 65536 };

struct waits;
int waits_new(struct waits **ret) _must_check_;
struct waits *waits_free(struct waits *w);
DEFINE_CLEANUP(struct waits *, waits_free)

/*
 * The ns that a wait of NS stands for that was walked with CHANCE (of KILN_OFF_CPU_CERTAIN).
 * UINT64_MAX when it is more than that.
 */
uint64_t waits_weigh(uint64_t ns, uint64_t chance);

/*
 * S, whose value is its chance, began to wait at BEGAN. It is counted into WINDOW at once as far as
 * its end is known, and kept otherwise. -ENOSPC, -ENOMEM, or what window_add() returns: it is lost.
 */
int waits_begin(struct waits *w, const struct window_sample *s, uint64_t began,
		struct window *window) _must_check_;
/* END was told; what is left of that wait is counted into WINDOW. As above. */
int waits_end(struct waits *w, const struct kiln_wait_end *end, struct window *window) _must_check_;
/*
 * WINDOW ends: what passed until NOW of each wait is counted, and its stack and process are marked
 * as used. WAITS tells whether a thread still waits; who does not, and whose end was not told, is
 * forgotten. Returns the first error of window_add().
 */
int waits_credit(struct waits *w, uint64_t now, struct window *window,
		 bool (*waits)(void *arg, uint32_t tid, uint64_t began), void *arg) _must_check_;
/*
 * What the kernel knows exactly: how long each thread waited. DUE: the ns until NOW that were not
 * told (negative: more was told than there was); false: not known. TOLD: NS were.
 */
struct waits_truth {
	bool (*due)(void *arg, uint32_t tid, uint64_t now, int64_t *ret_ns);
	void (*told)(void *arg, uint32_t tid, uint64_t ns);
	void *arg;
};
/*
 * The sums of threads in WINDOW, which are estimates, become what is due, but change by a factor of
 * two at most: what is left over is due in the next window.
 */
void waits_calibrate(struct window *window, uint64_t now, const struct waits_truth *truth);
size_t waits_count(const struct waits *w);
