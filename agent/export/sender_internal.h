/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by sender.c (queue, sending), sender_job.c (thread pool) and sender_generation.c. */
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
	bool refused; /* rejected when sent in the form REFUSED_AS */
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
	/* The sender's options when the job was posted; CONVERT: the wanted generation. */
	struct otlp_options otlp;
	struct batch *batch; /* ENCODE */
	/* PUT: the requests to write; afterwards those that could not be written. CONVERT: the
	 * request. ENCODE, LOAD: the result. */
	struct item *items;
	uint64_t seq;	       /* LOAD: load requests above this number; REMOVE: the request */
	uint64_t budget_bytes; /* LOAD */
	size_t budget_items;   /* LOAD */
	int result;
	struct error error;
	struct spool_loss loss;
	/* State of the spool after the job. */
	size_t spool_requests, spool_unread;
	uint64_t spool_bytes;
};

struct sender {
	uv_loop_t *loop;
	char *name, *endpoint;
	struct transport *transport;
	struct transport *next; /* replaces `transport` before the next request; NULL: none */
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
	size_t unread, puts_pending; /* requests only on disk; requests on their way to disk */

	uv_timer_t wait;     /* backoff */
	uv_timer_t reload;   /* until the spool is read again, after that has failed */
	uv_timer_t deadline; /* of flush */
	bool converting;     /* the head is in a CONVERT job, and not in the queue */
	bool in_flight, waiting, flushing, spilling, freed;
	bool answering;	 /* a callback of the transport runs: it cannot be destroyed */
	bool wait_asked; /* the receiver asked for the current wait */
	int handles_open;
	uint64_t attempt_at_ms;
	struct backoff backoff;
	uint64_t dice;

	void (*flushed)(void *);
	void *flushed_arg;

	struct log_limit reject_log, partial_log, drop_log, load_log;
	struct sender_stats stats;
	bool failing; /* the last answer was not a success */
	char last_error[SENDER_ERROR_MAX];
	unsigned int rejected_in_a_row;
	uint64_t log_sent_at_ms;

	/* proto_generation: auto, see sender_generation.c */
	uint64_t try_newest_ms, both_refused_until_ms, may_move_until_ms;
};

/* sender_job.c */
int job_post_encode(struct sender *s, struct batch *batch);
/* Takes ITEM, which must be in no list; sender_converted() gives it back. On -ENOMEM it does not
 * take ITEM. */
int job_post_convert(struct sender *s, struct item *item, enum otlp_generation to);
/* Takes ITEMS in any case; without memory for a job they are dropped and counted. */
void job_post_put(struct sender *s, struct item *items);
void job_post_load(struct sender *s, uint64_t budget_bytes, size_t budget_items);
void job_post_remove(struct sender *s, uint64_t seq);
/* Discards jobs that have not begun. */
void jobs_discard(struct sender *s);

/* sender.c */
void sender_drop(struct sender *s, enum sender_drop reason, uint64_t requests, int64_t samples);
void sender_encoded(struct sender *s, struct item *items);
/* RESULT < 0: memory or descriptors are short; ITEMS, which may be NULL, were read before. */
void sender_loaded(struct sender *s, struct item *items, int result);
/* Puts ITEM back to the head of the queue. */
void sender_put_back(struct sender *s, struct item *item);
/* RESULT < 0: the conversion failed, ITEM is unchanged. */
void sender_converted(struct sender *s, struct item *item, int result);
void sender_jobs_changed(struct sender *s); /* a job is done */
void item_free(struct item *item);

/* sender_generation.c */
/* The generation in which HEAD has to be sent. */
enum otlp_generation generation_wanted(const struct sender *s, const struct item *head);
/* "v1.10 and v1.11": which versions of OTLP have this form. */
const char *generation_versions(enum otlp_generation g);
/* Whether the two generations have different forms on the wire. */
bool generation_differs(enum otlp_generation a, enum otlp_generation b);
/* HEAD was rejected, maybe because of its form. True: send it again in the other form. */
bool generation_refused(struct sender *s, struct item *head);
/* After generation_refused() was false: in which form the request was sent, and what to do. To be
 * appended to the receiver's words. */
const char *generation_advice(const struct sender *s);
/* HEAD was accepted. */
void generation_taken(struct sender *s, const struct item *head);
/* Before a request is sent: over a new connection it may reach another version of the receiver. */
void generation_check_connection(struct sender *s);
/* Before HEAD is sent: decides whether the transport may open a new connection for it, or has to
 * report that it would, because another version of the receiver may answer there. */
void generation_bind(struct sender *s, const struct item *head);
/* The transport did not send a request because that needs a new connection: the newest form is
 * tried next. */
void generation_moved(struct sender *s);
/* The receiver may have been replaced: the newest form is tried next. */
void generation_ask_again(struct sender *s);
