/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests for single objects: path, media type, body. Server-side apply is sent as JSON under
 * application/apply-patch+yaml, since JSON is YAML. Fields of an event that the API server would
 * refuse for their length are cut. Loop thread, as the client.
 */
#include "operator/kube/write.h"

#include <inttypes.h>
#include <time.h>

#include "operator/kube/client_internal.h"
#include "operator/kube/json.h"

enum { PATH_MAX_BYTES = 2048 };

/* Limits of k8s.io/kubernetes pkg/apis/core/validation/events.go (1.34), and of names. */
enum {
	EVENT_NOTE_MAX = 1024,
	EVENT_SHORT_MAX = 128, /* reason, action, reporting instance */
	EVENT_NAME_MAX = 253,
};

struct target {
	enum kube_kind kind;
	const char *ns, *name, *sub;
	bool from_memory; /* read the object from the API server's cache */
};

static void free_wiped(char **text)
{
	if (*text)
		explicit_bzero(*text, strlen(*text));
	free(*text);
}

/* Sets path and body of REQUEST, and sends it. */
static int send_object(struct kube_client *client, const struct target *t, const char *manager,
		       bool force, const cJSON *object, struct kube_request *request,
		       void (*free_arg)(void *), struct kube_call **ret)
{
	_cleanup_(buf_done) struct buf path;
	_cleanup_(free_wiped) char *body = NULL;
	int r;

	buf_init(&path, PATH_MAX_BYTES);
	r = kube_path(&path, t->kind, t->ns, t->name, t->sub);
	if (r == 0 && manager)
		r = kube_path_query(&path, "fieldManager", manager);
	if (r == 0 && force)
		r = kube_path_query(&path, "force", "true");
	if (r == 0 && t->from_memory)
		r = kube_path_query(&path, "resourceVersion", "0");
	if (r < 0)
		return r;
	if (object) {
		body = cJSON_PrintUnformatted(object);
		if (!body)
			return -ENOMEM;
		request->body = body;
		request->len = strlen(body);
	}
	request->path = path.data;
	return kube_call_owning(client, request, free_arg, ret);
}

static int apply(struct kube_client *client, const struct target *t, const char *manager,
		 const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	struct kube_request request = {.method = "PATCH",
				       .content_type = "application/apply-patch+yaml",
				       .done = done,
				       .arg = arg};

	return send_object(client, t, manager, true, object, &request, NULL, ret);
}

int kube_apply(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	       const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name};

	return apply(client, &t, KUBE_FIELD_MANAGER, object, done, arg, ret);
}

int kube_apply_status(struct kube_client *client, enum kube_kind kind, const char *ns,
		      const char *name, const cJSON *object, kube_done_fn *done, void *arg,
		      struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name, .sub = "status"};

	return apply(client, &t, KUBE_FIELD_MANAGER_STATUS, object, done, arg, ret);
}

int kube_get(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	     kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name};
	struct kube_request request = {.method = "GET", .done = done, .arg = arg};

	return send_object(client, &t, NULL, false, NULL, &request, NULL, ret);
}

int kube_get_recent(struct kube_client *client, enum kube_kind kind, const char *ns,
		    const char *name, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name, .from_memory = true};
	struct kube_request request = {.method = "GET", .done = done, .arg = arg};

	return send_object(client, &t, NULL, false, NULL, &request, NULL, ret);
}

int kube_create(struct kube_client *client, enum kube_kind kind, const char *ns,
		const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns};
	struct kube_request request = {.method = "POST", .done = done, .arg = arg};

	return send_object(client, &t, KUBE_FIELD_MANAGER, false, object, &request, NULL, ret);
}

int kube_update(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
		const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name};
	struct kube_request request = {.method = "PUT", .done = done, .arg = arg};

	return send_object(client, &t, KUBE_FIELD_MANAGER, false, object, &request, NULL, ret);
}

int kube_delete(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
		const char *uid, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = kind, .ns = ns, .name = name};
	struct kube_request request = {.method = "DELETE", .done = done, .arg = arg};
	_cleanup_(cJSON_Deletep) cJSON *options = cJSON_CreateObject();
	cJSON *preconditions;

	if (!cJSON_AddStringToObject(options, "apiVersion", "v1") ||
	    !cJSON_AddStringToObject(options, "kind", "DeleteOptions") ||
	    !cJSON_AddStringToObject(options, "propagationPolicy", "Background"))
		return -ENOMEM;
	if (uid) {
		preconditions = cJSON_AddObjectToObject(options, "preconditions");
		if (!cJSON_AddStringToObject(preconditions, "uid", uid))
			return -ENOMEM;
	}
	return send_object(client, &t, NULL, false, options, &request, NULL, ret);
}

/* ---- TokenReview ----------------------------------------------------------------------------- */

struct review {
	void (*done)(void *arg, const struct kube_token_review *review,
		     const struct kube_answer *answer);
	void *arg;
	char audience[];
};

static const cJSON *member(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text(const cJSON *item)
{
	const char *s = cJSON_GetStringValue(item);

	return s ? s : "";
}

static const char *extra(const cJSON *user, const char *key)
{
	return text(cJSON_GetArrayItem(member(member(user, "extra"), key), 0));
}

/*
 * False also when the status has no audiences (an authenticator that does not know them): the token
 * may not be meant for us.
 */
static bool has_audience(const cJSON *status, const char *audience)
{
	const cJSON *a;

	cJSON_ArrayForEach(a, member(status, "audiences"))
	{
		if (streq(text(a), audience))
			return true;
	}
	return false;
}

static void on_reviewed(void *arg, const struct kube_answer *answer)
{
	struct review *r = arg;
	struct kube_token_review review = {.error = "",
					   .username = "",
					   .pod_name = "",
					   .pod_uid = "",
					   .node_name = "",
					   .node_uid = ""};
	_cleanup_(cJSON_Deletep) cJSON *root = NULL;
	const cJSON *status, *user;

	if (answer->status != 200 && answer->status != 201) {
		review.error = answer->message;
		r->done(r->arg, &review, answer);
		return;
	}
	root = cJSON_ParseWithLength((const char *)answer->body, answer->len);
	status = member(root, "status");
	user = member(status, "user");
	review.authenticated = cJSON_IsTrue(member(status, "authenticated"));
	review.error = text(member(status, "error"));
	review.username = text(member(user, "username"));
	review.pod_name = extra(user, "authentication.kubernetes.io/pod-name");
	review.pod_uid = extra(user, "authentication.kubernetes.io/pod-uid");
	review.node_name = extra(user, "authentication.kubernetes.io/node-name");
	review.node_uid = extra(user, "authentication.kubernetes.io/node-uid");
	if (!cJSON_IsObject(status))
		review.error = "the API server's answer is no TokenReview";
	else if (review.authenticated && *r->audience && !has_audience(status, r->audience)) {
		review.authenticated = false;
		review.error = "the token is for another audience";
	} else if (!review.authenticated && !*review.error)
		review.error = "the API server does not know the token";
	r->done(r->arg, &review, answer);
}

static cJSON *review_object(const char *token, const char *audience)
{
	cJSON *o = cJSON_CreateObject(), *spec, *list;
	bool good;

	good = cJSON_AddStringToObject(o, "apiVersion", "authentication.k8s.io/v1") &&
	       cJSON_AddStringToObject(o, "kind", "TokenReview");
	spec = cJSON_AddObjectToObject(o, "spec");
	good = good && cJSON_AddStringToObject(spec, "token", token);
	if (good && *audience) {
		cJSON *a = cJSON_CreateString(audience);

		list = cJSON_AddArrayToObject(spec, "audiences");
		good = cJSON_AddItemToArray(list, a);
		if (!good)
			cJSON_Delete(a);
	}
	if (good)
		return o;
	cJSON_Delete(o);
	return NULL;
}

int kube_review_token(struct kube_client *client, const char *token, const char *audience,
		      void (*done)(void *arg, const struct kube_token_review *review,
				   const struct kube_answer *answer),
		      void *arg, struct kube_call **ret)
{
	const struct target t = {.kind = KUBE_TOKEN_REVIEWS};
	struct kube_request request = {.method = "POST", .done = on_reviewed};
	_cleanup_(cJSON_Deletep) cJSON *object = NULL;
	struct review *review;
	int r;

	audience = audience ? audience : "";
	review = calloc(1, sizeof(*review) + strlen(audience) + 1);
	object = review_object(token, audience);
	if (!review || !object) {
		free(review);
		return -ENOMEM;
	}
	review->done = done;
	review->arg = arg;
	memcpy(review->audience, audience, strlen(audience) + 1);
	request.arg = review;
	r = send_object(client, &t, NULL, false, object, &request, free, ret);
	explicit_bzero(member(member(object, "spec"), "token")->valuestring, strlen(token));
	if (r < 0)
		free(review);
	return r;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* At most MAX bytes of S, not ending inside a character of UTF-8. */
static cJSON *cut(const char *s, size_t max)
{
	size_t n = strlen(s);
	char *copy;
	cJSON *item;

	if (n > max) {
		n = max;
		while (n > 0 && ((uint8_t)s[n] & 0xc0) == 0x80)
			n--;
	}
	copy = strndup(s, n);
	item = copy ? cJSON_CreateString(copy) : NULL;
	free(copy);
	return item;
}

static bool add_cut(cJSON *object, const char *key, const char *s, size_t max)
{
	cJSON *item = cut(s ? s : "", max);

	if (item && cJSON_AddItemToObject(object, key, item))
		return true;
	cJSON_Delete(item);
	return false;
}

static bool add_regarding(cJSON *o, const struct kube_event *e)
{
	const struct kube_resource *k = &kube_resources[e->kind];
	cJSON *ref = cJSON_AddObjectToObject(o, "regarding");
	char version[128];

	snprintf(version, sizeof(version), "%s%s%s", k->group, *k->group ? "/" : "", k->version);
	return cJSON_AddStringToObject(ref, "apiVersion", version) &&
	       cJSON_AddStringToObject(ref, "kind", k->kind) &&
	       cJSON_AddStringToObject(ref, "name", e->name) &&
	       (!*e->ns || cJSON_AddStringToObject(ref, "namespace", e->ns)) &&
	       (!e->uid || !*e->uid || cJSON_AddStringToObject(ref, "uid", e->uid));
}

/* The object's name and the time in hexadecimal digits, as client-go does it. */
static bool add_meta(cJSON *o, const struct kube_event *e, const char *ns, int64_t now_us)
{
	cJSON *meta = cJSON_AddObjectToObject(o, "metadata");
	char name[EVENT_NAME_MAX + 1], time_text[24];
	int room;

	snprintf(time_text, sizeof(time_text), "%" PRIx64, (uint64_t)now_us);
	room = EVENT_NAME_MAX - 1 - (int)strlen(time_text);
	snprintf(name, sizeof(name), "%.*s.%s", room, e->name, time_text);
	return cJSON_AddStringToObject(meta, "name", name) &&
	       cJSON_AddStringToObject(meta, "namespace", ns);
}

static bool add_time(cJSON *o, int64_t now_us)
{
	time_t seconds = (time_t)(now_us / 1000000);
	char text_of[64];
	struct tm tm;
	size_t n;

	if (!gmtime_r(&seconds, &tm))
		return false;
	n = strftime(text_of, sizeof(text_of), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text_of + n, sizeof(text_of) - n, ".%06dZ", (int)(now_us % 1000000));
	return cJSON_AddStringToObject(o, "eventTime", text_of);
}

int kube_emit_event(struct kube_client *client, const struct kube_event *e, int64_t now_us)
{
	/* The API server requires events about cluster-scoped objects to be in "default". */
	const struct target t = {.kind = KUBE_EVENTS, .ns = e->ns && *e->ns ? e->ns : "default"};
	struct kube_request request = {.method = "POST"};
	_cleanup_(cJSON_Deletep) cJSON *o = cJSON_CreateObject();

	if (now_us <= client->last_event_us)
		now_us = client->last_event_us + 1; /* names stay different */
	client->last_event_us = now_us;
	if (!cJSON_AddStringToObject(o, "apiVersion", "events.k8s.io/v1") ||
	    !cJSON_AddStringToObject(o, "kind", "Event") || !add_meta(o, e, t.ns, now_us) ||
	    !add_time(o, now_us) || !add_regarding(o, e) ||
	    !cJSON_AddStringToObject(o, "type", e->type) ||
	    !add_cut(o, "reason", e->reason, EVENT_SHORT_MAX) ||
	    !add_cut(o, "action", e->action, EVENT_SHORT_MAX) ||
	    !add_cut(o, "note", e->note, EVENT_NOTE_MAX) ||
	    !cJSON_AddStringToObject(o, "reportingController", "profiling.kiln.dev/operator") ||
	    !add_cut(o, "reportingInstance", e->instance, EVENT_SHORT_MAX))
		return -ENOMEM;
	return send_object(client, &t, NULL, false, o, &request, NULL, NULL);
}
