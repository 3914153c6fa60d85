/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct sender: carries batches from consume() to a receiver, the same for every protocol.
 *
 * Batches are encoded and compressed in the thread pool and then wait: in memory, and beyond the
 * queue's cap on disk (queue.storage). They are sent in order, one request at a time. What is
 * dropped is counted with its reason. Requests are not dropped because the receiver is away: only
 * the caps drop them, oldest first. retry.max_elapsed_time counts only while the receiver is
 * reachable and refuses.
 *
 * "Never lost, never doubled": a request whose answer did not come may have been taken. It is sent
 * again, as OTLP asks, and counted as uncertain; so is one that the transport itself has sent
 * again.
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

/* Owns TRANSPORT in any case. Opens the spool, so requests of an earlier run are sent at once. */
int sender_new(const struct sender_options *options, struct transport *transport, uv_loop_t *loop,
	       struct sender **ret, struct error *err) _must_check_;
/* Uses TRANSPORT, which it owns from here on, from the next request on: for a new address or new
 * credentials. It must support the same encodings. Ends a wait that the receiver did not ask
 * for. */
void sender_set_transport(struct sender *s, struct transport *transport);
void sender_consume(struct sender *s, struct batch *batch);
/* See exporter_ops.flush. Requests that cannot be sent are spooled, or dropped and counted. */
void sender_flush(struct sender *s, uint64_t deadline_ms, void (*done)(void *), void *arg);
void sender_get_stats(const struct sender *s, struct sender_stats *ret);
/* True when the receiver took the last request, or none was answered yet. Else ERROR gets the
 * receiver's words. */
bool sender_healthy(const struct sender *s, char *error, size_t size);
/* True when the receiver is reachable and has rejected every recent request. ERROR gets its
 * words. */
bool sender_refused(const struct sender *s, char *error, size_t size);
/* Drops the queue. The memory is freed when the loop has closed the handles: run it once more. */
struct sender *sender_free(struct sender *s);
