/* SPDX-License-Identifier: Apache-2.0 */
/* For tests without agent/meta, which has the function of this name. */
#include "tests/unit/agent/policy/fake_pods.h"

const struct pod_container *pod_entry_container(const struct pod_entry *e, const uint8_t id[32])
{
	for (size_t i = 0; i < e->n_containers; i++)
		if (e->containers[i].has_id && !memcmp(e->containers[i].id, id, 32))
			return &e->containers[i];
	return NULL;
}
