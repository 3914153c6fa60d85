/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct door: the exposed port of a server whose library takes whatever connects. The door owns
 * the listening socket, ends TLS, and bounds what peers that have not shown who they are
 * (strangers) may cost:
 *
 *   1. A connection waits for its whole ClientHello in the kernel: it costs a socket and a few
 *      hundred bytes here.
 *   2. It waits for its turn. Source addresses take turns, so that one address with many
 *      connections does not hold up another.
 *   3. It is opened: TLS handshake, and with its first plaintext it is joined to the server by a
 *      socket pair. Only a few strangers are open at once, for a short time and few bytes.
 *   4. The server says that it is granted: it stays for as long as it is.
 *
 * When there is no room, a stranger of the address that has the most strangers goes first; who is
 * granted never does. IPv4 addresses count each alone, IPv6 addresses by their /64. Addresses that
 * the server expects, or that had a granted connection within the last hour, are friends: up to a
 * quarter of all places each, they go before all others.
 *
 * The door runs on a thread of its own: handshakes and floods take none of the server's time.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct door_limits {	   /* zero: the defaults, door_limits_default() */
	size_t outside;	   /* strangers before TLS */
	size_t opened;	   /* strangers from the handshake on */
	uint64_t hello_ms; /* until the ClientHello is whole */
	uint64_t turn_ms;  /* from then until the handshake begins */
	uint64_t grant_ms; /* from then until it is granted */
	uint64_t spare_ms; /* the same while others wait for their turn */
	uint64_t handshakes_per_s;
	size_t stranger_bytes; /* that one may send, TLS included */
};

/* Why a connection ended: enum, metric label. */
#define DOOR_ENDS(X)                                                                               \
	X(PEER, "peer")		      /* closed by the peer, or lost */                            \
	X(SERVER, "server")	      /* closed by the server behind */                            \
	X(REFUSED, "refused")	      /* the server refused its token */                           \
	X(NO_ROOM, "no_room")	      /* refused: its address has the most strangers */            \
	X(DISPLACED, "displaced")     /* made room for another address */                          \
	X(NO_HELLO, "no_hello")	      /* no ClientHello in time */                                 \
	X(BAD_HELLO, "bad_hello")     /* not TLS, or a ClientHello too large or twice */           \
	X(NO_TURN, "no_turn")	      /* did not get its turn in time */                           \
	X(TLS, "tls")		      /* the handshake or a record failed */                       \
	X(NOT_GRANTED, "not_granted") /* not granted in time */                                    \
	X(BAD_FRAMES, "bad_frames")   /* not HTTP/2, or a frame beyond 16 KiB */                   \
	X(TOO_MUCH, "too_much")	      /* too many bytes before it was granted */                   \
	X(NO_MEMORY, "no_memory")     /* memory or file descriptors */                             \
	X(CLOSING, "closing")	      /* the door closes */

enum door_end {
#define X(id, label) DOOR_END_##id,
	DOOR_ENDS(X)
#undef X
	    DOOR_END_COUNT
};
const char *door_end_name(enum door_end end);

struct door_options {
	const char *address;		/* "host:port", ":port" for all addresses, port 0 for any */
	const char *cert_pem, *key_pem; /* chain and key */
	struct door_limits limits;
	/*
	 * On the door's thread. FD does not block and is taken over: what the peer sends comes out
	 * of it, decrypted, and what is written there is sent to the peer.
	 */
	void (*join)(void *arg, int fd);
	void *arg;
};

struct door_stats {
	uint64_t accepted;
	uint64_t ended[DOOR_END_COUNT];
	uint64_t handshakes; /* that were begun */
	uint64_t paused;     /* times that there was no file descriptor for the next connection */
	size_t outside, opened, granted; /* now */
};

struct door;

/* What the limits are by default: shares of the container's memory limit (docs/node-stream.md). */
void door_limits_default(struct door_limits *ret);

int door_new(const struct door_options *options, struct door **ret, struct error *err) _must_check_;
/* Ends all connections. join() is not called any more. */
struct door *door_free(struct door *door);
int door_port(const struct door *door);
/* For connections from now on; -EINVAL when they do not fit together: the old ones stay. */
int door_certificate(struct door *door, const char *cert_pem, const char *key_pem,
		     struct error *err) _must_check_;
void door_read(const struct door *door, struct door_stats *ret);
/* A friend's address: IPv4 or IPv6, as text; anything else is ignored. Any thread. */
void door_expect(struct door *door, const char *address);

/* ---- what the server says of connections; any thread, until door_free() ---------------------- */

/* A connection by the FD that join() was given. Numbers of descriptors come again, ids do not. */
struct door_guest {
	int fd;
	uint64_t id; /* 0: it is gone */
};

/* What one stream of a connection is. The connection is the best of its streams. */
enum door_standing {
	DOOR_STRANGER,
	DOOR_ASKS,    /* its claims look right and are being verified: it is not cut meanwhile */
	DOOR_GRANTED, /* it is who it says */
	DOOR_REFUSED, /* it is not: the connection ends soon unless another stream is granted */
	DOOR_STANDINGS
};

struct door_guest door_find(struct door *door, int fd);
/* A stream of GUEST that was WAS, DOOR_STRANGER at first, is IS. At its end IS is DOOR_STRANGER. */
void door_judge(struct door *door, const struct door_guest *guest, enum door_standing was,
		enum door_standing is);
