/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record for each node whose agent has, or had a moment ago, its stream here. A record knows what
 * it says by one hash and what was written by another: they differ, so a write is due; how soon,
 * depends on what differs (node_schedule.c).
 *
 * Every replica writes the nodes that it serves, by server-side apply with the same field manager,
 * so that what one no longer says goes, whoever said it; status.operator names the one that has the
 * stream. A record that finds another's name there yields, unless it has heard from the agent
 * since: of two streams only one is alive. The leader marks those whose replica has gone
 * (node_stale.c).
 */
#include "operator/nodes/nodes_internal.h"

#include "operator/stream/server.h"

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
	for (size_t i = 0; i < FACTS; i++)
		free(r->facts[i]);
	free(r->runtime);
	kept_report_done(&r->report);
	free(r);
}

static bool take_facts(struct node_record *r, const struct node_report *report)
{
	const char *const facts[FACTS] = {
	    [FACT_AGENT_VERSION] = report->agent_version,
	    [FACT_KERNEL] = report->kernel,
	    [FACT_CGROUP_MODE] = report->cgroup_mode,
	    [FACT_RUNTIME] = report->container_runtime,
	};

	for (size_t i = 0; i < FACTS; i++) {
		free(r->facts[i]);
		r->facts[i] = strdup(facts[i] ? facts[i] : "");
		if (!r->facts[i])
			return false;
	}
	return true;
}

const char *node_record_fact(const struct node_record *r, enum node_fact i)
{
	const char *told = r->facts[i] ? r->facts[i] : "";

	return i == FACT_RUNTIME && !told[0] && r->runtime ? r->runtime : told;
}

size_t node_record_left_out(struct nodes *n, const struct node_record *r,
			    const struct left_out *ret[static LEFT_OUT_MAX])
{
	return r->connected && n->o.left_out ? n->o.left_out(n->o.arg, r->name, ret) : 0;
}

void nodes_report(struct nodes *n, const struct node_report *report)
{
	struct node_record *r = n ? nodes_find(n, report->node) : NULL;

	if (!n)
		return;
	if (!r)
		r = make(n, report->node);
	if (!r || !take_facts(r, report)) {
		n->stats.refused++;
		return;
	}
	if (!r->connected) {
		r->connected = true;
		r->since_ms = nodes_now_ms(n);
		n->connected++;
	}
	if (!report->message) /* a new stream: whose, its first report will tell */
		return;
	if (r->lost)
		r->written = 0; /* the other stream was the dead one */
	r->lost = false;
	if (kept_report_set(&r->report, report->message) < 0)
		n->stats.refused++;
	else
		r->reported = nodes_now_s(n);
}

void nodes_left(struct nodes *n, const char *node)
{
	struct node_record *r = n ? nodes_find(n, node) : NULL;

	if (!r || !r->connected)
		return;
	r->connected = false;
	r->since_ms = nodes_now_ms(n);
	n->connected--;
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
	else if (stored->replica == n->identity)
		return;
	else if (r->connected && r->reported > stored->reported)
		r->written = 0; /* it is ours, whoever says so */
	else
		r->lost = true;
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
	n->identity = node_text_hash(options->identity);
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
