/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hash tables: cgroups by id, and pods by uid. A pod's entry exists while it has a cgroup. An
 * id that is added with another path is a new cgroup: the kernel reuses ids after a while, and its
 * removal may have been missed.
 */
#include "agent/policy/cgroup_table.h"

#include <utlist.h>

#include "lib/metrics.h"

/* A cgroup of no pod and no container. */
struct other {
	uint64_t id;
	uint64_t removed_ms; /* 0: it is there */
	bool seen;
	UT_hash_handle hh;
};

struct cgroup_table {
	struct cgroup *by_id;
	struct pod_cgroups *by_uid;
	struct other *others;
};

int cgroup_table_new(struct cgroup_table **ret)
{
	struct cgroup_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*ret = t;
	return 0;
}

static void drop(struct cgroup_table *t, struct cgroup *c)
{
	struct pod_cgroups *pod = c->pod;

	if (pod) {
		DL_DELETE2(pod->cgroups, c, pod_prev, pod_next);
		if (--pod->n == 0) {
			HASH_DEL(t->by_uid, pod);
			free(pod);
		}
	}
	HASH_DEL(t->by_id, c);
	free(c);
}

/* ---- cgroups of no pod and no container ------------------------------------------------------ */

static struct other *find_other(const struct cgroup_table *t, uint64_t id)
{
	struct other *o;

	HASH_FIND(hh, t->others, &id, sizeof(id), o);
	return o;
}

static void drop_other(struct cgroup_table *t, struct other *o)
{
	if (!o)
		return;
	HASH_DEL(t->others, o);
	free(o);
}

/* If there is no room, samples of the cgroup wait like those of an unknown one. */
static void add_other(struct cgroup_table *t, uint64_t id)
{
	struct other *o = find_other(t, id);

	if (!o && HASH_COUNT(t->others) < CGROUPS_OTHERS_MAX) {
		o = calloc(1, sizeof(*o));
		if (o) {
			o->id = id;
			HASH_ADD(hh, t->others, id, sizeof(o->id), o);
		}
	}
	if (!o)
		return;
	o->removed_ms = 0;
	o->seen = true;
}

bool cgroup_table_is_other(const struct cgroup_table *t, uint64_t id)
{
	return find_other(t, id) != NULL;
}

void cgroup_table_begin_scan(struct cgroup_table *t)
{
	struct other *o;

	for (o = t->others; o; o = o->hh.next)
		o->seen = false;
}

void cgroup_table_end_scan(struct cgroup_table *t, uint64_t now_ms)
{
	struct other *o;

	for (o = t->others; o; o = o->hh.next)
		if (!o->seen && !o->removed_ms)
			o->removed_ms = MAX(now_ms, 1);
}

/* ---- cgroups of pods and containers ---------------------------------------------------------- */

struct cgroup_table *cgroup_table_free(struct cgroup_table *t)
{
	struct other *o, *next_other;
	struct cgroup *c, *next;

	if (!t)
		return NULL;
	HASH_ITER (hh, t->others, o, next_other)
		drop_other(t, o);
	HASH_ITER (hh, t->by_id, c, next)
		drop(t, c);
	free(t);
	return NULL;
}

struct cgroup *cgroup_table_find(const struct cgroup_table *t, uint64_t id)
{
	struct cgroup *c;

	HASH_FIND(hh, t->by_id, &id, sizeof(id), c);
	return c;
}

struct pod_cgroups *cgroup_table_find_pod(const struct cgroup_table *t, const char *uid)
{
	struct pod_cgroups *pod;

	HASH_FIND_STR(t->by_uid, uid, pod);
	return pod;
}

static struct pod_cgroups *get_pod(struct cgroup_table *t, const char *uid)
{
	struct pod_cgroups *pod = cgroup_table_find_pod(t, uid);

	if (pod)
		return pod;
	pod = calloc(1, sizeof(*pod));
	if (!pod)
		return NULL;
	snprintf(pod->uid, sizeof(pod->uid), "%s", uid);
	HASH_ADD_STR(t->by_uid, uid, pod);
	return pod;
}

static bool is_full(const struct cgroup_table *t, const char *uid)
{
	const struct pod_cgroups *pod = cgroup_table_find_pod(t, uid);

	return HASH_COUNT(t->by_id) >= CGROUPS_MAX || (pod && pod->n >= CGROUPS_POD_MAX);
}

static int add_new(struct cgroup_table *t, uint64_t id, const struct container_identity *identity,
		   struct cgroup **ret)
{
	struct cgroup *c;

	if (is_full(t, identity->pod_uid)) {
		metric_add(M_CGROUPS_FULL, 1);
		return -E2BIG;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->id = id;
	c->identity = *identity;
	if (identity->pod_uid[0]) {
		c->pod = get_pod(t, identity->pod_uid);
		if (!c->pod) {
			free(c);
			return -ENOMEM;
		}
		DL_APPEND2(c->pod->cgroups, c, pod_prev, pod_next);
		c->pod->n++;
	}
	HASH_ADD(hh, t->by_id, id, sizeof(c->id), c);
	*ret = c;
	return 1;
}

int cgroup_table_add(struct cgroup_table *t, uint64_t id, const char *path, struct cgroup **ret)
{
	struct container_identity identity;
	struct cgroup *c = cgroup_table_find(t, id);

	container_parse_path(path, &identity);
	if (c && (!streq(c->identity.pod_uid, identity.pod_uid) ||
		  !streq(c->identity.container_id, identity.container_id))) {
		drop(t, c);
		c = NULL;
	}
	if (!identity.pod_uid[0] && !identity.container_id[0]) {
		add_other(t, id);
		return 0;
	}
	drop_other(t, find_other(t, id));
	if (!c)
		return add_new(t, id, &identity, ret);
	c->removed_ms = 0;
	*ret = c;
	return 1;
}

struct cgroup *cgroup_table_remove(struct cgroup_table *t, uint64_t id, uint64_t now_ms)
{
	struct cgroup *c = cgroup_table_find(t, id);
	struct other *o = find_other(t, id);

	if (c && !c->removed_ms)
		c->removed_ms = MAX(now_ms, 1);
	if (o && !o->removed_ms)
		o->removed_ms = MAX(now_ms, 1);
	return c;
}

void cgroup_table_sweep(struct cgroup_table *t, uint64_t now_ms)
{
	struct other *o, *next_other;
	struct cgroup *c, *next;

	HASH_ITER (hh, t->by_id, c, next)
		if (c->removed_ms && now_ms - c->removed_ms >= CGROUPS_KEEP_MS)
			drop(t, c);
	HASH_ITER (hh, t->others, o, next_other)
		if (o->removed_ms && now_ms - o->removed_ms >= CGROUPS_KEEP_MS)
			drop_other(t, o);
}

size_t cgroup_table_count(const struct cgroup_table *t)
{
	return HASH_COUNT(t->by_id);
}

struct cgroup *cgroup_table_all(const struct cgroup_table *t)
{
	return t->by_id;
}

struct pod_cgroups *cgroup_table_pods(const struct cgroup_table *t)
{
	return t->by_uid;
}
