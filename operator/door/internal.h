/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by door.c (the thread, the server's reports), admit.c (accepting connections, their turns,
 * closing them) and conn.c (one connection: TLS and bytes both ways). All of it belongs to the
 * door's thread, except the members under the lock.
 */
#pragma once

#include "operator/door/door.h"

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <uv.h>

#include "operator/door/frames.h"
#include "operator/door/friends.h"

enum { DOOR_SCRATCH = 16 << 10 /* a TLS record's plaintext */ };

enum conn_state {
	CONN_HELLO,  /* its ClientHello is not whole */
	CONN_WAITS,  /* for its turn */
	CONN_OPENED, /* TLS; a stranger */
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

struct door_conn {
	struct door *door;
	enum conn_state state;
	struct source *source; /* NULL: granted */
	uint8_t key[SOURCE_KEY];
	struct door_conn *prev, *next;		     /* door->outside, opened or granted */
	struct door_conn *source_prev, *source_next; /* source->conns */
	struct door_conn *wait_prev, *wait_next;     /* source->waiting */
	uint64_t since_ms;			     /* when it entered this state */
	uint64_t refused_ms;			     /* 0: not */
	uint64_t bytes_before; /* read from the peer when it last became a stranger */
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

	/* Under the door's lock. */
	uint64_t id;
	int guest_fd; /* the server's end; -1: none */
	unsigned int standings[DOOR_STANDINGS];
	bool refused, changed;
	struct door_conn *changed_prev, *changed_next; /* door->changed */
};

struct door {
	struct door_options o;
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
	struct door_conn *outside, *opened, *granted;
	size_t n_outside, n_opened, n_granted, n_waiting;
	uint64_t tokens, tokens_ms; /* handshakes that may begin, in thousandths */
	uint64_t last_id;
	uint8_t scratch[DOOR_SCRATCH];

	_Atomic uint64_t accepted, handshakes, pauses;
	_Atomic uint64_t ended[DOOR_END_COUNT];
	_Atomic size_t now[3]; /* outside, opened, granted */

	pthread_mutex_t lock; /* protects the members below and the last ones of struct door_conn */
	bool closing;
	SSL_CTX *tls;
	struct door_conn **by_fd;
	size_t n_by_fd;
	struct door_conn *changed;
	struct friends friends;
};

/* admit.c */
void door_on_listener(uv_poll_t *poll, int status, int events);
void door_on_turn(uv_timer_t *timer);
void door_on_tick(uv_timer_t *timer);
/* The ClientHello of C is complete: C waits for its turn. */
void door_wait_for_turn(struct door_conn *c);
/*
 * Acts on the server's last reports: whether a stream of C is granted, and whether one was refused.
 */
void door_apply(struct door_conn *c, bool granted, bool refused);
/* Removes C from all lists. */
void door_forget(struct door_conn *c);
void door_tell_sizes(struct door *door);

/* conn.c */
/* PEER_FD is taken over. NULL without memory. */
struct door_conn *conn_new(struct door *door, int peer_fd);
/* Polls the sockets of C for the events that its state needs. */
void conn_watch(struct door_conn *c);
void conn_open(struct door_conn *c);
/*
 * Closes C and counts END as the reason; does nothing when C has ended. Its memory is freed by the
 * loop later.
 */
void conn_end(struct door_conn *c, enum door_end end);

/*
 * Ends C because the door closes. First sends the server's pending bytes to the peer, as far as the
 * socket takes them.
 */
void conn_close(struct door_conn *c);

/* door.c: records FD as the server's end of C. */
int door_note_guest(struct door_conn *c, int fd) _must_check_;
void door_drop_guest(struct door_conn *c);

/* Makes the source address KEY a friend. */
void door_befriend(struct door *door, const uint8_t key[SOURCE_KEY]);
bool door_is_friend(struct door *door, const uint8_t key[SOURCE_KEY]);

/* tls.c */
int door_tls_new(const char *cert_pem, const char *key_pem, SSL_CTX **ret,
		 struct error *err) _must_check_;

/* limits.c, for tests. Bytes; UINT64_MAX: no limit. */
uint64_t door_memory_limit(const char *file);
void door_limits_of(uint64_t memory, struct door_limits *ret);
