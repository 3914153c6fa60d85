/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing happens by itself: see the header. */
#include "tests/unit/operator/reconcile/fakes.h"

#include "tests/support/test.h"

struct fakes fakes;

struct informer {
	char unused;
};

void fakes_reset(void)
{
	for (size_t i = 0; i < fakes.n_writes; i++)
		cJSON_Delete(fakes.writes[i].object);
	memset(&fakes, 0, sizeof(fakes));
	fakes.now_ms = 1000000;
}

uint64_t uv_now(const uv_loop_t *loop)
{
	return fakes.now_ms;
}

/* ---- writes ---------------------------------------------------------------------------------- */

static int keep(const char *verb, enum kube_kind kind, const char *ns, const char *name,
		const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	struct kube_call *call = &fakes.writes[fakes.n_writes++];

	assert_true(fakes.n_writes <= FAKE_WRITES_MAX);
	call->verb = verb;
	call->kind = kind;
	snprintf(call->ns, sizeof(call->ns), "%s", ns ? ns : "");
	snprintf(call->name, sizeof(call->name), "%s", name);
	call->object = object ? cJSON_Duplicate(object, true) : NULL;
	call->done = done;
	call->arg = arg;
	*ret = call;
	return 0;
}

int kube_apply(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	       const cJSON *object, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	return keep("apply", kind, ns, name, object, done, arg, ret);
}

int kube_apply_status(struct kube_client *client, enum kube_kind kind, const char *ns,
		      const char *name, const cJSON *object, kube_done_fn *done, void *arg,
		      struct kube_call **ret)
{
	return keep("status", kind, ns, name, object, done, arg, ret);
}

int kube_delete(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
		const char *uid, kube_done_fn *done, void *arg, struct kube_call **ret)
{
	int r = keep("delete", kind, ns, name, NULL, done, arg, ret);

	snprintf((*ret)->uid, sizeof((*ret)->uid), "%s", uid ? uid : "");
	return r;
}

int kube_get(struct kube_client *client, enum kube_kind kind, const char *ns, const char *name,
	     kube_done_fn *done, void *arg, struct kube_call **ret)
{
	return keep("get", kind, ns, name, NULL, done, arg, ret);
}

void kube_cancel(struct kube_call *call)
{
	assert_false(call->over);
	call->over = call->cancelled = true;
}

struct kube_call *fake_newest(void)
{
	struct kube_call *call = &fakes.writes[fakes.n_writes - 1];

	assert_true(fakes.n_writes > 0);
	assert_false(call->over);
	return call;
}

void fake_done(struct kube_call *call, int status, const char *message)
{
	const struct kube_answer answer = {
	    .status = status, .message = message, .reason = "", .content_type = ""};

	assert_false(call->over);
	call->over = true;
	call->done(call->arg, &answer);
}

void fake_found(struct kube_call *call, const char *body)
{
	const struct kube_answer answer = {.status = 200,
					   .message = "",
					   .reason = "",
					   .content_type = "application/json",
					   .body = (const void *)body,
					   .len = strlen(body)};

	assert_false(call->over);
	call->over = true;
	call->done(call->arg, &answer);
}

int kube_emit_event(struct kube_client *client, const struct kube_event *e, int64_t now_us)
{
	if (fakes.event_result < 0)
		return fakes.event_result;
	assert_true(fakes.n_events < FAKE_EVENTS_MAX);
	assert_true(now_us > 0 && e->instance && *e->instance);
	snprintf(fakes.events[fakes.n_events++], sizeof(fakes.events[0]), "%s %s %s/%s: %s",
		 e->type, e->reason, e->ns, e->name, e->note);
	return 0;
}

/* ---- informers ------------------------------------------------------------------------------- */

int informer_new(uv_loop_t *loop, struct kube_client *client,
		 const struct informer_options *options, const struct informer_ops *ops,
		 void *store, struct informer **ret, struct error *err)
{
	size_t i = fakes.n_informers++;

	assert_true(i < FAKE_INFORMERS_MAX);
	/* Never all of the cluster's, but of what is ours. */
	assert_true(options->label_selector || options->kind == KUBE_PROFILING_NODES);
	fakes.informers[i].kind = options->kind;
	fakes.informers[i].ops = *ops;
	fakes.informers[i].store = store;
	*ret = (struct informer *)&fakes.informers[i];
	return 0;
}

void informer_start(struct informer *informer)
{
}

struct informer *informer_free(struct informer *informer)
{
	return NULL;
}

const struct informer_stats *informer_stats(const struct informer *informer)
{
	for (size_t i = 0; i < fakes.n_informers; i++)
		if (informer == (const struct informer *)&fakes.informers[i])
			return &fakes.informers[i].stats;
	fail();
	return NULL;
}

static void bring(enum kube_kind kind, const cJSON *object, bool gone)
{
	_cleanup_free_ char *text = cJSON_PrintUnformatted(object);
	size_t n = strlen(text);
	_cleanup_free_ uint8_t *scratch = malloc(n + 1);
	struct kube_item item = {.type = gone ? KUBE_DELETED : KUBE_ADDED,
				 .encoding = KUBE_JSON,
				 .bytes = (const uint8_t *)text,
				 .len = n,
				 .scratch = scratch};

	for (size_t i = 0; i < fakes.n_informers; i++)
		if (fakes.informers[i].kind == kind) {
			void *store = fakes.informers[i].store;

			assert_int_equal(gone ? fakes.informers[i].ops.remove(store, &item)
					      : fakes.informers[i].ops.put(store, &item, 1),
					 0);
			return;
		}
	fail_msg("nobody watches %s", kube_resources[kind].plural);
}

void fake_show(enum kube_kind kind, const cJSON *object)
{
	bring(kind, object, false);
}

void fake_gone(enum kube_kind kind, const cJSON *object)
{
	bring(kind, object, true);
}
