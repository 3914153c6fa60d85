/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the C core as streams. A call has four batches that are under way side by side: `close`
 * (from the beginning: the core tells when the call is over), `receive` (one message, when asked),
 * `send` (one message, the first one with our headers) and `finish` (the status). A call may be
 * destroyed only when each batch has come back, so `pending` counts them.
 *
 * A status is sent after the message that is under way. A peer that takes neither is cut off
 * FINISH_MS later by cancelling the call, so that closed() always comes.
 *
 * Some requests for a call wait in the core at any time (ACCEPTS), each with memory of its own; one
 * that is answered is replaced before anything else is done.
 *
 * Owned by the loop thread, which lib/grpc_queue.c brings the batches back to. The certificate is
 * fetched by the core's threads at each handshake, under a lock.
 */
#include "lib/grpc_server.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/compression.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdatomic.h>

#include "lib/grpc_channel.h"
#include "lib/grpc_queue.h"
#include "lib/parse.h"
#include "lib/tls_lean.h"

enum {
	ACCEPTS = 32,
	FINISH_MS = 5000,
	SWEEP_MS = 1000,
	KEEPALIVE_TIMEOUT_MS = 20000,
	HANDSHAKE_MS = 60000, /* 5,000 agents may come at once */
	METADATA_MAX = 16 << 10,
	FRAME_MAX = 16384, /* of TLS: see STREAM_SAFE_MESSAGE */
	CONNECTION_STREAMS = 4,
	ARGS_MAX = 20,
	ADDRESS_MAX = PARSE_HOST_MAX + 16,
	STATUS_TEXT_MAX = 512,
};

struct accept {
	struct grpc_tag tag;
	struct stream_server *server;
	grpc_call *call;
	grpc_call_details details;
	grpc_metadata_array metadata;
};

struct server_stream {
	struct stream_server *server;
	struct server_stream *prev, *next; /* server->streams */
	grpc_call *call;
	void *arg; /* NULL: nobody listens */
	struct grpc_tag close, receive, send, finish;
	unsigned int pending;
	bool has_headers; /* ours are out */
	bool receiving, sending;
	bool finishing; /* an end is due: nothing more is told but that */
	bool has_finish;
	bool closed; /* the core says that the call is over */
	int cancelled;
	int status;
	char *message;
	uint64_t cut_ms; /* loop time when it is cut off; 0: not due */
	grpc_byte_buffer *body;
};

struct stream_server {
	struct grpc_queue queue;
	struct stream_server_events events;
	struct stream_server_counts counts;
	const char *method;
	size_t max_streams;
	grpc_server *core;
	int port;
	struct accept accepts[ACCEPTS];
	struct server_stream *streams;
	struct grpc_tag shutdown;
	uv_timer_t sweep;
	pthread_mutex_t lock; /* of the next two: the core's threads read them */
	char *cert_pem, *key_pem;
	uint64_t certificate_number, fetched_number;
	unsigned int open_handles;
};

/* ---- ending ---------------------------------------------------------------------------------- */

static bool start(struct server_stream *s, grpc_op *ops, size_t n, struct grpc_tag *tag)
{
	grpc_queue_hand_over(&s->server->queue);
	if (grpc_call_start_batch(s->call, ops, n, tag, NULL) != GRPC_CALL_OK)
		return false;
	s->pending++;
	return true;
}

static void stream_unlink(struct server_stream *s)
{
	if (s->prev)
		s->prev->next = s->next;
	else
		s->server->streams = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->server->counts.open--;
}

static void stream_free(struct server_stream *s)
{
	if (s->body)
		grpc_byte_buffer_destroy(s->body);
	if (s->call)
		grpc_call_unref(s->call);
	free(s->message);
	free(s);
}

/* A batch is back: after the last one the call may go. */
static void batch_back(struct server_stream *s)
{
	if (s->pending || !s->closed)
		return;
	stream_unlink(s);
	if (s->arg)
		s->server->events.closed(s->arg);
	stream_free(s);
}

static void cut_off(struct server_stream *s)
{
	s->cut_ms = 0;
	s->server->counts.cut++;
	grpc_call_cancel(s->call, NULL);
}

static void start_finish(struct server_stream *s)
{
	grpc_slice words = grpc_slice_from_copied_string(s->message ? s->message : "");
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
	size_t n = s->has_headers ? 0 : 1;

	ops[n++] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
			     .data.send_status_from_server = {.status = (grpc_status_code)s->status,
							      .status_details = &words}};
	s->has_headers = s->has_finish = true;
	if (!start(s, ops, n, &s->finish))
		cut_off(s);
	grpc_slice_unref(words);
}

void server_stream_finish(struct server_stream *s, int status, const char *message)
{
	if (s->finishing)
		return;
	s->finishing = true;
	s->status = status;
	s->message = strndup(message, STATUS_TEXT_MAX);
	if (s->closed)
		return;
	s->cut_ms = uv_now(s->server->sweep.loop) + FINISH_MS;
	if (!s->sending)
		start_finish(s);
}

bool server_stream_finishing(const struct server_stream *s)
{
	return s->finishing;
}

/* ---- messages -------------------------------------------------------------------------------- */

/*
 * What is sent may be secret: it is wiped when the core, on any of its threads, is done with it.
 * The core orders that after what was written here, and `len` says so to those who cannot see into
 * it.
 */
struct sent {
	_Atomic size_t len; /* stored last, loaded first */
	uint8_t bytes[];
};

static void wipe_sent(void *arg)
{
	struct sent *m = arg;

	explicit_bzero(m->bytes, atomic_load_explicit(&m->len, memory_order_acquire));
	free(m);
}

static grpc_byte_buffer *make_message(const void *data, size_t len)
{
	struct sent *m = malloc(sizeof(*m) + len);
	grpc_byte_buffer *message;
	grpc_slice bytes;

	if (!m)
		return NULL;
	memcpy(m->bytes, data, len);
	atomic_store_explicit(&m->len, len, memory_order_release);
	bytes = grpc_slice_new_with_user_data(m->bytes, len, wipe_sent, m);
	message = grpc_raw_byte_buffer_create(&bytes, 1);
	grpc_slice_unref(bytes);
	return message;
}

int server_stream_send(struct server_stream *s, const void *data, size_t len)
{
	grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
	size_t n = s->has_headers ? 0 : 1;
	grpc_byte_buffer *message;
	bool good;

	if (s->finishing || s->closed)
		return -ENOTCONN;
	if (s->sending)
		return -EBUSY;
	message = make_message(data, len);
	if (!message)
		return -ENOMEM;
	ops[n++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message};
	good = start(s, ops, n, &s->send);
	grpc_byte_buffer_destroy(message);
	if (!good)
		return -ENOTCONN;
	s->has_headers = s->sending = true;
	return 0;
}

void server_stream_read(struct server_stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->body};

	if (s->receiving || s->finishing || s->closed)
		return;
	s->receiving = start(s, &op, 1, &s->receive);
}

static void on_sent(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, send);

	s->pending--;
	s->sending = false;
	if (s->finishing && !s->has_finish && !s->closed)
		start_finish(s);
	else if (tag->ok && !s->finishing && !s->closed)
		s->server->events.sent(s->arg);
	batch_back(s);
}

static void deliver(struct server_stream *s, grpc_byte_buffer *body)
{
	grpc_byte_buffer_reader reader;
	grpc_slice bytes;

	/* Our core does not expand messages, so that a small one cannot become a large one. */
	if (body->type != GRPC_BB_RAW || body->data.raw.compression != GRPC_COMPRESS_NONE) {
		server_stream_finish(s, RPC_UNIMPLEMENTED, "compressed messages are not taken");
		return;
	}
	if (!grpc_byte_buffer_reader_init(&reader, body))
		return;
	bytes = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	s->server->events.received(s->arg, GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes));
	grpc_slice_unref(bytes);
}

static void on_received(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, receive);
	grpc_byte_buffer *body = TAKE_PTR(s->body);

	s->pending--;
	s->receiving = false;
	if (!s->finishing && !s->closed) {
		if (body)
			deliver(s, body);
		else
			s->server->events.received(s->arg, NULL, 0);
	}
	if (body)
		grpc_byte_buffer_destroy(body);
	batch_back(s);
}

static void on_finished(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, finish);

	s->pending--;
	batch_back(s);
}

static void on_close(struct grpc_tag *tag)
{
	struct server_stream *s = container_of(tag, struct server_stream, close);

	s->pending--;
	s->closed = true;
	s->cut_ms = 0;
	/* What is still under way would wait for a peer that is gone. */
	if (s->pending)
		grpc_call_cancel(s->call, NULL);
	batch_back(s);
}

static void on_sweep(uv_timer_t *timer)
{
	struct stream_server *server = container_of(timer, struct stream_server, sweep);
	uint64_t now = uv_now(timer->loop);
	struct server_stream *s;

	for (s = server->streams; s; s = s->next)
		if (s->cut_ms && s->cut_ms <= now)
			cut_off(s);
}

/* ---- new streams ----------------------------------------------------------------------------- */

static void on_accept(struct grpc_tag *tag);

static bool arm(struct accept *a)
{
	grpc_call_details_init(&a->details);
	grpc_metadata_array_init(&a->metadata);
	a->call = NULL;
	a->tag.done = on_accept;
	grpc_queue_hand_over(&a->server->queue);
	return grpc_server_request_call(a->server->core, &a->call, &a->details, &a->metadata,
					a->server->queue.cq, a->server->queue.cq,
					&a->tag) == GRPC_CALL_OK;
}

static void disarm(grpc_call_details *details, grpc_metadata_array *metadata)
{
	grpc_call_details_destroy(details);
	grpc_metadata_array_destroy(metadata);
}

/* The caller frees; NULL when absent, twice there, or out of memory. */
static char *find_authorization(const grpc_metadata_array *metadata)
{
	const grpc_slice *found = NULL;

	for (size_t i = 0; i < metadata->count; i++) {
		if (grpc_slice_str_cmp(metadata->metadata[i].key, "authorization"))
			continue;
		if (found)
			return NULL;
		found = &metadata->metadata[i].value;
	}
	return found
		   ? strndup((const char *)GRPC_SLICE_START_PTR(*found), GRPC_SLICE_LENGTH(*found))
		   : NULL;
}

static void open_stream(struct server_stream *s, const grpc_metadata_array *metadata, bool known)
{
	struct stream_server *server = s->server;
	char *authorization, *peer;

	if (!known) {
		server->counts.unknown_method++;
		server_stream_finish(s, RPC_UNIMPLEMENTED, "no such method");
		return;
	}
	if (server->counts.open > server->max_streams) {
		server->counts.refused++;
		server_stream_finish(s, RPC_RESOURCE_EXHAUSTED, "too many streams");
		return;
	}
	server->counts.opened++;
	authorization = find_authorization(metadata);
	peer = grpc_call_get_peer(s->call);
	s->arg = server->events.opened(server->events.arg, s, authorization ? authorization : "",
				       peer ? peer : "");
	if (authorization)
		explicit_bzero(authorization, strlen(authorization));
	free(authorization);
	gpr_free(peer);
	if (!s->arg)
		server_stream_finish(s, RPC_UNAVAILABLE, "out of memory");
}

static void adopt(struct stream_server *server, grpc_call *call,
		  const grpc_metadata_array *metadata, bool known)
{
	struct server_stream *s = calloc(1, sizeof(*s));
	grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

	if (!s) {
		grpc_call_cancel(call, NULL);
		grpc_call_unref(call);
		return;
	}
	*s = (struct server_stream){.server = server,
				    .call = call,
				    .close = {.done = on_close},
				    .receive = {.done = on_received},
				    .send = {.done = on_sent},
				    .finish = {.done = on_finished}};
	op.data.recv_close_on_server.cancelled = &s->cancelled;
	s->next = server->streams;
	if (s->next)
		s->next->prev = s;
	server->streams = s;
	server->counts.open++;
	if (start(s, &op, 1, &s->close)) {
		open_stream(s, metadata, known);
		return;
	}
	stream_unlink(s);
	stream_free(s);
}

static void on_accept(struct grpc_tag *tag)
{
	struct accept *a = container_of(tag, struct accept, tag);
	struct stream_server *server = a->server;
	grpc_call_details details = a->details;
	grpc_metadata_array metadata = a->metadata;
	grpc_call *call = a->call;
	bool known;

	if (!tag->ok) { /* the server ends */
		disarm(&a->details, &a->metadata);
		a->server = NULL;
		return;
	}
	known = !grpc_slice_str_cmp(details.method, server->method);
	if (!arm(a)) {
		disarm(&a->details, &a->metadata);
		a->server = NULL;
	}
	adopt(server, call, &metadata, known);
	disarm(&details, &metadata);
}

/* ---- certificate ----------------------------------------------------------------------------- */

static grpc_ssl_server_certificate_config *certificate_config(const char *cert, const char *key)
{
	grpc_ssl_pem_key_cert_pair pair = {.private_key = key, .cert_chain = cert};

	/* Roots for clients' certificates, which are not asked for: 1.51 aborts without any. */
	return grpc_ssl_server_certificate_config_create(cert, &pair, 1);
}

/* On any of the core's threads. */
static grpc_ssl_certificate_config_reload_status
fetch_certificate(void *arg, grpc_ssl_server_certificate_config **ret)
{
	grpc_ssl_certificate_config_reload_status status =
	    GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
	struct stream_server *server = arg;

	pthread_mutex_lock(&server->lock);
	if (server->fetched_number != server->certificate_number) {
		server->fetched_number = server->certificate_number;
		*ret = certificate_config(server->cert_pem, server->key_pem);
		status = GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
	}
	pthread_mutex_unlock(&server->lock);
	return status;
}

static void wipe(char *secret)
{
	if (secret)
		explicit_bzero(secret, strlen(secret));
	free(secret);
}

/* The core would refuse them at each handshake only. */
static bool pair_usable(const char *cert_pem, const char *key_pem)
{
	BIO *cert_bio = BIO_new_mem_buf(cert_pem, -1), *key_bio = BIO_new_mem_buf(key_pem, -1);
	X509 *cert = cert_bio ? PEM_read_bio_X509(cert_bio, NULL, NULL, NULL) : NULL;
	EVP_PKEY *key = key_bio ? PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL) : NULL;
	bool good = cert && key && X509_check_private_key(cert, key) == 1;

	EVP_PKEY_free(key);
	X509_free(cert);
	BIO_free(key_bio);
	BIO_free(cert_bio);
	ERR_clear_error();
	return good;
}

int stream_server_certificate(struct stream_server *server, const char *cert_pem,
			      const char *key_pem, struct error *err)
{
	_cleanup_free_ char *cert = strdup(cert_pem), *key = strdup(key_pem);

	if (!cert || !key)
		return error_set(err, -ENOMEM, "out of memory");
	if (!pair_usable(cert, key))
		return error_set(err, -EINVAL, "certificate and key cannot be used");
	pthread_mutex_lock(&server->lock);
	wipe(server->key_pem);
	free(server->cert_pem);
	server->cert_pem = TAKE_PTR(cert);
	server->key_pem = TAKE_PTR(key);
	server->certificate_number++;
	pthread_mutex_unlock(&server->lock);
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static grpc_arg arg_int(const char *key, uint64_t value)
{
	return (grpc_arg){.type = GRPC_ARG_INTEGER,
			  .key = (char *)key,
			  .value = {.integer = (int)MIN(value, (uint64_t)INT32_MAX)}};
}

static grpc_server *create_core(const struct stream_server_options *o)
{
	grpc_arg args[] = {
	    arg_int(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, o->max_message),
	    arg_int(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, INT32_MAX),
	    arg_int(GRPC_ARG_MAX_CONCURRENT_STREAMS, CONNECTION_STREAMS),
	    arg_int(GRPC_ARG_MAX_METADATA_SIZE, METADATA_MAX),
	    arg_int(GRPC_ARG_MAX_CONNECTION_IDLE_MS, o->idle_ms),
	    arg_int(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, HANDSHAKE_MS),
	    arg_int(GRPC_ARG_KEEPALIVE_TIME_MS, o->keepalive_ms),
	    arg_int(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS),
	    arg_int(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, o->ping_min_ms),
	    arg_int(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
	    arg_int(GRPC_ARG_HTTP2_BDP_PROBE, 0),
	    arg_int(GRPC_ARG_TSI_MAX_FRAME_SIZE, FRAME_MAX),
	    /* A message is sent once it is on its way, not when it is one more in memory. */
	    arg_int(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 1),
	    arg_int(GRPC_ARG_ENABLE_CHANNELZ, 0),
	    arg_int(GRPC_ARG_ALLOW_REUSEPORT, 0),
	    arg_int(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
	};
	grpc_channel_args all = {.num_args = ARRAY_SIZE(args), .args = args};

	return grpc_server_create(&all, NULL);
}

static int listen_on(struct stream_server *server, const struct stream_server_options *o,
		     struct error *err)
{
	grpc_server_credentials *credentials;
	char address[ADDRESS_MAX];
	int r = 0;

	if (strlen(o->address) + sizeof("[::]") > sizeof(address) || !strchr(o->address, ':'))
		return error_set(err, -EINVAL, "want host:port, got %s", o->address);
	snprintf(address, sizeof(address), "%s%s", o->address[0] == ':' ? "[::]" : "", o->address);
	if (o->cert_pem)
		r = stream_server_certificate(server, o->cert_pem, o->key_pem, err);
	if (r < 0)
		return r;
	credentials =
	    o->cert_pem
		? grpc_ssl_server_credentials_create_with_options(
		      grpc_ssl_server_credentials_create_options_using_config_fetcher(
			  GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, fetch_certificate, server))
		: grpc_insecure_server_credentials_create();
	if (!credentials)
		return error_set(err, -ENOMEM, "out of memory");
	server->port = grpc_server_add_http2_port(server->core, address, credentials);
	grpc_server_credentials_release(credentials);
	if (server->port <= 0)
		return error_set(err, -EADDRINUSE, "cannot listen on %s", o->address);
	return 0;
}

static void memory_free(struct stream_server *server)
{
	pthread_mutex_destroy(&server->lock);
	wipe(server->key_pem);
	free(server->cert_pem);
	free(server);
	grpc_library_unref();
}

static void handle_gone(struct stream_server *server)
{
	if (!--server->open_handles)
		memory_free(server);
}

static void on_queue_closed(struct grpc_queue *q)
{
	handle_gone(container_of(q, struct stream_server, queue));
}

static void on_sweep_closed(uv_handle_t *handle)
{
	handle_gone(container_of((uv_timer_t *)handle, struct stream_server, sweep));
}

static void ignore(struct grpc_tag *tag)
{
}

/* Everything but the memory, which goes with the handles. */
static void close_core(struct stream_server *server)
{
	struct server_stream *s, *next;

	if (server->core) {
		server->shutdown.done = ignore;
		grpc_server_shutdown_and_notify(server->core, server->queue.cq, &server->shutdown);
		grpc_server_cancel_all_calls(server->core);
	}
	grpc_queue_stop(&server->queue);
	for (s = server->streams; s; s = next) {
		next = s->next;
		stream_free(s);
	}
	server->streams = NULL;
	for (size_t i = 0; i < ACCEPTS; i++) {
		if (!server->accepts[i].server)
			continue;
		if (server->accepts[i].call)
			grpc_call_unref(server->accepts[i].call);
		disarm(&server->accepts[i].details, &server->accepts[i].metadata);
	}
	if (server->core)
		grpc_server_destroy(server->core);
	server->open_handles = 2;
	grpc_queue_close(&server->queue, on_queue_closed);
	uv_close((uv_handle_t *)&server->sweep, on_sweep_closed);
}

static int start_core(struct stream_server *server, const struct stream_server_options *o,
		      struct error *err)
{
	int r = grpc_queue_add_thread(&server->queue, err);

	if (r < 0)
		return r;
	server->core = create_core(o);
	grpc_server_register_completion_queue(server->core, server->queue.cq, NULL);
	r = listen_on(server, o, err);
	if (r < 0)
		return r;
	grpc_server_start(server->core);
	for (size_t i = 0; i < ACCEPTS; i++) {
		server->accepts[i].server = server;
		if (!arm(&server->accepts[i]))
			return error_set(err, -EIO, "the gRPC library takes no calls");
	}
	grpc_queue_hold(&server->queue);
	r = uv_timer_start(&server->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
	uv_unref((uv_handle_t *)&server->sweep);
	return r < 0 ? error_set(err, r, "timer: %s", uv_strerror(r)) : 0;
}

int stream_server_new(const struct stream_server_options *o,
		      const struct stream_server_events *events, uv_loop_t *loop,
		      struct stream_server **ret, struct error *err)
{
	struct stream_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return error_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&server->lock, NULL);
	server->events = *events;
	server->method = o->method;
	server->max_streams = o->max_streams;
	grpc_library_ref();
	r = grpc_queue_init(&server->queue, loop, err);
	if (r < 0) {
		memory_free(server);
		return r;
	}
	(void)uv_timer_init(loop, &server->sweep);
	r = start_core(server, o, err);
	if (r < 0) {
		close_core(server);
		return r;
	}
	*ret = server;
	return 0;
}

struct stream_server *stream_server_free(struct stream_server *server)
{
	if (server)
		close_core(server);
	return NULL;
}

int stream_server_port(const struct stream_server *server)
{
	return server->port;
}

void stream_server_read(const struct stream_server *server, struct stream_server_counts *ret)
{
	*ret = server->counts;
	ret->lean = tls_lean_contexts();
}
