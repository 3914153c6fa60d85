/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of replicas: every address that the names resolve to. libuv's threads resolve all names
 * at once; a look-up is complete when every name was resolved. A replica that no name resolves to
 * any more is kept while it has a connection.
 */
#include "operator/peers/internal.h"

#include <arpa/inet.h>
#include <utlist.h>

#include "lib/parse.h"
#include "operator/http/prometheus.h"

enum { TICK_MS = 500, TARGETS_MAX = 16, HOST_MAX = 256, LOG_INTERVAL_S = 60 };

struct look {
	uv_getaddrinfo_t request;
	struct peers *peers;
	char host[HOST_MAX], port[8];
};

void peers_look_at_whole(struct peers *p)
{
	bool settled = p->complete && p->list;
	const struct peer *peer;

	DL_FOREACH (p->list, peer)
		settled &= !peer->is_named || peer->is_whole;
	if (settled == p->is_settled)
		return;
	p->is_settled = settled;
	if (!p->freed)
		p->o.settled(p->o.arg, settled);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void handle_gone(struct peers *p)
{
	if (!--p->open_handles)
		free(p);
}

static void name_peer(struct peers *p, const char *address)
{
	struct peer *peer;

	DL_FOREACH (p->list, peer)
		if (streq(peer->address, address)) {
			peer->is_seen = true;
			return;
		}
	peer = p->n < PEERS_MAX ? peer_new(p, address) : NULL;
	if (!peer) {
		p->failed = true;
		return;
	}
	peer->is_seen = peer->is_named = true;
	DL_APPEND(p->list, peer);
	p->n++;
}

static void name_address(struct peers *p, const struct sockaddr *a)
{
	char ip[INET6_ADDRSTRLEN] = "", address[PEER_ADDRESS_MAX];
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;

	if (a->sa_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof(ip)))
		snprintf(address, sizeof(address), "%s:%u", ip, ntohs(v4->sin_port));
	else if (a->sa_family == AF_INET6 && inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof(ip)))
		snprintf(address, sizeof(address), "[%s]:%u", ip, ntohs(v6->sin6_port));
	else
		return;
	name_peer(p, address);
}

/* Ends a look-up: removes the replicas that no name resolves to and that have no connection. */
static void end_look(struct peers *p)
{
	struct peer *peer, *next;

	p->complete = !p->failed;
	p->look_ms = uv_now(p->o.loop) + PEERS_LOOK_MS;
	DL_FOREACH_SAFE (p->list, peer, next) {
		peer->is_named = peer->is_seen || (peer->is_named && p->failed);
		if (peer->is_named || peer->client || p->failed)
			continue;
		DL_DELETE(p->list, peer);
		peer_free(peer);
		p->n--;
	}
	peers_look_at_whole(p);
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
	struct look *look = container_of(request, struct look, request);
	struct peers *p = look->peers;
	unsigned int held_back = 0;

	if (!p->freed) {
		if (status < 0 && log_allowed(&p->name_log, LOG_INTERVAL_S, &held_back))
			log_warn("peers", "%s: %s (%u more like it)", look->host,
				 uv_strerror(status), held_back);
		p->failed |= status < 0;
		for (const struct addrinfo *a = list; a; a = a->ai_next)
			name_address(p, a->ai_addr);
		if (!--p->looks)
			end_look(p);
	}
	uv_freeaddrinfo(list);
	free(look);
	handle_gone(p);
}

static int look_up(struct peers *p, const struct host_port *target)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct look *look = calloc(1, sizeof(*look));
	int r;

	if (!look)
		return -ENOMEM;
	look->peers = p;
	snprintf(look->host, sizeof(look->host), "%s", target->host);
	snprintf(look->port, sizeof(look->port), "%u", target->port);
	r = uv_getaddrinfo(p->o.loop, &look->request, on_resolved, look->host, look->port, &hints);
	if (r < 0) {
		free(look);
		return r;
	}
	p->looks++;
	p->open_handles++;
	return 0;
}

/*
 * Reads the next target and moves *AT behind it: 1. 0 at the end, -EINVAL when it is no HOST:PORT.
 */
static int next_target(const char **at, struct host_port *ret)
{
	char text[HOST_MAX + 16];
	size_t n = strcspn(*at, ",");

	if (!n && !**at)
		return 0;
	if (n >= sizeof(text))
		return -EINVAL;
	memcpy(text, *at, n);
	text[n] = '\0';
	*at += n + ((*at)[n] == ',');
	if (parse_host_port(text, ret) < 0 || !ret->host[0] || !ret->port)
		return -EINVAL;
	return 1;
}

static void begin_look(struct peers *p)
{
	const char *at = p->o.targets;
	struct host_port target;
	struct peer *peer;

	DL_FOREACH (p->list, peer)
		peer->is_seen = false;
	p->failed = false;
	while (next_target(&at, &target) > 0)
		if (look_up(p, &target) < 0)
			p->failed = true;
	if (!p->looks)
		end_look(p);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_tick(uv_timer_t *timer)
{
	struct peers *p = container_of(timer, struct peers, timer);
	uint64_t now = uv_now(p->o.loop);
	struct peer *peer;

	if (!p->looks && now >= p->look_ms)
		begin_look(p);
	DL_FOREACH (p->list, peer)
		peer_tick(peer, now);
}

static void on_timer_closed(uv_handle_t *handle)
{
	handle_gone(container_of((uv_timer_t *)handle, struct peers, timer));
}

int peers_check(const char *targets, struct error *err)
{
	const char *at = targets;
	struct host_port target;
	int r, n = 0;

	while ((r = next_target(&at, &target)) > 0)
		n++;
	if (r == 0 && n && n <= TARGETS_MAX)
		return 0;
	return error_set(
	    err, -EINVAL,
	    "--stream-peers: want HOST:PORT[,HOST:PORT...], %d at most, got \"%.200s\"",
	    TARGETS_MAX, targets);
}

int peers_new(const struct peers_options *options, struct peers **ret, struct error *err)
{
	int r = peers_check(options->targets, err);
	struct peers *p;

	if (r < 0)
		return r;
	p = calloc(1, sizeof(*p));
	if (!p)
		return error_set(err, -ENOMEM, "out of memory");
	p->o = *options;
	p->open_handles = 1;
	(void)uv_timer_init(options->loop, &p->timer);
	*ret = p;
	return 0;
}

void peers_start(struct peers *p)
{
	if (!p || p->started)
		return;
	p->started = true;
	(void)uv_timer_start(&p->timer, on_tick, 0, TICK_MS);
}

struct peers *peers_free(struct peers *p)
{
	struct peer *peer, *next;

	if (!p)
		return NULL;
	p->freed = true;
	DL_FOREACH_SAFE (p->list, peer, next) {
		DL_DELETE(p->list, peer);
		peer_free(peer);
	}
	uv_close((uv_handle_t *)&p->timer, on_timer_closed);
	return NULL;
}

void peers_metrics(const struct peers *p, struct buf *out)
{
	size_t whole = 0, named = 0;
	const struct peer *peer;

	if (!p)
		return;
	DL_FOREACH (p->list, peer) {
		named += peer->is_named;
		whole += peer->is_whole;
	}
	prometheus_single(out, "kiln_stream_peers", "gauge",
			  "Replicas of the node stream that --stream-peers names.", (double)named);
	prometheus_single(out, "kiln_stream_peers_whole", "gauge",
			  "Replicas that have told of all their agents; only who leads asks them.",
			  (double)whole);
	prometheus_single(out, "kiln_stream_peer_messages_total", "counter",
			  "Messages of replicas about their agents.", (double)p->messages);
	prometheus_single(out, "kiln_stream_peer_failures_total", "counter",
			  "Connections to replicas that ended.", (double)p->failures);
}
