/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue in memory, and the one request under way.
 *
 * Order: every request gets a number when it is encoded. The queue holds the lowest numbers, the
 * spool those above (and copies of some in the queue that were read back). A new request goes to
 * the queue only while nothing on disk waits to be read, so numbers leave in order.
 *
 * Sending: the head of the queue is under way (in_flight), or waits for its next attempt (waiting),
 * or there is no head. Attempts are never ended by the queue's caps; a head that waits may be
 * dropped.
 *
 * Loop thread throughout.
 */
#include "agent/export/sender_internal.h"

#include <sys/random.h>
#include <utlist.h>

#include "lib/metrics.h"

enum {
	LOG_INTERVAL_S = 60,
	RETRY_AFTER_MAX_MS = 15 * 60 * 1000, /* no server may silence an agent for longer */
	RETRY_UNSENT_MS = 1000, /* wait when the transport could not even start a request */
	RELOAD_MS = 1000,	/* wait when the spool could not be read */
	LOG_SENT_MS = 60 * 60 * 1000,
	REFUSED_AFTER = 3, /* rejections in a row, without a success */
	/* Requests that may wait when the queue is disabled; one batch may make several. */
	UNQUEUED_REQUESTS = 8,
};

static const struct {
	const char *name;
	enum metric_id metric;
} drops[DROP_REASONS] = {
    [DROP_QUEUE_FULL] = {"the queue is full", M_EXPORT_DROPPED_QUEUE_FULL},
    [DROP_SPOOL_FULL] = {"the spool is full", M_EXPORT_DROPPED_SPOOL_FULL},
    [DROP_SPOOL_ERROR] = {"the spool cannot be written", M_EXPORT_DROPPED_SPOOL_ERROR},
    [DROP_REJECTED] = {"rejected", M_EXPORT_DROPPED_REJECTED},
    [DROP_EXPIRED] = {"retry.max_elapsed_time is over", M_EXPORT_DROPPED_EXPIRED},
    [DROP_ENCODING] = {"they cannot be encoded", M_EXPORT_DROPPED_ENCODING},
    [DROP_BACKLOG] = {"encoding does not keep up", M_EXPORT_DROPPED_BACKLOG},
    [DROP_SHUTDOWN] = {"the agent ends", M_EXPORT_DROPPED_SHUTDOWN},
};

const char *sender_drop_name(enum sender_drop reason)
{
	return drops[reason].name;
}

void sender_drop(struct sender *s, enum sender_drop reason, uint64_t requests, int64_t samples)
{
	unsigned int held_back = 0;

	s->stats.dropped_requests[reason] += requests;
	s->stats.dropped_samples[reason] += samples;
	metric_add(drops[reason].metric, samples);
	metric_add(M_EXPORT_SAMPLES_DROPPED, samples);
	/* head_rejected() logs rejections itself, with the server's words. */
	if (reason != DROP_REJECTED && log_allowed(&s->drop_log, LOG_INTERVAL_S, &held_back))
		log_warn("export",
			 "%s: dropped %lld samples in %llu requests: %s (%u more like it)", s->name,
			 (long long)samples, (unsigned long long)requests, drops[reason].name,
			 held_back);
}

/* ---- queue ----------------------------------------------------------------------------------- */

static void queue_count(struct sender *s, int requests, int64_t bytes)
{
	s->stats.queue_requests = (size_t)((int64_t)s->stats.queue_requests + requests);
	s->stats.queue_bytes = (size_t)((int64_t)s->stats.queue_bytes + bytes);
	metric_add(M_EXPORT_QUEUE_REQUESTS, requests);
	metric_add(M_EXPORT_QUEUE_BYTES, bytes);
}

static void queue_push(struct sender *s, struct item *item)
{
	DL_APPEND(s->queue, item);
	queue_count(s, 1, (int64_t)item->payload.len);
}

static void queue_remove(struct sender *s, struct item *item)
{
	DL_DELETE(s->queue, item);
	queue_count(s, -1, -(int64_t)item->payload.len);
	if (item->spooled)
		job_post_remove(s, item->seq);
	item_free(item);
}

static void queue_drop(struct sender *s, struct item *item, enum sender_drop reason)
{
	sender_drop(s, reason, 1, item->payload.samples);
	if (item == s->queue)
		backoff_reset(&s->backoff); /* the retry time of the next request starts at zero */
	queue_remove(s, item);
}

static bool queue_over(const struct sender *s, size_t more_requests, size_t more_bytes)
{
	return s->stats.queue_requests + more_requests > s->max_requests ||
	       s->stats.queue_bytes + more_bytes > s->max_bytes;
}

/* Drops the oldest requests, but not the one in flight: the receiver may have taken it already. */
static void queue_trim(struct sender *s)
{
	struct item *victim;

	while (queue_over(s, 0, 0)) {
		victim = s->in_flight ? s->queue->next : s->queue;
		/* A request that is also on disk was read back when there was room: keep it. */
		if (!victim || victim->spooled)
			return;
		queue_drop(s, victim, DROP_QUEUE_FULL);
	}
}

/* Reads back what is on disk once half of the memory is free. */
static void queue_refill(struct sender *s)
{
	if (s->unread > 0 && !s->spilling && !s->freed &&
	    !uv_is_active((uv_handle_t *)&s->reload) &&
	    s->stats.queue_requests <= s->max_requests / 2 &&
	    s->stats.queue_bytes <= s->max_bytes / 2)
		job_post_load(s, MAX(s->max_bytes / 2, 1), MAX(s->max_requests / 2, 1));
}

/* ---- sending --------------------------------------------------------------------------------- */

static void try_send(struct sender *s);
static void check_flushed(struct sender *s);

static void on_wait(uv_timer_t *timer)
{
	struct sender *s = container_of(timer, struct sender, wait);

	s->waiting = false;
	try_send(s);
	check_flushed(s);
}

static double dice_roll(struct sender *s)
{
	s->dice += 0x9e3779b97f4a7c15ULL;
	return (double)(mix64(s->dice) >> 11) / (double)(1ULL << 53);
}

static void wait_for(struct sender *s, uint64_t ms)
{
	s->waiting = true;
	uv_timer_start(&s->wait, on_wait, ms, 0);
}

static void set_failing(struct sender *s, const char *how, const struct transport_answer *a,
			const char *advice)
{
	s->failing = true;
	snprintf(s->last_error, sizeof(s->last_error), "%s: %s%s", how,
		 a->message[0] ? a->message : "no reason given", advice);
}

static void set_down(struct sender *s, const struct transport_answer *a)
{
	set_failing(s, a->away ? "unreachable" : "refuses for now", a, "");
	if (!s->stats.down)
		log_warn("export", "%s: %s %s: %s; will retry", s->name, s->endpoint,
			 a->away ? "is unreachable" : "refuses for now", a->message);
	s->stats.down = true;
}

static void set_up(struct sender *s)
{
	if (s->stats.down)
		log_info("export", "%s: %s recovered, %zu requests wait", s->name, s->endpoint,
			 s->stats.queue_requests + s->unread);
	s->stats.down = false;
	backoff_reset(&s->backoff);
}

/* Logs the first success, and then one line an hour, so that a later log shows that exports work.
 * SENT: the request that was taken just now. */
static void log_sent(struct sender *s, const struct payload *sent)
{
	uint64_t now = uv_now(s->loop);

	if (s->stats.sent_requests == 1)
		log_info("export", "%s: %s takes profiles: %lld samples, as OTLP %s", s->name,
			 s->endpoint, (long long)sent->samples,
			 generation_versions(sent->generation));
	else if (now >= s->log_sent_at_ms)
		log_info("export",
			 "%s: %s has taken %llu requests with %lld samples since the start",
			 s->name, s->endpoint, (unsigned long long)s->stats.sent_requests,
			 (long long)s->stats.sent_samples);
	else
		return;
	s->log_sent_at_ms = now + LOG_SENT_MS;
}

static void count_uncertain(struct sender *s)
{
	s->stats.uncertain++;
	metric_add(M_EXPORT_REQUESTS_UNCERTAIN, 1);
}

static void head_sent(struct sender *s, const struct transport_answer *a)
{
	unsigned int held_back = 0;

	set_up(s);
	s->failing = false;
	s->rejected_in_a_row = 0;
	s->stats.sent_requests++;
	s->stats.sent_samples += s->queue->payload.samples;
	log_sent(s, &s->queue->payload);
	generation_taken(s, s->queue);
	metric_add(M_EXPORT_REQUESTS_SENT, 1);
	metric_add(M_EXPORT_SAMPLES_SENT, s->queue->payload.samples);
	/* OTLP: rejected 0 with a message is a warning; in both cases the request must not be
	 * retried. */
	if (a->rejected > 0) {
		s->stats.partial++;
		s->stats.rejected_profiles += (uint64_t)a->rejected;
		metric_add(M_EXPORT_REQUESTS_PARTIAL, 1);
		metric_add(M_EXPORT_REJECTED_PROFILES, a->rejected);
	}
	if ((a->rejected > 0 || a->message[0]) &&
	    log_allowed(&s->partial_log, LOG_INTERVAL_S, &held_back))
		log_warn("export", "%s: %s took a request but rejected %lld profiles: %s (%u more)",
			 s->name, s->endpoint, (long long)a->rejected, a->message, held_back);
	queue_remove(s, s->queue);
}

static void head_rejected(struct sender *s, const struct transport_answer *a)
{
	const char *advice = a->maybe_form ? generation_advice(s) : "";
	unsigned int held_back = 0;

	set_up(s); /* the receiver is reachable: it answers */
	if (a->maybe_form && generation_refused(s, s->queue))
		return;
	set_failing(s, "rejects", a, advice);
	s->rejected_in_a_row++;
	metric_add(M_EXPORT_REQUESTS_REJECTED, 1);
	if (log_allowed(&s->reject_log, LOG_INTERVAL_S, &held_back))
		log_warn("export", "%s: %s rejected a request of %lld samples: %s%s (%u more)",
			 s->name, s->endpoint, (long long)s->queue->payload.samples, a->message,
			 advice, held_back);
	queue_drop(s, s->queue, DROP_REJECTED);
}

static void head_retry(struct sender *s, const struct transport_answer *a)
{
	uint64_t floor = MIN(a->retry_after_ms, (uint64_t)RETRY_AFTER_MAX_MS), delay;
	uint64_t spent = uv_now(s->loop) - s->attempt_at_ms;

	if (a->elsewhere) {
		generation_moved(s);
		return;
	}
	s->stats.retries++;
	metric_add(M_EXPORT_REQUESTS_RETRIED, 1);
	set_down(s, a);
	s->rejected_in_a_row = 0;
	if (a->away)
		generation_ask_again(s);
	if (!s->retry.enabled ||
	    backoff_next(&s->backoff, !a->away, spent, floor, dice_roll(s), &delay) < 0) {
		queue_drop(s, s->queue, DROP_EXPIRED);
		delay = floor; /* the server's Retry-After applies to the next request too */
	}
	s->wait_asked = floor > 0;
	wait_for(s, delay);
}

static void on_answer(const struct transport_answer *answer, void *arg)
{
	struct sender *s = arg;

	uv_update_time(s->loop);
	s->in_flight = false;
	s->answering = true;
	if (answer->uncertain)
		count_uncertain(s);
	switch (answer->result) {
	case TRANSPORT_SENT:
		head_sent(s, answer);
		break;
	case TRANSPORT_RETRY:
		head_retry(s, answer);
		break;
	case TRANSPORT_REJECTED:
		head_rejected(s, answer);
		break;
	}
	queue_refill(s);
	try_send(s);
	s->answering = false;
	check_flushed(s);
}

static void replace_transport(struct sender *s)
{
	s->transport->ops->destroy(s->transport);
	s->transport = TAKE_PTR(s->next);
	generation_ask_again(s);
}

/* Hands the head to a job that converts it to the wanted generation. False: it has that
 * generation. */
static bool convert_head(struct sender *s)
{
	struct item *head = s->queue;
	enum otlp_generation wanted = generation_wanted(s, head);

	if (!generation_differs(head->payload.generation, wanted))
		return false;
	DL_DELETE(s->queue, head);
	queue_count(s, -1, -(int64_t)head->payload.len);
	s->converting = true;
	if (job_post_convert(s, head, wanted) < 0)
		sender_converted(s, head, -ENOMEM);
	return true;
}

static void try_send(struct sender *s)
{
	if (s->in_flight || s->waiting || s->converting || s->spilling || s->freed)
		return;
	if (s->next && s->answering) {
		s->wait_asked = false;
		wait_for(s, 0);
		return;
	}
	if (s->next)
		replace_transport(s);
	/* A spool may hold what an earlier configuration wrote for another transport. */
	while (s->queue && !(s->options.encodings & (1u << s->queue->payload.encoding)))
		queue_drop(s, s->queue, DROP_ENCODING);
	generation_check_connection(s);
	if (!s->queue || convert_head(s))
		return;
	generation_bind(s, s->queue);
	s->attempt_at_ms = uv_now(s->loop);
	s->in_flight = true;
	if (s->transport->ops->send(s->transport, &s->queue->payload, s->timeout_ms, on_answer, s) <
	    0) {
		s->in_flight = false;
		s->wait_asked = false;
		wait_for(s, RETRY_UNSENT_MS);
	}
}

/* ---- from the pool --------------------------------------------------------------------------- */

static bool belongs_on_disk(const struct sender *s, const struct item *item)
{
	return s->spool && (s->unread > 0 || s->puts_pending > 0 || s->load_queued ||
			    queue_over(s, 1, item->payload.len));
}

/* ITEMS: the requests of a batch, or NULL. */
void sender_encoded(struct sender *s, struct item *items)
{
	struct item *item, *next, *to_disk = NULL;

	DL_FOREACH_SAFE (items, item, next) {
		DL_DELETE(items, item);
		item->seq = ++s->next_seq;
		if (s->freed) {
			sender_drop(s, DROP_SHUTDOWN, 1, item->payload.samples);
			item_free(item);
		} else if (to_disk || belongs_on_disk(s, item)) {
			DL_APPEND(to_disk, item);
		} else {
			queue_push(s, item);
		}
	}
	if (to_disk)
		job_post_put(s, to_disk);
	queue_trim(s);
	try_send(s);
}

void sender_put_back(struct sender *s, struct item *item)
{
	s->converting = false;
	DL_PREPEND(s->queue, item);
	queue_count(s, 1, (int64_t)item->payload.len);
}

void sender_converted(struct sender *s, struct item *item, int result)
{
	if (s->freed) {
		s->converting = false;
		if (!item->spooled) /* the copy on disk stays for the next start */
			sender_drop(s, DROP_SHUTDOWN, 1, item->payload.samples);
		item_free(item);
		return;
	}
	sender_put_back(s, item);
	if (result == -ENOMEM) {
		s->wait_asked = false;
		wait_for(s, RETRY_UNSENT_MS);
	} else if (result < 0) {
		queue_drop(s, item, DROP_ENCODING);
	}
	queue_trim(s);
	try_send(s);
}

static void on_reload(uv_timer_t *timer)
{
	queue_refill(container_of(timer, struct sender, reload));
}

void sender_loaded(struct sender *s, struct item *items, int result)
{
	struct item *item, *next;

	DL_FOREACH_SAFE (items, item, next) {
		DL_DELETE(items, item);
		if (s->freed)
			item_free(item); /* the copy on disk stays */
		else
			queue_push(s, item);
	}
	if (result < 0 && !s->freed) {
		if (log_allowed(&s->load_log, LOG_INTERVAL_S, NULL))
			log_warn("export", "%s: cannot read the spool: %s; will retry", s->name,
				 strerror(-result));
		uv_timer_start(&s->reload, on_reload, RELOAD_MS, 0);
	}
	try_send(s);
}

/* ---- end ------------------------------------------------------------------------------------- */

static void flush_finished(struct sender *s)
{
	void (*flushed)(void *) = TAKE_PTR(s->flushed);

	uv_timer_stop(&s->deadline);
	if (flushed)
		flushed(s->flushed_arg);
}

/* No job runs, so this thread may use the spool. Writes requests that are only in memory to it, or
 * drops them. */
static void spill(struct sender *s)
{
	struct spool_loss loss = {0};
	struct item *item, *next;
	uint64_t left = 0;
	int r;

	DL_FOREACH_SAFE (s->queue, item, next) {
		r = -ENOENT;
		if (s->spool) {
			r = spool_keep(s->spool, item->seq)
				? 0
				: spool_put(s->spool, item->seq, &item->payload, &loss);
			/* Set so that removing it from memory does not delete it from disk. */
			item->spooled = false;
		}
		if (r < 0)
			sender_drop(s, s->spool ? DROP_SPOOL_ERROR : DROP_SHUTDOWN, 1,
				    item->payload.samples);
		queue_remove(s, item);
	}
	if (loss.requests)
		sender_drop(s, DROP_SPOOL_FULL, loss.requests, loss.samples);
	if (s->spool)
		left = spool_count(s->spool);
	if (left > 0)
		log_info("export", "%s: %llu requests wait on disk for the next start", s->name,
			 (unsigned long long)left);
}

static void stop_sending(struct sender *s)
{
	uv_timer_stop(&s->wait);
	s->waiting = false;
	if (s->in_flight) {
		s->in_flight = false;
		if (!s->transport->ops->cancel(s->transport))
			return;
		count_uncertain(s);
	}
}

static void check_flushed(struct sender *s)
{
	/* The receiver is away and there is a spool: write the queue to it instead of waiting. */
	if (s->flushing && !s->spilling && s->spool && s->stats.down && !s->in_flight && !s->jobs)
		s->spilling = true;
	if (s->spilling && !s->jobs) {
		stop_sending(s);
		spill(s);
		flush_finished(s);
	} else if (s->flushing && !s->jobs && !s->queue && s->unread == 0) {
		flush_finished(s);
	}
}

static void on_deadline(uv_timer_t *timer)
{
	struct sender *s = container_of(timer, struct sender, deadline);

	s->spilling = true;
	stop_sending(s);
	check_flushed(s);
}

void sender_flush(struct sender *s, uint64_t deadline_ms, void (*done)(void *), void *arg)
{
	s->flushing = true;
	s->flushed = done;
	s->flushed_arg = arg;
	uv_update_time(s->loop);
	uv_timer_start(&s->deadline, on_deadline, deadline_ms, 0);
	/* One attempt at once, unless the receiver asked to wait; later attempts wait as usual. */
	if (s->waiting && !s->wait_asked) {
		uv_timer_stop(&s->wait);
		s->waiting = false;
	}
	queue_refill(s);
	try_send(s);
	check_flushed(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void free_memory(struct sender *s)
{
	spool_free(s->spool);
	free(s->name);
	free(s->endpoint);
	free(s);
}

static void check_free(struct sender *s)
{
	if (s->freed && s->handles_open == 0 && !s->jobs)
		free_memory(s);
}

static void on_closed(uv_handle_t *handle)
{
	struct sender *s = handle->data;

	s->handles_open--;
	check_free(s);
}

void sender_jobs_changed(struct sender *s)
{
	if (s->freed) {
		check_free(s);
		return;
	}
	queue_refill(s);
	check_flushed(s);
}

void sender_consume(struct sender *s, struct batch *batch)
{
	if (s->flushing || s->freed)
		sender_drop(s, DROP_SHUTDOWN, 1, batch_cpu_samples(batch));
	else if (job_post_encode(s, batch) < 0)
		sender_drop(s, DROP_ENCODING, 1, batch_cpu_samples(batch));
}

void sender_get_stats(const struct sender *s, struct sender_stats *ret)
{
	*ret = s->stats;
}

bool sender_healthy(const struct sender *s, char *error, size_t size)
{
	if (s->failing)
		snprintf(error, size, "%s", s->last_error);
	return !s->failing;
}

bool sender_refused(const struct sender *s, char *error, size_t size)
{
	snprintf(error, size, "%s", s->last_error);
	return s->rejected_in_a_row >= REFUSED_AFTER;
}

static int open_spool(struct sender *s, const struct queue_config *q, struct error *err)
{
	struct spool_loss loss = {0};
	_cleanup_free_ char *path = NULL;
	char *p;
	int r;

	if (asprintf(&path, "%s/%s", q->storage, s->name) < 0) {
		path = NULL;
		return error_set(err, -ENOMEM, "out of memory");
	}
	/* One directory an exporter; "otlp_grpc/backend" must not become two levels. */
	for (p = path + strlen(q->storage) + 1; *p; p++) {
		if (*p == '/' || *p == '.')
			*p = '_';
	}
	r = spool_open(path, q->storage_max_bytes, &s->spool, &loss, err);
	if (r < 0)
		return error_wrap(err, r, "sending_queue.storage");
	s->next_seq = spool_last(s->spool);
	s->unread = spool_count(s->spool);
	s->stats.spool_requests = s->unread;
	s->stats.spool_bytes = spool_bytes(s->spool);
	metric_add(M_EXPORT_SPOOL_REQUESTS, (int64_t)s->stats.spool_requests);
	metric_add(M_EXPORT_SPOOL_BYTES, (int64_t)s->stats.spool_bytes);
	if (loss.corrupt) {
		s->stats.corrupt = loss.corrupt;
		metric_add(M_EXPORT_SPOOL_CORRUPT, (int64_t)loss.corrupt);
		log_warn("export", "%s: removed %llu damaged requests from %s", s->name,
			 (unsigned long long)loss.corrupt, path);
	}
	if (loss.requests)
		sender_drop(s, DROP_SPOOL_FULL, loss.requests, loss.samples);
	if (s->unread)
		log_info("export", "%s: %zu requests from an earlier run are in the spool", s->name,
			 s->unread);
	return 0;
}

/* The endpoint for log lines: without user and password. */
static char *endpoint_shown(const char *endpoint)
{
	const char *host = endpoint ? strstr(endpoint, "://") : NULL, *at;
	char *text;

	if (!endpoint)
		return strdup("the receiver");
	if (!host)
		return strdup(endpoint);
	host += 3;
	at = memrchr(host, '@', strcspn(host, "/?#"));
	if (!at)
		return strdup(endpoint);
	return asprintf(&text, "%.*s%s", (int)(host - endpoint), endpoint, at + 1) < 0 ? NULL
										       : text;
}

static int sender_init(struct sender *s, const struct sender_options *o, struct error *err)
{
	const struct exporter_config *c = o->config;
	struct backoff_options backoff = {
	    .initial_ms = MAX(c->retry.initial_interval_ms, 1),
	    .max_ms = MAX(c->retry.max_interval_ms, 1),
	    .multiplier = c->retry.multiplier,
	    .randomization = c->retry.randomization_factor,
	    .max_elapsed_ms = c->retry.max_elapsed_time_ms,
	};

	s->name = strdup(c->id);
	s->endpoint = endpoint_shown(c->profiles_endpoint ? c->profiles_endpoint : c->endpoint);
	if (!s->name || !s->endpoint)
		return error_set(err, -ENOMEM, "out of memory");
	s->options = *o;
	s->options.config = NULL;
	s->retry = c->retry;
	s->timeout_ms = c->timeout_ms;
	s->max_bytes = c->queue.max_bytes;
	s->max_requests = c->queue.enabled ? MAX(c->queue.queue_size, 1) : UNQUEUED_REQUESTS;
	backoff_init(&s->backoff, &backoff);
	if (getrandom(&s->dice, sizeof(s->dice), GRND_NONBLOCK) < 0)
		s->dice = uv_hrtime();
	return c->queue.storage ? open_spool(s, &c->queue, err) : 0;
}

int sender_new(const struct sender_options *o, struct transport *transport, uv_loop_t *loop,
	       struct sender **ret, struct error *err)
{
	struct sender *s = calloc(1, sizeof(*s));
	int r = s ? sender_init(s, o, err) : error_set(err, -ENOMEM, "out of memory");

	if (r < 0) {
		transport->ops->destroy(transport);
		if (s)
			free_memory(s);
		return r;
	}
	s->loop = loop;
	s->transport = transport;
	uv_timer_init(loop, &s->wait); /* these cannot fail */
	uv_timer_init(loop, &s->reload);
	uv_timer_init(loop, &s->deadline);
	s->wait.data = s->reload.data = s->deadline.data = s;
	s->handles_open = 3;
	queue_refill(s);
	*ret = s;
	return 0;
}

void sender_set_transport(struct sender *s, struct transport *transport)
{
	if (s->next)
		s->next->ops->destroy(s->next);
	s->next = transport;
	if (s->waiting && !s->wait_asked) {
		uv_timer_stop(&s->wait);
		s->waiting = false;
	}
	try_send(s);
}

struct sender *sender_free(struct sender *s)
{
	struct item *item, *next;

	if (!s)
		return NULL;
	stop_sending(s);
	jobs_discard(s);
	s->freed = true;
	DL_FOREACH_SAFE (s->queue, item, next) {
		if (!item->spooled)
			sender_drop(s, DROP_SHUTDOWN, 1, item->payload.samples);
		item->spooled = false; /* the copy on disk stays for the next start */
		queue_remove(s, item);
	}
	metric_add(M_EXPORT_SPOOL_REQUESTS, -(int64_t)s->stats.spool_requests);
	metric_add(M_EXPORT_SPOOL_BYTES, -(int64_t)s->stats.spool_bytes);
	s->stats.spool_requests = 0;
	s->stats.spool_bytes = 0;
	s->transport->ops->destroy(s->transport);
	if (s->next)
		s->next->ops->destroy(s->next);
	uv_close((uv_handle_t *)&s->wait, on_closed);
	uv_close((uv_handle_t *)&s->reload, on_closed);
	uv_close((uv_handle_t *)&s->deadline, on_closed);
	return NULL;
}
