/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which records are due to be written, and in which order. Changed facts are written soon,
 * counters seldom, and everything once in a while to renew lastReportTime (the figures are in
 * nodes.h).
 *
 * The rate: a bucket of NODES_WRITES_S a second, filled by ticks; records take turns. At most
 * NODES_CALLS_MAX writes are under way. Loop thread only.
 */
#include "operator/nodes/nodes_internal.h"

/* ---- what is due ----------------------------------------------------------------------------- */

uint64_t node_record_content(struct nodes *n, struct node_record *r)
{
	const char *replica = r->connected ? r->replica : "";
	const char *runtime = r->runtime ? r->runtime : "";
	uint64_t h = r->connected ? 1 : 2;

	if (!r->wanted_known)
		n->o.wanted(n->o.arg, r->name, r->wanted);
	r->wanted_known = true;
	h = hash_bytes(replica, strlen(replica), h);
	h = hash_bytes(runtime, strlen(runtime), h);
	h = hash_bytes(r->wanted, strlen(r->wanted), h);
	h = mix64(h ^ r->told.facts);
	return h ? h : 1;
}

/*
 * Time between two writes of a node's counters. With 5,000 nodes: 100 s, 50 writes a second in all.
 */
static uint64_t counters_ms(const struct nodes *n)
{
	uint64_t all = MAX(node_store_count(n->store), n->connected);

	return MAX((uint64_t)NODES_COUNTERS_MS, all * 1000 / NODES_COUNTERS_PER_S);
}

enum due { DUE_NOT, DUE_NOW, DUE_NEVER /* the record is to be forgotten */ };

static enum due due_away(struct nodes *n, const struct node_record *r, uint64_t now, uint64_t says)
{
	const struct stored_node *stored = node_store_find(n->store, r->name);

	if (now < r->since_ms + NODES_GRACE_MS)
		return DUE_NOT;
	/* Nothing to write: the ProfilingNode is gone or already says that the agent is away, or
	 * there was no memory for the event. */
	return !r->told.bytes || !stored || !stored->replica || r->written == says ? DUE_NEVER
										   : DUE_NOW;
}

static enum due due(struct nodes *n, struct node_record *r, uint64_t now)
{
	uint64_t says;

	if (r->call || now < r->not_before_ms)
		return DUE_NOT;
	says = node_record_content(n, r);
	if (!r->connected)
		return due_away(n, r, now, says);
	if (!r->told.has_report && now < r->since_ms + NODES_SILENT_MS)
		return DUE_NOT;
	if (r->written != says)
		return !r->written || now >= r->written_ms + NODES_TURN_MS ? DUE_NOW : DUE_NOT;
	if (r->written_counters != r->told.counters && now >= r->written_ms + counters_ms(n))
		return DUE_NOW;
	return now >= r->written_ms + NODES_BEAT_MS ? DUE_NOW : DUE_NOT;
}

/* ---- the pace -------------------------------------------------------------------------------- */

static void fill(struct nodes *n, uint64_t now)
{
	uint64_t full = NODES_BURST * 1000ULL;
	uint64_t elapsed = n->filled_ms ? MIN(now - n->filled_ms, 1000U) : 1000U;

	n->filled_ms = now;
	n->tokens = MIN(n->tokens + elapsed * NODES_WRITES_S, full);
}

void nodes_tick(struct nodes *n)
{
	uint64_t now = nodes_now_ms(n);
	size_t left = HASH_COUNT(n->records), waiting = 0;
	struct node_record *r = n->next, *next;

	fill(n, now);
	if (!nodes_synced(n) || !n->o.leads(n->o.arg))
		return;
	for (; left; left--, r = next) {
		r = r ? r : n->records;
		next = r->hh.next;
		switch (due(n, r, now)) {
		case DUE_NOT:
			break;
		case DUE_NEVER:
			nodes_forget(n, r);
			break;
		case DUE_NOW:
			if (n->tokens >= 1000 && n->calls < NODES_CALLS_MAX) {
				node_record_write(n, r);
				break;
			}
			/* The next tick begins with the first record that waits. */
			if (!waiting++)
				n->next = r;
		}
	}
	n->stats.due = waiting;
	nodes_look_for_stale(n, now);
}
