/* SPDX-License-Identifier: Apache-2.0 */
/* An agent that does what node.proto says, unless a test tells it otherwise. */
#include "tests/unit/operator/stream/rig.h"

#include <time.h>

static size_t base64url(const char *in, char *out)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	size_t n = 0, len = strlen(in);
	uint32_t bits = 0;
	int have = 0;

	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | (uint8_t)in[i];
		for (have += 8; have >= 6; have -= 6)
			out[n++] = digits[bits >> (have - 6) & 63];
	}
	if (have)
		out[n++] = digits[bits << (6 - have) & 63];
	out[n] = 0;
	return n;
}

/* "pod:NAME:UID" has the claims that kubelet's tokens for an agent have; of others only "exp". */
void agent_token(const char *what, char out[1024])
{
	bool expired = has_prefix(what, "expired:");
	long long now = (long long)time(NULL);
	/* The same token each time, within an hour. */
	long long expiry = expired ? now - 10 : (now / 3600 + 2) * 3600;
	char claims[384], encoded[640];

	if (streq(what, "opaque")) {
		snprintf(out, 1024, "Bearer 0123456789abcdef");
		return;
	}
	if (has_prefix(what, "pod:"))
		snprintf(claims, sizeof(claims),
			 "{\"exp\":%lld,\"aud\":[\"" STREAM_AUDIENCE
			 "\"],\"sub\":\"system:serviceaccount:kiln:" STREAM_ACCOUNT
			 "\",\"kubernetes.io\":{\"pod\":{\"uid\":\"%s\"}}}",
			 expiry, strrchr(what, ':') + 1);
	else
		snprintf(claims, sizeof(claims), "{\"exp\":%lld}", expiry);
	base64url(claims, encoded);
	snprintf(out, 1024, "Bearer e30.%s.%s", encoded, expired ? "node:n1" : what);
}

/* ---- what it is told ------------------------------------------------------------------------- */

static struct seen_pod *find_pod(struct agent *a, const char *uid)
{
	for (size_t i = 0; i < a->n_pods; i++)
		if (streq(a->pods[i].uid, uid))
			return &a->pods[i];
	return NULL;
}

const struct seen_pod *agent_pod(const struct agent *a, unsigned int uid)
{
	return find_pod((struct agent *)a, rig_uid(uid));
}

const struct seen_policy *agent_policy(const struct agent *a, uint64_t id)
{
	for (size_t i = 0; i < a->n_policies; i++)
		if (a->policies[i].id == id)
			return &a->policies[i];
	return NULL;
}

static void see_pod(struct agent *a, const Kiln__Node__V1__Pod *m)
{
	struct seen_pod *p = find_pod(a, m->uid);

	if (!p) {
		assert_true(a->n_pods < RIG_PODS_MAX);
		p = &a->pods[a->n_pods++];
	}
	memset(p, 0, sizeof(*p));
	snprintf(p->uid, sizeof(p->uid), "%s", m->uid);
	snprintf(p->name, sizeof(p->name), "%s", m->name);
	snprintf(p->ns, sizeof(p->ns), "%s", m->namespace_);
	p->policy = m->policy;
	p->policy_known = agent_policy(a, m->policy) != NULL;
	p->in_snapshot = a->in_snapshot;
	p->n_containers = m->n_containers;
	if (m->n_containers && m->containers[0]->id.len == 32)
		p->id = m->containers[0]->id.data[0];
	for (size_t i = 0; i < m->n_attributes; i++)
		if (streq(m->attributes[i]->key, "k8s.namespace.label.team") ||
		    streq(m->attributes[i]->key, "k8s.pod.label.tier"))
			snprintf(p->label, sizeof(p->label), "%s", m->attributes[i]->value);
}

static struct seen_policy policy_of(const Kiln__Node__V1__Policy *m)
{
	return (struct seen_policy){m->id, m->hz, m->enabled};
}

static void see_policy(struct agent *a, const Kiln__Node__V1__Policy *m)
{
	struct seen_policy *p = (struct seen_policy *)agent_policy(a, m->id);

	assert_true(p || a->n_policies < RIG_POLICIES_MAX);
	*(p ? p : &a->policies[a->n_policies++]) = policy_of(m);
}

static void forget_pod(struct agent *a, const char *uid)
{
	struct seen_pod *p = find_pod(a, uid);

	a->deletes++;
	if (p)
		*p = a->pods[--a->n_pods];
}

static void forget_policy(struct agent *a, uint64_t id)
{
	struct seen_policy *p = (struct seen_policy *)agent_policy(a, id);

	for (size_t i = 0; i < a->n_pods; i++)
		assert_true(a->pods[i].policy != id); /* deleted while a pod refers to it */
	if (p)
		*p = a->policies[--a->n_policies];
}

static void see_update(struct agent *a, const Kiln__Node__V1__Update *u)
{
	a->updates++;
	assert_true(a->in_snapshot == (u->revision == 0));
	assert_true(!a->in_snapshot || !(u->n_deleted_pods || u->n_deleted_policies));
	for (size_t i = 0; i < u->n_policies; i++)
		see_policy(a, u->policies[i]);
	if (u->default_policy)
		a->fallback = policy_of(u->default_policy);
	for (size_t i = 0; i < u->n_pods; i++)
		see_pod(a, u->pods[i]);
	for (size_t i = 0; i < u->n_deleted_pods; i++)
		forget_pod(a, u->deleted_pods[i]);
	for (size_t i = 0; i < u->n_deleted_policies; i++)
		forget_policy(a, u->deleted_policies[i]);
	if (a->in_snapshot)
		return;
	assert_true(u->revision > a->revision);
	a->revision = u->revision;
	if (!a->no_ack)
		agent_ack(a, a->epoch, a->revision);
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
	Kiln__Node__V1__OperatorMessage *m =
	    kiln__node__v1__operator_message__unpack(NULL, len, data);
	struct agent *a = arg;

	assert_non_null(m);
	a->bytes += len;
	a->largest = MAX(a->largest, len);
	switch (m->message_case) {
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_WELCOME:
		assert_int_equal(a->welcomes++, 0);
		snprintf(a->node, sizeof(a->node), "%s", m->welcome->node_name);
		a->report_interval_s = m->welcome->report_interval_s;
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN:
		a->in_snapshot = true;
		a->n_pods = a->n_policies = 0;
		a->epoch = m->snapshot_begin->epoch;
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE:
		see_update(a, m->update);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END:
		assert_true(a->in_snapshot && m->snapshot_end->epoch == a->epoch);
		a->in_snapshot = false;
		a->snapshots++;
		a->revision = m->snapshot_end->revision;
		if (!a->no_ack)
			agent_ack(a, a->epoch, a->revision);
		break;
	default:
		fail_msg("an unknown message");
	}
	kiln__node__v1__operator_message__free_unpacked(m, NULL);
}

/* ---- what it says ---------------------------------------------------------------------------- */

bool agent_send_raw(struct agent *a, const void *data, size_t len)
{
	return grpc_stream_send(a->stream, data, len) == 0;
}

static bool try_send(void *arg)
{
	struct {
		struct agent *a;
		uint8_t data[65536];
		size_t len;
	} *job = arg;

	return job->a->closes || agent_send_raw(job->a, job->data, job->len);
}

void agent_send(struct agent *a, const Kiln__Node__V1__AgentMessage *m)
{
	struct {
		struct agent *a;
		uint8_t data[65536];
		size_t len;
	} *job = calloc(1, sizeof(*job));

	job->a = a;
	job->len = kiln__node__v1__agent_message__pack(m, job->data);
	rig_until(a->rig, try_send, job);
	free(job);
}

static bool try_ack(struct agent *a)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Ack ack = KILN__NODE__V1__ACK__INIT;
	uint8_t data[64];

	ack.epoch = a->epoch;
	ack.revision = a->revision;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK;
	m.ack = &ack;
	return agent_send_raw(a, data, kiln__node__v1__agent_message__pack(&m, data));
}

void agent_ack(struct agent *a, uint64_t epoch, uint64_t revision)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Ack ack = KILN__NODE__V1__ACK__INIT;

	if (epoch == a->epoch && revision == a->revision) {
		a->ack_due = !try_ack(a);
		return;
	}
	ack.epoch = epoch;
	ack.revision = revision;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK;
	m.ack = &ack;
	agent_send(a, &m);
}

void agent_hello(struct agent *a)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Hello hello = KILN__NODE__V1__HELLO__INIT;

	hello.protocol = a->protocol ? a->protocol : 1;
	hello.agent_version = (char *)"9.9.9";
	hello.kernel = (char *)"6.1.0\n";
	hello.epoch = a->epoch;
	hello.revision = a->revision;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO;
	m.hello = &hello;
	agent_send(a, &m);
}

void agent_report(struct agent *a, uint64_t samples)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Report report = KILN__NODE__V1__REPORT__INIT;

	report.samples = samples;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_REPORT;
	m.report = &report;
	agent_send(a, &m);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_writable(void *arg)
{
	struct agent *a = arg;

	a->connected = true;
	if (a->ack_due && !a->no_ack)
		a->ack_due = !try_ack(a);
}

static void on_closed(int status, const char *message, void *arg)
{
	struct agent *a = arg;

	a->connected = false;
	a->closes++;
	a->status = status;
	snprintf(a->message, sizeof(a->message), "%s", message);
}

static bool is_connected(void *arg)
{
	struct agent *a = arg;

	return a->connected || a->closes;
}

static void watch(struct rig *rig, const struct agent *a)
{
	for (size_t i = 0; i < rig->n_agents; i++)
		if (rig->agents[i] == a)
			return;
	if (rig->n_agents < RIG_AGENTS_MAX)
		rig->agents[rig->n_agents++] = a;
}

void agent_connect(struct rig *rig, struct agent *a, const char *token)
{
	struct grpc_stream_events events = {on_writable, on_message, on_closed, a};
	struct grpc_stream_options o = {.method = STREAM_METHOD, .message_max = 4 << 20};
	char endpoint[64], authorization[1024];
	struct grpc_header header = {"authorization", authorization};
	struct error err = {0};

	a->rig = rig;
	watch(rig, a);
	a->welcomes = a->closes = a->snapshots = 0;
	a->connected = a->in_snapshot = a->ack_due = false;
	snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", node_server_port(rig->server));
	agent_token(token, authorization);
	o.client = (struct grpc_client_options){.endpoint = endpoint,
						.tls = {.ca_file = rig->ca_file},
						.headers = &header,
						.n_headers = token[0] ? 1 : 0};
	if (!a->stream)
		assert_int_equal(grpc_stream_new(&events, &rig->loop, &a->stream, &err), 0);
	if (grpc_stream_connect(a->stream, &o, &err) < 0)
		fail_msg("%s", err.message);
	rig_until(rig, is_connected, a);
	if (!a->no_hello && !a->closes)
		agent_hello(a);
}

void agent_done(struct agent *a)
{
	a->stream = grpc_stream_free(a->stream);
	for (size_t i = 0; i < a->rig->n_agents; i++)
		if (a->rig->agents[i] == a)
			a->rig->agents[i] = a->rig->agents[--a->rig->n_agents];
	rig_turns(a->rig, 2);
}

static bool is_live(void *arg)
{
	struct agent *a = arg;

	return a->welcomes && !a->in_snapshot && (a->snapshots || a->revision) && !a->closes;
}

void agent_until_live(struct agent *a)
{
	rig_until(a->rig, is_live, a);
}

static bool is_closed(void *arg)
{
	return ((struct agent *)arg)->closes > 0;
}

void agent_until_closed(struct agent *a)
{
	rig_until(a->rig, is_closed, a);
}

struct wanted {
	struct agent *a;
	uint64_t n;
};

static bool has_pods(void *arg)
{
	struct wanted *w = arg;

	return !w->a->in_snapshot && w->a->n_pods == w->n;
}

void agent_until_pods(struct agent *a, size_t n)
{
	rig_until(a->rig, has_pods, &(struct wanted){a, n});
}

static bool is_beyond(void *arg)
{
	struct wanted *w = arg;

	return w->a->revision > w->n;
}

void agent_until_revision(struct agent *a, uint64_t above)
{
	rig_until(a->rig, is_beyond, &(struct wanted){a, above});
}

static bool has_snapshot(void *arg)
{
	const struct agent *a = arg;

	return a->snapshots > 0;
}

void agent_until_snapshot(struct agent *a)
{
	rig_until(a->rig, has_snapshot, a);
}
