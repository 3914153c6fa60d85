/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attributes of a process's Resource (design §4.3): container or executable, host, Kubernetes,
 * service, what the configuration adds. Naming worker only.
 */
#pragma once

#include "agent/config/config.h"
#include "agent/policy/policy.h"
#include "agent/process/process_table.h"
#include "agent/profile/batch.h"

enum { RESOURCE_ATTRS_MAX = 30 }; /* Pyroscope refuses series with more than 30 labels */

struct resource_builder;
/* CONFIG outlives it. */
int resource_builder_new(const struct config *config, struct resource_builder **ret) _must_check_;
struct resource_builder *resource_builder_free(struct resource_builder *r);

/* The index in B of the resource of P. WHO: what the operator told of it, NULL for nothing. */
uint32_t resource_of(struct resource_builder *r, struct batch_builder *b, const struct process *p,
		     const struct identity *who);
