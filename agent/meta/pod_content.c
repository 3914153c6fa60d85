/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots and indexes.
 *
 * A pod's slot is found by uid, and by config hash if it has one; of two pods with the same hash (a
 * static pod that was recreated), the newer one is found. Each container id has an entry with a
 * reference to the object that named it last, so a container that restarted three times in a minute
 * is still found by all three ids. Deleted pods and former ids are in lists, in the order in which
 * they were deleted, because time only goes forward.
 *
 * An object counts once in the budget, however many slots and ids refer to it.
 */
#include "agent/meta/pod_content.h"

#include <utlist.h>

/* ---- references that count ------------------------------------------------------------------- */

static struct pod_object *hold(struct pod_content *c, struct pod_object *o)
{
	if (o->held++ == 0)
		c->budget->bytes += o->size;
	return pod_object_ref(o);
}

/* Removes a use of O from the budget; the caller gets the reference. */
static struct pod_object *let_go(struct pod_content *c, struct pod_object *o)
{
	if (o && --o->held == 0)
		c->budget->bytes -= o->size;
	return o;
}

static void drop(struct pod_content *c, struct pod_object *o)
{
	pod_object_unref(let_go(c, o));
}

/* ---- ids ------------------------------------------------------------------------------------- */

static struct pod_id *find_id(const struct pod_content *c, const uint8_t *id)
{
	struct pod_id *found;

	HASH_FIND(hh, c->ids, id, POD_CONTAINER_ID_BYTES, found);
	return found;
}

static void id_free(struct pod_content *c, struct pod_id *i)
{
	if (i->until_ms)
		DL_DELETE(c->former_ids, i);
	HASH_DEL(c->ids, i);
	drop(c, i->object);
	free(i);
}

static int id_put(struct pod_content *c, const uint8_t *id, struct pod_object *o)
{
	struct pod_id *i = find_id(c, id);

	if (i) {
		if (i->until_ms)
			DL_DELETE(c->former_ids, i);
		i->until_ms = 0;
		hold(c, o);
		drop(c, i->object);
		i->object = o;
		return 0;
	}
	if (HASH_COUNT(c->ids) >= POD_IDS_MAX) {
		if (!c->former_ids) {
			c->counters->ids_refused++;
			return 0; /* the pod is still found by its uid */
		}
		id_free(c, c->former_ids);
	}
	i = calloc(1, sizeof(*i));
	if (!i)
		return -ENOMEM;
	memcpy(i->id, id, POD_CONTAINER_ID_BYTES);
	HASH_ADD(hh, c->ids, id, POD_CONTAINER_ID_BYTES, i);
	if (!i->hh.tbl) {
		free(i);
		return -ENOMEM;
	}
	i->object = hold(c, o);
	return 0;
}

/* The pod of O no longer has this container id: makes the id a former one. */
static void id_retire(struct pod_content *c, const uint8_t *id, const struct pod_object *o,
		      uint64_t now_ms)
{
	struct pod_id *i = find_id(c, id);

	if (!i || i->object != o || i->until_ms)
		return;
	i->until_ms = now_ms + POD_LINGER_MS;
	DL_APPEND(c->former_ids, i);
}

static void ids_retire(struct pod_content *c, const struct pod_object *o, uint64_t now_ms)
{
	const struct pod_container *k;
	size_t n;

	for (n = 0; n < o->pod.n_containers; n++) {
		k = &o->pod.containers[n];
		if (k->has_id)
			id_retire(c, k->id, o, now_ms);
		if (k->has_previous_id)
			id_retire(c, k->previous_id, o, now_ms);
	}
}

/* On failure some of the ids have been added: the caller retires them. */
static int ids_put(struct pod_content *c, struct pod_object *o)
{
	const struct pod_container *k;
	size_t n;
	int r = 0;

	/* Former ids first: if an id is both, the container that has it now must win. */
	for (n = 0; n < o->pod.n_containers && r == 0; n++) {
		k = &o->pod.containers[n];
		if (k->has_previous_id)
			r = id_put(c, k->previous_id, o);
	}
	for (n = 0; n < o->pod.n_containers && r == 0; n++) {
		k = &o->pod.containers[n];
		if (k->has_id)
			r = id_put(c, k->id, o);
	}
	return r;
}

/* ---- slots ----------------------------------------------------------------------------------- */

struct pod_slot *pod_content_find(struct pod_slot *slots, const void *key, size_t len)
{
	struct pod_slot *found;

	HASH_FIND(hh, slots, key, len, found);
	return found;
}

static void hash_index_add(struct pod_content *c, struct pod_slot *slot)
{
	const char *hash = slot->object->pod.config_hash;
	struct pod_slot *other;

	if (slot->object->kind != POD_OBJECT_POD || !*hash)
		return;
	HASH_FIND(hh_hash, c->hashes, hash, strlen(hash), other);
	if (other && other != slot)
		HASH_DELETE(hh_hash, c->hashes, other);
	if (other)
		other->hh_hash.tbl = NULL;
	slot->hh_hash.tbl = NULL;
	/* Without memory the pod is found by uid only, which the cgroups of static pods do not
	 * have. */
	HASH_ADD_KEYPTR(hh_hash, c->hashes, hash, strlen(hash), slot);
}

static void hash_index_remove(struct pod_content *c, struct pod_slot *slot)
{
	if (!slot->hh_hash.tbl)
		return;
	HASH_DELETE(hh_hash, c->hashes, slot);
	slot->hh_hash.tbl = NULL;
}

static void slot_free(struct pod_content *c, struct pod_slot **slots, struct pod_slot *slot)
{
	if (slot->until_ms) {
		DL_DELETE(c->deleted, slot);
		c->n_deleted--;
	} else if (slots == &c->pods) {
		c->n_live--;
	}
	hash_index_remove(c, slot);
	HASH_DELETE(hh, *slots, slot);
	free(slot);
}

static void forget_oldest(struct pod_content *c)
{
	struct pod_slot *slot = c->deleted;
	struct pod_object *o = slot->object;

	slot_free(c, &c->pods, slot);
	drop(c, o);
}

/* Makes room for SIZE bytes by removing former ids, then deleted pods. */
static bool make_room(struct pod_content *c, size_t size)
{
	while (c->budget->bytes + size > POD_BYTES_MAX && c->former_ids)
		id_free(c, c->former_ids);
	while (c->budget->bytes + size > POD_BYTES_MAX && c->deleted)
		forget_oldest(c);
	return c->budget->bytes + size <= POD_BYTES_MAX;
}

static struct pod_slot **slots_of(struct pod_content *c, enum pod_object_kind kind,
				  size_t *ret_count, size_t *ret_max, uint64_t **ret_refused)
{
	switch (kind) {
	case POD_OBJECT_POD:
		*ret_count = c->n_live;
		*ret_max = POD_PODS_MAX;
		*ret_refused = &c->counters->pods_refused;
		return &c->pods;
	case POD_OBJECT_POLICY:
		*ret_count = HASH_COUNT(c->policies);
		*ret_max = POD_POLICIES_MAX;
		*ret_refused = &c->counters->policies_refused;
		return &c->policies;
	case POD_OBJECT_DESTINATION:
	default:
		*ret_count = HASH_COUNT(c->destinations);
		*ret_max = POD_DESTINATIONS_MAX;
		*ret_refused = &c->counters->destinations_refused;
		return &c->destinations;
	}
}

/* A new slot; pods' ids come after. */
static int slot_add(struct pod_content *c, struct pod_slot **slots, struct pod_object *o)
{
	struct pod_slot *slot = calloc(1, sizeof(*slot));

	if (!slot)
		return -ENOMEM;
	HASH_ADD_KEYPTR(hh, *slots, o->key, o->key_len, slot);
	if (!slot->hh.tbl) {
		free(slot);
		return -ENOMEM;
	}
	slot->object = hold(c, o);
	if (slots == &c->pods)
		c->n_live++;
	hash_index_add(c, slot);
	return 0;
}

/* Puts O into the slot; the caller gets the old object with its reference. */
static struct pod_object *slot_replace(struct pod_content *c, struct pod_slot *slot,
				       struct pod_object *o)
{
	struct pod_object *old = slot->object;

	hash_index_remove(c, slot);
	slot->object = hold(c, o);
	slot->hh.key = o->key; /* the same key, in memory of the new object */
	hash_index_add(c, slot);
	if (slot->until_ms) {
		DL_DELETE(c->deleted, slot);
		c->n_deleted--;
		c->n_live++;
		slot->until_ms = 0;
	}
	return let_go(c, old);
}

int pod_content_put(struct pod_content *c, struct pod_object *o, uint64_t now_ms,
		    struct pod_object **ret_old)
{
	size_t count, max;
	uint64_t *refused;
	struct pod_slot **slots = slots_of(c, o->kind, &count, &max, &refused);
	struct pod_slot *slot = pod_content_find(*slots, o->key, o->key_len);
	size_t more = o->held ? 0 : o->size;
	struct pod_object *old = NULL;
	bool was_deleted;
	int r = 0;

	/* The object that is replaced will be freed. */
	if (slot && !slot->until_ms)
		more -= MIN(more, slot->object->size);
	if (!make_room(c, more)) {
		(*refused)++;
		return -E2BIG;
	}
	/* Look it up again: making room may have removed it. */
	slot = pod_content_find(*slots, o->key, o->key_len);
	was_deleted = slot && slot->until_ms;
	if ((!slot || was_deleted) && count >= max) {
		(*refused)++;
		return -E2BIG;
	}
	/* Ids first: adding them may fail, and ids without a slot do no harm. */
	if (o->kind == POD_OBJECT_POD)
		r = ids_put(c, o);
	if (r == 0 && slot)
		old = slot_replace(c, slot, o);
	else if (r == 0)
		r = slot_add(c, slots, o);
	if (r < 0) {
		if (o->kind == POD_OBJECT_POD)
			ids_retire(c, o, now_ms);
		if (o->kind == POD_OBJECT_POD && slot && !was_deleted)
			r = MIN(ids_put(c, slot->object), r);
		return r;
	}
	if (old && old != o && o->kind == POD_OBJECT_POD)
		ids_retire(c, old, now_ms);
	if (was_deleted)
		old = pod_object_unref(old);
	*ret_old = old;
	return 0;
}

struct pod_object *pod_content_delete_pod(struct pod_content *c, const char *uid, uint64_t now_ms)
{
	struct pod_slot *slot = pod_content_find(c->pods, uid, strlen(uid));
	struct pod_object *gone;

	if (!slot || slot->until_ms)
		return NULL;
	gone = pod_object_ref(slot->object);
	ids_retire(c, gone, now_ms);
	slot->until_ms = now_ms + POD_LINGER_MS;
	DL_APPEND(c->deleted, slot);
	c->n_live--;
	c->n_deleted++;
	if (c->n_deleted > POD_LINGERING_MAX)
		forget_oldest(c);
	return gone;
}

struct pod_object *pod_content_forget_pod(struct pod_content *c, const char *uid)
{
	struct pod_slot *slot = pod_content_find(c->pods, uid, strlen(uid));
	struct pod_object *o;
	struct pod_id *i, *next;

	if (!slot || slot->until_ms)
		return NULL;
	o = slot->object;
	HASH_ITER (hh, c->ids, i, next)
		if (i->object == o)
			id_free(c, i);
	slot_free(c, &c->pods, slot);
	return let_go(c, o);
}

struct pod_object *pod_content_delete(struct pod_content *c, struct pod_slot **slots,
				      const void *key, size_t len)
{
	struct pod_slot *slot = pod_content_find(*slots, key, len);
	struct pod_object *o;

	if (!slot)
		return NULL;
	o = slot->object;
	slot_free(c, slots, slot);
	return let_go(c, o);
}

void pod_content_set_default(struct pod_content *c, struct pod_object *policy)
{
	struct pod_object *old = c->default_policy;

	c->default_policy = policy ? hold(c, policy) : NULL;
	if (old)
		drop(c, old);
}

/* ---- as a whole ------------------------------------------------------------------------------ */

/* Moves the slot from OLD to C as a deleted pod. False: no memory, or C has a pod of this uid; the
 * slot is freed then. */
static bool slot_move(struct pod_content *c, struct pod_content *old, struct pod_slot *slot)
{
	struct pod_object *o = slot->object;

	hash_index_remove(old, slot);
	HASH_DELETE(hh, old->pods, slot);
	if (!pod_content_find(c->pods, o->key, o->key_len)) {
		const char *hash = o->pod.config_hash;
		struct pod_slot *other = NULL;

		slot->hh.tbl = NULL;
		HASH_ADD_KEYPTR(hh, c->pods, o->key, o->key_len, slot);
		if (slot->hh.tbl) {
			if (*hash)
				HASH_FIND(hh_hash, c->hashes, hash, strlen(hash), other);
			if (!other || other->until_ms)
				hash_index_add(c, slot);
			DL_APPEND(c->deleted, slot);
			c->n_deleted++;
			return true;
		}
	}
	drop(old, o);
	free(slot);
	return false;
}

static void id_move(struct pod_content *c, struct pod_content *old, struct pod_id *i)
{
	HASH_DEL(old->ids, i);
	if (!find_id(c, i->id) && HASH_COUNT(c->ids) < POD_IDS_MAX) {
		i->hh.tbl = NULL;
		HASH_ADD(hh, c->ids, id, POD_CONTAINER_ID_BYTES, i);
		if (i->hh.tbl) {
			DL_APPEND(c->former_ids, i);
			return;
		}
	}
	drop(old, i->object);
	free(i);
}

void pod_content_inherit(struct pod_content *c, struct pod_content *old, uint64_t now_ms)
{
	struct pod_slot *slot, *next_slot;
	struct pod_id *i, *next_id;

	/* The oldest first, so that the lists stay in order. */
	DL_FOREACH_SAFE (old->deleted, slot, next_slot) {
		DL_DELETE(old->deleted, slot);
		old->n_deleted--;
		slot_move(c, old, slot);
	}
	HASH_ITER (hh, old->pods, slot, next_slot) {
		old->n_live--;
		slot->until_ms = now_ms + POD_LINGER_MS;
		slot_move(c, old, slot);
	}
	while (c->n_deleted > POD_LINGERING_MAX)
		forget_oldest(c);
	DL_FOREACH_SAFE (old->former_ids, i, next_id) {
		DL_DELETE(old->former_ids, i);
		id_move(c, old, i);
	}
	HASH_ITER (hh, old->ids, i, next_id) {
		i->until_ms = now_ms + POD_LINGER_MS;
		id_move(c, old, i);
	}
}

bool pod_content_expire(struct pod_content *c, uint64_t now_ms)
{
	bool changed = false;

	while (c->deleted && c->deleted->until_ms <= now_ms) {
		forget_oldest(c);
		changed = true;
	}
	while (c->former_ids && c->former_ids->until_ms <= now_ms) {
		id_free(c, c->former_ids);
		changed = true;
	}
	return changed;
}

static void slots_done(struct pod_content *c, struct pod_slot **slots)
{
	struct pod_slot *slot, *next;
	struct pod_object *o;

	HASH_ITER (hh, *slots, slot, next) {
		o = slot->object;
		slot_free(c, slots, slot);
		drop(c, o);
	}
}

void pod_content_done(struct pod_content *c)
{
	struct pod_id *i, *next;

	slots_done(c, &c->pods);
	slots_done(c, &c->policies);
	slots_done(c, &c->destinations);
	HASH_ITER (hh, c->ids, i, next)
		id_free(c, i);
	pod_content_set_default(c, NULL);
}
