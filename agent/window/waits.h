/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct waits: the current waits of threads. The sample of a context switch is held here until the
 * kernel reports how long the wait was. At the end of each window the time so far is counted, so a
 * thread that never wakes up is seen too. Owned by the loop thread.
 */
#pragma once

#include "agent/window/window.h"

enum { WAITS_MAX = 65536 };

struct waits;
int waits_new(struct waits **ret) _must_check_;
struct waits *waits_free(struct waits *w);
DEFINE_CLEANUP(struct waits *, waits_free)

/*
 * The time in ns that a wait of NS stands for if it was walked with CHANCE (out of
 * KILN_OFF_CPU_CERTAIN). UINT64_MAX if it is larger than that.
 */
uint64_t waits_weigh(uint64_t ns, uint64_t chance);

/*
 * A wait began at BEGAN. S is its sample; S->value is the chance with which it was walked. If the
 * end is known already, the wait is counted into WINDOW, else it is kept. -ENOSPC, -ENOMEM, or what
 * window_add() returns: the wait is lost.
 */
int waits_begin(struct waits *w, const struct window_sample *s, uint64_t began,
		struct window *window) _must_check_;
/* A wait has ended: counts the part that was not counted yet into WINDOW. Errors as above. */
int waits_end(struct waits *w, const struct kiln_wait_end *end, struct window *window) _must_check_;
/*
 * WINDOW ends: counts the time of each wait until NOW, and marks its stack and process as used.
 * WAITS tells whether a thread is still in this wait; a wait that is over, but whose end was not
 * reported, is forgotten. Returns the first error of window_add().
 */
int waits_credit(struct waits *w, uint64_t now, struct window *window,
		 bool (*waits)(void *arg, uint32_t tid, uint64_t began), void *arg) _must_check_;
/*
 * The kernel's exact totals of how long each thread waited. DUE: the ns until NOW that were not
 * reported yet (negative: more was reported than waited), and whether the thread has ended; false:
 * not known. TOLD: NS have been reported.
 */
struct waits_truth {
	bool (*due)(void *arg, uint32_t tid, uint64_t now, int64_t *ret_ns, bool *ret_ended);
	void (*told)(void *arg, uint32_t tid, uint64_t ns);
	void *arg;
};
/*
 * Corrects the sums of the threads in WINDOW, which are estimates, to the exact ones, by a factor
 * of two at most: the remaining difference is due in the next window. A thread that has ended has
 * no next window, so its sum is corrected by any factor.
 */
void waits_calibrate(struct window *window, uint64_t now, const struct waits_truth *truth);
size_t waits_count(const struct waits *w);
