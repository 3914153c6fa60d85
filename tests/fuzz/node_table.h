/* SPDX-License-Identifier: Apache-2.0 */
/* Asserts the invariants of a pod table; for the fuzz targets of the node stream. */
#pragma once

#include "agent/meta/pods_update.h"

static inline void check_attributes(const struct pod_attribute *a, size_t n)
{
	size_t i, k;

	if (n > POD_ATTRIBUTES_MAX)
		abort();
	for (i = 0; i < n; i++) {
		if (!*a[i].key || strlen(a[i].key) > POD_KEY_MAX ||
		    strlen(a[i].value) > POD_VALUE_MAX || a[i].n_values > POD_VALUES_MAX)
			abort();
		for (k = 0; k < a[i].n_values; k++) {
			if (strlen(a[i].values[k]) > POD_VALUE_MAX)
				abort();
		}
	}
}

static inline bool check_pod(const struct pod_entry *e, void *arg)
{
	const struct pod_table *t = arg;
	size_t i;

	if (pod_table_find_uid(t, e->uid) != e || strlen(e->name) > POD_NAME_MAX ||
	    e->n_containers > POD_CONTAINERS_MAX)
		abort();
	if (*e->config_hash && !pod_table_find_uid(t, e->config_hash))
		abort();
	check_attributes(e->attributes, e->n_attributes);
	for (i = 0; i < e->n_containers; i++) {
		const struct pod_container *c = &e->containers[i];

		check_attributes(c->attributes, c->n_attributes);
		if ((c->has_id && !pod_table_find_container(t, c->id)) ||
		    (c->has_previous_id && !pod_table_find_container(t, c->previous_id)))
			abort();
	}
	return true;
}

static inline bool check_policy(const struct pod_policy *p, void *arg)
{
	if (p->hz > POD_HZ_MAX || (p->enabled && !p->hz) || p->off_cpu_per_mille > 1000 ||
	    pod_table_policy(arg, p->id) != p)
		abort();
	return true;
}

static inline bool check_destination(const struct pod_destination *d, void *arg)
{
	if (pod_table_destination(arg, d->id) != d || d->n_headers > POD_HEADERS_MAX)
		abort();
	return true;
}

static inline void check_table(struct pod_table *t)
{
	pod_table_pods(t, check_pod, t);
	pod_table_policies(t, check_policy, t);
	pod_table_destinations(t, check_destination, t);
	if (pod_table_count(t) > POD_PODS_MAX || pod_table_lingering(t) > POD_LINGERING_MAX)
		abort();
}
