/* SPDX-License-Identifier: Apache-2.0 */
/* A pod table that a test writes by hand: the functions of agent/meta/pods.h that policies ask. */
#pragma once

#include "agent/meta/pod_object.h"
#include "agent/meta/pods.h"

struct pod_table {
	struct pod_object pods[64]; /* whole ones, because references are counted in them */
	size_t n_pods;
	struct pod_policy policies[512];
	size_t n_policies;
	const struct pod_policy *fallback;
};
