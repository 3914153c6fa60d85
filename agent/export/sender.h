/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sender: the way of batches from consume() to a receiver, the same for every protocol.
 *
 * Batches are encoded and compressed in the loop's thread pool, then wait in memory, beyond its cap
 * on disk (queue.storage), and go out in order, one request at a time. What is dropped is counted
 * with its reason. Nothing is dropped because the receiver is away: the caps decide, oldest first;
 * retry.max_elapsed_time counts only while the receiver is there and refuses.
 *
 * "Never lost, never doubled": a request whose answer did not come in time may have been taken. It
 * is sent again, as OTLP asks, and counted as uncertain.
 *
 * All functions on the loop thread.
 */
#pragma once

#include "lib/base.h" /* before uv.h: sys/param.h defines MIN and MAX too */

#include <uv.h>

#include "agent/config/config.h"
#include "agent/export/sender_transport.h"
#include "agent/profile/batch.h"
#include "agent/profile/otlp.h"

struct sender;

enum sender_drop {
	DROP_QUEUE_FULL,
	DROP_SPOOL_FULL,
	DROP_SPOOL_ERROR,
	DROP_REJECTED,
	DROP_EXPIRED,
	DROP_ENCODING,
	DROP_BACKLOG,
	DROP_SHUTDOWN,
	DROP_REASONS
};
const char *sender_drop_name(enum sender_drop reason);

/* Since the start, of this sender; the metrics kiln_export_* add all of them up. */
struct sender_stats {
	uint64_t sent_requests, retries, uncertain, partial, rejected_profiles, corrupt;
	int64_t sent_samples, dropped_samples[DROP_REASONS];
	uint64_t dropped_requests[DROP_REASONS];
	/* now */
	size_t queue_requests, queue_bytes, spool_requests;
	uint64_t spool_bytes;
	bool down; /* the last attempt failed */
};

struct sender_options {
	const struct exporter_config *config; /* read during sender_new() only */
	struct otlp_options otlp;
	bool generation_auto; /* otlp.generation is the first that is tried */
	enum payload_encoding encoding;
	uint32_t encodings; /* bits (1 << encoding) that the transport can send */
	/* otlp_encode(), or a test's own */
	int (*encode)(const struct batch *batch, const struct otlp_options *options,
		      struct otlp_request **ret_requests, size_t *ret_n, struct error *err);
};

/* Takes TRANSPORT in any case. Opens the spool, so what an earlier run left goes out at once. */
int sender_new(const struct sender_options *options, struct transport *transport, uv_loop_t *loop,
	       struct sender **ret, struct error *err) _must_check_;
/* The next request, and all after it, go by TRANSPORT (taken), which sends the same encodings: an
 * address or credentials are new. A wait that the receiver did not ask for ends. */
void sender_set_transport(struct sender *s, struct transport *transport);
void sender_consume(struct sender *s, struct batch *batch);
/* See exporter_ops.flush. What cannot be sent is spooled, or dropped and counted. */
void sender_flush(struct sender *s, uint64_t deadline_ms, void (*done)(void *), void *arg);
void sender_get_stats(const struct sender *s, struct sender_stats *ret);
/* The last answer was that of a receiver who takes what it is sent, or none came yet. Else ERROR
 * gets its words. */
bool sender_healthy(const struct sender *s, char *error, size_t size);
/* The receiver is there and has rejected every request lately. ERROR gets its words. */
bool sender_refused(const struct sender *s, char *error, size_t size);
/* Drops what is left. The memory goes when the loop has closed the handles: run it once more. */
struct sender *sender_free(struct sender *s);
