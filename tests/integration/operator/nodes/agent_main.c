/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's own client of the node stream, with reports made by the test. Each line of standard
 * input is the new report, and is sent at once:
 *
 *   {"samples": 1, "dropped": 0, "truncated": 0, "exporters": {"main": "why it fails, or empty"},
 *    "tracers": {"python": "why there is none, or empty"}}
 *
 * The client applies the policies of the node's pods. When they or the connection change, it prints
 * {"connected": true, "reports": 1, "pods": {"web": 19}}, with the rate of each pod in Hz.
 *
 *   report_agent ENDPOINT CA_FILE TOKEN_FILE CONFIG_FILE
 */
#include <cjson/cJSON.h>

#include "agent/meta/client.h"

enum { LINE_MAX_BYTES = 64 << 10, FILE_MAX_BYTES = 1 << 20, PRINT_MS = 50 };

static struct {
	uv_loop_t loop;
	struct meta_client *client;
	cJSON *report;
	uv_pipe_t input;
	uv_timer_t timer;
	char line[LINE_MAX_BYTES], room[4096], printed[LINE_MAX_BYTES];
	size_t len;
} agent;

static uint64_t number(const char *key)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(agent.report, key);

	return cJSON_IsNumber(n) ? (uint64_t)n->valuedouble : 0;
}

static bool add_policy(const struct pod_entry *e, void *arg)
{
	struct meta_report *r = arg;

	for (size_t i = 0; i < r->n_policies; i++)
		if (r->policies[i].id == e->policy) {
			r->policies[i].containers++;
			return true;
		}
	if (r->n_policies == META_POLICIES_MAX)
		return false;
	r->policies[r->n_policies].id = e->policy;
	r->policies[r->n_policies++].containers = 1;
	return true;
}

static void fill_report(struct meta_report *ret, void *arg)
{
	const cJSON *item;

	ret->samples = number("samples");
	ret->dropped = number("dropped");
	ret->truncated = number("truncated");
	ret->budget.cpu = (uint32_t)number("budget");
	ret->budget.policies = 3;
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(agent.report, "cut"))
	{
		ret->budget.cut[ret->budget.n_cut].id = 0xa0 + ret->budget.n_cut;
		ret->budget.cut[ret->budget.n_cut].hz = 97;
		ret->budget.cut[ret->budget.n_cut].since_s = 1000000000;
		ret->budget.cut[ret->budget.n_cut++].hz_now = (uint32_t)item->valuedouble;
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(agent.report, "exporters"))
	{
		ret->exporters[ret->n_exporters].destination = item->string;
		ret->exporters[ret->n_exporters].error = item->valuestring;
		ret->exporters[ret->n_exporters++].healthy = !item->valuestring[0];
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(agent.report, "tracers"))
	{
		ret->tracers[ret->n_tracers].name = item->string;
		ret->tracers[ret->n_tracers].reason = item->valuestring;
		ret->tracers[ret->n_tracers++].state =
		    item->valuestring[0] ? META_TRACER_UNAVAILABLE : META_TRACER_LOADED;
	}
	pod_table_pods(meta_client_table(agent.client), add_policy, ret);
}

static void on_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
	*buf = uv_buf_init(agent.room, sizeof(agent.room));
}

/* Reads the first report before the client starts. */
static void read_first(void)
{
	char c;

	while (read(0, &c, 1) == 1 && c != '\n')
		if (agent.len < sizeof(agent.line) - 1)
			agent.line[agent.len++] = c;
	agent.report = cJSON_ParseWithLength(agent.line, agent.len);
	agent.len = 0;
}

static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	if (n < 0)
		uv_stop(&agent.loop);
	for (ssize_t i = 0; i < n; i++) {
		if (buf->base[i] != '\n' && agent.len < sizeof(agent.line) - 1) {
			agent.line[agent.len++] = buf->base[i];
			continue;
		}
		cJSON_Delete(agent.report);
		agent.report = cJSON_ParseWithLength(agent.line, agent.len);
		agent.len = 0;
		meta_client_report_soon(agent.client);
	}
}

static bool print_pod(const struct pod_entry *e, void *arg)
{
	const struct pod_policy *p = pod_table_policy(meta_client_table(agent.client), e->policy);

	cJSON_AddNumberToObject(arg, e->name, p && p->enabled ? p->hz : 0);
	return true;
}

static void on_timer(uv_timer_t *timer)
{
	cJSON *o = cJSON_CreateObject();
	struct meta_status status;
	char *text;

	meta_client_status(agent.client, &status);
	cJSON_AddBoolToObject(o, "connected", status.connected);
	cJSON_AddNumberToObject(o, "reports", (double)status.reports);
	pod_table_pods(meta_client_table(agent.client), print_pod,
		       cJSON_AddObjectToObject(o, "pods"));
	text = cJSON_PrintUnformatted(o);
	if (!streq(text, agent.printed)) {
		snprintf(agent.printed, sizeof(agent.printed), "%s", text);
		puts(text);
		fflush(stdout);
	}
	free(text);
	cJSON_Delete(o);
}

/* The hash of the config, as agent/config/file.c and agent/cluster.c compute it. */
static void hash_file(const char *path, char ret[static 17])
{
	FILE *f = fopen(path, "r");
	char *data = malloc(FILE_MAX_BYTES);
	size_t n = f && data ? fread(data, 1, FILE_MAX_BYTES, f) : 0;

	snprintf(ret, 17, "%016llx", (unsigned long long)hash_bytes(data, n, 0));
	if (f)
		fclose(f);
	free(data);
}

int main(int argc, char **argv)
{
	struct meta_options o = {.agent_version = "0.1.0",
				 .kernel = "6.1.0-test",
				 .cgroup_mode = "v2",
				 .container_runtime = "containerd",
				 .tick_ms = 100};
	const struct meta_events events = {.report = fill_report};
	struct error err = {0};
	char hash[17];

	if (argc != 5)
		return 2;
	o.endpoint = argv[1];
	o.ca_file = argv[2];
	o.token_file = argv[3];
	hash_file(argv[4], hash);
	read_first();
	o.config_hash = hash;
	uv_loop_init(&agent.loop);
	if (meta_client_new(&o, &events, &agent.loop, &agent.client, &err) < 0) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	uv_pipe_init(&agent.loop, &agent.input, 0);
	uv_pipe_open(&agent.input, 0);
	uv_read_start((uv_stream_t *)&agent.input, on_alloc, on_input);
	uv_timer_init(&agent.loop, &agent.timer);
	uv_timer_start(&agent.timer, on_timer, PRINT_MS, PRINT_MS);
	uv_run(&agent.loop, UV_RUN_DEFAULT);
	meta_client_free(agent.client);
	uv_close((uv_handle_t *)&agent.input, NULL);
	uv_close((uv_handle_t *)&agent.timer, NULL);
	uv_run(&agent.loop, UV_RUN_DEFAULT);
	cJSON_Delete(agent.report);
	return 0;
}
