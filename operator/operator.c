/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of things. One libuv loop owns all state. Informers keep the caches; what changes in
 * them puts keys into two work queues: one reconciles the rendered objects, one the status of each
 * config. Every replica watches, so that any can answer; only the one that holds the lease works on
 * its queues.
 *
 * Losing the lease ends the process: nothing of what it has under way may be written any more, and
 * starting anew is the one way to be sure. Ending on a signal gives the lease back.
 */
#include "operator/operator.h"

#include <signal.h>
#include <time.h>

#include "operator/http/prometheus.h"
#include "operator/http/server.h"
#include "operator/lease/lease.h"
#include "operator/nodes/nodes.h"
#include "operator/reconcile/status.h"
#include "operator/render/first_config.h"
#include "operator/work/queue.h"
#include "operator/world_metrics.h"

#define LEASE_NAME  "kiln-operator"
#define OBJECTS_KEY "agents"

enum {
	STATUS_WORKERS = 8,
	KEYS_MAX = 100000,
	SYNC_CHECK_MS = 20,
	COUNTS_MS = 1000, /* how soon a pod's change shows in a status */
	POLICIES_MS = 50, /* and a policy's */
	PUT_OFF_MAX = 100,
	CLIENT_QPS = 50, /* writes and lists; watches and the lease go beside */
	CLIENT_BURST = 100,
	FIRST_CONFIG_RETRY_MS = 5000,
	INVALID_LOG_S = 60,
	OBJECTS_RETRY_MS = 3000,
};

struct operator
{
	const struct operator_options *options;
	uv_loop_t loop;
	struct kube_credentials *credentials;
	struct kube_client *client;
	char *ns, identity[256];
	struct policy_set *policies;
	struct world world;
	bool has_world, synced, ending;
	struct match_counts *matches;
	struct recorder *events;
	struct objects *objects;
	struct status_writer *statuses;
	struct work_queue *object_queue, *status_queue;
	struct lease *lease;
	struct first_config *first_config;
	struct operator_http *http;
	struct kube_client *nodes_client; /* of its own: thousands of nodes are written at a pace */
	struct nodes *nodes;		  /* NULL: no node stream */
	struct stream_service *stream;
	bool begun; /* the caches are whole */
	uv_timer_t sync_timer, counts_timer, first_config_timer;
	uv_signal_t sigint, sigterm;
	bool has_handles;
	uint64_t counts_due_ms; /* 0: the timer rests */
	unsigned int counts_put_off;
	struct request_counts requests;
	struct reconcile_counts object_counts, status_counts;
	uint64_t object_started_ns;
	uint64_t invalid_configs;
	struct log_limit invalid_log;
	int result;
	struct error *err;
};

static uint64_t now_ns(void)
{
	return uv_hrtime();
}

static struct node_server *agents_of(struct operator* op)
{
	return stream_service_server(op->stream);
}

/* ---- status ---------------------------------------------------------------------------------- */

static int add_status_key(void *arg, const cJSON *object)
{
	struct operator* op = arg;
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const char *ns = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name"));
	char key[WORK_KEY_MAX];

	snprintf(key, sizeof(key), "%s%s%s", ns ? ns : "", ns ? "/" : "", name ? name : "");
	(void)work_queue_add_low(op->status_queue, key); /* the queue counts what it refuses */
	return 0;
}

static void check_all_statuses(uv_timer_t *timer)
{
	struct operator* op = timer->data;

	/* Agents first: counting every pod anew keeps the loop from them. */
	if (node_server_busy(agents_of(op)) && op->counts_put_off++ < PUT_OFF_MAX) {
		uv_timer_start(timer, check_all_statuses, POLICIES_MS, 0);
		return;
	}
	op->counts_put_off = 0;
	op->counts_due_ms = 0;
	json_store_each(op->world.clusters, add_status_key, op);
	json_store_each(op->world.configs, add_status_key, op);
}

/* Any status may be another in DELAY_MS: one look at all of them then, however often it is asked.
 */
static void statuses_due(struct operator* op, uint64_t delay_ms)
{
	uint64_t due = uv_now(&op->loop) + delay_ms;

	if (op->ending || (op->counts_due_ms && op->counts_due_ms <= due))
		return;
	op->counts_due_ms = due;
	uv_timer_start(&op->counts_timer, check_all_statuses, delay_ms, 0);
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

static bool may_write(void *arg)
{
	const struct operator* op = arg;

	return !op->ending && (!op->lease || lease_held(op->lease));
}

static void objects_due(void *arg)
{
	struct operator* op = arg;

	if (!op->ending)
		(void)work_queue_add(op->object_queue, OBJECTS_KEY);
}

static void objects_changed(void *arg)
{
	const struct cluster_config *config;
	struct operator* op = arg;

	nodes_config_changed(op->nodes);
	config = policy_set_get_cluster(op->policies);
	if (config && !op->ending)
		(void)work_queue_add(op->status_queue, config->id.name);
}

static void objects_done(void *arg, int result)
{
	struct operator* op = arg;

	/* -EAGAIN: the cache is behind a write; its event or the next try will tell. */
	reconcile_count(&op->object_counts,
			result == -EAGAIN ? RECONCILE_REQUEUE
			: result < 0	  ? RECONCILE_ERROR
					  : RECONCILE_SUCCESS,
			(double)(now_ns() - op->object_started_ns) / 1e9);
	if (result == -EAGAIN)
		(void)work_queue_add_after(op->object_queue, OBJECTS_KEY, 200);
	else if (result < 0 && result != -EINVAL)
		/* There is one such key: it need not wait as long as the server was away. */
		(void)work_queue_add_after(op->object_queue, OBJECTS_KEY, OBJECTS_RETRY_MS);
	work_queue_done(op->object_queue, OBJECTS_KEY, result == -EAGAIN ? 0 : result);
}

static void work_on_objects(void *arg, const char *key)
{
	struct operator* op = arg;

	op->object_started_ns = now_ns();
	objects_reconcile(op->objects, objects_done, op);
}

/* ---- what the caches tell -------------------------------------------------------------------- */

static void policies_changed(struct operator* op)
{
	objects_due(op);
	statuses_due(op, POLICIES_MS);
}

static void on_services(void *arg, const uint8_t uid[16])
{
	node_server_services(agents_of(arg), uid);
}

static void on_pod(void *arg, const struct pod *pod, const struct pod *old)
{
	struct operator* op = arg;

	node_server_pod(agents_of(op), pod, old);
	if (match_counts_pod(op->matches, pod, old))
		statuses_due(op, COUNTS_MS);
}

static void on_namespace(void *arg, const struct meta_object *object, bool removed)
{
	struct operator* op = arg;

	match_counts_invalidate(op->matches);
	node_server_namespace(agents_of(op), object->name);
	statuses_due(op, COUNTS_MS);
}

/* Its labels choose its group: another rate, another configuration. */
static void on_node(void *arg, const struct meta_object *object, bool removed)
{
	const struct cluster_config *config;
	struct operator* op = arg;

	node_server_node(agents_of(op), object->name);
	config = policy_set_get_cluster(op->policies);
	if (!config || !config->n_groups)
		return;
	nodes_config_changed(op->nodes);
	match_counts_invalidate(op->matches);
	statuses_due(op, COUNTS_MS);
}

static void tell_invalid(struct operator* op, const char *ns, const char *name,
			 const struct error *err)
{
	unsigned int held_back = 0;

	op->invalid_configs++;
	/* Anybody's; the status has the text of each. */
	if (ns[0] && !log_allowed(&op->invalid_log, INVALID_LOG_S, &held_back))
		return;
	log_warn("policy", "%s%s%s: %s (%u more like it)", ns, ns[0] ? "/" : "", name, err->message,
		 held_back);
}

static int64_t generation_of(const cJSON *object)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const cJSON *number = cJSON_GetObjectItemCaseSensitive(meta, "generation");

	return cJSON_IsNumber(number) ? (int64_t)number->valuedouble : 0;
}

/* True when something is another than before that the policies do not tell. */
static bool on_cluster_config(struct operator* op, const char *name, const cJSON *object)
{
	struct cluster_config *config = NULL;
	struct error err = {0};
	bool news;

	if (object && cluster_config_parse(object, &config, &err) < 0) {
		/* Pods keep the policies, and nodes the agents, of the last one that was right. */
		news = objects_refuse(op->objects, generation_of(object), err.message);
		if (!policy_set_get_cluster(op->policies) &&
		    policy_set_put_invalid(op->policies, "", name, err.message) < 0)
			log_error("policy", "%s: out of memory", name);
		if (news)
			tell_invalid(op, "", name, &err);
		return news;
	}
	news = objects_refuse(op->objects, 0, "");
	if (policy_set_cluster(op->policies, config) < 0)
		log_error("policy", "%s: out of memory", name);
	return news;
}

static void on_namespace_config(struct operator* op, const char *ns, const char *name,
				const cJSON *object)
{
	uint64_t revision = policy_set_revision(op->policies);
	struct namespace_config *config = NULL;
	struct error err = {0};

	if (!object)
		policy_set_remove(op->policies, ns, name);
	else if (namespace_config_parse(object, &config, &err) < 0) {
		if (policy_set_put_invalid(op->policies, ns, name, err.message) < 0)
			log_error("policy", "%s/%s: out of memory, or too many configs", ns, name);
		if (policy_set_revision(op->policies) != revision)
			tell_invalid(op, ns, name, &err);
	} else if (policy_set_put(op->policies, config) < 0)
		log_error("policy", "%s/%s: out of memory, or too many configs", ns, name);
}

/* Our own writes of a status come back as changes too: the policies do not care. */
static void on_config(void *arg, const char *ns, const char *name, const cJSON *object)
{
	struct operator* op = arg;
	uint64_t revision = policy_set_revision(op->policies);
	bool news = false;

	if (ns[0])
		on_namespace_config(op, ns, name, object);
	else
		news = on_cluster_config(op, name, object);
	if (policy_set_revision(op->policies) != revision) {
		if (!ns[0])
			stream_keep_annotations(op->world.pods, op->policies);
		node_server_policies(agents_of(op), ns);
		news = true;
	}
	if (news)
		policies_changed(op);
	if (object)
		add_status_key(op, object);
}

/* ---- what agents report ---------------------------------------------------------------------- */

static void on_report(void *arg, const struct node_report *report)
{
	struct operator* op = arg;

	nodes_report(op->nodes, report);
}

static void on_left(void *arg, const char *node)
{
	struct operator* op = arg;

	nodes_left(op->nodes, node);
}

static const char *uid_of_node(void *arg, const char *node)
{
	struct operator* op = arg;
	struct meta_object object;

	return meta_store_find(op->world.nodes, "", node, &object) < 0 ? NULL : object.uid;
}

static void config_of_node(void *arg, const char *node, char ret[static 17])
{
	const struct node_group *group = NULL;
	struct label labels[VIEW_PAIRS_MAX];
	struct operator* op = arg;
	struct meta_object object;
	size_t n = 0;

	if (meta_store_find(op->world.nodes, "", node, &object) == 0) {
		for (; n < object.n_labels && n < VIEW_PAIRS_MAX; n++)
			labels[n] = (struct label){object.labels[n].key, object.labels[n].value};
		group = policy_node_group(op->policies, labels, n);
	}
	snprintf(ret, 17, "%s", objects_config_hash(op->objects, group ? group->name : ""));
}

static void reports_turned(void *arg)
{
	statuses_due(arg, COUNTS_MS);
}

/* ---- leading and ending ---------------------------------------------------------------------- */

static void close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

static void set_working(struct operator* op, bool working)
{
	work_queue_pause(op->object_queue, !working);
	work_queue_pause(op->status_queue, !working);
}

/* Everything that could still write goes first. */
static void close_everything(struct operator* op)
{
	op->ending = true;
	op->statuses = status_writer_free(op->statuses);
	op->objects = objects_free(op->objects);
	op->object_queue = work_queue_free(op->object_queue);
	op->status_queue = work_queue_free(op->status_queue);
	op->events = recorder_free(op->events);
	op->first_config = first_config_free(op->first_config);
	op->lease = lease_free(op->lease);
	op->http = operator_http_free(op->http);
	op->nodes = nodes_free(op->nodes);
	op->stream = stream_service_free(op->stream);
	op->matches = match_counts_free(op->matches);
	if (op->has_world)
		world_done(&op->world);
	op->has_world = false;
	op->nodes_client = kube_client_free(op->nodes_client);
	op->client = kube_client_free(op->client);
	if (op->has_handles) {
		close_handle((uv_handle_t *)&op->sync_timer, NULL);
		close_handle((uv_handle_t *)&op->counts_timer, NULL);
		close_handle((uv_handle_t *)&op->first_config_timer, NULL);
		close_handle((uv_handle_t *)&op->sigint, NULL);
		close_handle((uv_handle_t *)&op->sigterm, NULL);
	}
	op->has_handles = false;
}

static void stop_loop(void *arg)
{
	struct operator* op = arg;

	uv_stop(&op->loop);
}

static void try_first_config(uv_timer_t *timer);

static void first_config_done(void *arg, int result, bool created, const char *message)
{
	struct operator* op = arg;

	if (created)
		log_info("operator", "made the first ClusterProfilingConfig of this cluster");
	else if (result < 0)
		log_warn("operator", "ConfigMap %s: %s", FIRST_CONFIG_NAME, message);
	if (result < 0 && result != -EINVAL && !op->ending)
		uv_timer_start(&op->first_config_timer, try_first_config, FIRST_CONFIG_RETRY_MS, 0);
}

static void try_first_config(uv_timer_t *timer)
{
	struct operator* op = timer->data;

	op->first_config = first_config_free(op->first_config);
	if (first_config_start(op->client, op->ns, first_config_done, op, &op->first_config) < 0)
		uv_timer_start(timer, try_first_config, FIRST_CONFIG_RETRY_MS, 0);
}

static void lead_gained(void *arg)
{
	struct operator* op = arg;

	log_info("lease", "%s leads", op->identity);
	set_working(op, true);
	objects_due(op);
	statuses_due(op, 0);
	stream_service_lead(op->stream);
	uv_timer_start(&op->first_config_timer, try_first_config, 0, 0);
}

static void lead_lost(void *arg)
{
	struct operator* op = arg;

	set_working(op, false);
	uv_timer_stop(&op->first_config_timer);
	if (op->ending)
		return;
	op->ending = true;
	op->result = error_set(op->err, -ECANCELED,
			       "lost the lease %s/%s: another replica may lead; start again",
			       op->ns, LEASE_NAME);
	uv_stop(&op->loop);
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct operator* op = handle->data;

	if (op->ending)
		return;
	log_info("operator", "signal %d: ending", signum);
	op->ending = true;
	set_working(op, false);
	node_server_drain(agents_of(op));
	if (op->lease)
		lease_release(op->lease, stop_loop, op);
	else
		uv_stop(&op->loop);
}

/* ---- telling --------------------------------------------------------------------------------- */

static bool is_ready(void *arg, char *reason, size_t size)
{
	const struct operator* op = arg;
	const char *missing = "";

	if (op->ending)
		snprintf(reason, size, "ending");
	else if (!world_synced(&op->world, &missing))
		snprintf(reason, size, "the cache of %s is not whole yet", missing);
	else if (!objects_synced(op->objects))
		snprintf(reason, size, "the cache of rendered objects is not whole yet");
	else if (op->nodes && !nodes_synced(op->nodes))
		snprintf(reason, size, "the cache of profilingnodes is not whole yet");
	else
		return true;
	return false;
}

static void tell_metrics(void *arg, struct buf *out)
{
	struct operator* op = arg;
	struct work_queue *const queues[] = {op->object_queue, op->status_queue};
	const struct reconcile_counts *const counts[] = {&op->object_counts, &op->status_counts};
	struct objects_state state;

	objects_read(op->objects, &state);
	prometheus_queues(out, queues, ARRAY_SIZE(queues));
	prometheus_reconciles(out, counts, ARRAY_SIZE(counts));
	prometheus_requests(out, &op->requests);
	prometheus_head(out, "leader_election_master_status", "gauge",
			"1 while this replica leads.");
	prometheus_value(out, "leader_election_master_status", "name=\"" LEASE_NAME "\"",
			 op->lease ? lease_held(op->lease) : 1);
	world_metrics(&op->world, state.cache_refused, out);
	prometheus_single(out, "kiln_object_writes_total", "counter",
			  "Rendered objects that were written.", (double)state.writes);
	prometheus_single(out, "kiln_object_deletes_total", "counter",
			  "Rendered objects that were deleted.", (double)state.deletes);
	prometheus_single(out, "kiln_status_writes_total", "counter", "Statuses that were written.",
			  (double)status_writes(op->statuses));
	prometheus_single(out, "kiln_events_sent_total", "counter", "Events that were sent.",
			  (double)recorder_sent(op->events));
	prometheus_single(out, "kiln_events_dropped_total", "counter", "Events beyond the limit.",
			  (double)recorder_dropped(op->events));
	prometheus_single(out, "kiln_invalid_configs_total", "counter",
			  "Configs that could not be understood.", (double)op->invalid_configs);
	stream_service_metrics(op->stream, out);
	nodes_metrics(op->nodes, out);
}

static void on_request(void *arg, const char *method, int status)
{
	struct operator* op = arg;

	request_count(&op->requests, method, status);
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Agents forget what they are not told of, so they are told of nothing before it is everything. */
static int serve_agents(struct operator* op)
{
	const struct world *w = &op->world;
	const struct view_sources sources = {w->pods,	  w->namespaces, w->nodes,
					     w->services, op->policies,	 w->strings};

	int r = op->stream ? stream_service_serve(op->stream, &sources, op->err) : 0;

	if (!r && op->stream)
		node_server_on_report(agents_of(op), on_report, on_left, op);
	return r;
}

/* Does OBJECT, a config of NS, declare the destination? */
static bool declares(const cJSON *object, const char *ns, const char *name)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata"), *i;
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(object, "spec");
	const char *own = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "namespace"));

	if (!streq(own ? own : "", ns))
		return false;
	cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(spec, "destinations"))
	{
		const char *of = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "name"));

		if (of && streq(of, name))
			return true;
	}
	return false;
}

struct left_out {
	struct operator* op;
	const char *ns, *name, *cause;
};

static int warn_config(void *arg, const cJSON *object)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const struct left_out *l = arg;
	char note[DESTINATION_CAUSE_MAX + 128];

	if (!declares(object, l->ns, l->name))
		return 0;
	snprintf(note, sizeof(note), "destination %s is left out: %s", l->name, l->cause);
	recorder_emit(
	    l->op->events,
	    (struct kube_event){
		.kind = l->ns[0] ? KUBE_CONFIGS : KUBE_CLUSTER_CONFIGS,
		.ns = l->ns,
		.name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "name")),
		.uid = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, "uid")),
		.type = "Warning",
		.reason = "DestinationLeftOut",
		.action = "Resolve",
		.note = note});
	return 0;
}

static void on_left_out(void *arg, const char *ns, const char *name, const char *cause)
{
	struct left_out l = {arg, ns, name, cause};

	log_warn("stream", "destination %s%s%s is left out: %s", ns, ns[0] ? "/" : "", name, cause);
	json_store_each(ns[0] ? l.op->world.configs : l.op->world.clusters, warn_config, &l);
	statuses_due(l.op, POLICIES_MS);
}

static void on_secret(void *arg)
{
	statuses_due(arg, COUNTS_MS);
}

static bool cause_of_destination(void *arg, const char *ns, const char *name,
				 struct status_cause *ret)
{
	struct destination_cause cause;
	struct operator* op = arg;

	if (!node_server_destination_cause(agents_of(op), ns, name, &cause))
		return false;
	ret->reason = cause.reason;
	snprintf(ret->text, sizeof(ret->text), "%s", cause.text);
	return true;
}

static int create_stream(struct operator* op)
{
	const struct stream_service_options stream = {.stream = &op->options->stream,
						      .credentials = op->credentials,
						      .ns = op->ns,
						      .events = op->events,
						      .may_write = may_write,
						      .left_out = on_left_out,
						      .secret = on_secret,
						      .arg = op};

	if (!op->options->stream.address)
		return 0;
	return stream_service_new(&op->loop, &stream, &op->stream, op->err);
}

/* Writing starts when all caches are whole; until then there is nothing to compare with. */
static void begin_work(struct operator* op)
{
	op->begun = true;
	log_info("operator", "caches are whole: %zu pods", pod_store_count(op->world.pods));
	if (op->lease)
		lease_start(op->lease);
	else
		lead_gained(op);
}

static void check_synced(uv_timer_t *timer)
{
	struct operator* op = timer->data;
	char reason[256];
	int r;

	if (!op->begun && !is_ready(op, reason, sizeof(reason)))
		return;
	r = op->ending ? 0 : serve_agents(op);
	if (!op->begun && (r == 0 || r == -EAGAIN))
		begin_work(op);
	if (r == -EAGAIN) /* the CA may need who leads */
		return;
	uv_timer_stop(timer);
	if (r < 0) {
		op->result = r;
		op->ending = true;
		uv_stop(&op->loop);
	}
}

static int connect_to_server(struct operator* op)
{
	const struct operator_options *o = op->options;
	struct kube_client_options client = {.user_agent = "kiln-operator/" KILN_VERSION " (linux)",
					     .qps = CLIENT_QPS,
					     .burst = CLIENT_BURST};
	int r = kube_credentials_load(o->kubeconfig, o->context, &op->credentials, op->err);

	if (r < 0)
		return r;
	op->ns = strdup(o->ns ? o->ns : op->credentials->default_namespace);
	if (!op->ns)
		return error_set(op->err, -ENOMEM, "out of memory");
	client.credentials = op->credentials;
	r = kube_client_new(&op->loop, &client, &op->client, op->err);
	if (r < 0)
		return r;
	kube_client_on_result(op->client, on_request, op);
	log_info("operator", "%s, namespace %s, as %s", op->credentials->server, op->ns,
		 op->identity);
	return 0;
}

static int create_queues(struct operator* op)
{
	struct work_queue_options objects = {
	    .name = "agents", .workers = 1, .max_keys = 16, .work = work_on_objects, .arg = op};
	struct work_queue_options statuses = {.name = "status",
					      .workers = STATUS_WORKERS,
					      .max_keys = KEYS_MAX,
					      .work = work_on_status,
					      .arg = op};
	int r = work_queue_new(&op->loop, &objects, &op->object_queue);

	if (!r)
		r = work_queue_new(&op->loop, &statuses, &op->status_queue);
	if (!r)
		set_working(op, false);
	return r;
}

static int create_nodes(struct operator* op)
{
	struct kube_client_options client = {
	    .credentials = op->credentials, .user_agent = "kiln-operator/" KILN_VERSION " (linux)"};
	struct nodes_options nodes = {.loop = &op->loop,
				      .identity = op->identity,
				      .uid = uid_of_node,
				      .wanted = config_of_node,
				      .leads = may_write,
				      .turned = reports_turned,
				      .arg = op};
	int r;

	if (!op->options->stream.address)
		return 0;
	r = kube_client_new(&op->loop, &client, &op->nodes_client, op->err);
	if (r < 0)
		return r;
	kube_client_on_result(op->nodes_client, on_request, op);
	nodes.client = op->nodes_client;
	return nodes_new(&nodes, &op->nodes, op->err);
}

static int create_writers(struct operator* op)
{
	struct objects_options objects = {.loop = &op->loop,
					  .client = op->client,
					  .policies = op->policies,
					  .ns = op->ns,
					  .image = op->options->agent_image,
					  .stream = op->options->stream.address != NULL,
					  .may_write = may_write,
					  .changed = objects_changed,
					  .due = objects_due,
					  .arg = op};
	struct status_writer_options statuses = {.loop = &op->loop,
						 .client = op->client,
						 .policies = op->policies,
						 .clusters = op->world.clusters,
						 .configs = op->world.configs,
						 .reports = nodes_reports(op->nodes),
						 .may_write = may_write,
						 .destination = cause_of_destination,
						 .arg = op};
	int r = recorder_new(&op->loop, op->client, op->identity, &op->events);

	objects.events = statuses.events = op->events;
	if (!r)
		r = match_counts_new(op->policies, op->world.pods, op->world.namespaces,
				     op->world.nodes, &op->matches);
	statuses.matches = op->matches;
	if (r < 0)
		return error_set(op->err, r, "%s", strerror(-r));
	r = objects_new(&objects, &op->objects, op->err);
	if (r < 0)
		return r;
	statuses.objects = op->objects;
	r = status_writer_new(&statuses, &op->statuses);
	return r < 0 ? error_set(op->err, r, "%s", strerror(-r)) : 0;
}

static int create_lease(struct operator* op)
{
	struct lease_options lease = {.ns = op->ns,
				      .name = LEASE_NAME,
				      .identity = op->identity,
				      .gained = lead_gained,
				      .lost = lead_lost,
				      .arg = op};

	if (!op->options->leader_elect)
		return 0;
	return lease_new(&op->loop, op->client, &lease, &op->lease, op->err);
}

static int create_handles(struct operator* op)
{
	int r = uv_timer_init(&op->loop, &op->sync_timer);

	r |= uv_timer_init(&op->loop, &op->counts_timer);
	r |= uv_timer_init(&op->loop, &op->first_config_timer);
	r |= uv_signal_init(&op->loop, &op->sigint);
	r |= uv_signal_init(&op->loop, &op->sigterm);
	op->has_handles = !r;
	if (r)
		return error_set(op->err, -EIO, "cannot set up the loop");
	op->sync_timer.data = op->counts_timer.data = op->first_config_timer.data = op;
	op->sigint.data = op->sigterm.data = op;
	r = uv_signal_start(&op->sigint, on_signal, SIGINT);
	r |= uv_signal_start(&op->sigterm, on_signal, SIGTERM);
	r |= uv_timer_start(&op->sync_timer, check_synced, SYNC_CHECK_MS, SYNC_CHECK_MS);
	return r ? error_set(op->err, -EIO, "cannot watch for signals") : 0;
}

static int start(struct operator* op)
{
	struct world_events events = {.pod = on_pod,
				      .namespace = on_namespace,
				      .node = on_node,
				      .config = on_config,
				      .services = on_services,
				      .arg = op};
	struct operator_http_callbacks http = {is_ready, tell_metrics, op};
	struct world_limits limits = {0};
	int r = connect_to_server(op);

	if (r < 0)
		return r;
	r = policy_set_new(&op->policies);
	if (!r)
		r = create_queues(op);
	if (r < 0)
		return error_set(op->err, r, "%s", strerror(-r));
	r = world_init(&op->world, &op->loop, op->client, &limits, &events, op->err);
	op->has_world = !r;
	if (!r)
		r = create_nodes(op);
	if (!r)
		r = create_writers(op);
	if (!r)
		r = create_lease(op);
	if (!r)
		r = create_stream(op);
	if (!r)
		r = operator_http_new(&op->loop, &op->options->health, &op->options->metrics, &http,
				      &op->http, op->err);
	if (!r)
		r = create_handles(op);
	if (r < 0)
		return r;
	world_start(&op->world);
	objects_start(op->objects);
	if (op->nodes)
		nodes_start(op->nodes);
	return 0;
}

/* Unique for each run: a restarted container must not take its former self's lease for its own. */
static void make_identity(struct operator* op)
{
	char host[128] = "kiln-operator";
	const char *name = op->options->pod_name;

	if (!name && gethostname(host, sizeof(host) - 1) == 0)
		name = host;
	snprintf(
	    op->identity, sizeof(op->identity), "%.180s_%llx", name ? name : host,
	    (unsigned long long)(now_ns() ^ ((uint64_t)time(NULL) << 32) ^ (uint64_t)getpid()));
}

int operator_run(const struct operator_options *options, struct error *err)
{
	struct operator* op = calloc(1, sizeof(*op));
	int r;

	if (!op)
		return error_set(err, -ENOMEM, "out of memory");
	op->options = options;
	op->err = err;
	op->object_counts.controller = "agents";
	op->status_counts.controller = "status";
	signal(SIGPIPE, SIG_IGN);
	make_identity(op);
	r = uv_loop_init(&op->loop);
	if (r < 0) {
		free(op);
		return error_set(err, -EIO, "cannot make a loop");
	}
	r = start(op);
	if (!r) {
		uv_run(&op->loop, UV_RUN_DEFAULT);
		r = op->result;
	}
	close_everything(op);
	uv_run(&op->loop, UV_RUN_DEFAULT);
	(void)uv_loop_close(&op->loop);
	policy_set_free(op->policies);
	kube_credentials_free(op->credentials);
	free(op->ns);
	free(op);
	return r;
}
