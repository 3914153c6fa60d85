/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A receiver keeps its bit from the first policy that names it until the first sweep in which no
 * route has the bit. When its Destination changes meanwhile, it gets a new exporter. The old
 * exporter still sends its queued batches to the old destination, for ROUTE_RETIRE_MS at most: once
 * delivered, a batch stays with its exporter.
 *
 * An exporter of the configuration keeps its queue and its disk spool. Once a Destination with its
 * id is streamed, the operator's endpoint, certificates and headers replace those of the file,
 * which has the Secrets as they were when the pod started.
 *
 * While a receiver has no exporter (the operator has not sent the Destination yet, or the snapshot
 * on disk lacks its secrets), batches wait. Batches are shared, so one that waits for several
 * receivers takes its memory once.
 */
#include "agent/export/route.h"

#include "agent/export/route_live.h"
#include "agent/policy/policy.h"
#include "lib/log.h"
#include "lib/metrics.h"

enum { ERROR_TEXT_MAX = 512 };
enum { RETIRING_MAX = 32, REFUSED_LOG_S = 60 };

struct receiver {
	char *id; /* NULL: this entry is free */
	/* The Destination of the exporter, or of the failed attempt to make one. */
	const struct pod_destination *made_of;
	bool retry; /* the attempt failed for lack of memory or descriptors */
	struct live_exporter *live;
	struct batch *held[ROUTE_HELD_MAX]; /* oldest first */
	size_t n_held;
};

/* The Destination that replaced the settings of a configured exporter. */
struct told {
	const struct pod_destination *made_of; /* NULL: the settings of the file are in use */
	bool retry;			       /* as in struct receiver */
	int pems[LIVE_PEMS];
};

struct router {
	uv_loop_t *loop;
	struct exporter *const *configured;
	struct told *told; /* n_told entries, in the order of `configured` */
	size_t n_told;
	size_t n_configured, n_live;
	struct receiver receivers[ROUTE_LIVE_MAX];
	struct live_exporter *retiring[RETIRING_MAX];
	size_t n_retiring, unflushed;
	void (*flushed)(void *);
	void *flushed_arg;
	struct log_limit refused_log;
	bool refused; /* since the last router_take_refused() */
};

int router_new(uv_loop_t *loop, struct exporter *const *configured, size_t n, struct router **ret)
{
	struct router *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->told = calloc(MAX(n, 1), sizeof(*r->told));
	if (!r->told) {
		free(r);
		return -ENOMEM;
	}
	for (r->n_told = 0; r->n_told < n; r->n_told++)
		for (size_t i = 0; i < LIVE_PEMS; i++)
			r->told[r->n_told].pems[i] = -1;
	r->loop = loop;
	r->configured = configured;
	r->n_configured = n;
	*ret = r;
	return 0;
}

static uint64_t configured_bit(size_t i)
{
	return 1ULL << MIN(i, (size_t)ROUTE_CONFIGURED_MAX - 1);
}

static uint64_t live_bit(size_t i)
{
	return 1ULL << (ROUTE_CONFIGURED_MAX + i);
}

uint64_t router_default(const struct router *r)
{
	uint64_t all = 0;

	for (size_t i = 0; i < r->n_configured; i++)
		all |= configured_bit(i);
	return all;
}

/* ---- who a policy means ---------------------------------------------------------------------- */

/* Whether the configured exporter E is the Destination ID. D NULL: the operator has not sent it
 * (yet). */
static bool is_configured_as(const struct exporter *e, const char *id,
			     const struct pod_destination *d)
{
	const char *slash = strchr(e->name, '/');

	return slash && streq(slash + 1, id) && (!d || streq(e->ops->type, live_type(d->kind)));
}

static void drop_held(struct receiver *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		metric_add(M_SAMPLES_NO_DESTINATION, batch_cpu_samples(v->held[i]));
		batch_unref(v->held[i]);
	}
	v->n_held -= n;
	memmove(v->held, v->held + n, v->n_held * sizeof(*v->held));
}

static uint64_t refuse(struct router *r, const char *id)
{
	unsigned int held_back;

	metric_add(M_DESTINATIONS_FAILED, 1);
	r->refused = true;
	if (log_allowed(&r->refused_log, REFUSED_LOG_S, &held_back))
		log_warn(
		    "export",
		    "destination %s: not used, because the node has %d destinations already, the "
		    "most that an agent keeps (%u more like it)",
		    id, ROUTE_LIVE_MAX, held_back);
	return 0;
}

static uint64_t find_live(struct router *r, const char *id)
{
	size_t spare = ROUTE_LIVE_MAX;

	for (size_t i = ROUTE_LIVE_MAX; i-- > 0;) {
		if (!r->receivers[i].id)
			spare = i;
		else if (streq(r->receivers[i].id, id))
			return live_bit(i);
	}
	if (spare == ROUTE_LIVE_MAX)
		return refuse(r, id);
	r->receivers[spare].id = strdup(id);
	if (!r->receivers[spare].id)
		return refuse(r, id);
	r->n_live++;
	return live_bit(spare);
}

static uint64_t find_receiver(struct router *r, const struct pod_table *pods, const char *id)
{
	const struct pod_destination *d = pods ? pod_table_destination(pods, id) : NULL;

	for (size_t i = 0; i < r->n_configured; i++)
		if (is_configured_as(r->configured[i], id, d))
			return configured_bit(i);
	return find_live(r, id);
}

uint64_t router_route(struct router *r, const struct pod_table *pods,
		      const struct pod_policy *policy)
{
	uint64_t route = ROUTE_NOWHERE;

	if (!policy->routed)
		return 0;
	for (size_t i = 0; i < policy->n_destinations; i++)
		route |= find_receiver(r, pods, policy->destinations[i]);
	/* 0 stands for the same set of exporters: samples of both are not to be split into two
	 * batches. */
	return (route & ~ROUTE_NOWHERE) == router_default(r) && r->n_configured ? 0 : route;
}

/* ---- their exporters ------------------------------------------------------------------------- */

static void forget_retired(struct router *r)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_retiring; i++) {
		if (r->retiring[i]->flushed)
			live_exporter_free(r->retiring[i]);
		else
			r->retiring[n++] = r->retiring[i];
	}
	r->n_retiring = n;
}

static void retire(struct router *r, struct live_exporter *l)
{
	if (!l)
		return;
	forget_retired(r);
	if (r->n_retiring == RETIRING_MAX) {
		live_exporter_free(r->retiring[0]);
		memmove(r->retiring, r->retiring + 1, --r->n_retiring * sizeof(*r->retiring));
	}
	r->retiring[r->n_retiring++] = l;
	live_flush(l, ROUTE_RETIRE_MS, NULL, NULL);
}

static void give_held(struct receiver *v)
{
	for (size_t i = 0; i < v->n_held; i++) {
		v->live->exporter->ops->consume(v->live->exporter, v->held[i]);
		batch_unref(v->held[i]);
	}
	v->n_held = 0;
}

/*
 * Counts the failure RESULT to use a Destination, and asks for another attempt after the window
 * when it is a shortage (*RETRY). True: to be logged. A shortage is counted and logged once.
 */
static bool count_failure(struct router *r, int result, bool *retry)
{
	bool again = *retry;

	*retry = is_shortage(result);
	r->refused |= *retry;
	if (result == 0 || (again && *retry))
		return false;
	metric_add(M_DESTINATIONS_FAILED, 1);
	return true;
}

/* Makes the exporter of D. If that fails, batches wait until D changes; after a shortage, until the
 * next attempt. */
static void remake(struct router *r, struct receiver *v, const struct pod_destination *d)
{
	struct live_exporter *live = NULL;
	struct error err = {};
	int k = live_exporter_new(d, ROUTE_LIVE_QUEUE_BYTES, r->loop, &live, &err);

	if (count_failure(r, k, &v->retry))
		log_warn("export", "destination %s: %s%s", v->id, err.message,
			 v->retry ? "; will retry" : "");
	if (k == 0)
		log_info("export", "destination %s: %s", v->id, v->live ? "changed" : "new");
	retire(r, v->live);
	v->live = live;
	pod_destination_unref(v->made_of);
	v->made_of = pod_destination_ref(d);
	if (live)
		give_held(v);
}

static void count_live(const struct router *r)
{
	int64_t n = 0;

	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++)
		n += r->receivers[i].live != NULL;
	metric_set(M_DESTINATIONS, n);
}

static void redirect(struct router *r, size_t i, const struct pod_destination *d)
{
	struct exporter *e = r->configured[i];
	struct told *told = &r->told[i];
	struct error err = {};
	int k = live_redirect(e, d, r->loop, told->pems, &err);

	if (count_failure(r, k, &told->retry))
		log_warn("export", "%s: the settings that the operator sent cannot be used: %s%s",
			 e->name, err.message, told->retry ? "; will retry" : "");
	if (k == 0)
		log_info("export", "%s: endpoint, certificates and headers are the operator's",
			 e->name);
	pod_destination_unref(told->made_of);
	told->made_of = pod_destination_ref(d);
}

static void update_configured(struct router *r, const struct pod_table *pods)
{
	for (size_t i = 0; i < r->n_configured; i++) {
		const struct exporter *e = r->configured[i];
		const char *slash = strchr(e->name, '/');
		const struct pod_destination *d =
		    slash && e->ops->redirect ? pod_table_destination(pods, slash + 1) : NULL;

		if (d && !d->incomplete && (d != r->told[i].made_of || r->told[i].retry) &&
		    is_configured_as(e, slash + 1, d))
			redirect(r, i, d);
	}
}

void router_update(struct router *r, const struct pod_table *pods)
{
	update_configured(r, pods);
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++) {
		struct receiver *v = &r->receivers[i];
		const struct pod_destination *d = v->id ? pod_table_destination(pods, v->id) : NULL;

		/* When D was deleted, samples taken before may still be on their way: the exporter
		 * stays. */
		if (d && (d != v->made_of || v->retry) && !d->incomplete)
			remake(r, v, d);
	}
	count_live(r);
}

static void free_receiver(struct router *r, struct receiver *v)
{
	drop_held(v, v->n_held);
	pod_destination_unref(v->made_of);
	free(v->id);
	*v = (struct receiver){};
	r->n_live--;
}

bool router_take_refused(struct router *r)
{
	bool refused = r->refused;

	r->refused = false;
	return refused;
}

void router_sweep(struct router *r, uint64_t in_use)
{
	forget_retired(r);
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++) {
		struct receiver *v = &r->receivers[i];

		if (!v->id || (in_use & live_bit(i)))
			continue;
		if (v->live)
			log_info("export", "destination %s: no policy names it any more", v->id);
		retire(r, TAKE_PTR(v->live));
		free_receiver(r, v);
	}
	count_live(r);
}

/* ---- batches --------------------------------------------------------------------------------- */

static void give(struct receiver *v, struct batch *batch)
{
	if (v->live) {
		v->live->exporter->ops->consume(v->live->exporter, batch);
	} else if (batch->n_samples) {
		if (v->n_held == ROUTE_HELD_MAX)
			drop_held(v, 1);
		v->held[v->n_held++] = batch_ref(batch);
	}
}

void router_deliver(struct router *r, uint64_t route, struct batch *batch)
{
	for (size_t i = 0; i < r->n_configured; i++)
		if (route & configured_bit(i))
			r->configured[i]->ops->consume(r->configured[i], batch);
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++)
		if ((route & live_bit(i)) && r->receivers[i].id)
			give(&r->receivers[i], batch);
}

bool router_has_live(const struct router *r)
{
	return r->n_live > 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void one_flushed(void *arg)
{
	struct router *r = arg;
	void (*flushed)(void *);

	if (--r->unflushed)
		return;
	flushed = TAKE_PTR(r->flushed);
	if (flushed)
		flushed(r->flushed_arg);
}

void router_flush(struct router *r, uint64_t deadline_ms, void (*done)(void *), void *arg)
{
	r->flushed = done;
	r->flushed_arg = arg;
	r->unflushed = 1; /* 1 for this function itself */
	forget_retired(r);
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++)
		r->unflushed += r->receivers[i].live != NULL;
	r->unflushed += r->n_retiring;
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++)
		if (r->receivers[i].live)
			live_flush(r->receivers[i].live, deadline_ms, one_flushed, r);
	for (size_t i = 0; i < r->n_retiring; i++)
		live_flush(r->retiring[i], deadline_ms, one_flushed, r);
	one_flushed(r);
}

void router_close(struct router *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++) {
		struct receiver *v = &r->receivers[i];

		v->live = live_exporter_free(v->live);
		if (v->id)
			free_receiver(r, v);
	}
	for (size_t i = 0; i < r->n_retiring; i++)
		live_exporter_free(r->retiring[i]);
	r->n_retiring = 0;
	r->n_configured = 0;
}

struct router *router_free(struct router *r)
{
	router_close(r);
	for (size_t i = 0; r && i < r->n_told; i++) {
		pod_destination_unref(r->told[i].made_of);
		live_close_pems(r->told[i].pems);
	}
	if (r)
		free(r->told);
	free(r);
	return NULL;
}

/* ---- how they are ---------------------------------------------------------------------------- */

void router_each(const struct router *r,
		 void (*each)(const char *id, bool healthy, const char *error, void *arg),
		 void *arg)
{
	char error[ERROR_TEXT_MAX];

	for (size_t i = 0; i < r->n_configured; i++) {
		const struct exporter *e = r->configured[i];
		const char *slash = strchr(e->name, '/');
		bool healthy = exporter_healthy(e, error, sizeof(error));

		each(slash ? slash + 1 : e->name, healthy, healthy ? "" : error, arg);
	}
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++) {
		const struct receiver *v = &r->receivers[i];

		if (!v->id)
			continue;
		error[0] = 0;
		if (v->live && exporter_healthy(v->live->exporter, error, sizeof(error)))
			each(v->id, true, "", arg);
		else if (v->live)
			each(v->id, false, error, arg);
		else
			each(v->id, false,
			     v->made_of ? "its settings cannot be used, see the agent's log"
					: "the operator has not told how to reach it",
			     arg);
	}
}

static bool is_refused(const struct exporter *e, char *reason, size_t size)
{
	char error[ERROR_TEXT_MAX];

	if (!e->ops->refused || !e->ops->refused(e, error, sizeof(error)))
		return false;
	snprintf(reason, size, "%s %s", e->name, error);
	return true;
}

bool router_refused(const struct router *r, char *reason, size_t size)
{
	bool any = false;

	for (size_t i = 0; i < r->n_configured; i++) {
		if (!is_refused(r->configured[i], reason, size))
			return false;
		any = true;
	}
	for (size_t i = 0; i < ROUTE_LIVE_MAX; i++) {
		const struct receiver *v = &r->receivers[i];

		if (v->id && v->live && !is_refused(v->live->exporter, reason, size))
			return false;
		any |= v->id && v->live;
	}
	return any;
}
