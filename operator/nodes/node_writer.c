/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The writes of one record: first its ProfilingNode, unless there is one that its Node owns, then
 * the status. Each answer starts the next step; after a failure the record is due again
 * NODES_RETRY_MS later. Loop thread only.
 */
#include "operator/nodes/nodes_internal.h"

#include "operator/reconcile/condition.h"

enum { RUNTIME_MAX = 64, LOG_INTERVAL_S = 60 };

/* ---- bodies ---------------------------------------------------------------------------------- */

cJSON *nodes_make_body(const char *name)
{
	const struct kube_resource *k = &kube_resources[KUBE_PROFILING_NODES];
	cJSON *body = cJSON_CreateObject(), *meta;
	char version[128];

	snprintf(version, sizeof(version), "%s/%s", k->group, k->version);
	meta = cJSON_AddObjectToObject(body, "metadata");
	if (cJSON_AddStringToObject(body, "apiVersion", version) &&
	    cJSON_AddStringToObject(body, "kind", k->kind) &&
	    cJSON_AddStringToObject(meta, "name", name))
		return body;
	cJSON_Delete(body);
	return NULL;
}

/* A ProfilingNode that the Node owns: the cluster's garbage collector removes it with the Node. */
static cJSON *make_object(const char *name, const char *uid)
{
	cJSON *body = nodes_make_body(name), *owners, *owner;
	cJSON *meta = cJSON_GetObjectItemCaseSensitive(body, "metadata");

	owners = cJSON_AddArrayToObject(meta, "ownerReferences");
	owner = cJSON_CreateObject();
	if (!cJSON_AddItemToArray(owners, owner)) {
		cJSON_Delete(owner);
		owner = NULL;
	}
	if (cJSON_AddStringToObject(owner, "apiVersion", "v1") &&
	    cJSON_AddStringToObject(owner, "kind", "Node") &&
	    cJSON_AddStringToObject(owner, "name", name) &&
	    cJSON_AddStringToObject(owner, "uid", uid) &&
	    cJSON_AddStringToObject(cJSON_AddObjectToObject(body, "spec"), "nodeName", name))
		return body;
	cJSON_Delete(body);
	return NULL;
}

/* Reports to the owner when WithinBudget becomes False or ceases to be False. */
static void tell_budget(struct nodes *n, const struct node_record *r,
			const Kiln__Node__V1__NodeEvent *event, enum condition_status before)
{
	enum condition_status now = (enum condition_status)r->turns.status[NODE_WITHIN_BUDGET];
	char note[256];

	if (!n->o.budget || now == before || (now != CONDITION_FALSE && before != CONDITION_FALSE))
		return;
	node_status_budget_text(event, note, sizeof(note));
	n->o.budget(n->o.arg, r->name, now == CONDITION_FALSE, note);
}

static int build_status(struct nodes *n, struct node_record *r, cJSON **ret)
{
	Kiln__Node__V1__NodeEvent *event = told_get(&r->told);
	struct node_status_input in = {.event = event,
				       .connected = r->connected,
				       .runtime = r->runtime,
				       .wanted_hash = r->wanted,
				       .replica = r->replica,
				       .reported = r->reported,
				       .now = nodes_now_s(n)};
	const struct stored_node *stored = node_store_find(n->store, r->name);
	uint8_t before;
	int e;

	if (!event)
		return -ENOMEM;
	if (!r->written && stored && stored->has_status)
		r->turns = stored->turns;
	before = r->turns.status[NODE_WITHIN_BUDGET];
	e = node_status_build(&in, &r->turns, ret);
	if (!e)
		tell_budget(n, r, event, (enum condition_status)before);
	kiln__node__v1__node_event__free_unpacked(event, NULL);
	return e;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void on_written(void *arg, const struct kube_answer *answer);

static int write_status(struct nodes *n, struct node_record *r)
{
	_cleanup_(cJSON_Deletep) cJSON *body = nodes_make_body(r->name);
	cJSON *status = NULL;
	int e = body ? build_status(n, r, &status) : -ENOMEM;

	if (e < 0)
		return e;
	if (!cJSON_AddItemToObject(body, "status", status)) {
		cJSON_Delete(status);
		return -ENOMEM;
	}
	r->creating = false;
	r->writing = node_record_content(n, r);
	r->writing_counters = r->told.counters;
	return kube_apply_status(n->o.client, KUBE_PROFILING_NODES, NULL, r->name, body, on_written,
				 r, &r->call);
}

/* Writes the ProfilingNode without its status. 1: no need to; -ENOENT: its Node is not known. */
static int write_object(struct nodes *n, struct node_record *r)
{
	const struct stored_node *stored = node_store_find(n->store, r->name);
	const char *uid = r->connected ? n->o.uid(n->o.arg, r->name) : NULL;
	_cleanup_(cJSON_Deletep) cJSON *body = NULL;

	if (!uid && !stored)
		return -ENOENT;
	if (stored && (!uid || stored->owner == node_text_hash(uid)))
		return 1;
	body = make_object(r->name, uid);
	if (!body)
		return -ENOMEM;
	r->creating = true;
	return kube_apply(n->o.client, KUBE_PROFILING_NODES, NULL, r->name, body, on_written, r,
			  &r->call);
}

static void retry_later(struct nodes *n, struct node_record *r)
{
	r->not_before_ms = nodes_now_ms(n) + NODES_RETRY_MS;
}

static void failed(struct nodes *n, struct node_record *r, const char *why)
{
	unsigned int held_back = 0;

	n->stats.failures++;
	retry_later(n, r);
	if (log_allowed(&n->log, LOG_INTERVAL_S, &held_back))
		log_warn("nodes", "ProfilingNode %s: %s (%u more like it)", r->name, why,
			 held_back);
}

/*
 * The container runtime as the kubelet reports it, "containerd://1.7.24": an agent cannot always
 * tell it from a cgroup's path.
 */
static char *runtime_of(const struct kube_answer *a)
{
	_cleanup_(cJSON_Deletep) cJSON *node =
	    a->status == 200 ? cJSON_ParseWithLength((const char *)a->body, a->len) : NULL;
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(node, "status");
	const cJSON *info = cJSON_GetObjectItemCaseSensitive(status, "nodeInfo");
	const char *text =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(info, "containerRuntimeVersion"));

	return text ? strndup(text, RUNTIME_MAX) : strdup("");
}

/* True when another request would get the same answer. */
static bool is_settled(int status)
{
	return status == 200 || status == 403 || status == 404;
}

static void on_node(void *arg, const struct kube_answer *answer)
{
	struct node_record *r = arg;
	struct nodes *n = r->owner;
	int e = 0;

	r->call = NULL;
	n->calls--;
	if (is_settled(answer->status)) {
		free(r->runtime);
		r->runtime = runtime_of(answer);
		e = r->runtime ? 0 : -ENOMEM;
	}
	if (!e)
		e = write_status(n, r);
	n->calls += !e;
	if (e < 0)
		failed(n, r, strerror(-e));
}

/*
 * Writes the status. If the agent does not report its container runtime, reads the Node first,
 * until there is an answer.
 */
static int write_next(struct nodes *n, struct node_record *r)
{
	if (!r->connected || r->runtime || r->told.has_runtime)
		return write_status(n, r);
	return kube_get(n->o.client, KUBE_NODES, NULL, r->name, on_node, r, &r->call);
}

static void written(struct nodes *n, struct node_record *r)
{
	n->stats.writes++;
	r->written = r->writing;
	r->written_counters = r->writing_counters;
	r->written_ms = nodes_now_ms(n);
}

static void on_written(void *arg, const struct kube_answer *answer)
{
	struct node_record *r = arg;
	struct nodes *n = r->owner;
	bool ok = answer->status >= 200 && answer->status <= 299;
	int e = 0;

	r->call = NULL;
	n->calls--;
	if (!ok && answer->status == 404 && !r->creating) {
		r->written = 0; /* it went with its Node, or somebody deleted it */
		retry_later(n, r);
	} else if (!ok) {
		failed(n, r, answer->message ? answer->message : "no answer");
	} else if (r->creating) {
		n->stats.writes++;
		e = write_next(n, r);
		n->calls += !e;
	} else {
		written(n, r);
	}
	if (e < 0)
		failed(n, r, strerror(-e));
}

void node_record_write(struct nodes *n, struct node_record *r)
{
	int e = write_object(n, r);

	if (e > 0)
		e = write_next(n, r);
	if (e == -ENOENT) {
		n->stats.no_node++;
		retry_later(n, r);
	} else if (e < 0) {
		failed(n, r, strerror(-e));
	} else {
		n->calls++;
		n->tokens -= 1000;
	}
}
