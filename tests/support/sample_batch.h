/* SPDX-License-Identifier: Apache-2.0 */
/* Batches made by hand, for the tests of encoders and exporters. */
#pragma once

#include "agent/profile/batch.h"

enum { SAMPLE_BATCH_START = 1760000000, SAMPLE_BATCH_PERIOD = 50000000 };

/*
 * The seed's kube-apiserver (a container; 3 events of one stack, 1 of another thread's), a host
 * process "worker" with inlined C++ and off-CPU time (2 events, 1500 ns), and a frame without file.
 * CPU events: 6.
 */
int sample_batch_build(struct batch **ret) _must_check_;
/* N distinct stacks of 20 frames over n / 2 functions, each seen i % 7 + 1 times. */
int sample_batch_large(uint32_t n, struct batch **ret) _must_check_;
/* A window of a second from START_MS with one sample each of N stacks of one frame, called f<FROM>
 * and so on. */
int sample_batch_flat(uint32_t n, uint32_t from, uint64_t start_ms,
		      struct batch **ret) _must_check_;
