/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary calls: one message each way. An answer's first message counts; a server that sends more is
 * wrong, and what it sends beyond that is dropped, as gRPC's C core does.
 *
 * Keepalive pings are five minutes apart, which the default enforcement of Go and C servers allows.
 */
#include "lib/grpc_client.h"

#include <utlist.h>

#include "lib/grpc_channel.h"

enum { KEEPALIVE_TIME_MS = 300000, BODY_MAX = 4 << 20 };

struct grpc_unary {
	struct grpc_client *client;
	struct grpc_unary *prev, *next; /* client->live */
	struct grpc_call *call;
	uint8_t *body;
	size_t body_len;
	bool has_body, lacks_memory;
	void (*done)(const struct grpc_answer *answer, void *arg);
	void *arg;
};

struct grpc_client {
	struct grpc_channel *channel;
	struct grpc_unary *live;
};

static void unary_free(struct grpc_unary *u)
{
	free(u->body);
	free(u);
}

static void on_sent(struct grpc_call *call)
{
}

static void on_message(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct grpc_unary *u = call->arg;

	if (u->has_body)
		return;
	u->has_body = true;
	u->body = len ? malloc(len) : NULL;
	u->lacks_memory = len && !u->body;
	if (!u->body)
		return;
	memcpy(u->body, data, len);
	u->body_len = len;
}

static void on_closed(struct grpc_call *call)
{
	struct grpc_unary *u = call->arg;
	struct grpc_answer answer = {.status = call->status,
				     .message = call->words ? call->words : call->text,
				     .body = u->body,
				     .body_len = u->body_len,
				     .details = call->details_len ? call->details : NULL,
				     .details_len = call->details_len,
				     .connected = call->reached};

	if (u->lacks_memory && answer.status == RPC_OK) {
		answer.status = RPC_RESOURCE_EXHAUSTED;
		answer.message = "out of memory";
	}
	DL_DELETE(u->client->live, u); /* the callback may free the client */
	u->done(&answer, u->arg);
	unary_free(u);
}

int grpc_client_call(struct grpc_client *c, const char *method, const void *data, size_t len,
		     bool gzipped, uint64_t timeout_ms,
		     void (*done)(const struct grpc_answer *, void *), void *arg,
		     struct grpc_unary **ret)
{
	static const struct grpc_call_events events = {on_sent, on_message, on_closed};
	struct grpc_unary *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	u->client = c;
	u->done = done;
	u->arg = arg;
	r = grpc_channel_call(c->channel, method, MAX(timeout_ms, 1U), &events, u, &u->call);
	if (r == 0) {
		r = grpc_call_send(u->call, data, len, gzipped, true);
		if (r < 0)
			grpc_call_drop(u->call);
	}
	if (r < 0) {
		free(u);
		return r;
	}
	DL_APPEND(c->live, u);
	*ret = u;
	return 0;
}

bool grpc_client_connected(const struct grpc_client *c)
{
	const struct grpc_connection *current = c->channel->current;

	return current && current->ready && !current->failed;
}

bool grpc_unary_cancel(struct grpc_unary *u)
{
	bool reached = u->call->reached;

	if (!u->call->ended)
		grpc_call_cancel(u->call);
	return reached;
}

int grpc_client_new(const struct grpc_client_options *o, uv_loop_t *loop, struct grpc_client **ret,
		    struct error *err)
{
	struct grpc_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_set(err, -ENOMEM, "out of memory");
	r = grpc_channel_new(o, KEEPALIVE_TIME_MS, BODY_MAX, loop, &c->channel, err);
	if (r < 0) {
		free(c);
		return r;
	}
	*ret = c;
	return 0;
}

struct grpc_client *grpc_client_free(struct grpc_client *c)
{
	struct grpc_unary *u, *next;

	if (!c)
		return NULL;
	grpc_channel_free(c->channel);
	DL_FOREACH_SAFE (c->live, u, next)
		unary_free(u);
	free(c);
	return NULL;
}
