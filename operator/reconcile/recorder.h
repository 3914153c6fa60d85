/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct recorder: the Kubernetes Events of the leader, on change only: the same note about the
 * same object is not sent again within ten minutes, and at most RECORDER_PER_MINUTE are sent.
 * Replicas see the same causes, so followers send none. Loop thread only.
 */
#pragma once

#include "operator/kube/write.h"

enum { RECORDER_PER_MINUTE = 60, RECORDER_REMEMBERED = 1024 };

struct recorder;
/* INSTANCE: copied. MAY_WRITE(ARG): true while this replica is the leader. -ENOMEM. */
int recorder_new(uv_loop_t *loop, struct kube_client *client, const char *instance,
		 bool (*may_write)(void *arg), void *arg, struct recorder **ret) _must_check_;
struct recorder *recorder_free(struct recorder *r);
DEFINE_CLEANUP(struct recorder *, recorder_free)

/* EVENT's `instance` is filled in. A follower's event is not sent, remembered or counted. An event
 * of the leader that cannot be sent is counted as dropped and not tried again. */
void recorder_emit(struct recorder *r, struct kube_event event);
uint64_t recorder_sent(const struct recorder *r);
uint64_t recorder_dropped(const struct recorder *r);
