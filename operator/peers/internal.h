/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by peers.c (the list of replicas) and peer.c (the connection to one). Loop thread. */
#pragma once

#include "operator/peers/peers.h"

#include "lib/log.h"
#include "operator/kube/client.h"

enum { PEER_ADDRESS_MAX = 64, PEER_MESSAGE_MAX = 256 << 10 };

struct peer {
	struct peers *peers;
	struct peer *prev, *next;
	char address[PEER_ADDRESS_MAX]; /* "127.0.0.1:8443", "[::1]:8443" */
	bool is_named;			/* the last finished look-up of the names found it */
	bool is_seen;			/* the look-up under way found it */
	/* It has reported all its agents. */
	bool is_whole;
	uint64_t id; /* of the connection */
	uint64_t retry_ms, pause_ms;
	struct kube_credentials *credentials;
	struct kube_client *client; /* NULL: there is no connection */
	struct buf in;		    /* messages, with their prefix */
	int error;		    /* negative errno, when this side ends the connection */
};

struct peers {
	struct peers_options o;
	struct peer *list;
	size_t n;
	uv_timer_t timer;
	unsigned int open_handles; /* the timer's, and names that are being resolved */
	bool started, freed;
	bool is_settled;
	uint64_t look_ms;      /* when the next look-up begins */
	unsigned int looks;    /* names being resolved */
	bool failed, complete; /* failed: look-up under way; complete: the last one did not fail */
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
