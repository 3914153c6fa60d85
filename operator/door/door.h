/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct door: the exposed port in front of a server whose own library accepts every connection.
 * The door owns the listening socket, terminates TLS, and bounds the resources that strangers take:
 * peers that the server has not granted yet.
 *
 *   1. The kernel buffers a connection's ClientHello until it is complete: until then the
 *      connection costs a socket and a few hundred bytes here.
 *   2. The connection waits for its turn. Source addresses take turns, so that one address with
 *      many connections does not delay another.
 *   3. The connection is opened: TLS handshake; with its first plaintext it is joined to the
 *      server by a socket pair. Only a few strangers are open at once, for a limited time and a
 *      limited number of bytes.
 *   4. The server reports that the connection is granted: it stays open for as long as it is.
 *
 * When there is no room, a stranger of the address with the most strangers is closed; a granted
 * connection is never closed to make room. Each IPv4 address counts alone, IPv6 addresses by their
 * /64. Addresses that the server expects, or that had a granted connection within the last hour,
 * are friends: each goes before all others until it has a quarter of all places.
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
	uint64_t spare_ms; /* instead of grant_ms while all are taken and others wait */
	uint64_t handshakes_per_s;
	size_t stranger_bytes; /* that a stranger may send, TLS included */
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
	 * Called on the door's thread. The callee owns FD, which is non-blocking: reading it yields
	 * the peer's plaintext, and bytes written to it are sent to the peer.
	 */
	void (*join)(void *arg, int fd);
	void *arg;
};

struct door_stats {
	uint64_t accepted;
	uint64_t ended[DOOR_END_COUNT];
	uint64_t handshakes; /* that were begun */
	uint64_t paused; /* times that accepting stopped for want of a file descriptor or memory */
	size_t outside, opened, granted; /* current numbers of connections */
};

struct door;

/* The default limits: shares of the container's memory limit (docs/node-stream.md). */
void door_limits_default(struct door_limits *ret);

int door_new(const struct door_options *options, struct door **ret, struct error *err) _must_check_;
/* Ends all connections. join() is not called any more. */
struct door *door_free(struct door *door);
int door_port(const struct door *door);
/*
 * Replaces certificate and key for new connections. -EINVAL when they cannot be used, for example
 * because they do not belong together: the old ones stay.
 */
int door_certificate(struct door *door, const char *cert_pem, const char *key_pem,
		     struct error *err) _must_check_;
void door_read(const struct door *door, struct door_stats *ret);
/* Makes ADDRESS a friend: IPv4 or IPv6, as text; anything else is ignored. Any thread. */
void door_expect(struct door *door, const char *address);

/* ---- what the server says of connections; any thread, until door_free() ---------------------- */

/*
 * A connection, named by the FD that join() was given. File descriptor numbers are reused, ids are
 * not.
 */
struct door_guest {
	int fd;
	uint64_t id; /* 0: no connection has this FD */
};

/* What the server knows of one stream. A connection counts as granted while any stream of it is. */
enum door_standing {
	DOOR_STRANGER,
	DOOR_ASKS,    /* its claims are being verified: the connection is not closed meanwhile */
	DOOR_GRANTED, /* its identity is verified */
	DOOR_REFUSED, /* not verified: the connection ends soon unless another stream is granted */
	DOOR_STANDINGS
};

struct door_guest door_find(struct door *door, int fd);
/*
 * Reports that a stream of GUEST changes from WAS to IS. WAS of a stream's first report and IS of
 * its last, when the stream ends, are DOOR_STRANGER.
 */
void door_judge(struct door *door, const struct door_guest *guest, enum door_standing was,
		enum door_standing is);
