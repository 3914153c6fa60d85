/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internal to lib/: grpc_client.c and grpc_stream.c are built on it. Sends calls to one gRPC
 * endpoint, and opens a connection when a call needs one. Loop thread.
 *
 *   grpc_channel.c      struct grpc_channel: settings, calls that wait, time
 *   grpc_headers.c      the fields that every request begins with
 *   grpc_connection.c   struct grpc_connection: one peer, bytes and frames of HTTP/2
 *   grpc_response.c     nghttp2's callbacks for responses: headers, message bytes, end of streams
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
	CONNECTION_READS = 4, /* per turn of the loop, so that other work gets its turn */
	CONNECTION_WRITE = 2 * ((16 << 10) + 9), /* two of nghttp2's largest frames */
	/* Bytes of a response's header list: names, values and 32 a field (RFC 9113 §6.5.2). */
	HEADERS_MAX = 16 << 10,
	CALL_WORDS_MAX = CLIENT_SOCKET_WORDS_MAX,
};

struct grpc_channel;
struct grpc_connection;
struct grpc_call;

struct grpc_call_events {
	/* The request's headers, or the last message, have been written: grpc_call_send() accepts
	 * the next message. */
	void (*sent)(struct grpc_call *call);
	/* DATA is valid during the call. */
	void (*message)(struct grpc_call *call, const uint8_t *data, size_t len);
	/* The last callback: status, words, details and `reached` are valid. */
	void (*closed)(struct grpc_call *call);
};

/* A message to be sent, with its gRPC prefix. */
struct grpc_outgoing {
	size_t len, at; /* `at`: bytes that nghttp2 has taken */
	bool is_last;
	uint8_t bytes[];
};

struct grpc_call {
	struct grpc_channel *channel;
	struct grpc_call *prev, *next; /* channel->calls */
	/* NULL: the call waits for a connection, or has ended */
	struct grpc_connection *connection;
	int32_t id; /* HTTP/2 stream id on that connection; 0: none */
	const struct grpc_call_events *events;
	void *arg;
	char *method;
	uint64_t began_ms, deadline_ms; /* deadline 0: none */

	/* The message that nghttp2 has not taken completely; NULL: none. */
	struct grpc_outgoing *outgoing;
	bool flushed; /* nghttp2 has taken the message or the headers: sent() is due */

	/* The fields of the header block being received. has_headers: the first block that is not
	 * informational (1xx) is complete. */
	size_t header_bytes;
	int http_status, grpc_status; /* grpc_status -1: not received */
	bool other_type, has_headers;
	char type[64], encoding[32];
	struct grpc_inbox in;

	/* How the call ended. */
	bool ended; /* it has left its connection */
	/* Cancelled or cut by this side: messages received before are not delivered. */
	bool unwanted;
	bool reached; /* the request's headers were sent: a server may have acted on them */
	int status;
	char *words; /* the peer's message; NULL: `text` has the message */
	char text[CALL_WORDS_MAX];
	uint8_t *details; /* grpc-status-details-bin */
	size_t details_len;
};

struct grpc_connection {
	struct grpc_channel *channel;
	struct grpc_connection *prev, *next; /* channel->connections */
	struct client_socket *socket;
	nghttp2_session *session; /* NULL: the socket is not open */
	bool ready;   /* the peer's first SETTINGS frame was received: it speaks HTTP/2 */
	bool retired; /* takes no new calls, and is closed after its last one */
	bool failed;  /* the connection is unusable; `why` has the reason */
	bool fresh;   /* no byte was received yet */
	bool broken;  /* a write to the socket failed */
	char why[CALL_WORDS_MAX];
	size_t n_calls;
	uint8_t *out; /* output buffer of grpc_connection_flush(), valid while it runs */
	size_t out_len;
	uint8_t *rest; /* bytes that the socket has not taken yet; NULL: none */
	size_t rest_at, rest_len;
	uint64_t heard_ms, pinged_ms; /* pinged 0: no ping waits for its answer */
};

struct grpc_channel {
	uv_loop_t *loop;
	uv_timer_t timer; /* keeps the loop alive while there are calls */
	uv_idle_t run;	  /* active while grpc_channel_work() has something to do */
	unsigned int open_handles;
	bool freed;
	struct grpc_target target;
	struct tls_options tls; /* strings are its own */
	char *authority;	/* server_name, or the target's */
	nghttp2_nv *fields;	/* the header fields that all requests have in common */
	size_t n_fields;
	uint64_t keepalive_ms;
	size_t message_max;
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;
	struct grpc_call *calls;
	struct grpc_connection *connections, *current; /* current: used for new calls */
};

/* ---- grpc_channel.c ----------------------------------------------------------------------------
 */

/*
 * Does not connect. Reads the TLS files once, to report settings that cannot work (-EINVAL with
 * words). KEEPALIVE_MS: how long the peer may be silent while there are calls, until it is sent a
 * ping; 0: no pings.
 */
int grpc_channel_new(const struct grpc_client_options *options, uint64_t keepalive_ms,
		     size_t message_max, uv_loop_t *loop, struct grpc_channel **ret,
		     struct error *err) _must_check_;
/*
 * Ends all calls, without callbacks. May be called from a callback. The memory is freed when the
 * loop has closed the handles.
 */
struct grpc_channel *grpc_channel_free(struct grpc_channel *ch);
/* METHOD: "/package.Service/Method". TIMEOUT_MS 0: no timeout. The callbacks come later, from the
 * loop. */
int grpc_channel_call(struct grpc_channel *ch, const char *method, uint64_t timeout_ms,
		      const struct grpc_call_events *events, void *arg,
		      struct grpc_call **ret) _must_check_;
/* Has the idle handle run grpc_channel_work() in the next turn of the loop. */
void grpc_channel_due(struct grpc_channel *ch);
/* Begins waiting calls, writes and reads, and calls the application's callbacks. May free the
 * channel's calls and connections, so it is the last thing that an event handler does. */
void grpc_channel_work(struct grpc_channel *ch);
/* Takes a call out of its channel. */
void grpc_channel_unlink(struct grpc_call *call);

/* ---- grpc_call.c -------------------------------------------------------------------------------
 */

/* DATA is copied. -EAGAIN: the last message is still being sent; -ENOTCONN: the call has ended;
 * -ENOMEM. */
int grpc_call_send(struct grpc_call *call, const void *data, size_t len, bool gzipped,
		   bool is_last) _must_check_;
/* Ends the call: closed() with CANCELLED is its only further callback. */
void grpc_call_cancel(struct grpc_call *call);
/* Ends the call with STATUS, unless it has ended. Messages received before are still delivered,
 * then closed() follows. */
void grpc_call_end(struct grpc_call *call, int status, const char *format, ...) _printf_(3, 4);
/* Ends the call with STATUS from this side: messages received before are not delivered, and the
 * peer gets RST_STREAM with CANCEL. */
void grpc_call_cut(struct grpc_call *call, int status, const char *format, ...) _printf_(3, 4);
/* Takes bytes of messages that were received. */
void grpc_call_take(struct grpc_call *call, const uint8_t *bytes, size_t len);
/* Calls the callbacks that are due. False: the application has freed the channel. */
bool grpc_call_tell(struct grpc_call *call);
void grpc_call_free(struct grpc_call *call);
/* Removes and frees a call that was just made, without callbacks. */
void grpc_call_drop(struct grpc_call *call);

/* ---- grpc_connection.c -------------------------------------------------------------------------
 */

int grpc_connection_new(struct grpc_channel *ch, struct grpc_connection **ret,
			struct error *err) _must_check_;
/* All calls of the connection must have ended. */
void grpc_connection_free(struct grpc_connection *c);
/* Reads what has arrived. Also used before a call is begun, to notice a peer that is gone. */
void grpc_connection_read(struct grpc_connection *c);
struct grpc_call *grpc_connection_find(const struct grpc_connection *c, int32_t id);
/* A negative errno when the request could not be submitted. */
int grpc_connection_begin(struct grpc_connection *c, struct grpc_call *call) _must_check_;
void grpc_connection_flush(struct grpc_connection *c);
/* Marks the connection as failed, and ends its calls with UNAVAILABLE and WHY. */
void grpc_connection_fail(struct grpc_connection *c, const char *why);
void grpc_connection_check(struct grpc_connection *c);
/* Whether the connection may be freed. */
bool grpc_connection_over(const struct grpc_connection *c);
/* Sends a due ping, and ends steps and pings that took too long. */
void grpc_connection_tick(struct grpc_connection *c, uint64_t now_ms);
uint64_t grpc_connection_due_ms(const struct grpc_connection *c); /* UINT64_MAX: never */
/* For nghttp2's send_data callback: appends LEN bytes of the call's message to the output. */
int grpc_connection_write_data(struct grpc_connection *c, const uint8_t *header,
			       struct grpc_call *call, size_t len);

/* ---- grpc_response.c ---------------------------------------------------------------------------
 */

int grpc_callbacks_new(nghttp2_session_callbacks **ret) _must_check_;

/* ---- grpc_headers.c ----------------------------------------------------------------------------
 */

/* Makes the header fields that all requests of CH have, from OPTIONS. -EINVAL, -ENOMEM. */
int grpc_headers_new(struct grpc_channel *ch, const struct grpc_client_options *options,
		     struct error *err) _must_check_;
void grpc_headers_free(struct grpc_channel *ch);
/* Submits the request of CALL. Returns its stream id, or a negative error code of nghttp2. */
int32_t grpc_headers_submit(struct grpc_connection *c, struct grpc_call *call,
			    const nghttp2_data_provider *data) _must_check_;
