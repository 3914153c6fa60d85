/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pods of a node: which ones may have changed, and what is sent for a changed one: all of it,
 * or, to an agent that understands that, only its policy. Loop thread only.
 */
#include "operator/stream/node_state_internal.h"

#include "operator/stream/frame.h"

/* ---- what may have changed ------------------------------------------------------------------- */

static bool is_canonical(const char *text, const uint8_t uid[16])
{
	static const char digits[] = "0123456789abcdef";
	const char *p = text;

	for (size_t i = 0; i < 16; i++) {
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *p++ != '-')
			return false;
		if (p[0] != digits[uid[i] >> 4] || p[1] != digits[uid[i] & 15])
			return false;
		p += 2;
	}
	return !*p;
}

static uint16_t make_pod(struct node_state *n, const uint8_t uid[16], const char *uid_text)
{
	_cleanup_free_ char *text = NULL;
	uint16_t i;

	if (n->n_pods >= NODE_PODS_MAX)
		return ENTRY_NONE;
	if (!is_canonical(uid_text, uid)) {
		text = strdup(uid_text);
		if (!text)
			return ENTRY_NONE;
	}
	i = node_entry_make(n, ENTRY_POD, uid);
	if (i == ENTRY_NONE)
		return i;
	n->entries[i].uid_text = TAKE_PTR(text);
	n->n_pods++;
	return i;
}

void node_state_touch(struct node_state *n, const uint8_t uid[16], const char *uid_text)
{
	uint16_t i = node_entry_find(n, ENTRY_POD, uid);

	if (i == ENTRY_NONE)
		i = make_pod(n, uid, uid_text);
	if (i == ENTRY_NONE) {
		n->refused++;
		return;
	}
	n->entries[i].only_policy = false;
	node_entry_set_dirty(n, i);
}

static void touch_policy(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (e->dirty || e->gone)
		return;
	e->only_policy = true;
	node_entry_set_dirty(n, i);
}

void node_state_touch_policy(struct node_state *n, const uint8_t uid[16])
{
	uint16_t i = node_entry_find(n, ENTRY_POD, uid);

	if (i != ENTRY_NONE)
		touch_policy(n, i);
}

void node_state_touch_policies(struct node_state *n)
{
	for (size_t i = 0; i < n->used; i++)
		if (n->entries[i].kind == ENTRY_DEFAULT || n->entries[i].kind == ENTRY_POD)
			touch_policy(n, (uint16_t)i);
}

void node_state_touch_all(struct node_state *n)
{
	for (size_t i = 0; i < n->used; i++) {
		struct entry *e = &n->entries[i];

		if (e->kind != ENTRY_DEFAULT && (e->kind != ENTRY_POD || e->gone))
			continue;
		e->only_policy = false;
		node_entry_set_dirty(n, (uint16_t)i);
	}
}

/* ---- telling --------------------------------------------------------------------------------- */

/* Encodes the pod into the scratch; the policy is a reference, as of node_view_pod(). */
static int view_pod(struct node_state *n, uint16_t i, uint64_t *ret_hash,
		    struct view_policy **ret_policy)
{
	int r = node_view_pod(n->view, n->name, n->entries[i].key, n->scratch, ret_policy);

	if (r < 0)
		return r;
	*ret_hash = hash_bytes(n->scratch->data, n->scratch->len, 1) | 1;
	if (*ret_policy)
		frame_fixed64(n->scratch, POD_POLICY, (*ret_policy)->id);
	if (!buf_error(n->scratch))
		return 0;
	node_view_unref(n->view, *ret_policy);
	return -ENOMEM;
}

void node_pod_tell_again(struct node_state *n, uint16_t i, struct buf *out)
{
	struct entry *e = &n->entries[i];
	struct view_policy *policy = NULL;
	uint64_t hash;
	int r = -EAGAIN;

	if (!e->dirty)
		r = view_pod(n, i, &hash, &policy);
	if (!r && policy == e->policy) {
		frame_bytes(out, UPDATE_PODS, n->scratch->data, n->scratch->len);
	} else { /* it has changed: it is sent in its turn, after its policy */
		e->hash = 0;
		e->only_policy = false;
		node_entry_set_dirty(n, i);
	}
	if (!r)
		node_view_unref(n->view, policy);
}

static void pod_is_gone(struct node_state *n, uint16_t i, struct buf *out)
{
	if (n->entries[i].gone)
		return;
	n->n_pods--;
	node_policy_release(n, TAKE_PTR(n->entries[i].policy));
	if (!n->entries[i].revision) { /* it was never sent */
		node_entry_forget(n, i);
		return;
	}
	n->entries[i].hash = 0;
	node_entry_bury(n, i);
	node_entry_tell_gone(&n->entries[i], out);
	node_entries_limit_tombstones(n);
}

static void pod_is_back(struct node_state *n, uint16_t i)
{
	if (!n->entries[i].gone)
		return;
	n->entries[i].gone = false;
	n->n_gone--;
	n->n_pods++;
}

static void tell_policy(const struct entry *e, struct buf *out)
{
	char uid[64];
	size_t len;

	node_entry_uid(e, uid);
	len = strlen(uid);
	frame_varint(out, UPDATE_POD_POLICIES << 3 | 2);
	frame_varint(out, 2 + len + (e->policy ? 9 : 0)); /* each tag is one byte */
	frame_bytes(out, POD_POLICY_UID, uid, len);
	if (e->policy)
		frame_fixed64(out, POD_POLICY_POLICY, e->policy->id);
}

/* Sends only the POLICY (a reference, taken over) of a pod that the agent has. False: no memory. */
static bool change_policy(struct node_state *n, uint16_t i, struct view_policy *policy,
			  struct buf *out)
{
	if (policy == n->entries[i].policy) {
		node_view_unref(n->view, policy);
		return true;
	}
	if (!node_policy_set(n, i, policy, out)) {
		n->refused++;
		return false;
	}
	node_entry_advance(n, i);
	tell_policy(&n->entries[i], out);
	return true;
}

/*
 * False: look at it again later: it is gone, which must wait for the end of the snapshot, or no
 * memory.
 */
bool node_pod_look(struct node_state *n, uint16_t i, bool snapshot, struct buf *out)
{
	const struct entry *e = &n->entries[i];
	bool has = e->hash && e->revision && !e->gone;
	struct view_policy *policy = NULL;
	uint64_t hash;
	int r;

	if (e->only_policy && has && n->brief &&
	    !node_view_pod_policy(n->view, n->name, e->key, &policy))
		return change_policy(n, i, policy, out);
	r = view_pod(n, i, &hash, &policy);
	if (r == -ENOENT) {
		if (snapshot && n->entries[i].revision && !n->entries[i].gone)
			return false;
		pod_is_gone(n, i, out);
		return true;
	}
	if (r < 0) {
		n->refused++;
		return false;
	}
	if (has && e->hash == hash && (n->brief || policy == e->policy))
		return change_policy(n, i, policy, out);
	if (!node_policy_set(n, i, policy, out)) {
		n->refused++;
		return false;
	}
	pod_is_back(n, i);
	n->entries[i].hash = hash;
	node_entry_advance(n, i);
	frame_bytes(out, UPDATE_PODS, n->scratch->data, n->scratch->len);
	return true;
}
