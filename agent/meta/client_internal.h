/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of meta_client. */
#pragma once

#include "agent/meta/client.h"
#include "agent/meta/pods_update.h"
#include "agent/meta/token.h"
#include "lib/backoff.h"
#include "lib/buf.h"
#include "lib/grpc_stream.h"
#include "lib/log.h"
#include "lib/work.h"

enum { META_PROTOCOL = 1, META_REPORT_MIN_MS = 1000 };

/* The copy on disk, which a thread of the pool writes. */
struct meta_saver {
	char *path; /* NULL: no copy is kept */
	struct work work;
	bool working;
	struct buf bytes;
	int result;
	uint64_t generation, written; /* the table's generation in `bytes`, and in the file */
	uint64_t last_ms;
	struct log_limit limit;
};

struct meta_client {
	struct meta_options options; /* the strings are ours */
	struct meta_events events;
	uv_loop_t *loop;
	uv_timer_t tick, retry;
	unsigned int open_handles; /* of the loop: the memory is freed after the last */
	bool freed;
	struct pod_table *table;
	struct grpc_stream *stream;
	struct backoff backoff;
	struct meta_saver saver;

	/* The connection. */
	struct token token;
	uint64_t began_ms, heard_ms; /* when the connection began; when the last message came */
	bool greeted;		     /* Hello was sent */
	bool offered;		     /* Hello named a state that the operator may resume */
	bool welcomed, synced;	     /* synced: the table is the operator's current state */
	bool writable;
	bool ack_due, report_due, report_soon;
	bool resync;	  /* do not resume: the state may be wrong */
	bool renew;	  /* closed by us for a newer token: connect again at once */
	char reason[256]; /* why this side closed; "" when the operator did */
	uint64_t report_interval_ms, reported_ms, token_read_ms;

	struct meta_status status;
	char node_name[POD_NAME_MAX + 1], cluster_uid[POD_NAME_MAX + 1], error[512];
	struct log_limit failure_limit, token_limit;
};

/* client_report.c: sends what is due, one message at a time. */
void meta_send_due(struct meta_client *c);

/* client_session.c: one message of the operator. */
void meta_receive(struct meta_client *c, const uint8_t *data, size_t len);
/* Ends the connection, and says why. */
void meta_give_up(struct meta_client *c, const char *format, ...) _printf_(2, 3);

/* At a tick: after a resume without changes the operator sends nothing more, so silence counts as
 * synced. */
void meta_resumed(struct meta_client *c, uint64_t now_ms);

/* client.c: one of the open handles has closed; the last one frees the memory. */
void meta_handle_gone(struct meta_client *c);

/* saver.c */
void meta_saver_load(struct meta_client *c);
void meta_saver_tick(struct meta_client *c, uint64_t now_ms);
void meta_saver_finish(struct meta_client *c); /* writes what is missing, now */
