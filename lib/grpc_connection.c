/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection. Bytes from the socket go into nghttp2; frames from nghttp2 go through an output
 * buffer to the socket. Bytes that the socket does not take are kept in `rest`; until they are
 * written, no further frames are made.
 *
 * Calls are begun only after the peer's SETTINGS: then it is known to speak HTTP/2, and failures
 * before that concern no call. When the port speaks something else, the error text says so, judged
 * by the peer's first bytes.
 *
 * Nothing here calls the application; grpc_channel_work() does, and it frees failed connections.
 */
#include "lib/grpc_channel.h"

#include <utlist.h>

enum {
	KEEPALIVE_TIMEOUT_MS = 20000,
	WINDOW = 256 << 10 /* of each stream, and of the connection */
};

struct grpc_call *grpc_connection_find(const struct grpc_connection *c, int32_t id)
{
	struct grpc_call *call;

	DL_FOREACH (c->channel->calls, call)
		if (call->connection == c && call->id == id)
			return call;
	return NULL;
}

/* ---- ending ------------------------------------------------------------------------------------
 */

void grpc_connection_fail(struct grpc_connection *c, const char *why)
{
	struct grpc_call *call;

	if (c->failed)
		return;
	c->failed = true;
	if (!c->why[0])
		snprintf(c->why, sizeof(c->why), "%s", why);
	DL_FOREACH (c->channel->calls, call)
		if (call->connection == c)
			grpc_call_end(call, RPC_UNAVAILABLE, "%s", c->why);
	grpc_channel_due(c->channel);
}

bool grpc_connection_over(const struct grpc_connection *c)
{
	if (c->failed)
		return true;
	return c->retired && !c->n_calls && !c->rest && c->session &&
	       !nghttp2_session_want_write(c->session);
}

static void rest_free(struct grpc_connection *c)
{
	if (c->rest)
		explicit_bzero(c->rest, c->rest_len); /* it may be secret */
	free(TAKE_PTR(c->rest));
}

/*
 * The connection cannot be used any more. If the peer has not shown yet that it speaks HTTP/2 (no
 * call was begun then), the other addresses are tried; else the connection fails.
 */
static void lose(struct grpc_connection *c, const char *why)
{
	char words[CALL_WORDS_MAX];

	if (c->ready || c->failed) {
		(void)!snprintf(words, sizeof(words), "%s: %s", client_socket_address(c->socket),
				why);
		grpc_connection_fail(c, words);
		return;
	}
	(void)!snprintf(words, sizeof(words), "%s", c->why[0] ? c->why : why);
	c->why[0] = 0;
	nghttp2_session_del(TAKE_PTR(c->session));
	rest_free(c);
	client_socket_again(c->socket, words);
}

/* Detects that nghttp2 has ended the session: a protocol error by either side, or GOAWAY. */
void grpc_connection_check(struct grpc_connection *c)
{
	if (c->session && !c->failed && !c->rest && !nghttp2_session_want_read(c->session) &&
	    !nghttp2_session_want_write(c->session))
		lose(c, c->why[0] ? c->why : "the peer ended the connection");
}

/* ---- sending -----------------------------------------------------------------------------------
 */

static size_t write_bytes(struct grpc_connection *c, const uint8_t *bytes, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = client_socket_write(c->socket, bytes + at, len - at);

		if (n < 0)
			c->broken = true;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return at;
}

static void write_rest(struct grpc_connection *c)
{
	c->rest_at += write_bytes(c, c->rest + c->rest_at, c->rest_len - c->rest_at);
	if (c->rest_at == c->rest_len)
		rest_free(c);
}

/* Empties the output buffer into the socket; bytes that the socket does not take become `rest`. */
static void write_out(struct grpc_connection *c)
{
	size_t sent = write_bytes(c, c->out, c->out_len), left = c->out_len - sent;

	if (left && !c->broken) {
		c->rest = malloc(left);
		if (c->rest)
			memcpy(c->rest, c->out + sent, left);
		else
			grpc_connection_fail(c, "out of memory");
		c->rest_at = 0;
		c->rest_len = left;
	}
	explicit_bzero(c->out, c->out_len);
	c->out_len = 0;
}

static void append(struct grpc_connection *c, const void *bytes, size_t len)
{
	memcpy(c->out + c->out_len, bytes, len);
	c->out_len += len;
}

int grpc_connection_write_data(struct grpc_connection *c, const uint8_t *header,
			       struct grpc_call *call, size_t len)
{
	struct grpc_outgoing *m = call->outgoing;

	if (c->out_len + 9 + len > CONNECTION_WRITE)
		return NGHTTP2_ERR_WOULDBLOCK;
	append(c, header, 9);
	append(c, m->bytes + m->at, len);
	m->at += len;
	if (m->at == m->len) {
		free(TAKE_PTR(call->outgoing));
		call->flushed = true;
	}
	/* Makes nghttp2_session_mem_send() return. With 0 it would start the next DATA frame, for
	 * which the output buffer may have no room. */
	return NGHTTP2_ERR_PAUSE;
}

/* nghttp2's read callback: how many bytes of the message the next DATA frame has.
 * grpc_connection_write_data() copies them. */
static ssize_t next_data(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t max,
			 uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct grpc_call *call = grpc_connection_find(arg, id);
	const struct grpc_outgoing *m = call ? call->outgoing : NULL;
	size_t len;

	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (!m)
		return NGHTTP2_ERR_DEFERRED;
	len = MIN(max, m->len - m->at);
	*flags |= NGHTTP2_DATA_FLAG_NO_COPY;
	if (m->is_last && m->at + len == m->len)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)len;
}

/* False: nghttp2 has no frame to send, or failed. */
static bool make_frame(struct grpc_connection *c)
{
	size_t before = c->out_len;
	const uint8_t *bytes;
	ssize_t n = nghttp2_session_mem_send(c->session, &bytes);

	if (n < 0 || (size_t)n > CONNECTION_WRITE - c->out_len) {
		grpc_connection_fail(c, n < 0 ? nghttp2_strerror((int)n) : "a frame is too large");
		return false;
	}
	if (n > 0)
		append(c, bytes, (size_t)n);
	return n > 0 || c->out_len > before;
}

/* A write failed. Reads what the peer sent before that, because it may give the reason; then loses
 * the connection. */
static void bury(struct grpc_connection *c)
{
	char why[CALL_WORDS_MAX];

	(void)!snprintf(why, sizeof(why), "%s", client_socket_why(c->socket));
	grpc_connection_read(c);
	if (c->session)
		lose(c, why);
}

void grpc_connection_flush(struct grpc_connection *c)
{
	uint8_t out[CONNECTION_WRITE];

	if (!c->session || c->failed)
		return;
	c->out = out;
	if (c->rest)
		write_rest(c);
	while (!c->rest && !c->failed && !c->broken) {
		bool more = true;

		while (more && c->out_len <= CONNECTION_WRITE / 2)
			more = make_frame(c);
		if (!c->out_len)
			break;
		write_out(c);
	}
	c->out = NULL;
	c->out_len = 0;
	if (c->broken)
		bury(c);
	else if (!c->failed && client_socket_want_room(c->socket, c->rest != NULL) < 0)
		grpc_connection_fail(c, "out of memory");
}

/* ---- receiving ---------------------------------------------------------------------------------
 */

/* Names the protocol other than HTTP/2 that begins with BYTES; NULL: not known. */
static const char *other_protocol(const uint8_t *bytes, size_t len)
{
	if (len >= 2 && bytes[0] == 0x15 && bytes[1] == 3) /* an alert */
		return "the port speaks TLS, not plain text (https://, or no --disable-tls)";
	if (len >= 5 && !memcmp(bytes, "HTTP/", 5))
		return "the port speaks HTTP/1, not gRPC (another port, or otlp_http)";
	return NULL;
}

static void receive(struct grpc_connection *c, const uint8_t *bytes, size_t len)
{
	const char *other = c->fresh ? other_protocol(bytes, len) : NULL;
	ssize_t n = 0;

	c->fresh = false;
	if (!other)
		n = nghttp2_session_mem_recv(c->session, bytes, len);
	if (other || n < 0)
		lose(c, other ? other : nghttp2_strerror((int)n));
}

static void on_end(struct grpc_connection *c)
{
	/* Go's TLS servers close a plaintext connection without sending anything. */
	if (c->fresh && c->channel->target.plaintext)
		lose(c, "the peer closes the connection at once: it may want TLS "
			"(https://, or no --disable-tls)");
	else
		lose(c, client_socket_why(c->socket));
}

void grpc_connection_read(struct grpc_connection *c)
{
	uint8_t bytes[CONNECTION_READ];

	for (unsigned int i = 0; i < CONNECTION_READS && c->session && !c->failed; i++) {
		ssize_t n = client_socket_read(c->socket, bytes, sizeof(bytes));

		if (n == 0)
			break;
		if (n < 0) {
			on_end(c);
			break;
		}
		c->heard_ms = uv_now(c->channel->loop);
		receive(c, bytes, (size_t)n);
	}
}

/* ---- the socket --------------------------------------------------------------------------------
 */

static int start_session(struct grpc_connection *c)
{
	const nghttp2_settings_entry settings[] = {
	    {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
	    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
	    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADERS_MAX},
	    {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
	};
	struct grpc_channel *ch = c->channel;

	if (nghttp2_session_client_new2(&c->session, ch->callbacks, c, ch->option) < 0)
		return -ENOMEM;
	if (nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings)) <
		0 ||
	    nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0, WINDOW) < 0)
		return -ENOMEM;
	return 0;
}

static void on_opened(void *arg)
{
	struct grpc_connection *c = arg;

	c->fresh = true;
	c->broken = false;
	c->heard_ms = uv_now(c->channel->loop);
	if (start_session(c) < 0)
		lose(c, "out of memory");
	grpc_channel_work(c->channel);
}

static void on_ready(void *arg)
{
	struct grpc_connection *c = arg;

	grpc_connection_read(c);
	grpc_channel_work(c->channel);
}

static void on_failed(void *arg, const char *words)
{
	struct grpc_connection *c = arg;

	grpc_connection_fail(c, words);
}

/* ---- calls -------------------------------------------------------------------------------------
 */

int grpc_connection_begin(struct grpc_connection *c, struct grpc_call *call)
{
	const nghttp2_data_provider data = {.read_callback = next_data};
	int32_t id = grpc_headers_submit(c, call, &data);

	if (id == NGHTTP2_ERR_NOMEM)
		return -ENOMEM;
	if (id < 0)
		return -EIO;
	call->id = id;
	call->connection = c;
	c->n_calls++;
	return 0;
}

/* ---- time --------------------------------------------------------------------------------------
 */

uint64_t grpc_connection_due_ms(const struct grpc_connection *c)
{
	uint64_t due = client_socket_due_ms(c->socket);

	if (c->pinged_ms)
		due = MIN(due, c->pinged_ms + KEEPALIVE_TIMEOUT_MS);
	else if (c->n_calls && c->channel->keepalive_ms)
		due = MIN(due, c->heard_ms + c->channel->keepalive_ms);
	return due;
}

static void ping(struct grpc_connection *c, uint64_t now_ms)
{
	c->pinged_ms = now_ms;
	if (nghttp2_submit_ping(c->session, NGHTTP2_FLAG_NONE, NULL) < 0)
		grpc_connection_fail(c, "out of memory");
}

void grpc_connection_tick(struct grpc_connection *c, uint64_t now_ms)
{
	if (now_ms < grpc_connection_due_ms(c))
		return;
	if (!c->ready) {
		nghttp2_session_del(TAKE_PTR(c->session));
		rest_free(c);
		client_socket_tick(c->socket, now_ms);
	} else if (c->pinged_ms) {
		lose(c, "no answer to a ping within 20 s");
	} else {
		ping(c, now_ms);
	}
}

/* ---- life --------------------------------------------------------------------------------------
 */

int grpc_connection_new(struct grpc_channel *ch, struct grpc_connection **ret, struct error *err)
{
	struct grpc_connection *c = calloc(1, sizeof(*c));
	const struct client_socket_options o = {
	    .target = &ch->target, .tls = &ch->tls, .protocol = "h2"};
	const struct client_socket_events events = {on_opened, on_ready, on_failed, c};
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	c->channel = ch;
	r = client_socket_new(&o, ch->loop, &events, &c->socket, err);
	if (r < 0) {
		free(c);
		return r;
	}
	DL_APPEND(ch->connections, c);
	*ret = c;
	return 0;
}

void grpc_connection_free(struct grpc_connection *c)
{
	if (c->ready && !c->failed &&
	    nghttp2_session_terminate_session(c->session, NGHTTP2_NO_ERROR) == 0)
		grpc_connection_flush(c);
	DL_DELETE(c->channel->connections, c);
	nghttp2_session_del(c->session);
	client_socket_free(c->socket);
	rest_free(c);
	free(c);
}
