/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes, and the pump of their streams. The caches' callbacks may not read the caches, so they only
 * mark what may have changed (node_state_touch) and put the node into `ready`; an idle handle pumps
 * those from the loop, for PUMP_MS at a time, so that a policy that changes 150,000 pods does not
 * block the loop. What changes several times before its turn is sent once.
 *
 * A node's state stays for a while after its stream, to resume from. Revisions of a node only grow,
 * also after its state was forgotten (revision_base).
 */
#include "operator/stream/server_internal.h"

#include <sys/random.h>

#include "operator/http/prometheus.h"
#include "operator/stream/watch.h"

enum {
	STREAMS_MAX = 8192,
	SNAPSHOTS_MAX = 64,
	NODES_MAX = 20000, /* states; the cluster's own limit is 5,000 nodes */
	HELLO_MS = 10000,
	AUTH_MS = 60000,
	ACK_MS = 60000,
	AGE_MS = 1800000,
	KEEP_MS = 600000,
	REPORT_INTERVAL_S = 10,
	REPORTS_PER_S = 100, /* of all nodes; changed facts are reported at once anyway */
	TICK_MS = 1000,
	PUMP_MS = 4,
	IDLE_MS = 60000,
	KEEPALIVE_MS = 30000,
	PING_MIN_MS = 5000,
	UPDATE_BYTES_MAX = 4 << 20,
};

uint64_t server_now(const struct node_server *server)
{
	return uv_now(server->o.loop);
}

/* xorshift64* (S. Vigna, 2016): jitter, no secrets. */
uint64_t server_random(struct node_server *server)
{
	uint64_t x = server->random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	server->random = x;
	return x * 0x2545f4914f6cdd1dULL;
}

uint32_t server_report_interval_s(const struct node_server *server)
{
	size_t all = meta_store_count(server->o.sources.nodes);

	return (uint32_t)MAX((size_t)REPORT_INTERVAL_S, all / REPORTS_PER_S);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct node *find_node(const struct node_server *server, const char *name)
{
	struct node *node = NULL;

	if (server->nodes)
		HASH_FIND_STR(server->nodes, name, node);
	return node;
}

static void node_forget(struct node_server *server, struct node *node)
{
	server->revision_base = MAX(server->revision_base, node_state_revision(node->state));
	server->pods_refused += node_state_refused(node->state);
	watch_forget(server, node);
	HASH_DEL(server->nodes, node);
	node_state_free(node->state);
	free(node);
	server->stats.nodes--;
}

struct node *server_node(struct node_server *server, const char *name)
{
	struct node *node = find_node(server, name);

	if (node)
		return node;
	if (server->stats.nodes >= NODES_MAX)
		return NULL;
	node = calloc(1, sizeof(*node));
	if (!node || node_state_new(server->view, name, server->revision_base, &node->state) < 0) {
		free(node);
		return NULL;
	}
	name = node_state_name(node->state);
	HASH_ADD_KEYPTR(hh, server->nodes, name, strlen(name), node);
	server->stats.nodes++;
	return node;
}

static void on_pump(uv_idle_t *idle);

void server_ready(struct node_server *server, struct node *node)
{
	if (node->ready || !node->session)
		return;
	node->ready = true;
	node->ready_next = NULL;
	if (server->ready_last)
		server->ready_last->ready_next = node;
	else
		server->ready = node;
	server->ready_last = node;
	(void)uv_idle_start(&server->pump, on_pump);
}

static struct node *take_ready(struct node_server *server)
{
	struct node *node = server->ready;

	server->ready = node->ready_next;
	if (!server->ready)
		server->ready_last = NULL;
	node->ready = false;
	return node;
}

static void on_pump(uv_idle_t *idle)
{
	struct node_server *server = container_of(idle, struct node_server, pump);
	uint64_t until = uv_hrtime() + PUMP_MS * 1000000ULL;

	while (server->ready && uv_hrtime() < until) {
		struct node *node = take_ready(server);

		if (!node->session)
			continue;
		session_pump(node->session);
		watch_look(server, node);
	}
	if (server->watch_due)
		watch_pump(server);
	if (!server->ready && !server->watch_due)
		(void)uv_idle_stop(idle);
}

void watch_ready(struct node_server *server)
{
	server->watch_due = server->watchers != NULL;
	if (server->watch_due)
		(void)uv_idle_start(&server->pump, on_pump);
}

static void on_tick(uv_timer_t *timer)
{
	struct node_server *server = container_of(timer, struct node_server, tick);
	uint64_t now = server_now(server);
	struct node *node, *next_node;
	struct session *s, *next;

	stream_auth_sweep(server->auth);
	if (server->destinations)
		destination_table_look_for_room(server->destinations);
	for (s = server->sessions; s; s = next) {
		next = s->next;
		session_tick(s);
	}
	HASH_ITER (hh, server->nodes, node, next_node)
		if (!node->session && !node->ready &&
		    node->left_ms + server->o.limits.keep_ms <= now)
			node_forget(server, node);
}

/* ---- what the caches tell -------------------------------------------------------------------- */

static void touch(struct node_server *server, const struct pod_info *info)
{
	struct node *node = info->node[0] ? find_node(server, info->node) : NULL;

	if (!node)
		return;
	node_state_touch(node->state, info->uid, info->uid_text);
	server_ready(server, node);
}

static int touch_pod(void *arg, const struct pod *pod)
{
	struct node_server *server = arg;

	pod_unpack(server->o.sources.pods, pod, &server->info);
	touch(server, &server->info);
	return 0;
}

/* Agents are pods of our namespace: their addresses go first at the front end. */
static void expect(struct node_server *server, const struct pod_info *info)
{
	if (info->ip[0] && streq(info->ns, server->o.ns))
		frontend_trust(server->frontend, info->ip);
}

static int expect_pod(void *arg, const struct pod *pod)
{
	struct node_server *server = arg;

	pod_unpack(server->o.sources.pods, pod, &server->info);
	expect(server, &server->info);
	return 0;
}

/* An agent's pod is gone: its token is verified again. */
static void verify_soon(struct node_server *server, const struct pod_info *info)
{
	const struct node *node = info->node[0] ? find_node(server, info->node) : NULL;
	struct session *s = node ? node->session : NULL;

	if (s && s->has_pod && !memcmp(s->pod_uid, info->uid, sizeof(s->pod_uid))) {
		s->pod_gone = true;
		s->verify_ms = server_now(server);
	}
}

void node_server_pod(struct node_server *server, const struct pod *pod, const struct pod *old)
{
	if (!server)
		return;
	if (old)
		touch_pod(server, old);
	if (old && !pod)
		verify_soon(server, &server->info);
	if (pod) {
		touch_pod(server, pod);
		expect(server, &server->info);
	}
}

void node_server_namespace(struct node_server *server, const char *ns)
{
	if (server && server->nodes)
		pod_store_each_in_namespace(server->o.sources.pods, ns, touch_pod, server);
}

static void touch_node(struct node_server *server, struct node *node)
{
	node->touch_all = true;
	server_ready(server, node);
}

void node_server_node(struct node_server *server, const char *name)
{
	struct node *node = server ? find_node(server, name) : NULL;

	if (node)
		touch_node(server, node);
}

void node_server_services(struct node_server *server, const uint8_t uid[16])
{
	const struct pod *pod;

	if (!server || !server->nodes)
		return;
	pod = pod_store_find_uid(server->o.sources.pods, uid);
	if (pod)
		touch_pod(server, pod);
}

static int touch_policy(void *arg, const struct pod *pod)
{
	struct node_server *server = arg;
	struct node *node;

	pod_unpack_subject(server->o.sources.pods, pod, &server->info);
	node = server->info.node[0] ? find_node(server, server->info.node) : NULL;
	if (!node)
		return 0;
	node_state_touch_policy(node->state, server->info.uid);
	server_ready(server, node);
	return 0;
}

void node_server_policies(struct node_server *server, const char *ns)
{
	struct node *node, *next;
	uint64_t settings;

	if (!server || !server->nodes)
		return;
	if (ns[0]) {
		pod_store_each_in_namespace(server->o.sources.pods, ns, touch_policy, server);
		return;
	}
	settings = node_view_settings(server->view);
	HASH_ITER (hh, server->nodes, node, next) {
		if (settings != server->settings)
			node->touch_all = true;
		else
			node->touch_policies = true;
		server_ready(server, node);
	}
	server->settings = settings;
}

bool node_server_busy(const struct node_server *server)
{
	return server && server->ready;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int review_by_client(void *arg, const char *token,
			    void (*done)(void *done_arg, const struct kube_token_review *review,
					 const struct kube_answer *answer),
			    void *done_arg, struct kube_call **ret)
{
	return kube_review_token(arg, token, STREAM_AUDIENCE, done, done_arg, ret);
}

static void cancel_by_client(void *arg, struct kube_call *call)
{
	kube_cancel(call);
}

#define DEFAULT(field, value) ((field) = (field) ? (field) : (value))

static void set_defaults(struct node_server *server)
{
	struct node_server_options *o = &server->o;

	DEFAULT(o->limits.streams, STREAMS_MAX);
	DEFAULT(o->limits.snapshots, SNAPSHOTS_MAX);
	DEFAULT(o->limits.hello_ms, HELLO_MS);
	DEFAULT(o->limits.auth_ms, AUTH_MS);
	DEFAULT(o->limits.ack_ms, ACK_MS);
	DEFAULT(o->limits.age_ms, AGE_MS);
	DEFAULT(o->limits.keep_ms, KEEP_MS);
	if (o->client) {
		o->auth.review = review_by_client;
		o->auth.cancel = cancel_by_client;
		o->auth.arg = o->client;
	}
	o->auth.loop = o->loop;
	o->auth.ns = o->ns;
	o->auth.pods = o->sources.pods;
}

static bool seed(struct node_server *server)
{
	uint64_t random[2];

	if (getrandom(random, sizeof(random), 0) != sizeof(random))
		return false;
	server->random = random[0] | 1;
	server->epoch = server->o.epoch ? server->o.epoch : random[1] | 1;
	return true;
}

static void destination_changed(void *arg, const char *id)
{
	struct node_server *server = arg;
	struct node *node, *next;

	HASH_ITER (hh, server->nodes, node, next)
		if (node_state_touch_destination(node->state, id))
			server_ready(server, node);
}

static void destination_left_out(void *arg, const char *ns, const char *name, const char *cause)
{
	struct node_server *server = arg;

	if (server->o.left_out)
		server->o.left_out(server->o.left_out_arg, ns, name, cause);
}

void node_server_secret(struct node_server *server, const char *ns, const char *name)
{
	if (server && server->destinations)
		destination_table_secret(server->destinations, ns, name);
}

static int use_destinations(struct node_server *server)
{
	const struct destination_table_options options = {.secrets = server->o.secrets,
							  .ns = server->o.ns,
							  .changed = destination_changed,
							  .left_out = destination_left_out,
							  .arg = server};
	int r = server->o.secrets ? destination_table_new(&options, &server->destinations) : 0;

	node_view_use_destinations(server->view, server->destinations);
	return r;
}

/* On the front end's thread. */
static void on_join(void *arg, int fd)
{
	const struct node_server *server = arg;

	stream_server_add(server->streams, fd);
}

static int open_frontend(struct node_server *server, struct error *err)
{
	const struct node_server_options *o = &server->o;
	struct frontend_options options = {.address = o->address,
					   .cert_pem = o->tls->cert_pem,
					   .key_pem = o->tls->key_pem,
					   .limits = o->limits.frontend,
					   .join = on_join,
					   .arg = server};

	int r = frontend_new(&options, &server->frontend, err);

	if (!r)
		pod_store_each_in_namespace(o->sources.pods, o->ns, expect_pod, server);
	return r;
}

static const char *const methods[METHODS + 1] = {
    [METHOD_CONNECT] = STREAM_METHOD, [METHOD_WATCH] = WATCH_METHOD};

static int start(struct node_server *server, struct error *err)
{
	const struct node_server_options *o = &server->o;
	struct stream_server_options options = {
	    .methods = methods,
	    .max_streams = o->limits.streams,
	    .max_message = SESSION_MESSAGE_MAX,
	    .idle_ms = IDLE_MS,
	    .keepalive_ms = KEEPALIVE_MS,
	    .ping_min_ms = PING_MIN_MS,
	};
	struct stream_server_events events = session_events;
	int r = node_view_new(&o->sources, &server->view);

	events.arg = server;
	if (!r)
		r = use_destinations(server);
	if (!r)
		r = stream_auth_new(&o->auth, &server->auth);
	if (r < 0)
		return error_set(err, r, "out of memory");
	r = stream_server_new(&options, &events, o->loop, &server->streams, err);
	if (!r && o->events)
		r = watch_begin(server, NULL);
	if (!r)
		r = open_frontend(server, err);
	return r < 0 ? error_wrap(err, r, "node stream") : 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct node_server *server = handle->data;

	if (!--server->open_handles)
		free(server);
}

struct node_server *node_server_free(struct node_server *server)
{
	struct node *node, *next;

	if (!server)
		return NULL;
	server->frontend = frontend_free(server->frontend);
	server->streams = stream_server_free(server->streams);
	while (server->sessions)
		session_free(server->sessions);
	HASH_ITER (hh, server->nodes, node, next)
		node_forget(server, node);
	server->ready = server->ready_last = NULL;
	watch_end(server, NULL);
	server->auth = stream_auth_free(server->auth);
	server->view = node_view_free(server->view);
	server->destinations = destination_table_free(server->destinations);
	buf_done(&server->update);
	buf_done(&server->message);
	server->open_handles = 2;
	uv_close((uv_handle_t *)&server->pump, on_closed);
	uv_close((uv_handle_t *)&server->tick, on_closed);
	return NULL;
}

/*
 * Allocates all of B at once, so that it never moves: a message may hold secrets, and its old
 * memory would not be wiped. Pages that no message needs are not touched.
 */
static bool reserve(struct buf *b)
{
	buf_init(b, UPDATE_BYTES_MAX);
	return buf_extend(b, UPDATE_BYTES_MAX - 1) != NULL;
}

int node_server_new(const struct node_server_options *options, struct node_server **ret,
		    struct error *err)
{
	struct node_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server || !seed(server)) {
		free(server);
		return error_set(err, -ENOMEM, "out of memory");
	}
	server->o = *options;
	if (options->epoch)
		server->epoch = options->epoch;
	set_defaults(server);
	if (!reserve(&server->update) || !reserve(&server->message)) {
		buf_done(&server->update);
		free(server);
		return error_set(err, -ENOMEM, "out of memory");
	}
	(void)uv_idle_init(options->loop, &server->pump);
	(void)uv_timer_init(options->loop, &server->tick);
	server->pump.data = server->tick.data = server;
	r = start(server, err);
	if (!r)
		server->settings = node_view_settings(server->view);
	if (!r)
		r = uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
	if (r < 0) {
		node_server_free(server);
		return r;
	}
	*ret = server;
	return 0;
}

void node_server_drain(struct node_server *server)
{
	if (!server)
		return;
	server->draining = true;
	for (struct session *s = server->sessions; s; s = s->next)
		session_cut(s, CUT_ENDING);
	stream_server_flush(server->streams);
}

int node_server_port(const struct node_server *server)
{
	return frontend_port(server->frontend);
}

int node_server_certificate(struct node_server *server, const struct stream_tls *tls,
			    struct error *err)
{
	return frontend_certificate(server->frontend, tls->cert_pem, tls->key_pem, err);
}

/* ---- telling --------------------------------------------------------------------------------- */

void node_server_read(struct node_server *server, struct node_server_stats *ret)
{
	struct node *node, *next;

	*ret = server->stats;
	ret->pods_refused = server->pods_refused;
	frontend_read(server->frontend, &ret->frontend);
	stream_server_read(server->streams, &ret->streams);
	stream_auth_read(server->auth, &ret->auth);
	node_view_read(server->view, &ret->view);
	HASH_ITER (hh, server->nodes, node, next) {
		ret->pods += node_state_entries(node->state);
		ret->state_bytes += node_state_bytes(node->state);
		ret->pods_refused += node_state_refused(node->state);
	}
}
