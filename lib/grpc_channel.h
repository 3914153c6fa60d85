/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal to lib/: grpc_client.c and grpc_stream.c are built on it. Sends calls to one gRPC
 * endpoint, and opens a connection when a call needs one. Loop thread.
 *
 *   grpc_channel.c      struct grpc_channel: settings, calls that wait, time
 *   grpc_headers.c      the fields that every request begins with
 *   grpc_connection.c   struct grpc_connection: one peer, bytes and frames of HTTP/2
 *   grpc_response.c     what HTTP/2 tells of a call: nghttp2's callbacks
 *   grpc_call.c         struct grpc_call: messages, and how it ends
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "lib/client_socket.h"
#include "lib/grpc_client.h"
#include "lib/grpc_wire.h"

enum {
	CONNECTION_READ = 16 << 10,
	CONNECTION_READS = 4,			 /* at once: others have their turn */
	CONNECTION_WRITE = 2 * ((16 << 10) + 9), /* two of nghttp2's largest frames */
	HEADERS_MAX = 16 << 10, /* bytes of an answer's header list, 32 for each field (RFC 9113) */
	CALL_WORDS_MAX = CLIENT_SOCKET_WORDS_MAX,
};

struct grpc_channel;
struct grpc_connection;
struct grpc_call;

struct grpc_call_events {
	/* The headers, then each message, are out: grpc_call_send() takes the next. */
	void (*sent)(struct grpc_call *call);
	/* DATA is valid during the call. */
	void (*message)(struct grpc_call *call, const uint8_t *data, size_t len);
	/* The last one: status, words, details and `reached` are there to read. */
	void (*closed)(struct grpc_call *call);
};

/* A message of ours, with its prefix. */
struct grpc_outgoing {
	size_t len, at; /* `at`: how much HTTP/2 has taken */
	bool is_last;
	uint8_t bytes[];
};

struct grpc_call {
	struct grpc_channel *channel;
	struct grpc_call *prev, *next;	    /* channel->calls */
	struct grpc_connection *connection; /* NULL: it waits for one, or has ended */
	int32_t id;			    /* of HTTP/2, on that connection */
	const struct grpc_call_events *events;
	void *arg;
	char *method;
	uint64_t began_ms, deadline_ms; /* deadline 0: none */

	struct grpc_outgoing *outgoing; /* that HTTP/2 has not taken whole */
	bool flushed;			/* it has, or the headers: sent() is due */

	/* The answer's headers, field by field; `has_headers` once the first ones are whole. */
	size_t header_bytes;
	int http_status, grpc_status; /* grpc_status -1: not told */
	bool other_type, has_headers;
	char type[64], encoding[32];
	struct grpc_inbox in;

	/* The end. */
	bool ended;    /* nothing of HTTP/2 concerns it any more */
	bool unwanted; /* by its caller, or by us: what has come is not told */
	bool reached;  /* a server may have seen it */
	int status;
	char *words; /* NULL: text is */
	char text[CALL_WORDS_MAX];
	uint8_t *details; /* grpc-status-details-bin */
	size_t details_len;
};

struct grpc_connection {
	struct grpc_channel *channel;
	struct grpc_connection *prev, *next; /* channel->connections */
	struct client_socket *socket;
	nghttp2_session *session; /* NULL: the socket is not open */
	bool ready;		  /* its first SETTINGS have come: it speaks HTTP/2 */
	bool retired;		  /* takes no more calls, and ends with the last one */
	bool failed;		  /* cannot go on; `why` */
	bool fresh;		  /* nothing has come */
	bool broken;		  /* the socket takes nothing any more */
	char why[CALL_WORDS_MAX];
	size_t n_calls;
	uint8_t *out; /* while flushing */
	size_t out_len;
	uint8_t *rest; /* what the socket did not take; NULL: nothing */
	size_t rest_at, rest_len;
	uint64_t heard_ms, pinged_ms; /* pinged 0: no ping of ours is under way */
};

struct grpc_channel {
	uv_loop_t *loop;
	uv_timer_t timer; /* keeps the loop alive while there are calls */
	uv_idle_t run;	  /* while something is due */
	unsigned int open_handles;
	bool freed;
	struct grpc_target target;
	struct tls_options tls; /* strings are its own */
	char *authority;	/* server_name, or the target's */
	nghttp2_nv *fields;	/* that are the same for every request */
	size_t n_fields;
	uint64_t keepalive_ms;
	size_t message_max;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct grpc_call *calls;
	struct grpc_connection *connections, *current; /* current: for the next call */
};

/* ---- grpc_channel.c ----------------------------------------------------------------------------
 */

/*
 * Does not connect; reads the files of TLS once, to tell of settings that cannot work (-EINVAL with
 * words). KEEPALIVE_MS: of silence while there are calls, until a ping; 0: none.
 */
int grpc_channel_new(const struct grpc_client_options *options, uint64_t keepalive_ms,
		     size_t message_max, uv_loop_t *loop, struct grpc_channel **ret,
		     struct error *err) _must_check_;
/*
 * Cuts all calls off, without callbacks; from a callback, too. Memory goes when the loop has closed
 * the handles.
 */
struct grpc_channel *grpc_channel_free(struct grpc_channel *ch);
/* METHOD: "/package.Service/Method". TIMEOUT_MS 0: none. Callbacks come later, from the loop. */
int grpc_channel_call(struct grpc_channel *ch, const char *method, uint64_t timeout_ms,
		      const struct grpc_call_events *events, void *arg,
		      struct grpc_call **ret) _must_check_;
/* Something changed: calls and connections are looked after soon, from the loop. */
void grpc_channel_due(struct grpc_channel *ch);
/* The same now. Calls the application: the last thing that anybody does in a callback. */
void grpc_channel_work(struct grpc_channel *ch);
/* Takes a call out of its channel. */
void grpc_channel_unlink(struct grpc_call *call);

/* ---- grpc_call.c -------------------------------------------------------------------------------
 */

/* DATA is copied. -EAGAIN: one is under way; -ENOTCONN: the call has ended; -ENOMEM. */
int grpc_call_send(struct grpc_call *call, const void *data, size_t len, bool gzipped,
		   bool is_last) _must_check_;
/* closed() with CANCELLED follows, and nothing else. */
void grpc_call_cancel(struct grpc_call *call);
/* Ends it, unless it has ended: told once what came before was told. */
void grpc_call_end(struct grpc_call *call, int status, const char *format, ...) _printf_(3, 4);
/* The same, by us: what came is not told, and the peer hears CANCEL. */
void grpc_call_cut(struct grpc_call *call, int status, const char *format, ...) _printf_(3, 4);
/* Bytes of messages have come. */
void grpc_call_take(struct grpc_call *call, const uint8_t *bytes, size_t len);
/* Tells the application what is to be told. False: it has freed the channel. */
bool grpc_call_tell(struct grpc_call *call);
void grpc_call_free(struct grpc_call *call);
/* One that nobody is told of, before the loop has seen it. */
void grpc_call_drop(struct grpc_call *call);

/* ---- grpc_connection.c -------------------------------------------------------------------------
 */

int grpc_connection_new(struct grpc_channel *ch, struct grpc_connection **ret,
			struct error *err) _must_check_;
/* Calls that it has must have ended. */
void grpc_connection_free(struct grpc_connection *c);
/* What has come since, so that a peer that is gone is given no call. */
void grpc_connection_read(struct grpc_connection *c);
struct grpc_call *grpc_connection_find(const struct grpc_connection *c, int32_t id);
/* -errno: it is not begun. */
int grpc_connection_begin(struct grpc_connection *c, struct grpc_call *call) _must_check_;
void grpc_connection_flush(struct grpc_connection *c);
/* Ends its calls. */
void grpc_connection_fail(struct grpc_connection *c, const char *why);
void grpc_connection_check(struct grpc_connection *c);
/* It may be freed. */
bool grpc_connection_over(const struct grpc_connection *c);
/* Pings, and time that has run out. */
void grpc_connection_tick(struct grpc_connection *c, uint64_t now_ms);
uint64_t grpc_connection_due_ms(const struct grpc_connection *c); /* UINT64_MAX: never */
/* For nghttp2: DATA of a call into the output. */
int grpc_connection_write_data(struct grpc_connection *c, const uint8_t *header,
			       struct grpc_call *call, size_t len);

/* ---- grpc_response.c ---------------------------------------------------------------------------
 */

int grpc_callbacks_new(nghttp2_session_callbacks **ret) _must_check_;

/* ---- grpc_headers.c ----------------------------------------------------------------------------
 */

/* Fields of OPTIONS' headers and the user agent into CH. -EINVAL with words, -ENOMEM. */
int grpc_headers_new(struct grpc_channel *ch, const struct grpc_client_options *options,
		     struct error *err) _must_check_;
void grpc_headers_free(struct grpc_channel *ch);
/* Submits the request of CALL: its id, or a negative number of nghttp2. */
int32_t grpc_headers_submit(struct grpc_connection *c, struct grpc_call *call,
			    const nghttp2_data_provider *data) _must_check_;
