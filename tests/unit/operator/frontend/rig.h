/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A front end on 127.0.0.1, blocking clients of it (with a time limit), and the sockets by which it
 * joins them to the server.
 */
#pragma once

#include <openssl/ssl.h>
#include <pthread.h>

#include "operator/frontend/frontend.h"
#include "operator/frontend/frames.h"
#include "operator/stream/tls.h"
#include "tests/support/test.h"

enum { RIG_JOINED_MAX = 256, RIG_WAIT_S = 20 };
enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_PING = 6, FRAME_CONTINUATION = 9 };

struct frontend_rig {
	struct stream_tls tls;
	struct frontend *frontend;
	pthread_mutex_t lock;
	int joined[RIG_JOINED_MAX]; /* the server's ends, blocking, in order */
	size_t n_joined;
};

/* LIMITS: 0 for a limit that the test does not need; may be NULL. */
void rig_init(struct frontend_rig *rig, const struct frontend_limits *limits);
void rig_done(struct frontend_rig *rig);
struct frontend_stats rig_stats(struct frontend_rig *rig);
/* Waits until the counter at OFFSET of the stats is VALUE. */
void rig_until_at(struct frontend_rig *rig, size_t offset, uint64_t value);
#define rig_until(rig, field, value)                                                               \
	rig_until_at(rig, offsetof(struct frontend_stats, field), value)
#define rig_until_ended(rig, why, value) rig_until(rig, ended[FRONTEND_END_##why], value)
/* Waits for the Nth joined connection; returns the server's end. */
int rig_joined(struct frontend_rig *rig, size_t n);
/* Reports the server's judgement of connection N. */
void rig_judge(struct frontend_rig *rig, size_t n, enum frontend_auth was, enum frontend_auth is);

struct client {
	int fd;
	SSL_CTX *context;
	SSL *ssl;
};

/* Connects from 127.0.0.SOURCE; sends nothing yet. */
void client_connect(struct frontend_rig *rig, struct client *c, unsigned int source);
/* Its ClientHello, to be sent by client_send_raw(); client_shake() continues the handshake. */
size_t client_hello(struct client *c, uint8_t *ret, size_t size);
void client_send_raw(struct client *c, const void *bytes, size_t len);
/* False: the front end closed the connection. */
bool client_shake(struct client *c);
void client_open(struct frontend_rig *rig, struct client *c, unsigned int source);
/* Opens a connection and sends HTTP/2's preface, so that the front end joins it to the server. */
void client_join(struct frontend_rig *rig, struct client *c, unsigned int source);
/* False: the front end closed the connection. */
bool client_send_frame(struct client *c, uint8_t type, const void *payload, size_t len);
void frame_header(uint8_t ret[FRAMES_HEADER], size_t len, uint8_t type);
/* Waits until the front end closes the connection. */
void client_until_closed(struct client *c);
bool client_is_open(struct client *c);
void client_done(struct client *c);
