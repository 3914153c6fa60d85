/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake server. A tag is a kind and a call; calls are kept until the server stops, so that tests
 * may look at them afterwards. Everything runs inside fake_pump() and fake_server_stop().
 */
#include "tests/support/grpc_fake.h"

#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

enum tag_kind { TAG_ACCEPT, TAG_HEADERS, TAG_READ, TAG_WRITE, TAG_STATUS, TAG_CLOSED, TAG_KINDS };

struct tag {
	enum tag_kind kind;
	struct slot *slot;
};

struct slot {
	struct fake_call call;
	struct tag tags[TAG_KINDS];
	grpc_call_details details;
	grpc_metadata_array metadata;
};

struct fake_server {
	struct fake_options options;
	grpc_server *server;
	grpc_completion_queue *cq;
	int port;
	bool stopping;
	struct slot *slots[FAKE_CALLS];
	size_t n; /* the last one waits for a call */
};

static void accept_next(struct fake_server *s)
{
	struct slot *slot;
	int i;

	if (s->n == FAKE_CALLS || s->stopping)
		return;
	slot = calloc(1, sizeof(*slot));
	for (i = 0; i < TAG_KINDS; i++)
		slot->tags[i] = (struct tag){.kind = (enum tag_kind)i, .slot = slot};
	slot->call.server = s;
	grpc_call_details_init(&slot->details);
	grpc_metadata_array_init(&slot->metadata);
	s->slots[s->n++] = slot;
	grpc_server_request_call(s->server, &slot->call.call, &slot->details, &slot->metadata,
				 s->cq, s->cq, &slot->tags[TAG_ACCEPT]);
}

static void batch(struct slot *slot, const grpc_op *op, enum tag_kind kind)
{
	if (slot->call.server->stopping)
		return;
	if (grpc_call_start_batch(slot->call.call, op, 1, &slot->tags[kind], NULL) != GRPC_CALL_OK)
		abort();
	slot->call.pending++;
}

static void read_next(struct slot *slot)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE,
		      .data.recv_message.recv_message = &slot->call.received};

	if (!slot->call.server->options.read_nothing)
		batch(slot, &op, TAG_READ);
}

static void send_next(struct slot *slot)
{
	struct fake_call *c = &slot->call;
	grpc_op op = {0};
	grpc_slice slice;

	if (c->sending || c->ended)
		return;
	if (c->sent < c->queued) {
		slice = grpc_slice_from_copied_buffer((char *)c->queue[c->sent].data,
						      c->queue[c->sent].len);
		op.op = GRPC_OP_SEND_MESSAGE;
		op.data.send_message.send_message = grpc_raw_byte_buffer_create(&slice, 1);
		c->sending = true;
		c->sent++;
		batch(slot, &op, TAG_WRITE);
		grpc_byte_buffer_destroy(op.data.send_message.send_message);
		grpc_slice_unref(slice);
	} else if (c->finish) {
		slice = grpc_slice_from_static_string(c->status_message);
		op.op = GRPC_OP_SEND_STATUS_FROM_SERVER;
		op.data.send_status_from_server.status = (grpc_status_code)c->status;
		op.data.send_status_from_server.status_details = &slice;
		c->finish = false;
		c->sending = true;
		batch(slot, &op, TAG_STATUS);
	}
}

static void copy_slice(grpc_slice slice, char *out, size_t size)
{
	snprintf(out, size, "%.*s", (int)GRPC_SLICE_LENGTH(slice),
		 (const char *)GRPC_SLICE_START_PTR(slice));
}

static void accepted(struct slot *slot)
{
	grpc_op headers = {.op = GRPC_OP_SEND_INITIAL_METADATA};
	grpc_op closed = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
			  .data.recv_close_on_server.cancelled = &slot->call.was_cancelled};
	struct fake_server *s = slot->call.server;
	size_t i;

	copy_slice(slot->details.method, slot->call.method, sizeof(slot->call.method));
	for (i = 0; i < slot->metadata.count; i++) {
		if (grpc_slice_str_cmp(slot->metadata.metadata[i].key, "authorization") == 0)
			copy_slice(slot->metadata.metadata[i].value, slot->call.authorization,
				   sizeof(slot->call.authorization));
	}
	slot->call.sending = true;
	batch(slot, &headers, TAG_HEADERS);
	batch(slot, &closed, TAG_CLOSED);
	read_next(slot);
	if (s->options.refuse_status)
		fake_finish(&slot->call, s->options.refuse_status, "not with this token");
	accept_next(s);
}

static void keep_message(struct fake_call *c)
{
	grpc_byte_buffer_reader reader;
	struct fake_message *m;
	grpc_slice slice;

	if (c->n_messages == FAKE_MESSAGES || !grpc_byte_buffer_reader_init(&reader, c->received))
		return;
	slice = grpc_byte_buffer_reader_readall(&reader);
	grpc_byte_buffer_reader_destroy(&reader);
	m = &c->messages[c->n_messages++];
	m->len = GRPC_SLICE_LENGTH(slice);
	m->data = malloc(m->len + 1);
	memcpy(m->data, GRPC_SLICE_START_PTR(slice), m->len);
	grpc_slice_unref(slice);
}

static void handle(grpc_event event)
{
	struct tag *tag = event.tag;
	struct slot *slot = tag->slot;
	struct fake_call *c = &slot->call;
	bool had;

	if (tag->kind == TAG_ACCEPT) {
		if (event.success)
			accepted(slot);
		return;
	}
	c->pending--;
	if (tag->kind == TAG_READ) {
		had = c->received != NULL;
		if (had) {
			keep_message(c);
			grpc_byte_buffer_destroy(c->received);
			c->received = NULL;
			read_next(slot);
		}
		return;
	}
	if (tag->kind == TAG_CLOSED) {
		c->ended = true;
		return;
	}
	c->sending = false;
	if (event.success)
		send_next(slot);
}

int fake_server_start(const struct fake_options *o, struct fake_server **ret)
{
	struct fake_server *s = calloc(1, sizeof(*s));
	grpc_ssl_pem_key_cert_pair pair = {.private_key = o->key_pem, .cert_chain = o->cert_pem};
	/* Messages of any size go out: what the client allows is what is tested. */
	grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char *)GRPC_ARG_ALLOW_REUSEPORT};
	grpc_channel_args args = {.num_args = 1, .args = &arg};
	grpc_server_credentials *credentials;
	char address[32];

	grpc_init();
	s->options = *o;
	s->cq = grpc_completion_queue_create_for_next(NULL);
	s->server = grpc_server_create(&args, NULL);
	grpc_server_register_completion_queue(s->server, s->cq, NULL);
	credentials = o->cert_pem
			  ? grpc_ssl_server_credentials_create_ex(
				NULL, &pair, 1, GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE, NULL)
			  : grpc_insecure_server_credentials_create();
	snprintf(address, sizeof(address), "127.0.0.1:%d", o->port);
	s->port = grpc_server_add_http2_port(s->server, address, credentials);
	grpc_server_credentials_release(credentials);
	grpc_server_start(s->server);
	accept_next(s);
	*ret = s;
	return s->port > 0 ? 0 : -EADDRINUSE;
}

static void slot_free(struct slot *slot)
{
	struct fake_call *c = &slot->call;
	size_t i;

	for (i = 0; i < c->n_messages; i++)
		free(c->messages[i].data);
	for (i = 0; i < c->queued; i++)
		free(c->queue[i].data);
	if (c->received)
		grpc_byte_buffer_destroy(c->received);
	if (c->call)
		grpc_call_unref(c->call);
	grpc_call_details_destroy(&slot->details);
	grpc_metadata_array_destroy(&slot->metadata);
	free(slot);
}

struct fake_server *fake_server_stop(struct fake_server *s)
{
	static struct tag down = {.kind = TAG_KINDS};
	grpc_event event;
	size_t i, pending;
	bool is_down = false;

	if (!s)
		return NULL;
	s->stopping = true;
	grpc_server_shutdown_and_notify(s->server, s->cq, &down);
	grpc_server_cancel_all_calls(s->server);
	do {
		event = grpc_completion_queue_next(s->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
		if (event.tag == &down)
			is_down = true;
		else
			handle(event);
		for (i = 0, pending = 0; i < s->n; i++)
			pending += s->slots[i]->call.pending;
	} while (!is_down || pending);
	for (i = 0; i < s->n; i++)
		slot_free(s->slots[i]);
	grpc_server_destroy(s->server);
	grpc_completion_queue_shutdown(s->cq);
	while (grpc_completion_queue_next(s->cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).type !=
	       GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(s->cq);
	free(s);
	grpc_shutdown();
	return NULL;
}

int fake_server_port(const struct fake_server *s)
{
	return s->port;
}

size_t fake_server_calls(const struct fake_server *s)
{
	return s->n && !*s->slots[s->n - 1]->call.method ? s->n - 1 : s->n;
}

struct fake_call *fake_server_call(struct fake_server *s, size_t i)
{
	return i < fake_server_calls(s) ? &s->slots[i]->call : NULL;
}

void fake_send(struct fake_call *c, const void *data, size_t len)
{
	struct fake_message *m;

	if (c->queued == FAKE_MESSAGES)
		abort();
	m = &c->queue[c->queued++];
	m->data = malloc(len + 1);
	memcpy(m->data, data, len);
	m->len = len;
	send_next(container_of(c, struct slot, call));
}

void fake_finish(struct fake_call *c, int status, const char *message)
{
	c->finish = true;
	c->status = status;
	snprintf(c->status_message, sizeof(c->status_message), "%s", message);
	send_next(container_of(c, struct slot, call));
}

static void nothing(uv_timer_t *timer)
{
}

bool fake_pump(struct fake_server *s, uv_loop_t *loop, bool (*cond)(void *), void *arg,
	       unsigned int seconds)
{
	uint64_t end = uv_hrtime() + seconds * UINT64_C(1000000000);
	uv_timer_t alive;
	grpc_event event;
	bool met;

	uv_timer_init(loop, &alive);
	uv_timer_start(&alive, nothing, 1, 1);
	while (!(met = cond(arg)) && uv_hrtime() < end) {
		uv_run(loop, s ? UV_RUN_NOWAIT : UV_RUN_ONCE);
		if (!s)
			continue;
		event =
		    grpc_completion_queue_next(s->cq,
					       gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
							    gpr_time_from_millis(1, GPR_TIMESPAN)),
					       NULL);
		if (event.type == GRPC_OP_COMPLETE)
			handle(event);
	}
	uv_close((uv_handle_t *)&alive, NULL);
	while (uv_is_active((uv_handle_t *)&alive))
		uv_run(loop, UV_RUN_NOWAIT);
	uv_run(loop, UV_RUN_NOWAIT); /* the handle is on this stack */
	return met;
}

/* ---- certificates ---------------------------------------------------------------------------- */

static char *pem_of(X509 *cert, EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data, *out;
	long len;

	if (cert)
		PEM_write_bio_X509(bio, cert);
	else
		PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	len = BIO_get_mem_data(bio, &data);
	out = strndup(data, (size_t)len);
	BIO_free(bio);
	return out;
}

static X509 *certificate(const char *subject, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
			 int ext, const char *ext_value, long serial)
{
	X509 *cert = X509_new();
	X509_NAME *name = X509_get_subject_name(cert);
	X509_EXTENSION *extension;
	X509V3_CTX ctx;

	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), serial);
	X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)subject, -1, -1,
				   0);
	X509_set_issuer_name(cert, X509_get_subject_name(issuer ? issuer : cert));
	X509_set_pubkey(cert, key);
	X509V3_set_ctx(&ctx, issuer ? issuer : cert, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, ext, ext_value);
	X509_add_ext(cert, extension, -1);
	X509_EXTENSION_free(extension);
	X509_sign(cert, issuer_key, EVP_sha256());
	return cert;
}

int fake_pki_make(const char *name, struct fake_pki *ret)
{
	static long serial = 1;
	EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256");
	char ca_name[64], san[128];
	X509 *ca, *cert;

	snprintf(ca_name, sizeof(ca_name), "test CA %ld", serial);
	snprintf(san, sizeof(san), "DNS:%s", name);
	ca = certificate(ca_name, ca_key, NULL, ca_key, NID_basic_constraints, "critical,CA:TRUE",
			 serial++);
	cert = certificate(name, key, ca, ca_key, NID_subject_alt_name, san, serial++);
	ret->ca_pem = pem_of(ca, NULL);
	ret->cert_pem = pem_of(cert, NULL);
	ret->key_pem = pem_of(NULL, key);
	X509_free(ca);
	X509_free(cert);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
	return ret->ca_pem && ret->cert_pem && ret->key_pem ? 0 : -ENOMEM;
}

void fake_pki_done(struct fake_pki *p)
{
	free(p->ca_pem);
	free(p->cert_pem);
	free(p->key_pem);
	*p = (struct fake_pki){0};
}
