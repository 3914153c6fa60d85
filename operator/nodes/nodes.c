/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record for each node whose agent has, or had a moment ago, its stream here. A record knows what
 * it says by one hash and what was written by another: they differ, so a write is due; how soon,
 * depends on what differs (pace of it in nodes.h).
 *
 * Every replica writes the nodes that it serves, by server-side apply with the same field manager,
 * so that what one no longer says goes, whoever said it; status.operator names the one that has the
 * stream. A record that finds another's name there yields, unless it has heard from the agent
 * since: of two streams only one is alive. The leader marks those whose replica has gone.
 *
 * The pace: a bucket of NODES_WRITES_S a second, filled by ticks; records wait for it in turn. At
 * most NODES_CALLS_MAX writes are under way.
 */
#include "operator/nodes/nodes.h"

#include <time.h>
#include <uthash.h>

#include "lib/log.h"
#include "operator/cache/informer.h"
#include "operator/http/prometheus.h"
#include "operator/kube/write.h"
#include "operator/nodes/node_store.h"
#include "operator/stream/server.h"

enum {
	NODES_MAX = 20000,
	FACTS = 4,
	FACT_RUNTIME = 3, /* of struct record's facts */
	RUNTIME_MAX = 64,
	LOG_INTERVAL_S = 60,
	STALE_LOOK_MS = 60000,
};

struct record {
	UT_hash_handle hh;
	struct nodes *owner;
	char *facts[FACTS];   /* of its hello */
	char *runtime;	      /* of its Node, when its agent does not tell; "": nor does that */
	bool connected, lost; /* lost: another replica has the stream */
	uint64_t since_ms;    /* connected or not */
	struct kept_report report;
	int64_t reported;
	char wanted[17];
	bool wanted_known;
	struct node_turns turns;
	uint64_t written, written_counters; /* hashes; 0: nothing is */
	uint64_t written_ms, not_before_ms;
	/* The write under way. */
	struct kube_call *call;
	bool creating;
	uint64_t writing, writing_counters;
	char name[];
};

struct nodes {
	struct nodes_options o;
	uint64_t identity;	       /* hash */
	struct record *records, *next; /* next: whose turn it is; NULL: the first's */
	struct node_store *store;
	struct informer *informer;
	struct node_reports reports;
	uv_timer_t *timer;		       /* NULL: not started */
	uint64_t tokens, filled_ms, looked_ms; /* tokens: thousandths */
	size_t calls, connected;
	/* The leader's write over a node that nobody has. */
	struct kube_call *stale_call;
	struct log_limit log;
	struct nodes_stats stats;
};

static uint64_t now_ms(const struct nodes *n)
{
	return uv_now(n->o.loop);
}

static int64_t now_s(const struct nodes *n)
{
	return n->o.now ? n->o.now() : (int64_t)time(NULL);
}

/* ---- records --------------------------------------------------------------------------------- */

static struct record *find(struct nodes *n, const char *name)
{
	struct record *r = NULL;

	if (n->records)
		HASH_FIND_STR(n->records, name, r);
	return r;
}

static struct record *make(struct nodes *n, const char *name)
{
	size_t len = strlen(name);
	struct record *r;

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

static void forget(struct nodes *n, struct record *r)
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

static bool take_facts(struct record *r, const struct node_report *report)
{
	const char *const facts[FACTS] = {report->agent_version, report->kernel,
					  report->cgroup_mode, report->container_runtime};

	for (size_t i = 0; i < FACTS; i++) {
		free(r->facts[i]);
		r->facts[i] = strdup(facts[i] ? facts[i] : "");
		if (!r->facts[i])
			return false;
	}
	return true;
}

static const char *fact(const struct record *r, size_t i)
{
	const char *told = r->facts[i] ? r->facts[i] : "";

	return i == FACT_RUNTIME && !told[0] && r->runtime ? r->runtime : told;
}

void nodes_report(struct nodes *n, const struct node_report *report)
{
	struct record *r = n ? find(n, report->node) : NULL;

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
		r->since_ms = now_ms(n);
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
		r->reported = now_s(n);
}

void nodes_left(struct nodes *n, const char *node)
{
	struct record *r = n ? find(n, node) : NULL;

	if (!r || !r->connected)
		return;
	r->connected = false;
	r->since_ms = now_ms(n);
	n->connected--;
}

void nodes_config_changed(struct nodes *n)
{
	if (!n)
		return;
	for (struct record *r = n->records; r; r = r->hh.next)
		r->wanted_known = false;
}

/* ---- what others wrote ----------------------------------------------------------------------- */

static void on_stored(void *arg, const char *name)
{
	struct nodes *n = arg;
	struct record *r = find(n, name);
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

/* ---- what is due ----------------------------------------------------------------------------- */

/* What the status says besides counters. */
static uint64_t content(struct nodes *n, struct record *r)
{
	uint64_t h = r->connected ? 1 : 2;

	if (!r->wanted_known)
		n->o.wanted(n->o.arg, r->name, r->wanted);
	r->wanted_known = true;
	for (size_t i = 0; i < FACTS; i++)
		h = hash_bytes(fact(r, i), strlen(fact(r, i)), h);
	h = hash_bytes(r->wanted, strlen(r->wanted), h);
	h = mix64(h ^ r->report.facts);
	return h ? h : 1;
}

/* 5,000 nodes: one write in 100 s of each, 50 a second of all. */
static uint64_t counters_ms(const struct nodes *n)
{
	uint64_t all = MAX(node_store_count(n->store), n->connected);

	return MAX((uint64_t)NODES_COUNTERS_MS, all * 1000 / NODES_COUNTERS_PER_S);
}

enum due { DUE_NOT, DUE_NOW, DUE_NEVER /* there is nothing more to say of it */ };

static enum due due_away(struct nodes *n, const struct record *r, uint64_t now, uint64_t says)
{
	const struct stored_node *stored = node_store_find(n->store, r->name);

	if (now < r->since_ms + NODES_GRACE_MS)
		return DUE_NOT;
	/* Never ours, another's by now, gone with its Node, or told. */
	if (!r->written || r->lost || !stored ||
	    (stored->has_status && stored->replica != n->identity) || r->written == says)
		return DUE_NEVER;
	return DUE_NOW;
}

static enum due due(struct nodes *n, struct record *r, uint64_t now)
{
	uint64_t says;

	if (r->call || now < r->not_before_ms)
		return DUE_NOT;
	says = content(n, r);
	if (!r->connected)
		return due_away(n, r, now, says);
	if (r->lost || (!r->report.bytes && now < r->since_ms + NODES_SILENT_MS))
		return DUE_NOT;
	if (r->written != says)
		return !r->written || now >= r->written_ms + NODES_TURN_MS ? DUE_NOW : DUE_NOT;
	if (r->written_counters != r->report.counters && now >= r->written_ms + counters_ms(n))
		return DUE_NOW;
	return now >= r->written_ms + NODES_BEAT_MS ? DUE_NOW : DUE_NOT;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void jsonp(cJSON **p)
{
	cJSON_Delete(*p);
}

static cJSON *make_body(const char *name)
{
	const struct kube_resource *k = &kube_resources[KUBE_PROFILING_NODES];
	cJSON *body = cJSON_CreateObject(), *meta;
	char version[128];

	snprintf(version, sizeof(version), "%s/%s", k->group, k->version);
	meta = cJSON_AddObjectToObject(body, "metadata");
	if (cJSON_AddStringToObject(body, "apiVersion", version) &&
	    cJSON_AddStringToObject(body, "kind", k->kind) &&
	    cJSON_AddStringToObject(meta, "name", name))
		return body;
	cJSON_Delete(body);
	return NULL;
}

/* Owned by the Node, with which the cluster's garbage collector removes it. */
static cJSON *make_object(const char *name, const char *uid)
{
	cJSON *body = make_body(name), *owners, *owner;
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");

	owners = cJSON_AddArrayToObject(meta, "ownerReferences");
	owner = cJSON_CreateObject();
	if (!cJSON_AddItemToArray(owners, owner)) {
		cJSON_Delete(owner);
		owner = NULL;
	}
	if (cJSON_AddStringToObject(owner, "apiVersion", "v1") &&
	    cJSON_AddStringToObject(owner, "kind", "Node") &&
	    cJSON_AddStringToObject(owner, "name", name) &&
	    cJSON_AddStringToObject(owner, "uid", uid) &&
	    cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "spec"), "nodeName", name))
		return body;
	cJSON_Delete(body);
	return NULL;
}

static int build_status(struct nodes *n, struct record *r, cJSON **ret)
{
	Kiln__Node__V1__Report *report = kept_report_get(&r->report);
	const struct node_status_input in = {
	    .agent_version = fact(r, 0),
	    .kernel = fact(r, 1),
	    .cgroup_mode = fact(r, 2),
	    .runtime = fact(r, FACT_RUNTIME),
	    .report = report,
	    .wanted_hash = r->wanted,
	    .replica = r->connected ? n->o.identity : "",
	    .reported = r->reported,
	    .now = now_s(n),
	};
	const struct stored_node *stored = node_store_find(n->store, r->name);
	int e;

	if (r->report.bytes && !report)
		return -ENOMEM;
	if (!r->written && stored && stored->has_status)
		r->turns = stored->turns;
	e = node_status_build(&in, &r->turns, ret);
	if (report)
		kiln__node__v1__report__free_unpacked(report, NULL);
	return e;
}

static void on_written(void *arg, const struct kube_answer *answer);

static int write_status(struct nodes *n, struct record *r)
{
	_cleanup_(jsonp) cJSON *body = make_body(r->name);
	cJSON *status = NULL;
	int e = body ? build_status(n, r, &status) : -ENOMEM;

	if (e < 0)
		return e;
	if (!cJSON_AddItemToObject(body, "status", status)) {
		cJSON_Delete(status);
		return -ENOMEM;
	}
	r->creating = false;
	r->writing = content(n, r);
	r->writing_counters = r->report.counters;
	return kube_apply_status(n->o.client, KUBE_PROFILING_NODES, NULL, r->name, body, on_written,
				 r, &r->call);
}

/* 1: there is no need to. */
static int write_object(struct nodes *n, struct record *r)
{
	const struct stored_node *stored = node_store_find(n->store, r->name);
	const char *uid = r->connected ? n->o.uid(n->o.arg, r->name) : NULL;
	_cleanup_(jsonp) cJSON *body = NULL;

	if (!uid && !stored)
		return -ENOENT;
	if (stored && (!uid || stored->owner == node_text_hash(uid)))
		return 1;
	body = make_object(r->name, uid);
	if (!body)
		return -ENOMEM;
	r->creating = true;
	return kube_apply(n->o.client, KUBE_PROFILING_NODES, NULL, r->name, body, on_written, r,
			  &r->call);
}

/* "containerd://1.7.24", as the kubelet has it. A cgroup's path does not always tell. */
static char *runtime_of(const struct kube_answer *a)
{
	_cleanup_(jsonp) cJSON *node =
	    a->status == 200 ? cJSON_ParseWithLength((const char *)a->body, a->len) : NULL;
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(node, "status");
	const cJSON *info = cJSON_GetObjectItemCaseSensitive(status, "nodeInfo");
	const char *text =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(info, "containerRuntimeVersion"));

	return strndup(text ? text : "", RUNTIME_MAX);
}

static void failed(struct nodes *n, struct record *r, const char *why);

static void on_node(void *arg, const struct kube_answer *answer)
{
	struct record *r = arg;
	struct nodes *n = r->owner;
	int e;

	r->call = NULL;
	n->calls--;
	free(r->runtime);
	r->runtime = runtime_of(answer);
	e = r->runtime ? write_status(n, r) : -ENOMEM;
	n->calls += !e;
	if (e < 0)
		failed(n, r, strerror(-e));
}

/* The Node is asked once, for what the agent does not tell. */
static int write_next(struct nodes *n, struct record *r)
{
	if (!r->connected || r->runtime || fact(r, FACT_RUNTIME)[0])
		return write_status(n, r);
	return kube_get(n->o.client, KUBE_NODES, NULL, r->name, on_node, r, &r->call);
}

static void retry_later(struct nodes *n, struct record *r)
{
	r->not_before_ms = now_ms(n) + NODES_RETRY_MS;
}

static void failed(struct nodes *n, struct record *r, const char *why)
{
	unsigned int held_back = 0;

	n->stats.failures++;
	retry_later(n, r);
	if (log_allowed(&n->log, LOG_INTERVAL_S, &held_back))
		log_warn("nodes", "ProfilingNode %s: %s (%u more like it)", r->name, why,
			 held_back);
}

static void written(struct nodes *n, struct record *r)
{
	n->stats.writes++;
	r->written = r->writing;
	r->written_counters = r->writing_counters;
	r->written_ms = now_ms(n);
}

static void on_written(void *arg, const struct kube_answer *answer)
{
	struct record *r = arg;
	struct nodes *n = r->owner;
	bool ok = answer->status >= 200 && answer->status <= 299;
	int e = 0;

	r->call = NULL;
	n->calls--;
	if (!ok && answer->status == 404 && !r->creating) {
		r->written = 0; /* it went with its Node, or somebody deleted it */
		retry_later(n, r);
	} else if (!ok) {
		failed(n, r, answer->message ? answer->message : "no answer");
	} else if (r->creating) {
		n->stats.writes++;
		e = write_next(n, r);
		n->calls += !e;
	} else {
		written(n, r);
	}
	if (e < 0)
		failed(n, r, strerror(-e));
}

static void start_write(struct nodes *n, struct record *r)
{
	int e = write_object(n, r);

	if (e > 0)
		e = write_next(n, r);
	if (e == -ENOENT) {
		n->stats.no_node++;
		retry_later(n, r);
	} else if (e < 0) {
		failed(n, r, strerror(-e));
	} else {
		n->calls++;
		n->tokens -= 1000;
	}
}

/* ---- nodes that nobody has ------------------------------------------------------------------- */

static void on_stale_written(void *arg, const struct kube_answer *answer)
{
	struct nodes *n = arg;

	n->stale_call = NULL;
	if (answer->status >= 200 && answer->status <= 299)
		n->stats.stale++;
	else if (answer->status != 404)
		n->stats.failures++;
}

static int find_stale(void *arg, const struct stored_node *node)
{
	const struct stored_node **ret = ((void **)arg)[1];
	struct nodes *n = ((void **)arg)[0];

	if (!node->has_status || !node->replica || find(n, node->name) ||
	    node->reported + NODES_STALE_S > now_s(n))
		return 0;
	*ret = node;
	return 1;
}

/* One at a time; what its agent said so long ago goes with it. True: there was one. */
static bool mark_stale(struct nodes *n)
{
	const struct stored_node *node = NULL;
	void *search[] = {n, &node};
	_cleanup_(jsonp) cJSON *body = NULL;
	struct node_status_input in = {.agent_version = "",
				       .kernel = "",
				       .cgroup_mode = "",
				       .runtime = "",
				       .wanted_hash = "",
				       .replica = ""};
	struct node_turns turns;
	cJSON *status;

	node_store_each(n->store, find_stale, search);
	if (!node)
		return false;
	turns = node->turns;
	in.reported = node->reported;
	in.now = now_s(n);
	body = make_body(node->name);
	if (!body || node_status_build(&in, &turns, &status) < 0)
		return false;
	if (!cJSON_AddItemToObject(body, "status", status)) {
		cJSON_Delete(status);
		return false;
	}
	return !kube_apply_status(n->o.client, KUBE_PROFILING_NODES, NULL, node->name, body,
				  on_stale_written, n, &n->stale_call);
}

static void look_for_stale(struct nodes *n, uint64_t now)
{
	if (n->stale_call || now < n->looked_ms + STALE_LOOK_MS || !n->o.leads(n->o.arg) ||
	    !nodes_synced(n))
		return;
	if (mark_stale(n))
		n->tokens -= MIN(n->tokens, 1000U);
	else
		n->looked_ms = now;
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
	uint64_t now = now_ms(n);
	size_t left = HASH_COUNT(n->records), waiting = 0;
	struct record *r = n->next, *next;

	fill(n, now);
	if (!nodes_synced(n))
		return;
	for (; left; left--, r = next) {
		r = r ? r : n->records;
		next = r->hh.next;
		switch (due(n, r, now)) {
		case DUE_NOT:
			break;
		case DUE_NEVER:
			forget(n, r);
			break;
		case DUE_NOW:
			if (n->tokens >= 1000 && n->calls < NODES_CALLS_MAX) {
				start_write(n, r);
				break;
			}
			/* It is the first that goes on at the next tick. */
			if (!waiting++)
				n->next = r;
		}
	}
	n->stats.due = waiting;
	look_for_stale(n, now);
}

static void on_timer(uv_timer_t *timer)
{
	nodes_tick(timer->data);
}

/* ---- life ------------------------------------------------------------------------------------ */

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
	n->reports = (struct node_reports){node_store_state, node_store_totals, n->store};
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
	struct record *r, *next;

	if (!n)
		return NULL;
	n->informer = informer_free(n->informer);
	HASH_ITER (hh, n->records, r, next)
		forget(n, r);
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

void nodes_read(const struct nodes *n, struct nodes_stats *ret)
{
	*ret = n->stats;
	ret->connected = n->connected;
	ret->objects = node_store_count(n->store);
	ret->refused += node_store_refused(n->store);
}

void nodes_metrics(const struct nodes *n, struct buf *out)
{
	struct nodes_stats s;

	if (!n)
		return;
	nodes_read(n, &s);
	prometheus_single(out, "kiln_nodes_connected", "gauge",
			  "Nodes whose agents have their stream to this replica.",
			  (double)s.connected);
	prometheus_single(out, "kiln_profiling_nodes", "gauge", "ProfilingNodes there are.",
			  (double)s.objects);
	prometheus_single(out, "kiln_node_writes_due", "gauge",
			  "Nodes whose status waits for its turn to be written.", (double)s.due);
	prometheus_single(out, "kiln_node_writes_total", "counter",
			  "Writes of ProfilingNodes and their statuses.", (double)s.writes);
	prometheus_single(out, "kiln_node_write_failures_total", "counter",
			  "Writes of ProfilingNodes that failed; they are tried again.",
			  (double)s.failures);
	prometheus_single(out, "kiln_nodes_stale_total", "counter",
			  "ProfilingNodes whose replica had gone, marked by the leader.",
			  (double)s.stale);
	prometheus_single(out, "kiln_node_reports_refused_total", "counter",
			  "Reports and ProfilingNodes beyond the limits.", (double)s.refused);
	prometheus_single(out, "kiln_node_unknown_total", "counter",
			  "Times that a report waited because its Node is not in the cache.",
			  (double)s.no_node);
}
