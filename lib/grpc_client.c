/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary gRPC calls from a libuv loop.
 *
 * One channel, one completion queue and one thread a client. A call is one batch of all six
 * operations, so one tag and one event. The thread does nothing but move finished calls onto a list
 * under a lock and wake the loop; all other state belongs to the loop thread.
 *
 * Messages come compressed by the caller: the byte buffer is marked so, and the core's own
 * compression filter leaves it alone. The core knows no algorithm that receivers like better than
 * gzip (no zstd).
 *
 * Keepalive pings are five minutes apart, which the default enforcement of Go and C servers allows;
 * that also sets TCP_USER_TIMEOUT, so a connection whose packets vanish is found dead after 20 s.
 */
#include "lib/grpc_client.h"

#include <ctype.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <pthread.h>

#include "lib/log.h"

enum {
	KEEPALIVE_TIME_MS = 300000,
	KEEPALIVE_TIMEOUT_MS = 20000,
	RECONNECT_MIN_MS = 500,
	CHANNEL_ARGS_MAX = 12,
	UNARY_OPS = 6,
	BODY_MAX = 4 << 20,
};

struct grpc_unary {
	struct grpc_client *client;
	struct grpc_unary *next_done;	/* under client->lock */
	struct grpc_unary *prev, *next; /* client->live */
	grpc_call *call;
	grpc_byte_buffer *body;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice message;
	void (*done)(const struct grpc_answer *answer, void *arg);
	void *arg;
};

struct grpc_client {
	uv_async_t wake;
	uv_thread_t thread;
	grpc_completion_queue *cq;
	grpc_channel *channel;
	grpc_metadata *headers;
	size_t n_headers;
	struct grpc_unary *live;
	pthread_mutex_t lock;
	struct grpc_unary *done, **done_tail; /* finished, not yet seen by the loop */
};

static const char *const status_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *rpc_status_name(int status)
{
	if (status < 0 || (size_t)status >= ARRAY_SIZE(status_names))
		return "UNKNOWN";
	return status_names[status];
}

/* ---- settings -------------------------------------------------------------------------------- */

static bool port_valid(const char *text, size_t len)
{
	unsigned long port = 0;
	size_t i;

	if (len == 0 || len > 5)
		return false;
	for (i = 0; i < len; i++) {
		if (!isdigit((unsigned char)text[i]))
			return false;
		port = port * 10 + (unsigned long)(text[i] - '0');
	}
	return port >= 1 && port <= 65535;
}

static int host_port_check(const char *endpoint, const char *text, size_t len, struct error *err)
{
	const char *colon = memrchr(text, ':', len);
	size_t host = colon ? (size_t)(colon - text) : 0;

	if (!colon || host == 0 || !port_valid(colon + 1, len - host - 1) ||
	    (text[0] == '[') != (text[host - 1] == ']') ||
	    (text[0] != '[' && memchr(text, ':', host)) || memchr(text, '/', len) ||
	    memchr(text, ' ', len))
		return error_set(err, -EINVAL, "endpoint: want host:port, got %s", endpoint);
	return 0;
}

int grpc_endpoint_parse(const char *endpoint, bool insecure, char **ret_target, bool *ret_plaintext,
			struct error *err)
{
	_cleanup_free_ char *target = NULL;
	bool plaintext = insecure;
	const char *rest = endpoint;
	size_t len;
	int r;

	if (has_prefix(endpoint, "unix:") || has_prefix(endpoint, "dns:") ||
	    has_prefix(endpoint, "ipv4:") || has_prefix(endpoint, "ipv6:")) {
		target = strdup(endpoint);
	} else {
		if (has_prefix(endpoint, "http://")) {
			rest += strlen("http://");
			plaintext = true;
		} else if (has_prefix(endpoint, "https://")) {
			rest += strlen("https://");
			plaintext = false;
		} else if (strstr(endpoint, "://")) {
			return error_set(
			    err, -EINVAL,
			    "endpoint: want host:port, http://, https://, dns:/// or unix:, "
			    "got %s",
			    endpoint);
		}
		len = strlen(rest);
		if (len > 0 && rest != endpoint && rest[len - 1] == '/')
			len--;
		r = host_port_check(endpoint, rest, len, err);
		if (r < 0)
			return r;
		if (asprintf(&target, "dns:///%.*s", (int)len, rest) < 0)
			target = NULL;
	}
	if (!target)
		return error_set(err, -ENOMEM, "out of memory");
	*ret_target = TAKE_PTR(target);
	*ret_plaintext = plaintext;
	return 0;
}

static void log_core(gpr_log_func_args *args)
{
	log_debug("grpc", "%s", args->message);
}

static int credentials_unverified(const char *roots, const char *cert, const char *key,
				  grpc_channel_credentials **ret)
{
	grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
	grpc_tls_certificate_verifier *anyone = grpc_tls_certificate_verifier_no_op_create();
	grpc_tls_identity_pairs *pairs = NULL;
	grpc_tls_certificate_provider *provider;

	if (cert) {
		pairs = grpc_tls_identity_pairs_create();
		grpc_tls_identity_pairs_add_pair(pairs, key, cert);
	}
	provider = grpc_tls_certificate_provider_static_data_create(roots, pairs);
	grpc_tls_credentials_options_set_certificate_provider(options, provider);
	if (roots)
		grpc_tls_credentials_options_watch_root_certs(options);
	if (cert)
		grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
	grpc_tls_credentials_options_set_certificate_verifier(options, anyone);
	grpc_tls_credentials_options_set_verify_server_cert(options, 0);
	grpc_tls_credentials_options_set_check_call_host(options, 0);
	*ret = grpc_tls_credentials_create(options);
	grpc_tls_certificate_verifier_release(anyone);
	grpc_tls_certificate_provider_release(provider);
	return *ret ? 0 : -EINVAL;
}

static int credentials_new(const struct tls_options *tls, bool plaintext,
			   grpc_channel_credentials **ret, struct error *err)
{
	_cleanup_free_ char *roots = NULL, *cert = NULL, *key = NULL;
	const char *ca = tls->ca_file ? tls->ca_file : tls_system_roots();
	grpc_ssl_pem_key_cert_pair pair;
	enum tls_version version;
	int r;

	if (plaintext) {
		*ret = grpc_insecure_credentials_create();
		return *ret ? 0 : error_set(err, -ENOMEM, "out of memory");
	}
	r = tls_options_check(tls, err);
	if (r < 0)
		return r;
	if (tls_version_parse(tls->min_version, &version) == 0 && version > TLS_1_2)
		return error_set(
		    err, -EINVAL,
		    "tls.min_version: the gRPC library offers 1.2 and newer and cannot "
		    "be held to %s; otlp_http can",
		    tls->min_version);
	if (!ca && !tls->skip_verify)
		return error_set(err, -EINVAL,
				 "tls: this system has no root certificates; give tls.ca_file");
	if (ca)
		r = tls_read_pem(ca, &roots, err);
	if (r == 0 && tls->cert_file)
		r = tls_read_pem(tls->cert_file, &cert, err);
	if (r == 0 && tls->key_file)
		r = tls_read_pem(tls->key_file, &key, err);
	if (r < 0)
		return error_wrap(err, r, "tls");
	if (tls->skip_verify) {
		r = credentials_unverified(roots, cert, key, ret);
	} else {
		pair = (grpc_ssl_pem_key_cert_pair){.private_key = key, .cert_chain = cert};
		*ret = grpc_ssl_credentials_create_ex(roots, cert ? &pair : NULL, NULL, NULL);
		r = *ret ? 0 : -EINVAL;
	}
	return r < 0 ? error_set(err, r, "tls: the certificates cannot be used") : 0;
}

static grpc_arg arg_int(const char *key, int value)
{
	return (grpc_arg){
	    .type = GRPC_ARG_INTEGER, .key = (char *)key, .value = {.integer = value}};
}

static grpc_arg arg_string(const char *key, const char *value)
{
	return (grpc_arg){
	    .type = GRPC_ARG_STRING, .key = (char *)key, .value = {.string = (char *)value}};
}

static int channel_new(const struct grpc_client_options *o, grpc_channel **ret, struct error *err)
{
	int reconnect_max = (int)MIN(MAX(o->reconnect_max_ms, RECONNECT_MIN_MS), INT32_MAX);
	_cleanup_free_ char *target = NULL;
	grpc_channel_credentials *credentials;
	grpc_arg items[CHANNEL_ARGS_MAX];
	grpc_channel_args args = {.args = items};
	bool plaintext;
	int r;

	r = grpc_endpoint_parse(o->endpoint, o->tls.insecure, &target, &plaintext, err);
	if (r < 0)
		return r;
	r = credentials_new(&o->tls, plaintext, &credentials, err);
	if (r < 0)
		return r;
	/* The sender decides on retries; the core's would hold a second copy of each message. */
	items[args.num_args++] = arg_int(GRPC_ARG_ENABLE_RETRIES, 0);
	items[args.num_args++] = arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_TIME_MS);
	items[args.num_args++] = arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
	items[args.num_args++] = arg_int(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_MIN_MS);
	items[args.num_args++] = arg_int(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, reconnect_max);
	items[args.num_args++] = arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, BODY_MAX);
	items[args.num_args++] = arg_int(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
	/* Two exporters to one endpoint must not share a connection with other credentials. */
	items[args.num_args++] = arg_int(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
	if (o->gzip)
		items[args.num_args++] =
		    arg_int(GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM, GRPC_COMPRESS_GZIP);
	if (o->user_agent)
		items[args.num_args++] =
		    arg_string(GRPC_ARG_PRIMARY_USER_AGENT_STRING, o->user_agent);
	if (o->tls.server_name && !plaintext)
		items[args.num_args++] =
		    arg_string(GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, o->tls.server_name);
	*ret = grpc_channel_create(target, credentials, &args);
	grpc_channel_credentials_release(credentials);
	return *ret ? 0 : error_set(err, -EINVAL, "endpoint: %s cannot be used", o->endpoint);
}

static int headers_set(struct grpc_client *c, const struct grpc_client_options *o,
		       struct error *err)
{
	grpc_metadata *m;
	size_t i;

	c->headers = calloc(o->n_headers + 1, sizeof(*c->headers));
	if (!c->headers)
		return error_set(err, -ENOMEM, "out of memory");
	for (i = 0; i < o->n_headers; i++) {
		_cleanup_free_ char *key = strdup(o->headers[i].key);
		char *p;

		if (!key)
			return error_set(err, -ENOMEM, "out of memory");
		for (p = key; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		m = &c->headers[c->n_headers++];
		m->key = grpc_slice_from_copied_string(key);
		m->value = grpc_slice_from_copied_string(o->headers[i].value);
		if (!grpc_header_key_is_legal(m->key) || has_prefix(key, "grpc-") ||
		    !grpc_header_nonbin_value_is_legal(m->value))
			return error_set(err, -EINVAL,
					 "headers.%s: not a header that gRPC can send", key);
	}
	return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Takes the call out of the client's list: from here on the client may go away. */
static void call_unlink(struct grpc_unary *u)
{
	if (u->prev)
		u->prev->next = u->next;
	else
		u->client->live = u->next;
	if (u->next)
		u->next->prev = u->prev;
	if (!u->client->live)
		uv_unref((uv_handle_t *)&u->client->wake);
}

static void call_free(struct grpc_unary *u)
{
	grpc_metadata_array_destroy(&u->initial);
	grpc_metadata_array_destroy(&u->trailing);
	grpc_slice_unref(u->message);
	if (u->body)
		grpc_byte_buffer_destroy(u->body);
	if (u->call)
		grpc_call_unref(u->call);
	free(u);
}

/* The whole message in one slice; false when it cannot be decompressed. */
static bool body_read(grpc_byte_buffer *body, grpc_slice *ret)
{
	grpc_byte_buffer_reader reader;

	if (!body || !grpc_byte_buffer_reader_init(&reader, body))
		return false;
	*ret = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	return true;
}

/*
 * The core says these two when no connection was there to carry the call; every other failure may
 * have happened after the request was out (1.51: priority.cc, pick_first.cc, client_channel.cc).
 */
static bool never_connected(int status, const char *message)
{
	return status == RPC_UNAVAILABLE && (has_prefix(message, "failed to connect to all") ||
					     has_prefix(message, "DNS resolution failed"));
}

static void call_finish(struct grpc_unary *u)
{
	_cleanup_free_ char *message = NULL;
	struct grpc_answer answer = {.status = (int)u->status, .message = ""};
	grpc_slice body = grpc_empty_slice();
	size_t i;

	message =
	    strndup((const char *)GRPC_SLICE_START_PTR(u->message), GRPC_SLICE_LENGTH(u->message));
	if (message)
		answer.message = message;
	answer.connected = !never_connected(answer.status, answer.message);
	for (i = 0; i < u->trailing.count; i++) {
		if (grpc_slice_str_cmp(u->trailing.metadata[i].key, "grpc-status-details-bin"))
			continue;
		answer.details = GRPC_SLICE_START_PTR(u->trailing.metadata[i].value);
		answer.details_len = GRPC_SLICE_LENGTH(u->trailing.metadata[i].value);
	}
	if (body_read(u->body, &body) && GRPC_SLICE_LENGTH(body) > 0) {
		answer.body = GRPC_SLICE_START_PTR(body);
		answer.body_len = GRPC_SLICE_LENGTH(body);
	}
	/*
	 * The callback may free the client. The core's call stays until after it, because it owns
	 * the trailing metadata; it has references of its own to channel and queue.
	 */
	call_unlink(u);
	u->done(&answer, u->arg);
	grpc_slice_unref(body);
	call_free(u);
}

static void on_wake(uv_async_t *handle)
{
	struct grpc_client *c = container_of(handle, struct grpc_client, wake);
	struct grpc_unary *u;

	/* One at a time: a callback may free the client, which takes the rest of the list. */
	while (!uv_is_closing((uv_handle_t *)&c->wake)) {
		pthread_mutex_lock(&c->lock);
		u = c->done;
		if (u) {
			c->done = u->next_done;
			if (!c->done)
				c->done_tail = &c->done;
		}
		pthread_mutex_unlock(&c->lock);
		if (!u)
			return;
		call_finish(u);
	}
}

/* The completion queue's thread. */
static void wait_for_events(void *arg)
{
	struct grpc_client *c = arg;
	struct grpc_unary *u;
	grpc_event event;

	for (;;) {
		event = grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		if (event.type == GRPC_QUEUE_SHUTDOWN)
			return;
		u = event.tag;
		u->next_done = NULL;
		pthread_mutex_lock(&c->lock);
		*c->done_tail = u;
		c->done_tail = &u->next_done;
		pthread_mutex_unlock(&c->lock);
		uv_async_send(&c->wake);
	}
}

static grpc_call_error call_start(struct grpc_unary *u, grpc_byte_buffer *message, bool gzipped)
{
	struct grpc_client *c = u->client;
	grpc_op ops[UNARY_OPS] = {
	    {.op = GRPC_OP_SEND_INITIAL_METADATA,
	     .data.send_initial_metadata = {.count = c->n_headers, .metadata = c->headers}},
	    {.op = GRPC_OP_SEND_MESSAGE,
	     .flags = gzipped ? 0 : GRPC_WRITE_NO_COMPRESS,
	     .data.send_message.send_message = message},
	    {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
	    {.op = GRPC_OP_RECV_INITIAL_METADATA,
	     .data.recv_initial_metadata.recv_initial_metadata = &u->initial},
	    {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &u->body},
	    {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
	     .data.recv_status_on_client = {.trailing_metadata = &u->trailing,
					    .status = &u->status,
					    .status_details = &u->message}},
	};

	return grpc_call_start_batch(u->call, ops, UNARY_OPS, u, NULL);
}

int grpc_client_call(struct grpc_client *c, const char *method, const void *data, size_t len,
		     bool gzipped, uint64_t timeout_ms,
		     void (*done)(const struct grpc_answer *, void *), void *arg,
		     struct grpc_unary **ret)
{
	gpr_timespec deadline = gpr_time_add(
	    gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
	struct grpc_unary *u = calloc(1, sizeof(*u));
	grpc_slice path, bytes;
	grpc_byte_buffer *message;
	grpc_call_error r;

	if (!u)
		return -ENOMEM;
	u->client = c;
	u->done = done;
	u->arg = arg;
	u->message = grpc_empty_slice();
	grpc_metadata_array_init(&u->initial);
	grpc_metadata_array_init(&u->trailing);
	u->next = c->live;
	if (u->next)
		u->next->prev = u;
	c->live = u;
	uv_ref((uv_handle_t *)&c->wake);

	/* Whoever calls has waited as long as it wants to: do not let the core wait on top of it.
	 */
	grpc_channel_reset_connect_backoff(c->channel);
	path = grpc_slice_from_copied_string(method);
	u->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq, path,
					   NULL, deadline, NULL);
	grpc_slice_unref(path);
	if (!u->call) {
		call_unlink(u);
		call_free(u);
		return -EINVAL;
	}
	bytes = grpc_slice_from_copied_buffer(data, len);
	message = gzipped ? grpc_raw_compressed_byte_buffer_create(&bytes, 1, GRPC_COMPRESS_GZIP)
			  : grpc_raw_byte_buffer_create(&bytes, 1);
	grpc_slice_unref(bytes);
	r = call_start(u, message, gzipped);
	grpc_byte_buffer_destroy(message);
	if (r != GRPC_CALL_OK) {
		call_unlink(u);
		call_free(u);
		return -EINVAL;
	}
	*ret = u;
	return 0;
}

void grpc_unary_cancel(struct grpc_unary *u)
{
	grpc_call_cancel(u->call, NULL);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void client_free_memory(struct grpc_client *c)
{
	size_t i;

	for (i = 0; i < c->n_headers; i++) {
		grpc_slice_unref(c->headers[i].key);
		grpc_slice_unref(c->headers[i].value);
	}
	free(c->headers);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

static void on_closed(uv_handle_t *handle)
{
	client_free_memory(container_of((uv_async_t *)handle, struct grpc_client, wake));
	grpc_shutdown_blocking();
}

static int client_init(struct grpc_client *c, const struct grpc_client_options *o, uv_loop_t *loop,
		       struct error *err)
{
	int r;

	r = headers_set(c, o, err);
	if (r < 0)
		return r;
	r = channel_new(o, &c->channel, err);
	if (r < 0)
		return r;
	c->cq = grpc_completion_queue_create_for_next(NULL);
	r = uv_async_init(loop, &c->wake, on_wake);
	if (r < 0)
		return error_set(err, r, "uv_async_init: %s", uv_strerror(r));
	/* Keeps the loop alive only while an answer is awaited. */
	uv_unref((uv_handle_t *)&c->wake);
	r = uv_thread_create(&c->thread, wait_for_events, c);
	if (r < 0) {
		uv_close((uv_handle_t *)&c->wake, on_closed);
		return error_set(err, r, "thread: %s", uv_strerror(r));
	}
	return 0;
}

int grpc_client_new(const struct grpc_client_options *o, uv_loop_t *loop, struct grpc_client **ret,
		    struct error *err)
{
	struct grpc_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&c->lock, NULL);
	c->done_tail = &c->done;
	gpr_set_log_function(log_core);
	grpc_init();
	r = client_init(c, o, loop, err);
	if (r < 0) {
		if (c->cq) {
			grpc_completion_queue_shutdown(c->cq);
			while (grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_REALTIME),
							  NULL)
				   .type != GRPC_QUEUE_SHUTDOWN)
				;
			grpc_completion_queue_destroy(c->cq);
		}
		if (c->channel)
			grpc_channel_destroy(c->channel);
		if (!c->wake.loop) { /* else on_closed() does it */
			client_free_memory(c);
			grpc_shutdown_blocking();
		}
		return r;
	}
	*ret = c;
	return 0;
}

struct grpc_client *grpc_client_free(struct grpc_client *c)
{
	struct grpc_unary *u;

	if (!c)
		return NULL;
	for (u = c->live; u; u = u->next)
		grpc_call_cancel(u->call, NULL);
	/* After this the queue hands out what is pending, then says SHUTDOWN; nothing may start. */
	grpc_completion_queue_shutdown(c->cq);
	uv_thread_join(&c->thread);
	while (c->live) {
		u = c->live;
		call_unlink(u);
		call_free(u);
	}
	grpc_channel_destroy(c->channel);
	grpc_completion_queue_destroy(c->cq);
	uv_close((uv_handle_t *)&c->wake, on_closed);
	return NULL;
}
