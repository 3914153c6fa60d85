/* SPDX-License-Identifier: Apache-2.0 */
/* What sender.c (queue and sending) and sender_job.c (work in the thread pool) share. */
#pragma once

#include "agent/export/sender.h"

#include "agent/export/spool.h"
#include "lib/backoff.h"
#include "lib/log.h"

struct item { /* one request in memory */
	struct item *prev, *next;
	struct payload payload;
	uint64_t seq;
	bool spooled; /* a copy is on disk */
};

enum { SENDER_ERROR_MAX = 256 };

enum job_type { JOB_ENCODE, JOB_SPOOL_PUT, JOB_SPOOL_LOAD, JOB_SPOOL_REMOVE };

/*
 * Work for the pool. One job of a sender runs at a time, in order: that keeps batches in order and
 * the spool with one user. While it runs, the loop does not touch the job or the spool.
 */
struct job {
	uv_work_t work;
	struct job *prev, *next;
	struct sender *sender;
	enum job_type type;
	struct batch *batch;   /* ENCODE */
	struct item *items;    /* PUT: in, what failed stays; ENCODE, LOAD: out */
	uint64_t seq;	       /* LOAD: after this; REMOVE: this */
	uint64_t budget_bytes; /* LOAD */
	size_t budget_items;   /* LOAD */
	int result;
	struct error error;
	struct spool_loss loss;
	/* the spool afterwards */
	size_t spool_requests, spool_unread;
	uint64_t spool_bytes;
};

struct sender {
	uv_loop_t *loop;
	char *name, *endpoint;
	struct transport *transport;
	struct transport *next;	       /* takes over before the next request; NULL: none */
	struct sender_options options; /* without config */
	struct retry_config retry;
	uint64_t timeout_ms, max_bytes;
	size_t max_requests;

	struct item *queue; /* oldest first; the head is the one under way */
	struct job *jobs;   /* the head runs */
	size_t batches;	    /* ENCODE jobs */
	bool job_running, load_queued;

	struct spool *spool; /* NULL: memory only */
	uint64_t next_seq, read_up_to;
	size_t unread, puts_pending; /* on disk and not in memory; on the way there */

	uv_timer_t wait;     /* backoff */
	uv_timer_t deadline; /* of flush */
	bool in_flight, waiting, flushing, spilling, freed;
	bool answering;	 /* a callback of the transport runs: it cannot be destroyed */
	bool wait_asked; /* the receiver asked for this wait */
	int handles_open;
	uint64_t attempt_at_ms;
	struct backoff backoff;
	uint64_t dice;

	void (*flushed)(void *);
	void *flushed_arg;

	struct log_limit reject_log, partial_log, drop_log;
	struct sender_stats stats;
	bool failing; /* the last answer was no */
	char last_error[SENDER_ERROR_MAX];
};

/* sender_job.c */
int job_post_encode(struct sender *s, struct batch *batch);
/* Takes ITEMS in any case; those that get no job come back as dropped. */
void job_post_put(struct sender *s, struct item *items);
void job_post_load(struct sender *s, uint64_t budget_bytes, size_t budget_items);
void job_post_remove(struct sender *s, uint64_t seq);
/* Discards jobs that have not begun. */
void jobs_discard(struct sender *s);

/* sender.c */
void sender_drop(struct sender *s, enum sender_drop reason, uint64_t requests, int64_t samples);
void sender_encoded(struct sender *s, struct item *items);
void sender_loaded(struct sender *s, struct item *items);
void sender_jobs_changed(struct sender *s); /* a job is done */
void item_free(struct item *item);
