/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kiln.node.v1.Pod, written straight from a pod and its attributes: a cluster that starts anew has
 * some 150,000 of them written in seconds, and a tree of structs to be packed took three times as
 * long. Plain functions, any thread.
 */
#pragma once

#include "lib/buf.h"
#include "operator/cache/identity.h"
#include "operator/stream/node_view.h"

/*
 * Appends the fields of Pod except its policy and containers; adds to *CUT the attributes left out.
 */
void pod_message_head(struct buf *out, const struct pod_info *pod, const struct identity *identity,
		      uint64_t *cut);
/* A Container: IDENTITY NULL leaves its attributes out. */
void pod_message_container(struct buf *out, const char *name, const struct pod_container *c,
			   const struct identity *identity, uint64_t *cut);
/* Appends CONTAINER, what pod_message_container() made. */
void pod_message_add(struct buf *out, const struct buf *container);
