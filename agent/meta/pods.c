/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pod table: the current content, the content that a snapshot fills, and the events of changes.
 *
 * An object whose message has not changed stays the same object, so a snapshot without changes
 * causes no events and moves no pointers. The events of an Update come one by one as it is applied,
 * destinations and policies before the pods that refer to them; those of a snapshot come after it
 * has replaced the content. settled() follows at the end of each message.
 *
 * Owned by the loop thread.
 */
#include "agent/meta/pods_update.h"

struct pod_table {
	struct pod_events events;
	struct pod_counters counters;
	struct pod_budget budget;
	struct pod_table_budget agent; /* what the agent may cost */
	struct pod_content now, next;  /* next: only while in_snapshot */
	bool in_snapshot, changed;
	uint64_t snapshot_epoch;
	uint64_t epoch, revision, generation;
};

int pod_table_new(const struct pod_events *events, struct pod_table **ret)
{
	struct pod_table *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->events = *events;
	t->now = t->next = (struct pod_content){.budget = &t->budget, .counters = &t->counters};
	*ret = t;
	return 0;
}

struct pod_table *pod_table_free(struct pod_table *t)
{
	if (!t)
		return NULL;
	pod_content_done(&t->next);
	pod_content_done(&t->now);
	free(t);
	return NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void tell(struct pod_table *t, const struct pod_object *old, const struct pod_object *now,
		 bool is_default)
{
	const struct pod_events *e = &t->events;
	enum pod_object_kind kind = old ? old->kind : now->kind;

	t->changed = true;
	t->generation++;
	if (kind == POD_OBJECT_POD && e->pod)
		e->pod(old ? &old->pod : NULL, now ? &now->pod : NULL, e->arg);
	else if (kind == POD_OBJECT_POLICY && e->policy)
		e->policy(old ? &old->policy : NULL, now ? &now->policy : NULL, is_default, e->arg);
	else if (kind == POD_OBJECT_DESTINATION && e->destination)
		e->destination(old ? &old->destination : NULL, now ? &now->destination : NULL,
			       e->arg);
}

static void settle(struct pod_table *t)
{
	if (!t->changed)
		return;
	t->changed = false;
	if (t->events.settled)
		t->events.settled(t->events.arg);
}

/* ---- changes --------------------------------------------------------------------------------- */

static struct pod_slot *slots_of(const struct pod_content *c, enum pod_object_kind kind)
{
	return kind == POD_OBJECT_POD	   ? c->pods
	       : kind == POD_OBJECT_POLICY ? c->policies
					   : c->destinations;
}

/* Whether OBJECT, from disk, is only a part of what it was. */
static bool incomplete(const struct pod_object *o)
{
	return o->kind == POD_OBJECT_DESTINATION && o->destination.incomplete;
}

/* Stores O, whose reference it takes. An object for which there is no room is left out; -ENOMEM. */
static int put(struct pod_table *t, struct pod_object *o, uint64_t now_ms)
{
	struct pod_content *c = t->in_snapshot ? &t->next : &t->now;
	struct pod_slot *slot = pod_content_find(slots_of(&t->now, o->kind), o->key, o->key_len);
	struct pod_object *old = NULL;
	int r;

	if (slot && pod_object_same(slot->object, o) && incomplete(slot->object) == incomplete(o)) {
		pod_object_unref(o);
		if (c == &t->now && !slot->until_ms)
			return 0;
		o = pod_object_ref(slot->object);
	}
	r = pod_content_put(c, o, now_ms, &old);
	/* The pod's old state must not stay either: its new policy may have disabled it. */
	if (r == -E2BIG && o->kind == POD_OBJECT_POD)
		old = pod_content_forget_pod(c, o->key);
	if (r == 0 && c == &t->now)
		tell(t, old, o, false);
	else if (old && c == &t->now)
		tell(t, old, NULL, false);
	pod_object_unref(old);
	pod_object_unref(o);
	return r == -E2BIG ? 0 : r;
}

/* Takes O's reference. */
static void put_default(struct pod_table *t, struct pod_object *o)
{
	struct pod_content *c = t->in_snapshot ? &t->next : &t->now;
	struct pod_object *old = t->now.default_policy;

	if (old && pod_object_same(old, o)) {
		pod_object_unref(o);
		o = pod_object_ref(old);
	}
	if (old)
		pod_object_ref(old);
	pod_content_set_default(c, o);
	if (c == &t->now && old != o)
		tell(t, old, o, true);
	pod_object_unref(old);
	pod_object_unref(o);
}

static void delete_one(struct pod_table *t, enum pod_object_kind kind, const void *key, size_t len,
		       uint64_t now_ms)
{
	struct pod_content *c = t->in_snapshot ? &t->next : &t->now;
	struct pod_object *old;

	if (kind == POD_OBJECT_POD)
		old = pod_content_delete_pod(c, key, now_ms);
	else
		old = pod_content_delete(
		    c, kind == POD_OBJECT_POLICY ? &c->policies : &c->destinations, key, len);
	if (old && c == &t->now)
		tell(t, old, NULL, false);
	pod_object_unref(old);
}

/* Replaces the pod by a copy with another policy, because objects never change. -ENOMEM. */
static int put_pod_policy(struct pod_table *t, const Kiln__Node__V1__PodPolicy *m, uint64_t now_ms)
{
	const struct pod_content *c = t->in_snapshot ? &t->next : &t->now;
	struct pod_object *old = pod_content_live(c->pods, m->uid, strlen(m->uid)), *o;
	Kiln__Node__V1__Pod *pod;
	int r;

	if (!old) {
		t->counters.pods_refused++;
		return 0;
	}
	pod = kiln__node__v1__pod__unpack(NULL, old->wire_len, old->wire);
	if (!pod)
		return -ENOMEM;
	pod->policy = m->policy;
	r = pod_object_pod(pod, &t->counters, &o);
	kiln__node__v1__pod__free_unpacked(pod, NULL);
	return r < 0 ? r : put(t, o, now_ms);
}

static int apply_objects(struct pod_table *t, const Kiln__Node__V1__Update *u, uint64_t now_ms)
{
	struct pod_object *o;
	size_t i;
	int r = 0;

	for (i = 0; i < u->n_destinations && r != -ENOMEM; i++) {
		r = pod_object_destination(u->destinations[i], false, &t->counters, &o);
		if (r == 0)
			r = put(t, o, now_ms);
	}
	for (i = 0; i < u->n_policies && r != -ENOMEM; i++) {
		r = pod_object_policy(u->policies[i], &t->counters, &o);
		if (r == 0)
			r = put(t, o, now_ms);
	}
	if (u->default_policy && r != -ENOMEM) {
		r = pod_object_policy(u->default_policy, &t->counters, &o);
		if (r == 0)
			put_default(t, o);
	}
	for (i = 0; i < u->n_pods && r != -ENOMEM; i++) {
		r = pod_object_pod(u->pods[i], &t->counters, &o);
		if (r == 0)
			r = put(t, o, now_ms);
	}
	for (i = 0; i < u->n_pod_policies && r != -ENOMEM; i++)
		r = put_pod_policy(t, u->pod_policies[i], now_ms);
	return r == -ENOMEM ? r : 0;
}

void pod_table_set_budget(struct pod_table *t, const struct pod_table_budget *budget)
{
	struct pod_table_budget b = {MIN(budget->cpu, 1000000U), budget->memory};

	if (t->agent.cpu == b.cpu && t->agent.memory == b.memory)
		return;
	t->agent = b;
	t->changed = true;
	t->generation++;
}

struct pod_table_budget pod_table_budget(const struct pod_table *t)
{
	return t->agent;
}

int pod_table_apply(struct pod_table *t, const Kiln__Node__V1__Update *u, uint64_t now_ms,
		    struct error *err)
{
	size_t i;
	int r;

	if (!t->in_snapshot && !t->epoch)
		return error_set(err, -EPROTO, "an update came before any snapshot");
	if (!t->in_snapshot && u->revision && u->revision < t->revision)
		return error_set(err, -EPROTO, "an update has revision %llu after %llu",
				 (unsigned long long)u->revision, (unsigned long long)t->revision);
	r = apply_objects(t, u, now_ms);
	if (r < 0) {
		settle(t);
		return error_set(err, r, "out of memory");
	}
	for (i = 0; i < u->n_deleted_pods; i++)
		delete_one(t, POD_OBJECT_POD, u->deleted_pods[i], 0, now_ms);
	for (i = 0; i < u->n_deleted_policies; i++)
		delete_one(t, POD_OBJECT_POLICY, &u->deleted_policies[i],
			   sizeof(u->deleted_policies[i]), now_ms);
	for (i = 0; i < u->n_deleted_destinations; i++)
		delete_one(t, POD_OBJECT_DESTINATION, u->deleted_destinations[i],
			   strlen(u->deleted_destinations[i]), now_ms);
	/* Applied at once, also within a snapshot: there is one budget, not one per content. */
	if (u->budget)
		pod_table_set_budget(t,
				     &(struct pod_table_budget){u->budget->cpu, u->budget->memory});
	t->counters.updates++;
	if (!t->in_snapshot && u->revision)
		t->revision = u->revision;
	settle(t);
	return 0;
}

int pod_table_load(struct pod_table *t, struct pod_object *o, bool is_default)
{
	if (is_default) {
		put_default(t, o);
		return 0;
	}
	return put(t, o, 0);
}

struct pod_counters *pod_table_counting(struct pod_table *t)
{
	return &t->counters;
}

/* ---- snapshots ------------------------------------------------------------------------------- */

void pod_table_snapshot_begin(struct pod_table *t, uint64_t epoch)
{
	pod_table_snapshot_abort(t);
	t->in_snapshot = true;
	t->snapshot_epoch = epoch;
}

void pod_table_snapshot_abort(struct pod_table *t)
{
	if (t->in_snapshot)
		pod_content_done(&t->next);
	t->in_snapshot = false;
}

bool pod_table_in_snapshot(const struct pod_table *t)
{
	return t->in_snapshot;
}

/* Sends the events of one kind after NOW has replaced OLD. DELETIONS: those of deleted objects,
 * else those of new and changed ones. */
static void tell_kind(struct pod_table *t, const struct pod_content *old,
		      const struct pod_content *now, enum pod_object_kind kind, bool deletions)
{
	struct pod_slot *from = slots_of(deletions ? old : now, kind), *slot;
	struct pod_slot *other = slots_of(deletions ? now : old, kind);
	struct pod_object *found;

	for (slot = from; slot; slot = slot->hh.next) {
		if (slot->until_ms)
			continue;
		found = pod_content_live(other, slot->object->key, slot->object->key_len);
		if (deletions && !found)
			tell(t, slot->object, NULL, false);
		else if (!deletions && found != slot->object)
			tell(t, found, slot->object, false);
	}
}

static void tell_difference(struct pod_table *t, const struct pod_content *old,
			    const struct pod_content *now)
{
	tell_kind(t, old, now, POD_OBJECT_DESTINATION, false);
	tell_kind(t, old, now, POD_OBJECT_POLICY, false);
	if (old->default_policy != now->default_policy)
		tell(t, old->default_policy, now->default_policy, true);
	tell_kind(t, old, now, POD_OBJECT_POD, false);
	tell_kind(t, old, now, POD_OBJECT_POD, true);
	tell_kind(t, old, now, POD_OBJECT_POLICY, true);
	tell_kind(t, old, now, POD_OBJECT_DESTINATION, true);
}

int pod_table_snapshot_end(struct pod_table *t, uint64_t epoch, uint64_t revision, uint64_t now_ms,
			   struct error *err)
{
	struct pod_content old;

	if (!t->in_snapshot || epoch != t->snapshot_epoch)
		return error_set(err, -EPROTO, "a snapshot ended that had not begun");
	if (!epoch)
		return error_set(err, -EPROTO, "a snapshot has epoch 0");
	old = t->now;
	t->now = t->next;
	t->next = (struct pod_content){.budget = &t->budget, .counters = &t->counters};
	t->in_snapshot = false;
	t->epoch = epoch;
	t->revision = revision;
	t->generation++;
	t->counters.snapshots++;
	tell_difference(t, &old, &t->now);
	pod_content_inherit(&t->now, &old, now_ms);
	pod_content_done(&old);
	settle(t);
	return 0;
}

/* ---- questions ------------------------------------------------------------------------------- */

const struct pod_entry *pod_table_find_container(const struct pod_table *t,
						 const uint8_t id[POD_CONTAINER_ID_BYTES])
{
	struct pod_id *found;

	HASH_FIND(hh, t->now.ids, id, POD_CONTAINER_ID_BYTES, found);
	return found ? &found->object->pod : NULL;
}

const struct pod_entry *pod_table_find_uid(const struct pod_table *t, const char *uid_or_hash)
{
	struct pod_slot *slot = pod_content_find(t->now.pods, uid_or_hash, strlen(uid_or_hash));

	if (!slot && *uid_or_hash)
		HASH_FIND(hh_hash, t->now.hashes, uid_or_hash, strlen(uid_or_hash), slot);
	return slot ? &slot->object->pod : NULL;
}

const struct pod_policy *pod_table_policy(const struct pod_table *t, uint64_t id)
{
	struct pod_object *o = pod_content_live(t->now.policies, &id, sizeof(id));

	return o ? &o->policy : NULL;
}

const struct pod_policy *pod_table_default_policy(const struct pod_table *t)
{
	return t->now.default_policy ? &t->now.default_policy->policy : NULL;
}

const struct pod_destination *pod_table_destination(const struct pod_table *t, const char *id)
{
	struct pod_object *o = pod_content_live(t->now.destinations, id, strlen(id));

	return o ? &o->destination : NULL;
}

void pod_table_policies(const struct pod_table *t,
			bool (*fn)(const struct pod_policy *p, void *arg), void *arg)
{
	struct pod_slot *slot;

	for (slot = t->now.policies; slot && fn(&slot->object->policy, arg); slot = slot->hh.next)
		;
}

void pod_table_pods(const struct pod_table *t, bool (*fn)(const struct pod_entry *e, void *arg),
		    void *arg)
{
	struct pod_slot *slot;

	for (slot = t->now.pods; slot; slot = slot->hh.next) {
		if (!slot->until_ms && !fn(&slot->object->pod, arg))
			return;
	}
}

void pod_table_destinations(const struct pod_table *t,
			    bool (*fn)(const struct pod_destination *d, void *arg), void *arg)
{
	struct pod_slot *slot;

	for (slot = t->now.destinations; slot && fn(&slot->object->destination, arg);
	     slot = slot->hh.next)
		;
}

bool pod_table_objects(const struct pod_table *t,
		       bool (*fn)(const struct pod_object *o, bool is_default, void *arg),
		       void *arg)
{
	const struct pod_content *c = &t->now;
	struct pod_slot *const kinds[] = {c->destinations, c->policies, c->pods}, *slot;
	size_t i;

	if (c->default_policy && !fn(c->default_policy, true, arg))
		return false;
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (slot = kinds[i]; slot; slot = slot->hh.next) {
			if (!slot->until_ms && !fn(slot->object, false, arg))
				return false;
		}
	}
	return true;
}

bool pod_table_incomplete(const struct pod_table *t)
{
	struct pod_slot *slot;

	for (slot = t->now.destinations; slot; slot = slot->hh.next) {
		if (slot->object->destination.incomplete)
			return true;
	}
	return false;
}

size_t pod_table_count(const struct pod_table *t)
{
	return t->now.n_live;
}

size_t pod_table_lingering(const struct pod_table *t)
{
	return t->now.n_deleted;
}

const struct pod_counters *pod_table_counters(const struct pod_table *t)
{
	return &t->counters;
}

void pod_table_state(const struct pod_table *t, uint64_t *ret_epoch, uint64_t *ret_revision)
{
	*ret_epoch = t->epoch;
	*ret_revision = t->revision;
}

uint64_t pod_table_generation(const struct pod_table *t)
{
	return t->generation;
}

void pod_table_expire(struct pod_table *t, uint64_t now_ms)
{
	if (pod_content_expire(&t->now, now_ms))
		t->generation++;
}
