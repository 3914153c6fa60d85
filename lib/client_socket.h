/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct client_socket: bytes to and from a peer: its name is resolved, its addresses are tried
 * (lib/dial.h), if the environment says so through an HTTP proxy (lib/http_proxy.h), and TLS is
 * spoken when that is wanted (lib/tls_client.h). Each step has 20 s. Loop thread; does not keep the
 * loop alive.
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
	const struct tls_options *tls; /* read when the target is not plaintext */
	const char *protocol;	       /* ALPN: the peer has to choose it */
};

struct client_socket_events {
	/* Bytes go both ways from now on. */
	void (*opened)(void *arg);
	/* There may be something to read, or room to write again. */
	void (*ready)(void *arg);
	/* It could not be opened: the last callback. Only it may come from inside _tick(). */
	void (*failed)(void *arg, const char *words);
	void *arg;
};

/* -EINVAL with words when the settings cannot work; -ENOMEM. */
int client_socket_new(const struct client_socket_options *options, uv_loop_t *loop,
		      const struct client_socket_events *events, struct client_socket **ret,
		      struct error *err) _must_check_;
/* Closes it, without callbacks. */
struct client_socket *client_socket_free(struct client_socket *s);
/* Once a second or so: lets steps end that take too long. */
void client_socket_tick(struct client_socket *s, uint64_t now_ms);
uint64_t client_socket_due_ms(const struct client_socket *s); /* when to; UINT64_MAX: no need */
/*
 * Instead of opened's success: what answers there is of no use, because of WORDS. Other addresses
 * are tried; opened() or failed() follows.
 */
void client_socket_again(struct client_socket *s, const char *words);
/* The peer is of use: the step that began with its address is done. */
void client_socket_settle(struct client_socket *s);

/* > 0: so many bytes; 0: none now; -ECONNRESET: it is over, client_socket_why() tells why. */
ssize_t client_socket_read(struct client_socket *s, uint8_t *out, size_t size) _must_check_;
/* How many it took: the rest is to be written again, with the same bytes in front. */
ssize_t client_socket_write(struct client_socket *s, const uint8_t *bytes, size_t len) _must_check_;
/* Calls ready() for room, too. */
int client_socket_want_room(struct client_socket *s, bool wanted) _must_check_;
const char *client_socket_why(const struct client_socket *s);
const char *client_socket_address(const struct client_socket *s); /* of the peer, for messages */
