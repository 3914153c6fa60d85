/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that were sent to a node, and how many of its pods, and its default, refer to each.
 * A policy is sent at its first reference, after its destinations. After its last reference it is
 * deleted only later, in node_policies_delete_idle(), because a pod is often back in a moment. Loop
 * thread only.
 */
#include "operator/stream/node_state_internal.h"

#include "operator/stream/frame.h"

/*
 * Counts one more reference on the policy's entry, made if needed; appends the policy when the node
 * does not have it. False: no memory.
 */
static bool policy_hold(struct node_state *n, struct view_policy *policy, struct buf *out)
{
	uint8_t key[16] = {0};
	struct entry *e;
	uint16_t i;

	memcpy(key, &policy->id, sizeof(policy->id));
	i = node_entry_find(n, ENTRY_POLICY, key);
	if (i == ENTRY_NONE || !n->entries[i].revision || n->entries[i].gone)
		for (size_t k = 0; k < policy->n_destinations; k++)
			node_destination_hold(n, policy->destinations[k], out);
	if (i == ENTRY_NONE) {
		i = node_entry_make(n, ENTRY_POLICY, key);
		if (i == ENTRY_NONE) {
			for (size_t k = 0; k < policy->n_destinations; k++)
				node_destination_release(n, policy->destinations[k]);
			return false;
		}
		n->entries[i].policy = policy;
		policy->refs++;
	}
	e = &n->entries[i];
	if (!e->revision || e->gone) {
		if (e->gone)
			n->n_gone--;
		e->gone = false;
		node_entry_advance(n, i);
		frame_bytes(out, UPDATE_POLICIES, policy->bytes, policy->len);
	} else if (!e->refs) {
		n->n_idle--;
	}
	e->refs++;
	return true;
}

void node_policy_release(struct node_state *n, struct view_policy *policy)
{
	uint8_t key[16] = {0};
	uint16_t i;

	if (!policy)
		return;
	memcpy(key, &policy->id, sizeof(policy->id));
	i = node_entry_find(n, ENTRY_POLICY, key);
	if (i != ENTRY_NONE && !--n->entries[i].refs)
		n->n_idle++;
	node_view_unref(n->view, policy);
}

/* POLICY is a reference that is taken over. */
bool node_policy_set(struct node_state *n, uint16_t i, struct view_policy *policy, struct buf *out)
{
	if (policy == n->entries[i].policy) {
		node_view_unref(n->view, policy);
		return true;
	}
	if (policy && !policy_hold(n, policy, out)) {
		node_view_unref(n->view, policy);
		return false;
	}
	node_policy_release(n, n->entries[i].policy);
	n->entries[i].policy = policy;
	return true;
}

static void tell_budget(const struct node_state *n, struct buf *out)
{
	_cleanup_(buf_done) struct buf b;

	buf_init(&b, 64);
	frame_number(&b, BUDGET_CPU, (uint64_t)n->budget.cpu);
	frame_number(&b, BUDGET_MEMORY, (uint64_t)n->budget.memory);
	frame_bytes(out, UPDATE_BUDGET, b.data, b.len);
}

void node_policy_tell_default(const struct node_state *n, struct buf *out)
{
	const struct view_policy *policy = n->entries[n->fallback].policy;

	if (!policy)
		return;
	frame_bytes(out, UPDATE_DEFAULT_POLICY, policy->bytes, policy->len);
	tell_budget(n, out);
}

void node_policy_look_at_default(struct node_state *n, uint16_t i, struct buf *out)
{
	const struct budget_spec budget = node_view_budget(n->view);
	struct view_policy *policy = NULL;

	if (node_view_default(n->view, n->name, &policy) < 0)
		return; /* the default that was sent stays: there is no other */
	if (n->entries[i].revision && n->entries[i].policy == policy &&
	    n->budget.cpu == budget.cpu && n->budget.memory == budget.memory) {
		node_view_unref(n->view, policy);
		return;
	}
	if (!node_policy_set(n, i, policy, out)) {
		n->refused++;
		return;
	}
	n->budget = budget;
	node_entry_advance(n, i);
	node_policy_tell_default(n, out);
}

void node_policies_delete_idle(struct node_state *n, struct buf *out)
{
	uint16_t i = n->oldest, next;

	for (; i != ENTRY_NONE && n->n_idle; i = next) {
		struct entry *e = &n->entries[i];

		next = e->next;
		if (e->kind != ENTRY_POLICY || e->refs || e->gone)
			continue;
		n->n_idle--;
		node_entry_bury(n, i);
		node_entry_tell_gone(e, out);
		for (size_t k = 0; k < e->policy->n_destinations; k++)
			node_destination_release(n, e->policy->destinations[k]);
	}
	node_entries_limit_tombstones(n);
}
