/* SPDX-License-Identifier: Apache-2.0 */
/* What peers.c (which replicas there are) and peer.c (the connection to one) share. Loop thread. */
#pragma once

#include "operator/peers/peers.h"

#include "lib/log.h"
#include "operator/kube/client.h"

enum { PEER_ADDRESS_MAX = 64, PEER_MESSAGE_MAX = 256 << 10 };

struct peer {
	struct peers *peers;
	struct peer *prev, *next;
	char address[PEER_ADDRESS_MAX]; /* "127.0.0.1:8443", "[::1]:8443" */
	bool is_named;			/* by the last look at the names that has ended */
	bool is_seen;			/* by the look that is under way */
	bool is_whole;
	uint64_t id; /* of the connection */
	uint64_t retry_ms, pause_ms;
	struct kube_credentials *credentials;
	struct kube_client *client; /* NULL: there is no connection */
	struct buf in;		    /* messages, with their prefix */
	int error;		    /* why the connection is ended by us */
};

struct peers {
	struct peers_options o;
	struct peer *list;
	size_t n;
	uv_timer_t timer;
	unsigned int open_handles; /* the timer's, and names that are being resolved */
	bool started, freed;
	bool is_settled;
	uint64_t look_ms;      /* when names are to be looked at next */
	unsigned int looks;    /* under way */
	bool failed, complete; /* this look; the last one */
	uint64_t last_id;
	uint64_t messages, failures;
	struct log_limit log, name_log;
};

/* peer.c */
/* NULL without memory. */
struct peer *peer_new(struct peers *p, const char *address);
void peer_free(struct peer *peer);
/* Connects when it is time to. */
void peer_tick(struct peer *peer, uint64_t now);

/* peers.c */
void peers_look_at_whole(struct peers *p);
