/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake server. Calls are kept until the server stops, so that tests may look at them
 * afterwards. Everything runs inside fake_pump(), fake_send() and fake_finish().
 */
#include "tests/support/grpc_fake.h"

#include <arpa/inet.h>
#include <nghttp2/nghttp2.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

enum { CONNECTIONS = 32, PREFIX = 5 };

struct fake_connection {
	struct fake_server *server;
	int fd; /* -1: over */
	SSL *ssl;
	bool shaken;
	nghttp2_session *session;
};

struct fake_server {
	struct fake_options options;
	int fd, port;
	char name[128]; /* SNI */
	SSL_CTX *context;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct fake_connection connections[CONNECTIONS];
	size_t n_connections;
	struct fake_call *calls[FAKE_CALLS];
	size_t n;
};

static nghttp2_nv field(const char *name, const char *value)
{
	return (nghttp2_nv){.name = (uint8_t *)name,
			    .value = (uint8_t *)value,
			    .namelen = strlen(name),
			    .valuelen = strlen(value)};
}

static struct fake_call *call_of(const struct fake_connection *c, int32_t id)
{
	for (size_t i = 0; i < c->server->n; i++)
		if (c->server->calls[i]->connection == c && c->server->calls[i]->id == id)
			return c->server->calls[i];
	return NULL;
}

/* ---- sending -----------------------------------------------------------------------------------
 */

static int send_status(struct fake_call *c)
{
	char status[16];
	nghttp2_nv fields[2];

	snprintf(status, sizeof(status), "%d", c->status);
	fields[0] = field("grpc-status", status);
	fields[1] = field("grpc-message", c->status_message);
	return nghttp2_submit_trailer(c->connection->session, c->id, fields, 2);
}

static ssize_t next_data(nghttp2_session *session, int32_t id, uint8_t *out, size_t max,
			 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct fake_call *c = call_of(arg, id);
	struct fake_message *m = &c->queue[c->sent];
	size_t n;

	if (c->sent < c->queued) {
		n = MIN(max, m->len - c->sent_at);
		memcpy(out, m->data + c->sent_at, n);
		c->sent_at += n;
		if (c->sent_at == m->len) {
			c->sent++;
			c->sent_at = 0;
		}
		return (ssize_t)n;
	}
	if (!c->finish)
		return NGHTTP2_ERR_DEFERRED;
	*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
	return send_status(c) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static void resume(struct fake_call *c)
{
	if (c->connection)
		(void)nghttp2_session_resume_data(c->connection->session, c->id);
}

void fake_send(struct fake_call *c, const void *data, size_t len)
{
	struct fake_message *m = &c->queue[c->queued];

	if (c->queued == FAKE_MESSAGES)
		abort();
	c->queued++;
	m->len = PREFIX + len;
	m->data = malloc(m->len);
	m->data[0] = 0;
	for (size_t i = 0; i < 4; i++)
		m->data[1 + i] = (uint8_t)(len >> (24 - 8 * i));
	memcpy(m->data + PREFIX, data, len);
	resume(c);
}

void fake_finish(struct fake_call *c, int status, const char *message)
{
	c->finish = true;
	c->status = status;
	snprintf(c->status_message, sizeof(c->status_message), "%s", message);
	resume(c);
}

/* ---- receiving ---------------------------------------------------------------------------------
 */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct fake_connection *c = arg;
	struct fake_server *s = c->server;
	struct fake_call *call;

	if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (s->n == FAKE_CALLS)
		abort();
	call = calloc(1, sizeof(*call));
	call->server = s;
	call->connection = c;
	call->id = frame->hd.stream_id;
	s->calls[s->n++] = call;
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
		     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
	struct fake_call *call = call_of(arg, frame->hd.stream_id);

	if (!strcmp((const char *)name, ":path"))
		snprintf(call->method, sizeof(call->method), "%s", (const char *)value);
	if (!strcmp((const char *)name, ":authority"))
		snprintf(call->authority, sizeof(call->authority), "%s", (const char *)value);
	if (!strcmp((const char *)name, "authorization"))
		snprintf(call->authorization, sizeof(call->authorization), "%s",
			 (const char *)value);
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	const nghttp2_nv fields[] = {field(":status", "200"),
				     field("content-type", "application/grpc")};
	const nghttp2_data_provider data = {.read_callback = next_data};
	struct fake_connection *c = arg;
	int status = c->server->options.refuse_status;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (nghttp2_submit_response(session, frame->hd.stream_id, fields, 2, &data) < 0)
		abort();
	if (status)
		fake_finish(call_of(c, frame->hd.stream_id), status, "not with this token");
	return 0;
}

static void keep_message(struct fake_call *c, size_t len)
{
	struct fake_message *m = &c->messages[c->n_messages++];

	m->len = len;
	m->data = malloc(len + 1);
	memcpy(m->data, c->in + PREFIX, len);
	c->in_len -= PREFIX + len;
	memmove(c->in, c->in + PREFIX + len, c->in_len);
}

static void keep_messages(struct fake_call *c)
{
	while (c->in_len >= PREFIX && c->n_messages < FAKE_MESSAGES) {
		size_t len = (size_t)c->in[1] << 24 | (size_t)c->in[2] << 16 |
			     (size_t)c->in[3] << 8 | c->in[4];

		if (c->in_len < PREFIX + len)
			break;
		keep_message(c, len);
	}
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
		   size_t len, void *arg)
{
	struct fake_connection *connection = arg;
	struct fake_call *c = call_of(connection, id);

	if (connection->server->options.read_nothing)
		return 0;
	c->in = realloc(c->in, c->in_len + len);
	memcpy(c->in + c->in_len, bytes, len);
	c->in_len += len;
	keep_messages(c);
	return nghttp2_session_consume(session, id, len) < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_stream_closed(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
	struct fake_call *c = call_of(arg, id);

	if (c)
		c->ended = true;
	if (c)
		c->connection = NULL;
	return 0;
}

/* ---- connections -------------------------------------------------------------------------------
 */

static ssize_t on_send(nghttp2_session *session, const uint8_t *bytes, size_t len, int flags,
		       void *arg)
{
	struct fake_connection *c = arg;
	ssize_t n = c->ssl ? SSL_write(c->ssl, bytes, (int)len) : write(c->fd, bytes, len);

	if (n > 0)
		return n;
	if (c->ssl ? SSL_get_error(c->ssl, (int)n) == SSL_ERROR_WANT_WRITE : errno == EAGAIN)
		return NGHTTP2_ERR_WOULDBLOCK;
	return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static void connection_end(struct fake_connection *c)
{
	if (c->fd < 0)
		return;
	for (size_t i = 0; i < c->server->n; i++)
		if (c->server->calls[i]->connection == c) {
			c->server->calls[i]->ended = true;
			c->server->calls[i]->connection = NULL;
		}
	nghttp2_session_del(c->session);
	if (c->ssl && c->shaken)
		(void)SSL_shutdown(c->ssl);
	SSL_free(c->ssl);
	close(c->fd);
	c->fd = -1;
}

static void take_connection(struct fake_server *s)
{
	const nghttp2_settings_entry settings = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 100};
	struct fake_connection *c = &s->connections[s->n_connections];
	int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (s->n_connections == CONNECTIONS)
		abort();
	s->n_connections++;
	*c = (struct fake_connection){.server = s, .fd = fd, .shaken = !s->context};
	if (nghttp2_session_server_new2(&c->session, s->callbacks, c, s->option) < 0 ||
	    nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, &settings, 1) < 0)
		abort();
	if (s->context) {
		c->ssl = SSL_new(s->context);
		SSL_set_fd(c->ssl, fd);
		SSL_set_accept_state(c->ssl);
	}
}

static bool would_wait(const struct fake_connection *c, ssize_t n)
{
	int kind;

	if (!c->ssl)
		return n < 0 && errno == EAGAIN;
	kind = SSL_get_error(c->ssl, (int)n);
	return kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE;
}

/* False: the connection has ended. */
static bool serve_connection(struct fake_connection *c)
{
	uint8_t bytes[16384];
	ssize_t n;

	if (!c->shaken) {
		n = SSL_do_handshake(c->ssl);
		if (n != 1)
			return would_wait(c, n);
		c->shaken = true;
	}
	do {
		n = c->ssl ? SSL_read(c->ssl, bytes, sizeof(bytes))
			   : read(c->fd, bytes, sizeof(bytes));
		if (n > 0 && nghttp2_session_mem_recv(c->session, bytes, (size_t)n) < 0)
			return false;
	} while (n > 0);
	if (!would_wait(c, n) || nghttp2_session_send(c->session) < 0)
		return false;
	return nghttp2_session_want_read(c->session) || nghttp2_session_want_write(c->session);
}

static void serve(struct fake_server *s)
{
	struct pollfd fds[CONNECTIONS + 1] = {{.fd = s->fd, .events = POLLIN}};
	size_t i;

	for (i = 0; i < s->n_connections; i++)
		fds[i + 1] = (struct pollfd){.fd = s->connections[i].fd, .events = POLLIN};
	(void)!poll(fds, i + 1, 1);
	take_connection(s);
	for (i = 0; i < s->n_connections; i++)
		if (s->connections[i].fd >= 0 && !serve_connection(&s->connections[i]))
			connection_end(&s->connections[i]);
}

/* ---- life --------------------------------------------------------------------------------------
 */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
			   const unsigned char *in, unsigned int in_len, void *arg)
{
	static const unsigned char h2[] = {2, 'h', '2'};
	unsigned char *chosen;

	if (SSL_select_next_proto(&chosen, out_len, h2, sizeof(h2), in, in_len) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static int keep_name(SSL *ssl, int *alert, void *arg)
{
	struct fake_server *s = arg;
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
	return SSL_TLSEXT_ERR_OK;
}

static void want_client_certificate(struct fake_server *s, const char *ca_pem)
{
	BIO *bio = BIO_new_mem_buf(ca_pem, -1);
	X509 *ca = PEM_read_bio_X509(bio, NULL, NULL, NULL);

	if (X509_STORE_add_cert(SSL_CTX_get_cert_store(s->context), ca) != 1)
		abort();
	SSL_CTX_set_verify(s->context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	X509_free(ca);
	BIO_free(bio);
}

static void use_certificate(struct fake_server *s, const char *cert_pem, const char *key_pem)
{
	BIO *cert_bio = BIO_new_mem_buf(cert_pem, -1), *key_bio = BIO_new_mem_buf(key_pem, -1);
	X509 *cert = PEM_read_bio_X509(cert_bio, NULL, NULL, NULL);
	EVP_PKEY *key = PEM_read_bio_PrivateKey(key_bio, NULL, NULL, NULL);

	s->context = SSL_CTX_new(TLS_server_method());
	if (SSL_CTX_use_certificate(s->context, cert) != 1 ||
	    SSL_CTX_use_PrivateKey(s->context, key) != 1)
		abort();
	if (!s->options.no_alpn)
		SSL_CTX_set_alpn_select_cb(s->context, choose_protocol, NULL);
	SSL_CTX_set_tlsext_servername_callback(s->context, keep_name);
	SSL_CTX_set_tlsext_servername_arg(s->context, s);
	SSL_CTX_set_max_proto_version(s->context, s->options.max_version);
	if (s->options.client_ca_pem)
		want_client_certificate(s, s->options.client_ca_pem);
	SSL_CTX_set_mode(s->context,
			 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	X509_free(cert);
	EVP_PKEY_free(key);
	BIO_free(cert_bio);
	BIO_free(key_bio);
}

static void set_callbacks(struct fake_server *s)
{
	if (nghttp2_session_callbacks_new(&s->callbacks) < 0 || nghttp2_option_new(&s->option) < 0)
		abort();
	nghttp2_option_set_no_auto_window_update(s->option, 1);
	nghttp2_session_callbacks_set_on_begin_headers_callback(s->callbacks, on_begin_headers);
	nghttp2_session_callbacks_set_on_header_callback(s->callbacks, on_header);
	nghttp2_session_callbacks_set_on_frame_recv_callback(s->callbacks, on_frame);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(s->callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(s->callbacks, on_stream_closed);
	nghttp2_session_callbacks_set_send_callback(s->callbacks, on_send);
}

static int listen_on(struct fake_server *s, int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(to);
	int one = 1;

	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	(void)setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(s->fd, (struct sockaddr *)&to, len) < 0 || listen(s->fd, 64) < 0)
		return -errno;
	if (getsockname(s->fd, (struct sockaddr *)&to, &len) < 0)
		return -errno;
	s->port = ntohs(to.sin_port);
	return 0;
}

int fake_server_start(const struct fake_options *o, struct fake_server **ret)
{
	struct fake_server *s = calloc(1, sizeof(*s));

	signal(SIGPIPE, SIG_IGN);
	s->options = *o;
	set_callbacks(s);
	if (o->cert_pem)
		use_certificate(s, o->cert_pem, o->key_pem);
	*ret = s;
	return listen_on(s, o->port);
}

static void call_free(struct fake_call *c)
{
	for (size_t i = 0; i < c->n_messages; i++)
		free(c->messages[i].data);
	for (size_t i = 0; i < c->queued; i++)
		free(c->queue[i].data);
	free(c->in);
	free(c);
}

struct fake_server *fake_server_stop(struct fake_server *s)
{
	if (!s)
		return NULL;
	close(s->fd);
	for (size_t i = 0; i < s->n_connections; i++)
		connection_end(&s->connections[i]);
	for (size_t i = 0; i < s->n; i++)
		call_free(s->calls[i]);
	nghttp2_session_callbacks_del(s->callbacks);
	nghttp2_option_del(s->option);
	SSL_CTX_free(s->context);
	free(s);
	return NULL;
}

const char *fake_server_name(const struct fake_server *s)
{
	return s->name;
}

int fake_server_port(const struct fake_server *s)
{
	return s->port;
}

size_t fake_server_calls(const struct fake_server *s)
{
	return s->n;
}

struct fake_call *fake_server_call(struct fake_server *s, size_t i)
{
	return i < s->n ? s->calls[i] : NULL;
}

static void nothing(uv_timer_t *timer)
{
}

bool fake_pump(struct fake_server *s, uv_loop_t *loop, bool (*cond)(void *), void *arg,
	       unsigned int seconds)
{
	uint64_t end = uv_hrtime() + seconds * UINT64_C(1000000000);
	uv_timer_t alive;
	bool met;

	uv_timer_init(loop, &alive);
	uv_timer_start(&alive, nothing, 1, 1);
	while (!(met = cond(arg)) && uv_hrtime() < end) {
		uv_run(loop, s ? UV_RUN_NOWAIT : UV_RUN_ONCE);
		if (s)
			serve(s);
	}
	uv_close((uv_handle_t *)&alive, NULL);
	while (uv_is_active((uv_handle_t *)&alive))
		uv_run(loop, UV_RUN_NOWAIT);
	uv_run(loop, UV_RUN_NOWAIT); /* let the handle close: it is on this stack */
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
	snprintf(san, sizeof(san), "%s:%s", inet_addr(name) == INADDR_NONE ? "DNS" : "IP", name);
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
