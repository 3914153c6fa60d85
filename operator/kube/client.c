/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client's life and its queue. A call is in exactly one of the lists by state, or ended; one
 * timer, the tick, moves calls on: it starts the calls that are ready, that the token bucket lets
 * through or whose retry is due, and ends streams that have been silent for too long. The tick
 * never runs inside curl, so neither does done(); data() does, and may call anything here.
 *
 * The process must ignore SIGPIPE: OpenSSL writes to sockets whose peer may be gone. Loop thread.
 */
#include "operator/kube/client.h"

#include <utlist.h>

#include "operator/kube/client_internal.h"

/* ---- calls ----------------------------------------------------------------------------------- */

static void free_wiped(void *p, size_t len)
{
	if (p)
		explicit_bzero(p, len);
	free(p);
}

void kube_call_free(struct kube_call *call)
{
	kube_attempt_done(call);
	free((char *)call->r.method);
	free((char *)call->r.path);
	free((char *)call->r.accept);
	free((char *)call->r.content_type);
	free_wiped((void *)call->r.body, call->r.len); /* TokenReviews hold tokens */
	if (call->free_arg)
		call->free_arg(call->r.arg);
	free(call);
}

void kube_call_move(struct kube_call *call, enum kube_call_state to)
{
	struct kube_client *c = call->client;

	if (call->state < KUBE_CALL_ENDED)
		DL_DELETE(c->calls[call->state], call);
	call->state = to;
	if (to < KUBE_CALL_ENDED)
		DL_APPEND(c->calls[to], call);
	else
		c->n_calls--;
}

void kube_call_end(struct kube_call *call, const struct kube_answer *answer)
{
	kube_call_move(call, KUBE_CALL_ENDED);
	if (call->r.done)
		call->r.done(call->r.arg, answer);
	kube_call_free(call);
}

static int copy_text(const char *text, const char **ret)
{
	*ret = NULL;
	if (!text)
		return 0;
	*ret = strdup(text);
	return *ret ? 0 : -ENOMEM;
}

static int copy_request(struct kube_call *call, const struct kube_request *r)
{
	void *body = NULL;

	call->r = *r;
	call->r.body = NULL;
	if (copy_text(r->method, &call->r.method) < 0 || copy_text(r->path, &call->r.path) < 0 ||
	    copy_text(r->accept, &call->r.accept) < 0 ||
	    copy_text(r->content_type, &call->r.content_type) < 0)
		return -ENOMEM;
	if (r->body) {
		body = malloc(r->len ? r->len : 1);
		if (!body)
			return -ENOMEM;
		memcpy(body, r->body, r->len);
		call->r.body = body;
	}
	return 0;
}

int kube_call_owning(struct kube_client *c, const struct kube_request *request,
		     void (*free_arg)(void *arg), struct kube_call **ret)
{
	struct kube_call *call;

	if (c->n_calls >= KUBE_CALLS_MAX)
		return -EBUSY;
	call = calloc(1, sizeof(*call));
	if (!call)
		return -ENOMEM;
	call->client = c;
	buf_init(&call->body, KUBE_BODY_MAX);
	/* On failure the pointers in .r are copies or NULL. */
	if (copy_request(call, request) < 0) {
		kube_call_free(call);
		return -ENOMEM;
	}
	call->free_arg = free_arg;
	call->state = request->unlimited ? KUBE_CALL_READY : KUBE_CALL_WAITING;
	DL_APPEND(c->calls[call->state], call);
	c->n_calls++;
	kube_client_wake(c);
	if (ret)
		*ret = call;
	return 0;
}

int kube_call(struct kube_client *c, const struct kube_request *request, struct kube_call **ret)
{
	return kube_call_owning(c, request, NULL, ret);
}

struct curl_loop *kube_call_pool(const struct kube_call *call)
{
	return call->r.bulk ? call->client->bulk : call->client->pool;
}

void kube_cancel(struct kube_call *call)
{
	bool live = call->state == KUBE_CALL_LIVE;

	if (call->state == KUBE_CALL_ENDED)
		return; /* from inside its own done() */
	kube_call_move(call, KUBE_CALL_ENDED);
	if (live)
		curl_loop_drop(kube_call_pool(call), &call->transfer); /* frees it */
	else
		kube_call_free(call);
}

/* ---- the tick -------------------------------------------------------------------------------- */

static bool closed(const struct kube_client *c)
{
	return uv_is_closing((const uv_handle_t *)&c->tick);
}

/* False when out of memory: the call has ended, and done() may have freed the client. */
static bool start(struct kube_call *call)
{
	static const struct kube_answer failed = {.message = "out of memory", .reason = ""};
	uint64_t now = uv_now(call->client->loop);

	if (call->tries == 0 && !call->r.data)
		call->deadline_ms =
		    now + (call->r.timeout_ms ? call->r.timeout_ms : KUBE_TIMEOUT_MS);
	call->tries++;
	kube_call_move(call, KUBE_CALL_LIVE);
	if (kube_attempt_start(call) == 0)
		return true;
	kube_call_end(call, &failed);
	return false;
}

static void end_silent(struct kube_call *call)
{
	struct kube_answer answer = {.reason = "", .connection_reset = true};
	char text[64];

	snprintf(text, sizeof(text), "no byte for %llu ms", (unsigned long long)call->r.idle_ms);
	answer.message = text;
	call->keep = true;
	curl_loop_drop(kube_call_pool(call), &call->transfer);
	kube_call_end(call, &answer);
}

/* Ends streams that were silent for too long; returns when the next one would be. */
static uint64_t check_streams(struct kube_client *c, uint64_t now)
{
	struct kube_call *call, *silent;
	uint64_t wake;

	do {
		wake = UINT64_MAX;
		silent = NULL;
		DL_FOREACH (c->calls[KUBE_CALL_LIVE], call) {
			if (!call->r.data || !call->r.idle_ms)
				continue;
			if (now - call->last_byte_ms >= call->r.idle_ms)
				silent = call;
			else
				wake = MIN(wake, call->last_byte_ms + call->r.idle_ms);
		}
		if (silent)
			end_silent(silent);
	} while (silent && !closed(c));
	return wake;
}

/* Moves the calls whose retry is due to their queue; returns when the next retry is due. */
static uint64_t check_later(struct kube_client *c, uint64_t now)
{
	struct kube_call *call, *next;
	uint64_t wake = UINT64_MAX;

	DL_FOREACH_SAFE (c->calls[KUBE_CALL_LATER], call, next) {
		if (call->due_ms > now)
			wake = MIN(wake, call->due_ms);
		else
			kube_call_move(call,
				       call->r.unlimited ? KUBE_CALL_READY : KUBE_CALL_WAITING);
	}
	return wake;
}

static void on_tick(uv_timer_t *timer)
{
	struct kube_client *c = container_of(timer, struct kube_client, tick);
	uint64_t now = uv_now(c->loop), wake = check_later(c, now), wait = 0, idle;

	/* Calls that callbacks add meanwhile wake the tick anew. */
	while (!closed(c) && c->calls[KUBE_CALL_READY])
		start(c->calls[KUBE_CALL_READY]);
	while (!closed(c) && c->calls[KUBE_CALL_WAITING] && wait == 0) {
		wait = kube_limit_take(&c->limit, now);
		if (wait == 0)
			start(c->calls[KUBE_CALL_WAITING]);
	}
	if (closed(c))
		return;
	if (wait)
		wake = MIN(wake, now + wait);
	idle = check_streams(c, now);
	if (closed(c))
		return;
	wake = MIN(wake, idle);
	if (wake != UINT64_MAX && !uv_is_active((uv_handle_t *)&c->tick))
		uv_timer_start(&c->tick, on_tick, wake > now ? wake - now : 0, 0);
}

void kube_client_wake(struct kube_client *c)
{
	if (!closed(c))
		uv_timer_start(&c->tick, on_tick, 0, 0);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_memory(struct kube_client *c)
{
	kube_auth_done(&c->auth);
	free(c->url);
	free(c->host);
	free(c->connect_to);
	free(c->user_agent);
	free(c);
}

static int init(struct kube_client *c, const struct kube_client_options *o, struct error *err)
{
	const struct kube_credentials *k = o->credentials;
	int r = 0;

	c->credentials = k;
	c->connect_ms = o->connect_ms ? o->connect_ms : KUBE_CONNECT_MS;
	c->gzip = o->gzip && !k->no_compression;
	kube_limit_init(&c->limit, o->qps, o->burst, uv_now(c->loop));
	c->url = strdup(k->server);
	c->user_agent = strdup(o->user_agent ? o->user_agent : "kiln");
	if (!c->url || !c->user_agent)
		return error_set(err, -ENOMEM, "out of memory");
	if (k->server_name && has_prefix(c->url, "https:")) {
		size_t n;

		r = curl_override_name(&c->url, k->server_name, &c->host, &c->connect_to);
		if (r < 0)
			return error_set(err, r, "tls-server-name: cannot use %s", k->server_name);
		n = strlen(c->url); /* curl puts a slash there */
		if (n > 0 && c->url[n - 1] == '/')
			c->url[n - 1] = 0;
	}
	return kube_auth_init(&c->auth, k, o->token_ms, uv_now(c->loop), err);
}

int kube_client_new(uv_loop_t *loop, const struct kube_client_options *options,
		    struct kube_client **ret, struct error *err)
{
	struct kube_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	c->loop = loop;
	r = init(c, options, err);
	if (r == 0) {
		r = curl_loop_new(loop, KUBE_POOL_MAX, &c->pool);
		if (r == 0)
			r = curl_loop_new(loop, KUBE_BULK_POOL_MAX, &c->bulk);
		if (r < 0)
			error_set(err, r, "out of memory");
	}
	if (r < 0) {
		curl_loop_free(c->pool);
		free_memory(c);
		return r;
	}
	uv_timer_init(loop, &c->tick); /* cannot fail */
	*ret = c;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	free_memory(container_of((uv_timer_t *)handle, struct kube_client, tick));
}

struct kube_client *kube_client_free(struct kube_client *c)
{
	size_t i;

	if (!c)
		return NULL;
	for (i = 0; i < KUBE_CALL_ENDED; i++)
		while (c->calls[i])
			kube_cancel(c->calls[i]);
	curl_loop_free(c->pool);
	curl_loop_free(c->bulk);
	uv_close((uv_handle_t *)&c->tick, on_closed);
	return NULL;
}

void kube_client_on_result(struct kube_client *c,
			   void (*seen)(void *arg, const char *method, int status), void *arg)
{
	c->seen = seen;
	c->seen_arg = arg;
}
