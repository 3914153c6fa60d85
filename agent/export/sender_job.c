/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sender does in the thread pool: encode and compress, write, read and remove segments.
 *
 * A FIFO of jobs, of which the first runs. The run_ functions below are on a thread of the pool and
 * touch their job, the spool and the sender's options only; everything else is on the loop thread.
 */
#include "agent/export/sender_internal.h"

#include <utlist.h>

#include "lib/metrics.h"

void item_free(struct item *item)
{
	payload_done(&item->payload);
	free(item);
}

static void items_free(struct item **items)
{
	struct item *item, *next;

	DL_FOREACH_SAFE (*items, item, next) {
		DL_DELETE(*items, item);
		item_free(item);
	}
}

static void job_free(struct job *job)
{
	batch_unref(job->batch);
	items_free(&job->items);
	free(job);
}

/* ---- on a thread of the pool ----------------------------------------------------------------- */

static void run_encode(struct job *job)
{
	const struct sender_options *o = &job->sender->options;
	struct otlp_request *requests = NULL;
	struct item *item;
	size_t n = 0, i;

	job->result = o->encode(job->batch, &job->otlp, &requests, &n, &job->error);
	for (i = 0; i < n && job->result == 0; i++) {
		item = calloc(1, sizeof(*item));
		if (!item) {
			job->result = -ENOMEM;
			break;
		}
		job->result = payload_compress(o->encoding, requests[i].data, requests[i].len,
					       requests[i].samples, &item->payload);
		item->payload.generation = job->otlp.generation;
		if (job->result < 0)
			free(item);
		else
			DL_APPEND(job->items, item);
	}
	otlp_requests_free(requests, n);
	/* The batch is released here, because freeing its arena takes time too. */
	job->loss.samples = job->result < 0 ? batch_cpu_samples(job->batch) : 0;
	if (job->result < 0)
		items_free(&job->items);
	job->batch = batch_unref(job->batch);
}

static void run_put(struct job *job)
{
	struct item *item, *next;
	int r;

	DL_FOREACH_SAFE (job->items, item, next) {
		r = spool_put(job->sender->spool, item->seq, &item->payload, &job->loss);
		if (r < 0) {
			job->result = r;
			continue;
		}
		DL_DELETE(job->items, item);
		item_free(item);
	}
}

static void run_load(struct job *job)
{
	uint64_t bytes = 0, after = job->seq;
	struct item *item;
	size_t n;
	int r;

	for (n = 0; n < job->budget_items && bytes < job->budget_bytes; n++) {
		item = calloc(1, sizeof(*item));
		r = item ? spool_next(job->sender->spool, after, &item->seq, &item->payload,
				      &job->loss)
			 : -ENOMEM;
		if (r < 0) {
			free(item);
			job->result = r == -ENOENT ? 0 : r;
			break;
		}
		item->spooled = true;
		after = item->seq;
		bytes += item->payload.len;
		DL_APPEND(job->items, item);
	}
	job->seq = after;
}

static void run(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct sender *s = job->sender;
	uint64_t read_up_to = s->read_up_to;

	switch (job->type) {
	case JOB_ENCODE:
		run_encode(job);
		break;
	case JOB_CONVERT:
		job->result = payload_convert(&job->items->payload, job->otlp.generation);
		break;
	case JOB_SPOOL_PUT:
		run_put(job);
		break;
	case JOB_SPOOL_LOAD:
		run_load(job);
		read_up_to = job->seq;
		break;
	case JOB_SPOOL_REMOVE:
		spool_remove(s->spool, job->seq);
		break;
	}
	if (s->spool) {
		job->spool_requests = spool_count(s->spool);
		job->spool_unread = spool_count_after(s->spool, read_up_to);
		job->spool_bytes = spool_bytes(s->spool);
	}
}

/* ---- on the loop ----------------------------------------------------------------------------- */

static void start_next(struct sender *s);

static void take_spool_state(struct sender *s, const struct job *job)
{
	if (!s->spool || s->freed)
		return;
	metric_add(M_EXPORT_SPOOL_REQUESTS,
		   (int64_t)job->spool_requests - (int64_t)s->stats.spool_requests);
	metric_add(M_EXPORT_SPOOL_BYTES, (int64_t)job->spool_bytes - (int64_t)s->stats.spool_bytes);
	s->stats.spool_requests = job->spool_requests;
	s->stats.spool_bytes = job->spool_bytes;
	s->unread = job->spool_unread;
	if (job->loss.corrupt) {
		s->stats.corrupt += job->loss.corrupt;
		metric_add(M_EXPORT_SPOOL_CORRUPT, (int64_t)job->loss.corrupt);
	}
	if (job->loss.requests)
		sender_drop(s, DROP_SPOOL_FULL, job->loss.requests, job->loss.samples);
}

static void put_finished(struct sender *s, struct job *job)
{
	struct item *item;
	int64_t samples = 0;
	uint64_t n = 0;

	DL_FOREACH (job->items, item) {
		samples += item->payload.samples;
		n++;
	}
	s->puts_pending =
	    s->puts_pending > job->budget_items ? s->puts_pending - job->budget_items : 0;
	if (n == 0)
		return;
	sender_drop(s, DROP_SPOOL_ERROR, n, samples);
	if (log_allowed(&s->drop_log, 60, NULL))
		log_warn("export", "%s: cannot spool: %s", s->name, strerror(-job->result));
}

static void after(struct work *work)
{
	struct job *job = container_of(work, struct job, work);
	struct sender *s = job->sender;
	struct item *items = TAKE_PTR(job->items);

	DL_DELETE(s->jobs, job);
	s->job_running = false;
	if (job->type == JOB_ENCODE) {
		s->batches--;
		if (job->result < 0) {
			sender_drop(s, DROP_ENCODING, 1, job->loss.samples);
			if (log_allowed(&s->drop_log, 60, NULL))
				log_warn("export", "%s: cannot encode a batch: %s", s->name,
					 job->error.message[0] ? job->error.message
							       : strerror(-job->result));
		}
		memset(&job->loss, 0, sizeof(job->loss));
	}
	if (job->type == JOB_SPOOL_LOAD) {
		s->read_up_to = job->seq;
		s->load_queued = false;
	}
	take_spool_state(s, job);
	if (job->type == JOB_SPOOL_PUT) {
		job->items = items;
		put_finished(s, job);
	} else if (job->type == JOB_ENCODE) {
		sender_encoded(s, items);
	} else if (job->type == JOB_CONVERT) {
		sender_converted(s, items, job->result);
	} else if (job->type == JOB_SPOOL_LOAD) {
		sender_loaded(s, items, job->result);
	}
	job_free(job);
	start_next(s);
	sender_jobs_changed(s);
}

static void start_next(struct sender *s)
{
	if (s->job_running || !s->jobs || s->freed)
		return;
	s->job_running = true;
	/* If no thread or descriptor is available, the job runs here. */
	if (work_submit(s->loop, &s->jobs->work, run, after) < 0) {
		run(&s->jobs->work);
		after(&s->jobs->work);
	}
}

static struct job *job_new(struct sender *s, enum job_type type)
{
	struct job *job = calloc(1, sizeof(*job));

	if (job) {
		job->sender = s;
		job->type = type;
		job->otlp = s->options.otlp;
	}
	return job;
}

static void job_post(struct sender *s, struct job *job)
{
	DL_APPEND(s->jobs, job);
	start_next(s);
}

/* The oldest batch that is not being encoded yet. */
static struct job *oldest_waiting_batch(struct sender *s)
{
	struct job *job;

	DL_FOREACH (s->jobs, job) {
		if (job->type == JOB_ENCODE && !(job == s->jobs && s->job_running))
			return job;
	}
	return NULL;
}

int job_post_encode(struct sender *s, struct batch *batch)
{
	enum { BATCHES_MAX = 8 };
	struct job *job;

	if (s->batches >= BATCHES_MAX && (job = oldest_waiting_batch(s))) {
		sender_drop(s, DROP_BACKLOG, 1, batch_cpu_samples(job->batch));
		DL_DELETE(s->jobs, job);
		job_free(job);
		s->batches--;
	}
	job = job_new(s, JOB_ENCODE);
	if (!job)
		return -ENOMEM;
	job->batch = batch_ref(batch);
	s->batches++;
	job_post(s, job);
	return 0;
}

int job_post_convert(struct sender *s, struct item *item, enum otlp_generation to)
{
	struct job *job = job_new(s, JOB_CONVERT);

	if (!job)
		return -ENOMEM;
	job->otlp.generation = to;
	DL_APPEND(job->items, item);
	job_post(s, job);
	return 0;
}

void job_post_put(struct sender *s, struct item *items)
{
	struct job *job = job_new(s, JOB_SPOOL_PUT);
	struct item *item;

	if (!job) {
		DL_FOREACH (items, item)
			sender_drop(s, DROP_SPOOL_ERROR, 1, item->payload.samples);
		items_free(&items);
		return;
	}
	DL_FOREACH (items, item)
		job->budget_items++;
	s->puts_pending += job->budget_items;
	job->items = items;
	job_post(s, job);
}

void job_post_load(struct sender *s, uint64_t budget_bytes, size_t budget_items)
{
	struct job *job;

	if (s->load_queued)
		return;
	job = job_new(s, JOB_SPOOL_LOAD);
	if (!job)
		return; /* the next delivery tries again */
	job->seq = s->read_up_to;
	job->budget_bytes = budget_bytes;
	job->budget_items = budget_items;
	s->load_queued = true;
	job_post(s, job);
}

void job_post_remove(struct sender *s, uint64_t seq)
{
	struct job *job = job_new(s, JOB_SPOOL_REMOVE);

	if (!job)
		return; /* the request is sent once more after the next start, not lost */
	job->seq = seq;
	job_post(s, job);
}

void jobs_discard(struct sender *s)
{
	struct job *job, *next;
	struct item *item;

	DL_FOREACH_SAFE (s->jobs, job, next) {
		if (job == s->jobs && s->job_running)
			continue;
		DL_DELETE(s->jobs, job);
		if (job->type == JOB_ENCODE)
			sender_drop(s, DROP_SHUTDOWN, 1, batch_cpu_samples(job->batch));
		if (job->type == JOB_CONVERT) {
			item = TAKE_PTR(job->items);
			sender_put_back(s, item);
		}
		if (job->type == JOB_SPOOL_PUT) {
			DL_FOREACH (job->items, item)
				sender_drop(s, DROP_SHUTDOWN, 1, item->payload.samples);
		}
		job_free(job);
	}
}
