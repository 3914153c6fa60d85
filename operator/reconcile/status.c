/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status_build() says what a config's status should be, in the terms of the API (crds/); the writer
 * compares it with what the object has and applies the difference.
 *
 * Conditions: Accepted, is the config itself right; Programmed, do the nodes run what it says;
 * Overridden, did guard-rails or another config change what it asks for; Ready, all of it together;
 * DestinationsResolved, since one of them was not: are the Secrets there that destinations name?
 * Effective, since one was not: has every field that is set an effect? Exporting, since one was
 * not: do the tenant's own destinations take what they are sent? That says nothing of the nodes.
 * What agents said over the node stream counts where there is any: a node is programmed when its
 * agent runs the configuration that is rendered for it (the cluster's), or applies the policy of
 * the config's pods there (a namespace's). Without reports the DaemonSets tell of the cluster's,
 * and how far a namespace's config is programmed is Unknown, not guessed.
 */
#include "operator/reconcile/status.h"

#include <time.h>

#include "lib/log.h"
#include "operator/reconcile/condition.h"

enum { LOG_INTERVAL_S = 60 };

struct status_write {
	struct status_writer *owner;
	struct kube_call *call;
	char key[320]; /* "ns/name", "" while free */
	void (*done)(void *arg, const char *key, int result);
	void *arg;
};

struct status_writer {
	struct status_writer_options options;
	struct status_write writes[STATUS_WRITES_MAX];
	uint64_t written;
	struct log_limit log;
	struct policy_verdict verdict; /* scratch: it is large */
};

/* ---- what it should be ----------------------------------------------------------------------- */

static struct condition accepted(const struct status_input *in)
{
	const struct objects_state *o = in->objects;

	if (!in->verdict->accepted)
		return (struct condition){"Accepted", CONDITION_FALSE, in->verdict->reason,
					  in->verdict->message};
	if (in->is_cluster && o->invalid && o->error[0])
		return (struct condition){"Accepted", CONDITION_FALSE, "Invalid", o->error};
	return (struct condition){"Accepted", CONDITION_TRUE, in->verdict->reason,
				  in->verdict->message};
}

/* Nodes desired, programmed, degraded. */
struct nodes_count {
	uint32_t desired, programmed, degraded;
};

/* A node that is left of an earlier setting has reported too: never more than there should be. */
static struct nodes_count count_nodes(const struct status_input *in)
{
	const struct objects_state *o = in->objects;
	const struct match_result *m = &in->matches;

	if (!in->is_cluster)
		return (struct nodes_count){m->nodes, MIN(m->programmed, m->nodes),
					    MIN(m->degraded, m->nodes)};
	if (!in->agents.nodes)
		return (struct nodes_count){o->desired, o->programmed, o->degraded};
	return (struct nodes_count){o->desired, MIN(o->programmed, in->agents.applied),
				    MIN(o->desired, MAX(o->degraded, in->agents.degraded))};
}

static struct condition cluster_programmed(const struct status_input *in, char *text, size_t size)
{
	const struct objects_state *o = in->objects;
	struct nodes_count n = count_nodes(in);

	if (o->error[0])
		return (struct condition){"Programmed", CONDITION_FALSE, "ApplyFailed", o->error};
	if (!o->applied)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "Applying",
					  "The agent's objects are being written."};
	snprintf(text, size, "%u of %u nodes run this configuration.", n.programmed, n.desired);
	if (!n.desired)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "NoNodes",
					  "No node is known to run an agent yet."};
	if (n.programmed < n.desired)
		return (struct condition){"Programmed", CONDITION_FALSE, "RollingOut", text};
	return (struct condition){"Programmed", CONDITION_TRUE, "RolledOut", text};
}

static struct condition namespace_programmed(const struct status_input *in, char *text, size_t size)
{
	struct nodes_count n = count_nodes(in);

	if (in->matches.held_off) {
		snprintf(text, size, "%u pod%s profiled because of this config.",
			 in->matches.held_off, in->matches.held_off == 1 ? " is not" : "s are not");
		return (struct condition){"Programmed", CONDITION_TRUE, "HeldOff", text};
	}
	if (!in->matches.pods)
		return (struct condition){"Programmed", CONDITION_TRUE, "NoPods",
					  "No running pod takes its policy from here."};
	if (!in->agents.nodes)
		return (struct condition){"Programmed", CONDITION_UNKNOWN, "NoReports",
					  "No agent has reported yet."};
	snprintf(text, size, "%u of %u nodes apply this policy to its pods.", n.programmed,
		 n.desired);
	if (n.programmed < n.desired)
		return (struct condition){"Programmed", CONDITION_FALSE, "RollingOut", text};
	return (struct condition){"Programmed", CONDITION_TRUE, "RolledOut", text};
}

static struct condition programmed(const struct status_input *in, bool is_accepted, char *text,
				   size_t size)
{
	if (!is_accepted)
		return (struct condition){"Programmed", CONDITION_FALSE, "NotAccepted",
					  "The configuration is not accepted."};
	return in->is_cluster ? cluster_programmed(in, text, size)
			      : namespace_programmed(in, text, size);
}

static struct condition ready(const struct status_input *in, const struct condition *is_accepted,
			      const struct condition *is_programmed, char *text, size_t size)
{
	struct nodes_count n = count_nodes(in);
	const struct condition *cause =
	    is_accepted->status != CONDITION_TRUE ? is_accepted : is_programmed;

	if (cause->status != CONDITION_TRUE)
		return (struct condition){"Ready", cause->status, cause->reason, cause->message};
	if (in->unresolved)
		return (struct condition){"Ready", CONDITION_FALSE, in->unresolved->reason,
					  in->unresolved->text};
	if (in->failing)
		return (struct condition){"Ready", CONDITION_FALSE, in->failing->reason,
					  in->failing->text};
	snprintf(text, size, "%u of %u nodes %s degraded, see kubectl get profilingnodes.",
		 n.degraded, n.desired, n.degraded == 1 ? "is" : "are");
	if (in->agents.nodes && n.degraded)
		return (struct condition){"Ready", CONDITION_FALSE, "NodesDegraded", text};
	return (struct condition){"Ready", CONDITION_TRUE, "Ready",
				  "The configuration is in effect."};
}

static struct condition overridden(const struct policy_verdict *v, char *text, size_t size)
{
	if (!v->n_clamped)
		return (struct condition){"Overridden", CONDITION_FALSE, "NotOverridden",
					  "Everything is as asked for."};
	snprintf(text, size,
		 "%zu field%s limited by the cluster's guard-rails, see status.clamped.",
		 v->n_clamped, v->n_clamped == 1 ? " is" : "s are");
	return (struct condition){"Overridden", CONDITION_TRUE, "Clamped", text};
}

/* Only of configs that it was False of; true when there is something to say. */
static bool destinations_resolved(const struct status_input *in, const cJSON *live,
				  struct condition *ret)
{
	if (in->unresolved)
		*ret = (struct condition){"DestinationsResolved", CONDITION_FALSE,
					  in->unresolved->reason, in->unresolved->text};
	else if (condition_find(live, "DestinationsResolved"))
		*ret = (struct condition){"DestinationsResolved", CONDITION_TRUE, "Resolved",
					  "Every destination in use has its Secrets."};
	else
		return false;
	return true;
}

/* Only of configs that it was False of; true when there is something to say. */
static bool effective(const struct status_input *in, const cJSON *live, struct condition *ret)
{
	if (in->verdict->ineffective[0])
		*ret = (struct condition){"Effective", CONDITION_FALSE, "PartlyIneffective",
					  in->verdict->ineffective};
	else if (condition_find(live, "Effective"))
		*ret = (struct condition){"Effective", CONDITION_TRUE, "Effective",
					  "Every field that is set has an effect."};
	else
		return false;
	return true;
}

/* The same of destinations that do not take what they are sent. */
static bool exporting(const struct status_input *in, const cJSON *live, struct condition *ret)
{
	if (in->failing)
		*ret = (struct condition){"Exporting", CONDITION_FALSE, in->failing->reason,
					  in->failing->text};
	else if (condition_find(live, "Exporting"))
		*ret =
		    (struct condition){"Exporting", CONDITION_TRUE, "Exporting",
				       "Every destination of this config takes what it is sent."};
	else
		return false;
	return true;
}

static int add_conditions(cJSON *status, const struct status_input *in)
{
	const cJSON *live = cJSON_GetObjectItemCaseSensitive(in->live, "conditions");
	cJSON *out = cJSON_AddArrayToObject(status, "conditions");
	char programmed_text[128], overridden_text[128], ready_text[128];
	struct condition conditions[7];
	size_t n = 0;
	int r = out ? 0 : -ENOMEM;

	conditions[n++] = accepted(in);
	conditions[n] = programmed(in, conditions[0].status == CONDITION_TRUE, programmed_text,
				   sizeof(programmed_text));
	n++;
	if (!in->is_cluster)
		conditions[n++] = overridden(in->verdict, overridden_text, sizeof(overridden_text));
	n += effective(in, live, &conditions[n]);
	n += destinations_resolved(in, live, &conditions[n]);
	n += exporting(in, live, &conditions[n]);
	conditions[n] = ready(in, &conditions[0], &conditions[1], ready_text, sizeof(ready_text));
	n++;
	for (size_t i = 0; i < n && !r; i++)
		r = condition_append(out, &conditions[i], in->generation, live, in->now);
	return r;
}

static int add_clamped(cJSON *status, const struct policy_verdict *v)
{
	cJSON *out;

	if (!v->n_clamped)
		return 0;
	out = cJSON_AddArrayToObject(status, "clamped");
	for (size_t i = 0; i < v->n_clamped; i++) {
		const struct policy_clamp *c = &v->clamped[i];
		cJSON *item = cJSON_CreateObject();

		if (!cJSON_AddItemToArray(out, item)) {
			cJSON_Delete(item);
			return -ENOMEM;
		}
		if (!cJSON_AddStringToObject(item, "field", c->field) ||
		    !cJSON_AddStringToObject(item, "requested", c->requested) ||
		    !cJSON_AddStringToObject(item, "effective", c->effective) ||
		    !cJSON_AddStringToObject(item, "reason", c->reason))
			return -ENOMEM;
	}
	return 0;
}

static int add_nodes(cJSON *status, const struct status_input *in)
{
	struct nodes_count n = count_nodes(in);
	cJSON *nodes = cJSON_AddObjectToObject(status, "nodes");

	if (!cJSON_AddNumberToObject(nodes, "desired", n.desired) ||
	    !cJSON_AddNumberToObject(nodes, "programmed", n.programmed) ||
	    !cJSON_AddNumberToObject(nodes, "degraded", n.degraded))
		return -ENOMEM;
	return 0;
}

static int add_effective_hash(cJSON *status, uint64_t id)
{
	char text[17];

	snprintf(text, sizeof(text), "%016llx", (unsigned long long)id);
	return cJSON_AddStringToObject(status, "effectiveHash", text) ? 0 : -ENOMEM;
}

int status_build(const struct status_input *in, cJSON **ret)
{
	cJSON *status = cJSON_CreateObject();
	int r = 0;

	if (!cJSON_AddNumberToObject(status, "observedGeneration", (double)in->generation) ||
	    !cJSON_AddNumberToObject(status, "matchedPods",
				     in->matches.pods + in->matches.held_off))
		r = -ENOMEM;
	if (!r && in->is_cluster && in->objects->config_hash[0] &&
	    !cJSON_AddStringToObject(status, "configHash", in->objects->config_hash))
		r = -ENOMEM;
	if (!r && in->verdict->effective)
		r = add_effective_hash(status, in->verdict->effective);
	if (!r)
		r = add_nodes(status, in);
	if (!r)
		r = add_clamped(status, in->verdict);
	if (!r)
		r = add_conditions(status, in);
	if (r < 0) {
		cJSON_Delete(status);
		return r;
	}
	*ret = status;
	return 0;
}

static bool same_member(const cJSON *a, const cJSON *b, const char *key)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(a, key);
	const cJSON *y = cJSON_GetObjectItemCaseSensitive(b, key);

	return (!x && !y) || cJSON_Compare(x, y, true);
}

bool status_differs_in_counts(const cJSON *before, const cJSON *now)
{
	static const char *const members[] = {"observedGeneration", "configHash", "effectiveHash",
					      "clamped"};
	static const char *const parts[] = {"type", "status", "reason", "observedGeneration"};
	const cJSON *a = cJSON_GetObjectItemCaseSensitive(before, "conditions"), *i;
	const cJSON *b = cJSON_GetObjectItemCaseSensitive(now, "conditions");

	for (size_t m = 0; m < ARRAY_SIZE(members); m++)
		if (!same_member(before, now, members[m]))
			return false;
	if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b))
		return false;
	cJSON_ArrayForEach(i, b)
	{
		const cJSON *other = condition_find(
		    a, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "type")));

		for (size_t p = 0; p < ARRAY_SIZE(parts); p++)
			if (!same_member(other, i, parts[p]))
				return false;
	}
	return true;
}

/* ---- writing it ------------------------------------------------------------------------------ */

static struct status_write *free_write(struct status_writer *w)
{
	for (size_t i = 0; i < STATUS_WRITES_MAX; i++)
		if (!w->writes[i].key[0])
			return &w->writes[i];
	return NULL;
}

static void on_written(void *arg, const struct kube_answer *answer)
{
	struct status_write *write = arg, ended = *write;
	bool ok = answer->status >= 200 && answer->status <= 299;
	unsigned int held_back = 0;

	write->key[0] = 0;
	write->call = NULL;
	if (ok)
		write->owner->written++;
	else if (answer->status != 404 &&
		 log_allowed(&ended.owner->log, LOG_INTERVAL_S, &held_back))
		log_warn("status", "%s: %s (%u more like it)", ended.key, answer->message,
			 held_back);
	ended.done(ended.arg, ended.key, ok || answer->status == 404 ? 0 : -EIO);
}

static const char *meta_text(const cJSON *object, const char *key)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(object, "metadata");
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta, key));

	return text ? text : "";
}

static const char *condition_text(const cJSON *status, const char *type, const char *key)
{
	const cJSON *c =
	    condition_find(cJSON_GetObjectItemCaseSensitive(status, "conditions"), type);
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(c, key));

	return text ? text : "";
}

/* People hear of these when they turn, not of every count; of destinations, of each cause. */
static void tell(struct status_writer *w, enum kube_kind kind, const cJSON *live,
		 const cJSON *status)
{
	static const char *const types[] = {"Accepted", "Overridden", "Effective",
					    "DestinationsResolved"};
	const cJSON *before = cJSON_GetObjectItemCaseSensitive(live, "status");

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		const char *now = condition_text(status, types[i], "status");
		bool is_bad = streq(now, i == 1 ? "True" : "False");

		if (i < 3 ? streq(now, condition_text(before, types[i], "status"))
			  : streq(condition_text(status, types[i], "message"),
				  condition_text(before, types[i], "message")))
			continue;
		if (!is_bad && i > 0)
			continue;
		recorder_emit(
		    w->options.events,
		    (struct kube_event){.kind = kind,
					.ns = meta_text(live, "namespace"),
					.name = meta_text(live, "name"),
					.uid = meta_text(live, "uid"),
					.type = is_bad ? "Warning" : "Normal",
					.reason = condition_text(status, types[i], "reason"),
					.action = "Validate",
					.note = condition_text(status, types[i], "message")});
	}
}

static cJSON *apply_body(enum kube_kind kind, const char *ns, const char *name, cJSON *status)
{
	const struct kube_resource *resource = &kube_resources[kind];
	cJSON *body = cJSON_CreateObject(), *meta;
	char version[128];

	snprintf(version, sizeof(version), "%s/%s", resource->group, resource->version);
	if (!cJSON_AddItemToObject(body, "status", status)) {
		cJSON_Delete(status);
		cJSON_Delete(body);
		return NULL;
	}
	meta = cJSON_AddObjectToObject(body, "metadata");
	if (!cJSON_AddStringToObject(body, "apiVersion", version) ||
	    !cJSON_AddStringToObject(body, "kind", resource->kind) ||
	    !cJSON_AddStringToObject(meta, "name", name) ||
	    (ns[0] && !cJSON_AddStringToObject(meta, "namespace", ns))) {
		cJSON_Delete(body);
		return NULL;
	}
	return body;
}

/* The first of LIVE's destinations that cannot be used; NULL: none is known. */
static const struct status_cause *find_unresolved(const struct node_reports *reports,
						  const char *ns, const cJSON *live,
						  struct status_cause *room)
{
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(live, "spec"), *i;
	struct status_cause cause;
	const char *name;

	if (!reports)
		return NULL;
	cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(spec, "destinations"))
	{
		name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "name"));
		if (!name || !reports->left_out(reports->arg, ns, name, &cause))
			continue;
		room->reason = cause.reason;
		snprintf(room->text, sizeof(room->text), "Destination %.63s is left out: %.900s.",
			 name, cause.text);
		return room;
	}
	return NULL;
}

/* The first of LIVE's destinations that takes nothing on some node; NULL: none is known. What it
 * answers is not for the tenant: it may be anything that the nodes can reach. */
static const struct status_cause *find_failing(const struct node_reports *reports, const char *ns,
					       const cJSON *live, struct status_cause *room)
{
	const cJSON *spec = cJSON_GetObjectItemCaseSensitive(live, "spec"), *i;

	if (!reports || !ns[0])
		return NULL;
	cJSON_ArrayForEach(i, cJSON_GetObjectItemCaseSensitive(spec, "destinations"))
	{
		const char *name =
		    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(i, "name"));
		uint32_t nodes = name ? reports->failing(reports->arg, ns, name) : 0;

		if (!nodes)
			continue;
		room->reason = "ExportFailing";
		snprintf(room->text, sizeof(room->text),
			 "Destination %.63s does not take what %u node%s it.", name, nodes,
			 nodes == 1 ? " sends" : "s send");
		return room;
	}
	return NULL;
}

/* 1: not now, a pass over the objects or the pods is due that will ask again. */
static int build(struct status_writer *w, const char *ns, const char *name, const cJSON *live,
		 cJSON **ret)
{
	const cJSON *meta = cJSON_GetObjectItemCaseSensitive(live, "metadata");
	const cJSON *generation = cJSON_GetObjectItemCaseSensitive(meta, "generation");
	const struct node_reports *reports = w->options.reports;
	struct status_cause unresolved, failing;
	struct objects_state objects;
	struct status_input in = {
	    .verdict = &w->verdict,
	    .objects = &objects,
	    .is_cluster = !ns[0],
	    .generation = cJSON_IsNumber(generation) ? (int64_t)generation->valuedouble : 0,
	    .now = time(NULL),
	    .live = cJSON_GetObjectItemCaseSensitive(live, "status"),
	};
	int r = policy_verdict(w->options.policies, ns, name, &w->verdict);

	if (r < 0)
		return r;
	objects_read(w->options.objects, &objects);
	/* What was done for the config before says nothing of this one. */
	if (in.is_cluster && in.verdict->accepted && objects.generation != in.generation)
		return 1;
	if (match_counts_pending(w->options.matches, ns))
		return 1;
	in.matches = match_counts_read(w->options.matches, ns, ns[0] ? name : "", reports);
	if (reports)
		reports->totals(reports->arg, &in.agents);
	in.unresolved = find_unresolved(reports, ns, live, &unresolved);
	in.failing = find_failing(reports, ns, live, &failing);
	return status_build(&in, ret);
}

/* Starts the write if there is one to do: 1; 0: all is said already. */
static int start(struct status_writer *w, struct status_write *write, const char *ns,
		 const char *name)
{
	enum kube_kind kind = ns[0] ? KUBE_CONFIGS : KUBE_CLUSTER_CONFIGS;
	const cJSON *live =
	    json_store_find(ns[0] ? w->options.configs : w->options.clusters, ns, name);
	cJSON *status, *body;
	int r;

	if (!live)
		return 0;
	r = build(w, ns, name, live, &status);
	if (r)
		return r == -ENOENT || r > 0 ? 0 : r;
	if (cJSON_Compare(status, cJSON_GetObjectItemCaseSensitive(live, "status"), true)) {
		cJSON_Delete(status);
		return 0;
	}
	if (w->options.may_write_counts &&
	    status_differs_in_counts(cJSON_GetObjectItemCaseSensitive(live, "status"), status) &&
	    !w->options.may_write_counts(w->options.arg, ns, name)) {
		cJSON_Delete(status);
		return 0;
	}
	tell(w, kind, live, status);
	body = apply_body(kind, ns, name, status);
	if (!body)
		return -ENOMEM;
	r = kube_apply_status(w->options.client, kind, ns[0] ? ns : NULL, name, body, on_written,
			      write, &write->call);
	cJSON_Delete(body);
	return r < 0 ? r : 1;
}

void status_reconcile(struct status_writer *w, const char *ns, const char *name,
		      void (*done)(void *arg, const char *key, int result), void *arg)
{
	struct status_write *write = free_write(w);
	char key[sizeof(write->key)];
	int r;

	snprintf(key, sizeof(key), "%s%s%s", ns, ns[0] ? "/" : "", name);
	r = !w->options.may_write(w->options.arg) ? -ECANCELED
	    : write				  ? start(w, write, ns, name)
						  : -EBUSY;
	if (r <= 0) {
		done(arg, key, r);
		return;
	}
	write->owner = w;
	write->done = done;
	write->arg = arg;
	memcpy(write->key, key, sizeof(key));
}

uint64_t status_writes(const struct status_writer *w)
{
	return w->written;
}

int status_writer_new(const struct status_writer_options *options, struct status_writer **ret)
{
	struct status_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->options = *options;
	*ret = w;
	return 0;
}

struct status_writer *status_writer_free(struct status_writer *w)
{
	if (!w)
		return NULL;
	for (size_t i = 0; i < STATUS_WRITES_MAX; i++)
		if (w->writes[i].key[0])
			kube_cancel(w->writes[i].call);
	free(w);
	return NULL;
}
