/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call: the messages that it sends, one at a time, and the messages and status that it
 * receives. The application is told of these from the loop and never from inside nghttp2, so that
 * it may do anything in a callback.
 *
 * A call ends once: by the peer's status, because its connection ended, or cut by this side. It
 * leaves its connection then; closed() follows after everything that was received before.
 */
#include <stdarg.h>

#include "lib/grpc_channel.h"
#include "lib/gzip.h"

/* ---- ending ------------------------------------------------------------------------------------
 */

static void free_outgoing(struct grpc_call *call)
{
	free(TAKE_PTR(call->outgoing));
}

/* Resets the stream, unless both sides have ended it. */
static void leave_connection(struct grpc_call *call, bool peer_ended)
{
	struct grpc_connection *c = call->connection;
	int closed;

	if (!c)
		return;
	call->connection = NULL;
	c->n_calls--;
	if (!call->id || c->failed)
		return;
	closed = nghttp2_session_get_stream_local_close(c->session, call->id);
	/* CLOSED is 1 when this side has ended the stream, 0 when not, -1 when nghttp2 does not
	 * have the stream (yet). In the last case a cut takes back the request that is still
	 * queued. */
	if (peer_ended && closed != 0)
		return;
	if (nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, call->id,
				      peer_ended ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL) < 0)
		grpc_connection_fail(c, "out of memory");
}

static void set_words(struct grpc_call *call, const char *format, va_list args)
{
	vsnprintf(call->text, sizeof(call->text), format, args);
	if (call->text[0])
		free(TAKE_PTR(call->words));
}

void grpc_call_end(struct grpc_call *call, int status, const char *format, ...)
{
	va_list args;

	if (call->ended)
		return;
	call->ended = true;
	call->status = status;
	va_start(args, format);
	set_words(call, format, args);
	va_end(args);
	free_outgoing(call);
	leave_connection(call, true);
	grpc_channel_due(call->channel);
}

void grpc_call_cut(struct grpc_call *call, int status, const char *format, ...)
{
	va_list args;

	if (call->unwanted)
		return;
	call->ended = call->unwanted = true;
	call->status = status;
	va_start(args, format);
	set_words(call, format, args);
	va_end(args);
	free_outgoing(call);
	leave_connection(call, false);
	grpc_channel_due(call->channel);
}

void grpc_call_cancel(struct grpc_call *call)
{
	grpc_call_cut(call, RPC_CANCELLED, "cancelled");
}

void grpc_call_free(struct grpc_call *call)
{
	free_outgoing(call);
	grpc_inbox_clear(&call->in);
	free(call->method);
	free(call->words);
	free(call->details);
	free(call);
}

void grpc_call_drop(struct grpc_call *call)
{
	grpc_channel_unlink(call);
	grpc_call_free(call);
}

/* ---- sending -----------------------------------------------------------------------------------
 */

int grpc_call_send(struct grpc_call *call, const void *data, size_t len, bool gzipped, bool is_last)
{
	struct grpc_outgoing *m;

	if (call->ended)
		return -ENOTCONN;
	if (call->outgoing || call->flushed)
		return -EAGAIN;
	if (len > UINT32_MAX)
		return -EINVAL;
	m = malloc(sizeof(*m) + GRPC_PREFIX + len);
	if (!m)
		return -ENOMEM;
	*m = (struct grpc_outgoing){.len = GRPC_PREFIX + len, .is_last = is_last};
	grpc_prefix_write(m->bytes, gzipped, len);
	if (len)
		memcpy(m->bytes + GRPC_PREFIX, data, len);
	call->outgoing = m;
	/* INVALID_ARGUMENT is no error: sending is not deferred, so nghttp2's read callback finds
	 * the message by itself. */
	if (call->connection &&
	    nghttp2_session_resume_data(call->connection->session, call->id) == NGHTTP2_ERR_NOMEM)
		grpc_connection_fail(call->connection, "out of memory");
	grpc_channel_due(call->channel);
	return 0;
}

/* ---- receiving ---------------------------------------------------------------------------------
 */

void grpc_call_take(struct grpc_call *call, const uint8_t *bytes, size_t len)
{
	int r = grpc_inbox_add(&call->in, bytes, len);

	if (r < 0)
		grpc_call_cut(call, RPC_RESOURCE_EXHAUSTED, "the answer: %s", strerror(-r));
}

static void refuse_size(struct grpc_call *call)
{
	grpc_call_cut(call, RPC_RESOURCE_EXHAUSTED, "a message is larger than %zu bytes",
		      call->channel->message_max);
}

static void tell_expanded(struct grpc_call *call, const struct grpc_received *m)
{
	uint8_t *plain = NULL;
	size_t len = 0;
	int r;

	/* Which status to use: grpc/grpc, doc/compression.md, "Test cases" 5 and 6. */
	if (!streq(call->encoding, "gzip")) {
		grpc_call_cut(call, RPC_INTERNAL, "a message is compressed as '%s', not as gzip",
			      call->encoding);
		return;
	}
	r = gzip_expand(m->data, m->len, call->channel->message_max, &plain, &len);
	if (r == -E2BIG)
		refuse_size(call);
	else if (r == -ENOMEM)
		grpc_call_cut(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
	else if (r < 0)
		grpc_call_cut(call, RPC_INTERNAL, "a message is not the gzip that it claims to be");
	else
		call->events->message(call, plain, len);
	free(plain);
}

/* Returns false when the application has freed the channel. */
static bool tell_messages(struct grpc_call *call)
{
	const struct grpc_channel *ch = call->channel;
	struct grpc_received m;
	int r;

	while (!call->unwanted) {
		r = grpc_inbox_next(&call->in, ch->message_max, &m);
		if (r < 0)
			refuse_size(call);
		if (r <= 0)
			break;
		if (m.compressed)
			tell_expanded(call, &m);
		else
			call->events->message(call, m.data, m.len);
		if (ch->freed)
			return false;
	}
	if (!grpc_inbox_left(&call->in) || call->unwanted)
		grpc_inbox_clear(&call->in);
	return true;
}

static bool tell_sent(struct grpc_call *call)
{
	if (!call->flushed || !call->connection || call->connection->rest)
		return true;
	call->flushed = false;
	call->events->sent(call);
	return !call->channel->freed;
}

bool grpc_call_tell(struct grpc_call *call)
{
	struct grpc_channel *ch = call->channel;

	if (!tell_messages(call) || !tell_sent(call))
		return false;
	if (!call->ended)
		return true;
	if (call->status == RPC_OK && grpc_inbox_left(&call->in)) {
		call->status = RPC_INTERNAL;
		snprintf(call->text, sizeof(call->text), "the answer ends within a message");
		free(TAKE_PTR(call->words));
	}
	grpc_channel_unlink(call);
	call->events->closed(call);
	grpc_call_free(call);
	return !ch->freed;
}
