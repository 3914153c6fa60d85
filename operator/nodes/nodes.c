/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record for each node whose agent has, or had a moment ago, its stream to one of the replicas. A
 * record has one hash of the last event and one of the status that was written: when they differ a
 * write is due; how soon depends on what differs (node_schedule.c).
 *
 * The leader writes all of them, by server-side apply; status.operator names the replica that has
 * the stream. When two replicas claim a node, the one that heard from the agent last has it: only
 * one of two streams is alive. Nodes that no replica reports are marked (node_stale.c).
 *
 * Events are not trusted: whoever breaks into a replica can forge them. Their size, their number
 * and the fields that are written are limited, and only nodes that are in the cluster are written.
 */
#include "operator/nodes/nodes_internal.h"

#include "operator/cache/kept.h"

enum { DECODED_MAX = 4 << 20, REPLICA_MAX = 253, ECHO_MS = 2000 };

/* ---- records --------------------------------------------------------------------------------- */

struct node_record *nodes_find(struct nodes *n, const char *name)
{
	struct node_record *r = NULL;

	if (n->records)
		HASH_FIND_STR(n->records, name, r);
	return r;
}

static struct node_record *make(struct nodes *n, const char *name)
{
	size_t len = strlen(name);
	struct node_record *r;

	if (HASH_COUNT(n->records) >= NODES_MAX)
		return NULL;
	r = calloc(1, sizeof(*r) + len + 1);
	if (!r)
		return NULL;
	memcpy(r->name, name, len + 1);
	r->owner = n;
	HASH_ADD_KEYPTR(hh, n->records, r->name, len, r);
	return r;
}

void nodes_forget(struct nodes *n, struct node_record *r)
{
	if (n->next == r)
		n->next = r->hh.next;
	if (r->call) {
		kube_cancel(r->call);
		n->calls--;
	}
	n->connected -= r->connected;
	HASH_DEL(n->records, r);
	told_done(&r->told);
	free(r->runtime);
	free(r->replica);
	free(r);
}

/* ---- what replicas tell ---------------------------------------------------------------------- */

static void set_connected(struct nodes *n, struct node_record *r, bool connected)
{
	if (r->connected == connected)
		return;
	r->connected = connected;
	r->since_ms = nodes_now_ms(n);
	n->connected += connected ? 1 : (size_t)-1;
}

static int set_replica(struct node_record *r, uint64_t peer, const char *replica)
{
	char *copy;

	if (r->peer == peer && r->replica && streq(r->replica, replica))
		return 0;
	copy = strndup(replica, REPLICA_MAX);
	if (!copy)
		return -ENOMEM;
	free(r->replica);
	r->replica = copy;
	r->peer = peer;
	return 0;
}

static int take_event(struct nodes *n, uint64_t peer, const char *replica,
		      const Kiln__Node__V1__NodeEvent *event)
{
	struct node_record *r = nodes_find(n, event->node);

	if (!event->connected) {
		if (r && r->peer == peer)
			set_connected(n, r, false);
		return 0;
	}
	if (!r)
		r = make(n, event->node);
	if (!r)
		return -ENOMEM;
	if (r->connected && r->peer != peer && r->heard_ms > event->heard)
		return 0;
	if (!event->report && r->told.has_report)
		r->since_ms = nodes_now_ms(n); /* a new stream: wait for its first report */
	if (set_replica(r, peer, replica) < 0 || told_set(&r->told, event) < 0)
		return -ENOMEM;
	r->heard_ms = event->heard;
	if (event->report)
		r->reported = event->heard / 1000;
	set_connected(n, r, true);
	return 0;
}

/* Limits the memory of decoded events: many empty parts are small on the wire. */
struct arena {
	size_t left;
};

static void *arena_alloc(void *arg, size_t size)
{
	struct arena *a = arg;

	if (size > a->left)
		return NULL;
	a->left -= size;
	return malloc(size);
}

static void arena_free(void *arg, void *p)
{
	free(p);
}

int nodes_take(struct nodes *n, uint64_t peer, const uint8_t *bytes, size_t len, bool *ret_whole)
{
	struct arena arena = {.left = DECODED_MAX};
	ProtobufCAllocator allocator = {arena_alloc, arena_free, &arena};
	Kiln__Node__V1__NodeEvents *e = kiln__node__v1__node_events__unpack(&allocator, len, bytes);

	if (!e)
		return -EBADMSG;
	for (size_t i = 0; i < e->n_nodes; i++) {
		const char *name = e->nodes[i]->node;

		if (!kept_is_name((struct slice){name, (uint32_t)strlen(name)}) ||
		    take_event(n, peer, e->replica, e->nodes[i]) < 0)
			n->stats.refused++;
	}
	*ret_whole = e->whole;
	kiln__node__v1__node_events__free_unpacked(e, &allocator);
	return 0;
}

void nodes_peer_gone(struct nodes *n, uint64_t peer)
{
	for (struct node_record *r = n->records; r; r = r->hh.next)
		if (r->peer == peer)
			set_connected(n, r, false);
}

void nodes_settled(struct nodes *n, bool settled)
{
	if (settled && !n->settled)
		n->settled_ms = nodes_now_ms(n);
	n->settled = settled;
}

void nodes_config_changed(struct nodes *n)
{
	if (!n)
		return;
	for (struct node_record *r = n->records; r; r = r->hh.next)
		r->wanted_known = false;
}

/* ---- what others wrote ----------------------------------------------------------------------- */

static void on_stored(void *arg, const char *name)
{
	struct nodes *n = arg;
	struct node_record *r = nodes_find(n, name);
	const struct stored_node *stored;

	if (!r || r->call || !r->written)
		return;
	stored = node_store_find(n->store, name);
	if (!stored || !stored->has_status)
		r->written = 0; /* somebody took it away */
	else if (stored->replica != node_text_hash(r->connected ? r->replica : "") &&
		 nodes_now_ms(n) > r->written_ms + ECHO_MS)
		r->written = 0; /* somebody else wrote it */
}

static void on_turned(void *arg)
{
	struct nodes *n = arg;

	n->o.turned(n->o.arg);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer)
{
	nodes_tick(timer->data);
}

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

int nodes_new(const struct nodes_options *options, struct nodes **ret, struct error *err)
{
	static const struct informer_ops ops = {
	    .put = node_store_put, .remove = node_store_remove, .replaced = node_store_replaced};
	const struct informer_options watch = {.kind = KUBE_PROFILING_NODES};
	struct nodes *n = calloc(1, sizeof(*n));
	struct node_store_options store = {
	    .max_nodes = NODES_MAX, .turned = on_turned, .changed = on_stored, .arg = n};
	int r = n ? node_store_new(&store, &n->store) : -ENOMEM;

	if (r < 0) {
		free(n);
		return error_set(err, r, "out of memory");
	}
	n->o = *options;
	n->reports = (struct node_reports){node_store_state, node_store_totals, node_store_failing,
					   node_store_left_out, n->store};
	r = informer_new(options->loop, options->client, &watch, &ops, n->store, &n->informer, err);
	if (r < 0) {
		nodes_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

void nodes_start(struct nodes *n)
{
	n->timer = calloc(1, sizeof(*n->timer));
	informer_start(n->informer);
	if (!n->timer || uv_timer_init(n->o.loop, n->timer) < 0) {
		free(TAKE_PTR(n->timer));
		log_error("nodes", "out of memory: no ProfilingNode is written");
		return;
	}
	n->timer->data = n;
	(void)uv_timer_start(n->timer, on_timer, NODES_TICK_MS, NODES_TICK_MS);
}

bool nodes_synced(const struct nodes *n)
{
	return informer_stats(n->informer)->synced;
}

struct nodes *nodes_free(struct nodes *n)
{
	struct node_record *r, *next;

	if (!n)
		return NULL;
	n->informer = informer_free(n->informer);
	HASH_ITER (hh, n->records, r, next)
		nodes_forget(n, r);
	if (n->stale_call)
		kube_cancel(n->stale_call);
	if (n->timer) {
		uv_timer_stop(n->timer);
		uv_close((uv_handle_t *)n->timer, on_timer_closed);
	}
	node_store_free(n->store);
	free(n);
	return NULL;
}

const struct node_reports *nodes_reports(struct nodes *n)
{
	return n ? &n->reports : NULL;
}
