/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the changes that an agent lacks into Updates: first the entries after its revision, in
 * their current state; then the dirty entries, which are compared with the caches (node_pods.c,
 * node_policies.c, node_destinations.c) and sent if they have changed.
 *
 * A policy is sent before the first pod that refers to it and deleted after the last one: the order
 * of revisions ensures that also for an agent that resumes. An Update never has both a thing and
 * its deletion: the entries after the revision are collected alone, and unused policies are deleted
 * when no dirty pod is left.
 */
#include "operator/stream/node_state_internal.h"

#include "operator/stream/frame.h"

void node_state_set_brief(struct node_state *n, bool brief)
{
	n->brief = brief;
}

bool node_state_clean(const struct node_state *n)
{
	return !n->n_dirty && !n->n_idle;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_again(struct node_state *n, uint16_t i, struct buf *out)
{
	const struct entry *e = &n->entries[i];

	if (e->kind == ENTRY_POLICY)
		frame_bytes(out, UPDATE_POLICIES, e->policy->bytes, e->policy->len);
	else if (e->kind == ENTRY_DESTINATION)
		node_destination_tell_again(n, i, out);
	else if (e->kind == ENTRY_POD)
		node_pod_tell_again(n, i, out);
	else
		node_policy_tell_default(n, out);
}

bool node_state_resumes(const struct node_state *n, uint64_t revision)
{
	return revision >= n->floor && revision <= n->revision;
}

/* Collects the entries after REVISION; true when there is more. */
static bool collect_told(struct node_state *n, bool snapshot, size_t limit, uint64_t *revision,
			 struct buf *out)
{
	uint16_t i = ENTRY_NONE;

	for (uint16_t k = n->newest; k != ENTRY_NONE && n->entries[k].revision > *revision;
	     k = n->entries[k].prev)
		i = k;
	for (; i != ENTRY_NONE && out->len < limit; i = n->entries[i].next) {
		const struct entry *e = &n->entries[i];

		if (!e->gone)
			tell_again(n, i, out);
		else if (!snapshot)
			node_entry_tell_gone(e, out);
		*revision = e->revision;
	}
	return i != ENTRY_NONE;
}

bool node_state_collect(struct node_state *n, bool snapshot, size_t limit, uint64_t *revision,
			struct buf *out)
{
	size_t left = n->n_dirty;
	uint16_t i;

	if (collect_told(n, snapshot, limit, revision, out))
		return true;
	if (out->len)
		return !node_state_clean(n);
	while (left && out->len < limit) {
		left--;
		i = node_entry_take_dirty(n);
		if (n->entries[i].kind == ENTRY_DEFAULT)
			node_policy_look_at_default(n, i, out);
		else if (n->entries[i].kind == ENTRY_DESTINATION
			     ? !node_destination_look(n, i, snapshot, out)
			     : !node_pod_look(n, i, snapshot, out))
			node_entry_set_dirty(n, i);
	}
	if (!left && !snapshot && n->n_idle) {
		node_policies_delete_idle(n, out);
		*revision = n->revision;
		return n->n_dirty > 0; /* the destinations of the deleted policies */
	}
	*revision = n->revision;
	return left > 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

const char *node_state_name(const struct node_state *n)
{
	return n->name;
}

uint64_t node_state_revision(const struct node_state *n)
{
	return n->revision;
}

size_t node_state_bytes(const struct node_state *n)
{
	return sizeof(*n) + strlen(n->name) + n->cap * (sizeof(*n->entries) + 2);
}

size_t node_state_entries(const struct node_state *n)
{
	return n->n_pods;
}

uint64_t node_state_refused(const struct node_state *n)
{
	return n->refused;
}

static int touch_one(void *arg, const uint8_t uid[16], const char *uid_text)
{
	node_state_touch(arg, uid, uid_text);
	return 0;
}

int node_state_new(struct node_view *view, const char *node, uint64_t base, struct node_state **ret)
{
	size_t len = strlen(node) + 1;
	_cleanup_(node_state_freep) struct node_state *n = calloc(1, sizeof(*n) + len);
	static const uint8_t no_key[16];

	if (!n)
		return -ENOMEM;
	n->view = view;
	n->free_list = n->oldest = n->newest = n->dirty = n->dirty_last = ENTRY_NONE;
	n->revision = n->floor = base + 1;
	memcpy(n->name, node, len);
	n->scratch = node_view_scratch(view);
	n->fallback = node_entry_make(n, ENTRY_DEFAULT, no_key);
	if (n->fallback == ENTRY_NONE)
		return -ENOMEM;
	node_entry_set_dirty(n, n->fallback);
	node_view_each(view, node, touch_one, n);
	*ret = TAKE_PTR(n);
	return 0;
}

struct node_state *node_state_free(struct node_state *n)
{
	if (!n)
		return NULL;
	for (size_t i = 0; i < n->used; i++) {
		if (n->entries[i].kind == ENTRY_FREE)
			continue;
		node_entry_unref(n, &n->entries[i]);
		free(n->entries[i].uid_text);
	}
	free(n->entries);
	free(n->buckets);
	free(n);
	return NULL;
}
