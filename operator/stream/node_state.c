/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries live in one array and are linked by index: into hash chains, into the order of revisions,
 * and, when touched, into a queue. An entry that was never told (revision 0) is in no order.
 *
 * A policy is told before the first pod that refers to it and deleted after the last one: the order
 * of revisions keeps that for whoever resumes, too. One Update never names a thing and its
 * deletion: what is in the order is collected alone, and policies that nobody refers to go when no
 * pod is left to look at.
 */
#include "operator/stream/node_state.h"

#include "operator/stream/frame.h"

enum {
	NONE = UINT16_MAX,
	ENTRIES_MAX = UINT16_MAX - 1,
	ENTRIES_MIN = 16,
	/* Fields of Update in node.proto. */
	UPDATE_DESTINATIONS = 2,
	UPDATE_POLICIES = 3,
	UPDATE_PODS = 4,
	UPDATE_DELETED_PODS = 5,
	UPDATE_DELETED_POLICIES = 6,
	UPDATE_DELETED_DESTINATIONS = 7,
	UPDATE_DEFAULT_POLICY = 8,
	UPDATE_POD_POLICIES = 9,
	POD_POLICY = 5,
	POD_POLICY_UID = 1,
	POD_POLICY_POLICY = 2,
};

enum entry_kind { ENTRY_FREE, ENTRY_POD, ENTRY_POLICY, ENTRY_DEFAULT, ENTRY_DESTINATION };

struct entry {
	uint8_t key[16]; /* a pod's uid, a policy's id, hashes of a destination's id */
	uint64_t revision;
	uint64_t hash; /* of a pod as it was told but for its policy; 0: to be told whole */
	union {
		struct view_policy *policy; /* a pod's; a policy itself, a tombstone's too */
		struct view_destination *destination;
	};
	char *uid_text; /* when the key does not give it back */
	uint32_t refs;	/* of a policy: pods and the default; of a destination: policies told */
	uint16_t chain; /* hash chain, or list of free ones */
	uint16_t prev, next; /* by revision */
	uint16_t dirty_next;
	uint8_t kind;
	bool dirty, gone;
	bool only_policy; /* what is dirty about it */
};

struct node_state {
	struct node_view *view;
	struct entry *entries;
	uint16_t *buckets;
	size_t cap, used;	 /* cap: a power of two; as many buckets */
	uint16_t free_list;	 /* by chain */
	uint16_t oldest, newest; /* by revision */
	uint16_t dirty, dirty_last;
	size_t n_dirty, n_pods, n_gone, n_idle; /* idle: told policies without a reference */
	uint64_t revision, floor;
	uint64_t refused;
	bool brief;
	uint16_t fallback;   /* the entry of kind DEFAULT */
	struct buf *scratch; /* the view's */
	char name[];
};

/* ---- entries --------------------------------------------------------------------------------- */

static size_t bucket_of(const struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	return hash_bytes(key, 16, kind) & (n->cap - 1);
}

static uint16_t find(const struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	uint16_t i = n->cap ? n->buckets[bucket_of(n, kind, key)] : NONE;

	while (i != NONE && (n->entries[i].kind != kind || memcmp(n->entries[i].key, key, 16) != 0))
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

static uint16_t make(struct node_state *n, uint8_t kind, const uint8_t key[16])
{
	uint16_t i = n->free_list;

	if (i != NONE)
		n->free_list = n->entries[i].chain;
	else if (n->used < n->cap || grow(n))
		i = (uint16_t)n->used++;
	else
		return NONE;
	n->entries[i] = (struct entry){
	    .kind = kind, .prev = NONE, .next = NONE, .dirty_next = NONE, .chain = NONE};
	memcpy(n->entries[i].key, key, 16);
	hash_in(n, i);
	return i;
}

static void order_out(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (!e->revision)
		return;
	if (e->prev != NONE)
		n->entries[e->prev].next = e->next;
	else
		n->oldest = e->next;
	if (e->next != NONE)
		n->entries[e->next].prev = e->prev;
	else
		n->newest = e->prev;
	e->prev = e->next = NONE;
	e->revision = 0;
}

/* A new revision: the last one of the order. */
static void advance(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	order_out(n, i);
	e->revision = ++n->revision;
	e->prev = n->newest;
	if (e->prev != NONE)
		n->entries[e->prev].next = i;
	else
		n->oldest = i;
	n->newest = i;
}

static void unref(struct node_state *n, const struct entry *e)
{
	if (e->kind == ENTRY_DESTINATION)
		destination_table_unref(node_view_destinations(n->view), e->destination);
	else
		node_view_unref(n->view, e->policy);
}

/* It must not be dirty. */
static void forget(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	order_out(n, i);
	hash_out(n, i);
	unref(n, e);
	free(e->uid_text);
	if (e->gone)
		n->n_gone--;
	*e = (struct entry){.kind = ENTRY_FREE, .chain = n->free_list};
	n->free_list = i;
}

static void set_dirty(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (e->dirty)
		return;
	e->dirty = true;
	e->dirty_next = NONE;
	if (n->dirty_last != NONE)
		n->entries[n->dirty_last].dirty_next = i;
	else
		n->dirty = i;
	n->dirty_last = i;
	n->n_dirty++;
}

static uint16_t take_dirty(struct node_state *n)
{
	uint16_t i = n->dirty;

	n->dirty = n->entries[i].dirty_next;
	if (n->dirty == NONE)
		n->dirty_last = NONE;
	n->entries[i].dirty = false;
	n->n_dirty--;
	return i;
}

/* Tombstones beyond the cap: whoever has not heard of them yet needs a snapshot. */
static void limit_tombstones(struct node_state *n)
{
	uint16_t i = n->oldest, next;

	for (; n->n_gone > NODE_TOMBSTONES_MAX && i != NONE; i = next) {
		next = n->entries[i].next;
		if (!n->entries[i].gone || n->entries[i].dirty || n->entries[i].refs)
			continue;
		n->floor = n->entries[i].revision;
		forget(n, i);
	}
}

static void bury(struct node_state *n, uint16_t i)
{
	n->entries[i].gone = true;
	n->n_gone++;
	advance(n, i);
}

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

static void uid_of(const struct entry *e, char ret[64])
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

void node_state_touch(struct node_state *n, const uint8_t uid[16], const char *uid_text)
{
	uint16_t i = find(n, ENTRY_POD, uid);

	if (i == NONE) {
		if (n->n_pods < NODE_PODS_MAX)
			i = make(n, ENTRY_POD, uid);
		if (i == NONE) {
			n->refused++;
			return;
		}
		n->n_pods++;
		if (!is_canonical(uid_text, uid))
			n->entries[i].uid_text = strdup(uid_text);
	}
	n->entries[i].only_policy = false;
	set_dirty(n, i);
}

static void touch_policy(struct node_state *n, uint16_t i)
{
	struct entry *e = &n->entries[i];

	if (e->dirty || e->gone)
		return;
	e->only_policy = true;
	set_dirty(n, i);
}

void node_state_touch_policy(struct node_state *n, const uint8_t uid[16])
{
	uint16_t i = find(n, ENTRY_POD, uid);

	if (i != NONE)
		touch_policy(n, i);
}

void node_state_touch_policies(struct node_state *n)
{
	for (size_t i = 0; i < n->used; i++)
		if (n->entries[i].kind == ENTRY_DEFAULT || n->entries[i].kind == ENTRY_POD)
			touch_policy(n, (uint16_t)i);
}

void node_state_set_brief(struct node_state *n, bool brief)
{
	n->brief = brief;
}

void node_state_touch_all(struct node_state *n)
{
	for (size_t i = 0; i < n->used; i++) {
		struct entry *e = &n->entries[i];

		if (e->kind != ENTRY_DEFAULT && (e->kind != ENTRY_POD || e->gone))
			continue;
		e->only_policy = false;
		set_dirty(n, (uint16_t)i);
	}
}

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
	i = find(n, ENTRY_DESTINATION, key);
	if (i == NONE || !n->entries[i].refs)
		return false;
	set_dirty(n, i);
	return true;
}

bool node_state_clean(const struct node_state *n)
{
	return !n->n_dirty && !n->n_idle;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_gone(const struct entry *e, struct buf *out)
{
	char uid[64];

	if (e->kind == ENTRY_POLICY) {
		frame_fixed64(out, UPDATE_DELETED_POLICIES, e->policy->id);
	} else if (e->kind == ENTRY_DESTINATION) {
		const char *id = view_destination_id(e->destination);

		frame_bytes(out, UPDATE_DELETED_DESTINATIONS, id, strlen(id));
	} else if (e->kind == ENTRY_POD) {
		uid_of(e, uid);
		frame_bytes(out, UPDATE_DELETED_PODS, uid, strlen(uid));
	}
}

/* The pod into the scratch; the policy is a reference, as of node_view_pod(). */
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

static void tell_pod_again(struct node_state *n, uint16_t i, struct buf *out)
{
	struct entry *e = &n->entries[i];
	struct view_policy *policy = NULL;
	uint64_t hash;
	int r = -EAGAIN;

	if (!e->dirty)
		r = view_pod(n, i, &hash, &policy);
	if (!r && policy == e->policy) {
		frame_bytes(out, UPDATE_PODS, n->scratch->data, n->scratch->len);
	} else { /* it is another by now: told in its turn, after its policy */
		e->hash = 0;
		e->only_policy = false;
		set_dirty(n, i);
	}
	if (!r)
		node_view_unref(n->view, policy);
}

/* It is another by now: told in its turn. */
static void tell_destination_again(struct node_state *n, uint16_t i, struct buf *out)
{
	struct buf *b = node_view_secret_scratch(n->view);
	const struct entry *e = &n->entries[i];

	if (e->dirty ||
	    destination_table_encode(node_view_destinations(n->view), e->destination, b) < 0)
		return;
	if (e->hash == (hash_bytes(b->data, b->len, 1) | 1))
		frame_bytes(out, UPDATE_DESTINATIONS, b->data, b->len);
	else
		set_dirty(n, i);
	explicit_bzero(b->data, b->len);
}

static void tell_again(struct node_state *n, uint16_t i, struct buf *out)
{
	const struct entry *e = &n->entries[i];

	if (e->kind == ENTRY_POLICY)
		frame_bytes(out, UPDATE_POLICIES, e->policy->bytes, e->policy->len);
	else if (e->kind == ENTRY_DESTINATION)
		tell_destination_again(n, i, out);
	else if (e->kind == ENTRY_POD)
		tell_pod_again(n, i, out);
	else if (e->policy)
		frame_bytes(out, UPDATE_DEFAULT_POLICY, e->policy->bytes, e->policy->len);
}

/*
 * Told when it is another than was told. One that is left out is not taken back from who has it: a
 * Secret that is gone for a while must not cost samples.
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
		advance(n, i);
		frame_bytes(out, UPDATE_DESTINATIONS, b->data, b->len);
	}
	explicit_bzero(b->data, b->len);
}

static void destination_hold(struct node_state *n, struct view_destination *d, struct buf *out)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(view_destination_id(d), key);
	i = find(n, ENTRY_DESTINATION, key);
	if (i == NONE) {
		i = make(n, ENTRY_DESTINATION, key);
		if (i == NONE) {
			n->refused++;
			return;
		}
		n->entries[i].destination = view_destination_ref(d);
	}
	n->entries[i].refs++;
	tell_destination(n, i, out);
}

static void destination_release(struct node_state *n, const struct view_destination *d)
{
	uint8_t key[16];
	uint16_t i;

	destination_key(view_destination_id(d), key);
	i = find(n, ENTRY_DESTINATION, key);
	if (i != NONE && n->entries[i].refs && !--n->entries[i].refs)
		set_dirty(n, i);
}

/* False: it is not wanted any more, and a snapshot must be over first. */
static bool look_at_destination(struct node_state *n, uint16_t i, bool snapshot, struct buf *out)
{
	struct entry *e = &n->entries[i];

	if (e->refs) {
		tell_destination(n, i, out);
		return true;
	}
	if (e->gone)
		return true;
	if (!e->revision) {
		forget(n, i);
		return true;
	}
	if (snapshot)
		return false;
	e->hash = 0;
	bury(n, i);
	tell_gone(&n->entries[i], out);
	limit_tombstones(n);
	return true;
}

/* The policy has an entry that counts one more; it is told when the node has not got it. */
static bool policy_hold(struct node_state *n, struct view_policy *policy, struct buf *out)
{
	uint8_t key[16] = {0};
	struct entry *e;
	uint16_t i;

	memcpy(key, &policy->id, sizeof(policy->id));
	i = find(n, ENTRY_POLICY, key);
	if (i == NONE || !n->entries[i].revision || n->entries[i].gone)
		for (size_t k = 0; k < policy->n_destinations; k++)
			destination_hold(n, policy->destinations[k], out);
	if (i == NONE) {
		i = make(n, ENTRY_POLICY, key);
		if (i == NONE)
			return false;
		n->entries[i].policy = policy;
		policy->refs++;
	}
	e = &n->entries[i];
	if (!e->revision || e->gone) {
		if (e->gone)
			n->n_gone--;
		e->gone = false;
		advance(n, i);
		frame_bytes(out, UPDATE_POLICIES, policy->bytes, policy->len);
	} else if (!e->refs) {
		n->n_idle--;
	}
	e->refs++;
	return true;
}

static void policy_release(struct node_state *n, struct view_policy *policy)
{
	uint8_t key[16] = {0};
	uint16_t i;

	if (!policy)
		return;
	memcpy(key, &policy->id, sizeof(policy->id));
	i = find(n, ENTRY_POLICY, key);
	if (i != NONE && !--n->entries[i].refs)
		n->n_idle++;
	node_view_unref(n->view, policy);
}

/* POLICY, a reference that is taken over, becomes the entry's. */
static bool set_policy(struct node_state *n, uint16_t i, struct view_policy *policy,
		       struct buf *out)
{
	if (policy == n->entries[i].policy) {
		node_view_unref(n->view, policy);
		return true;
	}
	if (policy && !policy_hold(n, policy, out)) {
		node_view_unref(n->view, policy);
		return false;
	}
	policy_release(n, n->entries[i].policy);
	n->entries[i].policy = policy;
	return true;
}

static void look_at_default(struct node_state *n, uint16_t i, struct buf *out)
{
	struct view_policy *policy = NULL;

	if (node_view_default(n->view, n->name, &policy) < 0)
		return; /* what was told holds on: nothing has been said against it */
	if (n->entries[i].revision && n->entries[i].policy == policy) {
		node_view_unref(n->view, policy);
		return;
	}
	if (!set_policy(n, i, policy, out)) {
		n->refused++;
		return;
	}
	advance(n, i);
	frame_bytes(out, UPDATE_DEFAULT_POLICY, policy->bytes, policy->len);
}

static void pod_is_gone(struct node_state *n, uint16_t i, struct buf *out)
{
	if (n->entries[i].gone)
		return;
	n->n_pods--;
	policy_release(n, TAKE_PTR(n->entries[i].policy));
	if (!n->entries[i].revision) { /* nobody has heard of it */
		forget(n, i);
		return;
	}
	n->entries[i].hash = 0;
	bury(n, i);
	tell_gone(&n->entries[i], out);
	limit_tombstones(n);
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

	uid_of(e, uid);
	len = strlen(uid);
	frame_varint(out, UPDATE_POD_POLICIES << 3 | 2);
	frame_varint(out, 2 + len + (e->policy ? 9 : 0)); /* each tag is one byte */
	frame_bytes(out, POD_POLICY_UID, uid, len);
	if (e->policy)
		frame_fixed64(out, POD_POLICY_POLICY, e->policy->id);
}

/* The agent has it, but for POLICY, a reference that is taken over. False: no memory. */
static bool change_policy(struct node_state *n, uint16_t i, struct view_policy *policy,
			  struct buf *out)
{
	if (policy == n->entries[i].policy) {
		node_view_unref(n->view, policy);
		return true;
	}
	if (!set_policy(n, i, policy, out)) {
		n->refused++;
		return false;
	}
	advance(n, i);
	tell_policy(&n->entries[i], out);
	return true;
}

/* False: to be looked at later: it is gone and a snapshot must be over first, or no memory. */
static bool look_at_pod(struct node_state *n, uint16_t i, bool snapshot, struct buf *out)
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
	if (!set_policy(n, i, policy, out)) {
		n->refused++;
		return false;
	}
	pod_is_back(n, i);
	n->entries[i].hash = hash;
	advance(n, i);
	frame_bytes(out, UPDATE_PODS, n->scratch->data, n->scratch->len);
	return true;
}

static void delete_idle_policies(struct node_state *n, struct buf *out)
{
	uint16_t i = n->oldest, next;

	for (; i != NONE && n->n_idle; i = next) {
		struct entry *e = &n->entries[i];

		next = e->next;
		if (e->kind != ENTRY_POLICY || e->refs || e->gone)
			continue;
		n->n_idle--;
		bury(n, i);
		tell_gone(e, out);
		for (size_t k = 0; k < e->policy->n_destinations; k++)
			destination_release(n, e->policy->destinations[k]);
	}
	limit_tombstones(n);
}

bool node_state_resumes(const struct node_state *n, uint64_t revision)
{
	return revision >= n->floor && revision <= n->revision;
}

/* What is in the order after REVISION; true when there is more. */
static bool collect_told(struct node_state *n, bool snapshot, size_t limit, uint64_t *revision,
			 struct buf *out)
{
	uint16_t i = NONE;

	for (uint16_t k = n->newest; k != NONE && n->entries[k].revision > *revision;
	     k = n->entries[k].prev)
		i = k;
	for (; i != NONE && out->len < limit; i = n->entries[i].next) {
		const struct entry *e = &n->entries[i];

		if (!e->gone)
			tell_again(n, i, out);
		else if (!snapshot)
			tell_gone(e, out);
		*revision = e->revision;
	}
	return i != NONE;
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
		i = take_dirty(n);
		if (n->entries[i].kind == ENTRY_DEFAULT)
			look_at_default(n, i, out);
		else if (n->entries[i].kind == ENTRY_DESTINATION
			     ? !look_at_destination(n, i, snapshot, out)
			     : !look_at_pod(n, i, snapshot, out))
			set_dirty(n, i);
	}
	if (!left && !snapshot && n->n_idle) {
		delete_idle_policies(n, out);
		*revision = n->revision;
		return n->n_dirty > 0; /* their destinations */
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
	n->free_list = n->oldest = n->newest = n->dirty = n->dirty_last = NONE;
	n->revision = n->floor = base + 1;
	memcpy(n->name, node, len);
	n->scratch = node_view_scratch(view);
	n->fallback = make(n, ENTRY_DEFAULT, no_key);
	if (n->fallback == NONE)
		return -ENOMEM;
	set_dirty(n, n->fallback);
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
		unref(n, &n->entries[i]);
		free(n->entries[i].uid_text);
	}
	free(n->entries);
	free(n->buckets);
	free(n);
	return NULL;
}
