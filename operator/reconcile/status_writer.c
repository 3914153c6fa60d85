/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the status of a config when it has changed. A config that the cache has no room for gets
 * a status that says so. Whether it has that already is checked in handlers.c, because the cache
 * does not keep the object.
 */
#include "operator/reconcile/status.h"

#include <time.h>

#include "lib/log.h"
#include "operator/kube/json.h"
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

/*
 * Emits an event when one of these conditions changes, not for every count; for destinations, one
 * for each cause.
 */
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

/* Of the destinations of the config LIVE the first that a node cannot export to, or NULL. The
 * endpoint's answer is kept out of the tenant's status: a tenant could point a destination at any
 * address that nodes reach, and read the answer there. */
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

/*
 * Builds the status that a config should have. LIVE is the cached object, NULL when the cache has
 * no room for it. Returns 1 when it cannot be built yet: a later pass over objects or pods tries
 * again.
 */
static int build(struct status_writer *w, const char *ns, const char *name, const cJSON *live,
		 int64_t generation, cJSON **ret)
{
	const struct node_reports *reports = w->options.reports;
	struct status_cause unresolved, failing;
	struct objects_state objects;
	struct status_input in = {
	    .verdict = &w->verdict,
	    .objects = &objects,
	    .is_cluster = !ns[0],
	    .generation = generation,
	    .now = time(NULL),
	    .live = cJSON_GetObjectItemCaseSensitive(live, "status"),
	};
	int r = policy_verdict(w->options.policies, ns, name, &w->verdict);

	if (r < 0)
		return r;
	objects_read(w->options.objects, &objects);
	/* The objects are still those of an earlier generation. */
	if (in.is_cluster && in.verdict->accepted && objects.generation != in.generation)
		return 1;
	/* While pods are being counted the status waits. A config that the cache has no room for
	 * has no count, and would wait for ever. */
	if (live && match_counts_pending(w->options.matches, ns))
		return 1;
	in.matches = match_counts_read(w->options.matches, ns, ns[0] ? name : "", reports);
	if (reports)
		reports->totals(reports->arg, &in.agents);
	in.unresolved = find_unresolved(reports, ns, live, &unresolved);
	in.failing = find_failing(reports, ns, live, &failing);
	return status_build(&in, ret);
}

/* True when STATUS, of the config LIVE, is to be written in this pass. */
static bool is_news(const struct status_writer *w, const char *ns, const char *name,
		    const cJSON *live, const cJSON *status)
{
	const cJSON *before = cJSON_GetObjectItemCaseSensitive(live, "status");

	if (cJSON_Compare(status, before, true))
		return false;
	return !w->options.may_write_counts || !status_differs_in_counts(before, status) ||
	       w->options.may_write_counts(w->options.arg, ns, name);
}

/* Starts the write if one is needed: 1. 0: the status is up to date, or cannot be built yet. */
static int start(struct status_writer *w, struct status_write *write, const char *ns,
		 const char *name)
{
	enum kube_kind kind = ns[0] ? KUBE_CONFIGS : KUBE_CLUSTER_CONFIGS;
	const struct json_store *store = ns[0] ? w->options.configs : w->options.clusters;
	const cJSON *live = json_store_find(store, ns, name);
	int64_t generation = json_generation(live);
	cJSON *status, *body;
	int r;

	if (!live && !json_store_left_out(store, ns, name, &generation))
		return 0;
	r = build(w, ns, name, live, generation, &status);
	if (r)
		return r == -ENOENT || r > 0 ? 0 : r;
	if (live && !is_news(w, ns, name, live, status)) {
		cJSON_Delete(status);
		return 0;
	}
	if (live)
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
