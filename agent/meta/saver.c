/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy on disk: read once at start, written when the table has changed, at most every
 * snapshot_ms, by a thread of the loop's pool because disks can be slow. The loop thread encodes,
 * so the other one sees only bytes; one write at a time. At the end what is missing is written at
 * once.
 */
#include "agent/meta/client_internal.h"

#include "agent/meta/snapshot.h"
#include "lib/metrics.h"

void meta_saver_load(struct meta_client *c)
{
	struct error err;
	int r;

	if (!c->saver.path)
		return;
	r = snapshot_load(c->saver.path, c->table, uv_now(c->loop), &err);
	if (r == -ENOENT)
		return;
	if (r < 0) {
		c->status.snapshots_corrupt++;
		metric_add(M_POD_SNAPSHOTS_CORRUPT, 1);
		log_warn("operator", "%s; waiting for the operator instead", err.message);
		return;
	}
	c->status.source = META_FROM_DISK;
	c->saver.written = pod_table_generation(c->table);
	metric_set(M_PODS, (int64_t)pod_table_count(c->table));
	log_info("operator", "%zu pods of this node read from the snapshot of an earlier run",
		 pod_table_count(c->table));
}

static void saved(struct meta_client *c)
{
	struct meta_saver *s = &c->saver;
	unsigned int more;

	if (s->result == 0) {
		s->written = s->generation;
		c->status.snapshots_written++;
		return;
	}
	c->status.snapshots_failed++;
	metric_add(M_POD_SNAPSHOTS_FAILED, 1);
	if (log_allowed(&s->limit, 60, &more))
		log_warn("operator", "%s: %s", s->path, strerror(-s->result));
}

static void write_work(struct work *work)
{
	struct meta_saver *s = container_of(work, struct meta_saver, work);

	s->result = snapshot_write(s->path, s->bytes.data, s->bytes.len);
}

static void after_work(struct work *work)
{
	struct meta_saver *s = container_of(work, struct meta_saver, work);
	struct meta_client *c = container_of(s, struct meta_client, saver);

	s->working = false;
	buf_done(&s->bytes);
	saved(c);
	if (c->freed) {
		meta_saver_finish(c);
		meta_handle_gone(c);
	}
}

/* Encodes the table into c->saver.bytes. False: there is nothing to write, or encoding failed. */
static bool encode(struct meta_client *c, uint64_t now_ms)
{
	struct meta_saver *s = &c->saver;

	s->generation = pod_table_generation(c->table);
	s->last_ms = now_ms;
	buf_init(&s->bytes, SNAPSHOT_MAX);
	s->result = snapshot_encode(c->table, &s->bytes);
	if (s->result == 0)
		return true;
	buf_done(&s->bytes);
	if (s->result != -ENODATA)
		saved(c);
	return false;
}

static bool outdated(const struct meta_client *c)
{
	const struct meta_saver *s = &c->saver;

	/* Only the operator's state is saved: a state from the file is there already. */
	return s->path && !s->working && c->status.source == META_FROM_OPERATOR &&
	       pod_table_generation(c->table) != s->written;
}

void meta_saver_tick(struct meta_client *c, uint64_t now_ms)
{
	struct meta_saver *s = &c->saver;
	int r;

	if (!outdated(c) || (s->last_ms && now_ms - s->last_ms < c->options.snapshot_ms))
		return;
	if (!encode(c, now_ms))
		return;
	s->working = true;
	/* From here on the result is the worker's. */
	r = work_submit(c->loop, &s->work, write_work, after_work);
	if (r < 0) {
		s->result = r;
		after_work(&s->work); /* which the pool does not call */
	}
}

void meta_saver_finish(struct meta_client *c)
{
	struct meta_saver *s = &c->saver;

	/* A write under way has its own bytes and ends by itself: the loop waits for it. */
	if (!outdated(c) || !encode(c, uv_now(c->loop)))
		return;
	s->result = snapshot_write(s->path, s->bytes.data, s->bytes.len);
	buf_done(&s->bytes);
	saved(c);
}
