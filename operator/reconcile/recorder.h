/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct recorder: events for people (`kubectl describe`), on change only: the same note about the
 * same object is not told again within ten minutes, and at most RECORDER_PER_MINUTE go out. Loop
 * thread only.
 */
#pragma once

#include "operator/kube/write.h"

enum { RECORDER_PER_MINUTE = 60, RECORDER_REMEMBERED = 1024 };

struct recorder;
int recorder_new(uv_loop_t *loop, struct kube_client *client, const char *instance,
		 struct recorder **ret) _must_check_;
struct recorder *recorder_free(struct recorder *r);
DEFINE_CLEANUP(struct recorder *, recorder_free)

/* EVENT's `instance` is filled in. What cannot be sent is counted, nothing waits for it. */
void recorder_emit(struct recorder *r, struct kube_event event);
uint64_t recorder_sent(const struct recorder *r);
uint64_t recorder_dropped(const struct recorder *r);
