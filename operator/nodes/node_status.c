/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status that `kubectl get pn` shows.
 *
 * Ready needs ConfigApplied, Exporting and MetadataSynced, and has the reason of the first of them
 * that does not hold. TracersLoaded does not affect Ready: without one tracer the rest of the node
 * is still profiled. A node without a stream is Unknown: its agent continues with its last
 * configuration, but nothing is heard of it.
 */
#include "operator/nodes/node_status.h"

#include "operator/reconcile/condition.h"

enum {
	VERSION_LENGTH = 64,
	KERNEL_LENGTH = 128,
	RUNTIME_LENGTH = 64,
	HASH_LENGTH = 64,
	TRACER_LENGTH = 16,
	PROBE_LENGTH = 512,
	EXPORTER_LENGTH = 317, /* "namespace/name" */
	REASON_LENGTH = 256,
	RUNTIME_VERSION_LENGTH = 32,
	RUNTIME_VERSIONS_MAX = 8,
	MESSAGE_LENGTH = 1024,
};
#define NUMBER_MAX 9007199254740991ULL /* the largest integer that JSON readers keep exactly */

const char *const node_condition_names[NODE_CONDITIONS] = {
    [NODE_READY] = "Ready",
    [NODE_CONFIG_APPLIED] = "ConfigApplied",
    [NODE_TRACERS_LOADED] = "TracersLoaded",
    [NODE_EXPORTING] = "Exporting",
    [NODE_METADATA_SYNCED] = "MetadataSynced",
    [NODE_WITHIN_BUDGET] = "WithinBudget",
};

/* At most MAX characters of TEXT, in OUT of MAX + 1; what is not printable ASCII becomes '?'. */
static const char *clean(const char *text, size_t max, char *out)
{
	size_t n = 0;

	for (; text && text[n] && n < max; n++)
		out[n] = text[n] >= ' ' && text[n] < 0x7f ? text[n] : '?';
	out[n] = 0;
	return out;
}

static bool add_text(cJSON *to, const char *key, const char *text, size_t max)
{
	char out[MESSAGE_LENGTH + 1];

	return !text || !text[0] || cJSON_AddStringToObject(to, key, clean(text, max, out));
}

static bool add_number(cJSON *to, const char *key, uint64_t n)
{
	return cJSON_AddNumberToObject(to, key, (double)MIN(n, NUMBER_MAX));
}

/* Appends an empty object to LIST and returns it; NULL: out of memory. */
static cJSON *add_item(cJSON *list)
{
	cJSON *item = cJSON_CreateObject();

	if (cJSON_AddItemToArray(list, item))
		return item;
	cJSON_Delete(item);
	return NULL;
}

static cJSON *find_item(const cJSON *list, const char *key, const char *value)
{
	cJSON *item;

	cJSON_ArrayForEach(item, list)
	{
		const char *text =
		    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, key));

		if (text && streq(text, value))
			return item;
	}
	return NULL;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static bool add_versions(cJSON *item, const Kiln__Node__V1__Tracer *t)
{
	cJSON *list = t->n_versions ? cJSON_AddArrayToObject(item, "versions") : NULL, *text;
	char version[RUNTIME_VERSION_LENGTH + 1];

	for (size_t i = 0; list && i < MIN(t->n_versions, (size_t)RUNTIME_VERSIONS_MAX); i++) {
		text = cJSON_CreateString(clean(t->versions[i], RUNTIME_VERSION_LENGTH, version));
		if (!cJSON_AddItemToArray(list, text)) {
			cJSON_Delete(text);
			return false;
		}
	}
	return !t->n_versions || list;
}

static bool add_tracers(cJSON *status, const Kiln__Node__V1__Report *r)
{
	static const char *const states[] = {[KILN__NODE__V1__TRACER__STATE__LOADED] = "Loaded",
					     [KILN__NODE__V1__TRACER__STATE__DISABLED] = "Disabled",
					     [KILN__NODE__V1__TRACER__STATE__UNAVAILABLE] =
						 "Unavailable"};
	cJSON *list = r->n_tracers ? cJSON_AddArrayToObject(status, "tracers") : NULL, *item;
	char name[TRACER_LENGTH + 1];

	for (size_t i = 0; i < r->n_tracers; i++) {
		const Kiln__Node__V1__Tracer *t = r->tracers[i];

		clean(t->name, TRACER_LENGTH, name);
		if (!name[0] || (unsigned int)t->state >= ARRAY_SIZE(states) || !states[t->state] ||
		    find_item(list, "name", name))
			continue;
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "name", name) ||
		    !cJSON_AddStringToObject(item, "state", states[t->state]) ||
		    !add_text(item, "reason", t->reason, REASON_LENGTH) || !add_versions(item, t))
			return false;
	}
	return !r->n_tracers || list;
}

static bool set_exporter(cJSON *item, const Kiln__Node__V1__Exporter *e)
{
	cJSON_DeleteItemFromObjectCaseSensitive(item, "state");
	return cJSON_AddStringToObject(item, "state", e->healthy ? "Healthy" : "Failing") &&
	       (e->healthy || add_text(item, "error", e->error, REASON_LENGTH));
}

/*
 * A tenant's destination has an id for each of its settings ("shop/main@1a2b3c4d"): they are one
 * item in the status, which is Failing when any of them is.
 */
static bool add_exporters(cJSON *status, const Kiln__Node__V1__Report *r)
{
	cJSON *list = r->n_exporters ? cJSON_AddArrayToObject(status, "exporters") : NULL, *item;
	char name[EXPORTER_LENGTH + 1];

	for (size_t i = 0; i < r->n_exporters; i++) {
		const Kiln__Node__V1__Exporter *e = r->exporters[i];

		clean(e->destination, EXPORTER_LENGTH, name);
		if (strchr(name, '/'))
			name[strcspn(name, "@")] = '\0';
		if (!name[0])
			continue;
		item = find_item(list, "name", name);
		if (item) {
			if (!e->healthy && !cJSON_HasObjectItem(item, "error") &&
			    !set_exporter(item, e))
				return false;
			continue;
		}
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "name", name) || !set_exporter(item, e))
			return false;
	}
	return !r->n_exporters || list;
}

static bool add_probes(cJSON *status, const Kiln__Node__V1__Report *r)
{
	cJSON *list = r->n_probes ? cJSON_AddArrayToObject(status, "probes") : NULL, *item;
	char name[PROBE_LENGTH + 1];

	for (size_t i = 0; i < r->n_probes; i++) {
		const Kiln__Node__V1__Probe *p = r->probes[i];

		clean(p->name, PROBE_LENGTH, name);
		if (!name[0] || find_item(list, "name", name))
			continue;
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "name", name) ||
		    !cJSON_AddStringToObject(item, "state", p->attached ? "Attached" : "Failing") ||
		    (!p->attached && !add_text(item, "reason", p->reason, REASON_LENGTH)))
			return false;
	}
	return !r->n_probes || list;
}

static bool add_policies(cJSON *status, const Kiln__Node__V1__Report *r)
{
	cJSON *list = r->n_policies ? cJSON_AddArrayToObject(status, "policies") : NULL, *item;
	char id[17];

	for (size_t i = 0; i < r->n_policies; i++) {
		snprintf(id, sizeof(id), "%016llx", (unsigned long long)r->policies[i]->id);
		if (find_item(list, "id", id))
			continue;
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "id", id) ||
		    !add_number(item, "containers", r->policies[i]->containers))
			return false;
	}
	return !r->n_policies || list;
}

static bool add_cut(cJSON *budget, const Kiln__Node__V1__BudgetState *b)
{
	cJSON *list = b->n_policy ? cJSON_AddArrayToObject(budget, "cut") : NULL, *item;
	char text[32];

	for (size_t i = 0; i < b->n_policy; i++) {
		const Kiln__Node__V1__CutPolicy *p = b->policy[i];

		snprintf(text, sizeof(text), "%016llx", (unsigned long long)p->id);
		if (find_item(list, "id", text))
			continue;
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "id", text) ||
		    !add_number(item, "hz", MIN(p->hz, 1000U)) ||
		    !add_number(item, "hzNow", MIN(p->hz_now, 1000U)))
			return false;
		format_time(p->since, text);
		if (p->since > 0 && !cJSON_AddStringToObject(item, "since", text))
			return false;
	}
	return !b->n_policy || list;
}

static bool add_budget(cJSON *status, const Kiln__Node__V1__Report *r)
{
	static const char *const details[] = {"All", "NoCopies", "Short"};
	const Kiln__Node__V1__BudgetState *b = r->budget;
	cJSON *budget = b && b->cpu ? cJSON_AddObjectToObject(status, "budget") : NULL;
	char cpu[16];

	if (!b || !b->cpu)
		return true;
	snprintf(cpu, sizeof(cpu), "%.6g%%", MIN(b->cpu, 1000000U) / 10000.0);
	return cJSON_AddStringToObject(budget, "cpu", cpu) &&
	       cJSON_AddStringToObject(budget, "detail",
				       details[MIN(b->detail, ARRAY_SIZE(details) - 1)]) &&
	       add_cut(budget, b);
}

/*
 * Two configs of a namespace may use one name for different destinations: only the first is shown.
 */
static bool add_left_out(cJSON *status, const struct node_status_input *in)
{
	size_t n = in->connected ? in->event->n_left_out : 0;
	cJSON *list = n ? cJSON_AddArrayToObject(status, "leftOut") : NULL, *item;
	char name[EXPORTER_LENGTH + 1];

	for (size_t i = 0; i < n; i++) {
		const Kiln__Node__V1__LeftOut *l = in->event->left_out[i];

		clean(l->name, EXPORTER_LENGTH, name);
		if (!name[0] || find_item(list, "name", name))
			continue;
		item = add_item(list);
		if (!cJSON_AddStringToObject(item, "name", name) ||
		    !add_text(item, "reason", l->reason, REASON_LENGTH) ||
		    !add_text(item, "message", l->message, MESSAGE_LENGTH))
			return false;
	}
	return !n || list;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static const Kiln__Node__V1__Report *report_of(const struct node_status_input *in)
{
	return in->event ? in->event->report : NULL;
}

static struct condition config_applied(const struct node_status_input *in)
{
	const char *hash = report_of(in) ? report_of(in)->config_hash : "";

	if (!hash[0] || !in->wanted_hash[0])
		return (struct condition){NULL, CONDITION_UNKNOWN, "NotKnown",
					  "It is not known which configuration the agent runs."};
	if (!streq(hash, in->wanted_hash))
		return (struct condition){NULL, CONDITION_FALSE, "OldConfig",
					  "The agent runs another configuration than the one that "
					  "is rendered for this node."};
	return (struct condition){NULL, CONDITION_TRUE, "Applied",
				  "The agent runs the configuration of now."};
}

static struct condition tracers_loaded(const struct node_status_input *in, char *text, size_t size)
{
	const Kiln__Node__V1__Report *r = report_of(in);
	char name[TRACER_LENGTH + 1];
	size_t n = 0;

	if (!r || !r->n_tracers)
		return (struct condition){NULL, CONDITION_UNKNOWN, "NotKnown",
					  "The agent has not told of its tracers."};
	for (size_t i = 0; i < r->n_tracers; i++)
		if (r->tracers[i]->state == KILN__NODE__V1__TRACER__STATE__UNAVAILABLE && n < size)
			n += (size_t)snprintf(text + n, size - n, "%s%s",
					      n ? ", " : "Not available: ",
					      clean(r->tracers[i]->name, TRACER_LENGTH, name));
	if (n)
		return (struct condition){NULL, CONDITION_FALSE, "TracersUnavailable", text};
	return (struct condition){NULL, CONDITION_TRUE, "Loaded",
				  "Every tracer that is asked for is loaded."};
}

/*
 * NAMESPACE/NAME is a tenant's destination: its failures are shown in the status of the config that
 * declares it, and do not count for the node.
 */
static bool is_tenants(const Kiln__Node__V1__Exporter *e)
{
	return strchr(e->destination, '/') != NULL;
}

static struct condition exporting(const struct node_status_input *in, char *text, size_t size)
{
	const Kiln__Node__V1__Report *r = report_of(in);
	char name[EXPORTER_LENGTH + 1], error[REASON_LENGTH + 1];
	size_t n = 0, n_bad = 0;

	for (size_t i = 0; r && i < r->n_exporters; i++) {
		const Kiln__Node__V1__Exporter *e = r->exporters[i];

		n += !is_tenants(e);
		if (!e->healthy && !is_tenants(e) && !n_bad++)
			snprintf(text, size, "%s: %s", clean(e->destination, EXPORTER_LENGTH, name),
				 e->error[0] ? clean(e->error, REASON_LENGTH, error) : "failing");
	}
	if (!n)
		return (struct condition){NULL, CONDITION_UNKNOWN, "NotKnown",
					  "The agent has not told of its destinations."};
	if (n_bad)
		return (struct condition){NULL, CONDITION_FALSE, "ExportFailing", text};
	return (struct condition){NULL, CONDITION_TRUE, "Exporting",
				  "Every destination of the cluster takes what it is sent."};
}

static struct condition metadata_synced(const struct node_status_input *in)
{
	if (!in->connected)
		return (struct condition){NULL, CONDITION_UNKNOWN, "Disconnected",
					  "The agent has no stream to the operator."};
	if (!report_of(in))
		return (struct condition){NULL, CONDITION_UNKNOWN, "NotKnown",
					  "The agent has not reported yet."};
	return (struct condition){NULL, CONDITION_TRUE, "Synced",
				  "The agent knows the node's pods."};
}

void node_status_budget_text(const Kiln__Node__V1__NodeEvent *event, char *ret, size_t size)
{
	const Kiln__Node__V1__BudgetState *b =
	    event && event->report ? event->report->budget : NULL;
	uint32_t out = 0;

	if (!b || !b->cpu) {
		snprintf(ret, size, "There is no CPU budget.");
		return;
	}
	for (size_t i = 0; i < b->n_policy; i++)
		out += !b->policy[i]->hz_now;
	if (!b->cut)
		snprintf(ret, size, "Every policy samples as it asks, within %.6g %% of all CPUs.",
			 b->cpu / 10000.0);
	else
		snprintf(
		    ret, size,
		    "Within %.6g %% of all CPUs %u of %u policies sample less than they ask%s%s.",
		    b->cpu / 10000.0, b->cut, b->policies, out ? ", some of them not at all" : "",
		    b->exhausted ? ", and yet the agent costs more" : "");
}

static struct condition within_budget(const struct node_status_input *in, char *text, size_t size)
{
	const Kiln__Node__V1__Report *r = report_of(in);

	if (!r)
		return (struct condition){NULL, CONDITION_UNKNOWN, "NotKnown",
					  "The agent has not reported yet."};
	node_status_budget_text(in->event, text, size);
	if (r->budget && r->budget->cpu && (r->budget->cut || r->budget->exhausted))
		return (struct condition){NULL, CONDITION_FALSE,
					  r->budget->exhausted ? "BudgetExhausted" : "RatesCut",
					  text};
	return (struct condition){NULL, CONDITION_TRUE,
				  r->budget && r->budget->cpu ? "AsAsked" : "NoBudget", text};
}

static struct condition ready(const struct node_status_input *in, const struct condition *all)
{
	static const enum node_condition causes[] = {NODE_METADATA_SYNCED, NODE_CONFIG_APPLIED,
						     NODE_EXPORTING};

	/*
	 * The last report of an agent without a stream says nothing of its current state. Unknown
	 * is no cause: an agent without a configuration's hash or without destinations does all it
	 * should.
	 */
	if (all[NODE_METADATA_SYNCED].status != CONDITION_TRUE)
		return all[NODE_METADATA_SYNCED];
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (all[causes[i]].status == CONDITION_FALSE)
			return all[causes[i]];
	return (struct condition){NULL, CONDITION_TRUE, "Ready", "The agent does all it should."};
}

static int add_conditions(cJSON *status, const struct node_status_input *in,
			  struct node_turns *turns)
{
	char tracers_text[MESSAGE_LENGTH], export_text[MESSAGE_LENGTH], budget_text[256];
	cJSON *list = cJSON_AddArrayToObject(status, "conditions");
	struct condition all[NODE_CONDITIONS];
	int r = list ? 0 : -ENOMEM;

	all[NODE_CONFIG_APPLIED] = config_applied(in);
	all[NODE_TRACERS_LOADED] = tracers_loaded(in, tracers_text, sizeof(tracers_text));
	all[NODE_EXPORTING] = exporting(in, export_text, sizeof(export_text));
	all[NODE_METADATA_SYNCED] = metadata_synced(in);
	all[NODE_WITHIN_BUDGET] = within_budget(in, budget_text, sizeof(budget_text));
	all[NODE_READY] = ready(in, all);
	for (size_t i = 0; i < NODE_CONDITIONS && !r; i++) {
		if (!turns->since[i] || turns->status[i] != all[i].status)
			turns->since[i] = in->now;
		turns->status[i] = (uint8_t)all[i].status;
		all[i].type = node_condition_names[i];
		r = condition_append(list, &all[i], 1, NULL, turns->since[i]);
	}
	return r;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool add_report(cJSON *status, const Kiln__Node__V1__Report *r)
{
	return add_text(status, "configHash", r->config_hash, HASH_LENGTH) &&
	       add_number(status, "samples", r->samples) &&
	       add_number(status, "dropped", r->dropped) &&
	       add_number(status, "truncated", r->truncated) &&
	       add_number(status, "exported", r->exported) &&
	       add_number(status, "unresolvedContainers", r->unresolved_containers) &&
	       add_tracers(status, r) && add_exporters(status, r) && add_probes(status, r) &&
	       add_policies(status, r) && add_budget(status, r);
}

static bool add_facts(cJSON *status, const struct node_status_input *in)
{
	static const char *const modes[] = {"v1", "v2", "hybrid"};
	const Kiln__Node__V1__NodeEvent *e = in->event;
	char time[32];

	for (size_t i = 0; e && i < ARRAY_SIZE(modes); i++)
		if (streq(e->cgroup_mode, modes[i]) &&
		    !cJSON_AddStringToObject(status, "cgroupMode", modes[i]))
			return false;
	if (e && !(add_text(status, "agentVersion", e->agent_version, VERSION_LENGTH) &&
		   add_text(status, "kernel", e->kernel, KERNEL_LENGTH) &&
		   add_text(status, "runtime",
			    e->container_runtime[0] ? e->container_runtime : in->runtime,
			    RUNTIME_LENGTH)))
		return false;
	format_time(in->reported, time);
	return add_text(status, "operator", in->connected ? in->replica : "", 253) &&
	       (!in->reported || cJSON_AddStringToObject(status, "lastReportTime", time));
}

int node_status_build(const struct node_status_input *in, struct node_turns *turns, cJSON **ret)
{
	cJSON *status = cJSON_CreateObject();
	int r = add_facts(status, in) && (!report_of(in) || add_report(status, report_of(in))) &&
			add_left_out(status, in)
		    ? 0
		    : -ENOMEM;

	if (!r)
		r = add_conditions(status, in, turns);
	if (r < 0) {
		cJSON_Delete(status);
		return r;
	}
	*ret = status;
	return 0;
}
