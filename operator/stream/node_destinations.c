/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The destinations of the policies that were sent to a node: how many policies refer to each, and a
 * hash of what was sent. The contents hold secrets: they are made in a buffer that is wiped at
 * once, and never kept. Loop thread only.
 */
#include "operator/stream/node_state_internal.h"

#include "operator/stream/frame.h"

static void destination_key(const char *id, uint8_t ret[16])
{
	uint64_t hashes[2] = {hash_bytes(id, strlen(id), 5), hash_bytes(id, strlen(id), 6)};

	memcpy(ret, hashes, sizeof(hashes));
}

bool node_state_touch_destination(struct node_state *n, const char *id)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(id, key);
	i = node_entry_find(n, ENTRY_DESTINATION, key);
	if (i == ENTRY_NONE || !n->entries[i].refs)
		return false;
	node_entry_set_dirty(n, i);
	return true;
}

static bool needs(const struct node_state *n, const char *id)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(id, key);
	i = node_entry_find(n, ENTRY_DESTINATION, key);
	return i != ENTRY_NONE && n->entries[i].refs;
}

static bool has_room(const struct left_out *const *list, size_t n, const char *ns)
{
	size_t same = 0;

	for (size_t i = 0; i < n; i++)
		same += streq(list[i]->ns, ns);
	return n < LEFT_OUT_MAX && (!ns[0] || same < LEFT_OUT_NAMESPACE_MAX);
}

size_t node_state_left_out(const struct node_state *n,
			   const struct left_out *ret[static LEFT_OUT_MAX])
{
	const struct destination_table *d = node_view_destinations(n->view);
	const struct left_out *l;
	size_t found = 0;

	for (int tenants = 0; d && tenants < 2; tenants++)
		for (l = destination_table_left_out(d); l; l = l->next)
			if (!!l->ns[0] == tenants && has_room(ret, found, l->ns) && needs(n, l->id))
				ret[found++] = l;
	return found;
}

/* Appends the destination unless it has changed: then it is marked dirty, and sent in its turn. */
void node_destination_tell_again(struct node_state *n, uint16_t i, struct buf *out)
{
	struct buf *b = node_view_secret_scratch(n->view);
	struct entry *e = &n->entries[i];

	if (e->dirty ||
	    destination_table_encode(node_view_destinations(n->view), e->destination, b) < 0) {
		e->hash = 0; /* the snapshot lacks it, so the next look sends it */
		return;
	}
	if (e->hash == (hash_bytes(b->data, b->len, 1) | 1)) {
		frame_bytes(out, UPDATE_DESTINATIONS, b->data, b->len);
	} else {
		e->hash = 0;
		node_entry_set_dirty(n, i);
	}
	explicit_bzero(b->data, b->len);
}

/*
 * Sends a destination that has changed. One that is left out is not revoked: a Secret that is gone
 * for a moment must not cost samples.
 */
static void tell_destination(struct node_state *n, uint16_t i, struct buf *out)
{
	struct buf *b = node_view_secret_scratch(n->view);
	struct entry *e = &n->entries[i];
	uint64_t hash;

	if (destination_table_encode(node_view_destinations(n->view), e->destination, b) < 0)
		return;
	hash = hash_bytes(b->data, b->len, 1) | 1;
	if (e->hash != hash || e->gone || !e->revision) {
		n->n_gone -= e->gone;
		e->gone = false;
		e->hash = hash;
		node_entry_advance(n, i);
		frame_bytes(out, UPDATE_DESTINATIONS, b->data, b->len);
	}
	explicit_bzero(b->data, b->len);
}

void node_destination_hold(struct node_state *n, struct view_destination *d, struct buf *out)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(view_destination_id(d), key);
	i = node_entry_find(n, ENTRY_DESTINATION, key);
	if (i == ENTRY_NONE) {
		i = node_entry_make(n, ENTRY_DESTINATION, key);
		if (i == ENTRY_NONE) {
			n->refused++;
			return;
		}
		n->entries[i].destination = view_destination_ref(d);
	}
	n->entries[i].refs++;
	tell_destination(n, i, out);
}

void node_destination_release(struct node_state *n, const struct view_destination *d)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(view_destination_id(d), key);
	i = node_entry_find(n, ENTRY_DESTINATION, key);
	if (i != ENTRY_NONE && n->entries[i].refs && !--n->entries[i].refs)
		node_entry_set_dirty(n, i);
}

/* False: it is to be deleted, which must wait for the end of the snapshot. */
bool node_destination_look(struct node_state *n, uint16_t i, bool snapshot, struct buf *out)
{
	struct entry *e = &n->entries[i];

	if (e->refs) {
		tell_destination(n, i, out);
		return true;
	}
	if (e->gone)
		return true;
	if (!e->revision) {
		node_entry_forget(n, i);
		return true;
	}
	if (snapshot)
		return false;
	e->hash = 0;
	node_entry_bury(n, i);
	node_entry_tell_gone(&n->entries[i], out);
	node_entries_limit_tombstones(n);
	return true;
}
