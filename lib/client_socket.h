/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct client_socket: a byte stream to a peer. It resolves the peer's name and tries its
 * addresses (lib/dial.h), goes through an HTTP proxy if the environment names one
 * (lib/http_proxy.h), and speaks TLS unless the target is plaintext (lib/tls_client.h). Dialing may
 * take 20 s, and so may everything from connecting to client_socket_settle(). Loop thread; does not
 * keep the loop alive.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "lib/error.h"
#include "lib/grpc_target.h"
#include "lib/tls.h"

struct client_socket;

enum { CLIENT_SOCKET_STEP_MS = 20000, CLIENT_SOCKET_WORDS_MAX = 512 };

struct client_socket_options { /* all of it outlives the socket */
	const struct grpc_target *target;
	const struct tls_options *tls; /* not used when the target is plaintext */
	const char *protocol;	       /* ALPN: the peer has to choose it */
};

struct client_socket_events {
	/* The connection is established, TLS included: bytes can be read and written. */
	void (*opened)(void *arg);
	/* The socket may be readable or writable again. */
	void (*ready)(void *arg);
	/* The connection could not be established. This is the last callback, and the only one that
	 * client_socket_tick() may call. */
	void (*failed)(void *arg, const char *words);
	void *arg;
};

/* -EINVAL: the settings cannot work, ERR says why; -ENOMEM. */
int client_socket_new(const struct client_socket_options *options, uv_loop_t *loop,
		      const struct client_socket_events *events, struct client_socket **ret,
		      struct error *err) _must_check_;
/* Closes it, without callbacks. */
struct client_socket *client_socket_free(struct client_socket *s);
/* Call when client_socket_due_ms() is reached: gives up a step that takes too long. */
void client_socket_tick(struct client_socket *s, uint64_t now_ms);
/* When to call client_socket_tick(); UINT64_MAX: never. */
uint64_t client_socket_due_ms(const struct client_socket *s);
/*
 * Called by the owner after opened(), when the peer turns out to be unusable because of WORDS.
 * Closes this connection and tries the other addresses; opened() or failed() follows.
 */
void client_socket_again(struct client_socket *s, const char *words);
/* The peer is usable: the time limit of the current step no longer applies. */
void client_socket_settle(struct client_socket *s);

/* Returns the number of bytes read; 0 when there are none yet; -ECONNRESET when the connection has
 * ended (client_socket_why() gives the reason). */
ssize_t client_socket_read(struct client_socket *s, uint8_t *out, size_t size) _must_check_;
/* Returns the number of bytes written. The caller writes the remaining bytes again later; that call
 * must start with the same bytes. 0 and -ECONNRESET as above. */
ssize_t client_socket_write(struct client_socket *s, const uint8_t *bytes, size_t len) _must_check_;
/* WANTED: call ready() also when the socket is writable. */
int client_socket_want_room(struct client_socket *s, bool wanted) _must_check_;
const char *client_socket_why(const struct client_socket *s);
const char *client_socket_address(const struct client_socket *s); /* of the peer, for messages */
