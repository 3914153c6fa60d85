/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to one replica: a gRPC call made as a plain HTTP/2 request, a POST whose response
 * does not end. Its messages are { compressed:8; length:32 } and as many bytes. Each connection has
 * a client of its own, so that it uses the CA of the time it is made. Loop thread only.
 */
#include "operator/peers/internal.h"

#include <endian.h>

#include "lib/cursor.h"

#define WATCH_PATH "/kiln.node.v1.NodeService/Watch"

enum { PREFIX = 5, LOG_INTERVAL_S = 60 };

static const uint8_t request[PREFIX]; /* WatchRequest, which is empty */

static void log_failure(struct peer *peer, const char *why)
{
	struct peers *p = peer->peers;
	unsigned int held_back = 0;

	p->failures++;
	if (log_allowed(&p->log, LOG_INTERVAL_S, &held_back))
		log_warn("peers", "%s: %s (%u more like it)", peer->address, why, held_back);
}

static void disconnect(struct peer *peer)
{
	struct peers *p = peer->peers;

	if (!peer->client)
		return;
	peer->client = kube_client_free(peer->client);
	peer->credentials = kube_credentials_free(peer->credentials);
	buf_done(&peer->in);
	peer->is_whole = false;
	peer->pause_ms =
	    MIN(MAX(peer->pause_ms * 2, (uint64_t)PEERS_RETRY_MS), (uint64_t)PEERS_LOOK_MS);
	peer->retry_ms = uv_now(p->o.loop) + peer->pause_ms;
	if (!p->freed)
		p->o.gone(p->o.arg, peer->id);
	peers_look_at_whole(p);
}

/* Takes one message at C. 1: the message is not complete yet. */
static int take_message(struct peer *peer, struct cursor *c)
{
	struct peers *p = peer->peers;
	bool compressed = cursor_u8(c) != 0, whole = false;
	size_t len = be32toh(cursor_u32(c));
	const uint8_t *bytes;
	int r;

	if (c->bad)
		return 1;
	if (compressed || len > PEER_MESSAGE_MAX)
		return -EBADMSG;
	bytes = cursor_bytes(c, len);
	if (!bytes)
		return 1;
	r = p->o.take(p->o.arg, peer->id, bytes, len, &whole);
	p->messages++;
	peer->pause_ms = 0;
	peer->is_whole |= whole;
	return r;
}

static int take_messages(struct peer *peer)
{
	size_t taken = 0;
	int r;

	do {
		struct cursor c = cursor_of(peer->in.data + taken, peer->in.len - taken);

		r = take_message(peer, &c);
		taken += r ? 0 : c.pos;
	} while (!r);
	memmove(peer->in.data, peer->in.data + taken, peer->in.len - taken);
	peer->in.len -= taken;
	peers_look_at_whole(peer->peers);
	return MIN(r, 0);
}

static int on_data(void *arg, const char *content_type, const void *bytes, size_t len)
{
	struct peer *peer = arg;
	int r = buf_append(&peer->in, bytes, len);

	if (!r)
		r = take_messages(peer);
	peer->error = r;
	return r;
}

static void on_done(void *arg, const struct kube_answer *answer)
{
	struct peer *peer = arg;

	if (peer->error)
		log_failure(peer, peer->error == -EBADMSG ? "a message cannot be decoded"
							  : strerror(-peer->error));
	else if (answer->status == 200 && !peer->is_whole)
		log_failure(peer, "refused to tell of its agents: its log and "
				  "kiln_stream_auth_total have the reason");
	else if (answer->message && answer->message[0])
		log_failure(peer, answer->message);
	else
		log_failure(peer, "the connection ended");
	disconnect(peer);
}

static struct kube_credentials *make_credentials(const struct peer *peer)
{
	const struct peers_options *o = &peer->peers->o;
	struct kube_credentials *c = calloc(1, sizeof(*c));
	char server[PEER_ADDRESS_MAX + 16];

	if (!c)
		return NULL;
	snprintf(server, sizeof(server), "https://%s", peer->address);
	c->server = strdup(server);
	c->server_name = strdup(o->server_name);
	c->token_file = strdup(o->token_file);
	c->ca_pem = strdup(o->ca(o->arg));
	c->proxy_url = strdup(""); /* none, whatever the environment says */
	if (!c->server || !c->server_name || !c->token_file || !c->ca_pem || !c->proxy_url)
		return kube_credentials_free(c);
	return c;
}

static int connect_peer(struct peer *peer, struct error *err)
{
	struct peers *p = peer->peers;
	struct kube_client_options options = {.user_agent = p->o.user_agent, .connect_ms = 5000};
	struct kube_request watch = {.method = "POST",
				     .path = WATCH_PATH,
				     .accept = "application/grpc",
				     .content_type = "application/grpc",
				     .body = request,
				     .len = sizeof(request),
				     .idle_ms = PEERS_SILENT_MS,
				     .unlimited = true,
				     .data = on_data,
				     .done = on_done,
				     .arg = peer,
				     .no_retry = true};
	int r;

	peer->credentials = make_credentials(peer);
	if (!peer->credentials)
		return error_set(err, -ENOMEM, "out of memory");
	options.credentials = peer->credentials;
	r = kube_client_new(p->o.loop, &options, &peer->client, err);
	if (r < 0)
		return r;
	peer->id = ++p->last_id;
	peer->error = 0;
	buf_init(&peer->in, PREFIX + PEER_MESSAGE_MAX + (64 << 10));
	r = kube_call(peer->client, &watch, NULL);
	return r < 0 ? error_set(err, r, "%s", strerror(-r)) : 0;
}

void peer_tick(struct peer *peer, uint64_t now)
{
	struct error err = {0};

	if (peer->client || now < peer->retry_ms || !peer->peers->o.ca(peer->peers->o.arg))
		return;
	if (connect_peer(peer, &err) < 0) {
		log_failure(peer, err.message);
		disconnect(peer);
		peer->credentials = kube_credentials_free(peer->credentials);
		peer->retry_ms = now + PEERS_LOOK_MS;
	}
}

struct peer *peer_new(struct peers *p, const char *address)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	peer->peers = p;
	snprintf(peer->address, sizeof(peer->address), "%s", address);
	return peer;
}

void peer_free(struct peer *peer)
{
	disconnect(peer);
	free(peer);
}
