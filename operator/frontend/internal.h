/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by frontend.c (the thread, the server's reports), admit.c (accepting connections, their
 * turns, closing them) and conn.c (one connection: TLS and bytes both ways). All of it belongs to
 * the front end's thread, except the members under the lock.
 */
#pragma once

#include "operator/frontend/frontend.h"

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <uv.h>

#include "operator/frontend/frames.h"
#include "operator/frontend/trusted.h"

enum { FRONTEND_SCRATCH = 16 << 10 /* a TLS record's plaintext */ };

enum conn_state {
	CONN_HELLO,  /* its ClientHello is not whole */
	CONN_WAITS,  /* for its turn */
	CONN_OPENED, /* TLS; unauthenticated */
	CONN_GRANTED,
};

/*
 * Bytes of one direction that could not be sent yet. Until they are, nothing more is read for that
 * direction.
 */
struct rest {
	uint8_t *bytes; /* NULL: nothing */
	size_t at, len;
};

struct frontend_conn {
	struct frontend *frontend;
	enum conn_state state;
	struct source *source; /* NULL: granted */
	uint8_t key[SOURCE_KEY];
	struct frontend_conn *prev, *next;		 /* frontend->outside, opened or granted */
	struct frontend_conn *source_prev, *source_next; /* source->conns */
	struct frontend_conn *wait_prev, *wait_next;	 /* source->waiting */
	uint64_t since_ms;				 /* when it entered this state */
	uint64_t refused_ms;				 /* 0: not */
	uint64_t bytes_before; /* read from it when it last became unauthenticated */
	int peer_fd, core_fd;  /* core_fd -1: not joined yet */
	uv_poll_t peer, core;
	int peer_mask, core_mask; /* events that the handles are polled for */
	unsigned int open_handles;
	SSL *ssl;
	size_t hello; /* bytes of its ClientHello, once known */
	bool parked;  /* not polled before the next tick */
	bool shaken, wants_write, peer_eof, ended;
	struct rest to_peer, to_core;
	struct frames frames; /* of the peer */
	/* As bytes_before. calls_before is also set when the connection is granted. */
	uint64_t frames_before, calls_before;

	/* Under the front end's lock. */
	uint64_t id;
	int server_fd; /* the server's end; -1: none */
	unsigned int auths[FRONTEND_AUTH_COUNT];
	bool refused, changed;
	struct frontend_conn *changed_prev, *changed_next; /* frontend->changed */
};

struct frontend {
	struct frontend_options o;
	uv_loop_t loop;
	uv_thread_t thread;
	uv_poll_t listener;
	uv_timer_t tick, turn;
	uv_async_t wake;
	int listen_fd;
	uint16_t port;
	bool paused; /* no file descriptor: the listener rests until the next tick */
	struct source_table sources;
	struct source *turns; /* sources with a waiting connection; the first is next */
	struct frontend_conn *outside, *opened, *granted;
	size_t n_outside, n_opened, n_granted, n_waiting;
	uint64_t tokens, tokens_ms; /* handshakes that may begin, in thousandths */
	uint64_t last_id;
	uint8_t scratch[FRONTEND_SCRATCH];

	_Atomic uint64_t accepted, handshakes, pauses;
	_Atomic uint64_t ended[FRONTEND_END_COUNT];
	_Atomic size_t now[3]; /* outside, opened, granted */

	pthread_mutex_t lock; /* protects what is below and the last part of struct frontend_conn */
	bool closing;
	SSL_CTX *tls;
	struct frontend_conn **by_fd;
	size_t n_by_fd;
	struct frontend_conn *changed;
	struct trusted trusted;
};

/* admit.c */
void frontend_on_listener(uv_poll_t *poll, int status, int events);
void frontend_on_turn(uv_timer_t *timer);
void frontend_on_tick(uv_timer_t *timer);
/* The ClientHello of C is complete: C waits for its turn. */
void frontend_wait_for_turn(struct frontend_conn *c);
/*
 * Acts on the server's last reports: whether a stream of C is granted, and whether one was refused.
 */
void frontend_apply(struct frontend_conn *c, bool granted, bool refused);
/* Removes C from all lists. */
void frontend_forget(struct frontend_conn *c);
void frontend_publish_sizes(struct frontend *frontend);

/* conn.c */
/* PEER_FD is taken over. NULL without memory. */
struct frontend_conn *conn_new(struct frontend *frontend, int peer_fd);
/* Polls the sockets of C for the events that its state needs. */
void conn_watch(struct frontend_conn *c);
void conn_open(struct frontend_conn *c);
/*
 * Closes C and counts END as the reason; does nothing when C has ended. Its memory is freed by the
 * loop later.
 */
void conn_end(struct frontend_conn *c, enum frontend_end end);

/*
 * Ends C because the front end closes. First sends the server's pending bytes to the peer, as far
 * as the socket takes them.
 */
void conn_close(struct frontend_conn *c);

/* frontend.c: records FD as the server's end of C. */
int frontend_note_server_fd(struct frontend_conn *c, int fd) _must_check_;
void frontend_drop_server_fd(struct frontend_conn *c);

/* Makes the source address KEY trusted. */
void frontend_add_trusted(struct frontend *frontend, const uint8_t key[SOURCE_KEY]);
bool frontend_is_trusted(struct frontend *frontend, const uint8_t key[SOURCE_KEY]);

/* tls.c */
int frontend_tls_new(const char *cert_pem, const char *key_pem, SSL_CTX **ret,
		     struct error *err) _must_check_;

/* limits.c, for tests. Bytes; UINT64_MAX: no limit. */
uint64_t frontend_memory_limit(const char *file);
void frontend_limits_of(uint64_t memory, struct frontend_limits *ret);
