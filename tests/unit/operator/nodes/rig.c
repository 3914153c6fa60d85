/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/operator/nodes/rig.h"

struct rig rig;

static const char *uid_of(void *arg, const char *node)
{
	static char uid[300];

	snprintf(uid, sizeof(uid), "uid-%s", node);
	return rig.has_node ? uid : NULL;
}

static void wanted_of(void *arg, const char *node, char ret[static 17])
{
	memcpy(ret, rig.wanted, 17);
}

static bool leads(void *arg)
{
	return rig.leads;
}

static void turned(void *arg)
{
	rig.turned++;
}

int64_t clock_s(void)
{
	return (int64_t)(fakes.now_ms / 1000);
}

int setup(void **state)
{
	struct nodes_options o = {
	    .uid = uid_of, .wanted = wanted_of, .leads = leads, .turned = turned, .now = clock_s};
	struct error err;

	fakes_reset();
	memset(&rig, 0, sizeof(rig));
	rig.has_node = rig.leads = true;
	rig.peer = 1;
	rig.left_out = (Kiln__Node__V1__LeftOut)KILN__NODE__V1__LEFT_OUT__INIT;
	rig.answer = 200;
	rig.node_answer = 403;
	memcpy(rig.wanted, "00ff", 5);
	assert_int_equal(nodes_new(&o, &rig.nodes, &err), 0);
	fakes.informers[0].stats.synced = true;
	return 0;
}

int teardown(void **state)
{
	nodes_free(rig.nodes);
	fakes_reset();
	return 0;
}

/* ---- the API server -------------------------------------------------------------------------- */

void show(const char *name, cJSON *status)
{
	cJSON *o = cJSON_CreateObject(), *meta = cJSON_AddObjectToObject(o, "metadata"), *owner;
	char uid[300];

	snprintf(uid, sizeof(uid), "uid-%s", name);
	cJSON_AddStringToObject(meta, "name", name);
	owner = cJSON_CreateObject();
	cJSON_AddStringToObject(owner, "uid", uid);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(meta, "ownerReferences"), owner);
	if (status)
		cJSON_AddItemToObject(o, "status", status);
	fake_show(KUBE_PROFILING_NODES, o);
	cJSON_Delete(o);
}

static void answer_one(struct kube_call *call)
{
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(call->object, "status");

	if (streq(call->verb, "get")) {
		assert_int_equal(call->kind, KUBE_NODES);
		rig.asked++;
		if (rig.node_object)
			fake_found(call, rig.node_object);
		else
			fake_done(call, rig.node_answer, "no");
		return;
	}
	assert_int_equal(call->kind, KUBE_PROFILING_NODES);
	if (rig.answer != 200) {
		fake_done(call, rig.answer, "no");
		return;
	}
	if (status) {
		_cleanup_free_ char *text = cJSON_PrintUnformatted(status);

		snprintf(rig.last, sizeof(rig.last), "%s", text);
		rig.writes++;
		show(call->name, cJSON_Duplicate(status, true));
	} else {
		rig.objects++;
		show(call->name, NULL);
	}
	fake_done(call, 200, "");
}

void answer_all(void)
{
	for (size_t i = 0; i < fakes.n_writes; i++)
		if (!fakes.writes[i].over)
			answer_one(&fakes.writes[i]);
	for (size_t i = 0; i < fakes.n_writes; i++) {
		cJSON_Delete(fakes.writes[i].object);
		fakes.writes[i] = (struct kube_call){NULL};
	}
	fakes.n_writes = 0;
}

void run(uint64_t ms)
{
	for (uint64_t until = fakes.now_ms + ms; fakes.now_ms < until;) {
		fakes.now_ms += NODES_TICK_MS;
		nodes_tick(rig.nodes);
		answer_all();
	}
}

/* ---- agents ---------------------------------------------------------------------------------- */

void tell(const char *node, bool connected, Kiln__Node__V1__Report *report)
{
	Kiln__Node__V1__NodeEvent e = KILN__NODE__V1__NODE_EVENT__INIT, *list[] = {&e};
	Kiln__Node__V1__NodeEvents all = KILN__NODE__V1__NODE_EVENTS__INIT;
	Kiln__Node__V1__LeftOut *left_out[] = {&rig.left_out};
	static uint8_t bytes[4096];
	bool whole = true;
	size_t n;

	e.node = (char *)node;
	e.connected = connected;
	if (connected) {
		e.agent_version = (char *)"1";
		e.kernel = (char *)"6";
		e.cgroup_mode = (char *)"v2";
		e.heard = rig.heard_ms ? rig.heard_ms : (int64_t)fakes.now_ms;
		e.report = report;
		e.left_out = left_out;
		e.n_left_out = rig.left_out.name[0] ? 1 : 0;
	}
	all.replica = (char *)(rig.peer == 1 ? "me" : "another");
	all.nodes = list;
	all.n_nodes = 1;
	n = kiln__node__v1__node_events__pack(&all, bytes);
	assert_int_equal(nodes_take(rig.nodes, rig.peer, bytes, n, &whole), 0);
	assert_false(whole);
}

void say(const char *node, uint64_t samples, bool healthy)
{
	Kiln__Node__V1__Exporter e = KILN__NODE__V1__EXPORTER__INIT, *list[] = {&e};
	Kiln__Node__V1__AppliedPolicy p = KILN__NODE__V1__APPLIED_POLICY__INIT, *policies[] = {&p};
	Kiln__Node__V1__Report r = KILN__NODE__V1__REPORT__INIT;

	e.destination = (char *)"main";
	e.healthy = healthy;
	e.error = (char *)(healthy ? "" : "connection refused");
	p.id = 7;
	r.config_hash = (char *)"00ff";
	r.samples = samples;
	r.exporters = list;
	r.policies = policies;
	r.n_exporters = r.n_policies = 1;
	tell(node, true, &r);
}

void hello(const char *node)
{
	tell(node, true, NULL);
}

void leave(const char *node)
{
	tell(node, false, NULL);
}

bool last_has(const char *text)
{
	return strstr(rig.last, text) != NULL;
}
