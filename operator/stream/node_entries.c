/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries live in one array and are linked by index: into hash chains, into the order of revisions,
 * and, when dirty, into a queue. An entry that was never sent (revision 0) is not in the order.
 * Loop thread only.
 */
#include "operator/stream/node_state_internal.h"

#include "operator/stream/frame.h"

enum { ENTRIES_MAX = ENTRY_NONE - 1, ENTRIES_MIN = 16 };

/* ---- the table ------------------------------------------------------------------------------- */

static size_t bucket_of(const struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	return hash_bytes(key, 16, kind) & (n->cap - 1);
}

uint16_t node_entry_find(const struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	uint16_t i = n->cap ? n->buckets[bucket_of(n, kind, key)] : ENTRY_NONE;

	while (i != ENTRY_NONE &&
	       (n->entries[i].kind != kind || memcmp(n->entries[i].key, key, 16) != 0))
		i = n->entries[i].chain;
	return i;
}

static void hash_in(struct node_state *n, uint16_t i)
{
	uint16_t *bucket = &n->buckets[bucket_of(n, n->entries[i].kind, n->entries[i].key)];

	n->entries[i].chain = *bucket;
	*bucket = i;
}

static void hash_out(struct node_state *n, uint16_t i)
{
	uint16_t *at = &n->buckets[bucket_of(n, n->entries[i].kind, n->entries[i].key)];

	while (*at != i)
		at = &n->entries[*at].chain;
	*at = n->entries[i].chain;
}

static bool grow(struct node_state *n)
{
	size_t cap = n->cap ? n->cap * 2 : ENTRIES_MIN;
	struct entry *entries;
	uint16_t *buckets;

	if (cap > ENTRIES_MAX)
		return false;
	entries = realloc(n->entries, cap * sizeof(*entries));
	if (!entries)
		return false;
	n->entries = entries;
	buckets = realloc(n->buckets, cap * sizeof(*buckets));
	if (!buckets)
		return false;
	n->buckets = buckets;
	n->cap = cap;
	memset(buckets, 0xff, cap * sizeof(*buckets));
	for (size_t i = 0; i < n->used; i++)
		if (n->entries[i].kind != ENTRY_FREE)
			hash_in(n, (uint16_t)i);
	return true;
}

uint16_t node_entry_make(struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	uint16_t i = n->free_list;

	if (i != ENTRY_NONE)
		n->free_list = n->entries[i].chain;
	else if (n->used < n->cap || grow(n))
		i = (uint16_t)n->used++;
	else
		return ENTRY_NONE;
	n->entries[i] = (struct entry){.kind = kind,
				       .prev = ENTRY_NONE,
				       .next = ENTRY_NONE,
				       .dirty_next = ENTRY_NONE,
				       .chain = ENTRY_NONE};
	memcpy(n->entries[i].key, key, 16);
	hash_in(n, i);
	return i;
}

/* ---- the order of revisions ------------------------------------------------------------------ */

static void order_out(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (!e->revision)
		return;
	if (e->prev != ENTRY_NONE)
		n->entries[e->prev].next = e->next;
	else
		n->oldest = e->next;
	if (e->next != ENTRY_NONE)
		n->entries[e->next].prev = e->prev;
	else
		n->newest = e->prev;
	e->prev = e->next = ENTRY_NONE;
	e->revision = 0;
}

void node_entry_advance(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	order_out(n, i);
	e->revision = ++n->revision;
	e->prev = n->newest;
	if (e->prev != ENTRY_NONE)
		n->entries[e->prev].next = i;
	else
		n->oldest = i;
	n->newest = i;
}

void node_entry_unref(struct node_state *n, const struct entry *e)
{
	if (e->kind == ENTRY_DESTINATION)
		destination_table_unref(node_view_destinations(n->view), e->destination);
	else
		node_view_unref(n->view, e->policy);
}

void node_entry_forget(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	order_out(n, i);
	hash_out(n, i);
	node_entry_unref(n, e);
	free(e->uid_text);
	if (e->gone)
		n->n_gone--;
	*e = (struct entry){.kind = ENTRY_FREE, .chain = n->free_list};
	n->free_list = i;
}

/* An agent that has not received these deletions needs a snapshot. */
void node_entries_limit_tombstones(struct node_state *n)
{
	uint16_t i = n->oldest, next;

	for (; n->n_gone > NODE_TOMBSTONES_MAX && i != ENTRY_NONE; i = next) {
		next = n->entries[i].next;
		if (!n->entries[i].gone || n->entries[i].dirty || n->entries[i].refs)
			continue;
		n->floor = MAX(n->floor, n->entries[i].revision);
		node_entry_forget(n, i);
	}
}

void node_entry_bury(struct node_state *n, uint16_t i)
{
	n->entries[i].gone = true;
	n->n_gone++;
	node_entry_advance(n, i);
}

/* ---- what may have changed ------------------------------------------------------------------- */

void node_entry_set_dirty(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (e->dirty)
		return;
	e->dirty = true;
	e->dirty_next = ENTRY_NONE;
	if (n->dirty_last != ENTRY_NONE)
		n->entries[n->dirty_last].dirty_next = i;
	else
		n->dirty = i;
	n->dirty_last = i;
	n->n_dirty++;
}

uint16_t node_entry_take_dirty(struct node_state *n)
{
	uint16_t i = n->dirty;

	n->dirty = n->entries[i].dirty_next;
	if (n->dirty == ENTRY_NONE)
		n->dirty_last = ENTRY_NONE;
	n->entries[i].dirty = false;
	n->n_dirty--;
	return i;
}

/* ---- deletions ------------------------------------------------------------------------------- */

void node_entry_uid(const struct entry *e, char ret[64])
{
	const uint8_t *u = e->key;

	if (e->uid_text)
		snprintf(ret, 64, "%s", e->uid_text);
	else
		snprintf(ret, 64,
			 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
			 u[12], u[13], u[14], u[15]);
}

void node_entry_tell_gone(const struct entry *e, struct buf *out)
{
	char uid[64];

	if (e->kind == ENTRY_POLICY) {
		frame_fixed64(out, UPDATE_DELETED_POLICIES, e->policy->id);
	} else if (e->kind == ENTRY_DESTINATION) {
		const char *id = view_destination_id(e->destination);

		frame_bytes(out, UPDATE_DELETED_DESTINATIONS, id, strlen(id));
	} else if (e->kind == ENTRY_POD) {
		node_entry_uid(e, uid);
		frame_bytes(out, UPDATE_DELETED_PODS, uid, strlen(uid));
	}
}
