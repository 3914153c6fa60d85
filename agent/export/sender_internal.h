/* SPDX-License-Identifier: Apache-2.0 */
/* What sender.c (queue and sending) and sender_job.c (work in the thread pool) share. */
#pragma once

#include "agent/export/sender.h"

#include "agent/export/spool.h"
#include "lib/backoff.h"
#include "lib/log.h"
#include "lib/work.h"

struct item { /* one request in memory */
	struct item *prev, *next;
	struct payload payload;
	uint64_t seq;
	bool spooled; /* a copy is on disk */
	bool refused; /* in the form of REFUSED_AS */
	enum otlp_generation refused_as;
};

enum { SENDER_ERROR_MAX = 768 }; /* what a receiver says, and advice */

enum job_type { JOB_ENCODE, JOB_CONVERT, JOB_SPOOL_PUT, JOB_SPOOL_LOAD, JOB_SPOOL_REMOVE };

/*
 * Work for the pool. One job of a sender runs at a time, in order: that keeps batches in order and
 * the spool with one user. While it runs, the loop does not touch the job or the spool.
 */
struct job {
	struct work work;
	struct job *prev, *next;
	struct sender *sender;
	enum job_type type;
	struct otlp_options otlp; /* the sender's when it was posted; CONVERT: to its generation */
	struct batch *batch;	  /* ENCODE */
	struct item *items;	  /* PUT: in, what failed stays; CONVERT: one; ENCODE, LOAD: out */
	uint64_t seq;		  /* LOAD: after this; REMOVE: this */
	uint64_t budget_bytes;	  /* LOAD */
	size_t budget_items;	  /* LOAD */
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
	bool converting;     /* the head is with its job, and not in the queue */
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
	unsigned int rejected_in_a_row;
	uint64_t log_sent_at_ms;

	/* proto_generation: auto, see sender_generation.c */
	uint64_t try_newest_ms, both_refused_until_ms, may_move_until_ms;
};

/* sender_job.c */
int job_post_encode(struct sender *s, struct batch *batch);
/* Takes ITEM, which is in no list; it comes back by sender_converted(). -ENOMEM: it does not. */
int job_post_convert(struct sender *s, struct item *item, enum otlp_generation to);
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
/* ITEM is the head again, as it was. */
void sender_put_back(struct sender *s, struct item *item);
/* RESULT < 0: ITEM is as it was. */
void sender_converted(struct sender *s, struct item *item, int result);
void sender_jobs_changed(struct sender *s); /* a job is done */
void item_free(struct item *item);

/* sender_generation.c */
/* In which generation HEAD is to be sent. */
enum otlp_generation generation_wanted(const struct sender *s, const struct item *head);
/* "v1.10 and v1.11": which versions of OTLP have this form. */
const char *generation_versions(enum otlp_generation g);
/* Do receivers tell them apart? */
bool generation_differs(enum otlp_generation a, enum otlp_generation b);
/* HEAD was rejected, maybe for its form. True: it is to be sent in the other one. */
bool generation_refused(struct sender *s, struct item *head);
/* generation_refused() said no: in which form the request was sent, and what to do. Goes behind the
 * receiver's words. */
const char *generation_advice(const struct sender *s);
/* HEAD was taken. */
void generation_taken(struct sender *s, const struct item *head);
/* A request is about to be sent: over a new connection, it may reach another version. */
void generation_check_connection(struct sender *s);
/* HEAD is sent next: decides whether the transport may open a new connection for it, or has to tell
 * first, because another version of the receiver may answer there. */
void generation_bind(struct sender *s, const struct item *head);
/* The transport held a request back because it needs a new connection: the newest form is next. */
void generation_moved(struct sender *s);
/* The receiver may be another one. */
void generation_ask_again(struct sender *s);
