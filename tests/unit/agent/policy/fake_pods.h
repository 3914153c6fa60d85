/* SPDX-License-Identifier: Apache-2.0 */
/* A pod table that a test writes by hand: the functions of agent/meta/pods.h that policies ask. */
#pragma once

#include "agent/meta/pods.h"

struct pod_table {
	struct pod_entry pods[64];
	size_t n_pods;
	struct pod_policy policies[512];
	size_t n_policies;
	const struct pod_policy *fallback;
};
