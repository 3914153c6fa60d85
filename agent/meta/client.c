/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connecting, and staying connected.
 *
 * Each attempt reads token and certificates again and uses a new channel. It ends in on_closed(),
 * which sets the timer for the next attempt: after a random time up to a limit that doubles from 1
 * s to 30 s, so that five thousand agents do not reconnect at once. The limit starts over after a
 * connection that lasted. When the token in use is about to expire and the file has a newer one,
 * the connection is replaced at once: resuming costs one message.
 *
 * One timer does the rest: detecting an operator that accepts and then stays silent, reports,
 * expiring pods, the copy on disk. Owned by the loop thread.
 */
#include "agent/meta/client_internal.h"

#include <stdarg.h>
#include <sys/random.h>
#include <time.h>

#include "agent/meta/node_message.h"
#include "lib/grpc_target.h"
#include "lib/metrics.h"

#define METHOD "/kiln.node.v1.NodeService/Connect"

enum {
	RENEW_BEFORE_S = 300, /* kubelets replace a token when a fifth of its life is left */
	TOKEN_READ_MS = 10000,
	SNAPSHOT_PATIENCE = 10, /* times answer_ms */
};

/* ---- ends ------------------------------------------------------------------------------------ */

void meta_give_up(struct meta_client *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->reason, sizeof(c->reason), format, args);
	va_end(args);
	grpc_stream_disconnect(c->stream);
}

static double dice(struct meta_client *c)
{
	uint32_t n = 0;

	if (c->options.random)
		return c->options.random(c->options.random_arg);
	if (getrandom(&n, sizeof(n), GRND_NONBLOCK) != sizeof(n))
		n = (uint32_t)(uv_hrtime() >> 4);
	return n / 4294967296.0;
}

static void attempt(uv_timer_t *timer);

static void retry_later(struct meta_client *c)
{
	uint64_t wait_ms = 0;

	if (c->renew) {
		c->renew = false;
	} else if (backoff_next(&c->backoff, false, 0, 0, dice(c), &wait_ms) < 0) {
		/* Cannot happen: this backoff has no time limit. */
		wait_ms = c->options.retry_max_ms;
	}
	c->status.retry_ms = wait_ms;
	uv_timer_start(&c->retry, attempt, wait_ms, 0);
}

/* Called once whenever a connection ends or cannot be made; the text holds no secret. */
static void failed(struct meta_client *c, const char *why)
{
	unsigned int more = 0;

	snprintf(c->error, sizeof(c->error), "%s", why);
	if (!c->renew && log_allowed(&c->failure_limit, 60, &more))
		log_warn("operator", "%s: %s; trying again (%u more in the last minute)",
			 c->options.endpoint, why, more);
	retry_later(c);
}

static bool refused(int status)
{
	return status == RPC_UNAUTHENTICATED || status == RPC_PERMISSION_DENIED;
}

static void on_closed(int status, const char *message, void *arg)
{
	struct meta_client *c = arg;
	uint64_t lived_ms = uv_now(c->loop) - c->began_ms;
	char why[sizeof(c->error)];

	pod_table_snapshot_abort(c->table);
	if (c->welcomed && lived_ms >= c->options.stable_ms)
		backoff_reset(&c->backoff);
	c->greeted = c->welcomed = c->synced = c->writable = false;
	c->ack_due = c->report_due = false;
	token_done(&c->token);
	metric_set(M_OPERATOR_CONNECTED, 0);
	if (c->reason[0]) {
		snprintf(why, sizeof(why), "%s", c->reason);
	} else if (refused(status)) {
		c->status.refused++;
		metric_add(M_OPERATOR_REFUSED, 1);
		snprintf(why, sizeof(why), "refused: %s", *message ? message : "no reason given");
	} else {
		snprintf(why, sizeof(why), "%s: %s", rpc_status_name(status),
			 *message ? message : "the operator ended the stream");
	}
	failed(c, why);
}

/* ---- begin ----------------------------------------------------------------------------------- */

static int connect_stream(struct meta_client *c, struct error *err)
{
	struct meta_options *o = &c->options;
	_cleanup_free_ char *bearer = NULL;
	struct grpc_header header = {.key = "authorization"};
	struct grpc_stream_options options = {
	    .client = {.endpoint = o->endpoint,
		       .tls = {.insecure = o->insecure,
			       .ca_file = o->ca_file,
			       .server_name = o->server_name},
		       .headers = &header,
		       .user_agent = "kiln-agent/" KILN_VERSION},
	    .method = METHOD,
	    .message_max = NODE_MESSAGE_MAX,
	    .keepalive_ms = o->keepalive_ms,
	};
	int r;

	if (o->token_file) {
		r = token_read(o->token_file, &c->token, err);
		if (r < 0)
			return error_wrap(err, r, "token");
		if (asprintf(&bearer, "Bearer %s", c->token.text) < 0) {
			bearer = NULL;
			return error_set(err, -ENOMEM, "out of memory");
		}
		header.value = bearer;
		options.client.n_headers = 1;
	}
	r = grpc_stream_connect(c->stream, &options, err);
	if (bearer)
		explicit_bzero(bearer, strlen(bearer));
	return r;
}

static void attempt(uv_timer_t *timer)
{
	struct meta_client *c = container_of(timer, struct meta_client, retry);
	struct error err;

	c->status.attempts++;
	metric_add(M_OPERATOR_ATTEMPTS, 1);
	c->reason[0] = 0;
	c->began_ms = c->heard_ms = c->token_read_ms = uv_now(c->loop);
	if (connect_stream(c, &err) < 0) {
		token_done(&c->token);
		failed(c, err.message);
	}
}

static void on_writable(void *arg)
{
	struct meta_client *c = arg;

	c->writable = true;
	meta_send_due(c);
}

static void on_message(const uint8_t *data, size_t len, void *arg)
{
	meta_receive(arg, data, len);
}

/* ---- once a second --------------------------------------------------------------------------- */

/* Reconnects with a newer token before the current one expires, because the operator ends the
 * stream then. */
static void renew_token(struct meta_client *c, uint64_t now_ms)
{
	struct token newer = {0};
	int64_t left_s;
	struct error err;

	if (!c->welcomed || !c->token.expires_s ||
	    now_ms - c->token_read_ms < MIN((uint64_t)TOKEN_READ_MS, 10 * c->options.tick_ms))
		return;
	left_s = c->token.expires_s - (int64_t)time(NULL);
	if (left_s > RENEW_BEFORE_S)
		return;
	c->token_read_ms = now_ms;
	if (token_read(c->options.token_file, &newer, &err) < 0) {
		if (log_allowed(&c->token_limit, 60, NULL))
			log_warn("operator", "token: %s", err.message);
		return;
	}
	if (!streq(newer.text, c->token.text)) {
		c->renew = true;
		c->status.renewals++;
		meta_give_up(c, "a newer token");
	} else if (left_s <= 0 && log_allowed(&c->token_limit, 60, NULL)) {
		log_warn("operator", "%s: the token has expired and was not replaced",
			 c->options.token_file);
	}
	token_done(&newer);
}

static void watch(struct meta_client *c, uint64_t now_ms)
{
	uint64_t silent_ms = now_ms - c->heard_ms;

	if (!grpc_stream_busy(c->stream) || c->reason[0])
		return;
	if (!c->welcomed && silent_ms > c->options.answer_ms)
		meta_give_up(c, "no answer within %llu s",
			     (unsigned long long)c->options.answer_ms / 1000);
	/* An operator that just started sends snapshots to a few agents at a time, so this may take
	 * long. */
	else if ((!c->synced || pod_table_in_snapshot(c->table)) &&
		 silent_ms > SNAPSHOT_PATIENCE * c->options.answer_ms)
		meta_give_up(c, "the operator does not go on");
}

static void on_tick(uv_timer_t *timer)
{
	struct meta_client *c = container_of(timer, struct meta_client, tick);
	uint64_t now_ms = uv_now(c->loop);

	pod_table_expire(c->table, now_ms);
	watch(c, now_ms);
	meta_resumed(c, now_ms);
	renew_token(c, now_ms);
	if (c->synced && now_ms - c->reported_ms >=
			     (c->report_soon ? META_REPORT_MIN_MS : c->report_interval_ms))
		c->report_due = true;
	meta_send_due(c);
	meta_saver_tick(c, now_ms);
}

/* ---- life ------------------------------------------------------------------------------------ */

static const char **strings_of(struct meta_options *o, size_t i)
{
	const char **const all[] = {
	    &o->endpoint,	   &o->ca_file,	      &o->server_name, &o->token_file,
	    &o->snapshot_file,	   &o->agent_version, &o->kernel,      &o->cgroup_mode,
	    &o->container_runtime, &o->config_hash,
	};

	return i < ARRAY_SIZE(all) ? all[i] : NULL;
}

static void options_done(struct meta_options *o)
{
	const char **s;
	size_t i;

	for (i = 0; (s = strings_of(o, i)); i++)
		free((void *)(uintptr_t)*s);
}

static int options_copy(const struct meta_options *from, struct meta_options *ret)
{
	struct meta_options o = *from;
	const char **s;
	size_t i;
	bool whole = true;

	for (i = 0; (s = strings_of(&o, i)); i++) {
		if (!*s)
			continue;
		*s = strdup(*s);
		whole = whole && *s;
	}
	if (!whole) {
		options_done(&o);
		return -ENOMEM;
	}
	o.retry_initial_ms = o.retry_initial_ms ? o.retry_initial_ms : 1000;
	o.retry_max_ms = o.retry_max_ms ? o.retry_max_ms : 30000;
	o.keepalive_ms = o.keepalive_ms ? o.keepalive_ms : 60000;
	o.answer_ms = o.answer_ms ? o.answer_ms : 30000;
	o.stable_ms = o.stable_ms ? o.stable_ms : 10000;
	o.snapshot_ms = o.snapshot_ms ? o.snapshot_ms : 10000;
	o.tick_ms = o.tick_ms ? o.tick_ms : 1000;
	*ret = o;
	return 0;
}

static void client_free_memory(struct meta_client *c)
{
	pod_table_free(c->table);
	token_done(&c->token);
	options_done(&c->options);
	free(c);
}

void meta_handle_gone(struct meta_client *c)
{
	if (--c->open_handles == 0)
		client_free_memory(c);
}

static void on_timer_closed(uv_handle_t *handle)
{
	meta_handle_gone(handle->data);
}

static int client_init(struct meta_client *c, const struct meta_options *o,
		       const struct meta_events *events, struct error *err)
{
	struct grpc_stream_events stream_events = {
	    .writable = on_writable, .message = on_message, .closed = on_closed, .arg = c};
	struct grpc_target target = {0};
	struct backoff_options waits;
	int r;

	if (!o->endpoint)
		return error_set(err, -EINVAL, "endpoint: want host:port");
	r = grpc_target_parse(o->endpoint, o->insecure, &target, err);
	if (r < 0)
		return r;
	grpc_target_done(&target);
	if (options_copy(o, &c->options) < 0 || pod_table_new(&events->pods, &c->table) < 0)
		return error_set(err, -ENOMEM, "out of memory");
	c->saver.path = (char *)(uintptr_t)c->options.snapshot_file;
	/* Full jitter: with randomization 1 a wait w becomes 0..2w, so the limits are halved. */
	waits = (struct backoff_options){.initial_ms = MAX(c->options.retry_initial_ms / 2, 1U),
					 .max_ms = MAX(c->options.retry_max_ms / 2, 1U),
					 .multiplier = 2,
					 .randomization = 1};
	backoff_init(&c->backoff, &waits);
	return grpc_stream_new(&stream_events, c->loop, &c->stream, err);
}

int meta_client_new(const struct meta_options *o, const struct meta_events *events, uv_loop_t *loop,
		    struct meta_client **ret, struct error *err)
{
	struct meta_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	c->loop = loop;
	c->events = *events;
	r = client_init(c, o, events, err);
	if (r < 0) {
		client_free_memory(c);
		return r;
	}
	uv_timer_init(loop, &c->tick);
	uv_timer_init(loop, &c->retry);
	c->tick.data = c->retry.data = c;
	c->open_handles = 2;
	meta_saver_load(c);
	uv_timer_start(&c->retry, attempt, 0, 0);
	uv_timer_start(&c->tick, on_tick, c->options.tick_ms, c->options.tick_ms);
	*ret = c;
	return 0;
}

struct meta_client *meta_client_free(struct meta_client *c)
{
	if (!c)
		return NULL;
	c->freed = true;
	c->stream = grpc_stream_free(c->stream);
	token_done(&c->token);
	meta_saver_finish(c);
	if (c->saver.working)
		c->open_handles++; /* after_work() writes the rest and releases the memory last */
	uv_close((uv_handle_t *)&c->tick, on_timer_closed);
	uv_close((uv_handle_t *)&c->retry, on_timer_closed);
	metric_set(M_OPERATOR_CONNECTED, 0);
	return NULL;
}

const struct pod_table *meta_client_table(const struct meta_client *c)
{
	return c->table;
}

void meta_client_report_soon(struct meta_client *c)
{
	c->report_soon = true;
}

void meta_client_status(const struct meta_client *c, struct meta_status *ret)
{
	*ret = c->status;
	ret->connected = c->welcomed && c->synced;
	pod_table_state(c->table, &ret->epoch, &ret->revision);
	ret->node_name = c->node_name;
	ret->cluster_uid = c->cluster_uid;
	ret->error = c->error;
}
