/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server on loopback for tests of clients. It uses nghttp2 and nothing of lib/, and accepts
 * streams of any method. It runs inside fake_pump(), on the test's own thread, in turns with the
 * client's loop, so tests may assert anywhere.
 */
#pragma once

#include "lib/base.h"

#include <uv.h>

enum { FAKE_CALLS = 32, FAKE_MESSAGES = 256 };

struct fake_server;

struct fake_message {
	uint8_t *data;
	size_t len;
};

struct fake_call {
	struct fake_server *server;
	char authorization[512], method[128], authority[128]; /* "": the client sent none */
	struct fake_message messages[FAKE_MESSAGES];
	size_t n_messages;
	bool ended; /* by the client or by fake_finish() */
	/* Private. */
	struct fake_connection *connection; /* NULL: its stream is closed */
	int32_t id;
	uint8_t *in; /* bytes of an incomplete message */
	size_t in_len;
	struct fake_message queue[FAKE_MESSAGES]; /* each with its gRPC prefix */
	size_t queued, sent, sent_at;
	bool finish;
	int status;
	char status_message[128];
};

struct fake_options {
	const char *cert_pem, *key_pem; /* NULL: plaintext */
	const char *client_ca_pem;	/* NULL: clients need no certificate */
	bool no_alpn;
	int max_version;   /* OpenSSL's number; 0: any */
	int port;	   /* 0: any */
	int refuse_status; /* a gRPC status: each call ends with it at once; 0: none */
	bool read_nothing;
};

int fake_server_start(const struct fake_options *options, struct fake_server **ret);
struct fake_server *fake_server_stop(struct fake_server *s); /* at once, as if killed */
int fake_server_port(const struct fake_server *s);
size_t fake_server_calls(const struct fake_server *s);
struct fake_call *fake_server_call(struct fake_server *s, size_t i); /* in order of arrival */

void fake_send(struct fake_call *c, const void *data, size_t len);
void fake_finish(struct fake_call *c, int status, const char *message);

/* Runs the server (may be NULL) and the loop until COND is true. False: not within SECONDS. */
bool fake_pump(struct fake_server *s, uv_loop_t *loop, bool (*cond)(void *arg), void *arg,
	       unsigned int seconds);

/* The name (SNI) that the last client asked for; "": none. */
const char *fake_server_name(const struct fake_server *s);

/*
 * A CA and a server certificate that it signed for NAME, a name or an address. PEM strings that the
 * caller frees.
 */
struct fake_pki {
	char *ca_pem, *cert_pem, *key_pem;
};
int fake_pki_make(const char *name, struct fake_pki *ret);
void fake_pki_done(struct fake_pki *p);
