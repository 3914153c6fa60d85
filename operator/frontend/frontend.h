/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct frontend: the exposed port in front of a server whose own library accepts every
 * connection. The front end owns the listening socket, terminates TLS, and bounds the resources
 * that unauthenticated connections take: peers that the server has not granted yet.
 *
 *   1. The kernel buffers a connection's ClientHello until it is complete: until then the
 *      connection costs a socket and a few hundred bytes here.
 *   2. The connection waits for its turn. Source addresses take turns, so that one address with
 *      many connections does not delay another.
 *   3. The connection is opened: TLS handshake; with its first plaintext it is joined to the
 *      server by a socket pair. The number of opened unauthenticated connections is limited, and
 *      so are the time and the bytes that each has.
 *   4. The server reports that the connection is granted: it stays open for as long as it is.
 *
 * When there is no room, an unauthenticated connection of the address with the most unauthenticated
 * connections is closed; a granted connection is never closed to make room. Each IPv4 address
 * counts alone, IPv6 addresses by their /64. Addresses that the server expects, or that had a
 * granted connection within the last hour, are trusted: each goes before all others until it has a
 * quarter of all places.
 *
 * The front end runs on a thread of its own: handshakes and floods take none of the server's time.
 */
#pragma once

#include "lib/base.h"
#include "lib/error.h"

struct frontend_limits {   /* zero: the defaults, frontend_limits_default() */
	size_t outside;	   /* unauthenticated connections before TLS */
	size_t opened;	   /* unauthenticated connections from the handshake on */
	uint64_t hello_ms; /* until the ClientHello is whole */
	uint64_t turn_ms;  /* from then until the handshake begins */
	uint64_t grant_ms; /* from then until it is granted */
	uint64_t spare_ms; /* instead of grant_ms while all are taken and others wait */
	uint64_t handshakes_per_s;
	size_t unauthenticated_bytes; /* that such a connection may send, TLS included */
};

/* Why a connection ended: enum, metric label. */
#define FRONTEND_ENDS(X)                                                                           \
	X(PEER, "peer")	      /* closed by the peer, or lost */                                    \
	X(SERVER, "server")   /* closed by the server behind */                                    \
	X(REFUSED, "refused") /* the server refused its token */                                   \
	X(NO_ROOM, "no_room") /* refused: its address has the most unauthenticated connections */  \
	X(DISPLACED, "displaced")     /* made room for another address */                          \
	X(NO_HELLO, "no_hello")	      /* no ClientHello in time */                                 \
	X(BAD_HELLO, "bad_hello")     /* not TLS, or a ClientHello too large or twice */           \
	X(NO_TURN, "no_turn")	      /* did not get its turn in time */                           \
	X(TLS, "tls")		      /* the handshake or a record failed */                       \
	X(NOT_GRANTED, "not_granted") /* not granted in time */                                    \
	X(BAD_FRAMES, "bad_frames")   /* not HTTP/2, or a frame beyond 16 KiB */                   \
	X(TOO_MUCH, "too_much")	      /* too many bytes before it was granted */                   \
	X(NO_MEMORY, "no_memory")     /* memory or file descriptors */                             \
	X(CLOSING, "closing")	      /* the front end closes */

enum frontend_end {
#define X(id, label) FRONTEND_END_##id,
	FRONTEND_ENDS(X)
#undef X
	    FRONTEND_END_COUNT
};
const char *frontend_end_name(enum frontend_end end);

struct frontend_options {
	const char *address;		/* "host:port", ":port" for all addresses, port 0 for any */
	const char *cert_pem, *key_pem; /* chain and key */
	struct frontend_limits limits;
	/*
	 * Called on the front end's thread. The callee owns FD, which is non-blocking: reading it
	 * yields the peer's plaintext, and bytes written to it are sent to the peer.
	 */
	void (*join)(void *arg, int fd);
	void *arg;
};

struct frontend_stats {
	uint64_t accepted;
	uint64_t ended[FRONTEND_END_COUNT];
	uint64_t handshakes; /* that were begun */
	uint64_t paused; /* times that accepting stopped for want of a file descriptor or memory */
	size_t outside, opened, granted; /* current numbers of connections */
};

struct frontend;

/* The default limits: shares of the container's memory limit (docs/node-stream.md). */
void frontend_limits_default(struct frontend_limits *ret);

int frontend_new(const struct frontend_options *options, struct frontend **ret,
		 struct error *err) _must_check_;
/* Ends all connections. join() is not called any more. */
struct frontend *frontend_free(struct frontend *frontend);
int frontend_port(const struct frontend *frontend);
/*
 * Sets the TLS certificate and private key, both PEM, for new connections; open connections keep
 * theirs. -EINVAL: OpenSSL refuses them, for example because the key does not belong to the
 * certificate; the old pair stays in use.
 */
int frontend_certificate(struct frontend *frontend, const char *cert_pem, const char *key_pem,
			 struct error *err) _must_check_;
void frontend_read(const struct frontend *frontend, struct frontend_stats *ret);
/* Makes ADDRESS trusted: IPv4 or IPv6, as text; anything else is ignored. Any thread. */
void frontend_trust(struct frontend *frontend, const char *address);

/* ---- what the server says of connections; any thread, until frontend_free() ------------------ */

/*
 * A connection, named by the FD that join() was given. File descriptor numbers are reused, ids are
 * not.
 */
struct frontend_ref {
	int fd;
	uint64_t id; /* 0: no connection has this FD */
};

/* What the server knows of one stream. A connection counts as granted while any stream of it is. */
enum frontend_auth {
	FRONTEND_UNAUTHENTICATED,
	FRONTEND_PENDING, /* its claims are being verified; it is not closed meanwhile */
	FRONTEND_GRANTED, /* its identity is verified */
	FRONTEND_REFUSED, /* not verified: ends soon unless another stream is granted */
	FRONTEND_AUTH_COUNT
};

struct frontend_ref frontend_find(struct frontend *frontend, int fd);
/*
 * Reports that a stream of REF changes from WAS to IS. WAS of a stream's first report and IS of
 * its last, when the stream ends, are FRONTEND_UNAUTHENTICATED.
 */
void frontend_report_auth(struct frontend *frontend, const struct frontend_ref *ref,
			  enum frontend_auth was, enum frontend_auth is);
