/* SPDX-License-Identifier: Apache-2.0 */
/* Each connection is one call on a channel of its own; both are freed together. Owned by the loop
 * thread. */
#include "lib/grpc_stream.h"

#include "lib/grpc_channel.h"

struct grpc_stream {
	uv_loop_t *loop;
	struct grpc_stream_events events;
	struct grpc_channel *channel; /* NULL, like `call`, while disconnected */
	struct grpc_call *call;
	bool writable;
	bool unwanted; /* grpc_stream_disconnect() was called */
};

static void on_sent(struct grpc_call *call)
{
	struct grpc_stream *s = call->arg;

	s->writable = true;
	s->events.writable(s->events.arg);
}

static void on_message(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct grpc_stream *s = call->arg;

	s->events.message(data, len, s->events.arg);
}

static void connection_done(struct grpc_stream *s)
{
	s->call = NULL;
	s->channel = grpc_channel_free(s->channel);
	s->writable = s->unwanted = false;
}

static void on_closed(struct grpc_call *call)
{
	struct grpc_stream *s = call->arg;

	connection_done(s);
	s->events.closed(call->status, call->words ? call->words : call->text, s->events.arg);
}

int grpc_stream_new(const struct grpc_stream_events *events, uv_loop_t *loop,
		    struct grpc_stream **ret, struct error *err)
{
	struct grpc_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return error_set(err, -ENOMEM, "out of memory");
	s->loop = loop;
	s->events = *events;
	*ret = s;
	return 0;
}

struct grpc_stream *grpc_stream_free(struct grpc_stream *s)
{
	if (s)
		connection_done(s);
	free(s);
	return NULL;
}

int grpc_stream_connect(struct grpc_stream *s, const struct grpc_stream_options *o,
			struct error *err)
{
	static const struct grpc_call_events events = {on_sent, on_message, on_closed};
	int r;

	if (s->call)
		return error_set(err, -EBUSY, "there is a connection already");
	r = grpc_channel_new(&o->client, o->keepalive_ms, o->message_max, s->loop, &s->channel,
			     err);
	if (r < 0)
		return r;
	r = grpc_channel_call(s->channel, o->method, 0, &events, s, &s->call);
	if (r == 0)
		return 0;
	connection_done(s);
	return error_set(err, r, "%s", strerror(-r));
}

int grpc_stream_send(struct grpc_stream *s, const void *data, size_t len)
{
	int r;

	if (!s->call || s->unwanted)
		return -ENOTCONN;
	if (!s->writable)
		return -EAGAIN;
	r = grpc_call_send(s->call, data, len, false, false);
	if (r == 0)
		s->writable = false;
	return r;
}

void grpc_stream_disconnect(struct grpc_stream *s)
{
	if (!s->call)
		return;
	s->unwanted = true;
	grpc_call_cancel(s->call);
}

bool grpc_stream_busy(const struct grpc_stream *s)
{
	return s->call != NULL;
}
