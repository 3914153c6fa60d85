/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/agent/policy/fake_pods.h"

const struct pod_entry *pod_table_find_container(const struct pod_table *t, const uint8_t id[32])
{
	for (size_t i = 0; i < t->n_pods; i++)
		if (pod_entry_container(&t->pods[i].pod, id))
			return &t->pods[i].pod;
	return NULL;
}

const struct pod_entry *pod_table_find_uid(const struct pod_table *t, const char *uid)
{
	for (size_t i = 0; i < t->n_pods; i++)
		if (streq(t->pods[i].pod.uid, uid))
			return &t->pods[i].pod;
	return NULL;
}

const struct pod_policy *pod_table_policy(const struct pod_table *t, uint64_t id)
{
	for (size_t i = 0; i < t->n_policies; i++)
		if (t->policies[i].id == id)
			return &t->policies[i];
	return NULL;
}

const struct pod_policy *pod_table_default_policy(const struct pod_table *t)
{
	return t->fallback;
}

void pod_table_policies(const struct pod_table *t,
			bool (*fn)(const struct pod_policy *p, void *arg), void *arg)
{
	for (size_t i = 0; i < t->n_policies; i++)
		if (!fn(&t->policies[i], arg))
			break;
}
