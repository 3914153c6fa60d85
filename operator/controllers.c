/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two controllers. "agents" has one key: all objects that are rendered for the agents. "status"
 * has one key for each config. Their queues are paused until this replica leads; keys gather
 * meanwhile. The role stream has neither, and ignores the calls that would queue keys. A pod, a
 * policy or an agent's report can change any status, so all statuses are checked together, a moment
 * after the first change. Loop thread only.
 */
#include "operator/operator_internal.h"

#define OBJECTS_KEY "agents"

enum {
	STATUS_WORKERS = 8,
	OBJECT_KEYS_MAX = 16,
	STATUS_KEYS_MAX = 100000,
	PUT_OFF_MAX = 100,
	RECOUNT_PODS = 1000, /* per turn of the loop: some 2 ms */
	RECOUNT_MS = 1,
	CACHE_BEHIND_MS = 200,
	OBJECTS_RETRY_MS = 3000,
};

/* ---- status ---------------------------------------------------------------------------------- */

int operator_status_due(void *arg, const cJSON *object)
{
	struct operator* op = arg;
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const char *ns = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name"));
	char key[WORK_KEY_MAX];

	if (!operator_controls(op))
		return 0;
	snprintf(key, sizeof(key), "%s%s%s", ns ? ns : "", ns ? "/" : "", name ? name : "");
	(void)work_queue_add_low(op->status_queue, key); /* the queue counts what it refuses */
	return 0;
}

static void check_all_statuses(uv_timer_t *timer)
{
	struct operator* op = timer->data;

	/* Agents first: a thousand statuses would keep them waiting. */
	if (node_server_busy(operator_agents(op)) && op->counts_put_off++ < PUT_OFF_MAX) {
		uv_timer_start(timer, check_all_statuses, POLICIES_MS, 0);
		return;
	}
	op->counts_put_off = 0;
	op->counts_due_ms = 0;
	op->counted_ms = uv_now(&op->loop);
	operator_recount(op); /* also retries after memory ran out */
	json_store_each(op->world.clusters, operator_status_due, op);
	json_store_each(op->world.configs, operator_status_due, op);
}

void operator_statuses_due(struct operator* op, uint64_t delay_ms)
{
	uint64_t due = uv_now(&op->loop) + delay_ms;

	if (op->ending || !operator_controls(op) || (op->counts_due_ms && op->counts_due_ms <= due))
		return;
	op->counts_due_ms = due;
	uv_timer_start(&op->counts_timer, check_all_statuses, delay_ms, 0);
}

void operator_counts_due(struct operator* op)
{
	uint64_t now = uv_now(&op->loop), next = op->counted_ms + COUNTS_EVERY_MS;

	operator_statuses_due(op,
			      op->counted_ms && next > now + COUNTS_MS ? next - now : COUNTS_MS);
}

/* ---- counts of pods -------------------------------------------------------------------------- */

struct namespace_statuses {
	struct operator* op;
	const char *ns;
};

static int status_of_namespace_due(void *arg, const cJSON *object)
{
	const struct namespace_statuses *n = arg;
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const char *ns = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));

	return ns && streq(ns, n->ns) ? operator_status_due(n->op, object) : 0;
}

/* The pods of NS, or ("") of all namespaces, have been counted again. */
static void recounted(void *arg, const char *ns)
{
	struct namespace_statuses statuses = {arg, ns};

	if (!ns[0]) {
		operator_statuses_due(arg, POLICIES_MS);
		return;
	}
	json_store_each(statuses.op->world.configs, status_of_namespace_due, &statuses);
	operator_counts_due(arg);
}

static void work_on_counts(uv_timer_t *timer)
{
	struct operator* op = timer->data;

	if (!op->ending && match_counts_work(op->matches, RECOUNT_PODS, recounted, op))
		uv_timer_start(timer, work_on_counts, RECOUNT_MS, 0);
}

void operator_recount(struct operator* op)
{
	if (!op->ending && operator_controls(op) &&
	    !uv_is_active((uv_handle_t *)&op->recount_timer))
		uv_timer_start(&op->recount_timer, work_on_counts, RECOUNT_MS, 0);
}

/*
 * With a thousand configs in a busy cluster, every count has changed at every check. So writes that
 * change only counts are limited to one a second, and configs take turns of COUNTS_EVERY_MS: about
 * as many at a time as can be written in one turn.
 */
static bool may_write_counts(void *arg, const char *ns, const char *name)
{
	enum { WRITE_MS = 1000, AT_A_TIME = COUNTS_EVERY_MS / WRITE_MS };
	struct operator* op = arg;
	uint64_t now = uv_now(&op->loop);
	uint64_t turns = json_store_count(op->world.configs) / AT_A_TIME + 1;
	uint64_t h = hash_bytes(name, strlen(name), hash_bytes(ns, strlen(ns), 0));

	if (op->count_credit_ms + COUNTS_EVERY_MS < now)
		op->count_credit_ms = now - COUNTS_EVERY_MS;
	if ((h + now / COUNTS_EVERY_MS) % turns == 0 && op->count_credit_ms + WRITE_MS <= now) {
		op->count_credit_ms += WRITE_MS;
		return true;
	}
	operator_counts_due(op);
	return false;
}

static void status_done(void *arg, const char *key, int result)
{
	struct operator* op = arg;

	reconcile_count(&op->status_counts, result < 0 ? RECONCILE_ERROR : RECONCILE_SUCCESS, 0);
	work_queue_done(op->status_queue, key, result);
}

static void work_on_status(void *arg, const char *key)
{
	struct operator* op = arg;
	const char *slash = strchr(key, '/');
	char ns[WORK_KEY_MAX] = "";

	if (slash)
		snprintf(ns, sizeof(ns), "%.*s", (int)(slash - key), key);
	status_reconcile(op->statuses, ns, slash ? slash + 1 : key, status_done, op);
}

/* ---- rendered objects ------------------------------------------------------------------------ */

void operator_objects_due(void *arg)
{
	struct operator* op = arg;

	if (!op->ending && operator_controls(op))
		(void)work_queue_add(op->object_queue, OBJECTS_KEY);
}

static void objects_changed(void *arg)
{
	const struct cluster_config *config;
	struct operator* op = arg;

	nodes_config_changed(op->nodes);
	config = policy_set_get_cluster(op->policies);
	if (config && !op->ending && operator_controls(op))
		(void)work_queue_add(op->status_queue, config->id.name);
}

static void objects_done(void *arg, int result)
{
	struct operator* op = arg;

	/* -EAGAIN: the cache does not show our last write yet. The watch event of that write, or
	 * the next try, starts another pass. */
	reconcile_count(&op->object_counts,
			result == -EAGAIN ? RECONCILE_REQUEUE
			: result < 0	  ? RECONCILE_ERROR
					  : RECONCILE_SUCCESS,
			(double)(uv_hrtime() - op->object_started_ns) / 1e9);
	if (result == -EAGAIN)
		(void)work_queue_add_after(op->object_queue, OBJECTS_KEY, CACHE_BEHIND_MS);
	else if (result < 0 && result != -EINVAL)
		/* There is one such key: it does not need a backoff that grows with the outage. */
		(void)work_queue_add_after(op->object_queue, OBJECTS_KEY, OBJECTS_RETRY_MS);
	work_queue_done(op->object_queue, OBJECTS_KEY, result == -EAGAIN ? 0 : result);
}

static void work_on_objects(void *arg, const char *key)
{
	struct operator* op = arg;

	op->object_started_ns = uv_hrtime();
	objects_reconcile(op->objects, objects_done, op);
}

/* ---- life ------------------------------------------------------------------------------------ */

void operator_set_working(struct operator* op, bool working)
{
	if (!operator_controls(op))
		return;
	work_queue_pause(op->object_queue, !working);
	work_queue_pause(op->status_queue, !working);
}

int operator_create_queues(struct operator* op)
{
	struct work_queue_options objects = {.name = "agents",
					     .workers = 1,
					     .max_keys = OBJECT_KEYS_MAX,
					     .work = work_on_objects,
					     .arg = op};
	struct work_queue_options statuses = {.name = "status",
					      .workers = STATUS_WORKERS,
					      .max_keys = STATUS_KEYS_MAX,
					      .work = work_on_status,
					      .arg = op};
	int r = work_queue_new(&op->loop, &objects, &op->object_queue);

	if (!r)
		r = work_queue_new(&op->loop, &statuses, &op->status_queue);
	if (!r)
		operator_set_working(op, false);
	return r;
}

int operator_create_objects(struct operator* op)
{
	struct objects_options objects = {.loop = &op->loop,
					  .client = op->client,
					  .policies = op->policies,
					  .ns = op->ns,
					  .image = op->options->agent_image,
					  .stream = operator_has_stream(op),
					  .may_write = operator_may_write,
					  .changed = objects_changed,
					  .due = operator_objects_due,
					  .arg = op};
	int r =
	    recorder_new(&op->loop, op->client, op->identity, operator_may_write, op, &op->events);

	if (r < 0)
		return error_set(op->err, r, "%s", strerror(-r));
	objects.events = op->events;
	return objects_new(&objects, &op->objects, op->err);
}

int operator_create_writers(struct operator* op)
{
	struct status_writer_options statuses = {.loop = &op->loop,
						 .client = op->client,
						 .policies = op->policies,
						 .clusters = op->world.clusters,
						 .configs = op->world.configs,
						 .objects = op->objects,
						 .events = op->events,
						 .reports = nodes_reports(op->nodes),
						 .may_write = operator_may_write,
						 .may_write_counts = may_write_counts,
						 .arg = op};
	int r = match_counts_new(op->policies, op->world.pods, op->world.namespaces,
				 op->world.nodes, &op->matches);

	statuses.matches = op->matches;
	if (!r)
		r = status_writer_new(&statuses, &op->statuses);
	return r < 0 ? error_set(op->err, r, "%s", strerror(-r)) : 0;
}
