/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call waits for a ready connection. When there is none, one is opened; when that fails, all
 * waiting calls fail with UNAVAILABLE. So there are as many connection attempts as calls, and the
 * channel adds no backoff to that of its callers. A connection that the peer wants to end (GOAWAY)
 * keeps its calls and gets no new ones. Without calls no connection is opened, and none is closed.
 *
 * The application is called from grpc_channel_work() only. It may do anything there, even free the
 * channel: so every function on the stack checks `freed` afterwards, and the memory stays until the
 * handles are closed. When a callback left work to do, the idle handle calls grpc_channel_work()
 * again.
 */
#include "lib/grpc_channel.h"

#include <utlist.h>

#include "lib/tls_client.h"

enum { REST_MS = 86400000 /* the timer is active while there are calls */, ACKS_MAX = 32 };

/* ---- time --------------------------------------------------------------------------------------
 */

static uint64_t next_due_ms(const struct grpc_channel *ch)
{
	uint64_t due = uv_now(ch->loop) + REST_MS;
	const struct grpc_connection *c;
	const struct grpc_call *call;

	DL_FOREACH (ch->connections, c)
		due = MIN(due, grpc_connection_due_ms(c));
	DL_FOREACH (ch->calls, call)
		if (call->deadline_ms)
			due = MIN(due, call->deadline_ms);
	return due;
}

static void on_timer(uv_timer_t *timer);

static void arm(struct grpc_channel *ch)
{
	uint64_t now = uv_now(ch->loop), due = next_due_ms(ch);

	if (ch->calls)
		uv_ref((uv_handle_t *)&ch->timer);
	else
		uv_unref((uv_handle_t *)&ch->timer);
	(void)uv_timer_start(&ch->timer, on_timer, due > now ? due - now : 1, 0);
}

/*
 * Whether the peer may be gone: nothing was received since the call began, or the peer does not
 * open its flow-control window. The next call then uses another connection.
 */
static bool is_suspect(const struct grpc_connection *c, const struct grpc_call *call)
{
	return c->heard_ms <= call->began_ms ||
	       nghttp2_session_get_remote_window_size(c->session) <= 0;
}

static void expire(struct grpc_call *call)
{
	struct grpc_connection *c = call->connection;
	bool suspect = c && is_suspect(c, call);

	grpc_call_cut(call, RPC_DEADLINE_EXCEEDED, "%s",
		      c ? "no answer within the timeout" : "no connection within the timeout");
	if (suspect)
		c->retired = true;
	if (suspect && !c->n_calls)
		grpc_connection_fail(c, "the peer says nothing");
}

static void on_timer(uv_timer_t *timer)
{
	struct grpc_channel *ch = container_of(timer, struct grpc_channel, timer);
	uint64_t now = uv_now(ch->loop);
	struct grpc_connection *c;
	struct grpc_call *call;

	DL_FOREACH (ch->calls, call)
		if (call->deadline_ms && now >= call->deadline_ms)
			expire(call);
	DL_FOREACH (ch->connections, c)
		grpc_connection_tick(c, now);
	grpc_channel_work(ch);
}

/* ---- work --------------------------------------------------------------------------------------
 */

static bool is_waiting(const struct grpc_call *call)
{
	return !call->connection && !call->ended;
}

static bool somebody_waits(const struct grpc_channel *ch)
{
	const struct grpc_call *call;

	DL_FOREACH (ch->calls, call)
		if (is_waiting(call))
			return true;
	return false;
}

static void fail_waiting(struct grpc_channel *ch, const char *why)
{
	struct grpc_call *call;

	DL_FOREACH (ch->calls, call)
		if (is_waiting(call))
			grpc_call_end(call, RPC_UNAVAILABLE, "%s", why);
}

/* The connection for new calls; NULL: there is none that is ready. */
static struct grpc_connection *connection_for_calls(struct grpc_channel *ch)
{
	struct grpc_connection *c = ch->current;
	struct error err = {0};

	if (c && c->ready)
		grpc_connection_read(c);
	if (c && c->session && !nghttp2_session_check_request_allowed(c->session))
		c->retired = true;
	if (c && !c->failed && !c->retired)
		return c->ready ? c : NULL;
	ch->current = NULL;
	if (c && c->failed && !c->ready)
		fail_waiting(ch, c->why);
	else if (grpc_connection_new(ch, &ch->current, &err) < 0)
		fail_waiting(ch, err.message);
	return NULL;
}

static void begin_calls(struct grpc_channel *ch)
{
	struct grpc_connection *c = somebody_waits(ch) ? connection_for_calls(ch) : NULL;
	struct grpc_call *call;
	int r;

	if (!c)
		return;
	DL_FOREACH (ch->calls, call) {
		if (!is_waiting(call))
			continue;
		call->began_ms = uv_now(ch->loop);
		r = grpc_connection_begin(c, call);
		if (r < 0)
			grpc_call_end(call, RPC_UNAVAILABLE, "%s", strerror(-r));
	}
}

static void flush_connections(struct grpc_channel *ch)
{
	struct grpc_connection *c;

	DL_FOREACH (ch->connections, c) {
		grpc_connection_flush(c);
		grpc_connection_check(c);
	}
}

static void free_connections(struct grpc_channel *ch)
{
	struct grpc_connection *c, *next;

	DL_FOREACH_SAFE (ch->connections, c, next) {
		if (!grpc_connection_over(c) || (c == ch->current && somebody_waits(ch)))
			continue;
		if (c == ch->current)
			ch->current = NULL;
		grpc_connection_free(c);
	}
}

void grpc_channel_work(struct grpc_channel *ch)
{
	struct grpc_call *call, *next;

	(void)uv_idle_stop(&ch->run);
	begin_calls(ch);
	flush_connections(ch);
	DL_FOREACH_SAFE (ch->calls, call, next)
		if (!grpc_call_tell(call))
			return;
	free_connections(ch);
	arm(ch);
}

static void on_run(uv_idle_t *run)
{
	grpc_channel_work(container_of(run, struct grpc_channel, run));
}

void grpc_channel_due(struct grpc_channel *ch)
{
	if (!ch->freed)
		(void)uv_idle_start(&ch->run, on_run);
}

/* ---- calls -------------------------------------------------------------------------------------
 */

void grpc_channel_unlink(struct grpc_call *call)
{
	DL_DELETE(call->channel->calls, call);
}

int grpc_channel_call(struct grpc_channel *ch, const char *method, uint64_t timeout_ms,
		      const struct grpc_call_events *events, void *arg, struct grpc_call **ret)
{
	struct grpc_call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	call->method = strdup(method);
	if (!call->method) {
		free(call);
		return -ENOMEM;
	}
	call->channel = ch;
	call->events = events;
	call->arg = arg;
	call->grpc_status = -1;
	call->deadline_ms = timeout_ms ? uv_now(ch->loop) + timeout_ms : 0;
	grpc_inbox_init(&call->in, ch->message_max, CONNECTION_READS * CONNECTION_READ);
	DL_APPEND(ch->calls, call);
	arm(ch);
	grpc_channel_due(ch);
	*ret = call;
	return 0;
}

/* ---- life --------------------------------------------------------------------------------------
 */

static const char **tls_string(struct tls_options *o, size_t i)
{
	const char **const all[] = {&o->ca_file, &o->cert_file, &o->key_file, &o->server_name,
				    &o->min_version};

	return i < ARRAY_SIZE(all) ? all[i] : NULL;
}

static void memory_free(struct grpc_channel *ch)
{
	struct grpc_call *call, *next;
	const char **s;

	DL_FOREACH_SAFE (ch->calls, call, next)
		grpc_call_free(call);
	nghttp2_session_callbacks_del(ch->callbacks);
	nghttp2_option_del(ch->option);
	grpc_headers_free(ch);
	grpc_target_done(&ch->target);
	for (size_t i = 0; (s = tls_string(&ch->tls, i)); i++)
		free((char *)(uintptr_t)*s);
	free(ch->authority);
	free(ch);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct grpc_channel *ch = handle->data;

	if (!--ch->open_handles)
		memory_free(ch);
}

struct grpc_channel *grpc_channel_free(struct grpc_channel *ch)
{
	struct grpc_call *call;

	if (!ch)
		return NULL;
	ch->freed = true;
	DL_FOREACH (ch->calls, call)
		grpc_call_cut(call, RPC_CANCELLED, "cancelled");
	while (ch->connections)
		grpc_connection_free(ch->connections);
	ch->open_handles = 2;
	ch->timer.data = ch->run.data = ch;
	uv_close((uv_handle_t *)&ch->timer, on_handle_closed);
	uv_close((uv_handle_t *)&ch->run, on_handle_closed);
	return NULL;
}

static int copy_tls(struct grpc_channel *ch, const struct tls_options *o)
{
	const char **s;

	ch->tls = *o;
	for (size_t i = 0; (s = tls_string(&ch->tls, i)); i++)
		*s = *s ? strdup(*s) : NULL;
	for (size_t i = 0; (s = tls_string(&ch->tls, i)); i++)
		if (!*s && *tls_string((struct tls_options *)(uintptr_t)o, i))
			return -ENOMEM;
	return 0;
}

/* Limits what a peer can make nghttp2 keep in memory. */
static int create_option(nghttp2_option **ret)
{
	if (nghttp2_option_new(ret) < 0)
		return -ENOMEM;
	nghttp2_option_set_no_closed_streams(*ret, 1);
	nghttp2_option_set_max_reserved_remote_streams(*ret, 0);
	nghttp2_option_set_max_outbound_ack(*ret, ACKS_MAX);
	return 0;
}

/* Reads the TLS files to detect settings that cannot work. Each connection reads them again. */
static int check_tls(const struct grpc_channel *ch, struct error *err)
{
	const struct tls_client_options o = {
	    .tls = &ch->tls, .name = "localhost", .protocol = "h2"};
	SSL *ssl = NULL;
	int r = ch->target.plaintext ? 0 : tls_client_new(&o, &ssl, err);

	SSL_free(ssl);
	return r;
}

static int set_up(struct grpc_channel *ch, const struct grpc_client_options *o, struct error *err)
{
	bool other_name;
	int r = grpc_target_parse(o->endpoint, o->tls.insecure, &ch->target, err);

	if (r < 0)
		return r;
	other_name = o->tls.server_name && !ch->target.plaintext;
	ch->authority = strdup(other_name ? o->tls.server_name : ch->target.authority);
	if (!ch->authority || copy_tls(ch, &o->tls) < 0 || create_option(&ch->option) < 0 ||
	    grpc_callbacks_new(&ch->callbacks) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	/* A scheme in the endpoint overrides tls.insecure. */
	ch->tls.insecure = ch->target.plaintext;
	r = check_tls(ch, err);
	return r < 0 ? r : grpc_headers_new(ch, o, err);
}

int grpc_channel_new(const struct grpc_client_options *o, uint64_t keepalive_ms, size_t message_max,
		     uv_loop_t *loop, struct grpc_channel **ret, struct error *err)
{
	struct grpc_channel *ch = calloc(1, sizeof(*ch));
	int r;

	if (!ch)
		return error_set(err, -ENOMEM, "out of memory");
	ch->loop = loop;
	ch->keepalive_ms = keepalive_ms;
	ch->message_max = message_max;
	r = set_up(ch, o, err);
	if (r < 0) {
		memory_free(ch);
		return r;
	}
	(void)uv_timer_init(loop, &ch->timer);
	(void)uv_idle_init(loop, &ch->run);
	uv_unref((uv_handle_t *)&ch->timer);
	uv_unref((uv_handle_t *)&ch->run);
	*ret = ch;
	return 0;
}
