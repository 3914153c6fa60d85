/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An informer on its loop: one request at a time, its bytes split into objects as they come, each
 * handed to the store. informer_core.c decides the next request; this file tells it how a request
 * ended.
 *
 * A request ends in on_done(), or by cancelling it here. When data() refuses bytes, the client
 * reports only that it did: `end` is set before and holds the reason. The stream lives as long as
 * the request. Loop thread throughout.
 */
#include "operator/cache/informer.h"

#include "lib/log.h"
#include "operator/cache/informer_core.h"

enum {
	IDLE_GRACE_MS = 30000,	/* a watch may be silent for its timeout and this much more */
	LIST_IDLE_MS = 60000,	/* without a byte; client-go limits the whole list to 60 s */
	PATH_MAX_BYTES = 16384, /* continue tokens have some hundred bytes */
	LOG_INTERVAL_S = 60,
	HEAL_MS = 10000, /* from the store's -ESTALE to the relist */
};
#define UNSET INFORMER_ENDS

struct informer {
	uv_timer_t timer, heal;
	unsigned int handles; /* handles on the loop that are not closed yet */
	struct kube_client *client;
	struct informer_options options;
	char *ns, *field_selector, *label_selector;
	struct informer_ops ops;
	void *store;
	struct informer_core core;
	struct kube_call *call;
	struct kube_stream *stream;
	enum informer_end end; /* why data() refused bytes; UNSET: it did not */
	char why[256];
	struct informer_stats stats;
	struct log_limit log, refusal_log, object_log;
	bool started, closing;
	bool relist;  /* relist at the first item of the watch after the list under way */
	bool healing; /* a list is due, by the timer `heal` */
};

static double random_unit(void)
{
	uint32_t n = 0;

	(void)uv_random(NULL, NULL, &n, sizeof(n), 0, NULL);
	return (double)n / ((double)UINT32_MAX + 1);
}

static const char *kind_name(const struct informer *f)
{
	return kube_resources[f->options.kind].plural;
}

/* ---- objects --------------------------------------------------------------------------------- */

static void on_heal(uv_timer_t *timer)
{
	struct informer *f = timer->data;

	f->healing = false;
	informer_relist(f);
}

/*
 * Schedules a relist: the store may have room again for objects that it refused. The relist is
 * delayed and does not interrupt a list: every change of an object of a namespace over quota may
 * ask for one, and an interrupted list would delay the objects of other namespaces.
 */
static void want_list(struct informer *f)
{
	if (f->healing)
		return;
	f->healing = true;
	uv_timer_start(&f->heal, on_heal, HEAL_MS, 0);
}

static void whole(struct informer *f)
{
	bool first = !f->stats.synced;

	if (f->ops.replaced(f->store, f->core.generation) == -ESTALE)
		want_list(f);
	f->stats.synced = true;
	if (first && f->ops.synced)
		f->ops.synced(f->store);
}

static int end_with(struct informer *f, enum informer_end end, int code)
{
	f->end = end;
	return code;
}

/*
 * The error of a server that is behind the requested version: k8s.io/apiserver v0.34
 * pkg/storage/errors.go.
 */
static bool too_new(int code, const char *message, size_t len)
{
	static const char text[] = "Too large resource version";

	return code == 504 && memmem(message, len, text, sizeof(text) - 1);
}

static enum informer_end end_of_status(int code, const char *message, size_t len)
{
	if (code == 410)
		return INFORMER_END_EXPIRED;
	if (code == 429)
		return INFORMER_END_BUSY;
	if (too_new(code, message, len))
		return INFORMER_END_TOO_NEW;
	if (code == 401 || (code >= 500 && code != 501))
		return INFORMER_END_SERVER;
	if (code == 400 || code == 405 || code == 406 || code == 415 || code == 422 || code == 501)
		return INFORMER_END_UNSUPPORTED;
	return INFORMER_END_REFUSED;
}

/* An ERROR event, or a Status where a list should be. */
static int on_error_item(struct informer *f, const struct kube_item *item)
{
	struct status_view status;

	if (kube_decode_status(item, &status) < 0 || status.code == 0) {
		snprintf(f->why, sizeof(f->why), "an error that cannot be read");
		return end_with(f, INFORMER_END_SERVER, -EPROTO);
	}
	snprintf(f->why, sizeof(f->why), "%d: %.*s", status.code, (int)MIN(status.message.n, 200U),
		 status.message.p ? status.message.p : "");
	return end_with(f, end_of_status(status.code, status.message.p, status.message.n),
			-ECANCELED);
}

static int on_bookmark(struct informer *f, const struct kube_item *item)
{
	struct slice version;
	bool end;

	f->stats.bookmarks++;
	if (kube_decode_bookmark(item, &version, &end) < 0 ||
	    informer_core_version(&f->core, version.p, version.n) < 0) {
		snprintf(f->why, sizeof(f->why), "a bookmark without resource version");
		return end_with(f, INFORMER_END_CUT, -EBADMSG);
	}
	if (end && informer_core_initial_end(&f->core))
		whole(f);
	return 0;
}

static void on_undecodable(struct informer *f, size_t len)
{
	unsigned int held_back = 0;

	f->stats.undecodable++;
	if (log_allowed(&f->object_log, LOG_INTERVAL_S, &held_back))
		log_warn("informer",
			 "%s: an object of %zu bytes cannot be decoded, left out "
			 "(%u more like it)",
			 kind_name(f), len, held_back);
}

static int on_item(void *arg, const struct kube_item *item)
{
	struct informer *f = arg;
	struct slice version = {0};
	bool end;
	int r;

	if (item->type == KUBE_ERROR)
		return on_error_item(f, item);
	if (f->relist && f->core.step == INFORMER_WATCH && !f->core.initial) {
		f->relist = false;
		return end_with(f, INFORMER_END_EXPIRED, -ESTALE);
	}
	if (item->type == KUBE_BOOKMARK)
		return on_bookmark(f, item);
	f->stats.events++;
	r = item->type == KUBE_DELETED ? f->ops.remove(f->store, item)
				       : f->ops.put(f->store, item, f->core.generation);
	if (f->closing)
		return -ECANCELED;
	if (r == -EBADMSG) {
		on_undecodable(f, item->len);
	} else if (r == -ESTALE) {
		want_list(f);
	} else if (r < 0) {
		snprintf(f->why, sizeof(f->why), "the store: %s", strerror(-r));
		return end_with(f, INFORMER_END_STORE, r);
	}
	/*
	 * Objects of a list and initial events come in any order of versions, so their versions
	 * are not used. When the version of an event cannot be read, that of the next one is used.
	 */
	if (f->core.step != INFORMER_LIST && !f->core.initial &&
	    kube_decode_bookmark(item, &version, &end) == 0 && version.p)
		(void)informer_core_version(&f->core, version.p, version.n);
	return 0;
}

static int on_list_meta(void *arg, const char *version, const char *token)
{
	struct informer *f = arg;

	return informer_core_list_meta(&f->core, version, token);
}

/* Called for a list only. A watch ends at such an object, and the list that follows skips it. */
static void on_too_large(void *arg)
{
	struct informer *f = arg;
	unsigned int held_back = 0;

	f->stats.too_large++;
	if (log_allowed(&f->object_log, LOG_INTERVAL_S, &held_back))
		log_warn("informer",
			 "%s: an object of more than %d bytes, left out (%u more like it)",
			 kind_name(f), KUBE_OBJECT_MAX, held_back);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void advance(struct informer *f);

static void ended(struct informer *f, enum informer_end end, uint64_t retry_after_ms)
{
	uint64_t now = uv_now(f->timer.loop);

	f->call = NULL;
	f->stats.connected = false;
	if (end == INFORMER_END_EXPIRED)
		f->stats.expired++;
	else if (end == INFORMER_END_TOO_LARGE)
		f->stats.too_large++;
	else if (end != INFORMER_END_CLEAN)
		f->stats.errors++;
	if (informer_core_ended(&f->core, end, retry_after_ms, now))
		whole(f);
	if (!f->closing)
		f->stream = kube_stream_free(f->stream);
	advance(f);
}

/*
 * Refusals and other failures have separate log limits, so that lost connections do not keep a
 * refusal out of the log.
 */
static void complain(struct informer *f, enum informer_end end, int status)
{
	static const char *const steps[] = {[INFORMER_WATCH_LIST] = "watch of what is there",
					    [INFORMER_LIST] = "list",
					    [INFORMER_WATCH] = "watch"};
	unsigned int held_back = 0;

	/* Not logged: watches end now and then, and a server may be without WatchList. */
	if (end == INFORMER_END_CLEAN || end == INFORMER_END_EXPIRED ||
	    (end == INFORMER_END_UNSUPPORTED && f->core.initial) ||
	    !log_allowed(status >= 400 ? &f->refusal_log : &f->log, LOG_INTERVAL_S, &held_back))
		return;
	log_warn("informer", "%s: %s: %s (%u more like it)", kind_name(f), steps[f->core.step],
		 f->why, held_back);
}

static enum informer_end end_of_answer(struct informer *f, const struct kube_answer *answer)
{
	int r;

	if (f->end != UNSET)
		return f->end;
	snprintf(f->why, sizeof(f->why), "%s", answer->message ? answer->message : "");
	if (answer->status == 200) {
		r = kube_stream_end(f->stream);
		if (r < 0)
			snprintf(f->why, sizeof(f->why), "it ended in the middle of an object");
		return r < 0 ? INFORMER_END_CUT : INFORMER_END_CLEAN;
	}
	if (answer->status > 0) {
		snprintf(f->why, sizeof(f->why), "HTTP %d: %s", answer->status,
			 answer->message ? answer->message : "");
		return end_of_status(answer->status, answer->message,
				     answer->message ? strlen(answer->message) : 0);
	}
	return f->core.eventful ? INFORMER_END_CUT : INFORMER_END_NO_ANSWER;
}

static void on_done(void *arg, const struct kube_answer *answer)
{
	struct informer *f = arg;
	enum informer_end end = end_of_answer(f, answer);

	complain(f, end, answer->status);
	ended(f, end, answer->retry_after_ms);
}

static int on_data(void *arg, const char *content_type, const void *bytes, size_t len)
{
	struct informer *f = arg;
	uint64_t now = uv_now(f->timer.loop);
	int r;

	f->stats.last_event_ms = (int64_t)now;
	informer_core_bytes(&f->core, now);
	r = kube_stream_feed(f->stream, content_type, bytes, len);
	if (r >= 0 || f->end != UNSET || f->closing)
		return r;
	switch (r) {
	case -E2BIG:
		snprintf(f->why, sizeof(f->why), "an object of more than %d bytes",
			 KUBE_OBJECT_MAX);
		return end_with(f, INFORMER_END_TOO_LARGE, r);
	case -ENOMEM:
		snprintf(f->why, sizeof(f->why), "out of memory");
		return end_with(f, INFORMER_END_STORE, r);
	default:
		snprintf(f->why, sizeof(f->why), "it is not what it should be");
		return end_with(f, INFORMER_END_CUT, r);
	}
}

static int make_path(const struct informer *f, struct buf *path)
{
	int r = kube_path(path, f->options.kind, f->ns, NULL, NULL);

	if (r < 0)
		return r;
	if (f->field_selector)
		kube_path_query(path, "fieldSelector", f->field_selector);
	if (f->label_selector)
		kube_path_query(path, "labelSelector", f->label_selector);
	return informer_core_query(&f->core, path);
}

static int request(struct informer *f, enum informer_step step)
{
	static const struct kube_stream_ops ops = {
	    .item = on_item, .list_meta = on_list_meta, .too_large = on_too_large};
	bool list = step == INFORMER_LIST;
	struct kube_request request = {
	    .method = "GET",
	    .accept = f->options.json		  ? "application/json"
		      : !f->options.metadata_only ? KUBE_PROTOBUF_OR_JSON
		      : list			  ? KUBE_PARTIAL_LIST
						  : KUBE_PARTIAL,
	    .idle_ms = list ? LIST_IDLE_MS : f->core.timeout_s * 1000ULL + IDLE_GRACE_MS,
	    .unlimited = true,
	    .bulk = f->options.bulk,
	    .no_retry = true,
	    .data = on_data,
	    .done = on_done,
	    .arg = f,
	};
	_cleanup_(buf_done) struct buf path;
	int r;

	buf_init(&path, PATH_MAX_BYTES);
	f->end = UNSET;
	f->stats.watches += !list;
	f->stats.lists += f->core.initial || (list && !f->core.token);
	r = make_path(f, &path);
	if (r == 0)
		r = kube_stream_new(list ? KUBE_LIST : KUBE_WATCH, &ops, f, &f->stream);
	if (r < 0)
		return r;
	request.path = path.data;
	r = kube_call(f->client, &request, &f->call);
	f->stats.connected = r == 0 && !list;
	return r;
}

static void on_timer(uv_timer_t *timer)
{
	advance(timer->data);
}

/* Cancels a WatchList that stalled during its initial events. */
static void give_up(struct informer *f)
{
	kube_cancel(f->call);
	snprintf(f->why, sizeof(f->why), "nothing more comes");
	complain(f, INFORMER_END_STALLED, 0);
	f->stats.errors++;
	f->call = NULL;
	f->stats.connected = false;
	f->stream = kube_stream_free(f->stream);
	(void)informer_core_ended(&f->core, INFORMER_END_STALLED, 0, uv_now(f->timer.loop));
}

/* Sends the request that is due, or sets the timer for the next one. */
static void advance(struct informer *f)
{
	enum informer_step step;
	uint64_t ms;

	while (!f->closing) {
		step = informer_core_next(&f->core, uv_now(f->timer.loop), &ms);
		if (step == INFORMER_WAIT && ms > 0) {
			if (ms == UINT64_MAX)
				uv_timer_stop(&f->timer);
			else
				uv_timer_start(&f->timer, on_timer, ms, 0);
			return;
		}
		if (step == INFORMER_WAIT) {
			give_up(f);
			continue;
		}
		if (request(f, step) < 0) {
			f->stats.errors++;
			f->stream = kube_stream_free(f->stream);
			(void)informer_core_ended(&f->core, INFORMER_END_STORE, 0,
						  uv_now(f->timer.loop));
		}
	}
}

/* ---- the informer ---------------------------------------------------------------------------- */

static int copy(const char *text, char **ret)
{
	*ret = text ? strdup(text) : NULL;
	return text && !*ret ? -ENOMEM : 0;
}

static void free_memory(struct informer *f)
{
	kube_stream_free(f->stream);
	informer_core_done(&f->core);
	free(f->ns);
	free(f->field_selector);
	free(f->label_selector);
	free(f);
}

int informer_new(uv_loop_t *loop, struct kube_client *client,
		 const struct informer_options *options, const struct informer_ops *ops,
		 void *store, struct informer **ret, struct error *err)
{
	const struct informer_core_options core = {
	    .page = options->page,
	    .no_watch_list = options->no_watch_list,
	    .random = options->random ? options->random : random_unit,
	};
	struct informer *f;

	if (options->ns && !kube_resources[options->kind].namespaced)
		return error_set(err, -EINVAL, "%s are in no namespace",
				 kube_resources[options->kind].plural);
	f = calloc(1, sizeof(*f));
	if (!f)
		return error_set(err, -ENOMEM, "out of memory");
	if (copy(options->ns, &f->ns) < 0 ||
	    copy(options->field_selector, &f->field_selector) < 0 ||
	    copy(options->label_selector, &f->label_selector) < 0) {
		free_memory(f);
		return error_set(err, -ENOMEM, "out of memory");
	}
	f->client = client;
	f->options = *options;
	f->options.ns = f->options.field_selector = f->options.label_selector = NULL;
	f->ops = *ops;
	f->store = store;
	informer_core_init(&f->core, &core, uv_now(loop));
	(void)uv_timer_init(loop, &f->timer);
	(void)uv_timer_init(loop, &f->heal);
	f->timer.data = f->heal.data = f;
	f->handles = 2;
	*ret = f;
	return 0;
}

void informer_start(struct informer *f)
{
	if (f->started)
		return;
	f->started = true;
	advance(f);
}

const struct informer_stats *informer_stats(const struct informer *f)
{
	return &f->stats;
}

static void on_closed(uv_handle_t *handle)
{
	struct informer *f = handle->data;

	if (--f->handles == 0)
		free_memory(f);
}

void informer_relist(struct informer *f)
{
	if (!f->stats.lists) /* nothing has come yet */
		return;
	f->relist = !f->call || f->core.step != INFORMER_WATCH || f->core.initial;
	if (f->closing || f->relist) /* on_item() relists, at the first item of the next watch */
		return;
	kube_cancel(f->call);
	ended(f, INFORMER_END_EXPIRED, 0);
}

/* The stream may be calling us: on_closed() frees it. */
struct informer *informer_free(struct informer *f)
{
	if (!f || f->closing)
		return NULL;
	f->closing = true;
	if (f->call)
		kube_cancel(f->call);
	uv_close((uv_handle_t *)&f->timer, on_closed);
	uv_close((uv_handle_t *)&f->heal, on_closed);
	return NULL;
}
