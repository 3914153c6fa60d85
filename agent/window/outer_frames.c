/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The words are compared from the end. A frame may have two words, and its second word may look
 * like a first one, so frame boundaries are only known when walking from the front. Any thread.
 */
#include "agent/window/outer_frames.h"

static uint32_t next_frame(const uint64_t *words, uint32_t n, uint32_t at)
{
	return MIN(at + kiln_frame_words(words[at]), n);
}

struct outer_frames outer_frames_shared(const uint64_t *a, uint32_t n_a, const uint64_t *b,
					uint32_t n_b)
{
	struct outer_frames shared = {};
	uint32_t same = 0, at_b = 0;

	while (same < MIN(n_a, n_b) && a[n_a - 1 - same] == b[n_b - 1 - same])
		same++;
	/* Advance both to frame boundaries that are equally far from the end, within the equal
	 * words. */
	while (n_a - shared.at > same || n_a - shared.at != n_b - at_b) {
		if (n_a - shared.at >= n_b - at_b) {
			shared.at = next_frame(a, n_a, shared.at);
			continue;
		}
		at_b = next_frame(b, n_b, at_b);
		shared.frames++;
	}
	return shared;
}
