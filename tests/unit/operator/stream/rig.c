/* SPDX-License-Identifier: Apache-2.0 */
/* See the header. Everything runs on the rig's loop. */
#include "tests/unit/operator/stream/rig.h"

#include <time.h>

#include "lib/log.h"

#include "kiln/node/v1/node.pb-c.h"
#include "operator/cache/kept.h"
#include "tests/unit/operator/cache/views.h"

struct cluster_config *cluster_of(const char *spec);
struct namespace_config *config_of(const char *ns, const char *name, int64_t created,
				   const char *spec);

enum { DEADLINE_MS = 120000 };

uint64_t rig_keep_ms;

/* ---- the API server -------------------------------------------------------------------------- */

/* Tokens look like a JWT; what the review says is its third part, with '-' for ':'. */
static void answer(struct rig *rig, struct rig_review *r)
{
	char *what = strrchr(r->token, '.') + 1, *second;
	struct kube_token_review review = {.authenticated = true,
					   .error = "",
					   .username = "system:serviceaccount:kiln:kiln-agent",
					   .pod_name = "",
					   .pod_uid = "",
					   .node_name = "",
					   .node_uid = ""};
	struct kube_answer whole = {.status = rig->api_down ? 0 : 201, .message = "", .reason = ""};

	if (has_prefix(what, "node:")) {
		review.node_name = what + strlen("node:");
	} else if (streq(what, "controller")) {
		review.username = "system:serviceaccount:kiln:kiln-operator";
	} else if (has_prefix(what, "account:")) {
		review.username = "system:serviceaccount:kiln:other";
		review.node_name = what + strlen("account:");
	} else if (has_prefix(what, "pod:")) {
		second = strrchr(what, ':');
		*second = 0;
		review.pod_name = what + strlen("pod:");
		review.pod_uid = second + 1;
	} else if (!streq(what, "unbound")) {
		review.authenticated = false;
	}
	r->done(r->arg, &review, &whole);
	free(r->token);
}

static void on_reviews_due(uv_timer_t *timer)
{
	struct rig *rig = timer->data;

	while (rig->n_reviews && !rig->hold_reviews) {
		struct rig_review r = rig->reviews[0];

		memmove(rig->reviews, rig->reviews + 1, --rig->n_reviews * sizeof(r));
		answer(rig, &r);
	}
}

void rig_release_reviews(struct rig *rig)
{
	rig->hold_reviews = false;
	uv_timer_start(&rig->reviews_due, on_reviews_due, 1, 0);
}

static int review(void *arg, const char *token,
		  void (*done)(void *, const struct kube_token_review *,
			       const struct kube_answer *),
		  void *done_arg, struct kube_call **ret)
{
	struct rig *rig = arg;

	if (rig->n_reviews == RIG_REVIEWS_MAX)
		return -EBUSY;
	rig->reviews[rig->n_reviews++] = (struct rig_review){strdup(token), done, done_arg};
	uv_timer_start(&rig->reviews_due, on_reviews_due, 1, 0);
	*ret = done_arg;
	return 0;
}

static void cancel(void *arg, struct kube_call *call)
{
	struct rig *rig = arg;

	for (size_t i = 0; i < rig->n_reviews; i++) {
		if (rig->reviews[i].arg != (void *)call)
			continue;
		free(rig->reviews[i].token);
		memmove(&rig->reviews[i], &rig->reviews[i + 1],
			(--rig->n_reviews - i) * sizeof(rig->reviews[0]));
		return;
	}
	fail_msg("a call was cancelled that is not under way");
}

/* ---- caches ---------------------------------------------------------------------------------- */

static void pod_changed(void *arg, const struct pod *pod, const struct pod *old)
{
	struct rig *rig = arg;

	node_server_pod(rig->server, pod, old);
}

static void namespace_changed(void *arg, const struct meta_object *object, bool removed)
{
	struct rig *rig = arg;

	node_server_namespace(rig->server, object->name);
}

static void services_changed(void *arg, const uint8_t uid[16])
{
	struct rig *rig = arg;

	node_server_services(rig->server, uid);
}

const char *rig_uid(unsigned int uid)
{
	static char texts[8][40];
	static unsigned int at;
	char *text = texts[at++ % ARRAY_SIZE(texts)];

	snprintf(text, sizeof(texts[0]), "%08x-0000-4000-8000-000000000000", uid);
	return text;
}

static void put_pod(struct rig *rig, const char *ns, const char *name, unsigned int uid,
		    const char *node, char id, const char *label, bool cut)
{
	struct pod_view *v = calloc(1, sizeof(*v));
	char full[128] = "containerd://";

	memset(full + strlen(full), id, 64);
	view_pod(v, ns, name, rig_uid(uid), node);
	view_container(v, "app", "img:1", id ? full : "");
	if (label)
		view_label(v, "tier", label);
	v->meta.cut = cut;
	assert_int_equal(pod_store_put_view(rig->pods, v, 1), 0);
	free(v);
}

void rig_pod(struct rig *rig, const char *ns, const char *name, unsigned int uid, const char *node,
	     char id)
{
	put_pod(rig, ns, name, uid, node, id, NULL, false);
}

void rig_pod_labeled(struct rig *rig, const char *ns, const char *name, unsigned int uid,
		     const char *node, const char *value)
{
	put_pod(rig, ns, name, uid, node, 'a', value, false);
}

void rig_pod_cut(struct rig *rig, const char *ns, const char *name, unsigned int uid,
		 const char *node, char id)
{
	put_pod(rig, ns, name, uid, node, id, NULL, true);
}

void rig_remove_pod(struct rig *rig, const char *ns, const char *name, unsigned int uid)
{
	struct meta_view *v = calloc(1, sizeof(*v));

	v->ns = text(ns);
	v->name = text(name);
	v->uid = text(rig_uid(uid));
	assert_int_equal(pod_store_remove_view(rig->pods, v), 0);
	free(v);
}

void rig_node(struct rig *rig, const char *name)
{
	struct meta_view *v = calloc(1, sizeof(*v));

	v->name = text(name);
	v->uid = text(rig_uid((unsigned int)hash_bytes(name, strlen(name), 1)));
	assert_int_equal(meta_store_put_view(rig->nodes, v, 1), 0);
	free(v);
}

void rig_namespace(struct rig *rig, const char *name, const char *label_value)
{
	struct meta_view *v = calloc(1, sizeof(*v));

	v->name = text(name);
	v->uid = text(rig_uid((unsigned int)hash_bytes(name, strlen(name), 1)));
	if (label_value)
		v->labels[v->n_labels++] = (struct slice_pair){text("team"), text(label_value)};
	assert_int_equal(meta_store_put_view(rig->namespaces, v, 1), 0);
	free(v);
}

void rig_policy(struct rig *rig, const char *ns, const char *spec)
{
	if (ns[0])
		assert_int_equal(policy_set_put(rig->policies, config_of(ns, "c", 1, spec)), 0);
	else
		assert_int_equal(policy_set_cluster(rig->policies, cluster_of(spec)), 0);
	node_server_policies(rig->server, ns);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_events(void *arg, const uint8_t *bytes, size_t len)
{
	Kiln__Node__V1__NodeEvents *all = kiln__node__v1__node_events__unpack(NULL, len, bytes);
	struct rig *rig = arg;

	assert_non_null(all);
	assert_string_equal(all->replica, "rig-0");
	rig->whole += all->whole;
	for (size_t i = 0; i < all->n_nodes; i++) {
		const Kiln__Node__V1__NodeEvent *e = all->nodes[i];

		rig->n_events++;
		snprintf(rig->last_event, sizeof(rig->last_event), "%s %s%s %s %lld %s", e->node,
			 e->connected ? "" : "away", e->agent_version, e->kernel,
			 e->report ? (long long)e->report->samples : -1LL,
			 e->n_left_out ? e->left_out[0]->name : "");
	}
	kiln__node__v1__node_events__free_unpacked(all, NULL);
}

static void make_stores(struct rig *rig)
{
	static const char *const none[] = {NULL};
	struct pod_store_options pods = {
	    .max_pods = 20000, .annotations = none, .changed = pod_changed, .arg = rig};
	struct meta_store_options metas = {.max_objects = 5000, .annotations = none};
	struct service_index_options services = {
	    .max_slices = 1000, .max_endpoints = 1000, .changed = services_changed, .arg = rig};

	assert_int_equal(intern_new(64 << 20, &rig->strings), 0);
	pods.intern = metas.intern = services.intern = rig->strings;
	assert_int_equal(pod_store_new(&pods, &rig->pods), 0);
	assert_int_equal(meta_store_new(&metas, &rig->nodes), 0);
	metas.changed = namespace_changed;
	metas.arg = rig;
	assert_int_equal(meta_store_new(&metas, &rig->namespaces), 0);
	assert_int_equal(service_index_new(&services, &rig->services), 0);
	assert_int_equal(policy_set_new(&rig->policies), 0);
}

static void write_ca(struct rig *rig)
{
	int fd;

	snprintf(rig->ca_file, sizeof(rig->ca_file), "/tmp/kiln-test-ca-XXXXXX");
	fd = mkstemp(rig->ca_file);
	assert_true(fd >= 0);
	assert_true(write(fd, rig->tls.ca_pem, strlen(rig->tls.ca_pem)) > 0);
	close(fd);
}

void rig_init(struct rig *rig, const struct node_server_limits *limits)
{
	static const char *const names[] = {"kiln-operator.kiln.svc", "127.0.0.1", NULL};
	struct node_server_options o = {.loop = &rig->loop,
					.address = "127.0.0.1:0",
					.ns = "kiln",
					.replica = "rig-0",
					.events = on_events,
					.arg = rig};
	struct error err = {0};

	memset(rig, 0, sizeof(*rig));
	if (getenv("RIG_DEBUG"))
		log_set_level(LOG_DEBUG);
	assert_int_equal(uv_loop_init(&rig->loop), 0);
	uv_timer_init(&rig->loop, &rig->reviews_due);
	uv_timer_init(&rig->loop, &rig->alarm);
	rig->reviews_due.data = rig->alarm.data = rig;
	make_stores(rig);
	rig_namespace(rig, "kube-system", NULL);
	rig_namespace(rig, "prod", NULL);
	rig_policy(rig, "", "{'defaults':{'sampling':{'hz':20}}}");
	assert_int_equal(stream_tls_make(names, (int64_t)time(NULL), &rig->tls, &err), 0);
	write_ca(rig);
	o.tls = &rig->tls;
	o.sources = (struct view_sources){rig->pods,	 rig->namespaces, rig->nodes,
					  rig->services, rig->policies,	  rig->strings};
	o.auth = (struct stream_auth_options){.review = review,
					      .cancel = cancel,
					      .keep_ms = rig_keep_ms,
					      .away_ms = rig_keep_ms,
					      .arg = rig};
	if (limits)
		o.limits = *limits;
	if (node_server_new(&o, &rig->server, &err) < 0)
		fail_msg("%s", err.message);
}

void rig_done(struct rig *rig)
{
	rig->server = node_server_free(rig->server);
	uv_close((uv_handle_t *)&rig->reviews_due, NULL);
	uv_close((uv_handle_t *)&rig->alarm, NULL);
	uv_run(&rig->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&rig->loop), 0);
	for (size_t i = 0; i < rig->n_reviews; i++)
		free(rig->reviews[i].token);
	service_index_free(rig->services);
	pod_store_free(rig->pods);
	meta_store_free(rig->namespaces);
	meta_store_free(rig->nodes);
	policy_set_free(rig->policies);
	intern_free(rig->strings);
	unlink(rig->ca_file);
	stream_tls_done(&rig->tls);
}

static void on_alarm(uv_timer_t *timer)
{
	struct rig *rig = timer->data;

	rig->timed_out = true;
}

/* What there is to see of a wait that came to nothing. */
static void tell(struct rig *rig)
{
	struct node_server_stats st = rig_stats(rig);

	for (size_t i = 0; i < rig->n_agents; i++) {
		const struct agent *a = rig->agents[i];

		print_error("agent %zu: %s, closed %u times (%d %s), %u welcomes, %u snapshots%s, "
			    "%u updates, revision %llu, %zu pods, %u deletes, %zu bytes%s\n",
			    i, a->connected ? "connected" : "not connected", a->closes, a->status,
			    a->message, a->welcomes, a->snapshots,
			    a->in_snapshot ? " and a part" : "", a->updates,
			    (unsigned long long)a->revision, a->n_pods, a->deletes, a->bytes,
			    a->ack_due ? ", an Ack is due" : "");
	}
	print_error(
	    "server: %llu streams open, %zu live, %llu snapshots, %llu updates, %llu bytes, "
	    "%llu acks, %zu snapshots running, %zu waiting, %zu pods\n",
	    (unsigned long long)st.streams.open, st.live, (unsigned long long)st.snapshots,
	    (unsigned long long)st.updates, (unsigned long long)st.bytes,
	    (unsigned long long)st.acks, st.snapshots_running, st.snapshots_waiting, st.pods);
	for (size_t i = 0; i < STREAM_CUT_COUNT; i++)
		if (st.cuts[i])
			print_error("server: %llu streams cut for reason %zu\n",
				    (unsigned long long)st.cuts[i], i);
	for (size_t i = 0; i < FRONTEND_END_COUNT; i++)
		if (st.frontend.ended[i])
			print_error("frontend: %llu connections ended: %s\n",
				    (unsigned long long)st.frontend.ended[i], frontend_end_name(i));
}

void rig_until(struct rig *rig, bool (*is)(void *arg), void *arg)
{
	bool done = is(arg);

	rig->timed_out = false;
	uv_update_time(&rig->loop);
	uv_timer_start(&rig->alarm, on_alarm, DEADLINE_MS, 0);
	while (!done && !rig->timed_out) {
		uv_run(&rig->loop, UV_RUN_ONCE);
		done = is(arg);
	}
	uv_timer_stop(&rig->alarm);
	if (done)
		return;
	tell(rig);
	fail_msg("waited in vain");
}

void rig_turns(struct rig *rig, unsigned int n)
{
	while (n--) {
		uv_run(&rig->loop, UV_RUN_NOWAIT);
		usleep(5000);
	}
}

struct node_server_stats rig_stats(struct rig *rig)
{
	struct node_server_stats stats;

	node_server_read(rig->server, &stats);
	return stats;
}

struct wanted_count {
	struct rig *rig;
	size_t offset;
	uint64_t value;
};

static bool has_count(void *arg)
{
	const struct wanted_count *w = arg;
	struct node_server_stats stats = rig_stats(w->rig);
	uint64_t value;

	memcpy(&value, (const char *)&stats + w->offset, sizeof(value));
	return w->value ? value >= w->value : !value;
}

void rig_until_count(struct rig *rig, size_t offset, uint64_t value)
{
	rig_until(rig, has_count, &(struct wanted_count){rig, offset, value});
}
