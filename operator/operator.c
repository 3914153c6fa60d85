/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structure. One libuv loop owns all state. Informers fill the caches (world.c). On each change
 * the event handlers (handlers.c) add keys to two work queues (controllers.c): one for the rendered
 * objects, one for the status of each config. agents.c runs the agents' stream and takes their
 * reports. Every replica watches the API server, so that any of them can serve agents; only the
 * holder of the lease (leader.c) processes its queues.
 *
 * --role splits that into two processes with separate rights (docs/operator.md). The role stream
 * has no queues, no lease and no writes; the role controller has no stream, and its leader asks the
 * replicas of the role stream for their agents' reports (peers/).
 *
 * Losing the lease ends the process: no write that is under way may happen any more, and a restart
 * is the one way to be sure. Ending on a signal gives the lease back.
 */
#include "operator/operator_internal.h"

#include <signal.h>
#include <time.h>

#include "operator/http/server.h"
#include "operator/stream/ca.h"

enum {
	SYNC_CHECK_MS = 20,
	CLIENT_QPS = 50, /* without informers and the lease, which are not limited */
	CLIENT_BURST = 100,
};

/* ---- ending ---------------------------------------------------------------------------------- */

static void close_handle(uv_handle_t *handle, void *arg)
{
	if (!uv_is_closing(handle))
		uv_close(handle, NULL);
}

/* Frees the parts that could still write first. */
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
	op->peers = peers_free(op->peers);
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
		close_handle((uv_handle_t *)&op->recount_timer, NULL);
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

static void on_signal(uv_signal_t *handle, int signum)
{
	struct operator* op = handle->data;

	if (op->ending)
		return;
	log_info("operator", "signal %d: ending", signum);
	op->ending = true;
	operator_set_working(op, false);
	node_server_drain(operator_agents(op));
	if (op->lease)
		lease_release(op->lease, stop_loop, op);
	else
		uv_stop(&op->loop);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool caches_are_whole(const struct operator* op, char *reason, size_t size)
{
	const char *missing = "";

	if (!world_synced(&op->world, &missing))
		snprintf(reason, size, "the cache of %s is not whole yet", missing);
	else if (op->objects && !objects_synced(op->objects))
		snprintf(reason, size, "the cache of rendered objects is not whole yet");
	else if (op->nodes && !nodes_synced(op->nodes))
		snprintf(reason, size, "the cache of profilingnodes is not whole yet");
	else
		return true;
	return false;
}

/* Ready when the caches are synced and, if this process serves agents, their port is open. */
static bool is_ready(void *arg, char *reason, size_t size)
{
	struct operator* op = arg;

	if (op->ending)
		snprintf(reason, size, "ending");
	else if (!caches_are_whole(op, reason, size))
		return false;
	else if (operator_serves(op) && !operator_agents(op))
		snprintf(reason, size,
			 "the node stream has no certificate yet: Secret " STREAM_CA_NAME
			 " is made by who leads");
	else
		return true;
	return false;
}

/* Writing starts when all caches are synced; until then there is nothing to compare with. */
static void begin_work(struct operator* op)
{
	op->begun = true;
	log_info("operator", "caches are whole: %zu pods", pod_store_count(op->world.pods));
	if (op->lease)
		lease_start(op->lease);
	else if (operator_controls(op))
		operator_lead(op);
}

static void check_synced(uv_timer_t *timer)
{
	struct operator* op = timer->data;
	char reason[256];
	int r;

	if (!op->begun && (op->ending || !caches_are_whole(op, reason, sizeof(reason))))
		return;
	r = op->ending ? 0 : operator_serve_agents(op);
	if (!op->begun && (r == 0 || r == -EAGAIN))
		begin_work(op);
	if (r == -EAGAIN) /* the leader may have to make the CA */
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
	struct kube_client_options client = {
	    .user_agent = OPERATOR_USER_AGENT, .qps = CLIENT_QPS, .burst = CLIENT_BURST};
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
	kube_client_on_result(op->client, operator_on_request, op);
	log_info("operator", "API server %s, namespace %s, identity %s", op->credentials->server,
		 op->ns, op->identity);
	return 0;
}

static int create_handles(struct operator* op)
{
	int r = uv_timer_init(&op->loop, &op->sync_timer);

	r |= uv_timer_init(&op->loop, &op->counts_timer);
	r |= uv_timer_init(&op->loop, &op->recount_timer);
	r |= uv_timer_init(&op->loop, &op->first_config_timer);
	r |= uv_signal_init(&op->loop, &op->sigint);
	r |= uv_signal_init(&op->loop, &op->sigterm);
	op->has_handles = !r;
	if (r)
		return error_set(op->err, -EIO, "cannot set up the loop");
	op->sync_timer.data = op->counts_timer.data = op;
	op->recount_timer.data = op->first_config_timer.data = op;
	op->sigint.data = op->sigterm.data = op;
	r = uv_signal_start(&op->sigint, on_signal, SIGINT);
	r |= uv_signal_start(&op->sigterm, on_signal, SIGTERM);
	r |= uv_timer_start(&op->sync_timer, check_synced, SYNC_CHECK_MS, SYNC_CHECK_MS);
	return r ? error_set(op->err, -EIO, "cannot watch for signals") : 0;
}

static int start(struct operator* op)
{
	struct operator_http_callbacks http = {is_ready, operator_metrics, op};
	int r = connect_to_server(op);

	if (r < 0)
		return r;
	r = policy_set_new(&op->policies);
	if (!r && operator_controls(op))
		r = operator_create_queues(op);
	if (r < 0)
		return error_set(op->err, r, "%s", strerror(-r));
	r = operator_create_world(op);
	if (!r && operator_controls(op))
		r = operator_create_nodes(op);
	if (!r && operator_controls(op))
		r = operator_create_objects(op);
	if (!r && operator_controls(op))
		r = operator_create_writers(op);
	if (!r)
		r = operator_create_lease(op);
	if (!r)
		r = operator_create_stream(op);
	if (!r)
		r = operator_http_new(&op->loop, &op->options->health, &op->options->metrics, &http,
				      &op->http, op->err);
	if (!r)
		r = create_handles(op);
	if (r < 0)
		return r;
	world_start(&op->world);
	if (op->objects)
		objects_start(op->objects);
	if (op->nodes)
		nodes_start(op->nodes);
	return 0;
}

/*
 * Unique for each run: a restarted container must not take the lease of its former run for its own.
 */
static void make_identity(struct operator* op)
{
	char host[128] = "kiln-operator";
	const char *name = op->options->pod_name;

	if (!name && gethostname(host, sizeof(host) - 1) == 0)
		name = host;
	snprintf(
	    op->identity, sizeof(op->identity), "%.180s_%llx", name ? name : host,
	    (unsigned long long)(uv_hrtime() ^ ((uint64_t)time(NULL) << 32) ^ (uint64_t)getpid()));
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
