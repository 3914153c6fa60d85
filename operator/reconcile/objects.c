/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pass renders all objects, then deletes those that are not wanted (a node whose group is gone
 * must not have two agents), then applies, in the order of render(), those that differ from the
 * cache. Each step is one request; its answer starts the next.
 *
 * An object is up to date when it carries the hash of the wanted object and has all of its fields:
 * the hash shows our own changes, render_covers() those of others.
 */
#include "operator/reconcile/objects.h"

#include "lib/log.h"
#include "operator/kube/json.h"
#include "operator/cache/meta_store.h"

#define APPLIED_HASH "profiling.kiln.dev/applied-hash"
#define CONFIG_HASH  "profiling.kiln.dev/config-hash"

enum {
	BEHIND_MS = 2000, /* after this the cache is believed although it does not show the write */
	PENDING_MAX = 2 * RENDER_OBJECTS_MAX,
	KINDS_MAX = 16,
	LIVE_MAX = 512, /* objects of one kind with our label */
	LOG_INTERVAL_S = 60,
};

/* A write whose effect the cache has not shown yet. */
struct pending {
	enum kube_kind kind;
	char *name;
	char *before; /* resourceVersion that the cache had; "" for none */
	uint64_t until_ms;
};

struct watched_kind {
	struct objects *owner;
	enum kube_kind kind;
	struct json_store *store;
	struct informer *informer;
};

struct objects {
	struct objects_options options;
	struct watched_kind kinds[KINDS_MAX];
	size_t n_kinds;
	struct pending pending[PENDING_MAX];
	size_t n_pending;
	struct objects_state state;
	char refused[512]; /* why the config cannot be understood; "" */
	int64_t refused_generation;
	struct log_limit log;
	/* The pass under way. */
	int64_t generation;
	struct rendered *want;
	size_t next;
	struct kube_call *call;
	char overwritten[64]; /* the cached resourceVersion when the call began; "" for none */
	int result;	      /* the first failure */
	bool behind;
	void (*done)(void *arg, int result);
	void *done_arg;
};

static void step(struct objects *o);

/* ---- reading live objects -------------------------------------------------------------------- */

static const cJSON *meta_of(const cJSON *object)
{
	return cJSON_GetObjectItemCaseSensitive(object, "metadata");
}

static const char *meta_text(const cJSON *object, const char *key)
{
	const char *text =
	    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(meta_of(object), key));

	return text ? text : "";
}

static const char *annotation(const cJSON *object, const char *key)
{
	const cJSON *all = cJSON_GetObjectItemCaseSensitive(meta_of(object), "annotations");
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(all, key));

	return text ? text : "";
}

static uint32_t status_number(const cJSON *object, const char *key)
{
	const cJSON *status = cJSON_GetObjectItemCaseSensitive(object, "status");
	const cJSON *number = cJSON_GetObjectItemCaseSensitive(status, key);

	if (!cJSON_IsNumber(number) || number->valuedouble < 0 || number->valuedouble > UINT32_MAX)
		return 0;
	return (uint32_t)number->valuedouble;
}

static struct json_store *store_of(const struct objects *o, enum kube_kind kind)
{
	for (size_t i = 0; i < o->n_kinds; i++)
		if (o->kinds[i].kind == kind)
			return o->kinds[i].store;
	return NULL;
}

static const cJSON *live_object(const struct objects *o, enum kube_kind kind, const char *name)
{
	const struct json_store *store = store_of(o, kind);

	return store ? json_store_find(store, o->options.ns, name) : NULL;
}

/* ---- writes that the cache has not shown ----------------------------------------------------- */

static void pending_drop(struct objects *o, size_t i)
{
	free(o->pending[i].name);
	free(o->pending[i].before);
	o->pending[i] = o->pending[--o->n_pending];
}

static const char *version_of(const cJSON *live)
{
	return live ? meta_text(live, "resourceVersion") : "";
}

static void pending_add(struct objects *o, enum kube_kind kind, const char *name,
			const char *before)
{
	struct pending p = {.kind = kind, .until_ms = uv_now(o->options.loop) + BEHIND_MS};

	if (o->n_pending >= PENDING_MAX)
		pending_drop(o, 0);
	p.name = strdup(name);
	p.before = strdup(before);
	if (p.name && p.before) {
		o->pending[o->n_pending++] = p;
		return;
	}
	free(p.name); /* no memory to remember the write: at worst it is made twice */
	free(p.before);
}

/* True when the cache has the object as it was before our last write. */
static bool is_behind(struct objects *o, enum kube_kind kind, const char *name, const cJSON *live)
{
	const char *version = version_of(live);

	for (size_t i = 0; i < o->n_pending; i++) {
		const struct pending *p = &o->pending[i];

		if (p->kind != kind || !streq(p->name, name))
			continue;
		if (streq(p->before, version) && uv_now(o->options.loop) < p->until_ms)
			return true;
		pending_drop(o, i);
		return false;
	}
	return false;
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void tell_event(struct objects *o, const char *type, const char *reason, const char *note)
{
	const struct cluster_config *c = policy_set_get_cluster(o->options.policies);

	if (!c)
		return;
	recorder_emit(o->options.events, (struct kube_event){.kind = KUBE_CLUSTER_CONFIGS,
							     .ns = "",
							     .name = c->id.name,
							     .uid = c->id.uid,
							     .type = type,
							     .reason = reason,
							     .action = "Reconcile",
							     .note = note});
}

static void finish(struct objects *o)
{
	int result = o->result;

	o->want = rendered_free(o->want);
	o->state.generation = o->generation;
	o->state.applied = !result && !o->behind;
	if (!result)
		o->state.error[0] = 0;
	if (!result && o->behind)
		result = -EAGAIN;
	o->options.changed(o->options.arg);
	o->done(o->done_arg, result);
}

static void failed(struct objects *o, const char *verb, enum kube_kind kind, const char *name,
		   const struct kube_answer *answer)
{
	const char *why = answer->message && answer->message[0] ? answer->message : "no answer";
	unsigned int held_back = 0;

	snprintf(o->state.error, sizeof(o->state.error), "%s %s %s/%s: %.300s", verb,
		 kube_resources[kind].kind, o->options.ns, name, why);
	if (log_allowed(&o->log, LOG_INTERVAL_S, &held_back))
		log_warn("objects", "%s (%u more like it)", o->state.error, held_back);
	tell_event(o, "Warning", "ApplyFailed", o->state.error);
	o->result = answer->status == 422 || answer->status == 400 ? -EINVAL : -EIO;
}

static void on_applied(void *arg, const struct kube_answer *answer)
{
	struct objects *o = arg;
	const struct rendered_object *want = &o->want->objects[o->next];
	char note[256];

	o->call = NULL;
	if (answer->status < 200 || answer->status > 299) {
		/* The order matters: later objects may need this one. */
		failed(o, "apply", want->kind, want->name, answer);
		finish(o);
		return;
	}
	o->state.writes++;
	/* The watch may have shown it before this answer came. */
	pending_add(o, want->kind, want->name, o->overwritten);
	snprintf(note, sizeof(note), "applied %s %s (%s)", kube_resources[want->kind].kind,
		 want->name, want->hash);
	log_info("objects", "%s", note);
	tell_event(o, "Normal", "Applied", note);
	o->next++;
	step(o);
}

static void on_deleted(void *arg, const struct kube_answer *answer)
{
	struct objects *o = arg;

	o->call = NULL;
	/* 409: the name is another object's by now; the watch will tell. */
	if (answer->status != 404 && answer->status != 409 &&
	    (answer->status < 200 || answer->status > 299)) {
		failed(o, "delete", KUBE_DAEMON_SETS, "of a setting that went", answer);
		finish(o);
		return;
	}
	o->state.deletes++;
	step(o);
}

static bool is_wanted(const struct objects *o, enum kube_kind kind, const char *name)
{
	for (size_t i = 0; o->want && i < o->want->n; i++)
		if (o->want->objects[i].kind == kind && streq(o->want->objects[i].name, name))
			return true;
	return false;
}

struct stale {
	struct objects *o;
	enum kube_kind kind;
	const cJSON *found;
};

static int find_stale(void *arg, const cJSON *object)
{
	struct stale *s = arg;
	const char *name = meta_text(object, "name");

	if (is_wanted(s->o, s->kind, name) || meta_text(object, "deletionTimestamp")[0])
		return 0;
	if (is_behind(s->o, s->kind, name, object)) {
		s->o->behind = true;
		return 0;
	}
	s->found = object;
	return 1;
}

/* Starts the deletion of one object that is not wanted; 0 when there is none. */
static int delete_next(struct objects *o)
{
	for (size_t i = 0; i < o->n_kinds; i++) {
		struct stale stale = {o, o->kinds[i].kind, NULL};
		const char *name;
		int r;

		json_store_each(o->kinds[i].store, find_stale, &stale);
		if (!stale.found)
			continue;
		name = meta_text(stale.found, "name");
		log_info("objects", "delete %s %s: nothing asks for it any more",
			 kube_resources[stale.kind].kind, name);
		r = kube_delete(o->options.client, stale.kind, o->options.ns, name,
				meta_text(stale.found, "uid"), on_deleted, o, &o->call);
		if (r == 0)
			pending_add(o, stale.kind, name, version_of(stale.found));
		return r < 0 ? r : 1;
	}
	return 0;
}

static bool is_up_to_date(const struct rendered_object *want, const cJSON *live)
{
	return live && streq(annotation(live, APPLIED_HASH), want->hash) &&
	       render_covers(live, want->object);
}

/* Starts the next write; 0 when there is none. */
static int apply_next(struct objects *o)
{
	for (; o->want && o->next < o->want->n; o->next++) {
		const struct rendered_object *want = &o->want->objects[o->next];
		const cJSON *live = live_object(o, want->kind, want->name);
		int r;

		if (is_up_to_date(want, live))
			continue;
		if (is_behind(o, want->kind, want->name, live)) {
			o->behind = true;
			continue;
		}
		snprintf(o->overwritten, sizeof(o->overwritten), "%s", version_of(live));
		r = kube_apply(o->options.client, want->kind, want->ns, want->name, want->object,
			       on_applied, o, &o->call);
		return r < 0 ? r : 1;
	}
	return 0;
}

static void step(struct objects *o)
{
	/* After a suspension another replica may lead before our timers have run. */
	int r = o->options.may_write(o->options.arg) ? delete_next(o) : -ECANCELED;

	if (r == 0)
		r = apply_next(o);
	if (r > 0)
		return;
	if (r < 0) {
		o->result = r;
		snprintf(o->state.error, sizeof(o->state.error), "cannot write: %s", strerror(-r));
	}
	finish(o);
}

void objects_reconcile(struct objects *o, void (*done)(void *arg, int result), void *arg)
{
	const struct cluster_config *config = policy_set_get_cluster(o->options.policies);
	struct render_input input = {.config = config,
				     .ns = o->options.ns,
				     .image = o->options.image,
				     .stream = o->options.stream,
				     .max_hz = policy_group_max_hz(o->options.policies, NULL)};
	struct error err = {0};
	int r = 0;

	for (size_t i = 0; config && i < config->n_groups; i++)
		input.group_hz[i] = policy_group_max_hz(o->options.policies, &config->groups[i]);

	o->generation = o->refused[0] ? o->refused_generation : config ? config->id.generation : 0;
	o->done = done;
	o->done_arg = arg;
	o->next = 0;
	o->result = 0;
	o->behind = false;
	o->want = rendered_free(o->want);
	if (o->refused[0])
		r = error_set(&err, -EINVAL, "%s", o->refused);
	else if (config)
		r = render(&input, &o->want, &err);
	if (r < 0) {
		/* Write nothing: the objects stay as they are. */
		snprintf(o->state.error, sizeof(o->state.error), "%.500s", err.message);
		o->state.invalid = r == -EINVAL;
		o->state.applied = false;
		o->state.generation = o->generation;
		o->options.changed(o->options.arg);
		/* -EINVAL: the same config would fail again, so no retry is asked for. The next
		 * change of the config starts another pass. */
		done(arg, r == -EINVAL ? 0 : r);
		return;
	}
	o->state.invalid = false;
	snprintf(o->state.config_hash, sizeof(o->state.config_hash), "%s",
		 o->want ? o->want->config_hash : "");
	step(o);
}

bool objects_refuse(struct objects *o, int64_t generation, const char *cause)
{
	if (streq(o->refused, cause) && (!cause[0] || generation == o->refused_generation))
		return false;
	snprintf(o->refused, sizeof(o->refused), "%s", cause);
	o->refused_generation = generation;
	return true;
}

/* ---- the objects' state ---------------------------------------------------------------------- */

static int add_rollout(void *arg, const cJSON *set)
{
	struct objects *o = arg;
	struct objects_state *state = &o->state;
	uint32_t desired = status_number(set, "desiredNumberScheduled");
	uint32_t updated = status_number(set, "updatedNumberScheduled");
	uint32_t ready = status_number(set, "numberReady");

	/* The DaemonSet controller has not seen our write: no node is programmed with it. */
	if (is_behind(o, KUBE_DAEMON_SETS, meta_text(set, "name"), set) ||
	    status_number(set, "observedGeneration") < json_generation(set))
		updated = 0;
	state->desired += desired;
	state->programmed += MIN(updated, ready);
	state->degraded += desired > ready ? desired - ready : 0;
	return 0;
}

void objects_read(struct objects *o, struct objects_state *ret)
{
	o->state.desired = o->state.programmed = o->state.degraded = 0;
	json_store_each(store_of(o, KUBE_DAEMON_SETS), add_rollout, o);
	o->state.cache_refused = 0;
	for (size_t i = 0; i < o->n_kinds; i++)
		o->state.cache_refused += json_store_refused(o->kinds[i].store);
	*ret = o->state;
}

const char *objects_config_hash(const struct objects *o, const char *group)
{
	char name[254];

	snprintf(name, sizeof(name), "kiln-agent%s%.200s", group[0] ? "-" : "", group);
	return annotation(live_object(o, KUBE_CONFIG_MAPS, name), CONFIG_HASH);
}

static void on_object(void *arg, const char *ns, const char *name, const cJSON *object)
{
	struct watched_kind *k = arg;

	k->owner->options.due(k->owner->options.arg);
	if (k->kind == KUBE_DAEMON_SETS || k->kind == KUBE_CONFIG_MAPS)
		k->owner->options.changed(k->owner->options.arg);
}

static int watch_kind(struct objects *o, enum kube_kind kind, struct error *err)
{
	static const struct informer_ops ops = {
	    .put = json_store_put, .remove = json_store_remove, .replaced = json_store_replaced};
	struct watched_kind *k = &o->kinds[o->n_kinds];
	struct informer_options options = {
	    .kind = kind,
	    .ns = o->options.ns,
	    .json = true,
	    .label_selector = "app.kubernetes.io/managed-by=kiln-operator",
	};
	struct json_store_options store = {.max_objects = LIVE_MAX, .changed = on_object, .arg = k};
	int r;

	k->owner = o;
	k->kind = kind;
	r = json_store_new(&store, &k->store);
	if (r < 0)
		return error_set(err, r, "out of memory");
	o->n_kinds++;
	return informer_new(o->options.loop, o->options.client, &options, &ops, k->store,
			    &k->informer, err);
}

int objects_new(const struct objects_options *options, struct objects **ret, struct error *err)
{
	_cleanup_(objects_freep) struct objects *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return error_set(err, -ENOMEM, "out of memory");
	o->options = *options;
	for (size_t i = 0; i < n_render_kinds; i++) {
		r = watch_kind(o, render_kinds[i], err);
		if (r < 0)
			return r;
	}
	*ret = TAKE_PTR(o);
	return 0;
}

void objects_start(struct objects *o)
{
	for (size_t i = 0; i < o->n_kinds; i++)
		informer_start(o->kinds[i].informer);
}

bool objects_synced(const struct objects *o)
{
	for (size_t i = 0; i < o->n_kinds; i++)
		if (!informer_stats(o->kinds[i].informer)->synced)
			return false;
	return true;
}

struct objects *objects_free(struct objects *o)
{
	if (!o)
		return NULL;
	if (o->call)
		kube_cancel(o->call);
	for (size_t i = 0; i < o->n_kinds; i++) {
		o->kinds[i].informer = informer_free(o->kinds[i].informer);
		o->kinds[i].store = json_store_free(o->kinds[i].store);
	}
	while (o->n_pending)
		pending_drop(o, 0);
	rendered_free(o->want);
	free(o);
	return NULL;
}
