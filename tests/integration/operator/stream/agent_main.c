/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent for tests: connects once, does what node.proto says, and prints what it is told, one
 * JSON object a line, until the stream or its standard input ends.
 *
 *   stream_agent ENDPOINT CA_FILE TOKEN_FILE|- [EPOCH REVISION]
 */
#include "lib/grpc_stream.h"

#include <cjson/cJSON.h>

#include "kiln/node/v1/node.pb-c.h"

#define METHOD "/kiln.node.v1.NodeService/Connect"

enum { TOKEN_MAX = 8192, MESSAGE_MAX = 4 << 20, KEEPALIVE_MS = 30000 };

static struct agent {
	uv_loop_t loop;
	struct grpc_stream *stream;
	uint64_t epoch, revision;
	bool greeted, in_snapshot, ack_due;
	uv_pipe_t input;
	char room[64];
} agent;

static void print(cJSON *object)
{
	char *text = cJSON_PrintUnformatted(object);

	puts(text);
	fflush(stdout);
	free(text);
	cJSON_Delete(object);
}

static bool say(const Kiln__Node__V1__AgentMessage *m)
{
	uint8_t data[1024];

	return !grpc_stream_send(agent.stream, data, kiln__node__v1__agent_message__pack(m, data));
}

static bool greet(void)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Hello hello = KILN__NODE__V1__HELLO__INIT;

	hello.protocol = 1;
	hello.agent_version = (char *)"test";
	hello.epoch = agent.epoch;
	hello.revision = agent.revision;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_HELLO;
	m.hello = &hello;
	return say(&m);
}

static bool acknowledge(void)
{
	Kiln__Node__V1__AgentMessage m = KILN__NODE__V1__AGENT_MESSAGE__INIT;
	Kiln__Node__V1__Ack ack = KILN__NODE__V1__ACK__INIT;

	ack.epoch = agent.epoch;
	ack.revision = agent.revision;
	m.message_case = KILN__NODE__V1__AGENT_MESSAGE__MESSAGE_ACK;
	m.ack = &ack;
	return say(&m);
}

static void on_writable(void *arg)
{
	if (!agent.greeted)
		agent.greeted = greet();
	else if (agent.ack_due)
		agent.ack_due = !acknowledge();
}

static void add_attributes(cJSON *to, Kiln__Node__V1__Attribute *const *attributes, size_t n)
{
	cJSON *object = cJSON_AddObjectToObject(to, "attributes");

	for (size_t i = 0; i < n; i++)
		cJSON_AddStringToObject(object, attributes[i]->key,
					attributes[i]->n_values ? attributes[i]->values[0]
								: attributes[i]->value);
}

static void add_number(cJSON *to, const char *key, uint64_t n)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)n); /* doubles have 53 bits */
	cJSON_AddStringToObject(to, key, text);
}

static void print_pod(const Kiln__Node__V1__Pod *pod)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, "pod"), *list, *c;
	char id[65] = "";

	cJSON_AddStringToObject(p, "uid", pod->uid);
	cJSON_AddStringToObject(p, "namespace", pod->namespace_);
	cJSON_AddStringToObject(p, "name", pod->name);
	cJSON_AddStringToObject(p, "config_hash", pod->config_hash);
	add_number(p, "policy", pod->policy);
	add_attributes(p, pod->attributes, pod->n_attributes);
	list = cJSON_AddArrayToObject(p, "containers");
	for (size_t i = 0; i < pod->n_containers; i++) {
		c = cJSON_CreateObject();
		for (size_t k = 0; k < pod->containers[i]->id.len && k < 32; k++)
			snprintf(id + 2 * k, 3, "%02x", pod->containers[i]->id.data[k]);
		cJSON_AddStringToObject(c, "name", pod->containers[i]->name);
		cJSON_AddStringToObject(c, "id", id);
		add_attributes(c, pod->containers[i]->attributes, pod->containers[i]->n_attributes);
		cJSON_AddItemToArray(list, c);
	}
	print(o);
}

static void print_policy(const char *as, const Kiln__Node__V1__Policy *policy)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, as), *list;

	add_number(p, "id", policy->id);
	cJSON_AddBoolToObject(p, "enabled", policy->enabled);
	cJSON_AddNumberToObject(p, "hz", policy->hz);
	cJSON_AddNumberToObject(p, "off_cpu_per_mille", policy->off_cpu_per_mille);
	cJSON_AddNumberToObject(p, "priority", policy->priority);
	list = cJSON_AddArrayToObject(p, "disabled_tracers");
	for (size_t i = 0; i < policy->n_disabled_tracers; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(policy->disabled_tracers[i]));
	list = cJSON_AddArrayToObject(p, "labels");
	for (size_t i = 0; i < policy->n_labels; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(policy->labels[i]));
	cJSON_AddBoolToObject(p, "timestamps", policy->timestamps);
	cJSON_AddBoolToObject(p, "routed", policy->routed);
	list = cJSON_AddArrayToObject(p, "destinations");
	for (size_t i = 0; i < policy->n_destinations; i++)
		cJSON_AddItemToArray(list, cJSON_CreateString(policy->destinations[i]));
	print(o);
}

static void print_destination(const Kiln__Node__V1__Destination *d)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, "destination"), *headers;

	cJSON_AddStringToObject(p, "id", d->id);
	cJSON_AddNumberToObject(p, "kind", d->kind);
	cJSON_AddStringToObject(p, "endpoint", d->endpoint);
	headers = cJSON_AddObjectToObject(p, "headers");
	for (size_t i = 0; i < d->n_headers; i++)
		cJSON_AddStringToObject(headers, d->headers[i]->name, d->headers[i]->value);
	cJSON_AddStringToObject(p, "compression", d->compression);
	cJSON_AddNumberToObject(p, "timeout_ms", d->timeout_ms);
	cJSON_AddStringToObject(p, "proto_generation", d->proto_generation);
	cJSON_AddNumberToObject(p, "ca_bytes", d->tls ? (double)d->tls->ca_pem.len : 0);
	cJSON_AddNumberToObject(p, "certificate_bytes",
				d->tls ? (double)d->tls->certificate_pem.len : 0);
	cJSON_AddNumberToObject(p, "tls_mode", d->tls ? (double)d->tls->mode : 0);
	cJSON_AddStringToObject(p, "server_name", d->tls ? d->tls->server_name : "");
	print(o);
}

static void print_text(const char *key, const char *value)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, key, value);
	print(o);
}

static void print_state(const char *what)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, what);

	add_number(p, "epoch", agent.epoch);
	add_number(p, "revision", agent.revision);
	print(o);
}

static void print_budget(const Kiln__Node__V1__Budget *budget)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, "budget");

	cJSON_AddNumberToObject(p, "cpu", budget->cpu);
	cJSON_AddNumberToObject(p, "memory", (double)budget->memory);
	print(o);
}

static void on_update(const Kiln__Node__V1__Update *u)
{
	for (size_t i = 0; i < u->n_destinations; i++)
		print_destination(u->destinations[i]);
	for (size_t i = 0; i < u->n_policies; i++)
		print_policy("policy", u->policies[i]);
	if (u->default_policy)
		print_policy("default_policy", u->default_policy);
	if (u->budget)
		print_budget(u->budget);
	for (size_t i = 0; i < u->n_pods; i++)
		print_pod(u->pods[i]);
	for (size_t i = 0; i < u->n_deleted_pods; i++)
		print_text("deleted", u->deleted_pods[i]);
	for (size_t i = 0; i < u->n_deleted_destinations; i++)
		print_text("deleted_destination", u->deleted_destinations[i]);
	if (agent.in_snapshot)
		return;
	agent.revision = u->revision;
	print_state("update");
	agent.ack_due = !acknowledge();
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
	Kiln__Node__V1__OperatorMessage *m =
	    kiln__node__v1__operator_message__unpack(NULL, len, data);

	switch (m ? m->message_case : 0) {
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_WELCOME:
		print_text("welcome", m->welcome->node_name);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_BEGIN:
		agent.in_snapshot = true;
		agent.epoch = m->snapshot_begin->epoch;
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_UPDATE:
		on_update(m->update);
		break;
	case KILN__NODE__V1__OPERATOR_MESSAGE__MESSAGE_SNAPSHOT_END:
		agent.in_snapshot = false;
		agent.revision = m->snapshot_end->revision;
		print_state("snapshot");
		agent.ack_due = !acknowledge();
		break;
	default:
		print_text("error", "a message that cannot be understood");
	}
	if (m)
		kiln__node__v1__operator_message__free_unpacked(m, NULL);
}

static void on_closed(int status, const char *message, void *arg)
{
	cJSON *o = cJSON_CreateObject(), *p = cJSON_AddObjectToObject(o, "closed");

	cJSON_AddStringToObject(p, "status", rpc_status_name(status));
	cJSON_AddStringToObject(p, "message", message);
	print(o);
	uv_stop(&agent.loop);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
	*buf = uv_buf_init(agent.room, sizeof(agent.room));
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	if (n < 0)
		uv_stop(&agent.loop);
}

static void read_token(const char *path, char authorization[TOKEN_MAX])
{
	FILE *f = fopen(path, "r");
	size_t n = (size_t)snprintf(authorization, TOKEN_MAX, "Bearer "), len;

	len = f ? fread(authorization + n, 1, TOKEN_MAX - n - 1, f) : 0;
	authorization[n + len] = 0;
	if (f)
		fclose(f);
}

int main(int argc, char **argv)
{
	struct grpc_stream_events events = {on_writable, on_message, on_closed, NULL};
	struct grpc_stream_options o = {
	    .method = METHOD, .message_max = MESSAGE_MAX, .keepalive_ms = KEEPALIVE_MS};
	char authorization[TOKEN_MAX] = "";
	struct grpc_header header = {"authorization", authorization};
	struct error err = {0};

	if (argc != 4 && argc != 6)
		return 2;
	if (!streq(argv[3], "-"))
		read_token(argv[3], authorization);
	if (argc == 6) {
		agent.epoch = strtoull(argv[4], NULL, 10);
		agent.revision = strtoull(argv[5], NULL, 10);
	}
	o.client = (struct grpc_client_options){.endpoint = argv[1],
						.tls = {.ca_file = argv[2]},
						.headers = &header,
						.n_headers = authorization[0] ? 1 : 0};
	uv_loop_init(&agent.loop);
	uv_pipe_init(&agent.loop, &agent.input, 0);
	uv_pipe_open(&agent.input, 0);
	uv_read_start((uv_stream_t *)&agent.input, on_alloc, on_input);
	if (grpc_stream_new(&events, &agent.loop, &agent.stream, &err) < 0 ||
	    grpc_stream_connect(agent.stream, &o, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	uv_run(&agent.loop, UV_RUN_DEFAULT);
	grpc_stream_free(agent.stream);
	uv_close((uv_handle_t *)&agent.input, NULL);
	uv_run(&agent.loop, UV_RUN_DEFAULT);
	return 0;
}
